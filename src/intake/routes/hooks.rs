//! The endpoints of agents' hooks: one for each agent of the [table](agents::ALL).

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::extract::{Request, State};
use serde::Serialize;
use tokio::sync::oneshot;
use tokio::time::Instant;
use utoipa::ToSchema;
use utoipa::openapi::path::Paths;
use utoipa_axum::router::{OpenApiRouter, UtoipaMethodRouter};
use utoipa_axum::routes;

use crate::agents::{self, Agent};
use crate::auth::{Caller, Write};
use crate::error::{Error, Refusals, Result};
use crate::help::unasked::Wanted;
use crate::http::memory::Memory;
use crate::http::{NDJSON_LIMIT, Query, json};
use crate::intake::hook::Heard;
use crate::recurring;
use crate::state::App;
use crate::types::Timestamp;

/// How long an agent is kept waiting for what it has reported to be written. What takes longer is written after the answer.
const PATIENCE: Duration = Duration::from_millis(250);
/// How much of that is left for saying in the database that the report is answered before it is stored.
const TO_MARK: Duration = Duration::from_millis(50);

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

/// The response to a hook. It is empty unless there is something to tell the agent, because an agent would treat anything
/// else as instructions and would show an error to its user.
#[derive(Debug, Default, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct HookAnswer {
    /// What the agent is told.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    hook_specific_output: Option<Told>,
}

/// What an agent is told in the response to a hook, in the form that Claude Code and Codex read.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = HookSpecificOutput)]
struct Told {
    /// The hook's event.
    hook_event_name: &'static str,
    /// A text for the model, of at most 2000 characters.
    additional_context: String,
}

/// Receives the report of an agent's hook.
///
/// The status is 200 even if the report is not understood. The body is empty unless `suggest` requests help and there
/// is some for the prompt or the search without results. The response is sent within a quarter of a second, and
/// within 150 milliseconds if help is requested. If writing takes longer, it is completed after the response.
#[utoipa::path(post, path = "/v1/hooks/{agent}", tag = "searches", params(Wanted),
    request_body(content = serde_json::Value, example = json!({
        "hook_event_name": "Stop", "session_id": "my-session", "cwd": "/home/jane/my-project",
    })),
    responses((status = 200, description = "What the agent is told, or an empty object", body = HookAnswer), Refusals))]
async fn report_hook(
    State(app): State<App>,
    caller: Caller<Write>,
    Extension(agent): Extension<&'static Agent>,
    Query(wanted): Query<Wanted>,
    request: Request,
) -> Result<axum::Json<HookAnswer>> {
    let told = take(app, caller, agent, wanted, request).await.unwrap_or_else(|error| {
        note_failure(&error, agent);
        None
    });
    Ok(axum::Json(HookAnswer { hook_specific_output: told }))
}

async fn take(
    app: App,
    caller: Caller<Write>,
    agent: &'static Agent,
    wanted: Wanted,
    request: Request,
) -> Result<Option<Told>> {
    let (received, begun) = (Timestamp::now(), Instant::now());
    let memory = Memory::of(request.extensions());
    let body = json::body(request, NDJSON_LIMIT).await?;
    // Agents do not wait for long and hang up, so reports are processed in the background, and their number is
    // limited.
    let underway = app
        .searches
        .report(&caller.project)
        .ok_or(Error::Unavailable("too many hook reports are in progress"))?;
    let asks = wanted.is_wanted(&caller.tenant) && caller.may_read();
    let patience = if asks { app.help_patience } else { PATIENCE };
    let (sender, mut help) = oneshot::channel();
    let asks = asks.then_some((wanted, sender));
    let late = app.searches.late(&underway);
    let working = tokio::spawn(async move {
        let (tenant, key) = (Arc::clone(&caller.tenant), caller.key());
        let heard = Heard::read(&app.work, &tenant, agent, body.bytes, received).await;
        let stored = app.longest_statement.while_heard(heard.work(&app, &tenant, key, asks, &memory)).await;
        if let Err(error) = stored.map_err(Error::from).flatten() {
            note_failure(&error, agent);
        }
        drop((underway, memory));
    });
    if tokio::time::timeout_at(begun + patience.saturating_sub(TO_MARK), working).await.is_err() {
        // The mark is made in any case, also if that takes longer.
        let _ = tokio::time::timeout_at(begun + patience, tokio::spawn(late)).await;
    }
    Ok(help
        .try_recv()
        .ok()
        .map(|(hook_event_name, additional_context)| Told { hook_event_name, additional_context }))
}

fn note_failure(error: &Error, agent: &Agent) {
    recurring::warn("a hook report could not be stored", format_args!("{}: {error}", agent.name));
    metrics::counter!("gleaner_hooks_failed_total").increment(1);
}
