//! Warnings about conditions that many requests meet, such as a database that is away: one line a minute for each condition,
//! with how many there were, because a line for each request would fill a disk when there is trouble enough.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long it takes from a line about a condition to the next one about it.
const PAUSE: Duration = Duration::from_mins(1);

/// The conditions that were met.
#[derive(Debug, Default)]
struct Conditions(BTreeMap<&'static str, Told>);

/// When a condition was last told of, and how often it was met since then.
#[derive(Debug)]
struct Told {
    at: Instant,
    more: u64,
}

impl Conditions {
    const fn new() -> Self {
        Self(BTreeMap::new())
    }

    /// Notes that a condition was met. Returns how often it was met without being told of, if it is to be told of now.
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

/// Logs a warning about a condition, unless there was one within the last minute. `cause` says more of this time. Returns
/// whether it was logged.
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
