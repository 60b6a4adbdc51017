//! The bodies of requests about sends: to create one, to report its calls, and to end or cancel it.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use super::send::CancelReason;
use super::settings::SendSettings;
use super::visible::Visible;
use super::{check_names, check_tokens};
use crate::http::{Check, Checks};
use crate::types::{FreeForm, OptionalName, Timestamp, names_it};

/// Creates a send. With `mode: record`, the client calls the provider and reports the result of each call. With
/// `mode: execute`, Gleaner calls the provider.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewSend {
    /// Who calls the provider: the client (`record`) or Gleaner (`execute`).
    pub mode: AskedMode,
    /// The send's id, which makes it safe to send the request again. By default, the server chooses one.
    #[serde(skip_serializing_if = "names_it")]
    pub id: Option<Uuid>,
    /// The id of the pair that the send creates. By default, the server chooses one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pair_id: Option<Uuid>,
    /// The new message. The default is the message of the pair in `reask_of`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_text: Option<String>,
    /// The model. The default is the model of the pair in `reask_of`, or of the newest visible pair, or the project's
    /// `default_model`.
    #[serde(default, skip_serializing_if = "OptionalName::is_none")]
    pub model: OptionalName,
    /// The topic of the pair that the send creates. The default is the topic of the pair in `reask_of`.
    #[serde(default, skip_serializing_if = "OptionalName::is_none")]
    pub topic_id: OptionalName,
    /// The name of the agent session that the send belongs to. Erasing the session erases the send and its pair. The
    /// default is the session of the pair in `reask_of`.
    #[serde(default, skip_serializing_if = "OptionalName::is_none")]
    pub session_id: OptionalName,
    /// The stored pairs that are visible. Without this field and `pairs`, there is no history.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub visible: Option<Visible>,
    /// The visible pairs, the oldest first, for a client that does not store them in Gleaner. Allowed only with
    /// `mode: record`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(max_items = 10_000)]
    pub pairs: Option<Vec<GivenPair>>,
    /// A system message that every call begins with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system: Option<String>,
    /// Settings of this send.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub settings: Option<SendSettings>,
    /// The id of a pair in the state `error` that this send replaces.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reask_of: Option<Uuid>,
    /// Whether the response is streamed as server-sent events. Allowed only with `mode: execute`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stream: Option<bool>,
}

impl NewSend {
    /// Returns whether the send has to do with pairs that are stored. The texts of these are in its messages.
    #[must_use]
    pub fn shows_pairs(&self) -> bool {
        self.visible.is_some() || self.reask_of.is_some()
    }
}

/// Who calls the provider for a new send.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = AskedSendMode)]
pub enum AskedMode {
    /// The client makes them.
    Record,
    /// Gleaner makes them.
    Execute,
}

/// A message pair in the request body.
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

/// The maximum number of pairs that a send or prediction may look at.
pub(super) const MOST_PAIRS: usize = 10_000;

/// Checks the pairs in a request.
pub(crate) fn check_given(checks: &mut Checks, pairs: &[GivenPair]) {
    checks.require(pairs.len() <= MOST_PAIRS, "pairs", "has more than 10000 pairs");
    let mut ids = HashSet::new();
    for (index, pair) in pairs.iter().take(MOST_PAIRS).enumerate() {
        checks.nested(&format!("pairs/{index}"), pair);
        if !ids.insert(pair.id.as_str()) {
            checks.fail(&format!("pairs/{index}/id"), "an earlier pair has the same id");
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
            "must be given unless reask_of is",
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

/// Reports one provider call of a send with `mode: record`.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewSendAttempt)]
pub struct NewAttempt {
    /// The call's number within the send, from 1. The default is the next number.
    #[serde(skip_serializing_if = "names_it")]
    #[schema(minimum = 1, maximum = 20_000)]
    pub attempt: Option<i32>,
    /// The ids of the pairs that were sent, the oldest first. The default is all pairs that are left. They must be
    /// the newest of these.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(max_items = 10_000)]
    pub included_ids: Option<Vec<String>>,
    /// The error that the call ended with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<Reported>,
    /// The usage as the provider reported it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<FreeForm>,
    /// How long the call took, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0)]
    pub latency_ms: Option<i32>,
    /// When the call ended. The default is now, which also replaces a time in the future.
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

/// An error as a provider or its client library reported it.
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
    /// The body of the error, or its message. Its first 8 KiB decide what it means.
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

/// Ends a send with `mode: record`, with an answer or with an error.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = SendOutcome)]
pub struct Outcome {
    /// What the model answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub assistant_text: Option<String>,
    /// The usage as the provider reported it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<FreeForm>,
    /// Why the model stopped. An answer is in the data set `conversations` only if the model ended it by itself: if this is `stop`,
    /// `end_turn`, `stop_sequence`, `completed`, `complete`, `done`, `eos` or the like, or is not given. Others are cut off or
    /// withheld, as with `length`, `max_tokens`, `content_filter` and `refusal`.
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

crate::texts! {
    NewSend: user_text, model, pairs, system, visible | topic_id, session_id;
    GivenPair: id, user_text, assistant_text;
    NewAttempt: included_ids, error, usage;
    Reported: provider, code, message;
}
