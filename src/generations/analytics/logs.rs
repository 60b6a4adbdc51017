//! Analytics of generation logs: how often they succeed, what they take, and in which errors their attempts end.

use std::sync::Arc;

use serde::Serialize;
use sqlx::PgPool;
use utoipa::ToSchema;

use super::errors::{self, ErrorFigures, StageFigures};
use super::scope::Scope;
use crate::db;
use crate::error::Result;
use crate::statistics::{rate, wilson};

/// The maximum number of groups that are returned of each kind: the largest ones.
const GROUPS: i64 = 100;

/// Statistics of finalized logs. A rate is null if its denominator is 0.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = GenerationFigures)]
struct Figures {
    /// The number of finalized logs.
    logs: i64,
    /// The number of logs that succeeded.
    success: i64,
    /// The share of `success` in `logs`.
    success_rate: Option<f64>,
    /// The 95 % Wilson interval of `success_rate`.
    success_rate_interval: Option<[f64; 2]>,
    /// The number of logs that succeeded and whose first attempt passed.
    first_try_success: i64,
    /// The share of `first_try_success` in `logs`.
    first_try_rate: Option<f64>,
    /// The 95 % Wilson interval of `first_try_rate`.
    first_try_rate_interval: Option<[f64; 2]>,
    /// The number of attempts.
    attempts: i64,
    /// The number of attempts that failed, which means that they have a program that a stage rejected.
    failed_attempts: i64,
    /// The mean number of attempts of a log.
    avg_attempts: Option<f64>,
    /// The mean total latency of a log's attempts, in milliseconds.
    avg_latency_ms: Option<f64>,
    /// The total number of prompt tokens of all attempts.
    total_input_tokens: i64,
    /// The total number of response tokens of all attempts.
    total_output_tokens: i64,
}

/// The statistics of the logs that have a property in common.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = GenerationFiguresGroup)]
struct Group {
    /// The value that the logs of the group share. Null for logs without a value.
    group: Option<String>,
    #[serde(flatten)]
    figures: Figures,
}

/// Statistics of generation logs and of the errors of their attempts.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = GenerationAnalytics)]
pub struct Answer {
    #[serde(flatten)]
    figures: Figures,
    /// The statistics for each domain name, those with the most logs first, at most 100.
    by_domain: Vec<Group>,
    /// The statistics of each model, those with the most logs first, at most 100.
    by_model: Vec<Group>,
    /// The statistics of each prompt template, those with the most logs first, at most 100. A log counts under the
    /// template of its first attempt.
    by_template: Vec<Group>,
    /// The errors by the stage that reported them, the most frequent first.
    errors_by_stage: Vec<StageFigures>,
    /// The most frequent errors, at most 20.
    errors: Vec<ErrorFigures>,
}

#[derive(sqlx::FromRow)]
struct Row {
    /// The bits of the columns that the row is not grouped by: the domain is 4, the model 2 and the template 1.
    ungrouped: i32,
    value: Option<String>,
    logs: i64,
    success: i64,
    first_try_success: i64,
    attempts: i64,
    failed_attempts: i64,
    avg_attempts: Option<f64>,
    avg_latency_ms: Option<f64>,
    total_input_tokens: i64,
    total_output_tokens: i64,
}

impl From<&Row> for Figures {
    fn from(row: &Row) -> Self {
        Self {
            logs: row.logs,
            success: row.success,
            success_rate: rate(row.success, row.logs),
            success_rate_interval: wilson(row.success, row.logs),
            first_try_success: row.first_try_success,
            first_try_rate: rate(row.first_try_success, row.logs),
            first_try_rate_interval: wilson(row.first_try_success, row.logs),
            attempts: row.attempts,
            failed_attempts: row.failed_attempts,
            avg_attempts: row.avg_attempts,
            avg_latency_ms: row.avg_latency_ms,
            total_input_tokens: row.total_input_tokens,
            total_output_tokens: row.total_output_tokens,
        }
    }
}

/// Computes the statistics of all logs and of each group with one scan, and counts the errors with another.
pub async fn read(db: &PgPool, project: &Arc<str>, scope: &Scope) -> Result<Answer> {
    let mut snapshot = db::begin_snapshot(db).await?;
    let mut query = scope.query(project)?;
    query.push(
        ", step as (
            select log.*, a.attempt, a.passed, a.prompt_template, a.latency_ms, a.input_tokens, a.output_tokens,
                row_number() over (partition by log.id order by a.attempt) = 1 as is_first
            from log left join attempts a on a.project = $1 and a.generation_id = log.id
        ), whole as (
            select min(domain_name) as domain_name, min(model_used) as model_used, bool_or(success) as success,
                max(prompt_template) filter (where is_first) as prompt_template,
                bool_or(passed) filter (where is_first) as first_passed,
                count(attempt) as attempts, count(*) filter (where not passed) as failed_attempts,
                sum(latency_ms) as latency_ms, sum(input_tokens) as input_tokens, sum(output_tokens) as output_tokens
            from step group by id
        ), figures as (
            select grouping(domain_name, model_used, prompt_template) as ungrouped,
                coalesce(domain_name, model_used, prompt_template) as value,
                count(*) as logs,
                count(*) filter (where success) as success,
                count(*) filter (where success and first_passed) as first_try_success,
                coalesce(sum(attempts), 0)::bigint as attempts,
                coalesce(sum(failed_attempts), 0)::bigint as failed_attempts,
                avg(attempts)::float8 as avg_attempts,
                avg(latency_ms)::float8 as avg_latency_ms,
                coalesce(sum(input_tokens), 0)::bigint as total_input_tokens,
                coalesce(sum(output_tokens), 0)::bigint as total_output_tokens
            from whole group by grouping sets ((), (domain_name), (model_used), (prompt_template))
        )
        select * from (
            select *, row_number() over (partition by ungrouped order by logs desc, value) as place from figures
        ) ranked where place <= ",
    );
    query.push_bind(GROUPS).push(" order by ungrouped, place");
    let rows: Vec<Row> = query.build_query_as().fetch_all(&mut *snapshot).await?;
    let (errors_by_stage, errors) = errors::read(&mut snapshot, project, scope).await?;
    let groups = |ungrouped: i32| {
        let own = rows.iter().filter(|row| row.ungrouped == ungrouped);
        own.map(|row| Group { group: row.value.clone(), figures: row.into() }).collect()
    };
    let all = rows.iter().find(|row| row.ungrouped == 7).map(Figures::from);
    Ok(Answer {
        figures: all.ok_or_else(|| anyhow::anyhow!("a grand total has no row"))?,
        by_domain: groups(3),
        by_model: groups(5),
        by_template: groups(6),
        errors_by_stage,
        errors,
    })
}
