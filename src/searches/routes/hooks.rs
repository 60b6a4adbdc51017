//! How agents report by their hooks: a path for each agent of the [table](agents::ALL).

use axum::Extension;
use axum::extract::{Request, State};
use serde::Serialize;
use utoipa::ToSchema;
use utoipa::openapi::path::Paths;
use utoipa_axum::router::{OpenApiRouter, UtoipaMethodRouter};
use utoipa_axum::routes;

use crate::agents::{self, Agent};
use crate::auth::{Caller, Write};
use crate::error::{Refusals, Result};
use crate::http::{NDJSON_LIMIT, json};
use crate::searches::hooks;
use crate::state::App;

/// The paths of hooks.
pub(super) fn routes() -> OpenApiRouter<App> {
    agents::ALL.into_iter().fold(OpenApiRouter::new(), |router, agent| router.routes(route(agent)))
}

/// The path of one agent's hooks.
fn route(agent: &'static Agent) -> UtoipaMethodRouter<App> {
    let (schemas, any, handler) = routes!(report_hook);
    let mut paths = Paths::new();
    for mut item in any.paths.into_values() {
        if let Some(operation) = &mut item.post {
            operation.operation_id = Some(format!("report_{}_hook", agent.name.replace('-', "_")));
            operation.summary = Some(format!("Takes what a hook of {} sends.", agent.title));
        }
        paths.paths.insert(agent.hook_path(), item);
    }
    (schemas, paths, handler.layer(Extension(agent)))
}

/// The answer to a hook, which is always empty: an agent takes anything more for instructions, and shows an error to its user.
#[derive(Debug, Serialize, ToSchema)]
struct HookAnswer {}

/// Takes what a hook of an agent sends.
///
/// The answer is always the same, also to what is not understood.
#[utoipa::path(post, path = "/v1/hooks/{agent}", tag = "searches", 
    request_body(content = serde_json::Value, example = json!({
        "hook_event_name": "Stop", "session_id": "my-session", "cwd": "/home/jane/my-project",
    })),
    responses((status = 200, description = "An empty object", body = HookAnswer), Refusals))]
async fn report_hook(
    State(app): State<App>,
    caller: Caller<Write>,
    Extension(agent): Extension<&'static Agent>,
    request: Request,
) -> axum::Json<HookAnswer> {
    if let Err(error) = take(&app, &caller, agent, request).await {
        tracing::warn!(%error, agent = agent.name, "a hook could not be taken");
        metrics::counter!("gleaner_hooks_failed_total").increment(1);
    }
    axum::Json(HookAnswer {})
}

async fn take(app: &App, caller: &Caller<Write>, agent: &'static Agent, request: Request) -> Result<()> {
    let body = json::body(request, NDJSON_LIMIT).await?;
    hooks::take(&app.searches.db, &caller.tenant, agent, body.bytes).await
}
