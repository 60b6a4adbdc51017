//! How agents report by their hooks.

use axum::extract::{Request, State};
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::auth::{Caller, Write};
use crate::error::{Refusals, Result};
use crate::http::{NDJSON_LIMIT, json};
use crate::searches::hooks;
use crate::searches::transcript::Agent;
use crate::state::App;

/// The paths of hooks.
pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(report_claude_code_hook)).routes(routes!(report_codex_hook))
}

/// The answer to a hook, which is always empty: an agent takes anything more for instructions, and shows an error to its user.
#[derive(Debug, Serialize, ToSchema)]
struct HookAnswer {}

/// Takes what a hook of Claude Code sends. The answer is always the same, also to what is not understood.
#[utoipa::path(post, path = "/v1/hooks/claude-code", tag = "searches", request_body = serde_json::Value,
    responses((status = 200, description = "An empty object", body = HookAnswer), Refusals))]
async fn report_claude_code_hook(
    State(app): State<App>,
    caller: Caller<Write>,
    request: Request,
) -> axum::Json<HookAnswer> {
    answer(&app, &caller, request, Agent::ClaudeCode).await
}

/// Takes what a command hook of Codex CLI is given. The answer is always the same, also to what is not understood.
#[utoipa::path(post, path = "/v1/hooks/codex", tag = "searches", request_body = serde_json::Value,
    responses((status = 200, description = "An empty object", body = HookAnswer), Refusals))]
async fn report_codex_hook(
    State(app): State<App>,
    caller: Caller<Write>,
    request: Request,
) -> axum::Json<HookAnswer> {
    answer(&app, &caller, request, Agent::Codex).await
}

async fn answer(app: &App, caller: &Caller<Write>, request: Request, agent: Agent) -> axum::Json<HookAnswer> {
    if let Err(error) = take(app, caller, request, agent).await {
        tracing::warn!(%error, agent = agent.as_str(), "a hook could not be taken");
        metrics::counter!("gleaner_hooks_failed_total").increment(1);
    }
    axum::Json(HookAnswer {})
}

async fn take(app: &App, caller: &Caller<Write>, request: Request, agent: Agent) -> Result<()> {
    let body = json::body(request, NDJSON_LIMIT).await?;
    hooks::take(&app.searches.db, &caller.tenant, agent, body.bytes).await
}
