//! Analytics of suggestion records: how well slates do.

use serde::{Deserialize, Serialize};
use sqlx::{PgPool, Postgres, QueryBuilder};
use utoipa::{IntoParams, ToSchema};

use super::figures::{Answer, Figures, Group, Position, PositionRow, Row};
use super::signals::{Limits, Signal, check_limits};
use crate::error::{Error, Result};
use crate::http::page::{check_range, time_in_query};
use crate::http::{Check, Checks};
use crate::statistics::{self, rate, wilson};
use crate::types::Timestamp;

/// The suggestion records that the figures are computed from.
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
    /// Only records with this version of the prompt or node.
    suggestion_node_version: Option<String>,
    /// A property by which the figures are computed in groups as well.
    #[param(inline)]
    group_by: Option<GroupBy>,
    /// The time in milliseconds from which a rejection is slow. The default is 10 000.
    #[param(minimum = 0)]
    slow_ms: Option<f64>,
    /// The number of moves from which a user cycled a lot. The default is 3.
    #[param(minimum = 1)]
    many_cycles: Option<i32>,
}

impl Check for Scope {
    fn check(&self, checks: &mut Checks) {
        check_range(checks, self.since, self.until);
        check_limits(checks, self.slow_ms, self.many_cycles);
    }
}

/// A property by which figures can be grouped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum GroupBy {
    /// The version of the prompt or node.
    Version,
    /// The model that answered.
    Model,
    /// The model's temperature.
    Temperature,
    /// The number of blocks in the context.
    ContextBlockCount,
    /// The agent session.
    Session,
}

impl GroupBy {
    fn column(self) -> &'static str {
        match self {
            Self::Version => "s.suggestion_node_version",
            Self::Model => "s.model",
            Self::Temperature => "s.temperature",
            Self::ContextBlockCount => "s.context_block_count",
            Self::Session => "s.session_name",
        }
    }
}

impl Scope {
    /// Adds the conditions on the record `s`.
    fn push(&self, query: &mut QueryBuilder<Postgres>, project: &str) {
        query.push(" where s.state = 'finalized' and s.project = ").push_bind(project.to_owned());
        if let Some(since) = self.since {
            query.push(" and s.created_at >= ").push_bind(since);
        }
        if let Some(until) = self.until {
            query.push(" and s.created_at < ").push_bind(until);
        }
        let named = [
            ("session_name", &self.session_name),
            ("suggestion_node_version", &self.suggestion_node_version),
        ];
        for (column, value) in named {
            if let Some(value) = value {
                query.push(format_args!(" and s.{column} = ")).push_bind(value.clone());
            }
        }
    }

    /// Returns the columns that identify a row's group: the group's value, and whether the row is a group or all records.
    fn value(&self) -> String {
        match self.group_by {
            None => "null::jsonb as value, false as is_group".to_owned(),
            Some(by) => {
                let column = by.column();
                format!("to_jsonb({column}) as value, grouping({column}) = 0 as is_group")
            }
        }
    }

    /// Returns the grouping sets: all records and each group, both divided by the column `also` if there is one.
    fn grouping(&self, also: Option<&str>) -> String {
        let set = |column: Option<&str>| {
            let columns: Vec<_> = column.into_iter().chain(also).collect();
            format!("({})", columns.join(", "))
        };
        let group = self.group_by.map(|by| set(Some(by.column())));
        let sets: Vec<_> = [set(None)].into_iter().chain(group).collect();
        format!(" group by grouping sets ({})", sets.join(", "))
    }

    fn limits(&self) -> Limits {
        Limits::of(self.slow_ms, self.many_cycles)
    }
}

/// Computes the figures of all records and of each group, with one scan for the records and one for the
/// positions in the slate.
pub(super) async fn read(db: &PgPool, project: &str, scope: &Scope) -> Result<Answer> {
    let mut snapshot = db.begin_with("begin isolation level repeatable read read only").await?;
    let mut query = QueryBuilder::new(format!("select {},", scope.value()));
    query.push(
        " count(*) as records,
        count(*) filter (where s.suggestion_count > 0) as offered,
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
        coalesce(sum(s.total_tokens), 0)::bigint as tokens,
        count(s.total_tokens) as counted,
        count(*) filter (where s.total_tokens is not null and s.accepted_index is not null) as counted_accepted,
        array[",
    );
    for (place, signal) in Signal::ALL.into_iter().enumerate() {
        query.push(if place == 0 { "count(*) filter (where " } else { ", count(*) filter (where " });
        signal.push(&mut query, scope.limits());
        query.push(")");
    }
    query.push("] as signals from suggestions s");
    scope.push(&mut query, project);
    query.push(scope.grouping(None)).push(" order by is_group, records desc, value");
    let rows: Vec<Row> = query.build_query_as().fetch_all(&mut *snapshot).await?;

    let mut query = QueryBuilder::new(format!("select {},", scope.value()));
    query.push(
        " place.position, count(*) as shown, count(*) filter (where place.position = s.accepted_index) as accepted
        from suggestions s cross join lateral (
            select distinct unnest(s.viewed_indices || s.accepted_index) as position
        ) place",
    );
    scope.push(&mut query, project);
    query.push(" and s.match_type is not null and place.position is not null");
    query.push(scope.grouping(Some("place.position"))).push(" order by is_group, position");
    let positions: Vec<PositionRow> = query.build_query_as().fetch_all(&mut *snapshot).await?;

    let figures = |row: &Row| {
        let own = positions.iter().filter(|place| place.is_group == row.is_group && place.value == row.value);
        let places = own.map(|&PositionRow { position, shown, accepted, .. }| Position {
            position,
            shown,
            accepted,
            rate: rate(accepted, shown),
            interval: wilson(accepted, shown),
        });
        Figures::of(row, places.collect())
    };
    let all = rows.iter().find(|row| !row.is_group).map(&figures);
    let groups = rows
        .iter()
        .filter(|row| row.is_group)
        .map(|row| Group { group: row.value.clone().unwrap_or_default(), figures: figures(row) });
    Ok(Answer {
        groups: scope.group_by.map(|_| groups.collect()),
        figures: all.ok_or_else(|| anyhow::anyhow!("a grand total has no row"))?,
    })
}

/// The versions to compare.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Pair {
    /// A version of the prompt or node.
    #[param(min_length = 1, example = "v1.0")]
    a: String,
    /// The version to compare with.
    #[param(min_length = 1, example = "v1.1")]
    b: String,
}

impl Check for Pair {}

/// Two versions side by side. Differences are those of `a` minus `b`.
#[derive(Serialize, ToSchema)]
#[schema(as = SuggestionComparison)]
pub(super) struct Comparison {
    /// The figures of the version `a`.
    a: Figures,
    /// The figures of the version `b`.
    b: Figures,
    /// The difference of the acceptance rates. Null if one version has no slate to judge.
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
