//! Projects keep tenants apart; keys say who may act for one. `store` keeps them, [`routes`] is how they are reached.

mod capture;
pub mod routes;
mod sessions;
mod store;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

pub use capture::{Capture, Captures, Choice, HASH, HashKey, Tenant};
pub use sessions::routes as session_routes;
pub use store::{
    any_key, exists, insert_key, keys_by_prefix, list_keys, project_of_key, put, replace_first_key,
    revoke_key, tenant,
};

use crate::auth::Scope;
use crate::extract::{Check, Checks, null_as_default};
use crate::searches::SearchSettings;
use crate::value::Timestamp;

/// A project's settings. What is not in force yet is refused, so that no privacy setting is silently without effect.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// What is kept of the events posted: in all domains, or by domain. The server's default, if not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capture: Option<Choice>,
    /// Rules that remove secrets before anything is written. None is in force yet.
    #[serde(deserialize_with = "null_as_default")]
    pub redact: Vec<String>,
    /// Days after which records are erased, by domain. None is in force yet.
    pub retention_days: Option<serde_json::Map<String, serde_json::Value>>,
    /// How searches are judged and learned from.
    #[serde(deserialize_with = "null_as_default")]
    pub searches: SearchSettings,
}

impl Check for Settings {
    fn check(&self, checks: &mut Checks) {
        const NOT_YET: &str = "is not in force yet";
        checks.require(self.redact.is_empty(), "redact", NOT_YET);
        let keeps_all =
            |days: &serde_json::Map<_, serde_json::Value>| days.values().all(serde_json::Value::is_null);
        checks.require(self.retention_days.as_ref().is_none_or(keeps_all), "retention_days", NOT_YET);
        checks.nested("searches", &self.searches);
    }
}

/// A project and its settings.
#[derive(Debug, Serialize, ToSchema)]
pub struct Project {
    /// Its name.
    pub project: String,
    /// What is kept of the events posted: in all domains, or in each.
    pub capture: Choice,
    /// Rules that remove secrets before anything is written.
    pub redact: Vec<String>,
    /// Days after which records are erased, by domain.
    pub retention_days: Option<serde_json::Map<String, serde_json::Value>>,
    /// How searches are judged and learned from; null is the server's default.
    pub searches: SearchSettings,
    /// When it was made.
    pub created_at: Timestamp,
}

impl Project {
    /// The project of that name on a server with that default.
    #[must_use]
    pub fn new(project: String, settings: Settings, created_at: Timestamp, default: Capture) -> Self {
        let Settings { capture, redact, retention_days, searches } = settings;
        let capture = capture.unwrap_or(Choice::All(default));
        Self { project, capture, redact, retention_days, searches, created_at }
    }
}

/// An API key, without its secret.
#[derive(Debug, Clone, Serialize, ToSchema, sqlx::FromRow)]
pub struct KeyRow {
    /// Names the key in `DELETE /v1/keys/{id}`.
    pub id: Uuid,
    /// The project it belongs to.
    pub project: String,
    /// What a person calls it.
    pub name: String,
    /// Its first characters.
    pub prefix: String,
    /// SHA-256 of the key.
    #[serde(skip)]
    pub hash: Vec<u8>,
    /// Out of `write`, `read`, `admin`, `operator`.
    pub scopes: Vec<String>,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it ceases to work; null: never.
    pub expires_at: Option<Timestamp>,
    /// When it was revoked; null: it was not.
    pub revoked_at: Option<Timestamp>,
}

impl KeyRow {
    /// Whether the key names `scope` itself.
    #[must_use]
    pub fn has(&self, scope: Scope) -> bool {
        self.scopes.iter().any(|own| own == scope.as_str())
    }
}

/// What a new key is to be.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewKey {
    /// The project it belongs to; the caller's, if not given. Another one only for an operator.
    pub project: Option<String>,
    /// What to call it, at most 200 characters.
    #[schema(min_length = 1, max_length = 200)]
    pub name: String,
    /// At least one of `write`, `read`, `admin`, `operator`.
    #[schema(min_items = 1)]
    pub scopes: Vec<Scope>,
    /// When it ceases to work; never, if not given.
    pub expires_at: Option<Timestamp>,
}

impl Check for NewKey {
    fn check(&self, checks: &mut Checks) {
        checks.name("name", Some(&self.name));
        checks.require(!self.scopes.is_empty(), "scopes", "must not be empty");
    }
}

/// Checks the name of a project: it stands in paths and headers.
pub fn check_name(name: &str) -> crate::error::Result<()> {
    let fits = (1..=200).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
    if fits {
        return Ok(());
    }
    Err(crate::error::Error::invalid(
        "/project",
        "must be 1 to 200 of the characters a-z, A-Z, 0-9, '-', '_' and '.'",
    ))
}
