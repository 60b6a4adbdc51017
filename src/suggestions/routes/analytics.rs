//! The endpoints of suggestions' analytics.

use axum::extract::State;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::auth::{Caller, Read};
use crate::error::{Refusals, Result};
use crate::http::Query;
use crate::state::App;
use crate::suggestions::analytics::{self, Comparison, Pair, Scope};
use crate::suggestions::figures::Answer;

/// Returns the endpoints of suggestions' analytics.
pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(get_suggestion_figures)).routes(routes!(compare_suggestion_versions))
}

/// Returns statistics of slates: how often, how and at which position suggestions are accepted, how long users take,
/// how many tokens are used, and how many records show negative signals.
#[utoipa::path(get, path = "/v1/analytics/suggestions", tag = "analytics", params(Scope),
    responses((status = 200, description = "The statistics", body = Answer), Refusals))]
async fn get_suggestion_figures(
    State(app): State<App>,
    caller: Caller<Read>,
    Query(scope): Query<Scope>,
) -> Result<axum::Json<Answer>> {
    let (scope, _) = caller.tenant.redacted(scope).await;
    analytics::read(&app.db, &caller.project, &scope).await.map(axum::Json)
}

/// Compares two versions of the prompt or node that makes slates.
#[utoipa::path(get, path = "/v1/analytics/suggestions/compare", tag = "analytics", params(Pair),
    responses((status = 200, description = "The statistics of both, and the differences between them", body = Comparison), Refusals))]
async fn compare_suggestion_versions(
    State(app): State<App>,
    caller: Caller<Read>,
    Query(pair): Query<Pair>,
) -> Result<axum::Json<Comparison>> {
    let (pair, _) = caller.tenant.redacted(pair).await;
    analytics::compare(&app.db, &caller.project, pair).await.map(axum::Json)
}
