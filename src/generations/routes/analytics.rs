//! The endpoints of prompt templates' analytics.

use axum::extract::State;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::auth::{Caller, Read};
use crate::error::{Refusals, Result};
use crate::generations::analytics::{self, AllFigures, Comparison, Pair, Scope};
use crate::http::Query;
use crate::state::App;

/// Returns the endpoints of prompt templates' analytics.
pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(get_prompt_figures)).routes(routes!(compare_prompts))
}

/// Returns how well each prompt template works, as the template of a log's first attempt and over all
/// attempts.
#[utoipa::path(get, path = "/v1/analytics/prompts", tag = "analytics", params(Scope),
    responses((status = 200, description = "Figures by template", body = AllFigures), Refusals))]
async fn get_prompt_figures(
    State(app): State<App>,
    caller: Caller<Read>,
    Query(scope): Query<Scope>,
) -> Result<axum::Json<AllFigures>> {
    analytics::read(&app.db, &caller.project, &scope).await.map(axum::Json)
}

/// Compares two prompt templates, or two versions of one (`name@1` and `name@2`).
#[utoipa::path(get, path = "/v1/analytics/prompts/compare", tag = "analytics", params(Pair),
    responses((status = 200, description = "Both, and how they differ", body = Comparison), Refusals))]
async fn compare_prompts(
    State(app): State<App>,
    caller: Caller<Read>,
    Query(pair): Query<Pair>,
) -> Result<axum::Json<Comparison>> {
    analytics::compare(&app.db, &caller.project, &pair).await.map(axum::Json)
}
