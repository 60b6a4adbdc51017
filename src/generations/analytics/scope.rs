//! The generation logs that figures are about.

use serde::Deserialize;
use sqlx::{Postgres, QueryBuilder};
use utoipa::IntoParams;

use crate::db::insert;
use crate::http::page::{check_range, time_in_query};
use crate::http::{Check, Checks};
use crate::types::Timestamp;

/// The generation logs that the statistics are computed from.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct Scope {
    /// Only logs with this domain name, such as `cbu`.
    domain_name: Option<String>,
    /// Only logs of this model.
    model_used: Option<String>,
    /// Only logs whose first attempt used this prompt template.
    prompt_template: Option<String>,
    /// Only logs created at this time or later, as RFC 3339 or Unix seconds.
    #[serde(deserialize_with = "time_in_query")]
    #[param(value_type = Option<Timestamp>)]
    since: Option<Timestamp>,
    /// Only logs created before this time, as RFC 3339 or Unix seconds.
    #[serde(deserialize_with = "time_in_query")]
    #[param(value_type = Option<Timestamp>)]
    until: Option<Timestamp>,
}

impl Check for Scope {
    fn check(&self, checks: &mut Checks) {
        check_range(checks, self.since, self.until);
    }
}

crate::texts! {
    Scope: domain_name, model_used, prompt_template;
}

impl Scope {
    /// Begins a query whose project is `$1` and which has the logs of this scope, as `log`.
    pub(super) fn query(&self, project: &str) -> sqlx::Result<QueryBuilder<Postgres>> {
        let mut query = QueryBuilder::with_arguments(
            "with log as (
                select g.id, g.domain_name, g.model_used, g.success from generations g
                where g.project = $1 and g.completed_at is not null",
            insert::parameters(project, |_| Ok(()))?,
        );
        for (column, value) in [("domain_name", &self.domain_name), ("model_used", &self.model_used)] {
            if let Some(value) = value {
                query.push(format_args!(" and g.{column} = ")).push_bind(value.clone());
            }
        }
        if let Some(template) = &self.prompt_template {
            query.push(
                " and exists (select from attempts a where a.project = $1 and a.generation_id = g.id
                    and not exists (select from attempts earlier where earlier.project = $1
                        and earlier.generation_id = a.generation_id and earlier.attempt < a.attempt)
                    and a.prompt_template = ",
            );
            query.push_bind(template.clone()).push(")");
        }
        if let Some(since) = self.since {
            query.push(" and g.created_at >= ").push_bind(since);
        }
        if let Some(until) = self.until {
            query.push(" and g.created_at < ").push_bind(until);
        }
        query.push(")");
        Ok(query)
    }
}
