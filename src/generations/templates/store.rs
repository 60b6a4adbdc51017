//! How prompt templates are stored.

use serde::Deserialize;
use sqlx::{AssertSqlSafe, PgPool, QueryBuilder};
use utoipa::IntoParams;

use super::{NewTemplate, Template};
use crate::error::Result;
use crate::http::page::{Listed, Page, PageRequest};
use crate::http::{Check, boolean};
use crate::types::Timestamp;

/// Makes a new version of a template, unless the newest version is the same already. Returns the newest
/// version, and whether it was made.
pub(in crate::generations) async fn put(
    db: &PgPool,
    project: &str,
    template_id: String,
    new: NewTemplate,
) -> Result<(Template, bool)> {
    let (created_at, version, is_new) = loop {
        // The text may be long, so it is not read.
        let sql = "select version, created_at, deprecated_at is null and template_text = $3 and domain_name = $4
                       and description is not distinct from $5
                   from prompt_templates where project = $1 and template_id = $2 order by version desc limit 1";
        let newest: Option<(i32, Timestamp, bool)> = sqlx::query_as(sql)
            .bind(project)
            .bind(&template_id)
            .bind(&new.template_text)
            .bind(&new.domain_name)
            .bind(&new.description)
            .fetch_optional(db)
            .await?;
        if let Some((version, created_at, true)) = newest {
            break (created_at, version, false);
        }
        let (version, created_at) = (newest.map_or(0, |(version, ..)| version) + 1, Timestamp::now());
        let sql = "insert into prompt_templates
                       (project, template_id, version, template_text, domain_name, description, created_at)
                   values ($1, $2, $3, $4, $5, $6, $7) on conflict do nothing";
        let made = sqlx::query(sql)
            .bind(project)
            .bind(&template_id)
            .bind(version)
            .bind(&new.template_text)
            .bind(&new.domain_name)
            .bind(&new.description)
            .bind(created_at)
            .execute(db)
            .await?;
        if made.rows_affected() > 0 {
            break (created_at, version, true);
        }
        // Somebody else has made that version in the meantime.
    };
    let NewTemplate { template_text, domain_name, description } = new;
    let template = Template {
        template_id,
        version,
        template_text,
        domain_name,
        description,
        created_at,
        deprecated_at: None,
    };
    Ok((template, is_new))
}

/// The columns of a template. Each query names those that it returns, because a newer server may add others while an older one
/// runs.
const TEMPLATE: &str =
    "template_id, version, template_text, domain_name, description, created_at, deprecated_at";

/// Returns one version of a template, by default the newest.
pub(in crate::generations) async fn find(
    db: &PgPool,
    project: &str,
    template_id: &str,
    version: Option<i32>,
) -> Result<Option<Template>> {
    let sql = format!(
        "select {TEMPLATE} from prompt_templates
        where project = $1 and template_id = $2 and version = coalesce($3, version) order by version desc limit 1"
    );
    Ok(sqlx::query_as(AssertSqlSafe(sql))
        .bind(project)
        .bind(template_id)
        .bind(version)
        .fetch_optional(db)
        .await?)
}

/// The filter of a list of prompt templates.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(in crate::generations) struct Filter {
    /// Only templates with this domain name.
    domain_name: Option<String>,
    /// With true, only deprecated templates; with false, only templates in use.
    #[serde(default, deserialize_with = "boolean")]
    deprecated: Option<bool>,
}

impl Check for Filter {}

crate::texts! {
    Filter: domain_name;
}

impl Listed for Template {
    fn sort_key(&self) -> (Timestamp, String) {
        (self.created_at, self.template_id.clone())
    }
}

/// Returns one page of a project's templates, each in its newest version, the most recently changed first.
pub(in crate::generations) async fn list(
    db: &PgPool,
    project: &str,
    filter: &Filter,
    page: &PageRequest,
) -> Result<Page<Template>> {
    let mut query = QueryBuilder::new(format!(
        "select {TEMPLATE} from (select distinct on (template_id) * from prompt_templates where project = "
    ));
    query.push_bind(project.to_owned()).push(" order by template_id, version desc) newest where true");
    if let Some(domain_name) = &filter.domain_name {
        query.push(" and domain_name = ").push_bind(domain_name.clone());
    }
    if let Some(deprecated) = filter.deprecated {
        query.push(if deprecated { " and deprecated_at is not null" } else { " and deprecated_at is null" });
    }
    page.push(&mut query, "created_at", "template_id", "text")?;
    page.read(&mut query, db).await
}

/// Deprecates every version of a template. Returns the newest version, or none if there is no such template.
pub(in crate::generations) async fn deprecate(
    db: &PgPool,
    project: &str,
    template_id: &str,
) -> Result<Option<Template>> {
    let sql = "update prompt_templates set deprecated_at = $3
               where project = $1 and template_id = $2 and deprecated_at is null";
    sqlx::query(sql).bind(project).bind(template_id).bind(Timestamp::now()).execute(db).await?;
    find(db, project, template_id, None).await
}
