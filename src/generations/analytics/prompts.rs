//! Analytics of prompt templates: how often programs made with them pass and succeed.

use serde::{Deserialize, Serialize};
use sqlx::{PgPool, QueryBuilder};
use utoipa::{IntoParams, ToSchema};

use crate::error::{Error, Result};
use crate::http::page::{check_range, time_in_query};
use crate::http::{Check, Checks};
use crate::statistics::{self, rate, wilson};
use crate::types::Timestamp;

/// The generation logs that the statistics are computed from.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub(in crate::generations) struct Scope {
    /// Only logs with this domain name, such as `cbu`.
    domain_name: Option<String>,
    /// Only logs created at this time or later, as RFC 3339 or Unix seconds.
    #[serde(deserialize_with = "time_in_query")]
    #[param(value_type = Option<Timestamp>)]
    since: Option<Timestamp>,
    /// Only logs created before this time, as RFC 3339 or Unix seconds.
    #[serde(deserialize_with = "time_in_query")]
    #[param(value_type = Option<Timestamp>)]
    until: Option<Timestamp>,
    /// With `version`, each version of a template has its own statistics.
    #[param(inline)]
    by: Option<By>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum By {
    Version,
}

impl Check for Scope {
    fn check(&self, checks: &mut Checks) {
        check_range(checks, self.since, self.until);
    }
}

crate::texts! {
    Scope: domain_name;
    Pair: a, b;
}

/// The statistics of one prompt template. A rate is null if its denominator is 0.
#[derive(Debug, Serialize, ToSchema)]
struct PromptFigures {
    /// The template's name.
    prompt_template: String,
    /// The template's version, with `by=version`. Null for attempts that did not name one.
    prompt_template_version: Option<i32>,
    /// The number of finalized logs whose first attempt used the template.
    total_uses: i64,
    /// The number of logs in `total_uses` that succeeded and whose first attempt passed.
    first_try_success: i64,
    /// The share of `first_try_success` in `total_uses`.
    first_try_rate: Option<f64>,
    /// The 95 % Wilson interval of `first_try_rate`.
    first_try_rate_interval: Option<[f64; 2]>,
    /// The number of logs in `total_uses` that succeeded.
    success: i64,
    /// The share of `success` in `total_uses`.
    success_rate: Option<f64>,
    /// The 95 % Wilson interval of `success_rate`.
    success_rate_interval: Option<[f64; 2]>,
    /// The mean number of attempts of the logs in `total_uses`.
    avg_attempts: Option<f64>,
    /// The mean total latency of the logs in `total_uses`, in milliseconds.
    avg_latency_ms: Option<f64>,
    /// The number of attempts that used the template, in all logs.
    attempts: i64,
    /// The number of `attempts` that passed.
    passed: i64,
    /// The share of `passed` among the attempts that passed or failed.
    pass_rate: Option<f64>,
    /// The 95 % Wilson interval of `pass_rate`.
    pass_rate_interval: Option<[f64; 2]>,
    /// The median latency of an attempt, in milliseconds.
    p50_latency_ms: Option<f64>,
    /// The 95th percentile of an attempt's latency, in milliseconds.
    p95_latency_ms: Option<f64>,
    /// The total number of prompt tokens of all attempts.
    total_input_tokens: i64,
    /// The total number of response tokens of all attempts.
    total_output_tokens: i64,
}

#[derive(sqlx::FromRow)]
struct Row {
    template: String,
    version: Option<i32>,
    total_uses: i64,
    first_try_success: i64,
    success: i64,
    avg_attempts: Option<f64>,
    avg_latency_ms: Option<f64>,
    attempts: i64,
    passed: i64,
    judged: i64,
    p50_latency_ms: Option<f64>,
    p95_latency_ms: Option<f64>,
    total_input_tokens: i64,
    total_output_tokens: i64,
}

impl From<Row> for PromptFigures {
    fn from(row: Row) -> Self {
        Self {
            first_try_rate: rate(row.first_try_success, row.total_uses),
            first_try_rate_interval: wilson(row.first_try_success, row.total_uses),
            success_rate: rate(row.success, row.total_uses),
            success_rate_interval: wilson(row.success, row.total_uses),
            pass_rate: rate(row.passed, row.judged),
            pass_rate_interval: wilson(row.passed, row.judged),
            prompt_template: row.template,
            prompt_template_version: row.version,
            total_uses: row.total_uses,
            first_try_success: row.first_try_success,
            success: row.success,
            avg_attempts: row.avg_attempts,
            avg_latency_ms: row.avg_latency_ms,
            attempts: row.attempts,
            passed: row.passed,
            p50_latency_ms: row.p50_latency_ms,
            p95_latency_ms: row.p95_latency_ms,
            total_input_tokens: row.total_input_tokens,
            total_output_tokens: row.total_output_tokens,
        }
    }
}

/// Returns the statistics of the templates that attempts name, the most used first, or of one template if it is
/// named.
async fn figures(
    db: &PgPool,
    project: &str,
    scope: &Scope,
    only: Option<&Named<'_>>,
) -> Result<Vec<PromptFigures>> {
    let by_version = scope.by.is_some() || only.is_some_and(|named| named.version.is_some());
    let version = if by_version { "a.prompt_template_version" } else { "null::int" };
    let mut query = QueryBuilder::new(
        "with log as (
            select g.id, g.success, g.completed_at from generations g where g.project = ",
    );
    query.push_bind(project.to_owned());
    if let Some(domain_name) = &scope.domain_name {
        query.push(" and g.domain_name = ").push_bind(domain_name.clone());
    }
    if let Some(since) = scope.since {
        query.push(" and g.created_at >= ").push_bind(since);
    }
    if let Some(until) = scope.until {
        query.push(" and g.created_at < ").push_bind(until);
    }
    query.push(format_args!(
        "), step as (
            select a.prompt_template as template, {version} as version, a.passed, a.latency_ms, a.input_tokens,
                a.output_tokens, log.success, log.completed_at,
                row_number() over log_order = 1 as is_first, count(*) over whole_log as log_attempts,
                sum(a.latency_ms) over whole_log as log_latency
            from log join attempts a on a.generation_id = log.id and a.project = "
    ));
    query.push_bind(project.to_owned());
    query.push(
        " window log_order as (partition by log.id order by a.attempt), whole_log as (partition by log.id)
        )
        select template, version,
            count(*) filter (where used) as total_uses,
            count(*) filter (where used and passed and success) as first_try_success,
            count(*) filter (where used and success) as success,
            (avg(log_attempts) filter (where used))::float8 as avg_attempts,
            (avg(log_latency) filter (where used))::float8 as avg_latency_ms,
            count(*) as attempts,
            count(*) filter (where passed) as passed,
            count(passed) as judged,
            percentile_cont(0.5) within group (order by latency_ms) as p50_latency_ms,
            percentile_cont(0.95) within group (order by latency_ms) as p95_latency_ms,
            coalesce(sum(input_tokens), 0)::bigint as total_input_tokens,
            coalesce(sum(output_tokens), 0)::bigint as total_output_tokens
        from (select *, is_first and completed_at is not null as used from step) step
        where template is not null",
    );
    if let Some(Named { template, version }) = only {
        query.push(" and template = ").push_bind((*template).to_owned());
        if let Some(version) = version {
            query.push(" and version = ").push_bind(*version);
        }
    }
    query.push(format_args!(
        " group by template, version order by total_uses desc, template, version limit {MOST_TEMPLATES}"
    ));
    let rows: Vec<Row> = query.build_query_as().fetch_all(db).await?;
    Ok(rows.into_iter().map(PromptFigures::from).collect())
}

/// The maximum number of versions of templates in a response.
const MOST_TEMPLATES: usize = 1_000;

/// The statistics of all prompt templates.
#[derive(Serialize, ToSchema)]
#[schema(as = PromptAnalytics)]
pub(in crate::generations) struct AllFigures {
    /// The statistics of each version of a template, the most used first. If there are more than 1,000, only the most used 1,000 are listed.
    data: Vec<PromptFigures>,
}

/// Returns statistics for each prompt template, both over the logs whose first attempt used it and over all attempts
/// that used it.
pub(in crate::generations) async fn read(db: &PgPool, project: &str, scope: &Scope) -> Result<AllFigures> {
    Ok(AllFigures { data: figures(db, project, scope, None).await? })
}

/// The templates to compare.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(in crate::generations) struct Pair {
    /// The first template, or one version of it, such as `name@2`.
    #[param(min_length = 1, example = "cbu_create@1")]
    a: String,
    /// The second template, or one version of it, such as `name@2`.
    #[param(min_length = 1, example = "cbu_create@2")]
    b: String,
}

impl Check for Pair {}

/// A template, or one version of it.
struct Named<'a> {
    template: &'a str,
    version: Option<i32>,
}

impl<'a> Named<'a> {
    fn parse(text: &'a str) -> Self {
        let versioned = text.rsplit_once('@').and_then(|(name, version)| Some((name, version.parse().ok()?)));
        versioned.map_or(Self { template: text, version: None }, |(template, version)| Self {
            template,
            version: Some(version),
        })
    }
}

/// A comparison of two prompt templates. Differences are `a` minus `b`.
#[derive(Serialize, ToSchema)]
#[schema(as = PromptComparison)]
pub(in crate::generations) struct Comparison {
    /// The statistics of the template `a`.
    a: PromptFigures,
    /// The statistics of the template `b`.
    b: PromptFigures,
    /// The difference of the success rates. Null if one template has no finalized log.
    difference: Option<f64>,
    /// The 95 % confidence interval of the difference (normal approximation).
    interval: Option<[f64; 2]>,
    /// The probability of a difference at least as large if there were none (two-proportion z test,
    /// two-sided).
    p_value: Option<f64>,
    /// The comparison of the first-try rates.
    first_try: Option<FirstTry>,
}

/// The difference of two shares.
#[derive(Serialize, ToSchema)]
#[schema(as = RateDifference)]
struct FirstTry {
    /// The first share minus the second.
    difference: f64,
    /// The 95 % confidence interval of the difference (normal approximation).
    interval: [f64; 2],
    /// The probability of a difference at least as large if there were none (two-proportion z test,
    /// two-sided).
    p_value: f64,
}

/// Compares two prompt templates, or two versions of one.
pub(in crate::generations) async fn compare(
    db: &PgPool,
    project: &str,
    Pair { a, b }: &Pair,
) -> Result<Comparison> {
    let a = of(db, project, a).await?;
    let b = of(db, project, b).await?;
    let success = statistics::compare((a.success, a.total_uses), (b.success, b.total_uses));
    let first = statistics::compare((a.first_try_success, a.total_uses), (b.first_try_success, b.total_uses));
    Ok(Comparison {
        difference: success.as_ref().map(|success| success.difference),
        interval: success.as_ref().map(|success| success.interval),
        p_value: success.map(|success| success.p_value),
        first_try: first.map(|first| FirstTry {
            difference: first.difference,
            interval: first.interval,
            p_value: first.p_value,
        }),
        a,
        b,
    })
}

async fn of(db: &PgPool, project: &str, name: &str) -> Result<PromptFigures> {
    let found = figures(db, project, &Scope::default(), Some(&Named::parse(name))).await?;
    found.into_iter().next().ok_or(Error::NotFound("prompt template among the attempts"))
}
