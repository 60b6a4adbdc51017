//! The endpoints of agents' hooks: one for each agent of the [table](agents::ALL).

use std::time::Duration;

use axum::Extension;
use axum::extract::{Request, State};
use serde::Serialize;
use utoipa::ToSchema;
use utoipa::openapi::path::Paths;
use utoipa_axum::router::{OpenApiRouter, UtoipaMethodRouter};
use utoipa_axum::routes;

use crate::agents::{self, Agent};
use crate::auth::{Caller, Write};
use crate::error::{Error, Refusals, Result};
use crate::http::memory::Memory;
use crate::http::{NDJSON_LIMIT, json};
use crate::searches::hooks::Report;
use crate::state::App;
use crate::types::Timestamp;

/// How long an agent is kept waiting for what it has reported to be written. What takes longer is written after the answer.
const PATIENCE: Duration = Duration::from_millis(250);

/// Returns the endpoints of hooks.
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
            operation.summary = Some(format!("Receives the report of a {} hook.", agent.title));
        }
        paths.paths.insert(agent.hook_path(), item);
    }
    (schemas, paths, handler.layer(Extension(agent)))
}

/// The response to a hook. It is always empty, because an agent would treat anything else as instructions and would
/// show an error to its user.
#[derive(Debug, Serialize, ToSchema)]
struct HookAnswer {}

/// Receives the report of an agent's hook.
///
/// The response is always the same, even if the report is not understood. It is sent within a quarter of a second. If
/// writing takes longer, it is completed after the response.
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
    if let Err(error) = take(app, caller, agent, request).await {
        note_failure(&error, agent);
    }
    axum::Json(HookAnswer {})
}

async fn take(app: App, caller: Caller<Write>, agent: &'static Agent, request: Request) -> Result<()> {
    let received = Timestamp::now();
    let memory = Memory::of(request.extensions());
    let body = json::body(request, NDJSON_LIMIT).await?;
    let Some(report) = Report::read(&caller.tenant, agent, body.bytes, received) else { return Ok(()) };
    // Agents do not wait for long, and hang up: the report goes on by itself, and only so many may.
    let place = app.searches.place().ok_or(Error::Unavailable("too many hook reports are in progress"))?;
    let learning = tokio::spawn(async move {
        if let Err(error) = report.learn(&app.searches, &caller.tenant).await {
            note_failure(&error, agent);
        }
        drop((place, memory));
    });
    let _ = tokio::time::timeout(PATIENCE, learning).await;
    Ok(())
}

fn note_failure(error: &Error, agent: &Agent) {
    tracing::warn!(%error, agent = agent.name, "a hook report could not be stored");
    metrics::counter!("gleaner_hooks_failed_total").increment(1);
}
