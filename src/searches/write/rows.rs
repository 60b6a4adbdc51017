//! What the transaction knows of threads, searches and steps besides the rules.

use std::collections::HashMap;

use uuid::Uuid;

use crate::searches::SearchResult;
use crate::searches::rules::learner::{FallbackKind, FollowedStep, GivenHint, SearchState, Step};
use crate::types::{Timestamp, derived_id};

/// The name of a thread.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ThreadKey {
    /// The agent session.
    pub(super) session: Option<String>,
    /// The subagent of the session.
    pub(super) agent: Option<String>,
}

impl ThreadKey {
    /// Returns the thread's id. If no session is known, `alone` is used in its place.
    pub(super) fn id(&self, alone: &[u8]) -> Uuid {
        let agent = self.agent.as_deref().unwrap_or_default().as_bytes();
        match &self.session {
            Some(session) => derived_id(&[b"thread", session.as_bytes(), agent]),
            None => derived_id(&[b"thread without session", alone, agent]),
        }
    }
}

/// A new search.
#[derive(Debug)]
pub(super) struct StartedSearch {
    pub(super) id: Uuid,
    pub(super) thread: Uuid,
    pub(super) key: ThreadKey,
    pub(super) turn: Option<String>,
    pub(super) query: String,
    pub(super) best_score: Option<f64>,
    pub(super) result_count: i32,
    pub(super) results: Vec<SearchResult>,
    pub(super) root: Option<String>,
    pub(super) at: Timestamp,
    pub(super) state: SearchState,
    /// The hash of the request, if the search was posted.
    pub(super) hash: Vec<u8>,
    /// The hints in the response to the search, best first. Only a tracked search has them.
    pub(super) hints: Vec<GivenHint>,
    /// The search that this one repeats, because a person has objected to the result of that one.
    pub(super) corrects: Option<Uuid>,
}

/// A search that led to files.
#[derive(Debug, Clone)]
pub(super) struct AnsweredSearch {
    pub(super) id: Uuid,
    pub(super) thread: Uuid,
    pub(super) query: String,
    pub(super) root: Option<String>,
    pub(super) at: Timestamp,
    /// The paths of the files that were found, those with the most weight first.
    pub(super) found: Vec<String>,
}

/// What is known of a stored search.
#[derive(Debug)]
pub(super) struct StoredSearch {
    pub(super) thread: Uuid,
    pub(super) state: SearchState,
    pub(super) root: Option<String>,
    pub(super) hash: Vec<u8>,
}

/// A new step, as one search sees it.
#[derive(Debug)]
pub(super) struct AppendedStep {
    pub(super) search: Uuid,
    pub(super) followed: FollowedStep,
    /// The hash of the request, if the step was posted for this search.
    pub(super) hash: Option<Vec<u8>>,
}

impl AppendedStep {
    /// Returns the step as it will be stored for its search.
    pub(super) fn stored(&self) -> ((Uuid, Uuid), StoredFallback) {
        let Step { id, kind, target, ok, .. } = &self.followed.step;
        let (target, hash) = (target.clone(), self.hash.clone());
        ((self.search, *id), StoredFallback { kind: *kind, target, ok: *ok, hash })
    }
}

/// What is known of a stored fallback.
#[derive(Debug)]
pub(super) struct StoredFallback {
    pub(super) kind: FallbackKind,
    pub(super) target: String,
    pub(super) ok: bool,
    /// The hash of the request, if the fallback was posted for this search. It may also have been posted for another one,
    /// and count for this one.
    pub(super) hash: Option<Vec<u8>>,
}

impl StoredFallback {
    /// Returns whether a step with the same id is the same.
    pub(super) fn is(&self, step: &Step) -> bool {
        self.kind == step.kind && self.target == step.target && self.ok == step.ok
    }
}

/// Stored fallbacks, by search and id.
pub(super) type StoredFallbacks = HashMap<(Uuid, Uuid), StoredFallback>;

/// A step that a search has already, with the hash of the request that has now posted it for that search.
#[derive(Debug)]
pub(super) struct NamedFallback {
    pub(super) search: Uuid,
    pub(super) id: Uuid,
    pub(super) hash: Vec<u8>,
}
