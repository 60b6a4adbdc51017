//! The endpoints of generation logs, prompt templates and their analytics.

mod analytics;
mod logs;
mod templates;

use utoipa_axum::router::OpenApiRouter;

use crate::state::App;

/// Returns every endpoint of this domain except that of similar examples.
pub fn routes() -> OpenApiRouter<App> {
    logs::routes().merge(templates::routes()).merge(analytics::routes())
}
