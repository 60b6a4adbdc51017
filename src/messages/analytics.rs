//! The statistics of sends, by model.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sqlx::{PgPool, Postgres, QueryBuilder};
use utoipa::{IntoParams, ToSchema};

use super::models::{self, Catalog, Model};
use super::prediction;
use super::rules::errors::{Class, Kind};
use super::rules::quota::{Quota, Use};
use crate::error::Result;
use crate::http::page::{check_range, time_in_query};
use crate::http::{Check, Checks};
use crate::types::Timestamp;

/// The sends that the statistics are computed from.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub(super) struct Scope {
    /// Only sends to this model.
    model: Option<String>,
    /// Only sends of this topic.
    topic_id: Option<String>,
    /// Only sends made at this time or later, as RFC 3339 or Unix seconds.
    #[serde(deserialize_with = "time_in_query")]
    #[param(value_type = Option<Timestamp>)]
    since: Option<Timestamp>,
    /// Only sends made before this time, as RFC 3339 or Unix seconds.
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
    Scope: model | topic_id;
}

/// The statistics of all models.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = MessageAnalytics)]
pub(super) struct Figures {
    /// The statistics of each model, the most used first. If there are more than 1,000, only the most used are listed.
    data: Vec<ModelFigures>,
    /// The errors of calls, the most frequent first, at most 1,000.
    errors: Vec<ErrorFigures>,
}

/// The statistics of one model. A rate is null if its denominator is 0.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = MessageFigures)]
struct ModelFigures {
    /// The model.
    model: String,
    /// The number of sends.
    sends: i64,
    /// The number of sends in progress.
    sending: i64,
    /// The number of sends that the model answered.
    complete: i64,
    /// The number of sends that failed.
    failed: i64,
    /// The number of calls.
    calls: i64,
    /// The number of sends of which pairs were dropped.
    trimmed_sends: i64,
    /// The number of dropped pairs.
    trimmed_pairs: i64,
    /// The number of sends in which the context was too long at least once.
    overflowed_sends: i64,
    /// The median latency of a call, in milliseconds.
    p50_latency_ms: Option<f64>,
    /// The number of reported prompt tokens.
    input_tokens: i64,
    /// The number of reported response tokens.
    output_tokens: i64,
    /// The errors of estimated request sizes.
    estimate: Option<EstimateError>,
    /// The learned correction of size estimates: the ratio of reported tokens to estimated ones. Null if no usage was
    /// reported.
    ratio: Option<f64>,
    /// How much of the model's quotas is used.
    #[schema(value_type = BTreeMap<String, Use>)]
    quota: Quota,
}

/// The errors of estimated request sizes, as fractions of the reported sizes.
#[derive(Debug, Serialize, ToSchema)]
struct EstimateError {
    /// The number of sends whose usage was reported.
    sends: i64,
    /// The median of the absolute errors.
    median: f64,
    /// The 95th percentile of the absolute errors.
    p95: f64,
    /// The mean error. It is negative if the estimates are too small.
    bias: f64,
}

/// The number of calls of a model that ended with one kind of error.
#[derive(Debug, Serialize, ToSchema, sqlx::FromRow)]
#[schema(as = MessageErrorFigures)]
struct ErrorFigures {
    /// The model.
    model: String,
    /// The class of the error.
    class: Class,
    /// The kind of the error.
    kind: Kind,
    /// The number of calls.
    calls: i64,
}

#[derive(sqlx::FromRow)]
struct Row {
    model: String,
    sends: i64,
    sending: i64,
    complete: i64,
    failed: i64,
    calls: i64,
    trimmed_sends: i64,
    trimmed_pairs: i64,
    overflowed_sends: i64,
    input_tokens: i64,
    output_tokens: i64,
    reported: i64,
    median: Option<f64>,
    p95: Option<f64>,
    bias: Option<f64>,
}

/// The maximum number of models, and of kinds of errors, in a response. Any request may name a model of its own.
const MOST_MODELS: i64 = 1_000;

/// Returns the statistics of sends, by model.
pub(super) async fn read(db: &PgPool, project: &str, scope: &Scope, catalog: &Catalog) -> Result<Figures> {
    let mut query = scoped(
        "with send as (
            select s.*, s.input_tokens::float8 as reported,
                (coalesce((select sum(tokens) from unnest(s.selected_tokens[s.trimmed_count + 1:]) tokens), 0)
                    + s.aut + s.system_tokens)::float8 as estimated
            from sends s where s.project = ",
        project,
        scope,
    );
    query.push(
        ")
        select model, count(*) as sends, count(*) filter (where state = 'sending') as sending,
            count(*) filter (where state = 'complete') as complete, count(*) filter (where state = 'error') as failed,
            coalesce(sum(attempts_used), 0)::bigint as calls,
            count(*) filter (where trimmed_count > 0) as trimmed_sends,
            coalesce(sum(trimmed_count), 0)::bigint as trimmed_pairs,
            count(*) filter (where trimmed_count > preflight_count or stage = 'overflow_exhausted') as overflowed_sends,
            coalesce(sum(input_tokens), 0)::bigint as input_tokens,
            coalesce(sum(output_tokens), 0)::bigint as output_tokens,
            count(*) filter (where reported > 0) as reported,
            percentile_cont(0.5) within group (order by abs(estimated - reported) / reported)
                filter (where reported > 0) as median,
            percentile_cont(0.95) within group (order by abs(estimated - reported) / reported)
                filter (where reported > 0) as p95,
            avg((estimated - reported) / reported) filter (where reported > 0) as bias
        from send group by model order by sends desc, model limit ",
    );
    query.push_bind(MOST_MODELS);
    let mut connection = db.acquire().await?;
    let rows: Vec<Row> = query.build_query_as().fetch_all(&mut *connection).await?;
    let mut query = scoped("with send as (select s.id from sends s where s.project = ", project, scope);
    query.push(
        ")
        select a.model, percentile_cont(0.5) within group (order by a.latency_ms)
        from send join send_attempts a on a.send_id = send.id and a.project = ",
    );
    query.push_bind(project.to_owned()).push(" where a.latency_ms is not null and a.model = any(");
    query.push_bind(rows.iter().map(|row| row.model.clone()).collect::<Vec<_>>()).push(") group by a.model");
    let latencies: Vec<(String, f64)> = query.build_query_as().fetch_all(&mut *connection).await?;
    let latencies: BTreeMap<_, _> = latencies.into_iter().collect();
    let mut query = scoped("with send as (select s.id from sends s where s.project = ", project, scope);
    query.push(
        ")
        select a.model, a.error ->> 'class' as class, a.error ->> 'kind' as kind, count(*) as calls
        from send join send_attempts a on a.send_id = send.id and a.project = ",
    );
    query.push_bind(project.to_owned());
    query.push(" where a.error is not null group by 1, 2, 3 order by calls desc, 1, 2, 3 limit ");
    query.push_bind(MOST_MODELS);
    let errors: Vec<ErrorFigures> = query.build_query_as().fetch_all(&mut *connection).await?;
    let known = models::list(&mut connection, project, catalog).await?;
    let mut data = Vec::with_capacity(rows.len());
    for row in rows {
        let limits = known.iter().find(|known| known.model == row.model).map(Model::limits);
        let quota = match limits {
            Some(limits) => prediction::quotas(&mut connection, project, &row.model, &limits, 0).await?.0,
            None => Quota::new(),
        };
        let learned = models::learned(&mut *connection, project, &row.model).await?;
        let estimate = || {
            Some(EstimateError { sends: row.reported, median: row.median?, p95: row.p95?, bias: row.bias? })
        };
        data.push(ModelFigures {
            estimate: estimate(),
            ratio: (learned != super::rules::estimate::Learned::default()).then_some(learned.ratio),
            p50_latency_ms: latencies.get(&row.model).copied(),
            model: row.model,
            sends: row.sends,
            sending: row.sending,
            complete: row.complete,
            failed: row.failed,
            calls: row.calls,
            trimmed_sends: row.trimmed_sends,
            trimmed_pairs: row.trimmed_pairs,
            overflowed_sends: row.overflowed_sends,
            input_tokens: row.input_tokens,
            output_tokens: row.output_tokens,
            quota,
        });
    }
    Ok(Figures { data, errors })
}

/// Begins a query with the sends that the statistics are computed from.
fn scoped(beginning: &str, project: &str, scope: &Scope) -> QueryBuilder<Postgres> {
    let mut query = QueryBuilder::new(beginning);
    query.push_bind(project.to_owned());
    for (column, value) in [("s.model", &scope.model), ("s.topic_id", &scope.topic_id)] {
        if let Some(value) = value {
            query.push(format_args!(" and {column} = ")).push_bind(value.clone());
        }
    }
    if let Some(since) = scope.since {
        query.push(" and s.created_at >= ").push_bind(since);
    }
    if let Some(until) = scope.until {
        query.push(" and s.created_at < ").push_bind(until);
    }
    query
}
