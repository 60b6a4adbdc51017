//! The endpoints of generation logs, prompt templates and their analytics.

mod analytics;
mod logs;
mod similar;
mod templates;

use utoipa_axum::router::OpenApiRouter;

use crate::state::App;

/// Returns every endpoint of this domain.
pub fn routes() -> OpenApiRouter<App> {
    similar::routes().merge(logs::routes()).merge(templates::routes()).merge(analytics::routes())
}
