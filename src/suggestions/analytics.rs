//! Analytics of suggestion records: how well slates do.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sqlx::types::Json;
use sqlx::{PgConnection, PgPool, Postgres, QueryBuilder};
use utoipa::{IntoParams, ToSchema};

use super::POSITIONS;
use super::figures::{Answer, Figures, Group, Position, PositionRow, Row};
use super::grouping::GroupBy;
use super::signals::{Limits, Signal, check_limits};
use crate::db;
use crate::error::{Error, Result};
use crate::http::page::{check_range, time_in_query};
use crate::http::{Check, Checks};
use crate::statistics;
use crate::types::Timestamp;

/// The suggestion records that the statistics are computed from.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub(super) struct Scope {
    /// Only records created at this time or later, as RFC 3339 or Unix seconds.
    #[serde(deserialize_with = "time_in_query")]
    #[param(value_type = Option<Timestamp>)]
    since: Option<Timestamp>,
    /// Only records created before this time, as RFC 3339 or Unix seconds.
    #[serde(deserialize_with = "time_in_query")]
    #[param(value_type = Option<Timestamp>)]
    until: Option<Timestamp>,
    /// Only records of this agent session.
    session_name: Option<String>,
    /// Only records of sessions on this server.
    server_name: Option<String>,
    /// Only records whose slate was made by this version of the prompt or node.
    suggestion_node_version: Option<String>,
    /// A property by which the records are also grouped: one of the properties listed here, or `llm:` followed by the
    /// name of a parameter of the request to the model. A parameter with a value of more than 200 characters counts
    /// as not given.
    #[param(inline, example = "llm:max_tokens")]
    group_by: Option<GroupBy>,
    /// The time in milliseconds from which a rejection counts as slow. The default is 10,000.
    #[param(minimum = 0)]
    slow_ms: Option<f64>,
    /// The number of moves from which a user counts as having cycled a lot. The default is 3.
    #[param(minimum = 1)]
    many_cycles: Option<i32>,
}

impl Check for Scope {
    fn check(&self, checks: &mut Checks) {
        check_range(checks, self.since, self.until);
        check_limits(checks, self.slow_ms, self.many_cycles);
    }
}

crate::texts! {
    Scope: suggestion_node_version | session_name, server_name;
    Pair: a, b;
}

impl Scope {
    /// Adds the conditions on the record `s`.
    fn push(&self, query: &mut QueryBuilder<Postgres>, project: &str) {
        query.push(" where s.state <> 'discarded' and s.project = ").push_bind(project.to_owned());
        if let Some(since) = self.since {
            query.push(" and s.created_at >= ").push_bind(since);
        }
        if let Some(until) = self.until {
            query.push(" and s.created_at < ").push_bind(until);
        }
        let named = [
            ("session_name", &self.session_name),
            ("server_name", &self.server_name),
            ("suggestion_node_version", &self.suggestion_node_version),
        ];
        for (column, value) in named {
            if let Some(value) = value {
                query.push(format_args!(" and s.{column} = ")).push_bind(value.clone());
            }
        }
    }

    /// Returns the columns that identify a row's group: the group's value, and whether the row is a group or all records.
    fn value(&self) -> &'static str {
        match self.group_by {
            None => "null::jsonb as value, false as is_group",
            Some(_) => "own.value, grouping(own.value) = 0 as is_group",
        }
    }

    /// Joins the record `s` with the value of its group, as `own`.
    fn push_group(&self, query: &mut QueryBuilder<Postgres>) {
        if let Some(by) = &self.group_by {
            query.push(" cross join lateral (select ");
            by.push_value(query);
            query.push(" as value) own");
        }
    }

    /// Returns the grouping sets: all records and each group, both divided by the column `also` if there is one.
    fn grouping(&self, also: Option<&str>) -> String {
        let set = |column: Option<&str>| {
            let columns: Vec<_> = column.into_iter().chain(also).collect();
            format!("({})", columns.join(", "))
        };
        let group = self.group_by.as_ref().map(|_| set(Some("own.value")));
        let sets: Vec<_> = [set(None)].into_iter().chain(group).collect();
        format!(" group by grouping sets ({})", sets.join(", "))
    }

    fn limits(&self) -> Limits {
        Limits::of(self.slow_ms, self.many_cycles)
    }
}

/// The maximum number of groups of an answer.
const MOST_GROUPS: usize = 1_000;

/// The condition of records that are included in statistics. Records that wait for the user are only counted as
/// fetches.
const ENDED: &str = "s.state = 'finalized'";

/// The columns with numbers of tokens, in the order of [`Row::costs`].
const TOKENS: [&str; 3] = ["s.total_tokens", "s.prompt_tokens", "s.completion_tokens"];

/// Computes the statistics of all records and of each group, with one scan for the records and one for the positions
/// in the slate.
pub(super) async fn read(db: &PgPool, project: &str, scope: &Scope) -> Result<Answer> {
    let mut snapshot = db::begin_snapshot(db).await?;
    let mut rows = rows(&mut snapshot, project, scope).await?;
    let all = rows.iter().position(|row| !row.is_group);
    let all =
        all.map(|place| rows.remove(place)).ok_or_else(|| anyhow::anyhow!("a grand total has no row"))?;
    let values: Vec<_> = rows.iter().filter_map(|row| row.value.as_ref()).collect();
    let mut positions: HashMap<_, Vec<_>> = HashMap::new();
    for row in position_rows(&mut snapshot, project, scope, &values).await? {
        positions.entry(row.is_group.then(|| text(row.value.as_ref()))).or_default().push(Position::of(&row));
    }
    let figures = Figures::of(&all, positions.remove(&None).unwrap_or_default());
    let left_out = all.rows - 1 - i64::try_from(rows.len()).unwrap_or(i64::MAX);
    let groups = rows.into_iter().map(|row| {
        let own = positions.remove(&Some(text(row.value.as_ref()))).unwrap_or_default();
        Group { figures: Figures::of(&row, own), group: row.value.unwrap_or_default() }
    });
    let groups: Vec<_> = groups.collect();
    let is_grouped = scope.group_by.is_some();
    Ok(Answer {
        groups_left_out: is_grouped.then_some(left_out),
        groups: is_grouped.then_some(groups),
        figures,
    })
}

/// Returns a text for a group's value that no other group of the same answer has. A number has one text, however it is
/// written: to the database, 1 and 1.0 are the same group.
fn text(value: Option<&Value>) -> String {
    match value {
        None => String::new(),
        Some(Value::Number(number)) => number.as_f64().unwrap_or_default().to_string(),
        Some(other) => other.to_string(),
    }
}

/// Sums up the records: all of them, and the largest groups.
async fn rows(connection: &mut PgConnection, project: &str, scope: &Scope) -> Result<Vec<Row>> {
    let mut query = QueryBuilder::new(format!("select {},", scope.value()));
    query.push(format_args!(
        " count(*) over () as rows,
        count(*) as fetches,
        count(*) filter (where s.failed) as failed,
        count(*) filter (where {ENDED}) as records,
        count(*) filter (where {ENDED} and s.suggestion_count > 0) as offered,
        count(s.match_type) filter (where s.suggestion_count > 0) as judged,
        count(*) filter (where s.match_type = 'exact') as exact,
        count(*) filter (where s.match_type = 'partial') as partial,
        count(*) filter (where s.match_type = 'prefix') as prefix,
        count(*) filter (where s.match_type = 'none' and s.suggestion_count > 0) as none,
        count(s.time_to_action_ms) as timed,
        avg(s.time_to_action_ms) as mean_ms,
        percentile_cont(array[0.5, 0.9, 0.95, 0.99]) within group (order by s.time_to_action_ms) as percentiles,
        (avg(s.cycle_count) filter (where s.suggestion_count > 0))::float8 as mean_cycles,
        max(s.cycle_count) filter (where s.suggestion_count > 0) as most_cycles,
        count(*) filter (where s.cycle_count > 0 and s.suggestion_count > 0) as browsed,
        array["
    ));
    for (place, column) in TOKENS.into_iter().enumerate() {
        let comma = if place == 0 { "" } else { "," };
        query.push(format_args!(
            "{comma} coalesce(sum({column}) filter (where {ENDED}), 0)::bigint,
            count({column}) filter (where {ENDED}), count({column}) filter (where s.accepted_index is not null)"
        ));
    }
    query.push("] as costs, array[");
    for (place, signal) in Signal::ALL.into_iter().enumerate() {
        query.push(if place == 0 { "count(*) filter (where " } else { ", count(*) filter (where " });
        signal.push(&mut query, scope.limits());
        query.push(")");
    }
    query.push("] as signals from suggestions s");
    scope.push_group(&mut query);
    scope.push(&mut query, project);
    query.push(scope.grouping(None));
    if scope.group_by.is_some() {
        query.push(format_args!(
            " having grouping(own.value) = 1 or count(*) filter (where {ENDED} or s.failed) > 0"
        ));
    }
    query.push(format_args!(" order by is_group, records desc, value limit {MOST_GROUPS} + 1"));
    Ok(query.build_query_as().fetch_all(connection).await?)
}

/// Sums up the first [`POSITIONS`] in the slate: of all records, and of the groups with these values.
async fn position_rows(
    connection: &mut PgConnection,
    project: &str,
    scope: &Scope,
    values: &[&Value],
) -> Result<Vec<PositionRow>> {
    let mut query = QueryBuilder::new(format!("select {},", scope.value()));
    query.push(
        " place.position, count(*) as shown, count(*) filter (where place.position = s.accepted_index) as accepted
        from suggestions s cross join lateral (
            select distinct unnest(s.viewed_indices || s.accepted_index) as position
        ) place",
    );
    scope.push_group(&mut query);
    scope.push(&mut query, project);
    query.push(" and s.match_type is not null and place.position < ").push_bind(POSITIONS);
    query.push(scope.grouping(Some("place.position")));
    if scope.group_by.is_some() {
        query.push(" having grouping(own.value) = 1 or own.value is null or own.value = any(");
        query.push_bind(values.iter().map(|value| Json(*value)).collect::<Vec<_>>()).push(")");
    }
    query.push(" order by is_group, position");
    Ok(query.build_query_as().fetch_all(connection).await?)
}

/// The versions to compare.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Pair {
    /// The first version of the prompt or node.
    #[param(min_length = 1, example = "v1.0")]
    a: String,
    /// The second version of the prompt or node.
    #[param(min_length = 1, example = "v1.1")]
    b: String,
}

impl Check for Pair {}

/// A comparison of two versions. Differences are `a` minus `b`.
#[derive(Serialize, ToSchema)]
#[schema(as = SuggestionComparison)]
pub(super) struct Comparison {
    /// The statistics of the version `a`.
    a: Figures,
    /// The statistics of the version `b`.
    b: Figures,
    /// The difference of the acceptance rates. Null if one version has no slate that can be judged.
    difference: Option<f64>,
    /// The 95 % confidence interval of the difference (normal approximation).
    interval: Option<[f64; 2]>,
    /// The probability of a difference at least as large if there were none (two-proportion z test,
    /// two-sided).
    p_value: Option<f64>,
}

/// Compares two versions of the prompt or node that makes slates.
pub(super) async fn compare(db: &PgPool, project: &str, Pair { a, b }: Pair) -> Result<Comparison> {
    let a = of(db, project, a).await?;
    let b = of(db, project, b).await?;
    let counts = |figures: &Figures| (figures.accepted, figures.accepted + figures.ignored.count);
    let difference = statistics::compare(counts(&a), counts(&b));
    Ok(Comparison {
        difference: difference.as_ref().map(|found| found.difference),
        interval: difference.as_ref().map(|found| found.interval),
        p_value: difference.map(|found| found.p_value),
        a,
        b,
    })
}

async fn of(db: &PgPool, project: &str, version: String) -> Result<Figures> {
    let scope = Scope { suggestion_node_version: Some(version), ..Scope::default() };
    let figures = read(db, project, &scope).await?.figures;
    if figures.records == 0 {
        return Err(Error::NotFound("version among the finalized suggestions"));
    }
    Ok(figures)
}
