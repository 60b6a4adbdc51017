//! Projects, which keep tenants apart: their settings and how those apply. Keys say who may act for a project
//! ([`auth`](crate::auth)).

pub mod routes;
pub mod store;

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::http::{Check, Checks, null_as_default};
use crate::memories::settings::MemorySettings;
use crate::messages;
use crate::messages::models::Catalog;
use crate::messages::settings::MessageSettings;
use crate::privacy::capture::Capture;
use crate::privacy::policy::{Choice, Policy};
use crate::privacy::redact::RedactRules;
use crate::searches::settings::{Rules, SearchSettings};
use crate::types::Timestamp;

/// A project's settings. A setting that this version cannot apply is refused, so that no privacy setting is
/// silently without effect.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
#[schema(as = ProjectSettings)]
pub struct Settings {
    /// How much is kept of the events posted, in all domains or by domain. The default is the server's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capture: Option<Choice>,
    /// What is replaced in texts before anything is written.
    #[serde(deserialize_with = "null_as_default")]
    pub redact: RedactRules,
    /// Days after which records are erased, by domain. This version erases none, so every value must be null.
    pub retention_days: Option<serde_json::Map<String, serde_json::Value>>,
    /// How searches are judged and learned from.
    #[serde(deserialize_with = "null_as_default")]
    pub searches: SearchSettings,
    /// How sends are predicted and performed.
    #[serde(deserialize_with = "null_as_default")]
    pub messages: MessageSettings,
    /// What is suggested in conversations.
    #[serde(deserialize_with = "null_as_default")]
    pub memories: MemorySettings,
}

impl Check for Settings {
    fn check(&self, checks: &mut Checks) {
        const NOT_YET: &str = "is not in force yet";
        checks.nested("redact", &self.redact);
        let keeps_all =
            |days: &serde_json::Map<_, serde_json::Value>| days.values().all(serde_json::Value::is_null);
        checks.require(self.retention_days.as_ref().is_none_or(keeps_all), "retention_days", NOT_YET);
        checks.nested("searches", &self.searches);
        checks.nested("messages", &self.messages);
        checks.nested("memories", &self.memories);
    }
}

/// A project and its settings.
#[derive(Debug, Serialize, ToSchema)]
pub struct Project {
    /// The project's name.
    pub project: String,
    /// How much is kept of the events posted, in all domains or by domain.
    pub capture: Choice,
    /// What is replaced in texts before anything is written.
    pub redact: RedactRules,
    /// Days after which records are erased, by domain.
    pub retention_days: Option<serde_json::Map<String, serde_json::Value>>,
    /// How searches are judged and learned from. Null stands for the server's default.
    pub searches: SearchSettings,
    /// How sends are predicted and performed. What is left out has its default.
    pub messages: MessageSettings,
    /// What is suggested in conversations. What is left out has its default.
    pub memories: MemorySettings,
    /// When the project was made.
    pub created_at: Timestamp,
}

impl Project {
    /// Describes a project. `default` is the server's setting for how much is kept.
    #[must_use]
    pub fn new(project: String, settings: Settings, created_at: Timestamp, default: Capture) -> Self {
        let Settings { capture, redact, retention_days, searches, messages, memories } = settings;
        let capture = capture.unwrap_or(Choice::All(default));
        Self { project, capture, redact, retention_days, searches, messages, memories, created_at }
    }
}

/// A project with what is needed to write its events.
#[derive(Debug, Clone)]
pub struct Tenant {
    /// The project's name.
    pub name: Arc<str>,
    /// What is kept of the project's events.
    pub policy: Policy,
    /// How the project's searches are judged and learned from.
    pub rules: Rules,
    /// How the project's sends are predicted, and the models that the server knows.
    pub messages: messages::settings::Rules,
    /// What is suggested in the project's conversations.
    pub memories: MemorySettings,
}

/// The server's own settings, which apply where a project has none.
#[derive(Debug, Clone, Default)]
pub struct Defaults {
    /// How much is kept of the events posted.
    pub capture: Capture,
    /// How searches are judged and learned from.
    pub searches: SearchSettings,
    /// The models of the providers' file.
    pub models: Arc<Catalog>,
}

/// Checks the name of a project, which has to fit into paths and headers.
fn check_name(checks: &mut Checks, field: &str, name: &str) {
    let fits = (1..=200).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
    checks.require(fits, field, "must have 1 to 200 characters, each one of a-z, A-Z, 0-9, '-', '_' and '.'");
}
