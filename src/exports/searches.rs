//! Search pairs: a query, the file that answered it, and the files that did not help; only of searches that were resolved.

use clap::Args;
use serde::{Deserialize, Serialize};
use sqlx::postgres::PgRow;
use sqlx::{Postgres, QueryBuilder, Row as _};
use utoipa::IntoParams;
use uuid::Uuid;

use super::format::{self, Format};
use super::params::Common;
use super::{Key, Records};
use crate::http::{Check, Checks};
use crate::searches::rules::paths;
use crate::types::Timestamp;

/// Which search pairs.
#[derive(Debug, Clone, Default, Deserialize, IntoParams, Args)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
#[group(skip)]
pub struct SearchPairs {
    /// Only searches in this folder.
    #[arg(long, value_name = "DIR")]
    root: Option<String>,
}

impl Check for SearchPairs {
    fn check(&self, _: &mut Checks) {}
}

/// What the weak result had offered, or a hint had named, and what did not turn out to be the answer: the files that did
/// not help the search `s`, as rows of path and place.
fn unhelpful(s: &str) -> String {
    format!(
        "select path, row_number() over (order by min(place), path) as place from (
            select result.value ->> 'path' as path, result.ordinality as place
            from jsonb_array_elements({s}.results) with ordinality as result
            union all
            select b.path, 1000 + hint.rank from search_hints hint
            join associations b on b.project = hint.project and b.id = hint.association_id
            where hint.project = {s}.project and hint.search_id = {s}.id and not hint.read
        ) offered
        where not exists (
            select from association_evidence answer
            join associations b on b.project = answer.project and b.id = answer.association_id
            where answer.project = {s}.project and answer.source = {s}.id and answer.kind = 'found'
                and b.path = offered.path)
        group by path"
    )
}

#[derive(Serialize)]
struct Raw<'a> {
    query: &'a str,
    path: &'a str,
    unhelpful: Vec<String>,
    root: Option<&'a str>,
}

#[derive(Serialize)]
struct Triplet<'a> {
    anchor: &'a str,
    positive: &'a str,
    negative: &'a str,
}

#[derive(Serialize)]
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

impl Records for SearchPairs {
    const NAME: &'static str = "search-pairs";
    const FORMATS: &'static [Format] = &[Format::Raw, Format::Triplets];

    fn check(&self, _: Format, checks: &mut Checks) {
        checks.require(self.root.as_deref() != Some(""), "root", "must not be empty");
    }

    fn from(&self, query: &mut QueryBuilder<Postgres>, project: &str, common: &Common, format: Format) {
        query.push(
            " from searches s
            join association_evidence e on e.project = s.project and e.source = s.id and e.kind = 'found'
            join associations a on a.project = e.project and a.id = e.association_id",
        );
        let others = match format {
            Format::Triplets => unhelpful("s"),
            _ => "select 0::bigint as place".to_owned(),
        };
        query.push(format_args!(" cross join lateral ({others}) unhelpful where s.state = 'resolved'"));
        query.push(" and s.project = ").push_bind(project.to_owned());
        self.push_conditions(query, common, "s");
        if common.is_exact() {
            // An association is a root, a query and a path.
            query.push(
                " and not exists (select from association_evidence earlier
                    join searches older on older.project = earlier.project and older.id = earlier.source
                    where earlier.project = e.project and earlier.association_id = e.association_id
                        and earlier.kind = 'found' and (older.completed_at, older.id) < (s.completed_at, s.id)",
            );
            self.push_conditions(query, common, "older");
            query.push(match format {
                Format::Triplets => format!(" and unhelpful.path in (select path from ({}) other))", unhelpful("older")),
                _ => format!(
                    " and array(select path from ({}) other order by path) = array(select path from ({}) own order by path))",
                    unhelpful("older"), unhelpful("s")),
            });
        }
    }

    fn key(&self) -> [&'static str; 3] {
        ["s.completed_at", "s.id", "(e.rank * 2048 + unhelpful.place)::int"]
    }

    fn columns(&self, common: &Common, format: Format) -> String {
        let mut columns = "s.query, a.path, s.root".to_owned();
        if format == Format::Triplets {
            columns.push_str(", unhelpful.path as negative");
        } else {
            columns.push_str(", array(select path from (");
            columns.push_str(&unhelpful("s"));
            columns.push_str(") other order by place) as unhelpful");
        }
        if common.with_metadata() {
            columns.push_str(
                ", s.agent_session_id, s.agent_id, s.timestamp, s.best_score, s.result_count, e.weight",
            );
        }
        columns
    }

    fn write(
        &self,
        row: &PgRow,
        key: Key,
        common: &Common,
        format: Format,
        out: &mut Vec<u8>,
    ) -> anyhow::Result<()> {
        let (query, path): (&str, &str) = (row.try_get("query")?, row.try_get("path")?);
        let root = row.try_get("root")?;
        let metadata = common.with_metadata().then(|| -> sqlx::Result<_> {
            Ok(Metadata {
                search_id: key.id,
                agent_session_id: row.try_get("agent_session_id")?,
                agent_id: row.try_get("agent_id")?,
                root,
                timestamp: row.try_get("timestamp")?,
                completed_at: key.at,
                best_score: row.try_get("best_score")?,
                result_count: row.try_get("result_count")?,
                weight: row.try_get("weight")?,
            })
        });
        let metadata = metadata.transpose()?;
        if format == Format::Triplets {
            let triplet = Triplet { anchor: query, positive: path, negative: row.try_get("negative")? };
            return Ok(format::write(out, triplet, metadata)?);
        }
        Ok(format::write(out, Raw { query, path, unhelpful: row.try_get("unhelpful")?, root }, metadata)?)
    }
}

impl SearchPairs {
    fn push_conditions(&self, query: &mut QueryBuilder<Postgres>, common: &Common, s: &str) {
        if let Some(root) = &self.root {
            query.push(format_args!(" and {s}.root = ")).push_bind(paths::folder(root));
        }
        let session = format!("coalesce({s}.agent_session_id, {s}.id::text)");
        common.push(query, &format!("{s}.timestamp"), &session);
    }
}
