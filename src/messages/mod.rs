//! Messages (seed 003). A chat is stored as message pairs: a user's message and the model's answer. A send takes
//! pairs and a new message to a model. Which pairs fit is predicted first, pairs are dropped only if the provider
//! reports that the context is too long, and every call is recorded.
//!
//! This file defines pairs, `send` sends, `requests` the bodies of requests, and `event` the events of both.
//! [`write`](mod@write) and [`store`] write and read them, [`prediction`] finds what fits among [`candidates`],
//! [`payload`] makes the messages, [`perform`] sends them, and [`rules`] has what follows without a database.
//! [`passed`] is a request to the gateway. [`models`] stores the limits of models, [`lease`] ends abandoned sends,
//! and [`analytics`] has the statistics.

pub mod analytics;
pub mod begun;
pub mod candidates;
pub mod event;
pub mod exports;
pub mod failure;
pub mod in_flight;
mod learning;
pub mod lease;
pub mod models;
pub mod passed;
pub mod payload;
pub mod perform;
pub mod prediction;
mod refusals;
mod requests;
pub mod routes;
pub mod rules;
mod send;
pub mod settings;
pub mod store;
mod tables;
mod usage;
pub mod visible;
pub mod write;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

pub use event::{Action, Event};
pub(crate) use requests::check_given;
pub use requests::{AskedMode, Cancellation, GivenPair, NewAttempt, NewSend, Outcome, Reported};
pub use send::{
    Attempt, AttemptAnswer, CancelReason, Mode, Selected, Send, SendBudget, SendError, Snapshot, State,
};
pub use usage::{Tokens, tokens_of};

use crate::http::{Check, Checks};
use crate::types::{FreeForm, OptionalName, Timestamp, names_it};

/// A message pair: what a user said, and what the model answered.
#[derive(Debug, Clone, Serialize, ToSchema, sqlx::FromRow)]
pub struct Pair {
    /// The pair's id, unique within its project.
    pub id: Uuid,
    /// The topic of the pair. A topic is the client's own name for a conversation.
    pub topic_id: Option<String>,
    /// The name of the agent session that the pair belongs to.
    pub session_id: Option<String>,
    /// The model that answered or will answer.
    pub model: Option<String>,
    /// What the user said. Null if the project stores no text.
    pub user_text: Option<String>,
    /// What the model answered. Null while there is no answer, or if the project stores no text.
    pub assistant_text: Option<String>,
    /// The tool calls in the answer, which only the gateway records.
    #[sqlx(json(nullable))]
    #[schema(value_type = Option<Vec<FreeForm>>)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_calls: Option<Box<serde_json::value::RawValue>>,
    /// The user's rating in stars, from 0 to 3.
    pub star: i16,
    /// The client's own mark, such as a color.
    pub color_flag: Option<String>,
    /// The state of the pair.
    pub lifecycle_state: PairState,
    /// The error because of which there is no answer. It is never sent to a model.
    #[sqlx(json(nullable))]
    pub error: Option<SendError>,
    /// The pair's size in tokens, measured from the usage that the provider reported. Null if the size can only be
    /// estimated.
    pub tokens: Option<i64>,
    /// The id of the send that created the pair.
    pub send_id: Option<Uuid>,
    /// When the pair was created.
    pub created_at: Timestamp,
}

/// The state of a pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema, sqlx::Type)]
#[serde(rename_all = "lowercase")]
#[sqlx(type_name = "text", rename_all = "lowercase")]
pub enum PairState {
    /// The pair has no answer, and none is expected.
    Idle,
    /// The answer is under way.
    Sending,
    /// It has its answer.
    Complete,
    /// The send failed.
    Error,
}

/// Creates a message pair.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewPair {
    /// The pair's id, which makes it safe to send the request again. By default, the server chooses one.
    #[serde(skip_serializing_if = "names_it")]
    pub id: Option<Uuid>,
    /// The topic of the pair. A topic is the client's own name for a conversation.
    #[serde(default, skip_serializing_if = "OptionalName::is_none")]
    pub topic_id: OptionalName,
    /// The name of the agent session that the pair belongs to. Erasing the session erases the pair.
    #[serde(default, skip_serializing_if = "OptionalName::is_none")]
    pub session_id: OptionalName,
    /// The model that answered or will answer.
    #[serde(default, skip_serializing_if = "OptionalName::is_none")]
    pub model: OptionalName,
    /// What the user said. It may be blank.
    pub user_text: String,
    /// What the model answered. With an answer, the pair is `complete`; without one, it is `idle`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub assistant_text: Option<String>,
    /// The user's rating in stars, from 0 to 3. The default is 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 3)]
    pub star: Option<i16>,
    /// The client's own mark, such as a color.
    #[serde(default, skip_serializing_if = "OptionalName::is_none")]
    #[schema(value_type = Option<String>, max_length = 50)]
    pub color_flag: OptionalName,
    /// The pair's size in tokens, if it was measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 1_000_000_000)]
    pub tokens: Option<i64>,
    /// When the pair was created. The default is now. The field may also be named `timestamp`.
    #[serde(alias = "timestamp", skip_serializing_if = "Option::is_none")]
    pub created_at: Option<Timestamp>,
}

impl Check for NewPair {
    fn check(&self, checks: &mut Checks) {
        check_names(
            checks,
            [
                ("topic_id", self.topic_id.as_deref()),
                ("session_id", self.session_id.as_deref()),
                ("model", self.model.as_deref()),
            ],
        );
        check_marks(checks, self.star, self.color_flag.as_deref());
        check_tokens(checks, "tokens", self.tokens);
    }
}

/// Changes a message pair. Fields that are left out stay as they are.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PairChange {
    /// What the user said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_text: Option<String>,
    /// What the model answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub assistant_text: Option<String>,
    /// The topic that the pair belongs to.
    #[serde(default, skip_serializing_if = "OptionalName::is_none")]
    pub topic_id: OptionalName,
    /// The model that answered.
    #[serde(default, skip_serializing_if = "OptionalName::is_none")]
    pub model: OptionalName,
    /// The user's rating in stars, from 0 to 3.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 3)]
    pub star: Option<i16>,
    /// The client's own mark, such as a color.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 50)]
    pub color_flag: Option<String>,
}

impl Check for PairChange {
    fn check(&self, checks: &mut Checks) {
        check_names(checks, [("topic_id", self.topic_id.as_deref()), ("model", self.model.as_deref())]);
        check_marks(checks, self.star, self.color_flag.as_deref());
    }
}

/// The maximum number of tokens of a size that clients give, which is more than any model takes.
pub const MOST_TOKENS: i64 = 1_000_000_000;

/// Reports names that have more than 200 characters.
fn check_names<const N: usize>(checks: &mut Checks, names: [(&str, Option<&str>); N]) {
    for (field, name) in names {
        checks.name(field, name);
    }
}

fn check_marks(checks: &mut Checks, star: Option<i16>, color_flag: Option<&str>) {
    checks.require(star.is_none_or(|star| (0..=3).contains(&star)), "star", "must be from 0 to 3");
    if let Some(flag) = color_flag.filter(|flag| !flag.is_empty()) {
        checks.text("color_flag", flag, 50);
    }
}

fn check_tokens(checks: &mut Checks, field: &str, tokens: Option<i64>) {
    checks.require(
        tokens.is_none_or(|tokens| (0..=MOST_TOKENS).contains(&tokens)),
        field,
        "must be from 0 to 1000000000",
    );
}

/// Returns a name, if it has any characters.
pub(crate) fn named(name: Option<&str>) -> Option<&str> {
    name.filter(|name| !name.is_empty())
}

crate::texts! {
    NewPair: model, user_text, assistant_text, color_flag | topic_id, session_id;
    PairChange: user_text, assistant_text, model, color_flag | topic_id;
}
