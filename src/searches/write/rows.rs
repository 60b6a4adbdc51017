//! What the transaction knows of threads, searches and steps beyond the rules.

use std::collections::HashMap;

use uuid::Uuid;

use crate::searches::SearchResult;
use crate::searches::rules::learner::{FollowedStep, GivenHint, SearchState};
use crate::types::{Timestamp, derived_id};

/// What a thread is named by.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ThreadKey {
    /// The agent session.
    pub(super) session: Option<String>,
    /// The subagent of the session.
    pub(super) agent: Option<String>,
}

impl ThreadKey {
    /// The thread's id. Where no session is known, `alone` stands for one.
    pub(super) fn id(&self, alone: &[u8]) -> Uuid {
        let agent = self.agent.as_deref().unwrap_or_default().as_bytes();
        match &self.session {
            Some(session) => derived_id(&[b"thread", session.as_bytes(), agent]),
            None => derived_id(&[b"thread without session", alone, agent]),
        }
    }
}

/// A search that is new.
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
    /// The hash of the request, where the search was posted.
    pub(super) hash: Vec<u8>,
    /// The hints in the response to the search, best first. Only a tracked search has them.
    pub(super) hints: Vec<GivenHint>,
    /// The search that this one repeats, where a person has objected to what that one led to.
    pub(super) corrects: Option<Uuid>,
}

/// A search that has led somewhere.
#[derive(Debug, Clone)]
pub(super) struct AnsweredSearch {
    pub(super) id: Uuid,
    pub(super) thread: Uuid,
    pub(super) query: String,
    pub(super) root: Option<String>,
    pub(super) at: Timestamp,
    /// The paths of the files that were found, the heaviest first.
    pub(super) found: Vec<String>,
}

/// What is known of a search that is stored.
#[derive(Debug)]
pub(super) struct StoredSearch {
    pub(super) thread: Uuid,
    pub(super) state: SearchState,
    pub(super) hash: Vec<u8>,
}

/// A step that is new, as one search sees it.
#[derive(Debug)]
pub(super) struct AppendedStep {
    pub(super) search: Uuid,
    pub(super) followed: FollowedStep,
    /// The hash of the request, where the step was posted for this very search.
    pub(super) hash: Option<Vec<u8>>,
}

/// The hashes of the requests by which fallbacks were posted, by search and id; none of a fallback that was not posted.
pub(super) type PostedFallbacks = HashMap<(Uuid, Uuid), Option<Vec<u8>>>;
