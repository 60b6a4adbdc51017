//! The seed's own line of a record, as clients append it to `suggestion_history.jsonl`.

use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use super::matching::MatchType;
use super::views::is_duration;
use crate::http::{Check, Checks};
use crate::suggestions::requests::{NewSuggestion, check_slate};
use crate::types::{FreeForm, OptionalName, Timestamp};

/// A line of `suggestion_history.jsonl`, which is a finished record. It is stored as it is, and its id is derived
/// from its bytes.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = SuggestionHistoryLine)]
pub struct HistoryLine {
    /// When the line was written, in Unix seconds.
    pub ts: Option<f64>,
    /// The name of the agent session.
    #[serde(default)]
    pub session: OptionalName,
    /// The server that the session runs on.
    #[serde(default)]
    pub server: OptionalName,
    /// The number of the block after which the client asked for suggestions.
    pub trigger_block: Option<i32>,
    /// The number of the block that the submitted text became.
    pub result_block: Option<i32>,
    /// The context that the model was given.
    pub context: FreeForm,
    /// The request to the model.
    pub llm_request: Option<FreeForm>,
    /// The response of the model.
    pub llm_response: Option<FreeForm>,
    /// The suggestions in the order in which they were offered.
    #[schema(max_items = 1_000)]
    pub suggestions: Vec<String>,
    /// The version of the prompt or node that made the suggestions.
    #[serde(default)]
    pub suggestion_node_version: OptionalName,
    /// The indices of the viewed suggestions.
    #[schema(max_items = 1_000)]
    pub viewed_indices: Option<Vec<i32>>,
    /// The number of moves through the slate.
    pub cycle_count: Option<i32>,
    /// The index of the suggestion shown when the user submitted.
    pub displayed_index_at_submit: Option<i32>,
    /// The index of the accepted suggestion, as the client reported it.
    pub accepted_index: Option<i32>,
    /// The text that the user submitted.
    pub actual_input: String,
    /// How the submitted text matches the slate, as the client reported it.
    pub match_type: Option<MatchType>,
    /// The time between showing the slate and the user's submission, in milliseconds.
    pub time_to_action_ms: Option<f64>,
    /// The number of blocks in the context.
    pub context_block_count: Option<i32>,
    /// When the client requested suggestions, as Unix seconds of its clock.
    pub fetch_start_ts: Option<f64>,
    /// When the slate was shown, as Unix seconds of the client's clock.
    pub fetch_end_ts: Option<f64>,
    /// When the user submitted, as Unix seconds of the client's clock.
    pub submit_ts: Option<f64>,
}

/// Only values that cannot be stored, and slates that are too long, are refused.
impl Check for HistoryLine {
    fn check(&self, checks: &mut Checks) {
        check_slate(self.suggestions.len(), self.viewed_indices.as_ref(), checks);
        checks.name("session", self.session.as_deref());
        checks.name("server", self.server.as_deref());
        checks.name("suggestion_node_version", self.suggestion_node_version.as_deref());
    }
}

/// The outcome as a client reported it. It is stored and returned, but analytics use the server's own rule.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
#[schema(as = ReportedOutcome)]
pub struct Reported {
    /// When the line was written, in Unix seconds.
    pub ts: Option<f64>,
    /// The indices of the viewed suggestions.
    pub viewed_indices: Option<Vec<i32>>,
    /// The number of moves through the slate.
    pub cycle_count: Option<i32>,
    /// The index of the suggestion shown when the user submitted.
    pub displayed_index_at_submit: Option<i32>,
    /// The index of the accepted suggestion.
    pub accepted_index: Option<i32>,
    /// How the submitted text matches the slate.
    pub match_type: Option<MatchType>,
    /// The time between showing the slate and the user's submission, in milliseconds.
    pub time_to_action_ms: Option<f64>,
}

impl HistoryLine {
    /// Splits the line into the record and the outcome that the client reported. Impossible values (a view of
    /// a suggestion that does not exist, a negative time) are left out of the record.
    #[must_use]
    pub fn split(self, id: Uuid) -> (NewSuggestion, Reported) {
        let count = self.suggestions.len();
        let inside = |index: &i32| usize::try_from(*index).is_ok_and(|index| index < count);
        let reported = Reported {
            ts: self.ts,
            viewed_indices: self.viewed_indices.clone(),
            cycle_count: self.cycle_count,
            displayed_index_at_submit: self.displayed_index_at_submit,
            accepted_index: self.accepted_index,
            match_type: self.match_type,
            time_to_action_ms: self.time_to_action_ms,
        };
        let new = NewSuggestion {
            id: Some(id),
            context: self.context,
            suggestions: self.suggestions,
            llm_request: self.llm_request,
            llm_response: self.llm_response,
            error: None,
            suggestion_node_version: self.suggestion_node_version,
            session_name: self.session,
            server_name: self.server,
            trigger_block_number: self.trigger_block,
            policy_id: OptionalName::default(),
            propensities: None,
            context_block_count: self.context_block_count.filter(|count| *count >= 0),
            fetch_start_ts: self.fetch_start_ts,
            fetch_end_ts: self.fetch_end_ts,
            created_at: self.ts.and_then(Timestamp::from_unix),
            actual_input: Some(self.actual_input),
            viewed_indices: self.viewed_indices.map(|viewed| viewed.into_iter().filter(inside).collect()),
            cycle_count: self.cycle_count.filter(|count| *count >= 0),
            displayed_index_at_submit: self
                .displayed_index_at_submit
                .filter(|index| *index == -1 || inside(index)),
            submit_ts: self.submit_ts,
            time_to_action_ms: self.time_to_action_ms.filter(|time| is_duration(*time)),
            result_block_number: self.result_block,
            match_type: None,
            accepted_index: None,
        };
        (new, reported)
    }
}

/// Returns whether a JSON text is such a line, by member names that no other line has.
#[must_use]
pub fn is_history_line(json: &str) -> bool {
    #[derive(Deserialize)]
    struct Names {
        ts: Option<IgnoredAny>,
        session: Option<IgnoredAny>,
        server: Option<IgnoredAny>,
        trigger_block: Option<IgnoredAny>,
        result_block: Option<IgnoredAny>,
    }
    serde_json::from_str(json).is_ok_and(|names: Names| {
        let Names { ts, session, server, trigger_block, result_block } = names;
        [ts, session, server, trigger_block, result_block].iter().any(Option::is_some)
    })
}
