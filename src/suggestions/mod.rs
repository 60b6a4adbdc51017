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

/// A slate of suggestions, and what became of it.
#[derive(Debug, Serialize, ToSchema, sqlx::FromRow)]
pub struct Suggestion {
    /// The record's id, unique within its project.
    pub id: Uuid,
    /// Whether the record is pending, finalized or discarded.
    pub state: State,
    /// The suggestions in the order offered. Null if the project keeps no text.
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
    /// The model that answered, or else the one asked for.
    pub model: Option<String>,
    /// The temperature asked for.
    pub temperature: Option<f64>,
    /// The number of tokens of the call, prompt and response together.
    pub total_tokens: Option<i64>,
    /// The number of tokens of the prompt.
    pub prompt_tokens: Option<i64>,
    /// The number of tokens of the response.
    pub completion_tokens: Option<i64>,
    /// Whether the fetch of suggestions failed.
    pub failed: bool,
    /// Why the fetch of suggestions failed. Null if it did not, and if the project keeps no text.
    pub error: Option<String>,
    /// When the client asked for suggestions, in seconds of its clock.
    pub fetch_start_ts: Option<f64>,
    /// When the slate was shown, in seconds of the client's clock.
    pub fetch_end_ts: Option<f64>,
    /// When the user submitted, in seconds of the client's clock.
    pub submit_ts: Option<f64>,
    /// When the slate was made.
    pub created_at: Timestamp,
    /// When the record was finalized or discarded.
    pub completed_at: Option<Timestamp>,
    /// The indices of the suggestions viewed, in order, with repetitions. The first suggestion is shown
    /// without a move.
    pub viewed_indices: Vec<i32>,
    /// The number of moves through the slate.
    pub cycle_count: i32,
    /// The index of the suggestion shown when the user submitted, or -1 for none.
    #[sqlx(rename = "displayed_index")]
    pub displayed_index_at_submit: Option<i32>,
    /// The text that the user submitted. Null if the project keeps no text.
    pub actual_input: Option<String>,
    /// How the text submitted relates to the slate. Null while the record is pending, and if no text was kept
    /// to compare.
    pub match_type: Option<MatchType>,
    /// The index of the suggestion that the text submitted relates to. Null if it relates to none.
    pub accepted_index: Option<i32>,
    /// The time from showing the slate until the user submitted, in milliseconds.
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
    /// The suggestions viewed, as in `viewed_indices`, with times.
    #[sqlx(skip)]
    #[schema(required = false)]
    pub views: Vec<View>,
    /// What the input contained before the user submitted, oldest first.
    #[sqlx(skip)]
    #[schema(required = false)]
    pub partial_inputs: Vec<PartialInput>,
}

/// The content of the input at some moment.
#[derive(Debug, Clone, Serialize, ToSchema, sqlx::FromRow)]
pub struct PartialInput {
    /// The input's id, unique within its record.
    pub id: Uuid,
    /// The whole content of the input. Null if the project keeps no text.
    pub text: Option<String>,
    /// When the input contained this text, if the client said so.
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
