//! The learner: follows what an agent does after weak searches, and says what was found.
//!
//! It knows neither database nor clock. Times are those of the events, so a transcript replayed next year teaches the
//! same. A [`Trail`] is what one agent does; its open searches are followed until the turn ends or the agent falls silent.

use std::collections::BTreeMap;

use chrono::TimeDelta;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use super::settings::Rules;
use super::words::resemblance;
use crate::types::Timestamp;

/// How many searches of one agent are followed at once; the oldest gives way.
const MOST_OPEN: usize = 64;
/// How many steps after a search are looked at.
const MOST_STEPS: usize = 1_000;
/// How many windows an agent may wait for a tool, which runs or which somebody has to allow, before that is silence, too.
const PATIENCE: i32 = 10;
/// How many calls of one agent are waited for at once.
const MOST_WAITING: usize = 64;
/// What every open search gets of a step, however little it resembles it.
const LEAST_RESEMBLANCE: f64 = 0.25;
/// How much more a file weighs that is edited, too.
const EDITED: f64 = 3.0;

/// What an agent does after a search.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema, sqlx::Type)]
#[serde(rename_all = "lowercase")]
#[sqlx(type_name = "text", rename_all = "lowercase")]
#[schema(as = FallbackKind)]
pub enum Kind {
    /// Reads a file.
    Read,
    /// Looks through contents.
    Grep,
    /// Looks through names.
    Glob,
    /// Changes a file.
    Edit,
}

/// How a search stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema, sqlx::Type)]
#[serde(rename_all = "snake_case")]
#[sqlx(type_name = "text", rename_all = "snake_case")]
#[schema(as = SearchState)]
pub enum State {
    /// Weak; what follows is being watched.
    Tracking,
    /// Good enough to be left alone.
    Strong,
    /// Ended with enough reads: something was learned.
    Resolved,
    /// The turn ended before there were enough.
    Unresolved,
    /// The agent fell silent before there were enough.
    TimedOut,
}

/// One thing that an agent did.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// Names it.
    pub id: Uuid,
    /// What.
    pub kind: Kind,
    /// A normalised path, or a pattern.
    pub target: String,
    /// Whether it worked: what failed teaches nothing.
    pub ok: bool,
    /// When.
    pub at: Timestamp,
}

/// A step as one search sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct Followed {
    /// What was done.
    pub step: Step,
    /// Which part of it is this search's.
    pub share: f64,
    /// Whether it came in time.
    pub counts: bool,
}

/// A weak search that is being followed.
#[derive(Debug, Clone, PartialEq)]
pub struct Open {
    /// The search.
    pub id: Uuid,
    /// What was sought.
    pub query: String,
    /// Where.
    pub root: String,
    /// When.
    pub at: Timestamp,
    /// The paths that it offered: reading these is no discovery.
    pub offered: Vec<String>,
    /// What the agent was told to look at instead: associations and their paths.
    pub hints: Vec<(Uuid, String)>,
    /// What was done since, in the order it came in.
    pub steps: Vec<Followed>,
}

/// A search whose session is over.
#[derive(Debug, Clone, PartialEq)]
pub struct Ended {
    /// The search as it was followed.
    pub search: Open,
    /// How it ended.
    pub state: State,
    /// When, by the agent's clock.
    pub at: Timestamp,
    /// What was found, the heaviest first; nothing unless it was resolved.
    pub finds: Vec<Find>,
}

/// A file that answered a query.
#[derive(Debug, Clone, PartialEq)]
pub struct Find {
    /// Its normalised path.
    pub path: String,
    /// How much this says.
    pub weight: f64,
    /// When it was read.
    pub at: Timestamp,
}

/// What one agent does.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Trail {
    /// The folder in which it began.
    pub root: Option<String>,
    /// The turn under way.
    pub turn: Option<String>,
    /// Calls of tools that have not been answered yet, the oldest first.
    pub waiting: Vec<String>,
    /// When its latest event happened.
    pub last_at: Option<Timestamp>,
    /// Its searches that are followed, the oldest first.
    pub open: Vec<Open>,
}

impl Trail {
    /// Something happened at `at`, in `turn` if that is known. Ends what a silence before it, or the end of the turn
    /// before it, has ended.
    pub fn advance(&mut self, at: Timestamp, turn: Option<&str>, rules: &Rules) -> Vec<Ended> {
        let mut ended = Vec::new();
        if let Some(last) = self.last_at
            && at.0 - last.0 > longest_silence(rules, !self.waiting.is_empty())
        {
            ended = self.end(State::TimedOut, last, rules, |_| true);
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

    /// A tool is called: until it answers, the agent waits.
    pub fn wait(&mut self, call: &str) {
        if self.waiting.len() == MOST_WAITING {
            self.waiting.remove(0);
        }
        self.waiting.push(call.to_owned());
    }

    /// A tool has answered.
    pub fn answered(&mut self, call: &str) {
        self.waiting.retain(|waiting| waiting != call);
    }

    /// Follows a weak search.
    pub fn follow(&mut self, search: Open, rules: &Rules) -> Vec<Ended> {
        let oldest = (self.open.len() >= MOST_OPEN).then(|| self.open[0].id);
        self.open.push(search);
        let at = self.last_at;
        oldest.zip(at).map_or_else(Vec::new, |(oldest, at)| self.end_search(oldest, at, rules))
    }

    /// Something was done: it counts for every open search made before it, by its share. `addressed` is the search that
    /// the client says it is about. Returns the searches that took it.
    pub fn step(&mut self, step: &Step, addressed: Option<Uuid>) -> Vec<(Uuid, Followed)> {
        let takes = |search: &Open| {
            (addressed == Some(search.id) || search.at <= step.at)
                && search.steps.len() < MOST_STEPS
                && search.steps.iter().all(|followed| followed.step.id != step.id)
        };
        let pattern = self.open.iter().flat_map(|search| &search.steps).rev();
        let pattern = pattern
            .filter(|followed| matches!(followed.step.kind, Kind::Grep | Kind::Glob))
            .max_by_key(|followed| followed.step.at)
            .map(|followed| followed.step.target.clone());
        let likeness = |search: &Open| {
            if addressed == Some(search.id) {
                return 1.0 + LEAST_RESEMBLANCE;
            }
            let to_pattern = pattern.as_deref().map_or(0.0, |pattern| resemblance(&search.query, pattern));
            LEAST_RESEMBLANCE + resemblance(&search.query, &step.target).max(to_pattern)
        };
        let total: f64 = self.open.iter().filter(|search| takes(search)).map(likeness).sum();
        let mut followers = Vec::new();
        for search in self.open.iter_mut().filter(|search| takes(search)) {
            let followed = Followed { step: step.clone(), share: likeness(search) / total, counts: true };
            search.steps.push(followed.clone());
            followers.push((search.id, followed));
        }
        followers
    }

    /// The turn ends, and with it every search made before that.
    pub fn end_turn(&mut self, at: Timestamp, rules: &Rules) -> Vec<Ended> {
        self.waiting.clear();
        self.end(State::Unresolved, at, rules, |search| search.at <= at)
    }

    /// The client says that the turn of one search has ended.
    pub fn end_search(&mut self, id: Uuid, at: Timestamp, rules: &Rules) -> Vec<Ended> {
        self.end(State::Unresolved, at, rules, |search| search.id == id)
    }

    /// Nothing has been heard for longer than the window.
    pub fn expire(&mut self, rules: &Rules) -> Vec<Ended> {
        let at = self.last_at.unwrap_or_else(Timestamp::now);
        self.end(State::TimedOut, at, rules, |_| true)
    }

    /// Ends the searches that `which` says, as resolved if they have enough reads, else as `otherwise`.
    fn end(
        &mut self,
        otherwise: State,
        at: Timestamp,
        rules: &Rules,
        which: impl Fn(&Open) -> bool,
    ) -> Vec<Ended> {
        let (over, open) = std::mem::take(&mut self.open).into_iter().partition(|search| which(search));
        self.open = open;
        let over: Vec<Open> = over;
        let end = |search: Open| {
            let finds = finds(&search);
            let enough = finds.len() >= rules.min_reads;
            Ended {
                state: if enough { State::Resolved } else { otherwise },
                finds: if enough { finds } else { Vec::new() },
                at,
                search,
            }
        };
        over.into_iter().map(end).collect()
    }
}

/// The longest silence that a session outlives.
#[must_use]
pub fn longest_silence(rules: &Rules, waits: bool) -> TimeDelta {
    if waits { rules.window * PATIENCE } else { rules.window }
}

/// What was read and had not been offered. The later a file was read the more it weighs, the last one double; and more
/// again if it was edited.
fn finds(search: &Open) -> Vec<Find> {
    let steps = || search.steps.iter().filter(|followed| followed.counts && followed.step.ok);
    let mut reads: BTreeMap<&str, (f64, Timestamp)> = BTreeMap::new();
    for Followed { step, share, .. } in steps().filter(|followed| followed.step.kind == Kind::Read) {
        if !search.offered.contains(&step.target) {
            let read = reads.entry(&step.target).or_insert((*share, step.at));
            *read = (read.0.max(*share), read.1.max(step.at));
        }
    }
    let mut reads: Vec<_> = reads.into_iter().collect();
    reads.sort_by_key(|(_, (_, at))| std::cmp::Reverse(*at));
    let edited =
        |path: &str| steps().any(|followed| followed.step.kind == Kind::Edit && followed.step.target == path);
    let weigh = |(place, (path, (share, at))): (usize, (&str, (f64, Timestamp)))| {
        let lateness = 1.0 + 1.0 / (place + 1) as f64;
        let weight = share * lateness * if edited(path) { EDITED } else { 1.0 };
        Find { path: path.to_owned(), weight, at }
    };
    let mut finds: Vec<_> = reads.into_iter().enumerate().map(weigh).collect();
    finds.sort_by(|a, b| b.weight.total_cmp(&a.weight));
    finds
}

impl Ended {
    /// Whether each hint was followed: the file was read.
    pub fn hints(&self) -> impl Iterator<Item = (Uuid, bool)> + '_ {
        self.search.hints.iter().map(|(association, path)| {
            let read = self.search.steps.iter().any(|followed| {
                let step = &followed.step;
                followed.counts && step.ok && step.kind == Kind::Read && step.target == *path
            });
            (*association, read)
        })
    }
}
