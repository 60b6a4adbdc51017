//! Search pairs: a query, the file that answered it, and files that did not help, from searches that were resolved.

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
use crate::searches::rules::paths;
use crate::types::Timestamp;

/// The parameters of search pairs.
#[derive(Debug, Clone, Default, Deserialize, IntoParams, Args)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
#[group(skip)]
pub struct SearchPairs {
    /// Only searches about this folder.
    #[arg(long, value_name = "DIR")]
    #[param(example = "/home/jane/my-project")]
    root: Option<String>,
}

/// The SQL of the files that did not help the search `s`, as rows of path and rank: files in the weak result or in a hint that were
/// not the answer.
const UNHELPFUL: &str = "
    select path, row_number() over (order by min(rank), path) as rank from (
        select result.value ->> 'path' as path, result.ordinality as rank
        from jsonb_array_elements(s.results) with ordinality as result
        union all
        select hint.path, 1000 + hint.rank from search_hints hint
        where hint.project = $1 and hint.search_id = s.id and not hint.read
    ) offered
    where not exists (
        select from association_evidence answer
        join associations b on b.project = $1 and b.id = answer.association_id
        where answer.project = $1 and answer.source = s.id and answer.kind = 'found' and b.path = offered.path)
    group by path";

#[derive(Serialize, ToSchema)]
struct Raw<'a> {
    query: &'a str,
    path: &'a str,
    unhelpful: Vec<String>,
    root: Option<&'a str>,
}

#[derive(Serialize, ToSchema)]
struct Metadata<'a> {
    search_id: Uuid,
    agent_session_id: Option<&'a str>,
    agent_id: Option<&'a str>,
    root: Option<&'a str>,
    timestamp: Timestamp,
    completed_at: Timestamp,
    best_score: Option<f64>,
    result_count: i32,
    weight: f64,
}

impl Described for SearchPairs {
    const DESCRIPTION: Description = Description {
        name: "search-pairs",
        summary: "Queries with weak results, the files that answered them, and files that did not help.",
        notes: "The data set contains only resolved searches. A file to which a person objected, so that the agent went to \
            another, is not an answer. Neither is one that a client reported as wrong for the query, until it is reported as useful \
            or found again. A row of `raw` has `query`, `path`, `unhelpful` and `root`; \
            `triplets` has a row for each file that did not help. `split` divides the rows by query.",
        shapes: &[Shape::Raw, Shape::Triplet, Shape::Pair],
        raw: Some(schema::of::<Raw<'_>>),
        metadata: Some(schema::of::<Metadata<'_>>),
        split: Split::ByQuestion,
        tables: &["searches"],
        count: None,
        skipped: None,
    };
}

impl Dataset for SearchPairs {
    fn check(&self, _: Shape, checks: &mut Checks) {
        checks.require(self.root.as_deref() != Some(""), "root", "must not be empty");
    }

    fn push_from(&self, query: &mut QueryBuilder<Postgres>, common: &Common, shape: Shape) {
        self.push_rows(query, common, shape);
        if common.is_exact() {
            let compared = match shape {
                Shape::Pair => "s.query, s.path".to_owned(),
                Shape::Triplet => "s.query, s.path, s.negative".to_owned(),
                // Most searches are the only one of their root, query and file. The other files of those are not read.
                _ => format!(
                    "s.root, s.query, s.path,
                    case when s.alike > 1 then array(select path from ({UNHELPFUL}) own order by path) end"
                ),
            };
            // No index has all that is compared, so each page compares all rows: once, because a condition that is compared with
            // true is no join, which would compare them for each row.
            query.push(format_args!(
                " and ((s.id, e.association_id, unhelpful.rank) in (select id, association_id, rank from (
                    select s.id, s.association_id, s.rank, row_number() over (
                        partition by {compared} order by s.completed_at, s.id, s.place, s.rank) as nth
                    from (select s.id, s.completed_at, s.root, s.query, s.results, a.path, e.association_id, e.rank as place,
                            unhelpful.path as negative, unhelpful.rank, count(*) over (partition by e.association_id) as alike"
            ));
            self.push_rows(query, common, shape);
            query.push(") s) equal where nth = 1)) is true");
        }
    }

    fn sort_key(&self) -> [&'static str; 3] {
        ["s.completed_at", "s.id", "(e.rank * 2048 + unhelpful.rank)::int"]
    }

    fn columns(&self, common: &Common, shape: Shape) -> String {
        let mut columns = "s.query, a.path, s.root".to_owned();
        if shape == Shape::Triplet {
            columns.push_str(", unhelpful.path as negative");
        } else {
            columns =
                format!("{columns}, array(select path from ({UNHELPFUL}) other order by rank) as unhelpful");
        }
        if common.with_metadata() {
            columns.push_str(
                ", s.agent_session_id, s.agent_id, s.timestamp, s.best_score, s.result_count, e.weight",
            );
        }
        columns
    }

    fn write(&self, row: &PgRow, key: RowKey, common: &Common, lines: &mut Lines<'_>) -> anyhow::Result<()> {
        let (query, path): (&str, &str) = (row.try_get("query")?, row.try_get("path")?);
        let root = row.try_get("root")?;
        let metadata = common.with_metadata().then(|| -> sqlx::Result<_> {
            Ok(Metadata {
                search_id: key.record_id,
                agent_session_id: row.try_get("agent_session_id")?,
                agent_id: row.try_get("agent_id")?,
                root,
                timestamp: row.try_get("timestamp")?,
                completed_at: key.completed_at,
                best_score: row.try_get("best_score")?,
                result_count: row.try_get("result_count")?,
                weight: row.try_get("weight")?,
            })
        });
        let example = match lines.shape() {
            Shape::Triplet => {
                Example::Triplet { anchor: query, positive: path, negative: row.try_get("negative")? }
            }
            Shape::Pair => Example::Pair { anchor: query, positive: path },
            _ => Example::Raw(Raw { query, path, unhelpful: row.try_get("unhelpful")?, root }),
        };
        lines.write(example, metadata.transpose()?)
    }
}

impl SearchPairs {
    /// Adds `from` and `where`, with the search `s`, and as `unhelpful` a file that did not help where it is part of the row.
    /// A file to which a person objected, with the effect that the agent went to another, is not the answer, nor is one whose
    /// latest report says that it is wrong. What had been exported by then has it all the same.
    fn push_rows(&self, query: &mut QueryBuilder<Postgres>, common: &Common, shape: Shape) {
        let others = match shape {
            Shape::Triplet => UNHELPFUL,
            _ => "select null::text as path, 0::bigint as rank",
        };
        query.push(format_args!(
            " from searches s
            join association_evidence e on e.project = $1 and e.source = s.id and e.kind = 'found'
            join associations a on a.project = $1 and a.id = e.association_id
            cross join lateral ({others}) unhelpful
            where s.project = $1 and s.state = 'resolved' and not exists (
                select from searches correction
                join association_evidence against on against.project = $1 and against.association_id = e.association_id
                    and against.source = correction.id and against.kind = 'corrected'
                where correction.project = $1 and correction.corrects = s.id"
        ));
        if let Some(as_of) = common.as_of {
            query.push(" and correction.completed_at < ").push_bind(as_of);
        }
        // Which associations are wrong is asked once, and not for each of the searches that an association may have. Postgres cannot
        // look into a very long list quickly, so that it does so only for associations that were reported.
        query.push(
            ") and (not exists (
                select from association_evidence reported where reported.project = $1
                    and reported.association_id = e.association_id and reported.kind = 'wrong'
            ) or e.association_id not in (
                select wrong.association_id from (
                    select reported.association_id, max(reported.at) as at from association_evidence reported
                    where reported.project = $1 and reported.kind = 'wrong'",
        );
        if let Some(as_of) = common.as_of {
            query.push(" and reported.at < ").push_bind(as_of);
        }
        query.push(
            " group by reported.association_id) wrong
                where not exists (
                    select from association_evidence later left join searches found on found.project = $1 and found.id = later.source
                    where later.project = $1 and later.association_id = wrong.association_id
                        and coalesce(found.completed_at, later.at) > wrong.at
                        and later.kind in ('found', 'useful')",
        );
        // What a search has found is known when it ends, by the clock of the database.
        if let Some(as_of) = common.as_of {
            query.push(" and coalesce(found.completed_at, later.at) < ").push_bind(as_of);
        }
        query.push(")))");
        if let Some(root) = &self.root {
            query.push(" and s.root = ").push_bind(paths::folder(root));
        }
        let contents = Contents::Question(Text { kind: "query", sql: "s.query" });
        let sides = Sides { session: "coalesce(s.agent_session_id, s.id::text)", contents };
        common.push(query, "s.timestamp", &sides);
    }
}
