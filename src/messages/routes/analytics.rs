//! The endpoint of the figures of sends.

use axum::extract::State;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::auth::{Caller, Read};
use crate::error::{Refusals, Result};
use crate::http::Query;
use crate::messages::analytics::{self, Figures, Scope};
use crate::state::App;

/// Returns the endpoint of the figures of sends.
pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(get_message_figures))
}

/// Returns the figures of sends, by model: how they ended, with which errors, how often pairs had to be dropped, how well
/// sizes were estimated, and what is used of the quotas.
#[utoipa::path(get, path = "/v1/analytics/messages", tag = "analytics", params(Scope),
    responses((status = 200, description = "The figures", body = Figures), Refusals))]
async fn get_message_figures(
    State(app): State<App>,
    caller: Caller<Read>,
    Query(scope): Query<Scope>,
) -> Result<axum::Json<Figures>> {
    let catalog = &caller.tenant.messages.catalog;
    analytics::read(&app.db, &caller.project, &scope, catalog).await.map(axum::Json)
}
