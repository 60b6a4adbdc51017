//! Memories (seed 002). What is worth knowing again is stored as memories: notes, decisions, functions. What is asked in a
//! conversation is recorded as its queries, and the memories that belong to them are suggested before anybody looks
//! for them; what was used or dismissed teaches how much a suggestion is to be believed.
//!
//! This file says what a memory, a query and a verdict are, and [`event`] what can happen to them. [`write`](mod@write)
//! writes them, [`store`] and [`conversations`] read them, and [`rules`] has what follows without a database. [`finding`] finds
//! memories, [`suggest`](mod@suggest) suggests them, [`search`](mod@search) answers who asks for them, [`code`] keeps files of source code, [`help`] notes what came
//! unasked, and [`analytics`] says what it was worth.

pub mod analytics;
pub mod code;
pub mod conversations;
pub mod event;
pub mod exports;
pub mod finding;
pub mod help;
pub mod routes;
pub mod rules;
pub mod search;
pub mod settings;
pub mod store;
pub mod suggest;
pub mod suggestion;
mod tables;
pub mod write;

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

pub use event::{Action, Event};

use crate::http::{Check, Checks, null_as_default};
use crate::types::{FreeForm, OptionalName, Timestamp, names_it};

/// The most characters of a memory's content, and of a query.
const MOST_CONTENT: usize = 262_144;
/// The most characters of a path.
const MOST_PATH: usize = 4096;
/// The most tags of a memory.
const MOST_TAGS: usize = 100;
/// The most memories that a query names as shown.
const MOST_SHOWN: usize = 1_000;

/// A memory: something that is worth knowing again.
#[derive(Debug, Clone, Serialize, ToSchema, sqlx::FromRow)]
pub struct Memory {
    /// The memory's id, unique within its project.
    pub id: Uuid,
    /// What is to be remembered. Null if the project keeps no text; such a memory is never found.
    pub content: Option<String>,
    /// What kind of text the content is.
    pub source_type: SourceType,
    /// How important the memory is, 0 to 1.
    pub importance: f64,
    /// The client's own labels.
    #[sqlx(json)]
    pub tags: Vec<String>,
    /// The file that the memory is about.
    pub file_path: Option<String>,
    /// The function, class or other symbol that the memory is about.
    pub symbol: Option<String>,
    /// The folder that the memory is about.
    pub root: Option<String>,
    /// The name of the agent session in which the memory was stored.
    pub session_id: Option<String>,
    /// The client's own data.
    pub metadata: FreeForm,
    /// When the memory was made.
    pub created_at: Timestamp,
}

/// What kind of text a memory's content is.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema, sqlx::Type, clap::ValueEnum,
)]
#[serde(rename_all = "lowercase")]
#[sqlx(type_name = "text", rename_all = "lowercase")]
pub enum SourceType {
    /// Prose: a note, a decision, a piece of a conversation.
    #[default]
    Memory,
    /// A piece of source code.
    Code,
}

/// Stores a memory.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewMemory {
    /// The memory's id, which makes it safe to send the request again. The server makes one if none is given.
    #[serde(skip_serializing_if = "names_it")]
    pub id: Option<Uuid>,
    /// What is to be remembered.
    #[schema(min_length = 1, max_length = 262_144)]
    pub content: String,
    /// What kind of text the content is. The default is `memory`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_type: Option<SourceType>,
    /// How important the memory is. The default is 0.5.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 1)]
    pub importance: Option<f64>,
    /// The client's own labels.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 100)]
    pub tags: Vec<String>,
    /// The file that the memory is about.
    #[serde(default, skip_serializing_if = "OptionalName::is_none")]
    #[schema(value_type = Option<String>, max_length = 4096)]
    pub file_path: OptionalName,
    /// The function, class or other symbol that the memory is about.
    #[serde(default, skip_serializing_if = "OptionalName::is_none")]
    pub symbol: OptionalName,
    /// The folder that the memory is about. Suggestions prefer memories of the folder at hand, and find others too.
    #[serde(default, skip_serializing_if = "OptionalName::is_none")]
    #[schema(value_type = Option<String>, max_length = 4096)]
    pub root: OptionalName,
    /// The name of the agent session in which the memory is stored. Erasing the session erases the memory.
    #[serde(default, skip_serializing_if = "OptionalName::is_none")]
    pub session_id: OptionalName,
    /// The client's own data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<FreeForm>,
    /// When the memory was made. The default is now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created_at: Option<Timestamp>,
}

impl Check for NewMemory {
    fn check(&self, checks: &mut Checks) {
        checks.text("content", &self.content, MOST_CONTENT);
        check_importance(checks, self.importance);
        check_tags(checks, &self.tags);
        check_place(checks, &self.file_path, &self.symbol, &self.root);
        checks.name("session_id", self.session_id.as_deref());
    }
}

/// Changes a memory. What is left out stays as it is.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MemoryChange {
    /// What is to be remembered.
    #[serde(default, skip_serializing_if = "OptionalName::is_none")]
    #[schema(value_type = Option<String>, max_length = 262_144)]
    pub content: OptionalName,
    /// How important the memory is.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 1)]
    pub importance: Option<f64>,
    /// The client's own labels, in place of those that the memory has.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(max_items = 100)]
    pub tags: Option<Vec<String>>,
    /// The file that the memory is about.
    #[serde(default, skip_serializing_if = "OptionalName::is_none")]
    #[schema(value_type = Option<String>, max_length = 4096)]
    pub file_path: OptionalName,
    /// The function, class or other symbol that the memory is about.
    #[serde(default, skip_serializing_if = "OptionalName::is_none")]
    pub symbol: OptionalName,
    /// The folder that the memory is about.
    #[serde(default, skip_serializing_if = "OptionalName::is_none")]
    #[schema(value_type = Option<String>, max_length = 4096)]
    pub root: OptionalName,
    /// The client's own data, in place of what the memory has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<FreeForm>,
}

impl Check for MemoryChange {
    fn check(&self, checks: &mut Checks) {
        if let Some(content) = self.content.as_deref() {
            checks.text("content", content, MOST_CONTENT);
        }
        check_importance(checks, self.importance);
        check_tags(checks, self.tags.as_deref().unwrap_or_default());
        check_place(checks, &self.file_path, &self.symbol, &self.root);
    }
}

/// A query of a conversation.
#[derive(Debug, Clone, Serialize, ToSchema, sqlx::FromRow)]
pub struct ConversationQuery {
    /// The query's id, unique within its project.
    pub id: Uuid,
    /// The name of the agent session that the conversation is.
    pub session_id: String,
    /// What was asked. Null if the project keeps no text.
    pub query: Option<String>,
    /// The memories that the client has shown with the query, as it says.
    pub shown: Vec<Uuid>,
    /// The folder that the query is about.
    pub root: Option<String>,
    /// When it was asked.
    pub at: Timestamp,
}

/// Adds a query to a conversation.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewQuery {
    /// The query's id, which makes it safe to send the request again. The server makes one if none is given.
    #[serde(skip_serializing_if = "names_it")]
    pub id: Option<Uuid>,
    /// What is asked.
    #[schema(min_length = 1, max_length = 262_144)]
    pub query: String,
    /// The memories that the client shows with the query anyway, which are not suggested in the conversation any more.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 1000)]
    pub shown: Vec<Uuid>,
    /// The folder that the query is about.
    #[serde(default, skip_serializing_if = "OptionalName::is_none")]
    #[schema(value_type = Option<String>, max_length = 4096)]
    pub root: OptionalName,
    /// When it is asked. The default is now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
    /// Whether the response has suggestions too, for which the key needs the scope `read` besides. The default is false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suggest: Option<bool>,
}

impl Check for NewQuery {
    fn check(&self, checks: &mut Checks) {
        checks.text("query", &self.query, MOST_CONTENT);
        checks.require(self.shown.len() <= MOST_SHOWN, "shown", "has more than 1000 ids");
        check_path(checks, "root", &self.root);
    }
}

/// What a memory was worth in a conversation.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema, sqlx::Type, clap::ValueEnum,
)]
#[serde(rename_all = "lowercase")]
#[sqlx(type_name = "text", rename_all = "lowercase")]
pub enum Verdict {
    /// It helped.
    Used,
    /// It did not belong there.
    Dismissed,
}

/// Says what a memory was worth in a conversation.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewFeedback {
    /// The memory.
    pub memory_id: Uuid,
    /// What it was worth.
    pub verdict: Verdict,
}

impl Check for NewFeedback {}

/// A verdict on a memory, as it is kept. The last one counts.
#[derive(Debug, Serialize, ToSchema, sqlx::FromRow)]
pub struct Judged {
    /// The name of the agent session that the conversation is.
    pub session_id: String,
    /// The memory.
    pub memory_id: Uuid,
    /// What it was worth.
    pub verdict: Verdict,
    /// When that was said.
    pub judged_at: Timestamp,
}

/// The path parameter of an endpoint about one conversation.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
pub struct BySession {
    /// The name of the agent session that the conversation is.
    #[param(min_length = 1, max_length = 200, example = "my-session")]
    pub session_id: String,
}

impl Check for BySession {
    fn check(&self, checks: &mut Checks) {
        checks.name("session_id", Some(&self.session_id));
    }
}

fn check_importance(checks: &mut Checks, importance: Option<f64>) {
    let fits = importance.is_none_or(|importance| (0.0..=1.0).contains(&importance));
    checks.require(fits, "importance", "must be 0 to 1");
}

fn check_tags(checks: &mut Checks, tags: &[String]) {
    checks.require(tags.len() <= MOST_TAGS, "tags", "has more than 100 tags");
    for (index, tag) in tags.iter().enumerate() {
        checks.text(&format!("tags/{index}"), tag, 200);
    }
}

fn check_place(checks: &mut Checks, file_path: &OptionalName, symbol: &OptionalName, root: &OptionalName) {
    check_path(checks, "file_path", file_path);
    checks.name("symbol", symbol.as_deref());
    check_path(checks, "root", root);
}

fn check_path(checks: &mut Checks, field: &str, path: &OptionalName) {
    if let Some(path) = path.as_deref() {
        checks.text(field, path, MOST_PATH);
    }
}

/// Returns a folder's path in the form in which folders are compared: without the separator at its end.
#[must_use]
pub fn folder(path: &str) -> &str {
    let short = path.trim_end_matches(['/', '\\']);
    if short.is_empty() { path } else { short }
}

crate::texts! {
    NewMemory: content, tags, file_path, symbol, root, session_id, metadata;
    MemoryChange: content, tags, file_path, symbol, root, metadata;
    NewQuery: query, root;
}
