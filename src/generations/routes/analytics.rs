//! The endpoints of the analytics of logs and of prompt templates. What is stored is redacted, so it is found by what is left
//! of the names that are asked for.

use axum::extract::State;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::auth::{Caller, Read};
use crate::error::{Refusals, Result};
use crate::generations::analytics::logs::{self, Answer};
use crate::generations::analytics::prompts::{self, AllFigures, Comparison, Pair};
use crate::generations::analytics::{prompts::Scope as PromptScope, scope::Scope};
use crate::http::Query;
use crate::state::App;

/// Returns the endpoints of the analytics of logs and of prompt templates.
pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(get_generation_figures))
        .routes(routes!(get_prompt_figures))
        .routes(routes!(compare_prompts))
}

/// Returns success rates of finalized logs by domain, model and prompt template, the most frequent errors of their
/// attempts, and the changes that repaired these errors.
#[utoipa::path(get, path = "/v1/analytics/generations", tag = "analytics", params(Scope),
    responses((status = 200, description = "Statistics for all logs and for each group", body = Answer), Refusals))]
async fn get_generation_figures(
    State(app): State<App>,
    caller: Caller<Read>,
    Query(scope): Query<Scope>,
) -> Result<axum::Json<Answer>> {
    let (scope, _) = caller.tenant.redacted(scope).await;
    logs::read(&app.db, &caller.project, &scope).await.map(axum::Json)
}

/// Returns statistics for each prompt template, both over the logs whose first attempt used it and over all attempts
/// that used it.
#[utoipa::path(get, path = "/v1/analytics/prompts", tag = "analytics", params(PromptScope),
    responses((status = 200, description = "Statistics for each template", body = AllFigures), Refusals))]
async fn get_prompt_figures(
    State(app): State<App>,
    caller: Caller<Read>,
    Query(scope): Query<PromptScope>,
) -> Result<axum::Json<AllFigures>> {
    let (scope, _) = caller.tenant.redacted(scope).await;
    prompts::read(&app.db, &caller.project, &scope).await.map(axum::Json)
}

/// Compares two prompt templates, or two versions of one template (`name@1` and `name@2`).
#[utoipa::path(get, path = "/v1/analytics/prompts/compare", tag = "analytics", params(Pair),
    responses((status = 200, description = "The statistics of both, and the differences between them", body = Comparison), Refusals))]
async fn compare_prompts(
    State(app): State<App>,
    caller: Caller<Read>,
    Query(pair): Query<Pair>,
) -> Result<axum::Json<Comparison>> {
    let (pair, _) = caller.tenant.redacted(pair).await;
    prompts::compare(&app.db, &caller.project, &pair).await.map(axum::Json)
}
