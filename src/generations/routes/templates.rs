//! The endpoints of the registry of prompt templates.

use axum::Extension;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::auth::{Caller, Change, Read};
use crate::error::{Error, Refusals, Result};
use crate::generations::templates::store::{self, Filter};
use crate::generations::templates::{NewTemplate, Template};
use crate::http::page::{List, Page, PageParams};
use crate::http::reply::{Changed, Shown};
use crate::http::{Check, Checks, Json, Path, Query, Replaced};
use crate::state::App;

/// Returns the endpoints of prompt templates.
pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(put_prompt_template, get_prompt_template))
        .routes(routes!(list_prompt_templates))
        .routes(routes!(deprecate_prompt_template))
}

/// The path parameter of an endpoint about one prompt template.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
struct ByName {
    /// The template's name, which attempts refer to as `prompt_template`.
    #[param(min_length = 1, max_length = 200, example = "cbu_create")]
    template_id: String,
}

impl Check for ByName {
    fn check(&self, checks: &mut Checks) {
        checks.name("template_id", Some(&self.template_id));
    }
}

/// The version of a prompt template to read.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct WhichVersion {
    /// The version's number, from 1. The default is the newest version.
    version: Option<i32>,
}

impl Check for WhichVersion {}

/// Creates a new version of a prompt template. Sending the newest version again does not create another one.
#[utoipa::path(put, path = "/v1/prompt-templates/{template_id}", tag = "generations", params(ByName),
    request_body(content = NewTemplate, example = json!({
        "template_text": "Write a program that does this: {intent}",
        "domain_name": "cbu",
        "description": "For business units that do not exist yet",
    })),
    responses(
        (status = 201, description = "The new version", body = Template,
            headers(("Location" = String, description = "The new version's address"))),
        (status = 200, description = "The newest version, which already has this text, domain and description", body = Template),
        Refusals,
    ))]
async fn put_prompt_template(
    State(app): State<App>,
    caller: Caller<Change>,
    Path(ByName { template_id }): Path<ByName>,
    Extension(replaced): Extension<Replaced>,
    Json(new): Json<NewTemplate>,
) -> Result<impl IntoResponse> {
    let (new, redacted) = caller.tenant.redacted(new).await;
    replaced.add_redacted(redacted);
    let (template_id, _) = caller.tenant.redacted(template_id).await;
    let (template, made) = store::put(&app.db, &caller.project, template_id, new).await?;
    let status = if made { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, [(header::LOCATION, address(&template))], axum::Json(template)))
}

fn address(template: &Template) -> String {
    let name: String = form_urlencoded::byte_serialize(template.template_id.as_bytes()).collect();
    format!("/v1/prompt-templates/{}?version={}", name.replace('+', "%20"), template.version)
}

/// Returns one version of a prompt template, by default the newest.
#[utoipa::path(get, path = "/v1/prompt-templates/{template_id}", tag = "generations", params(ByName, WhichVersion),
    responses((status = 200, description = "The template", body = Template), Refusals))]
async fn get_prompt_template(
    State(app): State<App>,
    caller: Caller<Read>,
    Path(ByName { template_id }): Path<ByName>,
    Query(WhichVersion { version }): Query<WhichVersion>,
) -> Result<axum::Json<Template>> {
    let (template_id, _) = caller.tenant.redacted(template_id).await;
    let found = store::find(&app.db, &caller.project, &template_id, version).await?;
    found.map(axum::Json).ok_or(Error::NotFound("prompt template"))
}

/// One page of prompt templates.
type PromptTemplatePage = Page<Template>;

/// Lists prompt templates in their newest versions, the most recently changed first.
#[utoipa::path(get, path = "/v1/prompt-templates", tag = "generations", params(Filter, PageParams),
    responses((status = 200, description = "A page of templates", body = PromptTemplatePage), Refusals))]
async fn list_prompt_templates(
    State(app): State<App>,
    caller: Caller<Read>,
    list: List<Filter>,
) -> Result<PromptTemplatePage> {
    let (filter, _) = caller.tenant.redacted(list.filter).await;
    store::list(&app.db, &caller.project, &filter, &list.page).await
}

/// Deprecates all versions of a prompt template. A version created later is in use again.
#[utoipa::path(post, path = "/v1/prompt-templates/{template_id}/deprecate", tag = "generations", params(ByName),
    responses(Changed<Template>, Refusals))]
async fn deprecate_prompt_template(
    State(app): State<App>,
    caller: Caller<Change>,
    Path(ByName { template_id }): Path<ByName>,
) -> Result<Changed<Template>> {
    let (template_id, _) = caller.tenant.redacted(template_id).await;
    let found = store::deprecate(&app.db, &caller.project, &template_id).await?;
    let newest = found.ok_or(Error::NotFound("prompt template"))?;
    // The name of a template is easy to guess.
    Ok(Changed(if caller.may_read() { Shown::Record(newest) } else { Shown::Minimal }))
}
