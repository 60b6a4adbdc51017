//! Figures of suggestion records, and how they follow from sums.

use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::signals::Signal;
use crate::statistics::{rate, wilson};

/// A part of a whole. The share is null where there is nothing to divide by.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = SuggestionShare)]
pub(super) struct Share {
    /// How many.
    pub(super) count: i64,
    /// Their share.
    pub(super) share: Option<f64>,
    /// Its 95 % Wilson interval.
    pub(super) interval: Option<[f64; 2]>,
}

impl Share {
    fn of(count: i64, all: i64) -> Self {
        Self { count, share: rate(count, all), interval: wilson(count, all) }
    }
}

/// How inputs relate to slates.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = SuggestionSharesByMatchType)]
pub(super) struct ByMatchType {
    pub(super) exact: Share,
    pub(super) partial: Share,
    pub(super) prefix: Share,
    pub(super) none: Share,
    /// Records without the text to tell from; they are in no share.
    pub(super) unknown: i64,
}

/// What becomes of suggestions in one place of the slate.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = SuggestionPosition)]
pub(super) struct Position {
    /// The place, from 0.
    pub(super) position: i32,
    /// Slates of which it was viewed or taken.
    pub(super) shown: i64,
    /// Of these, those of which it was taken.
    pub(super) accepted: i64,
    /// Their share.
    pub(super) rate: Option<f64>,
    /// Its 95 % Wilson interval.
    pub(super) interval: Option<[f64; 2]>,
}

/// How long users think, in milliseconds, of the records that tell.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = SuggestionThinkTime)]
pub(super) struct ThinkTime {
    /// How many tell.
    pub(super) count: i64,
    pub(super) mean_ms: Option<f64>,
    pub(super) p50_ms: Option<f64>,
    pub(super) p90_ms: Option<f64>,
    pub(super) p95_ms: Option<f64>,
    pub(super) p99_ms: Option<f64>,
}

/// How users go through slates.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = SuggestionCycles)]
pub(super) struct Cycles {
    /// Mean number of moves.
    pub(super) mean: Option<f64>,
    /// The most moves.
    pub(super) most: Option<i32>,
    /// Records with any.
    pub(super) browsed: Share,
}

/// What slates cost.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = SuggestionTokens)]
pub(super) struct Tokens {
    /// Sum over the records that tell.
    pub(super) total: i64,
    /// How many tell.
    pub(super) records: i64,
    /// That sum for each of them of which something was taken.
    pub(super) per_accepted: Option<f64>,
}

/// Signs that a slate was no good, and how many records show each.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = NegativeSignals)]
pub(super) struct Signals {
    pub(super) viewed_rejected: i64,
    pub(super) slow_rejection: i64,
    pub(super) many_cycles: i64,
    pub(super) partial: i64,
    pub(super) cycled_back: i64,
}

/// Figures of finalized records. Those discarded or pending are in none.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = SuggestionFigures)]
pub(super) struct Figures {
    /// How many there are.
    pub(super) records: i64,
    /// Of these, those whose slate had no suggestion; they are in no share.
    pub(super) empty: i64,
    /// Of slates with suggestions, those of which one was taken: exactly, changed, or in part.
    pub(super) accepted: i64,
    /// Their share.
    pub(super) acceptance_rate: Option<f64>,
    /// Its 95 % Wilson interval.
    pub(super) acceptance_rate_interval: Option<[f64; 2]>,
    /// Of which nothing was taken.
    pub(super) ignored: Share,
    pub(super) by_match_type: ByMatchType,
    pub(super) by_position: Vec<Position>,
    pub(super) think_time: ThinkTime,
    pub(super) cycles: Cycles,
    pub(super) tokens: Tokens,
    pub(super) negative_signals: Signals,
}

/// Figures of the records with one value.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = SuggestionFiguresGroup)]
pub(super) struct Group {
    /// The value of what is grouped by; null where records have none.
    pub(super) group: Value,
    #[serde(flatten)]
    pub(super) figures: Figures,
}

/// Figures of all records, and of each group.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = SuggestionAnalytics)]
pub(super) struct Answer {
    #[serde(flatten)]
    pub(super) figures: Figures,
    /// With `group_by`: the largest group first.
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
        let percentile = |place: usize| row.percentiles.as_ref()?.get(place).copied();
        let share = |count| Share::of(count, row.judged);
        let signal = |signal: Signal| {
            let place = Signal::ALL.iter().position(|other| *other == signal);
            place.and_then(|place| row.signals.get(place)).copied().unwrap_or(0)
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
