//! The endpoints of searches, of what is learned from them, and of what agents report.

mod associations;
mod searches;

use utoipa_axum::router::OpenApiRouter;

use crate::state::App;

/// Returns every endpoint of this domain.
pub fn routes() -> OpenApiRouter<App> {
    searches::routes().merge(associations::routes())
}
