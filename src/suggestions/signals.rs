//! Negative signals: which records show that a slate was of no use.

use serde::{Deserialize, Serialize};
use sqlx::{PgPool, Postgres, QueryBuilder};
use utoipa::{IntoParams, ToSchema};

use super::Suggestion;
use super::store::{COLUMNS, read_page};
use crate::error::Result;
use crate::http::page::{Page, PageRequest};
use crate::http::{Check, Checks};

/// A sign that a slate was not useful.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = NegativeSignal)]
pub enum Signal {
    /// The user looked at a suggestion and accepted another one or none.
    ViewedRejected,
    /// The user took a long time and accepted none.
    SlowRejection,
    /// The user moved through the slate many times.
    ManyCycles,
    /// The user accepted a suggestion, but had to change it.
    Partial,
    /// The user returned to a suggestion that they had left.
    CycledBack,
}

impl Signal {
    /// All signals, in the order of their declaration.
    pub const ALL: [Self; 5] =
        [Self::ViewedRejected, Self::SlowRejection, Self::ManyCycles, Self::Partial, Self::CycledBack];

    /// Adds the condition that the finalized record `s` shows the signal.
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

/// The limits from which a rejection is slow and moves are many.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    pub(super) slow_ms: f64,
    pub(super) many_cycles: i32,
}

impl Limits {
    /// Uses the limits given. The defaults are ten seconds and three moves.
    pub(super) fn of(slow_ms: Option<f64>, many_cycles: Option<i32>) -> Self {
        Self { slow_ms: slow_ms.unwrap_or(10_000.0), many_cycles: many_cycles.unwrap_or(3) }
    }
}

/// The filter of a list of records that show a signal.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct SignalFilter {
    /// The signal that the records show.
    #[param(inline, example = "viewed_rejected")]
    signal: Signal,
    /// The time in milliseconds from which a rejection counts as slow. The default is 10,000.
    #[param(minimum = 0)]
    slow_ms: Option<f64>,
    /// The number of moves from which a user counts as having cycled a lot. The default is 3.
    #[param(minimum = 1)]
    many_cycles: Option<i32>,
    /// Only records of this agent session.
    session_name: Option<String>,
    /// Only records of sessions on this server.
    server_name: Option<String>,
    /// Only records whose slate was made by this version of the prompt or node.
    suggestion_node_version: Option<String>,
}

impl Check for SignalFilter {
    fn check(&self, checks: &mut Checks) {
        check_limits(checks, self.slow_ms, self.many_cycles);
    }
}

crate::texts! {
    SignalFilter: suggestion_node_version | session_name, server_name;
}

/// Checks the limits of signals.
pub(super) fn check_limits(checks: &mut Checks, slow_ms: Option<f64>, many_cycles: Option<i32>) {
    checks.require(slow_ms.is_none_or(|slow| slow >= 0.0), "slow_ms", "must not be negative");
    checks.require(many_cycles.is_none_or(|many| many >= 1), "many_cycles", "must be 1 or more");
}

/// Returns one page of the finalized records that show a signal, newest first.
pub(super) async fn list(
    db: &PgPool,
    project: &str,
    filter: SignalFilter,
    page: &PageRequest,
) -> Result<Page<Suggestion>> {
    let SignalFilter { signal, slow_ms, many_cycles, session_name, server_name, suggestion_node_version } =
        filter;
    let mut query = QueryBuilder::new(format!("select {COLUMNS} from suggestions s where s.project = "));
    query.push_bind(project.to_owned()).push(" and s.state = 'finalized' and ");
    signal.push(&mut query, Limits::of(slow_ms, many_cycles));
    for (column, value) in [
        ("session_name", session_name),
        ("server_name", server_name),
        ("suggestion_node_version", suggestion_node_version),
    ] {
        if let Some(value) = value {
            query.push(format_args!(" and s.{column} = ")).push_bind(value);
        }
    }
    read_page(db, project, query, page).await
}
