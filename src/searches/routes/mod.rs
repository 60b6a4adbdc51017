//! How searches, what is learned from them, and what agents tell are reached over HTTP.

mod associations;
mod hooks;
mod searches;
mod transcripts;

use utoipa_axum::router::OpenApiRouter;

use crate::state::App;

/// Every path of this domain.
pub fn routes() -> OpenApiRouter<App> {
    searches::routes().merge(associations::routes()).merge(hooks::routes()).merge(transcripts::routes())
}
