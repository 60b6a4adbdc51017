//! Signals that a slate was no good: which records show them.

use serde::{Deserialize, Serialize};
use sqlx::{PgPool, Postgres, QueryBuilder};
use utoipa::{IntoParams, ToSchema};

use super::Suggestion;
use super::store::{COLUMNS, read_page};
use crate::error::Result;
use crate::http::page::{Page, PageRequest};
use crate::http::{Check, Checks};

/// A sign that a slate was no good.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = NegativeSignal)]
pub enum Signal {
    /// A suggestion was looked at, and another one or none was taken.
    ViewedRejected,
    /// The user thought for long, and took none.
    SlowRejection,
    /// They went through the slate many times.
    ManyCycles,
    /// They took one, and had to change it.
    Partial,
    /// They came back to one that they had left.
    CycledBack,
}

impl Signal {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::ViewedRejected, Self::SlowRejection, Self::ManyCycles, Self::Partial, Self::CycledBack];

    /// Adds the condition that the finalized record `s` shows it.
    pub(super) fn push(self, query: &mut QueryBuilder<Postgres>, limits: Limits) {
        match self {
            Self::ViewedRejected => {
                query.push(
                    "(s.match_type is not null and not s.viewed_indices <@ array_remove(array[s.accepted_index], null))",
                );
            }
            Self::SlowRejection => {
                query
                    .push("(s.match_type = 'none' and s.time_to_action_ms >= ")
                    .push_bind(limits.slow_ms)
                    .push(")");
            }
            Self::ManyCycles => {
                query.push("(s.cycle_count >= ").push_bind(limits.many_cycles).push(")");
            }
            Self::Partial => {
                query.push("(s.match_type = 'partial')");
            }
            Self::CycledBack => {
                query.push("s.cycled_back");
            }
        }
    }
}

/// From when on something is slow or many.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    pub(super) slow_ms: f64,
    pub(super) many_cycles: i32,
}

impl Limits {
    /// As given, else ten seconds and three moves.
    pub(super) fn of(slow_ms: Option<f64>, many_cycles: Option<i32>) -> Self {
        Self { slow_ms: slow_ms.unwrap_or(10_000.0), many_cycles: many_cycles.unwrap_or(3) }
    }
}

/// Which records are listed for a sign.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct SignalFilter {
    /// The sign.
    #[param(inline, example = "viewed_rejected")]
    signal: Signal,
    /// From how many milliseconds on thinking is long; 10 000 if not given.
    #[param(minimum = 0)]
    slow_ms: Option<f64>,
    /// From how many moves on they are many; 3 if not given.
    #[param(minimum = 1)]
    many_cycles: Option<i32>,
    /// The agent session.
    session_name: Option<String>,
    /// Version of the prompt or node.
    suggestion_node_version: Option<String>,
}

impl Check for SignalFilter {
    fn check(&self, checks: &mut Checks) {
        check_limits(checks, self.slow_ms, self.many_cycles);
    }
}

/// Checks what [`Limits`] are made of.
pub(super) fn check_limits(checks: &mut Checks, slow_ms: Option<f64>, many_cycles: Option<i32>) {
    checks.require(slow_ms.is_none_or(|slow| slow >= 0.0), "slow_ms", "must not be negative");
    checks.require(many_cycles.is_none_or(|many| many >= 1), "many_cycles", "must be 1 or more");
}

/// One page of the finalized records that show a sign, newest first.
pub(super) async fn list(
    db: &PgPool,
    project: &str,
    filter: SignalFilter,
    page: &PageRequest,
) -> Result<Page<Suggestion>> {
    let SignalFilter { signal, slow_ms, many_cycles, session_name, suggestion_node_version } = filter;
    let mut query = QueryBuilder::new(format!("select {COLUMNS} from suggestions s where s.project = "));
    query.push_bind(project.to_owned()).push(" and s.state = 'finalized' and ");
    signal.push(&mut query, Limits::of(slow_ms, many_cycles));
    for (column, value) in
        [("session_name", session_name), ("suggestion_node_version", suggestion_node_version)]
    {
        if let Some(value) = value {
            query.push(format_args!(" and s.{column} = ")).push_bind(value);
        }
    }
    read_page(db, project, query, page).await
}
