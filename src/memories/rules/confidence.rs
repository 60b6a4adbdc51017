//! The probability that a suggestion is relevant to the turn: a logistic model of the evidence, corrected by the
//! project's verdicts.
//!
//! The confidence of the original design is a weighted sum whose values have no meaning of their own: with perfect
//! similarity and medium importance, it falls below 0.85 in twelve days. It is returned as `score`, and `confidence`
//! is a probability.

mod coefficients;

use super::ranking::Evidence;

/// The half-life of a memory's recency, in days.
const HALF_LIFE: f64 = 30.0;
/// The number of verdicts that a project needs before they correct its confidence, and the number of each kind.
const ENOUGH: f64 = 50.0;
const ENOUGH_OF_EACH: f64 = 10.0;
/// The strength of the prior that nothing needs correcting: the standard deviations of the offset and of the slope.
const PRIOR_OFFSET: f64 = 1.0;
const PRIOR_SLOPE: f64 = 0.25;

/// The weights of the logistic model. Each is the change of the log odds for one unit of its feature.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Coefficients {
    /// The log odds if all features are 0.
    pub intercept: f64,
    /// The weights of the evidence, in the order of its fields.
    pub evidence: [f64; 7],
    /// The weight of recency.
    pub recency: f64,
    /// The weight of importance above 0.5.
    pub importance: f64,
    /// The weight of being about the current folder, which is subtracted if the memory is about another folder.
    pub root: f64,
    /// The weight of earlier verdicts: see [`Verdicts::lean`].
    pub verdicts: f64,
}

/// The coefficients in force.
pub const FITTED: Coefficients = coefficients::COEFFICIENTS;

impl Evidence {
    /// Returns the evidence as numbers, in the order of its fields.
    #[must_use]
    pub fn values(&self) -> [f64; 7] {
        [self.saturation, self.lead, self.grams, self.phrases, self.shared, self.size, self.earlier]
    }
}

/// The properties of a memory besides its text.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Standing {
    /// The memory's recency, from 0 to 1: see [`recency`].
    pub recency: f64,
    /// The memory's importance, from 0 to 1.
    pub importance: f64,
    /// Whether the memory is about the current folder. It is none if the memory or the query has no folder.
    pub same_root: Option<bool>,
    /// The verdicts in other conversations.
    pub verdicts: Verdicts,
}

/// The verdicts on a memory in other conversations.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Verdicts {
    /// The number of conversations in which it was used.
    pub used: i64,
    /// The number of conversations in which it was dismissed.
    pub dismissed: i64,
}

impl Verdicts {
    /// Returns the balance of the verdicts, from -1 (dismissed) to 1 (used).
    #[must_use]
    pub fn lean(self) -> f64 {
        (self.used - self.dismissed) as f64 / (self.used + self.dismissed + 1) as f64
    }
}

/// Returns the recency for an age: 1 today, halved every 30 days.
#[must_use]
pub fn recency(days: f64) -> f64 {
    0.5_f64.powf(days.max(0.0) / HALF_LIFE)
}

impl Coefficients {
    /// Returns the log odds that a memory is relevant to the turn.
    #[must_use]
    pub fn log_odds(&self, evidence: &Evidence, standing: &Standing) -> f64 {
        let of_evidence: f64 =
            self.evidence.iter().zip(evidence.values()).map(|(weight, value)| weight * value).sum();
        let of_root = standing.same_root.map_or(0.0, |same| if same { self.root } else { -self.root });
        self.intercept
            + of_evidence
            + self.recency * standing.recency
            + self.importance * (standing.importance - 0.5)
            + of_root
            + self.verdicts * standing.verdicts.lean()
    }
}

/// Returns the probability of log odds.
#[must_use]
pub fn probability(log_odds: f64) -> f64 {
    1.0 / (1.0 + (-log_odds).exp())
}

/// The correction of a project's log odds: `offset + slope * log_odds`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Correction {
    offset: f64,
    slope: f64,
}

impl Default for Correction {
    fn default() -> Self {
        Self { offset: 0.0, slope: 1.0 }
    }
}

/// Suggestions with similar log odds, and their verdicts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Outcome {
    /// The log odds.
    pub log_odds: f64,
    /// The number of suggestions that were used.
    pub used: f64,
    /// The number of suggestions that were dismissed.
    pub dismissed: f64,
}

impl Correction {
    /// Computes the correction from a project's verdicts. With few verdicts, there is no correction.
    ///
    /// Offset and slope come from a logistic regression of the verdicts on the log odds (Platt scaling), with priors
    /// at 0 and 1.
    #[must_use]
    pub fn learned(outcomes: &[Outcome]) -> Self {
        let total = |of: fn(&Outcome) -> f64| outcomes.iter().map(of).sum::<f64>();
        let (used, dismissed) = (total(|outcome| outcome.used), total(|outcome| outcome.dismissed));
        if used + dismissed < ENOUGH || used.min(dismissed) < ENOUGH_OF_EACH {
            return Self::default();
        }
        let (weak, strong) = (PRIOR_OFFSET.powi(-2), PRIOR_SLOPE.powi(-2));
        let mut at = Self::default();
        for _ in 0..100 {
            // Newton's method: the gradient and the Hessian of the penalized likelihood.
            let mut gradient = [at.offset * weak, (at.slope - 1.0) * strong];
            let mut hessian = [weak, 0.0, strong];
            for outcome in outcomes {
                let p = probability(at.of(outcome.log_odds));
                let count = outcome.used + outcome.dismissed;
                let (off, bend) = (count * p - outcome.used, count * p * (1.0 - p));
                gradient[0] += off;
                gradient[1] += off * outcome.log_odds;
                hessian[0] += bend;
                hessian[1] += bend * outcome.log_odds;
                hessian[2] += bend * outcome.log_odds.powi(2);
            }
            let determinant = hessian[0] * hessian[2] - hessian[1].powi(2);
            let step = [
                (hessian[2] * gradient[0] - hessian[1] * gradient[1]) / determinant,
                (hessian[0] * gradient[1] - hessian[1] * gradient[0]) / determinant,
            ];
            // If the verdicts were very unlikely, the curve is flat and the step too long.
            let step = [step[0].clamp(-1.0, 1.0), step[1].clamp(-0.25, 0.25)];
            at = Self { offset: at.offset - step[0], slope: at.slope - step[1] };
            if step.iter().all(|step| step.abs() < 1e-9) {
                break;
            }
        }
        // The correction must preserve the order of suggestions.
        Self { slope: at.slope.max(0.1), ..at }
    }

    /// Returns the corrected log odds.
    #[must_use]
    pub fn of(self, log_odds: f64) -> f64 {
        self.offset + self.slope * log_odds
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn outcomes(share: impl Fn(f64) -> f64, count: f64) -> Vec<Outcome> {
        (-8..=8)
            .map(|place| {
                let log_odds = f64::from(place) / 2.0;
                let used = share(log_odds) * count;
                Outcome { log_odds, used, dismissed: count - used }
            })
            .collect()
    }

    #[test]
    fn few_verdicts_correct_nothing_and_neither_do_those_that_agree() {
        assert_eq!(Correction::learned(&outcomes(|_| 1.0, 2.0)), Correction::default());
        let same = Correction::learned(&outcomes(probability, 100.0));
        assert!((same.of(1.0) - 1.0).abs() < 0.01 && (same.of(-3.0) + 3.0).abs() < 0.01, "{same:?}");
    }

    #[test]
    fn where_less_is_used_than_was_said_confidence_falls() {
        let half = Correction::learned(&outcomes(|log_odds| probability(log_odds - 1.5), 200.0));
        assert!((half.of(0.0) + 1.5).abs() < 0.1, "{half:?}");
    }

    #[test]
    fn verdicts_that_surprise_are_learned_from_too() {
        let outcomes = [Outcome { log_odds: 6.0, used: 12.0, dismissed: 48.0 }];
        let learned = Correction::learned(&outcomes);
        assert!((-2.0..0.0).contains(&learned.of(6.0)), "{learned:?}");
    }

    #[test]
    fn recency_halves_in_thirty_days() {
        assert_eq!([0.0, 30.0, 60.0, -5.0].map(|days| recency(days).to_string()), ["1", "0.5", "0.25", "1"]);
    }

    #[test]
    fn a_dismissal_weighs_against_a_memory_and_a_use_for_it() {
        let lean = |used, dismissed| Verdicts { used, dismissed }.lean();
        assert!(lean(0, 1) < 0.0 && lean(0, 3) < lean(0, 1) && lean(2, 0) > 0.0 && lean(1, 1).abs() < 1e-9);
    }

    proptest! {
        #[test]
        fn a_correction_keeps_the_order_and_probabilities_are_within_bounds(
            shares in proptest::collection::vec((-6.0..6.0_f64, 0.0..50.0_f64, 0.0..50.0_f64), 1..20),
            a in -9.0..9.0_f64, b in -9.0..9.0_f64,
        ) {
            let outcomes: Vec<_> =
                shares.into_iter().map(|(log_odds, used, dismissed)| Outcome { log_odds, used, dismissed }).collect();
            let learned = Correction::learned(&outcomes);
            prop_assert_eq!(a < b, learned.of(a) < learned.of(b));
            prop_assert!((0.0..=1.0).contains(&probability(learned.of(a))));
        }
    }
}
