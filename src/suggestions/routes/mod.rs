//! How suggestion records and their figures are reached over HTTP.

mod analytics;
mod records;

use utoipa_axum::router::OpenApiRouter;

use crate::state::App;

/// Every path of this domain.
pub fn routes() -> OpenApiRouter<App> {
    records::routes().merge(analytics::routes())
}
