//! Memory suggestions: a query, the memory that was suggested for it, and the verdict.

use clap::Args;
use serde::{Deserialize, Serialize};
use sqlx::postgres::PgRow;
use sqlx::{Postgres, QueryBuilder, Row as _};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use crate::exports::format::{Example, Shape};
use crate::exports::params::Common;
use crate::exports::schema;
use crate::exports::split::{Contents, Sides, Split};
use crate::exports::text::Text;
use crate::exports::{Dataset, Described, Description, Lines, RowKey};
use crate::http::Checks;
use crate::memories::{SourceType, Verdict};
use crate::types::Timestamp;

/// The parameters of memory suggestions.
#[derive(Debug, Clone, Default, Deserialize, IntoParams, Args)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
#[group(skip)]
pub struct MemorySuggestions {
    /// Only memories of this kind.
    #[arg(long, value_name = "KIND")]
    #[param(inline)]
    source_type: Option<SourceType>,
    /// Only suggestions with this verdict.
    #[arg(long, value_name = "VERDICT")]
    #[param(inline)]
    verdict: Option<Verdict>,
}

#[derive(Serialize, ToSchema)]
struct Raw<'a> {
    query: &'a str,
    suggested: &'a str,
    source_type: SourceType,
    verdict: Verdict,
    confidence: f64,
}

#[derive(Serialize, ToSchema)]
struct Metadata<'a> {
    session_id: &'a str,
    memory_id: Uuid,
    suggest_id: Uuid,
    query_id: Uuid,
    source_type: SourceType,
    intent_type: &'a str,
    confidence: f64,
    score: f64,
    shown_at: Timestamp,
    completed_at: Timestamp,
}

impl Described for MemorySuggestions {
    const DESCRIPTION: Description = Description {
        name: "memory-suggestions",
        summary: "Queries, the memories that were suggested for them, and whether they were used or dismissed.",
        notes: "The data set contains only suggestions with a verdict. A suggestion whose memory has another text since is left \
            out, because the verdict was on the earlier text. A row of `raw` has `query`, `suggested`, `source_type`, \
            `verdict` and `confidence`. A row of `pairs` is a query and a memory that was used. `triplets` has a row for each \
            dismissed memory of the same response. `split` divides the rows by query.",
        shapes: &[Shape::Raw, Shape::Triplet, Shape::Pair],
        raw: Some(schema::of::<Raw<'_>>),
        metadata: Some(schema::of::<Metadata<'_>>),
        split: Split::ByQuestion,
        tables: &["conversation_memories"],
        count: None,
        skipped: Some(
            "from conversation_memories c
            join memories m on m.project = $1 and m.id = c.memory_id
            where c.project = $1 and c.verdict is not null and c.suggest_id is not null and m.content is null",
        ),
    };
}

impl Dataset for MemorySuggestions {
    fn check(&self, shape: Shape, checks: &mut Checks) {
        checks.require(
            shape == Shape::Raw || self.verdict.is_none(),
            "verdict",
            "is allowed only with the format raw",
        );
    }

    fn push_from(&self, query: &mut QueryBuilder<Postgres>, common: &Common, shape: Shape) {
        self.push_rows(query, common, shape);
        if common.is_exact() {
            // No index has the texts of queries and memories, so each page compares all rows: once, because a condition that is
            // compared with true is no join, which would compare them for each row.
            query.push(
                " and ((c.id, beside.rank) in (select id, rank from (
                    select c.id, beside.rank, row_number() over (
                        partition by q.query, m.content, c.verdict, beside.content
                        order by c.judged_at, c.id, beside.rank) as nth",
            );
            self.push_rows(query, common, shape);
            query.push(") equal where nth = 1)) is true");
        }
    }

    fn sort_key(&self) -> [&'static str; 3] {
        ["c.judged_at", "c.id", "beside.rank"]
    }

    fn columns(&self, common: &Common, shape: Shape) -> String {
        let mut columns =
            "q.query, m.content as suggested, c.source_type, c.verdict, c.confidence, c.memory_id, c.query_id,
            beside.memory_id as negative_id"
                .to_owned();
        if shape == Shape::Triplet {
            columns.push_str(", beside.content as negative");
        }
        if common.with_metadata() {
            columns.push_str(", c.session_id, c.suggest_id, c.intent_type, c.score, c.shown_at");
        }
        columns
    }

    fn write(&self, row: &PgRow, key: RowKey, common: &Common, lines: &mut Lines<'_>) -> anyhow::Result<()> {
        let (query, suggested): (&str, &str) = (row.try_get("query")?, row.try_get("suggested")?);
        let negative: Option<Uuid> = row.try_get("negative_id")?;
        let records = [row.try_get("memory_id")?, row.try_get("query_id")?];
        lines.has_records(records.into_iter().chain(negative));
        let (source_type, confidence) = (row.try_get("source_type")?, row.try_get("confidence")?);
        let metadata = common.with_metadata().then(|| -> sqlx::Result<_> {
            Ok(Metadata {
                session_id: row.try_get("session_id")?,
                memory_id: row.try_get("memory_id")?,
                suggest_id: row.try_get("suggest_id")?,
                query_id: row.try_get("query_id")?,
                source_type,
                intent_type: row.try_get("intent_type")?,
                confidence,
                score: row.try_get("score")?,
                shown_at: row.try_get("shown_at")?,
                completed_at: key.completed_at,
            })
        });
        let example = match lines.shape() {
            Shape::Triplet => {
                Example::Triplet { anchor: query, positive: suggested, negative: row.try_get("negative")? }
            }
            Shape::Pair => Example::Pair { anchor: query, positive: suggested },
            _ => Example::Raw(Raw {
                query,
                suggested,
                source_type,
                verdict: row.try_get("verdict")?,
                confidence,
            }),
        };
        lines.write(example, metadata.transpose()?)
    }
}

impl MemorySuggestions {
    /// Adds the suggested memories `c` with the query `q`, the memory `m`, and the memory `beside` with which a triplet
    /// compares it: each one with another text that was suggested in the same response and dismissed. Rows of other shapes have
    /// none.
    fn push_rows(&self, query: &mut QueryBuilder<Postgres>, common: &Common, shape: Shape) {
        query.push(
            " from conversation_memories c
            join conversation_queries q on q.project = $1 and q.id = c.query_id and q.query is not null
            join memories m on m.project = $1 and m.id = c.memory_id and m.revision = c.memory_revision
                and m.content is not null",
        );
        if shape == Shape::Triplet {
            query.push(
                " join lateral (
                    select d.rank, n.content, d.memory_id from conversation_memories d
                    join memories n on n.project = $1 and n.id = d.memory_id and n.revision = d.memory_revision
                        and n.content is not null
                    where d.project = $1 and d.suggest_id = c.suggest_id and d.verdict = 'dismissed'
                        and bare_hash(n.content) <> bare_hash(m.content)",
            );
            if let Some(as_of) = common.as_of {
                query.push(" and d.judged_at < ").push_bind(as_of);
            }
            query.push(") beside on true");
        } else {
            query.push(
                " cross join (select 0 as rank, null::text as content, null::uuid as memory_id) beside",
            );
        }
        query.push(" where c.project = $1 and c.verdict is not null and c.suggest_id is not null");
        let verdict = if shape == Shape::Raw { self.verdict } else { Some(Verdict::Used) };
        if let Some(verdict) = verdict {
            query.push(" and c.verdict = ").push_bind(verdict);
        }
        if let Some(source_type) = self.source_type {
            query.push(" and c.source_type = ").push_bind(source_type);
        }
        let question = Text { kind: "query", sql: "q.query" };
        let sides = Sides { session: "c.session_id", contents: Contents::Question(question) };
        common.push(query, "c.shown_at", &sides);
    }
}
