//! How searches are read. [`write`](mod@super::write) writes them, and `erasure` erases them.

use serde::Deserialize;
use sqlx::{PgConnection, PgExecutor, PgPool, Postgres, QueryBuilder};
use utoipa::IntoParams;
use uuid::Uuid;

use super::associations::{self, Association};
use super::hints::Hint;
use super::settings::Rules;
use super::{AppendedFallback, Search, SearchState};
use crate::db::{self, rows};
use crate::error::Result;
use crate::http::Check;
use crate::http::memory::{Memory, Reading};
use crate::http::page::{Listed, Page, PageRequest};
use crate::privacy::redact::{GroupName, Redaction};
use crate::types::Timestamp;

mod erasure;

pub use erasure::{delete, delete_before, delete_session};

const SELECT: &str = "
    select s.id, s.query, s.best_score, s.result_count, s.results, s.agent_session_id, s.agent_id, s.turn_id, s.root,
        s.timestamp, s.state, s.ended_at, s.corrects
    from searches s where s.project = ";

/// The conditions of a list of searches.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct Filter {
    /// Only searches in this state.
    #[param(inline)]
    state: Option<SearchState>,
    /// Only searches of this agent session.
    agent_session_id: Option<String>,
}

impl Check for Filter {}

impl GroupName for Filter {
    fn group_name(&mut self, redaction: &mut Redaction<'_>) {
        self.agent_session_id.group_name(redaction);
    }
}

impl Listed for Search {
    fn sort_key(&self) -> (Timestamp, String) {
        (self.timestamp, self.id.to_string())
    }
}

/// Lists one page of a project's searches, by the time at which they were made.
pub async fn list(db: &PgPool, project: &str, filter: &Filter, page: &PageRequest) -> Result<Page<Search>> {
    let mut query = QueryBuilder::<Postgres>::new(SELECT);
    query.push_bind(project.to_owned());
    if let Some(state) = filter.state {
        query.push(" and s.state = ").push_bind(state);
    }
    if let Some(session) = &filter.agent_session_id {
        query.push(" and s.agent_session_id = ").push_bind(session.clone());
    }
    page.push(&mut query, "s.timestamp", "s.id", "uuid")?;
    page.read(&mut query, db).await
}

/// Selects the fallbacks of a search as `f`, with the search as `s`.
macro_rules! fallbacks {
    () => {
        "select f.search_id, s.state, f.id, f.kind, f.ok, f.timestamp, f.share, f.counts,
            case when f.kind not in ('grep', 'glob') then f.target end as path,
            case when f.kind in ('grep', 'glob') then f.target end as pattern
        from fallbacks f join searches s on s.project = $1 and s.id = f.search_id
        where f.project = $1 and f.search_id = $2"
    };
}

/// Reads one fallback of a search, if there is one.
pub async fn fallback(
    db: impl PgExecutor<'_>,
    project: &str,
    search: Uuid,
    id: Uuid,
) -> Result<Option<AppendedFallback>> {
    let sql = concat!(fallbacks!(), " and f.id = $3");
    Ok(sqlx::query_as(sql).bind(project).bind(search).bind(id).fetch_optional(db).await?)
}

/// Reads a whole search, if it exists. All of its parts are read in one snapshot.
pub async fn get(
    db: &PgPool,
    project: &str,
    rules: &Rules,
    id: Uuid,
    memory: &Memory,
) -> Result<Option<Search>> {
    let reading = memory.reading(rows::MOST);
    let whole = async || {
        let mut snapshot = db::begin_snapshot(db).await?;
        let mut query = QueryBuilder::<Postgres>::new(SELECT);
        query.push_bind(project.to_owned()).push(" and s.id = ").push_bind(id);
        let found: Option<Search> = rows::one(query.build(), &mut snapshot, &reading).await?;
        let Some(mut search) = found else {
            return Ok(None);
        };
        let fallbacks =
            sqlx::query(concat!(fallbacks!(), " order by f.timestamp, f.id")).bind(project).bind(id);
        search.fallbacks = Some(rows::parts(fallbacks, &mut snapshot, &reading).await?);
        search.hints = Some(given_hints(&mut snapshot, project, id, rules).await?);
        search.associations = Some(learned(&mut snapshot, project, id, rules, &reading).await?);
        Ok(Some(search))
    };
    reading.by(whole).await
}

/// Reads the hints in the response to a search, with the current weights of their associations.
async fn given_hints(
    connection: &mut PgConnection,
    project: &str,
    id: Uuid,
    rules: &Rules,
) -> sqlx::Result<Vec<Hint>> {
    const SQL: &str = "
        select a.id, q.query, coalesce(s.root, nullif(q.root, '')) as root, h.path, h.score,
            coalesce(decayed(a.weight, extract(epoch from $3 - a.weighed_at)::float8, $4), 0) as weight,
            coalesce(a.evidence, 0) as evidence, a.last_seen_at
        from search_hints h
        join searches s on s.project = $1 and s.id = h.search_id
        left join associations a on a.project = $1 and a.id = h.association_id
        left join association_queries q on q.project = $1 and q.id = a.query_id
        where h.project = $1 and h.search_id = $2 order by h.rank";
    let query = sqlx::query_as(SQL).bind(project).bind(id).bind(associations::now()).bind(rules.half_life);
    query.fetch_all(connection).await
}

/// Reads the associations to which a search has added evidence, those with the most evidence first.
async fn learned(
    connection: &mut PgConnection,
    project: &str,
    id: Uuid,
    rules: &Rules,
    reading: &Reading<'_>,
) -> Result<Vec<Association>> {
    const SQL: &str = "
        select a.id, q.query, nullif(q.root, '') as root, a.path, 1::float8 as score,
            decayed(a.weight, extract(epoch from $3 - a.weighed_at)::float8, $4) as weight, a.evidence, a.last_seen_at
        from association_evidence e
        join associations a on a.project = $1 and a.id = e.association_id
        join association_queries q on q.project = $1 and q.id = a.query_id
        where e.project = $1 and e.source = $2 and e.kind = 'found' order by e.rank";
    let query = sqlx::query(SQL).bind(project).bind(id).bind(associations::now()).bind(rules.half_life);
    rows::parts(query, connection, reading).await
}
