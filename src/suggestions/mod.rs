//! Suggestion records (seed 000). A model offers a slate of suggestions, the user looks through it and
//! submits something, and the record is finalized by what that was. Finalized records are evidence:
//! preferences, rankings, and how well slates do.
//!
//! This file says what a record is, `requests` and `activity` what clients send about it, and `event` what
//! can happen to it. [`rules`] derives the outcome. [`write`](mod@write) and [`store`] write and read
//! records, and [`routes`] has the endpoints. [`analytics`] and [`signals`] serve figures and negative
//! signals.

pub mod activity;
pub mod analytics;
pub mod event;
pub mod exports;
mod figures;
mod grouping;
mod requests;
pub mod routes;
pub mod rules;
pub mod signals;
pub mod store;
mod tables;
pub mod write;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

pub use activity::{Names, NewPartialInput, NewPartialInputs, NewView, NewViews};
pub use event::{Action, Event, Start};
pub use requests::{Amendment, NewSuggestion, Outcome};
pub use rules::history::{HistoryLine, Reported, is_history_line};
pub use rules::matching::MatchType;
pub use rules::outcome::{Conclusion, Slate};
pub use rules::views::{Direction, View};

use crate::types::{FreeForm, Timestamp};

/// The number of positions in a slate, from the first, that have statistics and propensities. Users seldom look further.
const POSITIONS: i32 = 50;

/// A slate of suggestions and its outcome.
#[derive(Debug, Serialize, ToSchema, sqlx::FromRow)]
pub struct Suggestion {
    /// The record's id, unique within its project.
    pub id: Uuid,
    /// Whether the record is pending, finalized or discarded.
    pub state: State,
    /// The suggestions in the order in which they were offered. Null if the project stores no text.
    #[sqlx(json(nullable))]
    pub suggestions: Option<Vec<String>>,
    /// The number of suggestions.
    pub suggestion_count: i32,
    /// The version of the prompt or node that made the suggestions.
    pub suggestion_node_version: Option<String>,
    /// The name of the agent session that the record belongs to.
    pub session_name: Option<String>,
    /// The server that the session runs on.
    pub server_name: Option<String>,
    /// The number of the block after which the client asked for suggestions.
    pub trigger_block_number: Option<i32>,
    /// The number of the block that the submitted text became.
    pub result_block_number: Option<i32>,
    /// The policy that ordered the slate.
    pub policy_id: Option<String>,
    /// For each suggestion, the probability with which the policy would have shown it first.
    pub propensities: Option<Vec<f64>>,
    /// The number of blocks in the context.
    pub context_block_count: Option<i32>,
    /// The model that answered, or the requested model if the response names none.
    pub model: Option<String>,
    /// The requested temperature.
    pub temperature: Option<f64>,
    /// The number of tokens of the call, prompt and response together.
    pub total_tokens: Option<i64>,
    /// The number of tokens of the prompt.
    pub prompt_tokens: Option<i64>,
    /// The number of tokens of the response.
    pub completion_tokens: Option<i64>,
    /// Whether the fetch of suggestions failed.
    pub failed: bool,
    /// Why the fetch of suggestions failed. Null if it did not fail, or if the project stores no text.
    pub error: Option<String>,
    /// When the client requested suggestions, as Unix seconds of its clock.
    pub fetch_start_ts: Option<f64>,
    /// When the slate was shown, as Unix seconds of the client's clock.
    pub fetch_end_ts: Option<f64>,
    /// When the user submitted, as Unix seconds of the client's clock.
    pub submit_ts: Option<f64>,
    /// When the slate was created.
    pub created_at: Timestamp,
    /// When the record was finalized or discarded.
    pub completed_at: Option<Timestamp>,
    /// The indices of the viewed suggestions, in order and with repetitions. The first suggestion counts as viewed
    /// from the start.
    pub viewed_indices: Vec<i32>,
    /// The number of moves through the slate.
    pub cycle_count: i32,
    /// The index of the suggestion that was shown when the user submitted, or -1 if none was.
    #[sqlx(rename = "displayed_index")]
    pub displayed_index_at_submit: Option<i32>,
    /// The text that the user submitted. Null if the project stores no text.
    pub actual_input: Option<String>,
    /// How the submitted text matches the slate. Null while the record is pending, and if no text was kept to
    /// compare.
    pub match_type: Option<MatchType>,
    /// The index of the suggestion that the submitted text matches. Null if it matches none.
    pub accepted_index: Option<i32>,
    /// The time between showing the slate and the user's submission, in milliseconds.
    pub time_to_action_ms: Option<f64>,
    /// The parts of a record that lists, and the responses to views and partial inputs, leave out.
    #[sqlx(skip)]
    #[serde(flatten)]
    #[schema(value_type = Whole)]
    pub whole: Option<Whole>,
}

/// The parts of a record that only the whole record has.
#[derive(Debug, Default, Serialize, ToSchema, sqlx::FromRow)]
#[schema(as = SuggestionDetails)]
pub struct Whole {
    /// The context that the model was given, as it was sent.
    pub context: Option<FreeForm>,
    /// The request to the model, as it was sent.
    pub llm_request: Option<FreeForm>,
    /// The response of the model, as it was sent.
    pub llm_response: Option<FreeForm>,
    /// The outcome as the client reported it. Analytics do not use it.
    #[sqlx(json(nullable))]
    pub reported: Option<Reported>,
    /// The views, as in `viewed_indices`, with their times.
    #[sqlx(skip)]
    #[schema(required = false)]
    pub views: Vec<View>,
    /// The earlier contents of the input field, the oldest first.
    #[sqlx(skip)]
    #[schema(required = false)]
    pub partial_inputs: Vec<PartialInput>,
}

/// The content of the input field at some point in time.
#[derive(Debug, Clone, Serialize, ToSchema, sqlx::FromRow)]
pub struct PartialInput {
    /// The input's id, unique within its record.
    pub id: Uuid,
    /// The whole content of the input field. Null if the project stores no text.
    pub text: Option<String>,
    /// When the input field contained this text, if the client gave a time.
    pub at: Option<Timestamp>,
}

/// The state of a suggestion record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema, sqlx::Type)]
#[serde(rename_all = "lowercase")]
#[sqlx(type_name = "text", rename_all = "lowercase")]
#[schema(as = SuggestionState)]
pub enum State {
    /// The user has submitted nothing yet.
    Pending,
    /// The user has submitted a text.
    Finalized,
    /// The user has submitted a command; only the record's id is kept.
    Discarded,
}
