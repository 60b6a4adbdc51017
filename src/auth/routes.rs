//! The endpoints of API keys.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use clap::ValueEnum as _;
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use super::keys::{self, ApiKey, NewKey, Rotation, Scope, Secret};
use super::{Admin, Caller, audit_entries};
use crate::db;
use crate::error::{Error, Refusals, Result};
use crate::http::page::{List, NoFilter, Page, PageParams};
use crate::http::{ById, Json, Path};
use crate::projects;
use crate::state::App;

/// Returns the endpoints of API keys.
pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(create_key, list_keys))
        .routes(routes!(revoke_key))
        .routes(routes!(rotate_key))
}

/// A new API key with its secret.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = CreatedApiKey)]
struct CreatedKey {
    /// The secret, which is not stored and cannot be shown again.
    key: String,
    #[serde(flatten)]
    row: ApiKey,
}

/// Creates an API key and returns its secret, which is shown only once.
///
/// A server without keys is open to everyone on its machine. Creating the first key closes it, so the first key
/// should have the scope `operator`.
#[utoipa::path(post, path = "/v1/keys", tag = "keys", 
    request_body(content = NewKey, example = json!({
        "id": "01946983-4c40-7a1c-9d3e-5b0f6c2e8a71", "name": "laptop", "scopes": ["operator"],
    })),
    responses((status = 201, description = "The key with its secret, which is shown only in this response", body = CreatedKey), Refusals))]
async fn create_key(
    State(app): State<App>,
    caller: Caller<Admin>,
    Json(key): Json<NewKey>,
) -> Result<impl IntoResponse> {
    for scope in &key.scopes {
        caller.expect(*scope)?;
    }
    let project = key.project.as_deref().unwrap_or(&caller.project);
    caller.expect_project(project)?;
    if !projects::store::exists(&app.db, project).await? {
        return Err(Error::invalid("/project", "names a project that does not exist"));
    }
    let secret = Secret::random()?;
    let mut transaction = db::begin(&app.db).await?;
    let row = keys::insert(&mut transaction, project, &key, &secret).await?;
    audit_entries::made(&mut transaction, &row, &caller.actor()).await?;
    transaction.commit().await?;
    app.keyring.refresh();
    Ok((StatusCode::CREATED, axum::Json(CreatedKey { key: secret.text, row })))
}

/// One page of keys.
type KeyPage = Page<ApiKey>;

/// Lists the project's keys, including revoked ones, newest first.
#[utoipa::path(get, path = "/v1/keys", tag = "keys", params(PageParams),
    responses((status = 200, description = "A page of keys, without their secrets", body = KeyPage), Refusals))]
async fn list_keys(State(app): State<App>, caller: Caller<Admin>, list: List<NoFilter>) -> Result<KeyPage> {
    keys::page(&app.db, &caller.project, &list.page).await
}

/// Revokes a key. This takes effect immediately on this server, and within five seconds on other servers of the same
/// database.
///
/// Callers can revoke only keys whose scopes they have themselves.
#[utoipa::path(delete, path = "/v1/keys/{id}", tag = "keys", params(ById),
    responses((status = 204, description = "The key is revoked"), Refusals))]
async fn revoke_key(
    State(app): State<App>,
    caller: Caller<Admin>,
    Path(ById { id }): Path<ById>,
) -> Result<StatusCode> {
    let key = own_key(&app, &caller, id).await?;
    let mut transaction = db::begin(&app.db).await?;
    keys::revoke(&mut *transaction, id).await?;
    audit_entries::revoked(&mut transaction, &key.project, (id, &key.name), &caller.actor()).await?;
    transaction.commit().await?;
    app.keyring.refresh();
    Ok(StatusCode::NO_CONTENT)
}

/// Replaces a key with a new one that has the same name, project and scopes. The new secret is shown only once.
///
/// The old key is revoked at once, or stops working at `old_expires_at` to give its users time to switch. Callers can
/// rotate only keys whose scopes they have themselves.
#[utoipa::path(post, path = "/v1/keys/{id}/rotate", tag = "keys", params(ById),
    request_body(content = Rotation, example = json!({"old_expires_at": "2999-01-01T00:00:00Z"})),
    responses((status = 201, description = "The new key with its secret, which is shown only in this response", body = CreatedKey), Refusals))]
async fn rotate_key(
    State(app): State<App>,
    caller: Caller<Admin>,
    Path(ById { id }): Path<ById>,
    Json(rotation): Json<Rotation>,
) -> Result<impl IntoResponse> {
    own_key(&app, &caller, id).await?;
    let secret = Secret::random()?;
    let mut transaction = db::begin(&app.db).await?;
    let row = keys::rotate(&mut transaction, id, &rotation, &secret).await?;
    audit_entries::rotated(&mut transaction, &row, (id, &rotation), &caller.actor()).await?;
    transaction.commit().await?;
    app.keyring.refresh();
    Ok((StatusCode::CREATED, axum::Json(CreatedKey { key: secret.text, row })))
}

/// Finds a key whose scopes the caller has.
async fn own_key(app: &App, caller: &Caller<Admin>, id: Uuid) -> Result<ApiKey> {
    let key = keys::get(&app.db, id).await?;
    let key = key.filter(|key| *key.project == *caller.project || caller.is_operator());
    let key = key.ok_or(Error::NotFound("key"))?;
    for scope in Scope::value_variants().iter().filter(|scope| key.has(**scope)) {
        caller.expect(*scope)?;
    }
    Ok(key)
}
