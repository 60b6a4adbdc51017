//! The endpoints of memories and conversations.

mod conversations;
mod memories;
mod suggest;

use utoipa_axum::router::OpenApiRouter;

use crate::state::App;

/// Returns every endpoint of this domain.
pub fn routes() -> OpenApiRouter<App> {
    memories::routes().merge(conversations::routes()).merge(suggest::routes())
}
