//! Warnings about conditions that many requests meet, such as an unreachable database. Each condition is logged once
//! a minute with its number of occurrences, because a line for each request could fill the disk.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The time between two lines about the same condition.
const PAUSE: Duration = Duration::from_mins(1);

/// The conditions that have occurred.
#[derive(Debug, Default)]
struct Conditions(BTreeMap<&'static str, Told>);

/// The time at which a condition was last logged, and how often it has occurred since then.
#[derive(Debug)]
struct Told {
    at: Instant,
    more: u64,
}

impl Conditions {
    const fn new() -> Self {
        Self(BTreeMap::new())
    }

    /// Records that a condition has occurred. If it is to be logged now, returns how often it has occurred without
    /// being logged.
    fn meet(&mut self, condition: &'static str, now: Instant) -> Option<u64> {
        match self.0.get_mut(condition) {
            Some(told) if now.saturating_duration_since(told.at) < PAUSE => {
                told.more += 1;
                None
            }
            told => {
                let more = told.map_or(0, |told| told.more);
                self.0.insert(condition, Told { at: now, more: 0 });
                Some(more)
            }
        }
    }
}

/// Logs a warning about a condition, unless there was one within the last minute. `cause` describes this occurrence.
/// Returns whether the warning was logged.
pub fn warn(condition: &'static str, cause: impl Display) -> bool {
    static CONDITIONS: Mutex<Conditions> = Mutex::new(Conditions::new());
    let more = CONDITIONS.lock().unwrap_or_else(PoisonError::into_inner).meet(condition, Instant::now());
    if let Some(not_logged) = more {
        tracing::warn!(%cause, not_logged, "{condition}");
    }
    more.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_is_told_of_once_a_minute_with_how_often_it_was_met() {
        let (mut conditions, begun) = (Conditions::default(), Instant::now());
        let mut meet = |condition, seconds| conditions.meet(condition, begun + Duration::from_secs(seconds));
        assert_eq!(meet("full", 0), Some(0));
        assert!((1..59).all(|second| meet("full", second).is_none()));
        assert_eq!(meet("away", 30), Some(0), "each condition is told of by itself");
        assert_eq!(meet("full", 60), Some(58));
        assert_eq!(meet("full", 61), None);
        assert_eq!(meet("full", 200), Some(1));
    }
}
