//! The registry of prompt templates (seed 001, 1.2): every version is kept.

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use serde::{Deserialize, Serialize};
use sqlx::{PgPool, QueryBuilder};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::auth::{Caller, Read, Write};
use crate::error::{Error, Refusals, Result};
use crate::http::page::{List, Listed, Page, PageParams};
use crate::http::{Check, Checks, Json, Path, Query};
use crate::state::App;
use crate::types::Timestamp;

/// The paths of prompt templates.
pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(put, get)).routes(routes!(list)).routes(routes!(deprecate))
}

/// One version of a prompt template.
#[derive(Debug, Clone, Serialize, ToSchema, sqlx::FromRow)]
#[schema(as = PromptTemplate)]
pub struct Template {
    /// The name that attempts give as `prompt_template`.
    pub template_id: String,
    /// From 1.
    pub version: i32,
    /// The text, with its placeholders.
    pub template_text: String,
    /// Area of the language.
    pub domain_name: String,
    /// What it is for.
    pub description: Option<String>,
    /// When this version was made.
    pub created_at: Timestamp,
    /// When it was deprecated; null: it is in use.
    pub deprecated_at: Option<Timestamp>,
}

/// A new version of a template.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct NewTemplate {
    /// The text, with its placeholders.
    #[schema(min_length = 1)]
    template_text: String,
    /// Area of the language.
    #[schema(min_length = 1, max_length = 50)]
    domain_name: String,
    /// What it is for.
    description: Option<String>,
}

impl Check for NewTemplate {
    fn check(&self, checks: &mut Checks) {
        checks.require(!self.template_text.is_empty(), "template_text", "must not be empty");
        checks.text("domain_name", &self.domain_name, 50);
    }
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
struct ByName {
    /// The template's name, at most 200 characters.
    template_id: String,
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct WhichVersion {
    /// The newest, if not given.
    version: Option<i32>,
}

impl Check for WhichVersion {
    fn check(&self, _: &mut Checks) {}
}

/// Makes a new version of a template. The newest version sent again is not made twice.
#[utoipa::path(put, path = "/v1/prompt-templates/{template_id}", tag = "generations", params(ByName),
    request_body = NewTemplate,
    responses(
        (status = 201, description = "The new version", body = Template),
        (status = 200, description = "The newest version has just this text, domain and description", body = Template),
        Refusals,
    ))]
async fn put(
    State(app): State<App>,
    caller: Caller<Write>,
    Path(ByName { template_id }): Path<ByName>,
    Json(new): Json<NewTemplate>,
) -> Result<impl IntoResponse> {
    let mut checks = Checks::default();
    checks.name("template_id", Some(&template_id));
    checks.finish()?;
    loop {
        let newest = find(&app.db, &caller.project, &template_id, None).await?;
        if let Some(newest) = newest.as_ref()
            && (&newest.template_text, &newest.domain_name, &newest.description, newest.deprecated_at)
                == (&new.template_text, &new.domain_name, &new.description, None)
        {
            return Ok((StatusCode::OK, location(newest), axum::Json(newest.clone())));
        }
        let version = newest.map_or(0, |newest| newest.version) + 1;
        let sql = "insert into prompt_templates
                       (project, template_id, version, template_text, domain_name, description, created_at)
                   values ($1, $2, $3, $4, $5, $6, $7) on conflict do nothing returning *";
        let made: Option<Template> = sqlx::query_as(sql)
            .bind(&*caller.project)
            .bind(&template_id)
            .bind(version)
            .bind(&new.template_text)
            .bind(&new.domain_name)
            .bind(&new.description)
            .bind(Timestamp::now())
            .fetch_optional(&app.db)
            .await?;
        if let Some(made) = made {
            return Ok((StatusCode::CREATED, location(&made), axum::Json(made)));
        }
        // Somebody else has made that version in the meantime.
    }
}

fn location(template: &Template) -> [(header::HeaderName, String); 1] {
    let name: String = form_urlencoded::byte_serialize(template.template_id.as_bytes()).collect();
    let name = name.replace('+', "%20");
    [(header::LOCATION, format!("/v1/prompt-templates/{name}?version={}", template.version))]
}

/// One version of a template, the newest if none is named.
#[utoipa::path(get, path = "/v1/prompt-templates/{template_id}", tag = "generations", params(ByName, WhichVersion),
    responses((status = 200, description = "The template", body = Template), Refusals))]
async fn get(
    State(app): State<App>,
    caller: Caller<Read>,
    Path(ByName { template_id }): Path<ByName>,
    Query(WhichVersion { version }): Query<WhichVersion>,
) -> Result<axum::Json<Template>> {
    let found = find(&app.db, &caller.project, &template_id, version).await?;
    found.map(axum::Json).ok_or(Error::NotFound("prompt template"))
}

async fn find(
    db: &PgPool,
    project: &str,
    template_id: &str,
    version: Option<i32>,
) -> Result<Option<Template>> {
    let sql = "select * from prompt_templates where project = $1 and template_id = $2 and version = coalesce($3, version)
               order by version desc limit 1";
    Ok(sqlx::query_as(sql).bind(project).bind(template_id).bind(version).fetch_optional(db).await?)
}

/// Which templates a list holds.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct Filter {
    /// Area of the language.
    domain_name: Option<String>,
    /// Only deprecated ones, or only those in use.
    deprecated: Option<bool>,
}

impl Check for Filter {
    fn check(&self, _: &mut Checks) {}
}

impl Listed for Template {
    fn place(&self) -> (Timestamp, String) {
        (self.created_at, self.template_id.clone())
    }
}

/// One page of prompt templates.
type PromptTemplatePage = Page<Template>;

/// The templates, each in its newest version, the one changed last first.
#[utoipa::path(get, path = "/v1/prompt-templates", tag = "generations", params(Filter, PageParams),
    responses((status = 200, description = "A page of templates", body = PromptTemplatePage), Refusals))]
async fn list(
    State(app): State<App>,
    caller: Caller<Read>,
    list: List<Filter>,
) -> Result<PromptTemplatePage> {
    let mut query = QueryBuilder::new(
        "select * from (select distinct on (template_id) * from prompt_templates where project = ",
    );
    query
        .push_bind(caller.project.to_string())
        .push(" order by template_id, version desc) newest where true");
    if let Some(domain_name) = list.filter.domain_name {
        query.push(" and domain_name = ").push_bind(domain_name);
    }
    if let Some(deprecated) = list.filter.deprecated {
        query.push(if deprecated { " and deprecated_at is not null" } else { " and deprecated_at is null" });
    }
    list.page.push(&mut query, "created_at", "template_id", "text")?;
    Ok(list.page.page(query.build_query_as().fetch_all(&app.db).await?))
}

/// Deprecates every version of a template; a version made later is in use again.
#[utoipa::path(post, path = "/v1/prompt-templates/{template_id}/deprecate", tag = "generations", params(ByName),
    responses((status = 200, description = "Its newest version", body = Template), Refusals))]
async fn deprecate(
    State(app): State<App>,
    caller: Caller<Write>,
    Path(ByName { template_id }): Path<ByName>,
) -> Result<axum::Json<Template>> {
    let sql = "update prompt_templates set deprecated_at = $3
               where project = $1 and template_id = $2 and deprecated_at is null";
    sqlx::query(sql)
        .bind(&*caller.project)
        .bind(&template_id)
        .bind(Timestamp::now())
        .execute(&app.db)
        .await?;
    let found = find(&app.db, &caller.project, &template_id, None).await?;
    found.map(axum::Json).ok_or(Error::NotFound("prompt template"))
}
