//! What a user looked at: moves as they were sent become suggestions seen, in order, each for a while.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::types::{Timestamp, is_unix};

/// Which way a user went through a slate; at its end it begins anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = ViewDirection)]
pub enum Direction {
    /// To the next suggestion, from the last one to the first.
    Next,
    /// To the one before, from the first one to the last.
    Prev,
}

/// A move to a suggestion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    /// To this one.
    At(usize),
    /// From the one shown so far.
    Go(Direction),
}

/// A suggestion that was looked at.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[schema(as = SuggestionView)]
pub struct View {
    /// Which one.
    #[schema(minimum = 0)]
    pub index: i32,
    /// When it came up, where the client said so.
    pub at: Option<Timestamp>,
    /// How long it was shown, in milliseconds; null where the times do not tell.
    pub dwell_ms: Option<f64>,
}

impl View {
    /// A look whose duration is not known.
    #[must_use]
    pub fn new(index: i32, at: Option<Timestamp>) -> Self {
        Self { index, at, dwell_ms: None }
    }
}

/// What was seen of a slate of `count` suggestions: the first one by itself, then each move in the order given. Of an
/// empty slate nothing can be seen.
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

/// Fills in how long each was shown: until the next one came up, the last one until the submit. The first came up when
/// the slate did. `fetch_end` and `submit` are seconds of the client's clock.
pub fn measure(views: &mut [View], fetch_end: Option<f64>, submit: Option<f64>) {
    let came_up = |place: usize, view: &View| {
        let at = view.at.map(|at| at.micros() as f64 / 1e6);
        if place == 0 { at.or(fetch_end) } else { at }
    };
    let mut end = submit;
    for (place, view) in views.iter_mut().enumerate().rev() {
        let begin = came_up(place, view);
        view.dwell_ms = begin.zip(end).and_then(|(begin, end)| elapsed_ms(begin, end));
        end = begin;
    }
}

/// Milliseconds between two readings of a clock, in seconds, to the microsecond; none where the second is before the
/// first, or where one is Unix time and the other is not.
#[must_use]
pub fn elapsed_ms(begin: f64, end: f64) -> Option<f64> {
    let same_clock = is_unix(begin) == is_unix(end);
    (same_clock && begin <= end)
        .then(|| ((end - begin) * 1e6).round() / 1e3)
        .filter(|elapsed| elapsed.is_finite())
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
