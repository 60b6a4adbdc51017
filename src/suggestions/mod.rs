//! Suggestion records (seed 000): a model offers a slate, the user looks through it and submits something, and the record
//! is finalized by what that was. What was finalized is evidence: preferences, rankings, and how well slates do.
//!
//! Here is what a record is, in `requests` and `moves` what clients send of it, in `history` the seed's own line of one, in
//! `event` what can happen to it; [`matching`] and
//! [`viewing`] are the rules, `conclusion` what follows from them; [`store`] and [`write`](mod@write) are how records
//! are kept, [`routes`] how they are reached, [`analytics`] and [`signals`] what they serve besides exports.

pub mod activity;
pub mod analytics;
pub mod event;
pub mod exports;
mod figures;
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
    /// Names the record in its project.
    pub id: Uuid,
    /// How far it is.
    pub state: State,
    /// The texts offered, in order; null where no text is kept.
    #[sqlx(json(nullable))]
    pub suggestions: Option<Vec<String>>,
    /// How many there are.
    pub suggestion_count: i32,
    /// Version of the prompt or node that made them.
    pub suggestion_node_version: Option<String>,
    /// The agent session it belongs to.
    pub session_name: Option<String>,
    /// The server that session runs on.
    pub server_name: Option<String>,
    /// The block whose end made the client ask.
    pub trigger_block_number: Option<i32>,
    /// The block that the submitted input became.
    pub result_block_number: Option<i32>,
    /// The policy that ordered the slate.
    pub policy_id: Option<String>,
    /// The probability with which it would have shown each suggestion first.
    pub propensities: Option<Vec<f64>>,
    /// How many blocks the context has.
    pub context_block_count: Option<i32>,
    /// The model that answered, else the one asked.
    pub model: Option<String>,
    /// What it was asked to answer with.
    pub temperature: Option<f64>,
    /// Tokens of the call, both ways.
    pub total_tokens: Option<i64>,
    /// When the client asked, in seconds of its clock.
    pub fetch_start_ts: Option<f64>,
    /// When the slate came up, likewise.
    pub fetch_end_ts: Option<f64>,
    /// When the user submitted, likewise.
    pub submit_ts: Option<f64>,
    /// When the slate was made.
    pub created_at: Timestamp,
    /// When the record was finalized or discarded.
    pub completed_at: Option<Timestamp>,
    /// Which suggestions were looked at, in order, with repetitions; the first one comes up by itself.
    pub viewed_indices: Vec<i32>,
    /// How many moves through the slate there were.
    pub cycle_count: i32,
    /// Which one was showing at the submit; -1: none.
    #[sqlx(rename = "displayed_index")]
    pub displayed_index_at_submit: Option<i32>,
    /// What the user submitted; null where no text is kept.
    pub actual_input: Option<String>,
    /// How that relates to the slate; null while the record is pending, and where no text was kept to tell from.
    pub match_type: Option<MatchType>,
    /// To which suggestion it relates; null where to none.
    pub accepted_index: Option<i32>,
    /// From the slate's coming up to the submit, in milliseconds.
    pub time_to_action_ms: Option<f64>,
    /// What lists, and the answers to views and partial inputs, leave out.
    #[sqlx(skip)]
    #[serde(flatten)]
    pub whole: Option<Whole>,
}

/// What only the whole record has.
#[derive(Debug, Default, Serialize, ToSchema, sqlx::FromRow)]
#[schema(as = SuggestionDetails)]
pub struct Whole {
    /// What the model was told of, as sent.
    pub context: Option<FreeForm>,
    /// What it was asked, as sent.
    pub llm_request: Option<FreeForm>,
    /// What it answered, as sent.
    pub llm_response: Option<FreeForm>,
    /// What the client itself made of the outcome, where it said so; figures do not use it.
    #[sqlx(json(nullable))]
    pub reported: Option<Reported>,
    /// `viewed_indices` with times.
    #[sqlx(skip)]
    #[schema(required = false)]
    pub views: Vec<View>,
    /// What stood in the input on the way, oldest first.
    #[sqlx(skip)]
    #[schema(required = false)]
    pub partial_inputs: Vec<PartialInput>,
}

/// What stood in the input at some moment.
#[derive(Debug, Clone, Serialize, ToSchema, sqlx::FromRow)]
pub struct PartialInput {
    /// Names it in its record.
    pub id: Uuid,
    /// All of it.
    pub text: Option<String>,
    /// When, where the client said so.
    pub at: Option<Timestamp>,
}

/// How far a record is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema, sqlx::Type)]
#[serde(rename_all = "lowercase")]
#[sqlx(type_name = "text", rename_all = "lowercase")]
#[schema(as = SuggestionState)]
pub enum State {
    /// Nothing was submitted yet.
    Pending,
    /// Something was.
    Finalized,
    /// A command was; nothing but the name is kept.
    Discarded,
}
