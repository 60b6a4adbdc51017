//! The seed's own line of a record, as clients append it to `suggestion_history.jsonl`.

use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use super::matching::MatchType;
use crate::http::{Check, Checks};
use crate::suggestions::requests::NewSuggestion;
use crate::types::{FreeForm, Timestamp};

/// A line of `suggestion_history.jsonl`: a finished record. It is taken as it is; its id is derived from its bytes.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = SuggestionHistoryLine)]
pub struct HistoryLine {
    /// When it was written, in seconds.
    pub ts: Option<f64>,
    /// The agent session.
    pub session: Option<String>,
    /// The server it runs on.
    pub server: Option<String>,
    /// The block whose end made the client ask.
    pub trigger_block: Option<i32>,
    /// The block that the input became.
    pub result_block: Option<i32>,
    /// What the model was told of.
    pub context: FreeForm,
    /// What it was asked.
    pub llm_request: Option<FreeForm>,
    /// What it answered.
    pub llm_response: Option<FreeForm>,
    /// The texts offered.
    pub suggestions: Vec<String>,
    /// Version of the prompt or node that made them.
    pub suggestion_node_version: Option<String>,
    /// Which were looked at.
    pub viewed_indices: Option<Vec<i32>>,
    /// How many moves there were.
    pub cycle_count: Option<i32>,
    /// Which was showing at the submit.
    pub displayed_index_at_submit: Option<i32>,
    /// Which was picked, as the client saw it.
    pub accepted_index: Option<i32>,
    /// What the user submitted.
    pub actual_input: String,
    /// How that relates to the slate, as the client saw it.
    pub match_type: Option<MatchType>,
    /// From the slate's coming up to the submit.
    pub time_to_action_ms: Option<f64>,
    /// How many blocks the context has.
    pub context_block_count: Option<i32>,
    /// When the client asked, in seconds of its clock.
    pub fetch_start_ts: Option<f64>,
    /// When the slate came up, likewise.
    pub fetch_end_ts: Option<f64>,
    /// When the user submitted, likewise.
    pub submit_ts: Option<f64>,
}

/// Names can be as empty as the client left them; only what no index can hold is refused.
impl Check for HistoryLine {
    fn check(&self, checks: &mut Checks) {
        for (field, name) in [
            ("session", &self.session),
            ("server", &self.server),
            ("suggestion_node_version", &self.suggestion_node_version),
        ] {
            checks.name(field, name.as_deref().filter(|name| !name.is_empty()));
        }
    }
}

/// What a client reported of an outcome that we judge by our own rule: kept, and given back.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
#[schema(as = ReportedOutcome)]
pub struct Reported {
    /// When the line was written, in seconds.
    pub ts: Option<f64>,
    /// Which suggestions were looked at.
    pub viewed_indices: Option<Vec<i32>>,
    /// How many moves there were.
    pub cycle_count: Option<i32>,
    /// Which was showing at the submit.
    pub displayed_index_at_submit: Option<i32>,
    /// Which was picked.
    pub accepted_index: Option<i32>,
    /// How the input relates to the slate.
    pub match_type: Option<MatchType>,
    /// From the slate's coming up to the submit.
    pub time_to_action_ms: Option<f64>,
}

impl HistoryLine {
    /// The record, and what the line reports of it. Where that is impossible (a view of a suggestion that is not there, a
    /// negative time), the record goes without.
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
            suggestion_node_version: self.suggestion_node_version,
            session_name: self.session,
            server_name: self.server,
            trigger_block_number: self.trigger_block,
            policy_id: None,
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
            time_to_action_ms: self.time_to_action_ms.filter(|time| *time >= 0.0),
            result_block_number: self.result_block,
            match_type: None,
            accepted_index: None,
        };
        (new, reported)
    }
}

/// Whether a JSON text is such a line, by the names that only it has.
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
