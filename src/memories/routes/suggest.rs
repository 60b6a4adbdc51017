//! The endpoints that find memories.

use axum::extract::State;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::auth::{Caller, Read};
use crate::error::{Refusals, Result};
use crate::http::memory::Memory;
use crate::http::{Check, Checks, Json, Query};
use crate::memories::analytics::{self, Figures, Scope};
use crate::memories::rules::intent::{self, DetectedIntent};
use crate::memories::search::{self, MemorySearch};
use crate::sharing::apart;
use crate::state::App;

/// Returns the endpoints that find memories.
pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(search_memories))
        .routes(routes!(detect_intent))
        .routes(routes!(get_memory_figures))
}

/// Memories, best first.
#[derive(Debug, Serialize, ToSchema)]
struct FoundMemories {
    /// The memories, ordered by score.
    data: Vec<search::FoundMemory>,
}

/// Searches memories for a text and returns the best matches.
///
/// With a `session_id`, the search is recorded as a query of that conversation, and the memories found count as shown
/// there, unless the key lacks the scope `write`.
#[utoipa::path(get, path = "/v1/memories/search", tag = "memories", params(MemorySearch),
    responses((status = 200, description = "The memories", body = FoundMemories), Refusals))]
async fn search_memories(
    State(app): State<App>,
    caller: Caller<Read>,
    memory: Memory,
    Query(wanted): Query<MemorySearch>,
) -> Result<axum::Json<FoundMemories>> {
    let (key, records) = (caller.key(), caller.may_write());
    let data = search::search(&app, &caller.tenant, wanted, key, records, &memory).await?;
    Ok(axum::Json(FoundMemories { data }))
}

/// Recent queries whose intent is to be detected.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct RecentQueries {
    /// The queries, oldest first. The last one has the largest weight.
    #[schema(max_items = 50)]
    recent_queries: Vec<String>,
}

impl Check for RecentQueries {
    fn check(&self, checks: &mut Checks) {
        checks.require(self.recent_queries.len() <= 50, "recent_queries", "has more than 50 queries");
    }
}

/// Detects the intent of recent queries, and the keywords in them. Nothing is stored.
#[utoipa::path(post, path = "/v1/intents/detect", tag = "memories",
    request_body(content = RecentQueries, example = json!({"recent_queries": [
        "How do I implement authentication?", "What's the best way to handle JWT tokens?",
    ]})),
    responses((status = 200, description = "The intent", body = DetectedIntent), Refusals))]
async fn detect_intent(caller: Caller<Read>, Json(asked): Json<RecentQueries>) -> axum::Json<DetectedIntent> {
    axum::Json(apart(&caller.project, move || intent::detect(&asked.recent_queries)).await)
}

/// Returns how many suggested memories were used and dismissed, by confidence, intent and kind of memory. If the
/// confidence is accurate, about 85 % of the suggestions with a confidence around 0.85 were used.
#[utoipa::path(get, path = "/v1/analytics/memories", tag = "analytics", params(Scope),
    responses((status = 200, description = "The statistics", body = Figures), Refusals))]
async fn get_memory_figures(
    State(app): State<App>,
    caller: Caller<Read>,
    Query(scope): Query<Scope>,
) -> Result<axum::Json<Figures>> {
    analytics::read(&app.db, &caller.project, &scope).await.map(axum::Json)
}
