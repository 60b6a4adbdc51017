//! The endpoints of projects.

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::store;
use super::{Project, Settings, check_name};
use crate::audit::{self, Action};
use crate::auth::{Admin, Caller};
use crate::db;
use crate::error::{Error, Refusals, Result};
use crate::http::{Check, Checks, Json, Path};
use crate::state::App;

/// Returns the endpoints of projects.
pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(get_project, put_project)).routes(routes!(try_redaction))
}

/// The path parameter of an endpoint about one project.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
struct ByName {
    /// The project's name: letters, digits, `-`, `_` and `.`.
    #[param(min_length = 1, max_length = 200, pattern = "^[A-Za-z0-9_.-]+$", example = "my-project")]
    project: String,
}

impl Check for ByName {
    fn check(&self, checks: &mut Checks) {
        check_name(checks, "project", &self.project);
    }
}

/// Returns a project with its settings.
#[utoipa::path(get, path = "/v1/projects/{project}", tag = "projects", params(ByName),
    responses((status = 200, description = "The project", body = Project), Refusals))]
async fn get_project(
    State(app): State<App>,
    caller: Caller<Admin>,
    Path(ByName { project }): Path<ByName>,
) -> Result<axum::Json<Project>> {
    caller.expect_project(&project)?;
    store::get(&app.db, &project, app.keyring.capture())
        .await?
        .map(axum::Json)
        .ok_or(Error::NotFound("project"))
}

/// Creates a project, or replaces all of its settings.
#[utoipa::path(put, path = "/v1/projects/{project}", tag = "projects", params(ByName),
    request_body(content = Settings, example = json!({
        "capture": {"suggestions": "metadata"},
        "searches": {"score_threshold": 0.7, "half_life_days": 14},
    })),
    responses(
        (status = 200, description = "The changed project", body = Project),
        (status = 201, description = "The new project", body = Project,
            headers(("Location" = String, description = "The project's address"))),
        Refusals,
    ))]
async fn put_project(
    State(app): State<App>,
    caller: Caller<Admin>,
    Path(ByName { project }): Path<ByName>,
    Json(settings): Json<Settings>,
) -> Result<impl IntoResponse> {
    caller.expect_project(&project)?;
    settings.redact.check_expressions(&caller.project).await?;
    let mut transaction = db::begin(&app.db).await?;
    let (project, made) = store::put(&mut *transaction, &project, &settings, app.keyring.capture()).await?;
    let action = if made { Action::ProjectMade } else { Action::SettingsChanged };
    let details = json!({"settings": settings});
    audit::note(&mut transaction, &project.project, &caller.actor(), action, details).await?;
    transaction.commit().await?;
    app.keyring.refresh();
    let status = if made { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, [(header::LOCATION, format!("/v1/projects/{}", project.project))], axum::Json(project)))
}

/// A text to test the project's redaction rules on.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct RedactionTrial {
    /// The text.
    text: String,
}

impl Check for RedactionTrial {}

/// What would be stored of a text.
#[derive(Debug, Serialize, ToSchema)]
struct RedactedText {
    /// The text after redaction.
    text: String,
    /// The number of spans that were replaced.
    redacted: u32,
}

/// Shows what would be stored of a text. The text itself is not stored.
#[utoipa::path(post, path = "/v1/projects/{project}/redact/try", tag = "projects", params(ByName),
    request_body(content = RedactionTrial, example = json!({"text": "postgres://app:mT9x2LqWz7Rf@db.example.com/app"})),
    responses((status = 200, description = "What would be stored", body = RedactedText), Refusals))]
async fn try_redaction(
    State(app): State<App>,
    caller: Caller<Admin>,
    Path(ByName { project }): Path<ByName>,
    Json(RedactionTrial { text }): Json<RedactionTrial>,
) -> Result<axum::Json<RedactedText>> {
    caller.expect_project(&project)?;
    let (text, redacted) = app.keyring.tenant(&project).await?.redacted(text).await;
    Ok(axum::Json(RedactedText { text, redacted }))
}
