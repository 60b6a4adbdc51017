//! The endpoint of the figures of sends.

use axum::extract::State;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::auth::{Caller, Read};
use crate::error::{Refusals, Result};
use crate::http::Query;
use crate::messages::analytics::{self, Figures, Scope};
use crate::state::App;

/// Returns the endpoint of the statistics of sends.
pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(get_message_figures))
}

/// Returns statistics of sends by model: their outcomes and errors, how often pairs were dropped, how accurate the
/// size estimates were, and how much of the quotas is used.
#[utoipa::path(get, path = "/v1/analytics/messages", tag = "analytics", params(Scope),
    responses((status = 200, description = "The statistics", body = Figures), Refusals))]
async fn get_message_figures(
    State(app): State<App>,
    caller: Caller<Read>,
    Query(scope): Query<Scope>,
) -> Result<axum::Json<Figures>> {
    let (scope, _) = caller.tenant.redacted(scope).await;
    let catalog = &caller.tenant.messages.catalog;
    analytics::read(&app.db, &caller.project, &scope, catalog).await.map(axum::Json)
}
