//! The learner: it follows what an agent does after weak searches, and says what was found.
//!
//! It knows neither database nor clock. Times are those of the events, so a transcript replayed next year teaches the
//! same. An [`AgentThread`] is the work of one agent; its open searches are followed until the turn ends or the agent falls
//! silent.

use std::collections::BTreeMap;

use chrono::TimeDelta;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use super::terms::resemblance;
use crate::searches::settings::Rules;
use crate::types::Timestamp;

/// How many searches of one agent are followed at once; the oldest gives way.
const MOST_OPEN: usize = 64;
/// How many steps after a search are looked at.
const MOST_STEPS: usize = 1_000;
/// How many windows an agent may wait for a tool, which runs or which somebody has to allow, before that is silence, too.
const PATIENCE: i32 = 10;
/// How many calls of one agent are waited for at once.
const MOST_WAITING: usize = 64;
/// How far apart the times may be that a hook and a transcript give the same prompt.
const SAME_PROMPT: TimeDelta = TimeDelta::seconds(5);
/// What every open search gets of a step, however little the step resembles its query.
const LEAST_RESEMBLANCE: f64 = 0.25;
/// How many times as much a file weighs that is edited, too, or that the agent adds to its index by hand.
const EDITED: f64 = 3.0;
/// How many times as much a file weighs that the search itself had offered, if only among weak results.
const OFFERED: f64 = 0.5;

/// The kind of action after a search.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema, sqlx::Type)]
#[serde(rename_all = "lowercase")]
#[sqlx(type_name = "text", rename_all = "lowercase")]
pub enum FallbackKind {
    /// The agent reads a file.
    Read,
    /// The agent looks through contents.
    Grep,
    /// The agent looks through names.
    Glob,
    /// The agent changes a file.
    Edit,
    /// The agent adds a file to the index that its searches ask.
    Index,
}

/// The state of a search.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema, sqlx::Type)]
#[serde(rename_all = "snake_case")]
#[sqlx(type_name = "text", rename_all = "snake_case")]
pub enum SearchState {
    /// The search was weak, and what follows it is being watched.
    Tracking,
    /// The search was good enough to be left alone.
    Strong,
    /// The search ended with enough reads: something was learned.
    Resolved,
    /// The turn ended before there were enough reads.
    Unresolved,
    /// The agent fell silent before there were enough reads.
    TimedOut,
}

impl SearchState {
    /// The state of a search that has just been made: it is tracked if it is weak.
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
    /// What was done.
    pub kind: FallbackKind,
    /// A normalized path, or a pattern.
    pub target: String,
    /// Whether the step worked: what failed teaches nothing.
    pub ok: bool,
    /// When the step was taken.
    pub at: Timestamp,
}

/// A step as one search sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct FollowedStep {
    /// The step.
    pub step: Step,
    /// The part of the step that is this search's, 0 to 1.
    pub share: f64,
    /// Whether the step came in time.
    pub counts: bool,
}

/// A weak search that is being followed.
#[derive(Debug, Clone, PartialEq)]
pub struct OpenSearch {
    /// The id of the search.
    pub id: Uuid,
    /// The query of the search.
    pub query: String,
    /// The folder that the search is about; empty where none is known.
    pub root: String,
    /// When the search was made.
    pub at: Timestamp,
    /// The paths in the result of the search, best first.
    pub offered: Vec<String>,
    /// Whether a person has said that what the search offers is not what they meant: it repeats a search that had found just
    /// that.
    pub is_correction: bool,
    /// The hints in the response to the search, best first.
    pub hints: Vec<GivenHint>,
    /// The steps taken since, in the order in which they came in.
    pub steps: Vec<FollowedStep>,
}

/// A file that a search was answered with.
#[derive(Debug, Clone, PartialEq)]
pub struct GivenHint {
    /// The rank among the hints of the search, from 1.
    pub rank: i32,
    /// The normalised path of the file.
    pub path: String,
    /// The association that spoke for the file, if one did.
    pub association: Option<Uuid>,
    /// How likely the file was thought to be worth opening.
    pub score: f64,
}

/// A search whose session is over.
#[derive(Debug, Clone, PartialEq)]
pub struct EndedSearch {
    /// The search as it was followed.
    pub search: OpenSearch,
    /// The state in which the search ended.
    pub state: SearchState,
    /// When the search ended, by the agent's clock.
    pub at: Timestamp,
    /// The files that were found, the heaviest first; none unless the search was resolved.
    pub finds: Vec<FoundFile>,
    /// The files that turned out not to be what was meant.
    pub refuted: Vec<String>,
}

/// A file that answered a query.
#[derive(Debug, Clone, PartialEq)]
pub struct FoundFile {
    /// The normalized path of the file.
    pub path: String,
    /// How much the find says for the file.
    pub weight: f64,
    /// When the file was read.
    pub at: Timestamp,
}

/// The work of one agent: an agent session, or a subagent in it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct AgentThread {
    /// The folder in which the agent began.
    pub root: Option<String>,
    /// The turn under way.
    pub turn: Option<String>,
    /// Calls of tools that have not been answered yet, the oldest first.
    pub waiting: Vec<Uuid>,
    /// When the latest event happened.
    pub last_at: Option<Timestamp>,
    /// When a person last said something.
    pub prompted_at: Option<Timestamp>,
    /// How many prompts of a person there were: the number of the turn under way.
    pub prompts: i32,
    /// How many names of files the agent was told of, as far as they are remembered.
    pub names: i32,
    /// The searches that are followed, the oldest first.
    pub open: Vec<OpenSearch>,
}

impl AgentThread {
    /// Notes that something happened at `at`, in `turn` if that is known; returns the searches that a silence before it, or
    /// the end of the turn before it, has ended.
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

    /// Notes that a person says something. A hook and a transcript tell the same prompt, though not with quite the same time, and
    /// it counts once.
    pub fn prompt(&mut self, at: Timestamp) {
        if self.prompted_at.is_none_or(|before| at.0 - before.0 > SAME_PROMPT) {
            self.prompts = self.prompts.saturating_add(1);
        }
        self.prompted_at = self.prompted_at.max(Some(at));
    }

    /// The turn to which something belongs that happened at `at`; none if that was before the turn under way, as a transcript
    /// may tell what hooks have told long ago.
    #[must_use]
    pub fn turn_at(&self, at: Timestamp) -> Option<i32> {
        self.prompted_at.is_none_or(|prompted| at >= prompted).then_some(self.prompts)
    }

    /// Whether searches are being made again because of what a person said at `at`: a hook and a transcript tell the same prompt,
    /// though not with quite the same time.
    pub fn is_correcting(&self, at: Timestamp) -> bool {
        self.open.iter().any(|search| search.is_correction && (at.0 - search.at.0).abs() < SAME_PROMPT)
    }

    /// Notes that a tool is called: until it answers, the agent waits.
    pub fn wait(&mut self, call: Uuid) {
        if self.waiting.len() == MOST_WAITING {
            self.waiting.remove(0);
        }
        self.waiting.push(call);
    }

    /// Notes that a tool has answered.
    pub fn answered(&mut self, call: Uuid) {
        self.waiting.retain(|waiting| *waiting != call);
    }

    /// Follows a weak search; returns the one that gives way, if any.
    pub fn follow(&mut self, search: OpenSearch, rules: &Rules) -> Vec<EndedSearch> {
        let oldest = (self.open.len() >= MOST_OPEN).then(|| self.open[0].id);
        self.open.push(search);
        let at = self.last_at;
        oldest.zip(at).map_or_else(Vec::new, |(oldest, at)| self.end_search(oldest, at, rules))
    }

    /// Takes a step, which counts for every open search made before it, by its share. `addressed` is the search that the
    /// client says the step is about. Returns the searches that took it.
    pub fn step(&mut self, step: &Step, addressed: Option<Uuid>) -> Vec<(Uuid, FollowedStep)> {
        let takes = |search: &OpenSearch| {
            (addressed == Some(search.id) || search.at <= step.at)
                && search.steps.len() < MOST_STEPS
                && search.steps.iter().all(|followed| followed.step.id != step.id)
        };
        let pattern = self.open.iter().flat_map(|search| &search.steps).rev();
        let pattern = pattern
            .filter(|followed| matches!(followed.step.kind, FallbackKind::Grep | FallbackKind::Glob))
            .max_by_key(|followed| followed.step.at)
            .map(|followed| followed.step.target.clone());
        let likeness = |search: &OpenSearch| {
            if addressed == Some(search.id) {
                return 1.0 + LEAST_RESEMBLANCE;
            }
            let to_pattern = pattern.as_deref().map_or(0.0, |pattern| resemblance(&search.query, pattern));
            LEAST_RESEMBLANCE + resemblance(&search.query, &step.target).max(to_pattern)
        };
        let total: f64 = self.open.iter().filter(|search| takes(search)).map(likeness).sum();
        let mut followers = Vec::new();
        for search in self.open.iter_mut().filter(|search| takes(search)) {
            let followed = FollowedStep { step: step.clone(), share: likeness(search) / total, counts: true };
            search.steps.push(followed.clone());
            followers.push((search.id, followed));
        }
        followers
    }

    /// Ends the turn, and with it every search made before that.
    pub fn end_turn(&mut self, at: Timestamp, rules: &Rules) -> Vec<EndedSearch> {
        self.waiting.clear();
        self.end(SearchState::Unresolved, at, rules, |search| search.at <= at)
    }

    /// Ends one search, because the client says that its turn has ended.
    pub fn end_search(&mut self, id: Uuid, at: Timestamp, rules: &Rules) -> Vec<EndedSearch> {
        self.end(SearchState::Unresolved, at, rules, |search| search.id == id)
    }

    /// Ends all searches, because nothing has been heard for longer than the window.
    pub fn expire(&mut self, rules: &Rules) -> Vec<EndedSearch> {
        let at = self.last_at.unwrap_or_else(Timestamp::now);
        self.end(SearchState::TimedOut, at, rules, |_| true)
    }

    /// Ends the searches that `which` selects, as resolved if they have enough reads, else as `otherwise`.
    fn end(
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

/// The longest silence that a session outlives, by whether the agent waits for a tool.
#[must_use]
pub fn longest_silence(rules: &Rules, waits: bool) -> TimeDelta {
    if waits { rules.window * PATIENCE } else { rules.window }
}

/// The files that were read, or added to the index. The later a file was read the more it weighs, the last one double; more again
/// if it was edited; and less if the weak result had offered it.
///
/// After a correction a file that is edited counts as well: the agent may have read it in the turn before.
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

/// The files that a person has objected to and that the agent then left alone. Where it went back to the first of them, the
/// objection was about something else.
fn refuted(search: &OpenSearch, finds: &[FoundFile]) -> Vec<String> {
    let is_found = |path: &String| finds.iter().any(|find| find.path == *path);
    if !search.is_correction || search.offered.first().is_none_or(is_found) {
        return Vec::new();
    }
    search.offered.iter().filter(|path| !is_found(path)).cloned().collect()
}

impl EndedSearch {
    /// The hints, each with whether the file was read.
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
