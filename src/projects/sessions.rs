//! Agent sessions: the names under which records of all domains were posted, and their erasure.

use axum::extract::State;
use serde::{Deserialize, Serialize};
use sqlx::QueryBuilder;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::App;
use crate::auth::{Admin, Caller, Read};
use crate::error::{Refusals, Result};
use crate::extract::{Check, Checks, Path};
use crate::page::{List, Listed, Page, PageParams};
use crate::value::Timestamp;
use crate::{generations, searches, suggestions};

/// The paths of sessions.
pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(list)).routes(routes!(erase))
}

/// What was posted under one session name.
#[derive(Debug, Serialize, ToSchema, sqlx::FromRow)]
struct Session {
    /// The name.
    session: String,
    /// How many generation logs.
    generations: i64,
    /// How many suggestion records.
    suggestions: i64,
    /// How many searches.
    searches: i64,
    /// When the first record was created.
    first_at: Timestamp,
    /// When the last record was created.
    last_at: Timestamp,
}

impl Listed for Session {
    fn place(&self) -> (Timestamp, String) {
        (self.last_at, self.session.clone())
    }
}

/// The tables of records, and in each the column of the session's name.
const NAMES: [(&str, &str, &str); 3] = [
    ("generations", "session_id", "created_at"),
    ("suggestions", "session_name", "created_at"),
    ("searches", "agent_session_id", "timestamp"),
];

/// Sessions have no conditions of their own.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NoFilter {}

impl Check for NoFilter {
    fn check(&self, _: &mut Checks) {}
}

/// Lists session names, the one with the newest record first. `since` and `until` are about that record.
#[utoipa::path(get, path = "/v1/sessions", tag = "sessions", params(PageParams),
    responses((status = 200, description = "A page of sessions", body = Page<Session>), Refusals))]
async fn list(State(app): State<App>, caller: Caller<Read>, list: List<NoFilter>) -> Result<Page<Session>> {
    let NoFilter {} = list.filter;
    let mut query = QueryBuilder::new(
        "select * from (
             select session, count(*) filter (where domain = 'generations') as generations,
                 count(*) filter (where domain = 'suggestions') as suggestions,
                count(*) filter (where domain = 'searches') as searches,
                 min(created_at) as first_at, max(created_at) as last_at
             from (",
    );
    for (place, (domain, name, time)) in NAMES.into_iter().enumerate() {
        let union = if place == 0 { "" } else { " union all " };
        query.push(format_args!(
            "{union}select '{domain}' as domain, {name} as session, {time} as created_at from {domain}
             where {name} is not null and project = "
        ));
        query.push_bind(caller.project.to_string());
    }
    query.push(") records group by session) sessions where true");
    list.page.push(&mut query, "last_at", "session", "text")?;
    Ok(list.page.page(query.build_query_as().fetch_all(&app.db).await?))
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
struct ByName {
    /// Its name.
    session: String,
}

/// What was erased.
#[derive(Debug, Serialize, ToSchema)]
struct Erased {
    /// Generation logs.
    generations: u64,
    /// Their attempts.
    attempts: u64,
    /// Suggestion records.
    suggestions: u64,
    /// Searches; what was learned from them goes too.
    searches: u64,
}

/// Erases everything recorded under a session name, in all domains.
#[utoipa::path(delete, path = "/v1/sessions/{session}", tag = "sessions", params(ByName),
    responses((status = 200, description = "How many records were erased", body = Erased), Refusals))]
async fn erase(
    State(app): State<App>,
    caller: Caller<Admin>,
    Path(ByName { session }): Path<ByName>,
) -> Result<axum::Json<Erased>> {
    let mut transaction = app.db.begin().await?;
    let logs = generations::store::delete_session(&mut transaction, &caller.project, &session).await?;
    let slates = suggestions::store::delete_session(&mut transaction, &caller.project, &session).await?;
    let searches = searches::store::delete_session(&mut transaction, &caller.project, &session).await?;
    transaction.commit().await?;
    Ok(axum::Json(Erased {
        generations: logs.generations,
        attempts: logs.attempts,
        suggestions: slates.suggestions,
        searches: searches.searches,
    }))
}
