//! What follows from the end of a record: the match, the time it took, and what it teaches.

use std::collections::HashSet;

use uuid::Uuid;

use super::matching::{Match, MatchType, classify};
use super::views::elapsed_ms;
use crate::suggestions::State;
use crate::suggestions::requests::Outcome;
use crate::types::derived_id;

/// What of a slate its outcome is judged by.
#[derive(Debug)]
pub struct Slate<'a> {
    /// The texts offered.
    pub suggestions: &'a [String],
    /// When it came up, in seconds of the client's clock.
    pub fetch_end_ts: Option<f64>,
    /// Of what the model was told.
    pub prompt_hash: Uuid,
}

/// What follows from the end of a record.
#[derive(Debug, Clone, PartialEq)]
pub struct Conclusion {
    /// Finalized or discarded.
    pub state: State,
    /// Which suggestions were looked at.
    pub viewed_indices: Vec<i32>,
    /// How many moves there were.
    pub cycle_count: i32,
    /// Which suggestion was showing; -1: none.
    pub displayed_index: i32,
    /// How the input relates to the slate.
    pub match_type: Option<MatchType>,
    /// To which suggestion.
    pub accepted_index: Option<i32>,
    /// From the slate's coming up to the submit.
    pub time_to_action_ms: Option<f64>,
    /// Of prompt and input, if there is anything to learn from.
    pub example_hash: Option<Uuid>,
    /// Of prompt, slate, views and input.
    pub slate_hash: Option<Uuid>,
    /// What was chosen and rejected.
    pub labels: Vec<Label>,
}

/// A text that the user chose, or rejected after having seen it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Label {
    /// The suggestion that was rejected; -1: the input, which was chosen.
    pub rejected_index: i32,
    /// Of prompt, text and verdict.
    pub label_hash: Uuid,
    /// Of prompt, input and rejected text.
    pub pair_hash: Option<Uuid>,
}

impl Conclusion {
    /// Of a record that a command discards.
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

    /// Of a slate of which these were viewed, once the user has submitted something.
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
            example_hash: (!input.is_empty()).then(example),
            slate_hash: Some(slate_hash(slate, &viewed, input)),
            labels: labels(slate, &viewed, matched, input),
            viewed_indices: viewed,
        }
    }

    /// Of a slate whose texts are not kept: an exact match is told by `place`, the suggestion whose hash is that of the
    /// input; without one, the match is not known.
    #[must_use]
    pub fn of_hashes(
        fetch_end_ts: Option<f64>,
        viewed: Vec<i32>,
        place: Option<i32>,
        outcome: &Outcome,
    ) -> Self {
        let nothing = Slate { suggestions: &[], fetch_end_ts, prompt_hash: Uuid::nil() };
        let mut conclusion = Self::of(&nothing, viewed, None, outcome).without_text();
        if conclusion.state == State::Finalized {
            conclusion.match_type = place.map(|_| MatchType::Exact);
            conclusion.accepted_index = place;
        }
        conclusion
    }

    /// Without what stands for texts that are not kept.
    #[must_use]
    pub fn without_text(self) -> Self {
        Self { example_hash: None, slate_hash: None, labels: Vec::new(), ..self }
    }

    /// Whether a suggestion was looked at more than once.
    #[must_use]
    pub fn cycled_back(&self) -> bool {
        let mut seen = HashSet::new();
        !self.viewed_indices.iter().all(|index| seen.insert(index))
    }
}

fn slate_hash(slate: &Slate<'_>, viewed: &[i32], input: &str) -> Uuid {
    let viewed: Vec<_> = viewed.iter().flat_map(|index| index.to_be_bytes()).collect();
    let own = [b"slate".as_slice(), slate.prompt_hash.as_bytes(), &viewed, input.as_bytes()];
    let texts = slate.suggestions.iter().map(String::as_bytes);
    derived_id(&own.into_iter().chain(texts).collect::<Vec<_>>())
}

/// What was chosen, and which other texts were rejected: viewed, and not the one that the input is made of. Empty texts
/// teach nothing, and a text is rejected once.
fn labels(slate: &Slate<'_>, viewed: &[i32], matched: Match, input: &str) -> Vec<Label> {
    let prompt = slate.prompt_hash.as_bytes().as_slice();
    let label = |text: &str, verdict: &[u8]| derived_id(&[b"label", prompt, text.as_bytes(), verdict]);
    let accepted = matched.index.and_then(|index| slate.suggestions.get(index)).map_or("", String::as_str);
    let mut known = HashSet::from(["", input, accepted]);
    let chosen = (!input.is_empty()).then(|| Label {
        rejected_index: -1,
        label_hash: label(input, b"chosen"),
        pair_hash: None,
    });
    let rejected = viewed.iter().filter_map(|&index| {
        let text = slate.suggestions.get(usize::try_from(index).ok()?)?;
        let pair = || derived_id(&[b"pair", prompt, input.as_bytes(), text.as_bytes()]);
        known.insert(text).then(|| Label {
            rejected_index: index,
            label_hash: label(text, b"rejected"),
            pair_hash: (!input.is_empty()).then(pair),
        })
    });
    chosen.into_iter().chain(rejected).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn conclude(suggestions: &[String], viewed: &[i32], input: &str) -> Conclusion {
        let slate = Slate { suggestions, fetch_end_ts: Some(5.0), prompt_hash: Uuid::nil() };
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
        assert_eq!(rejected(&["a", "", "a", "b"], &[0, 1, 2, 3], "x"), [0, 3]);
        assert_eq!(rejected(&["a", "a", "b"], &[0, 1, 2], "a"), [2]);
        assert_eq!(rejected(&["a", "b"], &[0, 1], "a and more"), [1]);
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
