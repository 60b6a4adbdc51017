//! A model's quotas: requests and tokens per minute, and tokens per day. What calls use is recorded; what sends
//! in progress use is estimated.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A quota of a model and its use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = QuotaUse)]
pub struct Use {
    /// The maximum number of requests or tokens in the period.
    pub limit: i64,
    /// The number of requests or tokens used in the last period. Sends in progress count with their estimated size.
    pub used: i64,
    /// The number of seconds until the oldest use leaves the period. For a send that would exceed the quota, the
    /// number of seconds until it no longer would. Zero if nothing is used.
    pub resets_in_s: i64,
}

/// The quotas of a model by their names: `rpm`, `tpm` and `tpd`.
pub type Quota = BTreeMap<Name, Use>;

/// The name of a quota.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Name {
    /// Requests per minute.
    Rpm,
    /// Tokens per minute.
    Tpm,
    /// Tokens per day.
    Tpd,
}

impl Name {
    /// Returns the period of the quota in seconds.
    #[must_use]
    pub fn period(self) -> i64 {
        match self {
            Self::Rpm | Self::Tpm => 60,
            Self::Tpd => 86_400,
        }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Rpm => "requests per minute",
            Self::Tpm => "tokens per minute",
            Self::Tpd => "tokens per day",
        })
    }
}

/// Something that was used: how many seconds ago, and how much of the quota it took.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spent {
    /// How many seconds ago it was.
    pub age: i64,
    /// The requests or tokens that it took.
    pub amount: i64,
}

/// Returns how much of a quota is used before a send that needs `needed` of it. `spent` is what the period has, the oldest
/// first. The send breaks the quota if the second value is true.
#[must_use]
pub fn measure(name: Name, limit: i64, spent: &[Spent], needed: i64) -> (Use, bool) {
    let period = name.period();
    let used: i64 = spent.iter().map(|spent| spent.amount).sum();
    let breaks = used.saturating_add(needed) > limit;
    let mut left = used;
    let mut resets_in_s = spent.first().map_or(0, |oldest| (period - oldest.age).max(1));
    if breaks {
        resets_in_s = period;
        for spent in spent {
            left -= spent.amount;
            if left.saturating_add(needed) <= limit {
                resets_in_s = (period - spent.age).max(1);
                break;
            }
        }
    }
    (Use { limit, used, resets_in_s }, breaks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_send_waits_until_enough_of_what_was_used_is_over() {
        let spent = [(50, 400), (20, 300), (5, 300)].map(|(age, amount)| Spent { age, amount });
        let measured = |needed| measure(Name::Tpm, 1_000, &spent, needed);
        assert_eq!(measured(0), (Use { limit: 1_000, used: 1_000, resets_in_s: 10 }, false));
        assert_eq!(measured(400), (Use { limit: 1_000, used: 1_000, resets_in_s: 10 }, true));
        assert_eq!(measured(401), (Use { limit: 1_000, used: 1_000, resets_in_s: 40 }, true));
        assert_eq!(measured(1_000), (Use { limit: 1_000, used: 1_000, resets_in_s: 55 }, true));
        // A send that needs more than the whole quota never fits. The period is the longest wait that can be given.
        assert_eq!(measured(1_001).0.resets_in_s, 60);
    }

    #[test]
    fn a_quota_that_is_just_filled_is_not_broken() {
        assert_eq!(measure(Name::Rpm, 1, &[], 1), (Use { limit: 1, used: 0, resets_in_s: 0 }, false));
        let spent = [Spent { age: 3, amount: 1 }];
        assert_eq!(measure(Name::Rpm, 1, &spent, 1), (Use { limit: 1, used: 1, resets_in_s: 57 }, true));
    }
}
