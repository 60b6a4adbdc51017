//! The endpoints of models, message pairs, sends and their analytics.

mod analytics;
mod execute;
mod models;
mod pairs;
mod predict;
mod sends;

use axum::http::StatusCode;
use serde_json::json;
use utoipa_axum::router::OpenApiRouter;
use uuid::Uuid;

use super::store;
use crate::auth::{Admin, Caller};
use crate::db::retry::repeat;
use crate::erasure;
use crate::error::{Error, Result};
use crate::state::App;

/// Returns every endpoint of this domain.
pub fn routes() -> OpenApiRouter<App> {
    models::routes()
        .merge(predict::routes())
        .merge(pairs::routes())
        .merge(sends::routes())
        .merge(analytics::routes())
}

/// What is erased alone, although a pair and a send may have the same id.
#[derive(Clone, Copy)]
enum Erased {
    Pair,
    Send,
}

/// Erases a pair or a send.
async fn erase(app: &App, caller: &Caller<Admin>, what: Erased, id: Uuid) -> Result<StatusCode> {
    let (kind, missing) = match what {
        Erased::Pair => ("pairs", "message pair"),
        Erased::Send => ("sends", "send"),
    };
    let is_erased = repeat(|| async {
        let mut transaction = erasure::begin(&app.db, &caller.project).await?;
        let is_erased = match what {
            Erased::Pair => store::delete_pair(&mut transaction, &caller.project, id).await?,
            Erased::Send => store::delete_send(&mut transaction, &caller.project, id).await?,
        };
        if is_erased {
            let details = json!({"by": "id", "id": id, "erased": {kind: 1}});
            erasure::note(&mut transaction, &caller.tenant, &caller.actor(), details).await?;
        }
        transaction.commit().await?;
        Ok(is_erased)
    })
    .await?;
    if is_erased { Ok(StatusCode::NO_CONTENT) } else { Err(Error::NotFound(missing)) }
}
