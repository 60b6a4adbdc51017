//! A send: what was asked for, what was predicted, and what became of each call.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use super::Pair;
use super::rules::errors::{Class, Kind};
use super::rules::quota::Quota;
use super::rules::trimming::{Next, Stage};
use crate::types::{FreeForm, Timestamp};

/// A send: a new message with the history that fits, and what became of it. Figures that begin with `predicted` do not
/// change during a send; those that begin with `attempt` are of the latest call and only ever shrink.
#[derive(Debug, Serialize, ToSchema)]
pub struct Send {
    /// The send's id, unique within its project.
    pub id: Uuid,
    /// The pair that the send has made. Null if the pair was erased.
    pub pair_id: Option<Uuid>,
    /// Who makes the calls.
    pub mode: Mode,
    /// The state of the send.
    pub state: State,
    /// What the latest call was, or what the send is doing.
    pub stage: Stage,
    /// The model.
    pub model: String,
    /// The topic of the pair.
    pub topic_id: Option<String>,
    /// The name of the agent session that the send belongs to.
    pub session_id: Option<String>,
    /// The limits that the prediction went by. Null for a send through the gateway, which asks for none.
    pub budget: Option<SendBudget>,
    /// The pairs that were predicted to fit, the oldest first.
    pub selection: Vec<Selected>,
    /// The number of visible pairs.
    pub visible_count: i32,
    /// The stored pairs that were visible, the oldest first. Lists leave them out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub visible: Option<Vec<Uuid>>,
    /// The number of pairs that were predicted to fit.
    pub predicted_message_count: i32,
    /// The size of the pairs that fit, in tokens.
    pub predicted_history_tokens: i64,
    /// The size of the pairs that fit and of what is set aside for the new message, in tokens.
    pub predicted_total_tokens: i64,
    /// The size of the pairs of the latest call.
    pub attempt_history_tokens: i64,
    /// The size of the pairs of the call and of the new message, in tokens.
    pub attempt_total_tokens: i64,
    /// The size of the new message, in tokens (actual user tokens).
    pub aut: i64,
    /// The size of the system message, which comes on top.
    pub system_tokens: i64,
    /// How many of the predicted pairs were dropped.
    pub trimmed_count: i32,
    /// How many of the predicted pairs are left.
    pub sent_count: i32,
    /// How many calls were made.
    pub attempts_used: i32,
    /// How many characters are a token of this model: as given, or as the texts of this send come to. Null if there are
    /// none.
    pub chars_per_token: Option<f64>,
    /// The model's limit less the history and the new message. It may be negative.
    pub remaining_reserve: Option<i64>,
    /// The message of the latest error.
    pub last_error_message: Option<String>,
    /// Whether the latest error said that the context overflows. Null if there was none.
    pub overflow_matched: Option<bool>,
    /// The error that the send ended with.
    pub error: Option<SendError>,
    /// The size of the request of the last call, in tokens, once the send has ended.
    pub final_delivered_tokens: Option<i64>,
    /// The pairs that were dropped, the oldest first. An erased pair is null.
    pub trimming_removed_ids: Vec<Option<String>>,
    /// The size of these pairs.
    pub trimming_removed_tokens: i64,
    /// What people are told about the pairs that were dropped.
    pub trim_summary: Option<String>,
    /// `12 / 34`: 12 of 34 visible pairs fit; `[12-1]/34`: one of them was dropped.
    pub counter: String,
    /// The quotas of the model when the send was made.
    #[schema(value_type = Option<std::collections::BTreeMap<String, super::rules::quota::Use>>)]
    pub quota: Option<Quota>,
    /// The usage that the provider reported.
    pub usage: Option<FreeForm>,
    /// Why the model stopped.
    pub finish_reason: Option<String>,
    /// The pair in the state `error` that this send replaced.
    pub reask_of: Option<Uuid>,
    /// The generation log of which the answer is an attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generation_id: Option<Uuid>,
    /// What the send was made of, of a send that failed.
    pub snapshot: Option<Snapshot>,
    /// When the send was made.
    pub created_at: Timestamp,
    /// When the send ended.
    pub completed_at: Option<Timestamp>,
    /// The messages of the latest call, or those to be sent first. Lists leave them out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub messages: Option<Vec<FreeForm>>,
    /// The calls, in order. Lists leave them out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempts: Option<Vec<Attempt>>,
    /// The pair that the send has made. Lists leave it out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pair: Option<Pair>,
}

/// Who makes the calls of a send.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema, sqlx::Type)]
#[serde(rename_all = "lowercase")]
#[sqlx(type_name = "text", rename_all = "lowercase")]
#[schema(as = SendMode)]
pub enum Mode {
    /// The client makes them, and reports what came of each.
    Record,
    /// Gleaner makes them.
    Execute,
    /// The client made one through the gateway.
    Gateway,
}

/// The state of a send.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema, sqlx::Type)]
#[serde(rename_all = "lowercase")]
#[sqlx(type_name = "text", rename_all = "lowercase")]
#[schema(as = SendState)]
pub enum State {
    /// It is under way.
    Sending,
    /// The model has answered.
    Complete,
    /// It failed, or was cancelled.
    Error,
}

/// The limits that a prediction went by.
#[derive(Debug, Clone, Copy, Serialize, ToSchema)]
pub struct SendBudget {
    /// The model's limit: the smaller of its context window and its tokens per minute.
    pub max_context: i64,
    /// How many tokens of the limit are left for history, beside the allowance for the new message and the system
    /// message.
    pub max_usable_raw: i64,
}

/// A pair that was predicted to fit.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = SelectedPair)]
pub struct Selected {
    /// The pair's id. Null if the pair was erased.
    pub id: Option<String>,
    /// The pair's model.
    pub model: Option<String>,
    /// The pair's size in tokens, measured or estimated.
    pub tokens: i64,
}

/// What a send that failed was made of.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = SendSnapshot)]
pub struct Snapshot {
    /// The pairs of the last call, the oldest first. An erased pair is null.
    pub included_pair_ids: Vec<Option<String>>,
    /// The new message. Null if the pair was erased, and if the project keeps no text.
    pub outgoing_user_text: Option<String>,
}

/// Why a send has no answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SendError {
    /// The class of the error, which people are shown.
    pub class: Class,
    /// The kind.
    pub kind: Kind,
    /// What the provider said. Null if the project keeps no text.
    pub message: Option<String>,
    /// A short text to show to people.
    pub label: String,
    /// After how many seconds the provider says that it may be tried again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_s: Option<i64>,
    /// Why the send was cancelled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<CancelReason>,
}

/// One call of the provider.
#[derive(Debug, Serialize, ToSchema, sqlx::FromRow)]
#[schema(as = SendAttempt)]
pub struct Attempt {
    /// The call's number within the send, from 1.
    pub attempt: i32,
    /// What the call was.
    pub stage: Stage,
    /// How many pairs had been dropped before the call.
    pub trimmed_count: i32,
    /// The size of the pairs of the call.
    pub attempt_history_tokens: i64,
    /// The size of the pairs of the call and of the new message, in tokens.
    pub attempt_total_tokens: i64,
    /// The error that the call ended with.
    #[sqlx(json(nullable))]
    pub error: Option<SendError>,
    /// The usage that the provider reported.
    #[sqlx(default)]
    pub usage: Option<FreeForm>,
    /// How long the call took, in milliseconds.
    pub latency_ms: Option<i32>,
    /// When the call ended.
    pub at: Timestamp,
}

/// What follows from a call.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = SendAttemptAnswer)]
pub struct AttemptAnswer {
    /// The call, as it is kept.
    #[serde(flatten)]
    pub attempt: Attempt,
    /// What the client does next.
    pub next: Next,
    /// The pairs that are left to send, the oldest first. An erased pair is null.
    pub included_ids: Vec<Option<String>>,
    /// `12 / 34`: 12 of 34 visible pairs fit; `[12-1]/34`: one of them was dropped.
    pub counter: String,
}

/// Why a send was cancelled.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum CancelReason {
    /// The user did not want it any more.
    #[default]
    User,
    /// The user sees other pairs by now.
    FilterChanged,
    /// The client closed the connection.
    ClientGone,
}

crate::texts! {
    SendError: message, label;
}
