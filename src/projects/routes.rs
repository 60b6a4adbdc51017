//! How projects and keys are reached.

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::store;
use super::{KeyRow, NewKey, Project, Settings, check_name};
use crate::app::App;
use crate::auth::{Admin, Caller, Scope, Secret};
use crate::error::{Error, Refusals, Result};
use crate::extract::{ById, Json, Path};

/// The paths of projects and keys.
pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(get, put))
        .routes(routes!(create_key, list_keys))
        .routes(routes!(revoke_key))
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
struct ByName {
    /// Its name: 1 to 200 letters, digits, `-`, `_` and `.`.
    project: String,
}

/// A project's settings.
#[utoipa::path(get, path = "/v1/projects/{project}", tag = "projects", params(ByName),
    responses((status = 200, description = "The project", body = Project), Refusals))]
async fn get(
    State(app): State<App>,
    caller: Caller<Admin>,
    Path(ByName { project }): Path<ByName>,
) -> Result<axum::Json<Project>> {
    expect_own(&caller, &project)?;
    store::get(&app.db, &project, app.keyring.capture())
        .await?
        .map(axum::Json)
        .ok_or(Error::NotFound("project"))
}

/// Makes a project, or changes its settings.
#[utoipa::path(put, path = "/v1/projects/{project}", tag = "projects", params(ByName), request_body = Settings,
    responses(
        (status = 200, description = "The project, changed", body = Project),
        (status = 201, description = "The project, made", body = Project),
        Refusals,
    ))]
async fn put(
    State(app): State<App>,
    caller: Caller<Admin>,
    Path(ByName { project }): Path<ByName>,
    Json(settings): Json<Settings>,
) -> Result<impl IntoResponse> {
    expect_own(&caller, &project)?;
    check_name(&project)?;
    let (project, made) = store::put(&app.db, &project, &settings, app.keyring.capture()).await?;
    app.keyring.refresh();
    let status = if made { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, [(header::LOCATION, format!("/v1/projects/{}", project.project))], axum::Json(project)))
}

/// A key that was just made.
#[derive(Debug, Serialize, ToSchema)]
struct CreatedKey {
    /// The secret. It is not stored and cannot be shown again.
    key: String,
    #[serde(flatten)]
    row: KeyRow,
}

/// Makes a key and shows its secret, once.
///
/// A server without any key is open to everyone on its machine; making the first key closes it, so the first one
/// should have the scope `operator`.
#[utoipa::path(post, path = "/v1/keys", tag = "keys", request_body = NewKey,
    responses((status = 201, description = "The key; its secret is shown this once", body = CreatedKey), Refusals))]
async fn create_key(
    State(app): State<App>,
    caller: Caller<Admin>,
    Json(key): Json<NewKey>,
) -> Result<impl IntoResponse> {
    for scope in &key.scopes {
        caller.expect(*scope)?;
    }
    let project = key.project.as_deref().unwrap_or(&caller.project);
    expect_own(&caller, project)?;
    if !store::exists(&app.db, project).await? {
        return Err(Error::invalid("/project", "there is no such project"));
    }
    let secret = Secret::random()?;
    let row = store::insert_key(&app.db, project, &key, &secret).await?;
    app.keyring.refresh();
    Ok((StatusCode::CREATED, axum::Json(CreatedKey { key: secret.text, row })))
}

/// The keys of a project.
#[derive(Debug, Serialize, ToSchema)]
struct Keys {
    /// Newest first, without their secrets.
    data: Vec<KeyRow>,
}

/// Lists the project's keys, revoked ones too.
#[utoipa::path(get, path = "/v1/keys", tag = "keys",
    responses((status = 200, description = "The keys, without their secrets", body = Keys), Refusals))]
async fn list_keys(State(app): State<App>, caller: Caller<Admin>) -> Result<axum::Json<Keys>> {
    Ok(axum::Json(Keys { data: store::list_keys(&app.db, Some(&caller.project)).await? }))
}

/// Revokes a key: at once on this server, within five seconds on others of the same database.
#[utoipa::path(delete, path = "/v1/keys/{id}", tag = "keys", params(ById),
    responses((status = 204, description = "It no longer works"), Refusals))]
async fn revoke_key(
    State(app): State<App>,
    caller: Caller<Admin>,
    Path(ById { id }): Path<ById>,
) -> Result<StatusCode> {
    let project = store::project_of_key(&app.db, id).await?;
    if project.is_none_or(|project| *project != *caller.project && !caller.is_operator()) {
        return Err(Error::NotFound("key"));
    }
    store::revoke_key(&app.db, id).await?;
    app.keyring.refresh();
    Ok(StatusCode::NO_CONTENT)
}

fn expect_own(caller: &Caller<Admin>, project: &str) -> Result<()> {
    if *caller.project == *project || caller.is_operator() {
        return Ok(());
    }
    caller.expect(Scope::Operator)
}
