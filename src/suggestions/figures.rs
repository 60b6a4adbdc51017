//! Figures of suggestion records, and how they are computed from sums.

use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::signals::Signal;
use crate::statistics::{rate, wilson};

/// A part of a whole. The share is null where there is nothing to divide by.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = SuggestionShare)]
pub(super) struct Share {
    /// The number of records in the part.
    pub(super) count: i64,
    /// The share of the part in the whole.
    pub(super) share: Option<f64>,
    /// The 95 % Wilson interval of the share.
    pub(super) interval: Option<[f64; 2]>,
}

impl Share {
    fn of(count: i64, all: i64) -> Self {
        Self { count, share: rate(count, all), interval: wilson(count, all) }
    }
}

/// How the texts submitted relate to the slates, in numbers of records.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = SuggestionSharesByMatchType)]
pub(super) struct ByMatchType {
    pub(super) exact: Share,
    pub(super) partial: Share,
    pub(super) prefix: Share,
    pub(super) none: Share,
    /// Records without the texts to compare. They are in no share.
    pub(super) unknown: i64,
}

/// What becomes of the suggestions at one position of the slate.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = SuggestionPosition)]
pub(super) struct Position {
    /// The position in the slate, from 0.
    pub(super) position: i32,
    /// The number of slates whose suggestion at this position was viewed or accepted.
    pub(super) shown: i64,
    /// The number of slates whose suggestion at this position was accepted.
    pub(super) accepted: i64,
    /// The share of `accepted` in `shown`.
    pub(super) rate: Option<f64>,
    /// The 95 % Wilson interval of `rate`.
    pub(super) interval: Option<[f64; 2]>,
}

/// How long users take until they submit, in milliseconds, in the records that have the times.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = SuggestionThinkTime)]
pub(super) struct ThinkTime {
    /// The number of records that have the times.
    pub(super) count: i64,
    pub(super) mean_ms: Option<f64>,
    pub(super) p50_ms: Option<f64>,
    pub(super) p90_ms: Option<f64>,
    pub(super) p95_ms: Option<f64>,
    pub(super) p99_ms: Option<f64>,
}

/// How often users move through slates.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = SuggestionCycles)]
pub(super) struct Cycles {
    /// The mean number of moves.
    pub(super) mean: Option<f64>,
    /// The greatest number of moves.
    pub(super) most: Option<i32>,
    /// The records with at least one move.
    pub(super) browsed: Share,
}

/// How many tokens slates cost.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = SuggestionTokens)]
pub(super) struct Tokens {
    /// The number of tokens of all records that have one.
    pub(super) total: i64,
    /// The number of records that have a number of tokens.
    pub(super) records: i64,
    /// `total`, divided by the number of these records whose slate was accepted.
    pub(super) per_accepted: Option<f64>,
}

/// Negative signals, and how many records show each.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = NegativeSignals)]
pub(super) struct Signals {
    pub(super) viewed_rejected: i64,
    pub(super) slow_rejection: i64,
    pub(super) many_cycles: i64,
    pub(super) partial: i64,
    pub(super) cycled_back: i64,
}

/// Figures of finalized records. Pending and discarded records are in none.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = SuggestionFigures)]
pub(super) struct Figures {
    /// The number of finalized records.
    pub(super) records: i64,
    /// The number of records whose slate had no suggestion. They are in no share.
    pub(super) empty: i64,
    /// The number of slates of which a suggestion was accepted: exactly, changed, or in part.
    pub(super) accepted: i64,
    /// The share of `accepted` in the slates that can be judged.
    pub(super) acceptance_rate: Option<f64>,
    /// The 95 % Wilson interval of `acceptance_rate`.
    pub(super) acceptance_rate_interval: Option<[f64; 2]>,
    /// The slates of which no suggestion was accepted.
    pub(super) ignored: Share,
    pub(super) by_match_type: ByMatchType,
    pub(super) by_position: Vec<Position>,
    pub(super) think_time: ThinkTime,
    pub(super) cycles: Cycles,
    pub(super) tokens: Tokens,
    pub(super) negative_signals: Signals,
}

/// The figures of one group of records.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = SuggestionFiguresGroup)]
pub(super) struct Group {
    /// The value of the property that records are grouped by. Null where records have none.
    pub(super) group: Value,
    #[serde(flatten)]
    pub(super) figures: Figures,
}

/// The figures of all records, and of each group.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = SuggestionAnalytics)]
pub(super) struct Answer {
    #[serde(flatten)]
    pub(super) figures: Figures,
    /// With `group_by`, the groups, the largest first.
    pub(super) groups: Option<Vec<Group>>,
}

#[derive(sqlx::FromRow)]
pub(super) struct Row {
    pub(super) value: Option<Value>,
    pub(super) is_group: bool,
    pub(super) records: i64,
    pub(super) offered: i64,
    pub(super) judged: i64,
    pub(super) exact: i64,
    pub(super) partial: i64,
    pub(super) prefix: i64,
    pub(super) none: i64,
    pub(super) timed: i64,
    pub(super) mean_ms: Option<f64>,
    pub(super) percentiles: Option<Vec<f64>>,
    pub(super) mean_cycles: Option<f64>,
    pub(super) most_cycles: Option<i32>,
    pub(super) browsed: i64,
    pub(super) tokens: i64,
    pub(super) counted: i64,
    pub(super) counted_accepted: i64,
    pub(super) signals: Vec<i64>,
}

#[derive(sqlx::FromRow)]
pub(super) struct PositionRow {
    pub(super) value: Option<Value>,
    pub(super) is_group: bool,
    pub(super) position: i32,
    pub(super) shown: i64,
    pub(super) accepted: i64,
}

impl Figures {
    pub(super) fn of(row: &Row, by_position: Vec<Position>) -> Self {
        let accepted = row.exact + row.partial + row.prefix;
        let percentile = |index: usize| row.percentiles.as_ref()?.get(index).copied();
        let share = |count| Share::of(count, row.judged);
        let signal = |signal: Signal| {
            let index = Signal::ALL.iter().position(|other| *other == signal);
            index.and_then(|index| row.signals.get(index)).copied().unwrap_or(0)
        };
        Self {
            records: row.records,
            empty: row.records - row.offered,
            accepted,
            acceptance_rate: rate(accepted, row.judged),
            acceptance_rate_interval: wilson(accepted, row.judged),
            ignored: share(row.none),
            by_match_type: ByMatchType {
                exact: share(row.exact),
                partial: share(row.partial),
                prefix: share(row.prefix),
                none: share(row.none),
                unknown: row.offered - row.judged,
            },
            by_position,
            think_time: ThinkTime {
                count: row.timed,
                mean_ms: row.mean_ms,
                p50_ms: percentile(0),
                p90_ms: percentile(1),
                p95_ms: percentile(2),
                p99_ms: percentile(3),
            },
            cycles: Cycles {
                mean: row.mean_cycles,
                most: row.most_cycles,
                browsed: Share::of(row.browsed, row.offered),
            },
            tokens: Tokens {
                total: row.tokens,
                records: row.counted,
                per_accepted: rate(row.tokens, row.counted_accepted),
            },
            negative_signals: Signals {
                viewed_rejected: signal(Signal::ViewedRejected),
                slow_rejection: signal(Signal::SlowRejection),
                many_cycles: signal(Signal::ManyCycles),
                partial: signal(Signal::Partial),
                cycled_back: signal(Signal::CycledBack),
            },
        }
    }
}
