//! Requests about a suggestion record: its beginning, its end, and what becomes known afterwards.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use super::MatchType;
use super::rules::views::is_duration;
use crate::http::{Check, Checks};
use crate::types::{FreeForm, OptionalName, Timestamp, names_it};

/// The maximum number of suggestions in a slate, and of views of them in one request. Each that a user viewed can be a row of
/// an export, which reads the whole slate.
const MOST_SUGGESTIONS: usize = 1_000;

/// Rejects a slate of more suggestions, or with more views.
pub(super) fn check_slate(suggestions: usize, viewed: Option<&Vec<i32>>, checks: &mut Checks) {
    for (field, count) in [("suggestions", suggestions), ("viewed_indices", viewed.map_or(0, Vec::len))] {
        let detail = format!("must have {MOST_SUGGESTIONS} items or fewer");
        checks.require(count <= MOST_SUGGESTIONS, field, &detail);
    }
}

/// Starts a suggestion record with a slate. A body with `actual_input` is a record that is already finished.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewSuggestion {
    /// The record's id, which makes it safe to send the request again. By default, the server chooses one.
    #[serde(skip_serializing_if = "names_it")]
    pub id: Option<Uuid>,
    /// The context that the model was given: `blocks`, `nodes`, `cwd` and any other members.
    pub context: FreeForm,
    /// The suggestions in the order in which they were offered.
    #[schema(max_items = 1_000)]
    pub suggestions: Vec<String>,
    /// The request to the model: `messages`, `model`, `temperature` and any other members.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub llm_request: Option<FreeForm>,
    /// The response of the model: `model`, `usage` and any other members.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub llm_response: Option<FreeForm>,
    /// Why the fetch of suggestions failed. The slate may then be empty.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The version of the prompt or node that made the slate.
    #[serde(skip_serializing_if = "OptionalName::is_none")]
    pub suggestion_node_version: OptionalName,
    /// The name of the agent session that the record belongs to. Erasing the session erases the record.
    #[serde(skip_serializing_if = "OptionalName::is_none")]
    pub session_name: OptionalName,
    /// The server that the session runs on.
    #[serde(skip_serializing_if = "OptionalName::is_none")]
    pub server_name: OptionalName,
    /// The number of the block after which the client asked for suggestions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trigger_block_number: Option<i32>,
    /// The policy that ordered the slate.
    #[serde(skip_serializing_if = "OptionalName::is_none")]
    pub policy_id: OptionalName,
    /// For each suggestion, the probability from 0 to 1 with which the policy would have shown it first. The
    /// first one must be above 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub propensities: Option<Vec<f64>>,
    /// The number of blocks in the context. The default is the length of `context.blocks`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0)]
    pub context_block_count: Option<i32>,
    /// When the client requested suggestions, as Unix seconds of its clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fetch_start_ts: Option<f64>,
    /// When the slate was shown, as Unix seconds of the client's clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fetch_end_ts: Option<f64>,
    /// When the slate was created. The default is now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created_at: Option<Timestamp>,
    /// The text that the user submitted. Only a record that is already finished has this field.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub actual_input: Option<String>,
    /// The indices of the viewed suggestions. The default is the first suggestion only.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(max_items = 1_000)]
    pub viewed_indices: Option<Vec<i32>>,
    /// The number of moves through the slate. The default is one for each view after the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0)]
    pub cycle_count: Option<i32>,
    /// The index of the suggestion that was shown when the user submitted, or -1 if none was. The default is the last
    /// suggestion viewed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = -1)]
    pub displayed_index_at_submit: Option<i32>,
    /// When the user submitted, as Unix seconds of the client's clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub submit_ts: Option<f64>,
    /// The time between showing the slate and the user's submission, in milliseconds. The default is `submit_ts`
    /// minus `fetch_end_ts`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 2_147_483_647)]
    pub time_to_action_ms: Option<f64>,
    /// The number of the block that the submitted text became.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result_block_number: Option<i32>,
    /// How the submitted text matches the slate according to the client. It is stored as reported, but analytics use
    /// the server's own rule.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub match_type: Option<MatchType>,
    /// The index of the accepted suggestion according to the client. It is stored as reported, but analytics use the
    /// server's own rule.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accepted_index: Option<i32>,
}

impl NewSuggestion {
    /// Returns why the fetch of suggestions failed, if it did.
    #[must_use]
    pub fn failure(&self) -> Option<&str> {
        self.error.as_deref().filter(|error| !error.is_empty())
    }

    /// Removes every text. The suggestions can still be counted.
    pub(super) fn forget(&mut self) {
        self.context = FreeForm::default();
        self.suggestions.iter_mut().for_each(String::clear);
        self.llm_request = None;
        self.llm_response = None;
        self.error = None;
        self.actual_input.iter_mut().for_each(String::clear);
    }

    /// Returns how the record ended, if it has, as a request to finalize it would say it.
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
        const NOT_FINISHED: &str = "must be given only with actual_input";
        const OUTSIDE: &str = "is not the index of a suggestion";
        checks.name("suggestion_node_version", self.suggestion_node_version.as_deref());
        checks.name("session_name", self.session_name.as_deref());
        checks.name("server_name", self.server_name.as_deref());
        checks.name("policy_id", self.policy_id.as_deref());
        checks.count("context_block_count", self.context_block_count);
        checks.count("cycle_count", self.cycle_count);
        let count = self.suggestions.len();
        check_slate(count, self.viewed_indices.as_ref(), checks);
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

/// Finalizes a suggestion record.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = SuggestionOutcome)]
pub struct Outcome {
    /// The text that the user submitted, unchanged. A text that begins with `:` is a command, and discards
    /// the record.
    pub actual_input: String,
    /// The index of the suggestion that was shown when the user submitted, or -1 if none was. The default is the last
    /// suggestion viewed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = -1)]
    pub displayed_index_at_submit: Option<i32>,
    /// When the user submitted, as Unix seconds of the same clock as `fetch_end_ts`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub submit_ts: Option<f64>,
    /// The time between showing the slate and the user's submission, in milliseconds. The default is `submit_ts`
    /// minus `fetch_end_ts`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 2_147_483_647)]
    pub time_to_action_ms: Option<f64>,
    /// The number of the block that the submitted text became.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result_block_number: Option<i32>,
    /// The suggestions again, for a project that stores no text. Without them only an exact match can be recognized.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(max_items = 1_000)]
    pub suggestions: Option<Vec<String>>,
}

impl Outcome {
    /// Returns whether the text submitted is a command of the client, which is not what suggestions are for.
    #[must_use]
    pub fn discards(&self) -> bool {
        self.actual_input.starts_with(':')
    }

    /// Returns whether the index of the suggestion shown is -1 or below `count`.
    #[must_use]
    pub fn is_within(&self, count: usize) -> bool {
        let inside = |index: i32| index == -1 || usize::try_from(index).is_ok_and(|index| index < count);
        self.displayed_index_at_submit.is_none_or(inside)
    }
}

impl Check for Outcome {
    fn check(&self, checks: &mut Checks) {
        check_slate(self.suggestions.as_ref().map_or(0, Vec::len), None, checks);
        checks.require(
            self.time_to_action_ms.is_none_or(is_duration),
            "time_to_action_ms",
            "must be from 0 to 2147483647",
        );
        checks.require(
            self.displayed_index_at_submit.is_none_or(|index| index >= -1),
            "displayed_index_at_submit",
            "must be -1 or more",
        );
    }
}

/// Sets a field of a record that becomes known only after the user has submitted.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = SuggestionAmendment)]
pub struct Amendment {
    /// The number of the block that the submitted text became.
    pub result_block_number: i32,
}

impl Check for Amendment {}

crate::texts! {
    NewSuggestion: context, suggestions, llm_request, llm_response, error, suggestion_node_version, policy_id,
        actual_input | server_name, session_name;
    Outcome: actual_input, suggestions;
}
