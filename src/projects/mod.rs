//! Projects, which keep tenants apart: their settings and how those apply. Keys say who may act for a project
//! ([`auth`](crate::auth)).

pub mod room;
pub mod routes;
pub mod store;

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use self::room::Room;
use crate::http::{Check, Checks, IdempotencyKey, null_as_default};
use crate::memories::settings::MemorySettings;
use crate::messages;
use crate::messages::models::{Catalog, Ratios};
use crate::messages::settings::MessageSettings;
use crate::privacy::capture::Capture;
use crate::privacy::kept::Kept;
use crate::privacy::policy::{ByDomain, Choice, Policy, Private};
use crate::privacy::redact::{GroupName, RedactRules, Redaction, Texts};
use crate::searches::settings::{Rules, SearchSettings};
use crate::sharing::{apart_with, in_turn};
use crate::types::Timestamp;

/// A project's settings. A setting that this version does not support is rejected, so that no privacy setting is
/// silently ignored.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
#[schema(as = ProjectSettings)]
pub struct Settings {
    /// How much of the posted events is stored, for all domains or by domain. The default is the server's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capture: Option<Choice>,
    /// The redaction rules, which replace parts of texts before anything is stored.
    #[serde(deserialize_with = "null_as_default")]
    pub redact: RedactRules,
    /// The number of days for which records are kept, by domain. The days count from when a record was finalized, or
    /// created if it never was. Records of domains that are not named are kept forever.
    pub retention_days: Option<DaysByDomain>,
    /// The quotas of the project. Null means no limit.
    #[serde(deserialize_with = "null_as_default")]
    pub quotas: Quotas,
    /// The settings of searches.
    #[serde(deserialize_with = "null_as_default")]
    pub searches: SearchSettings,
    /// The settings of sends and predictions.
    #[serde(deserialize_with = "null_as_default")]
    pub messages: MessageSettings,
    /// The settings of suggestions in conversations.
    #[serde(deserialize_with = "null_as_default")]
    pub memories: MemorySettings,
}

impl Check for Settings {
    fn check(&self, checks: &mut Checks) {
        checks.nested("redact", &self.redact);
        if let Some(days) = &self.retention_days {
            checks.nested("retention_days", days);
        }
        checks.nested("quotas", &self.quotas);
        checks.nested("searches", &self.searches);
        checks.nested("messages", &self.messages);
        checks.nested("memories", &self.memories);
    }
}

/// The quotas of a project. Requests that exceed them are rejected with 429.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Quotas {
    /// The number of requests per second that all keys of the project together may send.
    #[schema(minimum = 1, maximum = 1_000_000)]
    pub requests_per_second: Option<u32>,
    /// The number of bytes of request bodies that the project may send per day, in UTC. The request that exceeds the
    /// quota is still accepted.
    #[schema(minimum = 1)]
    pub bytes_per_day: Option<u64>,
    /// The number of records that the project may have in all domains together. Records are counted every ten
    /// seconds, so the quota can be slightly exceeded.
    #[schema(minimum = 1)]
    pub rows: Option<u64>,
}

impl Check for Quotas {
    fn check(&self, checks: &mut Checks) {
        let rate = self.requests_per_second.is_none_or(|rate| (1..=1_000_000).contains(&rate));
        checks.require(rate, "requests_per_second", "must be 1 to 1000000");
        checks.require(self.bytes_per_day != Some(0), "bytes_per_day", "must be at least 1");
        checks.require(self.rows != Some(0), "rows", "must be at least 1");
    }
}

/// A number of days for which records are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(transparent)]
#[schema(as = RetentionDays, minimum = 1, maximum = 36_500)]
pub struct Days(u32);

impl Days {
    /// Returns the number.
    #[must_use]
    pub fn get(self) -> u32 {
        self.0
    }
}

/// For how many days the records of each domain are kept; of one that is not mentioned, for ever.
pub type DaysByDomain = ByDomain<Days>;

impl Check for DaysByDomain {
    fn check(&self, checks: &mut Checks) {
        for (domain, Days(days)) in self.iter() {
            checks.require((1..=36_500).contains(&days), domain.name(), "must be 1 to 36500 days");
        }
    }
}

/// A project and its settings.
#[derive(Debug, Serialize, ToSchema)]
pub struct Project {
    /// The project's name.
    pub project: String,
    /// How much of the posted events is stored, for all domains or by domain.
    pub capture: Choice,
    /// The redaction rules, which replace parts of texts before anything is stored.
    pub redact: RedactRules,
    /// The number of days for which records are kept, by domain.
    pub retention_days: Option<DaysByDomain>,
    /// The quotas of the project. Null means no limit.
    pub quotas: Quotas,
    /// The settings of searches. Null means the server's default.
    pub searches: SearchSettings,
    /// The settings of sends and predictions. Settings that are left out have their defaults.
    pub messages: MessageSettings,
    /// The settings of suggestions in conversations. Settings that are left out have their defaults.
    pub memories: MemorySettings,
    /// When the project was created.
    pub created_at: Timestamp,
}

impl Project {
    /// Describes a project. `default` is the server's setting for how much is kept.
    #[must_use]
    pub fn new(project: String, settings: Settings, created_at: Timestamp, default: Capture) -> Self {
        let Settings { capture, redact, retention_days, quotas, searches, messages, memories } = settings;
        let capture = capture.unwrap_or(Choice::All(default));
        Self { project, capture, redact, retention_days, quotas, searches, messages, memories, created_at }
    }
}

/// A project with what is needed to write its events.
#[derive(Debug, Clone)]
pub struct Tenant {
    /// The project's name.
    pub name: Arc<str>,
    /// A hash of the project's settings, which tells whether they have changed.
    pub version: String,
    /// What is kept of the project's events.
    pub policy: Policy,
    /// For how many days records are kept.
    pub retention: DaysByDomain,
    /// How much the project may use.
    pub quotas: Quotas,
    /// The records that it may still store.
    pub room: Arc<Room>,
    /// How the project's searches are judged and learned from.
    pub rules: Rules,
    /// How the project's sends are predicted, and the models that the server knows.
    pub messages: messages::settings::Rules,
    /// What is suggested in the project's conversations.
    pub memories: MemorySettings,
}

impl Tenant {
    /// Returns the id of the record that an `Idempotency-Key` stands for. Nobody can compute it who only guesses the key,
    /// because a change of a record shows it to whoever knows its id.
    #[must_use]
    pub fn id_of(&self, key: &IdempotencyKey, route: &str, parent: Option<Uuid>) -> Option<Uuid> {
        key.id(&self.name, route, parent).map(|id| self.policy.key().id(id))
    }

    /// Reduces a value as [`Policy::keep`] does, wherever that keeps no other request waiting.
    pub async fn keep<T: Private + Send + Sync + 'static>(self: &Arc<Self>, value: T) -> Option<Kept<T>> {
        self.apply(value, T::redact, Policy::keep).await
    }

    /// Redacts texts as [`Policy::redact`] does, wherever that keeps no other request waiting, and returns them with the
    /// number of replaced spans.
    pub async fn redacted<T: Texts + Send + 'static>(self: &Arc<Self>, texts: T) -> (T, u32) {
        let redact = |policy: &Policy, mut texts: T| {
            let spans = policy.redact(&mut texts);
            (texts, spans)
        };
        self.apply(texts, T::texts, redact).await
    }

    /// Redacts the name of a session, a topic or a server as [`Policy::redact_name`] does, wherever that keeps no other request
    /// waiting.
    pub async fn redacted_name<T: GroupName + Send + 'static>(self: &Arc<Self>, name: T) -> T {
        let redact = |policy: &Policy, mut name: T| {
            policy.redact_name(&mut name);
            name
        };
        self.apply(name, T::group_name, redact).await
    }

    /// Applies the policy to a value whose texts `show` shows: on a thread that serves no requests if that may take long.
    async fn apply<T, R>(
        self: &Arc<Self>,
        mut value: T,
        show: fn(&mut T, &mut Redaction<'_>),
        policy: fn(&Policy, T) -> R,
    ) -> R
    where
        T: Send + 'static,
        R: Send + 'static,
    {
        let bytes = self.policy.effort(|redaction| show(&mut value, redaction));
        if !self.policy.may_take_long(bytes) {
            return in_turn(&self.name, bytes, || policy(&self.policy, value)).await;
        }
        let tenant = Arc::clone(self);
        apart_with(&self.name, bytes, move || policy(&tenant.policy, value)).await
    }
}

/// How long a project or key that was read is used, which is how late a change by another server can take effect.
pub const FRESH: Duration = Duration::from_secs(5);

/// The server's own settings, which apply where a project has none.
#[derive(Debug, Clone, Default)]
pub struct Defaults {
    /// How much of the posted events is stored.
    pub capture: Capture,
    /// The settings of searches.
    pub searches: SearchSettings,
    /// The models in the providers file.
    pub models: Arc<Catalog>,
    /// The learned ratios of models that were read lately.
    pub ratios: Arc<Ratios>,
}

/// Checks the name of a project, which has to fit into paths and headers.
fn check_name(checks: &mut Checks, field: &str, name: &str) {
    let fits = (1..=200).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
    checks.require(fits, field, "must have 1 to 200 characters, each one of a-z, A-Z, 0-9, '-', '_' and '.'");
}
