//! The endpoints of models.

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::audit::{self, Action};
use crate::auth::{Admin, Caller, Read};
use crate::db;
use crate::error::{Error, Refusals, Result};
use crate::http::{Check, Checks, Json, Path};
use crate::messages::models::{self, Model, ModelLimits, ModelSource};
use crate::state::App;

/// The maximum number of models whose limits a project sets. They are listed together.
const MOST_MODELS: usize = 1_000;

/// Returns the endpoints of models.
pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(put_model)).routes(routes!(list_models))
}

/// The path parameter of an endpoint about one model.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
struct ByName {
    /// The model's name. A slash in it must be percent-encoded.
    #[param(min_length = 1, max_length = 200, example = "gpt-4o-mini")]
    model: String,
}

impl Check for ByName {
    fn check(&self, checks: &mut Checks) {
        checks.text("model", &self.model, 200);
    }
}

/// Sets the limits of a model for the project. They replace those in the providers file.
#[utoipa::path(put, path = "/v1/models/{model}", tag = "messages", params(ByName),
    request_body(content = ModelLimits, example = json!({"context_window": 128_000, "tpm": 200_000, "rpm": 500})),
    responses(
        (status = 200, description = "The changed model", body = Model),
        (status = 201, description = "The new model", body = Model,
            headers(("Location" = String, description = "The address of the list of models"))),
        Refusals,
    ))]
async fn put_model(
    State(app): State<App>,
    caller: Caller<Admin>,
    Path(ByName { model }): Path<ByName>,
    Json(limits): Json<ModelLimits>,
) -> Result<impl IntoResponse> {
    let mut transaction = db::begin(&app.db).await?;
    let made = models::put(&mut *transaction, &caller.project, &model, &limits).await?;
    let details = json!({"model": model, "limits": limits});
    audit::note(&mut transaction, &caller.project, &caller.actor(), Action::ModelChanged, details).await?;
    let known = models::list(&mut transaction, &caller.project, &caller.tenant.messages.catalog).await?;
    let own = known.iter().filter(|known| known.source == ModelSource::Project).count();
    if own > MOST_MODELS {
        return Err(Error::Conflict(format!("a project has at most {MOST_MODELS} models")));
    }
    let known = known.into_iter().find(|known| known.model == model).ok_or(Error::NotFound("model"))?;
    transaction.commit().await?;
    let status = if made { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, [(header::LOCATION, "/v1/models".to_owned())], axum::Json(known)))
}

/// The models with known limits.
#[derive(Debug, Serialize, ToSchema)]
struct ModelList {
    /// The models, ordered by name.
    data: Vec<Model>,
}

/// Lists the models with known limits, by name: those set for the project and those in the providers file.
#[utoipa::path(get, path = "/v1/models", tag = "messages",
    responses((status = 200, description = "The models", body = ModelList), Refusals))]
async fn list_models(State(app): State<App>, caller: Caller<Read>) -> Result<axum::Json<ModelList>> {
    let mut connection = app.db.acquire().await?;
    let data = models::list(&mut connection, &caller.project, &caller.tenant.messages.catalog).await?;
    Ok(axum::Json(ModelList { data }))
}
