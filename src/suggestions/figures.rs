//! Figures of suggestion records, and how they are computed from sums.

use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::signals::Signal;
use crate::statistics::{rate, wilson};

/// A part of a whole. The share is null if the whole is empty.
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

/// The number of records for each way in which the submitted text matched the slate.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = SuggestionSharesByMatchType)]
pub(super) struct ByMatchType {
    pub(super) exact: Share,
    pub(super) partial: Share,
    pub(super) prefix: Share,
    pub(super) none: Share,
    /// The number of records without texts to compare. They are not included in any share.
    pub(super) unknown: i64,
}

/// The outcomes of suggestions at one position of the slate.
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

impl Position {
    pub(super) fn of(&PositionRow { position, shown, accepted, .. }: &PositionRow) -> Self {
        Self { position, shown, accepted, rate: rate(accepted, shown), interval: wilson(accepted, shown) }
    }
}

/// How long users take until they submit, in milliseconds, over the records with known times.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = SuggestionThinkTime)]
pub(super) struct ThinkTime {
    /// The number of records with known times.
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
    /// The maximum number of moves.
    pub(super) most: Option<i32>,
    /// The number of records with at least one move.
    pub(super) browsed: Share,
}

/// The number of tokens that slates cost: in total, for prompts, and for responses.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = SuggestionTokens)]
pub(super) struct Tokens {
    /// The tokens of prompts and responses together.
    #[serde(flatten)]
    pub(super) both: Cost,
    /// The tokens of prompts.
    pub(super) prompt: Cost,
    /// The tokens of responses.
    pub(super) completion: Cost,
}

/// A number of tokens.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = SuggestionCost)]
pub(super) struct Cost {
    /// The total number of tokens of these records.
    pub(super) total: i64,
    /// The number of records with a known number of tokens.
    pub(super) records: i64,
    /// `total`, divided by the number of these records whose slate was accepted.
    pub(super) per_accepted: Option<f64>,
}

impl Cost {
    /// Takes the sum, the records that have a number, and those of them that were accepted, which stand at `place`.
    fn of(costs: &[i64], place: usize) -> Self {
        let number = |index: usize| costs.get(place * 3 + index).copied().unwrap_or(0);
        Self { total: number(0), records: number(1), per_accepted: rate(number(0), number(2)) }
    }
}

/// The number of records that show each negative signal.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = NegativeSignals)]
pub(super) struct Signals {
    pub(super) viewed_rejected: i64,
    pub(super) slow_rejection: i64,
    pub(super) many_cycles: i64,
    pub(super) partial: i64,
    pub(super) cycled_back: i64,
}

/// Statistics of finalized records. Discarded records are not included, and pending records count only as fetches.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = SuggestionFigures)]
pub(super) struct Figures {
    /// The number of fetches of suggestions, which is the number of finalized and pending records.
    pub(super) fetches: i64,
    /// The number of fetches that failed.
    pub(super) failed: Share,
    /// The number of finalized records.
    pub(super) records: i64,
    /// The number of records with an empty slate. They are not included in any share.
    pub(super) empty: i64,
    /// The number of slates of which a suggestion was accepted exactly, in part, or with changes.
    pub(super) accepted: i64,
    /// The share of `accepted` among the slates that can be judged.
    pub(super) acceptance_rate: Option<f64>,
    /// The 95 % Wilson interval of `acceptance_rate`.
    pub(super) acceptance_rate_interval: Option<[f64; 2]>,
    /// The number of slates of which no suggestion was accepted.
    pub(super) ignored: Share,
    pub(super) by_match_type: ByMatchType,
    /// The outcomes at the first 50 positions.
    pub(super) by_position: Vec<Position>,
    pub(super) think_time: ThinkTime,
    pub(super) cycles: Cycles,
    pub(super) tokens: Tokens,
    pub(super) negative_signals: Signals,
}

/// The statistics of one group of records.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = SuggestionFiguresGroup)]
pub(super) struct Group {
    /// The value of the property that records are grouped by. Null for records without a value.
    pub(super) group: Value,
    #[serde(flatten)]
    pub(super) figures: Figures,
}

/// The statistics of all records, and of each group.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = SuggestionAnalytics)]
pub(super) struct Answer {
    #[serde(flatten)]
    pub(super) figures: Figures,
    /// With `group_by`, the groups with finalized records or failed fetches, the largest first, at most 1,000.
    pub(super) groups: Option<Vec<Group>>,
    /// With `group_by`, the number of groups that are not listed because there are more than 1,000.
    pub(super) groups_left_out: Option<i64>,
}

#[derive(sqlx::FromRow)]
pub(super) struct Row {
    pub(super) value: Option<Value>,
    pub(super) is_group: bool,
    /// The number of rows, that is one for all records and one for each group.
    pub(super) rows: i64,
    pub(super) fetches: i64,
    pub(super) failed: i64,
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
    /// For each kind of tokens three numbers, as [`Cost::of`] takes them.
    pub(super) costs: Vec<i64>,
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
            fetches: row.fetches,
            failed: Share::of(row.failed, row.fetches),
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
                both: Cost::of(&row.costs, 0),
                prompt: Cost::of(&row.costs, 1),
                completion: Cost::of(&row.costs, 2),
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
