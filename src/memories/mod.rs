//! Memories (seed 002). Notes, decisions and functions are stored as memories. The queries of a conversation are
//! recorded, and relevant memories are suggested before anybody searches for them. Verdicts on suggestions calibrate
//! the confidence of later ones.
//!
//! This file defines memories, queries and verdicts, and [`event`] their events. [`write`](mod@write) writes them,
//! [`store`] and [`conversations`] read them, and [`rules`] has what follows without a database. [`finding`] finds
//! memories, [`embeddings`] and [`meaning`] compare them by their meaning, for which [`filling`] prepares them,
//! [`suggest`](mod@suggest) suggests them, and [`search`](mod@search) searches for them. [`code`] replaces
//! the memories of a source file, [`help`] records the help that agents get without asking, and [`analytics`] has the
//! statistics.

pub mod analytics;
pub mod code;
pub mod conversations;
pub mod embeddings;
pub mod event;
pub mod exports;
pub mod filling;
pub mod finding;
mod had;
pub mod help;
pub mod meaning;
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
use utoipa::openapi::schema::{ObjectBuilder, Type};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{IntoParams, PartialSchema, ToSchema};
use uuid::Uuid;

pub use event::{Action, Event};

use crate::http::{Check, Checks, null_as_default};
use crate::types::{FreeForm, OptionalName, Timestamp, names_it};

/// The maximum number of characters of a memory's content, and of a query.
const MOST_CONTENT: usize = 262_144;
/// The maximum number of characters of a path.
const MOST_PATH: usize = 4096;
/// The maximum number of tags of a memory.
const MOST_TAGS: usize = 100;
/// The maximum number of memories that a query names as shown.
const MOST_SHOWN: usize = 1_000;

/// A memory: something worth remembering, such as a decision, a finding or a piece of code.
#[derive(Debug, Clone, Serialize, ToSchema, sqlx::FromRow)]
pub struct Memory {
    /// The memory's id, unique within its project.
    pub id: Uuid,
    /// The text to remember. Null if the project stores no text; such a memory is never found.
    pub content: Option<String>,
    /// The kind of text in the memory.
    pub source_type: SourceType,
    /// The importance of the memory, from 0 to 1.
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
    /// When the memory was created.
    pub created_at: Timestamp,
}

/// The kind of text in a memory.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema, sqlx::Type, clap::ValueEnum,
)]
#[serde(rename_all = "lowercase")]
#[sqlx(type_name = "text", rename_all = "lowercase")]
pub enum SourceType {
    /// Prose, such as a note, a decision or a part of a conversation.
    #[default]
    Memory,
    /// A piece of source code.
    Code,
}

/// Stores a memory.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewMemory {
    /// The memory's id, which makes it safe to send the request again. By default, the server chooses one.
    #[serde(skip_serializing_if = "names_it")]
    pub id: Option<Uuid>,
    /// The text to remember.
    #[schema(min_length = 1, max_length = 262_144)]
    pub content: String,
    /// The kind of text in the memory. The default is `memory`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_type: Option<SourceType>,
    /// The importance of the memory, from 0 to 1. The default is 0.5.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 1)]
    pub importance: Option<f64>,
    /// The client's own labels.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 100, value_type = Vec<Tag>)]
    pub tags: Vec<String>,
    /// The file that the memory is about.
    #[serde(default, skip_serializing_if = "OptionalName::is_none")]
    #[schema(value_type = Option<String>, max_length = 4096)]
    pub file_path: OptionalName,
    /// The function, class or other symbol that the memory is about.
    #[serde(default, skip_serializing_if = "OptionalName::is_none")]
    pub symbol: OptionalName,
    /// The folder that the memory is about. Suggestions prefer memories about the current folder but include others.
    #[serde(default, skip_serializing_if = "OptionalName::is_none")]
    #[schema(value_type = Option<String>, max_length = 4096)]
    pub root: OptionalName,
    /// The name of the agent session in which the memory is stored. Erasing the session erases the memory.
    #[serde(default, skip_serializing_if = "OptionalName::is_none")]
    pub session_id: OptionalName,
    /// The client's own data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<FreeForm>,
    /// When the memory was created. The default is now.
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

/// Changes a memory. Fields that are left out stay as they are.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MemoryChange {
    /// The text to remember.
    #[serde(default, skip_serializing_if = "OptionalName::is_none")]
    #[schema(value_type = Option<String>, max_length = 262_144)]
    pub content: OptionalName,
    /// The importance of the memory, from 0 to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0, maximum = 1)]
    pub importance: Option<f64>,
    /// The client's own labels, which replace the memory's present labels.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(max_items = 100, value_type = Option<Vec<Tag>>)]
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
    /// The client's own data, which replaces the memory's present data.
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
    /// The name of the conversation's agent session.
    pub session_id: String,
    /// The text of the query. Null if the project stores no text.
    pub query: Option<String>,
    /// The memories that the client reported as shown with the query.
    pub shown: Vec<Uuid>,
    /// The folder that the query is about.
    pub root: Option<String>,
    /// When the query was asked.
    pub at: Timestamp,
}

/// Adds a query to a conversation.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewQuery {
    /// The query's id, which makes it safe to send the request again. By default, the server chooses one.
    #[serde(skip_serializing_if = "names_it")]
    pub id: Option<Uuid>,
    /// The text of the query.
    #[schema(min_length = 1, max_length = 262_144)]
    pub query: String,
    /// The memories that the client shows with the query. They are not suggested in the conversation anymore.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 1000)]
    pub shown: Vec<Uuid>,
    /// The folder that the query is about.
    #[serde(default, skip_serializing_if = "OptionalName::is_none")]
    #[schema(value_type = Option<String>, max_length = 4096)]
    pub root: OptionalName,
    /// When the query is asked. The default is now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
    /// Whether the response includes suggestions. This also needs a key with the scope `read`. The default is false.
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

/// Whether a memory was useful in a conversation.
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

/// Reports whether a memory was useful in a conversation.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewFeedback {
    /// The memory.
    pub memory_id: Uuid,
    /// The verdict.
    pub verdict: Verdict,
}

impl Check for NewFeedback {}

/// A verdict on a memory.
#[derive(Debug, Serialize, ToSchema, sqlx::FromRow)]
pub struct Judged {
    /// The name of the conversation's agent session.
    pub session_id: String,
    /// The memory.
    pub memory_id: Uuid,
    /// The verdict.
    pub verdict: Verdict,
    /// When the verdict was given.
    pub judged_at: Timestamp,
}

/// The path parameter of an endpoint about one conversation.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
pub struct BySession {
    /// The name of the conversation's agent session.
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

/// The schema of a label in the OpenAPI document.
pub struct Tag;

impl PartialSchema for Tag {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new()
            .schema_type(Type::String)
            .min_length(Some(1))
            .max_length(Some(200))
            .description(Some("A client's own label of a memory."))
            .into()
    }
}

impl ToSchema for Tag {}

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
    NewMemory: content, tags, file_path, symbol, root, metadata | session_id;
    MemoryChange: content, tags, file_path, symbol, root, metadata;
    NewQuery: query, root;
}
