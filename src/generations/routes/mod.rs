//! How generation logs, prompt templates and their figures are reached over HTTP.

mod analytics;
mod logs;
mod similar;
mod templates;

use utoipa_axum::router::OpenApiRouter;

use crate::state::App;

/// Every path of this domain.
pub fn routes() -> OpenApiRouter<App> {
    similar::routes().merge(logs::routes()).merge(templates::routes()).merge(analytics::routes())
}
