//! The endpoints by which agents report.

mod hooks;
mod transcripts;

use utoipa_axum::router::OpenApiRouter;

use crate::state::App;

/// Returns every endpoint by which agents report.
pub fn routes() -> OpenApiRouter<App> {
    hooks::routes().merge(transcripts::routes())
}
