//! What the entries of a transcript or a hook come to: uses of tools are paired with their results, and what was done is
//! played on the [`Desk`]. Knows nothing of where entries come from or how the pairs are kept.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use super::learner::{Kind, State, Step};
use super::write::{Desk, Saved, Started, Who};
use super::{MOST_PATH, MOST_QUERY, MOST_RESULTS, SearchResult, paths};
use crate::agents::{Activity, Entry, SearchOutput, SearchTool, ToolAction};
use crate::domain::Domain;
use crate::privacy::hash_key::HashKey;
use crate::privacy::kept::Kept;
use crate::privacy::policy::Private;
use crate::types::{Timestamp, derived_id};

/// The most characters of a name that an agent gives: longer ones are cut.
const MOST_NAME: usize = 200;

/// What became of the lines of one call.
#[derive(Debug, Default, Clone, Copy, Serialize, Deserialize, ToSchema)]
#[schema(as = TranscriptCounts)]
pub struct Counts {
    /// Lines that are not blank.
    pub lines: usize,
    /// Lines that are byte for byte the same as one taken before under this source. The other counts are of new lines only.
    pub duplicates: usize,
    /// Malformed lines, which were passed over.
    pub bad_lines: usize,
    /// Uses of tools.
    pub tool_uses: usize,
    /// Results of tools.
    pub tool_results: usize,
    /// Pairs of both, counted when the second half arrives.
    pub matched: usize,
    /// Prompts and slash commands of a person.
    pub human_turns: usize,
    /// Weak searches that are now followed.
    pub searches_started: usize,
    /// Searches that led to a file.
    pub searches_resolved: usize,
    /// Associations that there were not before.
    pub associations_created: usize,
}

impl Counts {
    /// Adds those of another piece.
    pub fn add(&mut self, other: Self) {
        self.lines += other.lines;
        self.duplicates += other.duplicates;
        self.bad_lines += other.bad_lines;
        self.tool_uses += other.tool_uses;
        self.tool_results += other.tool_results;
        self.matched += other.matched;
        self.human_turns += other.human_turns;
        self.searches_started += other.searches_started;
        self.searches_resolved += other.searches_resolved;
        self.associations_created += other.associations_created;
    }

    /// Adds what was learned.
    pub(super) fn saved(&mut self, saved: Saved) {
        self.searches_started += saved.started;
        self.searches_resolved += saved.resolved;
        self.associations_created += saved.associations;
    }
}

impl Private for Entry {
    fn domain(&self) -> Domain {
        Domain::Searches
    }

    fn reduce(self, _: &HashKey) -> Option<Self> {
        None
    }
}

/// What an entry may leave out because the one before it has said so.
#[derive(Debug, Default, Clone, PartialEq, sqlx::FromRow)]
pub(super) struct Carried {
    pub(super) session: Option<String>,
    pub(super) turn: Option<String>,
    pub(super) root: Option<String>,
    pub(super) last_at: Option<Timestamp>,
}

impl Carried {
    /// Fills in what the entry leaves out, and carries on what it says.
    pub(super) fn complete(&mut self, entry: &mut Entry) {
        if entry.session.is_some() && entry.session != self.session {
            *self = Self::default();
        }
        for (own, carried, most) in [
            (&mut entry.session, &mut self.session, MOST_NAME),
            (&mut entry.turn, &mut self.turn, MOST_NAME),
            (&mut entry.root, &mut self.root, MOST_PATH),
        ] {
            match own {
                Some(text) => {
                    cut(text, most);
                    carried.clone_from(own);
                }
                None => own.clone_from(carried),
            }
        }
        if let Some(agent) = &mut entry.agent {
            cut(agent, MOST_NAME);
        }
        self.last_at = entry.at.or(self.last_at);
        entry.at = self.last_at;
    }
}

/// Cuts a text to so many characters.
fn cut(text: &mut String, most: usize) {
    if let Some((end, _)) = text.char_indices().nth(most) {
        text.truncate(end);
    }
}

/// A use of a tool and its result, or whichever of them is here.
#[derive(Debug, Default, Clone)]
pub(super) struct Call {
    pub(super) session: Option<String>,
    pub(super) used: bool,
    pub(super) answered: bool,
    pub(super) pending: Option<Pending>,
    pub(super) changed: bool,
}

/// What the half that is here says. A use that does nothing of interest says nothing.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) enum Pending {
    Use(Use),
    Answer(Answer),
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Use {
    at: Option<Timestamp>,
    /// The folder that relative paths are relative to.
    folder: Option<String>,
    actions: Vec<ToolAction>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Answer {
    ok: bool,
    found: Option<SearchOutput>,
}

/// Calls by the id that the agent gives them.
pub(super) type Calls = HashMap<String, Call>;

/// The ids of the calls that these entries are about.
pub(super) fn call_ids(entries: &[Kept<Entry>]) -> Vec<String> {
    let id = |event: &Activity| match event {
        Activity::ToolUse { id, .. } | Activity::ToolResult { id, .. } => id.clone(),
        _ => None,
    };
    entries.iter().flat_map(|entry| &entry.activities).filter_map(id).collect()
}

/// The trails that these entries are about.
pub(super) fn trails(entries: &[Kept<Entry>], source: &str) -> BTreeMap<Uuid, Who> {
    entries.iter().map(|entry| (trail(entry, source), who(entry))).collect()
}

fn who(entry: &Entry) -> Who {
    Who { session: entry.session.clone(), agent: entry.agent.clone() }
}

fn trail(entry: &Entry, source: &str) -> Uuid {
    who(entry).trail(source.as_bytes())
}

/// Names what one action of a call does. The same from a hook as from a transcript: told twice, it is learned once.
fn action_id(who: &Who, source: &str, call: &str, place: usize) -> Uuid {
    let session = who.session.as_deref().unwrap_or(source);
    derived_id(&[b"action", session.as_bytes(), call.as_bytes(), &place.to_be_bytes()])
}

/// The searches that these entries may start.
pub(super) fn searches(entries: &[Kept<Entry>], calls: &Calls, source: &str) -> Vec<Uuid> {
    let mut ids = Vec::new();
    for entry in entries {
        for event in &entry.activities {
            let (call, actions) = match event {
                Activity::ToolUse { id: Some(id), actions } => (id, actions),
                Activity::ToolResult { id: Some(id), .. } => {
                    match calls.get(id).and_then(|call| call.pending.as_ref()) {
                        Some(Pending::Use(made)) => (id, &made.actions),
                        _ => continue,
                    }
                }
                _ => continue,
            };
            let places = actions.iter().enumerate();
            let searches = places.filter(|(_, action)| matches!(action, ToolAction::Search { .. }));
            ids.extend(searches.map(|(place, _)| action_id(&who(entry), source, call, place)));
        }
    }
    ids
}

/// Plays entries, in order, on the desk, if there is one: without, they are only counted.
pub(super) fn play(
    mut desk: Option<&mut Desk<'_>>,
    calls: &mut Calls,
    entries: &[Kept<Entry>],
    source: &str,
) -> Counts {
    let mut counts = Counts::default();
    for entry in entries {
        let trail = trail(entry, source);
        if let (Some(desk), Some(at)) = (desk.as_deref_mut(), entry.at) {
            desk.enter(trail, entry.root.as_deref());
            desk.advance(trail, at, entry.turn.as_deref());
        }
        for event in &entry.activities {
            match event {
                Activity::Prompt => counts.human_turns += 1,
                Activity::ToolUse { id, .. } | Activity::ToolResult { id, .. } => {
                    if let (Some(desk), Some(id)) = (desk.as_deref_mut(), id) {
                        let called = matches!(event, Activity::ToolUse { .. });
                        let answered = calls.get(id).is_some_and(|call| call.answered);
                        desk.wait(trail, id, called && !answered);
                    }
                    let complete = pair(calls, entry, event, &mut counts);
                    if let (Some(desk), Some((call, made, answer))) = (desk.as_deref_mut(), complete) {
                        desk.perform(trail, entry, source, (call, &made), &answer);
                    }
                }
                Activity::TurnEnd | Activity::SessionEnd => {}
            }
            let ends = matches!(event, Activity::Prompt | Activity::TurnEnd | Activity::SessionEnd);
            if let (true, Some(desk), Some(at)) = (ends, desk.as_deref_mut(), entry.at) {
                desk.end_turn(trail, at);
            }
        }
    }
    counts
}

/// Takes half of a call; the whole, if the other half is here already. What was taken before counts no more.
fn pair<'e>(
    calls: &mut Calls,
    entry: &Entry,
    event: &'e Activity,
    counts: &mut Counts,
) -> Option<(&'e str, Use, Answer)> {
    let (Activity::ToolUse { id, .. } | Activity::ToolResult { id, .. }) = event else {
        return None;
    };
    let Some(id) = id else {
        match event {
            Activity::ToolUse { .. } => counts.tool_uses += 1,
            _ => counts.tool_results += 1,
        }
        return None;
    };
    let call = calls.entry(id.clone()).or_default();
    call.session = call.session.take().or_else(|| entry.session.clone());
    let other = match event {
        Activity::ToolUse { .. } if call.used => return None,
        Activity::ToolResult { .. } if call.answered => return None,
        Activity::ToolUse { actions, .. } => {
            counts.tool_uses += 1;
            call.used = true;
            let made = Use { at: entry.at, folder: entry.root.clone(), actions: actions.clone() };
            (Some(made).filter(|made| !made.actions.is_empty()), None)
        }
        Activity::ToolResult { ok, output, .. } => {
            counts.tool_results += 1;
            call.answered = true;
            (None, Some(Answer { ok: *ok, found: output.clone() }))
        }
        _ => return None,
    };
    call.changed = true;
    let before = call.pending.take();
    if call.used && call.answered {
        counts.matched += 1;
        return match (other, before) {
            ((Some(made), _), Some(Pending::Answer(answer)))
            | ((_, Some(answer)), Some(Pending::Use(made))) => Some((id, made, answer)),
            _ => None,
        };
    }
    call.pending = match other {
        (Some(made), _) => Some(Pending::Use(made)),
        (_, Some(answer)) => Some(Pending::Answer(answer)),
        _ => None,
    };
    None
}

impl Desk<'_> {
    /// An agent is at work in this folder; the first one of its trail is the root of its paths.
    fn enter(&mut self, trail: Uuid, folder: Option<&str>) {
        let trail = self.trails.entry(trail).or_default();
        if trail.root.is_none() {
            trail.root = folder.map(paths::folder);
        }
    }

    /// The agent waits for a call to be answered, or no longer does.
    fn wait(&mut self, trail: Uuid, call: &str, waits: bool) {
        let trail = self.trails.entry(trail).or_default();
        trail.answered(call);
        if waits {
            trail.wait(call);
        }
    }

    /// A call has been answered: what it did counts now that it is known whether it worked.
    fn perform(
        &mut self,
        trail: Uuid,
        entry: &Entry,
        source: &str,
        (call, made): (&str, &Use),
        answer: &Answer,
    ) {
        let Some(at) = made.at.or(entry.at) else { return };
        let root = self.trails.get(&trail).and_then(|trail| trail.root.clone());
        let normalise = |path: &str| paths::normalise(path, made.folder.as_deref(), root.as_deref());
        for (place, action) in made.actions.iter().enumerate() {
            let id = action_id(&who(entry), source, call, place);
            let step = |kind, target: String| Step { id, kind, target, ok: answer.ok, at };
            match action {
                ToolAction::Read { path } | ToolAction::Edit { path } => {
                    let kind =
                        if matches!(action, ToolAction::Read { .. }) { Kind::Read } else { Kind::Edit };
                    if (1..=MOST_PATH).contains(&path.len()) {
                        self.step(trail, &step(kind, normalise(path)));
                    }
                }
                ToolAction::Search { tool, query, .. } => {
                    let mut query = query.clone();
                    cut(&mut query, MOST_QUERY);
                    if query.is_empty() || !answer.ok {
                        continue;
                    }
                    let kind = match tool {
                        SearchTool::Grep => Some(Kind::Grep),
                        SearchTool::Glob => Some(Kind::Glob),
                        SearchTool::Index => None,
                    };
                    if let Some(kind) = kind {
                        self.step(trail, &step(kind, query.clone()));
                    }
                    let found = answer
                        .found
                        .as_ref()
                        .filter(|found| kind.is_none() || (found.is_empty() && self.rules.track_builtin));
                    if let Some(found) = found.filter(|_| !self.knows(id)) {
                        let search = self.searched(id, trail, entry, query, at, found);
                        let results = found.hits.iter().take(MOST_RESULTS);
                        let results =
                            results.map(|hit| SearchResult { path: normalise(&hit.path), score: hit.score });
                        let search = Started { results: results.collect(), root: root.clone(), ..search };
                        self.start(search, Vec::new());
                    }
                }
            }
        }
    }

    fn searched(
        &self,
        id: Uuid,
        trail: Uuid,
        entry: &Entry,
        query: String,
        at: Timestamp,
        found: &SearchOutput,
    ) -> Started {
        let named = || found.hits.iter().filter_map(|hit| hit.score).max_by(f64::total_cmp);
        let best_score = if found.is_empty() { Some(0.0) } else { found.best_score.or_else(named) };
        let count = found.count.unwrap_or(found.hits.len() as u64);
        let state = if self.rules.is_weak(best_score) { State::Tracking } else { State::Strong };
        Started {
            id,
            trail,
            who: who(entry),
            turn: entry.turn.clone(),
            query,
            best_score,
            result_count: i32::try_from(count).unwrap_or(i32::MAX),
            results: Vec::new(),
            root: None,
            at,
            state,
            hash: Vec::new(),
            hints: Vec::new(),
        }
    }
}
