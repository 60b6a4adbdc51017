//! A send: the request, the prediction, and the result of each call.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use super::Pair;
use super::rules::errors::{Class, Kind, label};
use super::rules::quota::Quota;
use super::rules::trimming::{Next, Stage};
use crate::privacy::redact::{Redaction, Texts};
use crate::types::{FreeForm, Timestamp};

/// A send: a new message with the history that fits, and its outcome. Fields that begin with `predicted` do not
/// change during a send. Fields that begin with `attempt` describe the latest call, and their values can only
/// decrease.
#[derive(Debug, Serialize, ToSchema)]
pub struct Send {
    /// The send's id, unique within its project.
    pub id: Uuid,
    /// The id of the pair that the send created. Null if the pair was erased.
    pub pair_id: Option<Uuid>,
    /// Who calls the provider.
    pub mode: Mode,
    /// The state of the send.
    pub state: State,
    /// The stage of the latest call, or the current stage of the send.
    pub stage: Stage,
    /// The model.
    pub model: String,
    /// The topic of the pair.
    pub topic_id: Option<String>,
    /// The name of the agent session that the send belongs to.
    pub session_id: Option<String>,
    /// The limits that the prediction used. Null for a send through the gateway, which makes no prediction.
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
    /// The size of the pairs that fit plus the allowance for the new message, in tokens.
    pub predicted_total_tokens: i64,
    /// The size of the pairs in the latest call, in tokens.
    pub attempt_history_tokens: i64,
    /// The size of the pairs in the call plus the new message, in tokens.
    pub attempt_total_tokens: i64,
    /// The size of the new message, in tokens (`aut` stands for actual user tokens).
    pub aut: i64,
    /// The size of the system message, in tokens, which is not included in the other sizes.
    pub system_tokens: i64,
    /// The number of predicted pairs that were dropped.
    pub trimmed_count: i32,
    /// The number of predicted pairs that are left.
    pub sent_count: i32,
    /// The number of calls.
    pub attempts_used: i32,
    /// The number of characters per token, either as given or as an average over the texts of this send. Null if
    /// there are no texts.
    pub chars_per_token: Option<f64>,
    /// The model's limit minus the history and the new message, in tokens. It may be negative.
    pub remaining_reserve: Option<i64>,
    /// The message of the latest error.
    pub last_error_message: Option<String>,
    /// Whether the latest error said that the context was too long. Null if there was no error.
    pub overflow_matched: Option<bool>,
    /// The error that the send ended with.
    pub error: Option<SendError>,
    /// The size of the request of the last call, in tokens, once the send has ended.
    pub final_delivered_tokens: Option<i64>,
    /// The ids of the dropped pairs, the oldest first. The id of an erased pair is null.
    pub trimming_removed_ids: Vec<Option<String>>,
    /// The size of the dropped pairs, in tokens.
    pub trimming_removed_tokens: i64,
    /// A short text for users about the dropped pairs.
    pub trim_summary: Option<String>,
    /// A short text for users: `12 / 34` means that 12 of 34 visible pairs fit, and `[12-1]/34` that one of these was
    /// dropped.
    pub counter: String,
    /// The quotas of the model when the send was created.
    #[schema(value_type = Option<std::collections::BTreeMap<String, super::rules::quota::Use>>)]
    pub quota: Option<Quota>,
    /// The usage that the provider reported.
    pub usage: Option<FreeForm>,
    /// Why the model stopped.
    pub finish_reason: Option<String>,
    /// The id of the pair in the state `error` that this send replaced.
    pub reask_of: Option<Uuid>,
    /// The id of the generation log in which the answer is an attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generation_id: Option<Uuid>,
    /// The content of a failed send.
    pub snapshot: Option<Snapshot>,
    /// When the send was made.
    pub created_at: Timestamp,
    /// When the send ended.
    pub completed_at: Option<Timestamp>,
    /// The messages of the latest call, or of the first call if there was none yet. Lists leave them out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub messages: Option<Vec<FreeForm>>,
    /// The calls, in order. Lists leave them out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempts: Option<Vec<Attempt>>,
    /// The pair that the send created. Lists leave it out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pair: Option<Pair>,
}

/// Who calls the provider for a send.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema, sqlx::Type)]
#[serde(rename_all = "lowercase")]
#[sqlx(type_name = "text", rename_all = "lowercase")]
#[schema(as = SendMode)]
pub enum Mode {
    /// The client calls the provider and reports the result of each call.
    Record,
    /// Gleaner makes them.
    Execute,
    /// The client called the provider through the gateway.
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

/// The limits that a prediction used.
#[derive(Debug, Clone, Copy, Serialize, ToSchema)]
pub struct SendBudget {
    /// The model's limit in tokens: the smaller of its context window and its tokens per minute.
    pub max_context: i64,
    /// The number of tokens that are left for history after the allowance for the new message and the system message
    /// are subtracted from the limit.
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

/// The content of a failed send.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = SendSnapshot)]
pub struct Snapshot {
    /// The ids of the pairs in the last call, the oldest first. The id of an erased pair is null.
    pub included_pair_ids: Vec<Option<String>>,
    /// The new message. Null if the pair was erased, or if the project stores no text.
    pub outgoing_user_text: Option<String>,
}

/// Why a send has no answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SendError {
    /// The class of the error.
    pub class: Class,
    /// The kind of the error.
    pub kind: Kind,
    /// The provider's error message. Null if the project stores no text, or if the pair was erased.
    pub message: Option<String>,
    /// A short text to show to users.
    pub label: String,
    /// The number of seconds after which the provider allows another try.
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
    /// The stage of the call.
    pub stage: Stage,
    /// The number of pairs that had been dropped before the call.
    pub trimmed_count: i32,
    /// The size of the pairs in the call, in tokens.
    pub attempt_history_tokens: i64,
    /// The size of the pairs in the call plus the new message, in tokens.
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

/// A call and what the client should do next.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = SendAttemptAnswer)]
pub struct AttemptAnswer {
    /// The call as it is stored.
    #[serde(flatten)]
    pub attempt: Attempt,
    /// What the client should do next.
    pub next: Next,
    /// The ids of the pairs that are left to send, the oldest first. The id of an erased pair is null.
    pub included_ids: Vec<Option<String>>,
    /// A short text for users: `12 / 34` means that 12 of 34 visible pairs fit, and `[12-1]/34` that one of these was
    /// dropped.
    pub counter: String,
}

/// Why a send was cancelled.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum CancelReason {
    /// The user cancelled the send.
    #[default]
    User,
    /// The user sees other pairs by now.
    FilterChanged,
    /// The client closed the connection.
    ClientGone,
}

impl Texts for SendError {
    fn texts(&mut self, redaction: &mut Redaction<'_>) {
        self.message.texts(redaction);
        match &self.message {
            // The label is short, and may have cut a secret off.
            Some(message) => self.label = label(self.class, message),
            None => self.label.texts(redaction),
        }
    }
}
