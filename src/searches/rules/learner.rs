//! The learner: it follows what an agent does after weak searches, and decides which files were found.
//!
//! It uses neither the database nor the clock. Times are those of the events, so a transcript that is replayed next
//! year teaches the same. An [`AgentThread`] is the work of one agent. Its open searches are followed until the turn
//! ends or the agent falls silent.

use std::collections::BTreeMap;

use chrono::TimeDelta;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use super::terms::Terms;
use crate::searches::settings::Rules;
use crate::types::Timestamp;

/// The number of windows for which an agent may wait for a tool, or for a permission, before it counts as silent.
const PATIENCE: i32 = 10;
/// The maximum number of calls of one agent whose results are awaited.
const MOST_WAITING: usize = 64;
/// The maximum difference between the times that a hook and a transcript give the same prompt.
const SAME_PROMPT: TimeDelta = TimeDelta::seconds(5);
/// The part of a step that every open search gets, however little the step resembles its query.
const LEAST_RESEMBLANCE: f64 = 0.25;
/// The factor by which a file counts more if it was also edited, or if the agent added it to its index.
const EDITED: f64 = 3.0;
/// The factor by which a file counts if the weak search itself returned it.
const OFFERED: f64 = 0.5;

/// The kind of action after a search.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema, sqlx::Type)]
#[serde(rename_all = "lowercase")]
#[sqlx(type_name = "text", rename_all = "lowercase")]
pub enum FallbackKind {
    /// The agent reads a file.
    Read,
    /// The agent searches the contents of files.
    Grep,
    /// The agent searches the names of files.
    Glob,
    /// The agent changes a file.
    Edit,
    /// The agent adds a file to the index of its searches.
    Index,
}

/// The state of a search.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema, sqlx::Type)]
#[serde(rename_all = "snake_case")]
#[sqlx(type_name = "text", rename_all = "snake_case")]
pub enum SearchState {
    /// The search was weak, and Gleaner follows what the agent does next.
    Tracking,
    /// The search was good enough, and nothing is learned from it.
    Strong,
    /// The search ended with enough reads, and something was learned.
    Resolved,
    /// The turn ended before there were enough reads.
    Unresolved,
    /// The agent was silent for too long before there were enough reads.
    TimedOut,
}

impl SearchState {
    /// Returns the state of a new search: it is tracked if it is weak.
    #[must_use]
    pub fn of_new(best_score: Option<f64>, rules: &Rules) -> Self {
        if rules.is_weak(best_score) { Self::Tracking } else { Self::Strong }
    }
}

/// One thing that an agent did.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// The id of the step.
    pub id: Uuid,
    /// The kind of the step.
    pub kind: FallbackKind,
    /// The normalized path, or the pattern.
    pub target: String,
    /// Whether the step succeeded. A failed step teaches nothing.
    pub ok: bool,
    /// The time of the step.
    pub at: Timestamp,
}

/// A step as one search sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct FollowedStep {
    /// The step.
    pub step: Step,
    /// The share of the step that counts for this search, from 0 to 1.
    pub share: f64,
    /// Whether the step came before the search was over.
    pub counts: bool,
}

/// A weak search that is being followed.
#[derive(Debug, Clone, PartialEq)]
pub struct OpenSearch {
    /// The id of the search.
    pub id: Uuid,
    /// The query of the search.
    pub query: String,
    /// The terms of the query.
    pub terms: Terms,
    /// The folder that the search is about. It is empty if it is not known.
    pub root: String,
    /// When the search was made.
    pub at: Timestamp,
    /// The paths in the result of the search, best first.
    pub offered: Vec<String>,
    /// Whether the search repeats another one because a person said that its result was not what they meant.
    pub is_correction: bool,
    /// The hints in the response to the search, best first.
    pub hints: Vec<GivenHint>,
    /// The steps since then, in the order in which they arrived.
    pub steps: Vec<FollowedStep>,
}

/// A file that was a hint in the response to a search.
#[derive(Debug, Clone, PartialEq)]
pub struct GivenHint {
    /// The rank among the hints of the search, from 1.
    pub rank: i32,
    /// The normalized path of the file.
    pub path: String,
    /// The association that led to the file, if there was one.
    pub association: Option<Uuid>,
    /// The id of the file in its repository, if that is known.
    pub file: Option<Uuid>,
    /// The score that the hint had.
    pub score: f64,
}

/// A search that has ended.
#[derive(Debug, Clone, PartialEq)]
pub struct EndedSearch {
    /// The search while it was open.
    pub search: OpenSearch,
    /// The state in which the search ended.
    pub state: SearchState,
    /// When the search ended, by the agent's clock.
    pub at: Timestamp,
    /// The files that were found, those with the most weight first. There are none unless the search was resolved.
    pub finds: Vec<FoundFile>,
    /// The files that turned out to be wrong.
    pub refuted: Vec<String>,
}

/// A file that answered a query.
#[derive(Debug, Clone, PartialEq)]
pub struct FoundFile {
    /// The normalized path of the file.
    pub path: String,
    /// The weight of this evidence for the file.
    pub weight: f64,
    /// When the file was read.
    pub at: Timestamp,
}

/// The work of one agent: an agent session, or a subagent in it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct AgentThread {
    /// The folder in which the agent began.
    pub root: Option<String>,
    /// The current turn.
    pub turn: Option<String>,
    /// The calls of tools whose results are awaited, oldest first.
    pub waiting: Vec<Uuid>,
    /// The time of the latest event.
    pub last_at: Option<Timestamp>,
    /// The time of the last prompt by a person.
    pub prompted_at: Option<Timestamp>,
    /// The number of prompts by a person, which is the number of the current turn.
    pub prompts: i32,
    /// The number of file names that the agent was told and that are stored.
    pub names: i32,
    /// The searches that are followed, oldest first.
    pub open: Vec<OpenSearch>,
}

impl AgentThread {
    /// Records that something happened at `at`, in `turn` if that is known. Returns the searches that ended because
    /// of a silence before it, or because their turn has ended.
    pub fn advance(&mut self, at: Timestamp, turn: Option<&str>, rules: &Rules) -> Vec<EndedSearch> {
        let mut ended = Vec::new();
        if let Some(last) = self.last_at
            && at.0 - last.0 > longest_silence(rules, !self.waiting.is_empty())
        {
            ended = self.end(SearchState::TimedOut, last, rules, |_| true);
        }
        let latest = self.last_at.is_none_or(|last| at >= last);
        if latest {
            self.last_at = Some(at);
        }
        if let Some(turn) = turn.filter(|turn| latest && self.turn.as_deref() != Some(turn)) {
            if self.turn.is_some() {
                ended.extend(self.end_turn(at, rules));
            }
            self.turn = Some(turn.to_owned());
        }
        ended
    }

    /// Records a prompt by a person. A hook and a transcript report the same prompt with slightly different times,
    /// and it counts once.
    pub fn prompt(&mut self, at: Timestamp) {
        if self.prompted_at.is_none_or(|before| at.0 - before.0 > SAME_PROMPT) {
            self.prompts = self.prompts.saturating_add(1);
        }
        self.prompted_at = self.prompted_at.max(Some(at));
    }

    /// Returns the turn of something that happened at `at`. It is none if that was before the current turn, because a
    /// transcript may repeat what hooks have reported long before.
    #[must_use]
    pub fn turn_at(&self, at: Timestamp) -> Option<i32> {
        self.prompted_at.is_none_or(|prompted| at >= prompted).then_some(self.prompts)
    }

    /// Returns whether searches are being repeated because of a prompt at `at`, which a hook and a transcript report
    /// with slightly different times.
    pub fn is_correcting(&self, at: Timestamp) -> bool {
        self.open.iter().any(|search| search.is_correction && (at.0 - search.at.0).abs() < SAME_PROMPT)
    }

    /// Records the call of a tool. The agent waits until it returns.
    pub fn wait(&mut self, call: Uuid) {
        if self.waiting.len() == MOST_WAITING {
            self.waiting.remove(0);
        }
        self.waiting.push(call);
    }

    /// Records the result of a tool.
    pub fn answered(&mut self, call: Uuid) {
        self.waiting.retain(|waiting| *waiting != call);
    }

    /// Follows a weak search.
    pub fn follow(&mut self, search: OpenSearch) {
        self.open.push(search);
    }

    /// Applies a step, which counts for every open search made before it, by its share. `addressed` is the search
    /// that the client names for the step. Returns the searches for which it counts.
    pub fn step(&mut self, step: &Step, addressed: Option<Uuid>) -> Vec<(Uuid, FollowedStep)> {
        let pattern = self.open.iter().flat_map(|search| &search.steps).rev();
        let looked_for = pattern
            .filter(|followed| matches!(followed.step.kind, FallbackKind::Grep | FallbackKind::Glob))
            .max_by_key(|followed| followed.step.at)
            .map(|followed| Terms::of(&followed.step.target));
        let target = Terms::of(&step.target);
        let likeness = |search: &OpenSearch| {
            if addressed == Some(search.id) {
                return 1.0 + LEAST_RESEMBLANCE;
            }
            let to_pattern = looked_for.as_ref().map_or(0.0, |pattern| search.terms.share_in(pattern));
            LEAST_RESEMBLANCE + search.terms.share_in(&target).max(to_pattern)
        };
        let takes = |search: &OpenSearch| {
            (addressed == Some(search.id) || search.at <= step.at)
                && search.has_room(step)
                && search.steps.iter().all(|followed| followed.step.id != step.id)
        };
        let followers = self.open.iter_mut().filter(|search| takes(search));
        let followers: Vec<_> = followers.map(|search| (likeness(search), search)).collect();
        let total: f64 = followers.iter().map(|(likeness, _)| likeness).sum();
        let follow = |(likeness, search): (f64, &mut OpenSearch)| {
            let followed = FollowedStep { step: step.clone(), share: likeness / total, counts: true };
            search.steps.push(followed.clone());
            (search.id, followed)
        };
        followers.into_iter().map(follow).collect()
    }

    /// Ends the turn, and every search made before its end.
    pub fn end_turn(&mut self, at: Timestamp, rules: &Rules) -> Vec<EndedSearch> {
        self.waiting.clear();
        self.end(SearchState::Unresolved, at, rules, |search| search.at <= at)
    }

    /// Ends one search, because the client says that its turn has ended.
    pub fn end_search(&mut self, id: Uuid, at: Timestamp, rules: &Rules) -> Vec<EndedSearch> {
        self.end(SearchState::Unresolved, at, rules, |search| search.id == id)
    }

    /// Ends all searches, because the agent has been silent for longer than the window.
    pub fn expire(&mut self, rules: &Rules) -> Vec<EndedSearch> {
        let at = self.last_at.unwrap_or_else(Timestamp::now);
        self.end(SearchState::TimedOut, at, rules, |_| true)
    }

    /// Ends the searches that `which` selects: as resolved if they have enough reads, and otherwise as `otherwise`.
    pub(super) fn end(
        &mut self,
        otherwise: SearchState,
        at: Timestamp,
        rules: &Rules,
        which: impl Fn(&OpenSearch) -> bool,
    ) -> Vec<EndedSearch> {
        let (over, open) = std::mem::take(&mut self.open).into_iter().partition(|search| which(search));
        self.open = open;
        let over: Vec<OpenSearch> = over;
        let end = |search: OpenSearch| {
            let finds = finds(&search);
            let enough = finds.len() >= rules.min_reads;
            EndedSearch {
                state: if enough { SearchState::Resolved } else { otherwise },
                refuted: if enough { refuted(&search, &finds) } else { Vec::new() },
                finds: if enough { finds } else { Vec::new() },
                at,
                search,
            }
        };
        over.into_iter().map(end).collect()
    }
}

/// Returns the maximum silence within a session, which is longer while the agent waits for a tool.
#[must_use]
pub fn longest_silence(rules: &Rules, waits: bool) -> TimeDelta {
    if waits { rules.window * PATIENCE } else { rules.window }
}

/// Returns the files that were read or added to the index, with their weights. The later a file was read, the greater
/// is its weight, and the last one counts double. An edited file counts more, and a file that the weak search itself
/// returned counts less.
///
/// After a correction, an edited file counts even if it was not read, because the agent may have read it in the
/// previous turn.
fn finds(search: &OpenSearch) -> Vec<FoundFile> {
    let steps = || search.steps.iter().filter(|followed| followed.counts && followed.step.ok);
    let is_find = |kind: FallbackKind| match kind {
        FallbackKind::Read | FallbackKind::Index => true,
        FallbackKind::Edit => search.is_correction,
        FallbackKind::Grep | FallbackKind::Glob => false,
    };
    let mut reads: BTreeMap<&str, (f64, Timestamp)> = BTreeMap::new();
    for FollowedStep { step, share, .. } in steps().filter(|followed| is_find(followed.step.kind)) {
        let read = reads.entry(&step.target).or_insert((*share, step.at));
        *read = (read.0.max(*share), read.1.max(step.at));
    }
    let mut reads: Vec<_> = reads.into_iter().collect();
    reads.sort_by_key(|(_, (_, at))| std::cmp::Reverse(*at));
    let is_chosen = |path: &str| {
        let chooses = |kind| matches!(kind, FallbackKind::Edit | FallbackKind::Index);
        steps().any(|followed| chooses(followed.step.kind) && followed.step.target == path)
    };
    let was_offered =
        |path: &str| !search.is_correction && search.offered.iter().any(|offered| offered == path);
    let weigh = |(rank, (path, (share, at))): (usize, (&str, (f64, Timestamp)))| {
        let lateness = 1.0 + 1.0 / (rank + 1) as f64;
        let chosen = if is_chosen(path) { EDITED } else { 1.0 };
        let offered = if was_offered(path) { OFFERED } else { 1.0 };
        FoundFile { path: path.to_owned(), weight: share * lateness * chosen * offered, at }
    };
    let mut finds: Vec<_> = reads.into_iter().enumerate().map(weigh).collect();
    finds.sort_by(|a, b| b.weight.total_cmp(&a.weight));
    finds
}

/// Returns the files to which a person objected and which the agent then left alone. If it went back to the first of
/// them, the objection was about something else.
fn refuted(search: &OpenSearch, finds: &[FoundFile]) -> Vec<String> {
    let is_found = |path: &String| finds.iter().any(|find| find.path == *path);
    if !search.is_correction || search.offered.first().is_none_or(is_found) {
        return Vec::new();
    }
    search.offered.iter().filter(|path| !is_found(path)).cloned().collect()
}

impl EndedSearch {
    /// Returns the hints, each with whether the file was read.
    pub fn hints(&self) -> impl Iterator<Item = (&GivenHint, bool)> {
        self.search.hints.iter().map(|hint| {
            let read = self.search.steps.iter().any(|followed| {
                let step = &followed.step;
                let is_read = matches!(step.kind, FallbackKind::Read | FallbackKind::Index);
                followed.counts && step.ok && is_read && step.target == hint.path
            });
            (hint, read)
        })
    }
}
