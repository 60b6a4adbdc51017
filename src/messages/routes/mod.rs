//! The endpoints of models, message pairs, sends and their analytics.

mod analytics;
mod execute;
mod models;
mod pairs;
mod predict;
mod sends;

use utoipa_axum::router::OpenApiRouter;

use crate::state::App;

/// Returns every endpoint of this domain.
pub fn routes() -> OpenApiRouter<App> {
    models::routes()
        .merge(predict::routes())
        .merge(pairs::routes())
        .merge(sends::routes())
        .merge(analytics::routes())
}
