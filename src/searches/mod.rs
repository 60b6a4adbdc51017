//! Searches (seed 004). A search with a weak result is tracked until its turn ends. The files that the agent read in
//! the meantime had the answer, and the next search with a similar query is answered with them as hints.
//!
//! Here is what a search is, in [`event`] what can happen to one. [`rules`] says what is learned from it,
//! [`write`](mod@write) and [`store`] how all that is kept, [`routes`] how it is reached. [`transcripts`] and
//! [`hooks`] take what agents tell of themselves, [`turns`] what others tell of them, and [`expiry`] ends what they
//! leave open. [`hints`], [`associations`],
//! [`expansions`] and [`analytics`] serve what was learned.

pub mod analytics;
pub mod associations;
pub mod event;
pub mod expansions;
pub mod expiry;
pub mod exports;
pub mod hints;
pub mod hooks;
mod intake_errors;
pub mod intake_pool;
pub mod late_reports;
pub mod limits;
pub mod routes;
pub mod rules;
pub mod settings;
pub mod store;
pub mod transcripts;
pub mod turns;
pub mod write;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

pub use event::Event;
pub use rules::learner::{FallbackKind, SearchState};
pub use settings::SearchSettings;

use crate::domain::Domain;
use crate::http::{Check, Checks, null_as_default};
use crate::privacy::hash_key::HashKey;
use crate::privacy::policy::Private;
use crate::privacy::redact::{GroupName as _, Redaction, Texts as _};
use crate::types::{OptionalName, Timestamp};
use associations::Association;
use hints::Hint;
use limits::{MOST_OF_RESULTS, MOST_PATH, MOST_QUERY, MOST_RESULTS};

/// A search and its outcome.
#[derive(Debug, Serialize, ToSchema, sqlx::FromRow)]
pub struct Search {
    /// The id of the search in its project.
    pub id: Uuid,
    /// The query of the search.
    pub query: String,
    /// The best score of the results. It is 0 if there are no results, and null if there are results without known
    /// scores.
    pub best_score: Option<f64>,
    /// The number of results.
    pub result_count: i32,
    /// The results that the client reported. Paths in `root` are relative to it.
    #[sqlx(json)]
    pub results: Vec<SearchResult>,
    /// The agent session of the search.
    pub agent_session_id: Option<String>,
    /// The subagent of the session. Null for the main agent.
    pub agent_id: Option<String>,
    /// The turn in which the search was made.
    pub turn_id: Option<String>,
    /// The folder that the search is about.
    pub root: Option<String>,
    /// When the search was made.
    pub timestamp: Timestamp,
    /// The state of the search.
    pub state: SearchState,
    /// When the search ended, by the agent's clock.
    pub ended_at: Option<Timestamp>,
    /// The id of an earlier search that this one corrects, because the user said that its result was not what they
    /// meant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub corrects: Option<Uuid>,
    /// What the agent did after the search, in chronological order. Lists leave this out.
    #[sqlx(skip)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fallbacks: Option<Vec<Fallback>>,
    /// The hints in the response to the search: files that were worth opening. Lists leave them out.
    #[sqlx(skip)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hints: Option<Vec<Hint>>,
    /// The associations learned from the search. Lists leave them out.
    #[sqlx(skip)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub associations: Option<Vec<Association>>,
}

/// A result of a search.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SearchResult {
    /// The path of the file that was found.
    #[schema(min_length = 1, max_length = 4096)]
    pub path: String,
    /// The score of the file, on the scale of the search tool.
    #[serde(default)]
    pub score: Option<f64>,
}

/// Something that the agent did after a weak search, such as reading a file.
#[derive(Debug, Serialize, ToSchema, sqlx::FromRow)]
pub struct Fallback {
    /// The id of the fallback in its search.
    pub id: Uuid,
    /// What the agent did.
    pub kind: FallbackKind,
    /// The file that was read, edited or added to the index, relative to the search's root if it is in that folder.
    pub path: Option<String>,
    /// The pattern that the agent looked for.
    pub pattern: Option<String>,
    /// Whether the action succeeded.
    pub ok: bool,
    /// When it happened.
    pub timestamp: Timestamp,
    /// The share of the fallback that counts for this search, from 0 to 1. If several searches are open, those whose
    /// queries resemble the fallback get larger shares.
    pub share: f64,
    /// Whether the fallback counts. It does not if it came after the search was over.
    pub counts: bool,
}

/// A fallback that was appended, and the state of its search.
#[derive(Debug, Serialize, ToSchema, sqlx::FromRow)]
pub struct AppendedFallback {
    /// The id of the search.
    pub search_id: Uuid,
    /// The current state of the search.
    pub state: SearchState,
    /// The fallback.
    #[serde(flatten)]
    #[sqlx(flatten)]
    pub fallback: Fallback,
}

/// Whether a field is left out of the hash of a request, while the OpenAPI document has it: an id names the record, and is no
/// part of what is said of it.
fn names_it<T>(_: &T) -> bool {
    true
}

/// A search to be started.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewSearch {
    /// The search's id, which makes it safe to send the request again. By default, the server chooses one.
    #[serde(skip_serializing_if = "names_it")]
    pub id: Option<Uuid>,
    /// The query of the search.
    #[schema(min_length = 1, max_length = 2000)]
    pub query: String,
    /// The best score of the results. The default is the best score in `results`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub best_score: Option<f64>,
    /// The number of results. The default is the length of `results`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0)]
    pub result_count: Option<i32>,
    /// The results of the search. A file listed here counts half if the agent reads it, and is not returned as a
    /// hint. Their paths, as seen from `root`, have at most 128 KiB together.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 500)]
    pub results: Vec<SearchResult>,
    /// The agent session. Erasing the session erases the search.
    #[serde(skip_serializing_if = "OptionalName::is_none")]
    pub agent_session_id: OptionalName,
    /// The subagent of the session.
    #[serde(skip_serializing_if = "OptionalName::is_none")]
    pub agent_id: OptionalName,
    /// The agent's turn. A search of a new turn ends the searches of the previous turn.
    #[serde(skip_serializing_if = "OptionalName::is_none")]
    pub turn_id: OptionalName,
    /// The folder that the search is about. Paths in it are stored relative to it.
    #[serde(skip_serializing_if = "OptionalName::is_none")]
    #[schema(value_type = Option<String>, max_length = 4096)]
    pub root: OptionalName,
    /// When the search was made. The default is now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timestamp: Option<Timestamp>,
}

impl NewSearch {
    /// The best score that is known; 0 without results.
    #[must_use]
    pub fn known_score(&self) -> Option<f64> {
        if self.result_count == Some(0) {
            return Some(0.0);
        }
        let named = self.results.iter().filter_map(|result| result.score).max_by(f64::total_cmp);
        self.best_score.or(named).or((self.count() == 0).then_some(0.0))
    }

    /// The number of results.
    #[must_use]
    pub fn count(&self) -> i32 {
        self.result_count.unwrap_or_else(|| i32::try_from(self.results.len()).unwrap_or(i32::MAX))
    }
}

impl Check for NewSearch {
    fn check(&self, checks: &mut Checks) {
        checks.text("query", &self.query, MOST_QUERY);
        checks.count("result_count", self.result_count);
        checks.require(self.results.len() <= MOST_RESULTS, "results", "has more than 500 results");
        let bytes: usize = self.offered().take(MOST_RESULTS).map(|path| path.len()).sum();
        checks.require(bytes <= MOST_OF_RESULTS, "results", "has paths of more than 128 KiB together");
        for (index, result) in self.results.iter().enumerate() {
            checks.text(&format!("results/{index}/path"), &result.path, MOST_PATH);
        }
        checks.name("agent_session_id", self.agent_session_id.as_deref());
        checks.name("agent_id", self.agent_id.as_deref());
        checks.name("turn_id", self.turn_id.as_deref());
        if let Some(root) = self.root.as_deref() {
            checks.text("root", root, MOST_PATH);
        }
    }
}

/// A fallback to append to a search: what the agent did next.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewFallback {
    /// The id of the fallback, which makes it safe to send the request again. Without an id, a request with the same
    /// body and `timestamp` is treated as the same fallback.
    #[serde(skip_serializing_if = "names_it")]
    pub id: Option<Uuid>,
    /// What the agent did.
    pub kind: FallbackKind,
    /// The file that was read, edited or added to the index.
    #[serde(skip_serializing_if = "OptionalName::is_none")]
    #[schema(value_type = Option<String>, max_length = 4096)]
    pub path: OptionalName,
    /// The pattern that the agent looked for with grep or glob.
    #[serde(skip_serializing_if = "OptionalName::is_none")]
    #[schema(value_type = Option<String>, max_length = 2000)]
    pub pattern: OptionalName,
    /// Whether the action succeeded. Nothing is learned from a failed one. The default is true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ok: Option<bool>,
    /// When it happened. The default is now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timestamp: Option<Timestamp>,
}

impl NewFallback {
    /// The path or the pattern, whichever the kind has.
    #[must_use]
    pub fn target(&self) -> &str {
        let target = if self.kind.has_path() { &self.path } else { &self.pattern };
        target.as_deref().unwrap_or_default()
    }
}

impl FallbackKind {
    /// Whether a fallback of this kind has a path; otherwise it has a pattern.
    #[must_use]
    pub fn has_path(self) -> bool {
        matches!(self, Self::Read | Self::Edit | Self::Index)
    }
}

impl Check for NewFallback {
    fn check(&self, checks: &mut Checks) {
        let (needed, most) = if self.kind.has_path() { ("path", MOST_PATH) } else { ("pattern", MOST_QUERY) };
        checks.text(needed, self.target(), most);
        // A grep may say in which folder; nothing is read with a pattern.
        let fits = !self.kind.has_path() || self.pattern.is_none();
        checks.require(fits, "pattern", "only grep and glob have one");
        if let Some(path) = self.path.as_deref().filter(|_| !self.kind.has_path()) {
            checks.text("path", path, MOST_PATH);
        }
    }
}

impl NewSearch {
    /// The paths of the results in their normal form, as seen from the search's root.
    pub fn offered(&self) -> impl Iterator<Item = String> {
        let root = self.root.as_deref().map(rules::paths::folder);
        let normal = move |result: &SearchResult| {
            rules::paths::normalise(&result.path, root.as_deref(), root.as_deref())
        };
        self.results.iter().map(normal)
    }
}

/// The end of the agent's turn in which a search was made.
#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = SearchResolution)]
pub struct Resolve {
    /// When the turn ended. The default is now.
    pub timestamp: Option<Timestamp>,
}

impl Check for Resolve {}

/// The end of an agent's turn.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = AgentTurnEnd)]
pub struct TurnEnd {
    /// The agent session. The turns of its subagents end too.
    #[schema(min_length = 1, max_length = 200)]
    pub agent_session_id: String,
    /// The turn that ends. If another turn has begun by now, nothing ends.
    pub turn_id: OptionalName,
    /// When the turn ended. The default is now.
    pub timestamp: Option<Timestamp>,
}

impl Check for TurnEnd {
    fn check(&self, checks: &mut Checks) {
        checks.name("agent_session_id", Some(&self.agent_session_id));
        checks.name("turn_id", self.turn_id.as_deref());
    }
}

impl Private for TurnEnd {
    fn domain(&self) -> Domain {
        Domain::Searches
    }

    fn reduce(self, _: &HashKey) -> Option<Self> {
        None
    }

    fn redact(&mut self, redaction: &mut Redaction<'_>) {
        self.agent_session_id.group_name(redaction);
        self.turn_id.texts(redaction);
    }
}

/// The searches that ended with a turn.
#[derive(Debug, Serialize, ToSchema)]
pub struct EndedTurn {
    /// The agent session of the search.
    pub agent_session_id: String,
    /// The tracked searches that ended, in the order in which they were made. Empty for a key without the scope `read`.
    pub searches: Vec<TurnSearch>,
    /// The number of new associations.
    pub associations_created: usize,
}

/// A search that ended with its turn.
#[derive(Debug, Serialize, ToSchema)]
pub struct TurnSearch {
    /// The id of the search.
    pub id: Uuid,
    /// The state in which the search ended.
    pub state: SearchState,
}

crate::texts! {
    NewSearch: query, results, agent_id, turn_id, root | agent_session_id;
    SearchResult: path;
    NewFallback: path, pattern;
}
