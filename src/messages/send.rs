//! A send: what was asked for, what was predicted, and what became of each call.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use super::rules::errors::{Class, Kind};
use super::rules::quota::Quota;
use super::rules::trimming::{Next, Stage};
use super::settings::SendSettings;
use super::visible::Visible;
use super::{Pair, check_names, check_tokens};
use crate::http::{Check, Checks};
use crate::types::{FreeForm, OptionalName, Timestamp, names_it};

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

/// Makes a send. With `mode: record` the client makes the calls itself and reports what came of each; with `mode:
/// execute` Gleaner makes them.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewSend {
    /// Who makes the calls: `record` or `execute`.
    pub mode: AskedMode,
    /// The send's id, which makes it safe to send the request again. The server makes one if none is given.
    #[serde(skip_serializing_if = "names_it")]
    pub id: Option<Uuid>,
    /// The id of the pair that the send makes. The server makes one if none is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pair_id: Option<Uuid>,
    /// The new message. The default is that of the pair in `reask_of`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_text: Option<String>,
    /// The model. The default is that of the pair in `reask_of`, else that of the newest visible pair, else the project's
    /// `default_model`.
    #[serde(default, skip_serializing_if = "OptionalName::is_none")]
    pub model: OptionalName,
    /// The topic of the pair that the send makes. The default is that of the pair in `reask_of`.
    #[serde(default, skip_serializing_if = "OptionalName::is_none")]
    pub topic_id: OptionalName,
    /// The name of the agent session that the send belongs to. Erasing the session erases the send and its pair.
    #[serde(default, skip_serializing_if = "OptionalName::is_none")]
    pub session_id: OptionalName,
    /// The stored pairs that the user sees. If neither this nor `pairs` is given, there is no history.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub visible: Option<Visible>,
    /// The pairs that the user sees, the oldest first, sent along instead of named. Only with `mode: record`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(max_items = 10_000)]
    pub pairs: Option<Vec<GivenPair>>,
    /// A system message, which every call begins with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system: Option<String>,
    /// Settings of this send.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub settings: Option<SendSettings>,
    /// The pair in the state `error` that this send replaces.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reask_of: Option<Uuid>,
    /// Whether the answer is streamed as server-sent events. Only with `mode: execute`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stream: Option<bool>,
}

/// Who makes the calls of a send that is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = AskedSendMode)]
pub enum AskedMode {
    /// The client makes them.
    Record,
    /// Gleaner makes them.
    Execute,
}

/// A pair that is sent along.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct GivenPair {
    /// The client's name for the pair.
    #[schema(min_length = 1, max_length = 200)]
    pub id: String,
    /// What the user said.
    pub user_text: String,
    /// What the model answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub assistant_text: Option<String>,
    /// The pair's size in tokens, if it was measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 1_000_000_000)]
    pub tokens: Option<i64>,
}

impl Check for GivenPair {
    fn check(&self, checks: &mut Checks) {
        checks.text("id", &self.id, 200);
        check_tokens(checks, "tokens", self.tokens);
    }
}

/// The most pairs that a send or prediction may look at.
pub(super) const MOST_PAIRS: usize = 10_000;

/// Checks pairs that are sent along.
pub(crate) fn check_given(checks: &mut Checks, pairs: &[GivenPair]) {
    checks.require(pairs.len() <= MOST_PAIRS, "pairs", "has more than 10000 pairs");
    let mut ids = HashSet::new();
    for (index, pair) in pairs.iter().take(MOST_PAIRS).enumerate() {
        checks.nested(&format!("pairs/{index}"), pair);
        if !ids.insert(pair.id.as_str()) {
            checks.fail(&format!("pairs/{index}/id"), "a pair before it has this id");
        }
    }
}

impl Check for NewSend {
    fn check(&self, checks: &mut Checks) {
        check_names(
            checks,
            [
                ("topic_id", self.topic_id.as_deref()),
                ("session_id", self.session_id.as_deref()),
                ("model", self.model.as_deref()),
            ],
        );
        checks.require(
            self.user_text.is_some() || self.reask_of.is_some(),
            "user_text",
            "must be given, unless reask_of is",
        );
        let executes = self.mode == AskedMode::Execute;
        checks.require(
            self.pairs.is_none() || self.visible.is_none(),
            "visible",
            "must not be given with pairs",
        );
        checks.require(self.pairs.is_none() || !executes, "pairs", "is only for the mode record");
        checks.require(self.stream.is_none() || executes, "stream", "is only for the mode execute");
        check_given(checks, self.pairs.as_deref().unwrap_or_default());
        if let Some(visible) = &self.visible {
            checks.nested("visible", visible);
        }
        if let Some(settings) = &self.settings {
            checks.nested("settings", settings);
        }
    }
}

/// Reports one call of a send that the client performs.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewSendAttempt)]
pub struct NewAttempt {
    /// The call's number within the send, from 1. The default is the next one.
    #[serde(skip_serializing_if = "names_it")]
    #[schema(minimum = 1, maximum = 20_000)]
    pub attempt: Option<i32>,
    /// The pairs that were sent, the oldest first. The default is those that are left. They must be the newest of these.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(max_items = 10_000)]
    pub included_ids: Option<Vec<String>>,
    /// The error that the call ended with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<Reported>,
    /// The usage that the provider reported, in its own words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<FreeForm>,
    /// How long the call took, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0)]
    pub latency_ms: Option<i32>,
    /// When the call ended. The default is now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
}

impl Check for NewAttempt {
    fn check(&self, checks: &mut Checks) {
        let fits = self.attempt.is_none_or(|number| (1..=20_000).contains(&number));
        checks.require(fits, "attempt", "must be from 1 to 20000");
        let ids = self.included_ids.as_ref().map_or(0, Vec::len);
        checks.require(ids <= MOST_PAIRS, "included_ids", "has more than 10000 ids");
        checks.count("latency_ms", self.latency_ms);
        if let Some(error) = &self.error {
            checks.nested("error", error);
        }
    }
}

/// An error as a provider, or its client, reported it.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = ReportedError)]
pub struct Reported {
    /// The provider, such as `openai`.
    #[serde(default, skip_serializing_if = "OptionalName::is_none")]
    pub provider: OptionalName,
    /// The HTTP status.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 100, maximum = 599)]
    pub status: Option<u16>,
    /// The code or type that the provider gave.
    #[serde(default, skip_serializing_if = "OptionalName::is_none")]
    pub code: OptionalName,
    /// The body, or whatever text there is.
    pub message: String,
}

impl Reported {
    /// Makes the error of a text alone.
    pub(super) fn said(message: String) -> Self {
        Self { provider: OptionalName::default(), status: None, code: OptionalName::default(), message }
    }
}

impl Check for Reported {
    fn check(&self, checks: &mut Checks) {
        check_names(checks, [("provider", self.provider.as_deref()), ("code", self.code.as_deref())]);
        let fits = self.status.is_none_or(|status| (100..=599).contains(&status));
        checks.require(fits, "status", "must be from 100 to 599");
    }
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

/// Ends a send that the client performs: with an answer, or with an error.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = SendOutcome)]
pub struct Outcome {
    /// What the model answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub assistant_text: Option<String>,
    /// The usage that the provider reported, in its own words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<FreeForm>,
    /// Why the model stopped.
    #[serde(default, skip_serializing_if = "OptionalName::is_none")]
    pub finish_reason: OptionalName,
    /// The error that the send ended with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<Reported>,
}

impl Check for Outcome {
    fn check(&self, checks: &mut Checks) {
        let one = self.assistant_text.is_some() != self.error.is_some();
        checks.require(one, "assistant_text", "either this or error must be given");
        check_names(checks, [("finish_reason", self.finish_reason.as_deref())]);
        if let Some(error) = &self.error {
            checks.nested("error", error);
        }
    }
}

/// Cancels a send.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
#[schema(as = SendCancellation)]
pub struct Cancellation {
    /// Why the send is cancelled. The default is `user`.
    pub reason: Option<CancelReason>,
}

impl Check for Cancellation {}

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
    NewSend: user_text, model, topic_id, session_id, pairs, system;
    GivenPair: user_text, assistant_text;
    NewAttempt: error, usage;
    Reported: provider, code, message;
    SendError: message, label;
}
