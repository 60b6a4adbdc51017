//! The outcome of a suggestion record: the match, the time it took, and what it teaches.

use std::collections::HashSet;

use uuid::Uuid;

use super::matching::{Match, MatchType, classify};
use super::views::elapsed_ms;
use crate::suggestions::State;
use crate::suggestions::requests::Outcome;
use crate::types::derived_id;

/// The parts of a slate that its outcome depends on.
#[derive(Debug)]
pub struct Slate<'a> {
    /// The suggestions in the order in which they were offered.
    pub suggestions: &'a [String],
    /// When the slate was shown, as Unix seconds of the client's clock.
    pub fetch_end_ts: Option<f64>,
    /// The hash of the messages that the model was given.
    pub prompt_hash: Uuid,
    /// The hash of the context.
    pub context_hash: Uuid,
}

/// The outcome of a suggestion record.
#[derive(Debug, Clone, PartialEq)]
pub struct Conclusion {
    /// Whether the record is finalized or discarded.
    pub state: State,
    /// The indices of the suggestions viewed, in order.
    pub viewed_indices: Vec<i32>,
    /// The number of moves through the slate.
    pub cycle_count: i32,
    /// The index of the suggestion that was shown when the user submitted, or -1 if none was.
    pub displayed_index: i32,
    /// How the submitted text matches the slate.
    pub match_type: Option<MatchType>,
    /// The index of the accepted suggestion.
    pub accepted_index: Option<i32>,
    /// The time between showing the slate and the user's submission, in milliseconds.
    pub time_to_action_ms: Option<f64>,
    /// The hash of prompt and text submitted, which finds equal training examples. None if there is nothing
    /// to learn from.
    pub example_hash: Option<Uuid>,
    /// The hash of prompt, context, slate, views and text submitted, which finds equal ranking examples.
    pub slate_hash: Option<Uuid>,
    /// The texts chosen and rejected.
    pub labels: Vec<Label>,
}

/// A text that the user chose, or that they rejected after having seen it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Label {
    /// The index of the suggestion rejected, or -1 for the text submitted, which was chosen.
    pub rejected_index: i32,
    /// The hash of prompt, text and verdict, which finds equal labels.
    pub label_hash: Uuid,
    /// The hash of prompt, text submitted and text rejected, which finds equal pairs.
    pub pair_hash: Option<Uuid>,
}

impl Conclusion {
    /// Returns the outcome of a record that a command discards.
    fn discarded() -> Self {
        Self {
            state: State::Discarded,
            viewed_indices: Vec::new(),
            cycle_count: 0,
            displayed_index: -1,
            match_type: None,
            accepted_index: None,
            time_to_action_ms: None,
            example_hash: None,
            slate_hash: None,
            labels: Vec::new(),
        }
    }

    /// Derives the outcome of a slate of which the suggestions `viewed` were seen.
    #[must_use]
    pub fn of(slate: &Slate<'_>, viewed: Vec<i32>, cycle_count: Option<i32>, outcome: &Outcome) -> Self {
        if outcome.discards() {
            return Self::discarded();
        }
        let input = outcome.actual_input.as_str();
        let displayed_index = outcome.displayed_index_at_submit.or(viewed.last().copied()).unwrap_or(-1);
        let matched = classify(input, slate.suggestions, usize::try_from(displayed_index).ok());
        let elapsed = || elapsed_ms(slate.fetch_end_ts?, outcome.submit_ts?);
        let moves = || i32::try_from(viewed.len().saturating_sub(1)).unwrap_or(i32::MAX);
        let prompt = slate.prompt_hash;
        let example = || derived_id(&[b"example", prompt.as_bytes(), input.as_bytes()]);
        Self {
            state: State::Finalized,
            cycle_count: cycle_count.unwrap_or_else(moves),
            displayed_index,
            match_type: Some(matched.kind),
            accepted_index: matched.index.and_then(|index| i32::try_from(index).ok()),
            time_to_action_ms: outcome.time_to_action_ms.or_else(elapsed),
            example_hash: (!is_blank(input)).then(example),
            slate_hash: Some(slate_hash(slate, &viewed, input)),
            labels: labels(slate, &viewed, matched, input),
            viewed_indices: viewed,
        }
    }

    /// Derives the outcome of a slate whose texts are not kept. `exact` is the index of the suggestion whose
    /// hash is that of the text submitted; without one, the match is not known.
    #[must_use]
    pub fn of_hashes(
        fetch_end_ts: Option<f64>,
        viewed: Vec<i32>,
        exact: Option<i32>,
        outcome: &Outcome,
    ) -> Self {
        let nothing =
            Slate { suggestions: &[], fetch_end_ts, prompt_hash: Uuid::nil(), context_hash: Uuid::nil() };
        let mut conclusion = Self::of(&nothing, viewed, None, outcome).without_text();
        if conclusion.state == State::Finalized {
            conclusion.match_type = exact.map(|_| MatchType::Exact);
            conclusion.accepted_index = exact;
        }
        conclusion
    }

    /// Removes what was derived from texts that are not kept.
    #[must_use]
    pub fn without_text(self) -> Self {
        Self { example_hash: None, slate_hash: None, labels: Vec::new(), ..self }
    }

    /// Returns whether a suggestion was viewed more than once.
    #[must_use]
    pub fn cycled_back(&self) -> bool {
        let mut seen = HashSet::new();
        !self.viewed_indices.iter().all(|index| seen.insert(index))
    }
}

fn slate_hash(slate: &Slate<'_>, viewed: &[i32], input: &str) -> Uuid {
    let viewed: Vec<_> = viewed.iter().flat_map(|index| index.to_be_bytes()).collect();
    let (prompt, context) = (slate.prompt_hash.as_bytes(), slate.context_hash.as_bytes());
    let own = [b"slate".as_slice(), prompt, context, &viewed, input.as_bytes()];
    let texts = slate.suggestions.iter().map(String::as_bytes);
    derived_id(&own.into_iter().chain(texts).collect::<Vec<_>>())
}

fn is_blank(text: &str) -> bool {
    text.trim().is_empty()
}

/// Returns the text chosen and the texts rejected. Rejected are the suggestions viewed, except the one that
/// was accepted. Blank texts teach nothing, each text is rejected once, and texts that differ only in white space are the
/// same.
fn labels(slate: &Slate<'_>, viewed: &[i32], matched: Match, input: &str) -> Vec<Label> {
    let prompt = slate.prompt_hash.as_bytes().as_slice();
    let label = |text: &str, verdict: &[u8]| derived_id(&[b"label", prompt, text.as_bytes(), verdict]);
    let accepted = matched.index.and_then(|index| slate.suggestions.get(index)).map_or("", String::as_str);
    let bare = |text: &str| text.split_whitespace().collect::<String>();
    let mut known = HashSet::from([input, accepted].map(bare));
    let chosen = (!is_blank(input)).then(|| Label {
        rejected_index: -1,
        label_hash: label(input, b"chosen"),
        pair_hash: None,
    });
    let mut seen = HashSet::new();
    let rejected = viewed.iter().filter(|index| seen.insert(**index)).filter_map(|&index| {
        let text = slate.suggestions.get(usize::try_from(index).ok()?)?;
        let pair = || derived_id(&[b"pair", prompt, input.as_bytes(), text.as_bytes()]);
        (!is_blank(text) && known.insert(bare(text))).then(|| Label {
            rejected_index: index,
            label_hash: label(text, b"rejected"),
            pair_hash: (!is_blank(input)).then(pair),
        })
    });
    chosen.into_iter().chain(rejected).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn conclude(suggestions: &[String], viewed: &[i32], input: &str) -> Conclusion {
        let slate = Slate {
            suggestions,
            fetch_end_ts: Some(5.0),
            prompt_hash: Uuid::nil(),
            context_hash: Uuid::nil(),
        };
        let outcome = Outcome {
            actual_input: input.to_owned(),
            displayed_index_at_submit: None,
            submit_ts: Some(6.5),
            time_to_action_ms: None,
            result_block_number: None,
            suggestions: None,
        };
        Conclusion::of(&slate, viewed.to_vec(), None, &outcome)
    }

    fn rejected(suggestions: &[&str], viewed: &[i32], input: &str) -> Vec<i32> {
        let suggestions: Vec<_> = suggestions.iter().map(|&text| text.to_owned()).collect();
        let labels = conclude(&suggestions, viewed, input).labels;
        labels.iter().map(|label| label.rejected_index).filter(|index| *index >= 0).collect()
    }

    #[test]
    fn rejected_is_what_was_viewed_and_not_chosen_once_each() {
        assert_eq!(rejected(&["a", "b", "c"], &[0, 1, 0], "b"), [0]);
        assert_eq!(rejected(&["a", "b", "c"], &[0, 1, 2, 1, 0], "x"), [0, 1, 2]);
        assert_eq!(rejected(&["a", "", "a", "b", " \n"], &[0, 1, 2, 3, 4], "x"), [0, 3]);
        assert_eq!(rejected(&["a", "a", "b"], &[0, 1, 2], "a"), [2]);
        assert_eq!(rejected(&["a", "b"], &[0, 1], "a and more"), [1]);
        assert_eq!(rejected(&["a b", " a  b", "c", "c\n"], &[0, 1, 2, 3], " a  b"), [2]);
    }

    #[test]
    fn a_long_suggestion_that_was_viewed_often_is_compared_once() {
        let long = "a ".repeat(1_000_000);
        assert_eq!(rejected(&[&long], &[0; 1_000], "x"), [0]);
    }

    #[test]
    fn a_command_leaves_nothing() {
        let gone = conclude(&["a".to_owned()], &[0], ":quit");
        assert_eq!((gone.state, gone.match_type, gone.labels.len()), (State::Discarded, None, 0));
    }

    proptest! {
        #[test]
        fn nothing_unviewed_chosen_or_empty_is_rejected(
            suggestions in proptest::collection::vec("[ab]{0,2}", 0..5),
            viewed in proptest::collection::vec(0..5_i32, 0..8),
            input in "[ab]{0,3}",
        ) {
            let conclusion = conclude(&suggestions, &viewed, &input);
            let mut texts = Vec::new();
            for Label { rejected_index, pair_hash, .. } in &conclusion.labels {
                let Ok(index) = usize::try_from(*rejected_index) else {
                    prop_assert!(!input.is_empty() && pair_hash.is_none());
                    continue;
                };
                prop_assert!(viewed.contains(rejected_index));
                prop_assert_ne!(Some(*rejected_index), conclusion.accepted_index);
                let text = &suggestions[index];
                prop_assert!(!text.is_empty() && *text != input && !texts.contains(&text));
                prop_assert_eq!(pair_hash.is_some(), !input.is_empty());
                texts.push(text);
            }
            prop_assert_eq!(conclusion.time_to_action_ms, Some(1500.0));
        }
    }
}
