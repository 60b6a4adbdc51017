//! The prediction of a send: how many of the newest message pairs fit into a model's context (seed 003, section 7).

/// The budget of a request in a model's context, in tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// The model's limit: the smaller of its context window and its tokens per minute.
    pub max_context: i64,
    /// The allowance for a message that is not known yet (URA in seed 003).
    pub allowance: i64,
    /// The size of the system message, which every request carries.
    pub system: i64,
}

/// Which pairs were predicted to fit, and their size in tokens. It does not change during a send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prediction {
    /// The number of pairs, which are the newest ones.
    pub count: usize,
    /// The size of the dropped pairs, in tokens.
    pub history: i64,
}

impl Budget {
    /// Returns the model's limit: the smaller of its context window and its tokens per minute.
    #[must_use]
    pub fn limit(context_window: i64, tokens_per_minute: Option<i64>) -> i64 {
        tokens_per_minute.map_or(context_window, |tpm| context_window.min(tpm))
    }

    /// Takes pairs from the newest to the oldest while they fit with the system message and the allowance. `sizes` are
    /// those of the pairs, the oldest first.
    #[must_use]
    pub fn predict(&self, sizes: &[i64]) -> Prediction {
        let room = self.max_context - self.allowance - self.system;
        let mut prediction = Prediction { count: 0, history: 0 };
        for size in sizes.iter().rev() {
            let history = prediction.history.saturating_add(*size);
            if history > room {
                break;
            }
            prediction = Prediction { count: prediction.count + 1, history };
        }
        prediction
    }

    /// Returns whether a message of `tokens` fits alone with the system message. If not, the send is rejected before
    /// any call.
    #[must_use]
    pub fn takes_prompt(&self, tokens: i64) -> bool {
        tokens.saturating_add(self.system) <= self.max_context
    }

    /// Returns how many of the oldest predicted pairs have to be dropped for a prompt of `tokens` to fit beside the
    /// others (option B in seed 003). `sizes` are those of the predicted pairs, the oldest first.
    #[must_use]
    pub fn preflight(&self, sizes: &[i64], tokens: i64) -> usize {
        let room = self.max_context - self.system - tokens;
        let mut history: i64 = sizes.iter().sum();
        let mut dropped = 0;
        while history > room && dropped < sizes.len() {
            history -= sizes[dropped];
            dropped += 1;
        }
        dropped
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use proptest::prelude::*;

    use super::*;

    const PLAIN: Budget = Budget { max_context: 1_000, allowance: 100, system: 0 };

    #[test]
    fn pairs_are_taken_up_to_the_limit_and_not_one_token_more() {
        for (sizes, count, history) in [
            (&[][..], 0, 0),
            (&[900], 1, 900),
            (&[901], 0, 0),
            (&[1, 300, 300, 300], 3, 900),
            // The selection ends at the first pair that does not fit, even if an older one would fit.
            (&[10, 800, 200, 200], 2, 400),
        ] {
            assert_eq!(PLAIN.predict(sizes), Prediction { count, history }, "{sizes:?}");
        }
        let with_system = Budget { system: 50, ..PLAIN };
        assert_eq!(with_system.predict(&[850]).count, 1);
        assert_eq!(with_system.predict(&[851]).count, 0);
        assert_eq!(Budget { system: 950, ..PLAIN }.predict(&[0]).count, 0);
    }

    #[test]
    fn a_prompt_as_large_as_the_limit_fits_and_one_token_more_does_not() {
        assert!(PLAIN.takes_prompt(1_000) && !PLAIN.takes_prompt(1_001));
        let with_system = Budget { system: 50, ..PLAIN };
        assert!(with_system.takes_prompt(950) && !with_system.takes_prompt(951));
    }

    #[test]
    fn the_limit_is_the_smaller_of_the_window_and_the_tokens_per_minute() {
        assert_eq!(Budget::limit(128_000, None), 128_000);
        assert_eq!(Budget::limit(128_000, Some(30_000)), 30_000);
        assert_eq!(Budget::limit(8_192, Some(30_000)), 8_192);
    }

    #[test]
    fn ten_thousand_pairs_are_predicted_within_five_milliseconds() {
        let sizes: Vec<_> = (0..10_000).map(|number| 100 + number % 400).collect();
        let budget = Budget { max_context: 1_000_000_000, ..PLAIN };
        let fastest = (0..20).map(|_| {
            let started = Instant::now();
            assert_eq!(budget.predict(&sizes).count, 10_000);
            started.elapsed()
        });
        assert!(fastest.min().expect("twenty times") < Duration::from_millis(5));
    }

    proptest! {
        #[test]
        fn what_is_predicted_fits_and_is_the_most_that_does(
            sizes in proptest::collection::vec(0..500_i64, 0..40), max_context in 1..5_000_i64,
            allowance in 0..500_i64, system in 0..500_i64,
        ) {
            let budget = Budget { max_context, allowance, system };
            let Prediction { count, history } = budget.predict(&sizes);
            prop_assert_eq!(history, sizes[sizes.len() - count..].iter().sum::<i64>());
            prop_assert!(count == 0 || history + system + allowance <= max_context);
            if count < sizes.len() {
                prop_assert!(history + sizes[sizes.len() - count - 1] + system + allowance > max_context);
            }
        }

        #[test]
        fn preflight_drops_as_few_pairs_as_make_the_prompt_fit(
            sizes in proptest::collection::vec(0..500_i64, 0..40), max_context in 1..5_000_i64, prompt in 0..5_000_i64,
        ) {
            let budget = Budget { max_context, ..PLAIN };
            prop_assume!(budget.takes_prompt(prompt));
            let dropped = budget.preflight(&sizes, prompt);
            prop_assert!(sizes[dropped..].iter().sum::<i64>() + prompt <= max_context);
            prop_assert!(dropped == 0 || sizes[dropped - 1..].iter().sum::<i64>() + prompt > max_context);
        }
    }
}
