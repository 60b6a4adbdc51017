//! Which suggestions a user looked at: turns moves, as clients send them, into views with durations.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::types::{Timestamp, is_unix};

/// The direction of a step through a slate. Steps wrap around at both ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = ViewDirection)]
pub enum Direction {
    /// The step leads to the next suggestion, and from the last one to the first.
    Next,
    /// The step leads to the previous suggestion, and from the first one to the last.
    Prev,
}

/// A move to a suggestion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    /// The user moved to the suggestion with this index.
    At(usize),
    /// The user moved on from the suggestion shown so far.
    Go(Direction),
}

/// A view of a suggestion.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[schema(as = SuggestionView)]
pub struct View {
    /// The index of the suggestion, from 0.
    #[schema(minimum = 0)]
    pub index: i32,
    /// When the suggestion was shown, if the client gave a time.
    pub at: Option<Timestamp>,
    /// How long the suggestion was shown, in milliseconds. Null if the times are not known.
    pub dwell_ms: Option<f64>,
}

impl View {
    /// Makes a view of unknown duration.
    #[must_use]
    pub fn new(index: i32, at: Option<Timestamp>) -> Self {
        Self { index, at, dwell_ms: None }
    }
}

/// Returns the views of a slate of `count` suggestions: the first one without a move, then one for each move
/// in the order given. An empty slate has no views.
pub fn resolve(count: usize, looks: impl IntoIterator<Item = (Look, Option<Timestamp>)>) -> Vec<View> {
    if count == 0 {
        return Vec::new();
    }
    let mut current = 0;
    let moves = looks.into_iter().map(|(look, at)| {
        current = match look {
            Look::At(index) => index,
            Look::Go(Direction::Next) => (current + 1) % count,
            Look::Go(Direction::Prev) => (current + count - 1) % count,
        };
        (current, at)
    });
    let views = std::iter::once((0, None)).chain(moves);
    views.map(|(index, at)| View::new(i32::try_from(index).unwrap_or(i32::MAX), at)).collect()
}

/// Sets the duration of each view, which lasts until the next one begins, and the last until the user
/// submits. The first one begins when the slate is shown. `fetch_end` and `submit` are seconds of the
/// client's clock.
pub fn measure(views: &mut [View], fetch_end: Option<f64>, submit: Option<f64>) {
    let came_up = |index: usize, view: &View| {
        let at = view.at.map(|at| at.micros() as f64 / 1e6);
        if index == 0 { at.or(fetch_end) } else { at }
    };
    let mut end = submit;
    for (index, view) in views.iter_mut().enumerate().rev() {
        let begin = came_up(index, view);
        view.dwell_ms = begin.zip(end).and_then(|(begin, end)| elapsed_ms(begin, end));
        end = begin;
    }
}

/// Returns the milliseconds between two readings of a clock in seconds, to the microsecond. Returns none if
/// the second is earlier, or if only one of them is Unix time.
#[must_use]
pub fn elapsed_ms(begin: f64, end: f64) -> Option<f64> {
    let same_clock = is_unix(begin) == is_unix(end);
    (same_clock && begin <= end)
        .then(|| ((end - begin) * 1e6).round() / 1e3)
        .filter(|elapsed| is_duration(*elapsed))
}

/// The maximum duration, in milliseconds. Postgres cannot average durations that are much longer.
const LONGEST_MS: f64 = i32::MAX as f64;

/// Returns whether this is a duration in milliseconds.
pub fn is_duration(ms: f64) -> bool {
    (0.0..=LONGEST_MS).contains(&ms)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn seen(count: usize, looks: &[Look]) -> Vec<i32> {
        resolve(count, looks.iter().map(|&look| (look, None))).iter().map(|view| view.index).collect()
    }

    #[test]
    fn cycling_goes_round_and_keeps_order_and_repetitions() {
        use Direction::{Next, Prev};
        let go = |directions: &[Direction]| directions.iter().map(|&way| Look::Go(way)).collect::<Vec<_>>();
        assert_eq!(seen(3, &go(&[Next, Next, Prev, Prev])), [0, 1, 2, 1, 0]);
        assert_eq!(seen(3, &go(&[Prev, Next, Next])), [0, 2, 0, 1]);
        assert_eq!(seen(1, &go(&[Next, Prev])), [0, 0, 0]);
        assert_eq!(seen(3, &[Look::At(2), Look::Go(Next), Look::At(0)]), [0, 2, 0, 0]);
        assert_eq!(seen(0, &go(&[Next])), [0; 0]);
    }

    #[test]
    fn each_view_lasts_until_the_next_and_the_last_until_the_submit() {
        let at = |seconds: f64| format!("{seconds}").parse().ok();
        let mut views = vec![
            View::new(0, None),
            View::new(1, at(1_704_067_201.5)),
            View::new(2, at(1_704_067_202.0)),
            View::new(0, None),
            View::new(1, at(1_704_067_203.0)),
        ];
        measure(&mut views, Some(1_704_067_200.25), Some(1_704_067_203.1));
        let dwell: Vec<_> = views.iter().map(|view| view.dwell_ms).collect();
        assert_eq!(dwell, [Some(1250.0), Some(500.0), None, None, Some(100.0)]);
        measure(&mut views, Some(5_000.0), Some(5_003.0));
        let dwell: Vec<_> = views.iter().map(|view| view.dwell_ms).collect();
        assert_eq!(dwell, [None, Some(500.0), None, None, None]);
    }

    proptest! {
        #[test]
        fn every_move_is_seen_once_and_within_the_slate(
            count in 1..6_usize, moves in proptest::collection::vec((any::<bool>(), any::<bool>(), 0..100_usize), 0..20),
        ) {
            let looks: Vec<_> = moves.iter().map(|&(goes, next, index)| match (goes, next) {
                (false, _) => Look::At(index % count),
                (true, next) => Look::Go(if next { Direction::Next } else { Direction::Prev }),
            }).collect();
            let seen = seen(count, &looks);
            prop_assert_eq!(seen.len(), looks.len() + 1);
            prop_assert!(seen.iter().all(|&index| usize::try_from(index).is_ok_and(|index| index < count)));
        }

        #[test]
        fn no_time_is_negative(begin in any::<f64>(), end in any::<f64>()) {
            prop_assert!(elapsed_ms(begin, end).is_none_or(|elapsed| elapsed >= 0.0));
        }
    }
}
