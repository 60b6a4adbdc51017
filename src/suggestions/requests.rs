//! What clients send of a record: its beginning, its end, and what is known afterwards.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use super::MatchType;
use crate::http::{Check, Checks};
use crate::types::{FreeForm, Timestamp, names_it};

/// Starts a record with a slate; with `actual_input`, one that is finished already.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewSuggestion {
    /// Makes sending it again harmless; the server makes one if not given.
    #[serde(skip_serializing_if = "names_it")]
    pub id: Option<Uuid>,
    /// What the model was told of: `blocks`, `nodes`, `cwd` and whatever else.
    pub context: FreeForm,
    /// The texts offered, in order.
    pub suggestions: Vec<String>,
    /// What the model was asked: `messages`, `model`, `temperature` and whatever else.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub llm_request: Option<FreeForm>,
    /// What it answered: `model`, `usage` and whatever else.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub llm_response: Option<FreeForm>,
    /// Version of the prompt or node that made the slate.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 200)]
    pub suggestion_node_version: Option<String>,
    /// The agent session it belongs to: erasing the session erases it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 200)]
    pub session_name: Option<String>,
    /// The server that session runs on.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 200)]
    pub server_name: Option<String>,
    /// The block whose end made the client ask.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trigger_block_number: Option<i32>,
    /// The policy that ordered the slate.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 200)]
    pub policy_id: Option<String>,
    /// The probability with which that policy would have shown each suggestion first: as many as suggestions, each from 0
    /// to 1, the first above 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub propensities: Option<Vec<f64>>,
    /// How many blocks the context has; counted in `context.blocks`, if not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0)]
    pub context_block_count: Option<i32>,
    /// When the client asked, in seconds of its clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fetch_start_ts: Option<f64>,
    /// When the slate came up, likewise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fetch_end_ts: Option<f64>,
    /// When the slate was made; now, if not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created_at: Option<Timestamp>,
    /// What the user submitted, for a record that is finished already; the fields below belong to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub actual_input: Option<String>,
    /// Which suggestions were looked at; the first one, if not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub viewed_indices: Option<Vec<i32>>,
    /// How many moves through the slate there were; one for each view after the first, if not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0)]
    pub cycle_count: Option<i32>,
    /// Which one was showing at the submit, -1 for none; the last one viewed, if not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = -1)]
    pub displayed_index_at_submit: Option<i32>,
    /// When the user submitted, in seconds of the client's clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub submit_ts: Option<f64>,
    /// From the slate's coming up to the submit; `submit_ts` less `fetch_end_ts`, if not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0)]
    pub time_to_action_ms: Option<f64>,
    /// The block that the input became.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result_block_number: Option<i32>,
    /// What the client made of it: kept as reported. Figures use our own rule.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub match_type: Option<MatchType>,
    /// Likewise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accepted_index: Option<i32>,
}

impl NewSuggestion {
    /// How it ended, if it has, in the words of [`Outcome`].
    #[must_use]
    pub fn outcome(&self) -> Option<Outcome> {
        Some(Outcome {
            actual_input: self.actual_input.clone()?,
            displayed_index_at_submit: self.displayed_index_at_submit,
            submit_ts: self.submit_ts,
            time_to_action_ms: self.time_to_action_ms,
            result_block_number: self.result_block_number,
            suggestions: None,
        })
    }
}

impl Check for NewSuggestion {
    fn check(&self, checks: &mut Checks) {
        const NOT_FINISHED: &str = "only a record with actual_input has it";
        const OUTSIDE: &str = "is not the place of a suggestion";
        checks.name("suggestion_node_version", self.suggestion_node_version.as_deref());
        checks.name("session_name", self.session_name.as_deref());
        checks.name("server_name", self.server_name.as_deref());
        checks.name("policy_id", self.policy_id.as_deref());
        checks.count("context_block_count", self.context_block_count);
        checks.count("cycle_count", self.cycle_count);
        let count = self.suggestions.len();
        if let Some(propensities) = &self.propensities {
            let fit = propensities.len() == count
                && propensities.iter().all(|share| (0.0..=1.0).contains(share))
                && propensities.first().is_none_or(|first| *first > 0.0);
            checks.require(
                fit,
                "propensities",
                "must be a probability for each suggestion, the first above 0",
            );
        }
        for (place, index) in self.viewed_indices.iter().flatten().enumerate() {
            let inside = usize::try_from(*index).is_ok_and(|index| index < count);
            checks.require(inside, &format!("viewed_indices/{place}"), OUTSIDE);
        }
        if let Some(outcome) = self.outcome() {
            outcome.check(checks);
            let inside = outcome.is_within(count);
            checks.require(inside, "displayed_index_at_submit", OUTSIDE);
        } else {
            for (field, given) in [
                ("viewed_indices", self.viewed_indices.is_some()),
                ("cycle_count", self.cycle_count.is_some()),
                ("displayed_index_at_submit", self.displayed_index_at_submit.is_some()),
                ("submit_ts", self.submit_ts.is_some()),
                ("time_to_action_ms", self.time_to_action_ms.is_some()),
                ("result_block_number", self.result_block_number.is_some()),
                ("match_type", self.match_type.is_some()),
                ("accepted_index", self.accepted_index.is_some()),
            ] {
                checks.require(!given, field, NOT_FINISHED);
            }
        }
    }
}

/// Finalizes a record.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = SuggestionOutcome)]
pub struct Outcome {
    /// What the user submitted, to the letter. What begins with `:` is a command, and discards the record.
    pub actual_input: String,
    /// Which suggestion was showing, -1 for none; the last one viewed, if not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = -1)]
    pub displayed_index_at_submit: Option<i32>,
    /// When, in seconds of the clock that `fetch_end_ts` is of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub submit_ts: Option<f64>,
    /// From the slate's coming up to the submit; `submit_ts` less `fetch_end_ts`, if not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0)]
    pub time_to_action_ms: Option<f64>,
    /// The block that the input became.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result_block_number: Option<i32>,
    /// The slate once more, for a project that keeps no text: without it, only an exact match can be told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suggestions: Option<Vec<String>>,
}

impl Outcome {
    /// Whether the input is a command of the client's, which suggestions are not about.
    #[must_use]
    pub fn discards(&self) -> bool {
        self.actual_input.starts_with(':')
    }

    /// Whether what was showing is one of `count` suggestions, or none.
    #[must_use]
    pub fn is_within(&self, count: usize) -> bool {
        let inside = |index: i32| index == -1 || usize::try_from(index).is_ok_and(|index| index < count);
        self.displayed_index_at_submit.is_none_or(inside)
    }
}

impl Check for Outcome {
    fn check(&self, checks: &mut Checks) {
        checks.require(
            self.time_to_action_ms.is_none_or(|time| time >= 0.0),
            "time_to_action_ms",
            "must not be negative",
        );
        checks.require(
            self.displayed_index_at_submit.is_none_or(|index| index >= -1),
            "displayed_index_at_submit",
            "must be -1 or more",
        );
    }
}

/// Adds what is known only after the submit.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = SuggestionAmendment)]
pub struct Amendment {
    /// The block that the input became.
    pub result_block_number: i32,
}

impl Check for Amendment {}
