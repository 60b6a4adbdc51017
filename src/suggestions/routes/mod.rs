//! The endpoints of suggestion records and their analytics.

mod analytics;
mod records;

use utoipa_axum::router::OpenApiRouter;

use crate::state::App;

/// Returns every endpoint of this domain.
pub fn routes() -> OpenApiRouter<App> {
    records::routes().merge(analytics::routes())
}
