//! How suggestion records are read and erased. [`write`](super::write) writes them.

use std::collections::HashMap;

use serde::Deserialize;
use sqlx::{FromRow as _, PgConnection, PgPool, Postgres, QueryBuilder};
use utoipa::IntoParams;
use uuid::Uuid;

use super::rules::matching::MatchType;
use super::rules::views::{View, measure, resolve};
use super::tables::{Looked, each_looks};
use super::{State, Suggestion, Whole};
use crate::db;
use crate::db::aged::Aged;
use crate::db::erased::Counts;
use crate::db::rows;
use crate::error::Result;
use crate::exports::forget::forget;
use crate::http::memory::Memory;
use crate::http::page::{Listed, Page, PageRequest};
use crate::http::{Check, boolean};
use crate::suggestions::exports::DATASETS;
use crate::types::Timestamp;

/// The columns of `suggestions s` that make a [`Suggestion`].
pub(super) const COLUMNS: &str = "
    s.id, s.state, s.suggestions, s.suggestion_count, s.suggestion_node_version, s.session_name, s.server_name,
    s.trigger_block_number, s.result_block_number, s.policy_id, s.propensities, s.context_block_count, s.model,
    s.temperature, s.total_tokens, s.prompt_tokens, s.completion_tokens, s.failed, s.error, s.fetch_start_ts,
    s.fetch_end_ts, s.submit_ts, s.created_at, s.completed_at,
    coalesce(s.viewed_indices, '{}') as viewed_indices, coalesce(s.cycle_count, 0) as cycle_count, s.displayed_index,
    s.actual_input, s.match_type, s.accepted_index, s.time_to_action_ms";

/// The filter of a list of suggestion records.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct Filter {
    /// Only records in this state.
    #[param(inline)]
    state: Option<State>,
    /// Only records whose submitted text matches the slate in this way.
    #[param(inline)]
    match_type: Option<MatchType>,
    /// Only records of this agent session.
    session_name: Option<String>,
    /// Only records of sessions on this server.
    server_name: Option<String>,
    /// Only records whose slate was made by this version of the prompt or node.
    suggestion_node_version: Option<String>,
    /// With true, only records whose fetch failed; with false, only the others.
    #[serde(deserialize_with = "boolean")]
    failed: Option<bool>,
}

impl Check for Filter {}

crate::texts! {
    Filter: suggestion_node_version | session_name, server_name;
}

impl Listed for Suggestion {
    fn sort_key(&self) -> (Timestamp, String) {
        (self.created_at, self.id.to_string())
    }
}

/// Returns one page of a project's records.
pub async fn list(
    db: &PgPool,
    project: &str,
    filter: &Filter,
    page: &PageRequest,
) -> Result<Page<Suggestion>> {
    let mut query = QueryBuilder::new(format!("select {COLUMNS} from suggestions s where s.project = "));
    query.push_bind(project.to_owned());
    if let Some(state) = filter.state {
        query.push(" and s.state = ").push_bind(state);
    }
    if let Some(match_type) = filter.match_type {
        query.push(" and s.match_type = ").push_bind(match_type);
    }
    if let Some(failed) = filter.failed {
        query.push(" and s.failed = ").push_bind(failed);
    }
    for (column, value) in [
        ("session_name", &filter.session_name),
        ("server_name", &filter.server_name),
        ("suggestion_node_version", &filter.suggestion_node_version),
    ] {
        if let Some(value) = value {
            query.push(format_args!(" and s.{column} = ")).push_bind(value.clone());
        }
    }
    read_page(db, project, query, page).await
}

/// Reads the page of a query that selects [`COLUMNS`] and ends within its `where` clause. The views of
/// pending records are resolved here.
pub(super) async fn read_page(
    db: &PgPool,
    project: &str,
    mut query: QueryBuilder<Postgres>,
    page: &PageRequest,
) -> Result<Page<Suggestion>> {
    page.push(&mut query, "s.created_at", "s.id", "uuid")?;
    let mut page: Page<Suggestion> = page.read(&mut query, db).await?;
    let mut pending = HashMap::new();
    for suggestion in page.data.iter_mut().filter(|suggestion| suggestion.state == State::Pending) {
        suggestion.see(Vec::new());
        pending.insert(suggestion.id, suggestion);
    }
    if !pending.is_empty() {
        let ids: Vec<_> = pending.keys().copied().collect();
        each_looks(&mut *db.acquire().await?, project, &ids, |id, looks| {
            if let Some(suggestion) = pending.get_mut(&id) {
                suggestion.see(looks);
            }
        })
        .await?;
    }
    Ok(page)
}

impl Suggestion {
    /// Resolves which suggestions of a pending record were viewed, and sets its fields accordingly.
    fn see(&mut self, looks: Vec<Looked>) -> Vec<View> {
        self.cycle_count = i32::try_from(looks.len()).unwrap_or(i32::MAX);
        let views = resolve(usize::try_from(self.suggestion_count).unwrap_or(0), looks);
        if views.is_empty() {
            self.cycle_count = 0;
        }
        self.viewed_indices = views.iter().map(|view| view.index).collect();
        views
    }

    /// Returns the views of a record in any state, with times.
    fn views(&mut self, looks: Vec<Looked>) -> Vec<View> {
        let mut views = if self.state == State::Pending {
            self.see(looks)
        } else if looks.is_empty() {
            self.viewed_indices.iter().map(|&index| View::new(index, None)).collect()
        } else {
            resolve(usize::try_from(self.suggestion_count).unwrap_or(0), looks)
        };
        measure(&mut views, self.fetch_end_ts, self.submit_ts);
        views
    }
}

/// How much of a record is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// The whole record.
    Whole,
    /// The part of a record that lists show.
    Listed,
}

/// Returns the record, or none if there is no such record. Everything is read at the same moment.
pub async fn get(
    db: &PgPool,
    project: &str,
    id: Uuid,
    extent: Extent,
    memory: &Memory,
) -> Result<Option<Suggestion>> {
    let reading = memory.reading(rows::MOST);
    let whole = async || {
        let mut snapshot = db::begin_snapshot(db).await?;
        let more = if extent == Extent::Whole {
            ", s.context, s.llm_request, s.llm_response, s.reported"
        } else {
            ""
        };
        let mut query =
            QueryBuilder::new(format!("select {COLUMNS}{more} from suggestions s where s.project = "));
        query.push_bind(project.to_owned()).push(" and s.id = ").push_bind(id);
        let Some(row) = rows::row(query.build(), &mut snapshot, &reading).await? else {
            return Ok(None);
        };
        let mut suggestion = Suggestion::from_row(&row)?;
        let mut looks = Vec::new();
        each_looks(&mut snapshot, project, &[id], |_, of_record| looks = of_record).await?;
        let views = suggestion.views(looks);
        if extent == Extent::Whole {
            let sql = "select id, text, at from suggestion_activity
                   where project = $1 and suggestion_id = $2 and kind = 'input'
                   order by coalesce(at, received_at), arrival";
            let query = sqlx::query(sql).bind(project).bind(id);
            let partial_inputs = rows::parts(query, &mut snapshot, &reading).await?;
            suggestion.whole = Some(Whole { views, partial_inputs, ..Whole::from_row(&row)? });
        }
        Ok(Some(suggestion))
    };
    reading.by(whole).await
}

/// The number of records erased.
#[derive(Debug, Default)]
pub struct Erased {
    /// The number of suggestion records erased.
    pub suggestions: u64,
    /// The number of users' activities erased.
    pub moves: u64,
}

impl Erased {
    /// Returns the counts with the names of what was counted.
    #[must_use]
    pub fn counts(&self) -> Counts {
        vec![("suggestions", self.suggestions)]
    }
}

/// Erases a record and everything that belongs to it.
pub async fn delete(connection: &mut PgConnection, project: &str, id: Uuid) -> Result<Erased> {
    let sql = "delete from suggestions where project = $1 and id = $2 returning id";
    let slates = sqlx::query_scalar(sql).bind(project).bind(id).fetch_all(&mut *connection).await?;
    delete_children(connection, project, slates).await
}

/// Erases at most `most` of the records that were finalized, or else created, before a time: the oldest ones.
pub async fn delete_before(
    connection: &mut PgConnection,
    project: &str,
    time: Timestamp,
    most: i64,
) -> Result<Erased> {
    const AGED: Aged =
        Aged { table: "suggestions", since: "coalesce(completed_at, created_at)", may_go: "true" };
    let ids = AGED.lock_oldest(connection, project, time, most).await?;
    let sql = "delete from suggestions where project = $1 and id = any($2) returning id";
    let slates = sqlx::query_scalar(sql).bind(project).bind(ids).fetch_all(&mut *connection).await?;
    delete_children(connection, project, slates).await
}

/// Erases some records of an agent session, at most `most`: with a server, of the session on that server, and otherwise of
/// the sessions of this name on every server.
pub async fn delete_session(
    connection: &mut PgConnection,
    project: &str,
    session: &str,
    server: Option<&str>,
    most: i64,
) -> Result<Erased> {
    // The records are locked in the order of their ids, as the writer locks them, which prevents deadlocks.
    let sql = "delete from suggestions where project = $1 and id = any(array(
                   select id from suggestions
                   where project = $1 and session_name = $2 and ($3::text is null or server_name = $3)
                   order by id limit $4 for update))
               returning id";
    let query = sqlx::query_scalar(sql).bind(project).bind(session).bind(server).bind(most);
    let slates = query.fetch_all(&mut *connection).await?;
    delete_children(connection, project, slates).await
}

/// Erases what belongs to erased records. The records go first: an event that waits for its record's lock
/// then finds the record gone, and one that came before is seen here.
async fn delete_children(connection: &mut PgConnection, project: &str, slates: Vec<Uuid>) -> Result<Erased> {
    let sql = "delete from suggestion_activity where project = $1 and suggestion_id = any($2)";
    let moves = sqlx::query(sql).bind(project).bind(&slates).execute(&mut *connection).await?.rows_affected();
    let sql = "delete from preference_labels where project = $1 and suggestion_id = any($2)";
    sqlx::query(sql).bind(project).bind(&slates).execute(&mut *connection).await?;
    forget(connection, project, &DATASETS, &slates).await?;
    Ok(Erased { suggestions: slates.len() as u64, moves })
}
