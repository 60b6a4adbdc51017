//! How likely a suggestion belongs to the turn: a logistic model of the evidence, corrected by what a project's people used and
//! dismissed.
//!
//! The seed's confidence is a weighted sum, of which no value means anything by itself: with a perfect likeness and middling
//! importance it falls under 0.85 in twelve days. It is kept as `score`; `confidence` is a probability.

mod coefficients;

use super::ranking::Evidence;

/// The days after which a memory is half as recent.
const HALF_LIFE: f64 = 30.0;
/// How many verdicts a project needs before they correct its confidence, and how many of either kind.
const ENOUGH: f64 = 50.0;
const ENOUGH_OF_EACH: f64 = 10.0;
/// How sure it is beforehand that nothing is to be corrected: the standard deviations of the offset and of the slope.
const PRIOR_OFFSET: f64 = 1.0;
const PRIOR_SLOPE: f64 = 0.25;

/// The weights of the logistic model, each the change of the log odds from one unit of what it is of.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Coefficients {
    /// The log odds where everything else is 0.
    pub intercept: f64,
    /// Those of the evidence, in the order of its fields.
    pub evidence: [f64; 7],
    /// That of recency, 0 to 1.
    pub recency: f64,
    /// That of importance, 0 to 1, above 0.5.
    pub importance: f64,
    /// That of being about the folder at hand; it is taken away where the memory is about another one.
    pub root: f64,
    /// That of earlier verdicts: see [`Verdicts::lean`].
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

/// What is known of a memory besides its text.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Standing {
    /// How recent it is, 0 to 1: see [`recency`].
    pub recency: f64,
    /// How important it is, 0 to 1.
    pub importance: f64,
    /// Whether it is about the folder at hand; none where either is about no folder.
    pub same_root: Option<bool>,
    /// What it was worth in other conversations.
    pub verdicts: Verdicts,
}

/// What a memory was worth in other conversations.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Verdicts {
    /// In how many it was used.
    pub used: i64,
    /// In how many it was dismissed.
    pub dismissed: i64,
}

impl Verdicts {
    /// Returns where the verdicts lean, -1 to 1.
    #[must_use]
    pub fn lean(self) -> f64 {
        (self.used - self.dismissed) as f64 / (self.used + self.dismissed + 1) as f64
    }
}

/// Returns how recent something of this age is: 1 today, half of it each 30 days.
#[must_use]
pub fn recency(days: f64) -> f64 {
    0.5_f64.powf(days.max(0.0) / HALF_LIFE)
}

impl Coefficients {
    /// Returns the log odds that a memory belongs to the turn.
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

/// How a project's log odds are corrected: `offset + slope * log_odds`.
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

/// Suggestions of about the same log odds, and how many of them were used.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Outcome {
    /// The log odds.
    pub log_odds: f64,
    /// How many were used.
    pub used: f64,
    /// How many were dismissed.
    pub dismissed: f64,
}

impl Correction {
    /// Learns from what was used and dismissed in a project; nothing from few verdicts.
    ///
    /// Offset and slope are those of a logistic regression of the verdicts on the log odds (Platt scaling), drawn
    /// towards 0 and 1.
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
            // Newton's method: the gradient and the Hessian of the penalised likelihood.
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
            // Where nearly nothing was expected that happened, the curve is flat and the step too long.
            let step = [step[0].clamp(-1.0, 1.0), step[1].clamp(-0.25, 0.25)];
            at = Self { offset: at.offset - step[0], slope: at.slope - step[1] };
            if step.iter().all(|step| step.abs() < 1e-9) {
                break;
            }
        }
        // What is believed more must stay so.
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
