//! How generation logs, prompt templates and their figures are reached over HTTP.

mod analytics;
mod logs;
mod templates;

use utoipa_axum::router::OpenApiRouter;

use crate::state::App;

/// Every path of this domain but that of similar examples.
pub fn routes() -> OpenApiRouter<App> {
    logs::routes().merge(templates::routes()).merge(analytics::routes())
}
