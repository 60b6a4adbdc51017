//! Decides what follows each attempt of a send: the loop that drops the oldest pair when the provider reports that
//! the context is too long (seed 003, section 7.2).

use serde::Serialize;
use utoipa::ToSchema;

use super::errors::{Class, Kind};

/// A stage of a send.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema, sqlx::Type)]
#[serde(rename_all = "snake_case")]
#[sqlx(type_name = "text", rename_all = "snake_case")]
pub enum Stage {
    /// Nothing was sent yet.
    Initial,
    /// Nothing has been sent yet, and pairs were dropped to make room for the new message.
    Preflight,
    /// The provider answered.
    AttemptSuccess,
    /// The first attempt overflowed.
    OverflowInitial,
    /// A later attempt overflowed.
    OverflowRetry,
    /// The context was too long, and no more pairs may be dropped.
    OverflowExhausted,
    /// A later attempt failed for another reason, which ended the send.
    RetryNonOverflow,
    /// The provider refused the key.
    AuthError,
    /// The first attempt failed for another reason.
    OtherError,
    /// The send was cancelled.
    Cancelled,
    /// The send was never ended.
    Interrupted,
}

/// What the client should do after an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Next {
    /// The provider answered: the send can be finalized.
    Done,
    /// One pair was dropped, and the rest should be sent.
    Retry,
    /// The send failed.
    Stop,
}

/// How far the trimming of a send has come. The statistics only ever shrink, but for the counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trimming {
    /// The number of pairs that were predicted to fit.
    pub predicted: usize,
    /// The number of pairs that were dropped before the first attempt. Dropping them uses no attempt.
    pub preflight: usize,
    /// The number of pairs dropped so far, including those dropped before the first attempt.
    pub trimmed: usize,
    /// The number of calls.
    pub attempts_used: usize,
    /// The maximum number of pairs that overflows may drop (NTA).
    pub max_trims: usize,
}

/// The error that an attempt ended with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failure {
    /// The class of the error.
    pub class: Class,
    /// Whether the context was too long, so that a shorter history would help.
    pub overflow: bool,
}

impl Trimming {
    /// Records an attempt. Returns its stage and what follows.
    pub fn attempt(&mut self, failure: Option<Failure>) -> (Stage, Next) {
        self.attempts_used += 1;
        let is_first = self.attempts_used == 1;
        match failure {
            None => (Stage::AttemptSuccess, Next::Done),
            Some(Failure { overflow: true, .. }) => {
                let may_trim =
                    self.trimmed < self.predicted && self.trimmed - self.preflight < self.max_trims;
                if !may_trim {
                    return (Stage::OverflowExhausted, Next::Stop);
                }
                self.trimmed += 1;
                (if is_first { Stage::OverflowInitial } else { Stage::OverflowRetry }, Next::Retry)
            }
            Some(Failure { class: Class::Auth, .. }) => (Stage::AuthError, Next::Stop),
            Some(_) if is_first => (Stage::OtherError, Next::Stop),
            Some(_) => (Stage::RetryNonOverflow, Next::Stop),
        }
    }

    /// Returns the counter for users: `X / Y`, or `[X-T]/Y` once pairs were dropped, of `visible` pairs.
    #[must_use]
    pub fn counter(&self, visible: usize) -> String {
        let Self { predicted, trimmed, .. } = self;
        if *trimmed == 0 {
            format!("{predicted} / {visible}")
        } else {
            format!("[{predicted}-{trimmed}]/{visible}")
        }
    }

    /// Returns the text for users about the dropped pairs, which have `tokens`. Returns none if there are none.
    #[must_use]
    pub fn summary(&self, tokens: i64) -> Option<String> {
        let Self { predicted, trimmed, preflight, .. } = *self;
        let because = match (preflight, trimmed - preflight) {
            (0, 0) => return None,
            (_, 0) => "the new message would not have fitted beside them",
            (0, _) => "the model said that the context was too long",
            _ => {
                "the new message would not have fitted beside them, and the model still said that the context was too long"
            }
        };
        let pairs = if predicted == 1 { "message pair" } else { "message pairs" };
        let (count, were) =
            if trimmed == 1 { (String::new(), "was") } else { (format!("{trimmed} "), "were") };
        Some(format!(
            "The {count}oldest of {predicted} {pairs} (about {tokens} tokens) {were} left out, because {because}."
        ))
    }
}

/// Returns the kind of the error that a send ends with when its last attempt failed with `kind` at this stage.
#[must_use]
pub fn final_kind(stage: Stage, kind: Kind) -> Kind {
    if stage == Stage::OverflowExhausted { Kind::ContextOverflowAfterTrimming } else { kind }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const OVERFLOW: Option<Failure> = Some(Failure { class: Class::Quota, overflow: true });
    const OTHER: Option<Failure> = Some(Failure { class: Class::Net, overflow: false });

    fn of(predicted: usize, max_trims: usize) -> Trimming {
        Trimming { predicted, preflight: 0, trimmed: 0, attempts_used: 0, max_trims }
    }

    #[test]
    fn one_overflow_of_twelve_pairs_of_thirty_four_is_counted_as_the_seed_shows_it() {
        let mut trimming = of(12, 10);
        assert_eq!(trimming.counter(34), "12 / 34");
        assert_eq!(trimming.attempt(OVERFLOW), (Stage::OverflowInitial, Next::Retry));
        assert_eq!(trimming.attempt(None), (Stage::AttemptSuccess, Next::Done));
        assert_eq!(trimming.counter(34), "[12-1]/34");
        assert_eq!(trimming.attempts_used, 2);
        let told = "The oldest of 12 message pairs (about 250 tokens) was left out, because the model said that the context was too long.";
        assert_eq!(trimming.summary(250).as_deref(), Some(told));
    }

    #[test]
    fn overflows_end_when_the_pairs_or_the_trims_are_used_up() {
        for (predicted, max_trims, calls) in [(2, 10, 3), (12, 2, 3), (12, 0, 1), (0, 10, 1)] {
            let mut trimming = of(predicted, max_trims);
            let mut stages = Vec::new();
            loop {
                let (stage, next) = trimming.attempt(OVERFLOW);
                stages.push(stage);
                if next == Next::Stop {
                    break;
                }
            }
            assert_eq!(stages.len(), calls);
            assert_eq!(stages.last(), Some(&Stage::OverflowExhausted));
            assert_eq!(trimming.attempts_used, calls);
        }
    }

    #[test]
    fn another_error_ends_the_send_and_says_whether_it_was_a_retry() {
        assert_eq!(of(3, 3).attempt(OTHER), (Stage::OtherError, Next::Stop));
        let refused = Some(Failure { class: Class::Auth, overflow: false });
        assert_eq!(of(3, 3).attempt(refused), (Stage::AuthError, Next::Stop));
        let mut trimming = of(3, 3);
        trimming.attempt(OVERFLOW);
        assert_eq!(trimming.attempt(OTHER), (Stage::RetryNonOverflow, Next::Stop));
    }

    proptest! {
        #[test]
        fn trims_only_grow_by_one_and_calls_are_at_most_one_more_than_trims(
            predicted in 0..30_usize, preflight in 0..30_usize, max_trims in 0..12_usize, overflows in 0..40_usize,
        ) {
            let preflight = preflight.min(predicted);
            let mut trimming = Trimming { predicted, preflight, trimmed: preflight, attempts_used: 0, max_trims };
            for _ in 0..overflows {
                let before = trimming;
                let (_, next) = trimming.attempt(OVERFLOW);
                prop_assert_eq!(trimming.predicted, before.predicted);
                prop_assert_eq!(trimming.trimmed, before.trimmed + usize::from(next == Next::Retry));
                if next == Next::Stop { break; }
            }
            prop_assert!(trimming.trimmed <= predicted);
            prop_assert!(trimming.trimmed - preflight <= max_trims);
            prop_assert!(trimming.attempts_used <= max_trims + 1);
        }
    }
}
