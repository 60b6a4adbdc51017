//! Entries of agents, from transcripts and hooks. The actions of a tool call count once it is known whether the call
//! succeeded.

use std::collections::{BTreeMap, BTreeSet};

use sqlx::PgConnection;
use uuid::Uuid;

use super::MOST_THREADS;
use super::counts::TranscriptCounts;
use super::rows::{StartedSearch, ThreadKey};
use super::tool_calls::{Half, ToolCalls, ToolResult, ToolUse, call_id, pair};
use super::unit_of_work::UnitOfWork;
use crate::agents::{Activity, Entry, PassageSource, SearchHit, SearchOutput, SearchTool, ToolAction};
use crate::domain::Domain;
use crate::privacy::hash_key::HashKey;
use crate::privacy::kept::Kept;
use crate::privacy::policy::Private;
use crate::privacy::redact::{GroupName as _, Redaction, Texts};
use crate::projects::Tenant;
use crate::retrieval::keys::Key;
use crate::searches::SearchResult;
use crate::searches::limits::{MOST_PATH, MOST_QUERY, MOST_RESULTS, cut};
use crate::searches::rules::learner::{AgentThread, FallbackKind, SearchState, Step};
use crate::searches::rules::names::{MOST_IDENTIFIERS, Names};
use crate::searches::rules::paths;
use crate::searches::rules::repository::repository;
use crate::types::{Timestamp, derived_id};

/// The maximum number of activities that are learned from together, unless one entry has more.
const MOST_ACTIVITIES: usize = 4_096;

impl Private for Entry {
    fn domain(&self) -> Domain {
        Domain::Searches
    }

    fn reduce(self, _: &HashKey) -> Option<Self> {
        None
    }

    fn redact(&mut self, redaction: &mut Redaction<'_>) {
        self.texts(redaction);
    }
}

impl Texts for Entry {
    fn texts(&mut self, redaction: &mut Redaction<'_>) {
        self.session.group_name(redaction);
        for name in [&mut self.agent, &mut self.turn, &mut self.root, &mut self.prompt] {
            name.texts(redaction);
        }
        for activity in &mut self.activities {
            match activity {
                Activity::ToolUse { actions, .. } => actions.texts(redaction),
                Activity::ToolResult { output: Some(output), .. } => output.hits.texts(redaction),
                _ => {}
            }
        }
        for passage in &mut self.passages {
            passage.text.texts(redaction);
        }
    }
}

impl Texts for ToolAction {
    fn texts(&mut self, redaction: &mut Redaction<'_>) {
        match self {
            Self::Search { query, path, .. } => {
                query.texts(redaction);
                path.texts(redaction);
            }
            Self::Read { path } | Self::Edit { path } | Self::Index { path } => path.texts(redaction),
        }
    }
}

crate::texts! {
    SearchHit: path;
}

/// Divides entries into groups to learn from one after the other, each small enough for its threads and calls to be in
/// memory.
pub(in crate::searches) fn groups<'e>(entries: &'e [Kept<Entry>], source: &str) -> Vec<&'e [Kept<Entry>]> {
    let (mut groups, mut begin) = (Vec::new(), 0);
    let (mut threads, mut activities) = (BTreeSet::new(), 0);
    for (index, entry) in entries.iter().enumerate() {
        threads.insert(thread_of(entry, source));
        activities += entry.activities.len();
        if index > begin && (threads.len() > MOST_THREADS || activities > MOST_ACTIVITIES) {
            groups.push(&entries[begin..index]);
            begin = index;
            threads = BTreeSet::from([thread_of(entry, source)]);
            activities = entry.activities.len();
        }
    }
    groups.extend(Some(&entries[begin..]).filter(|rest| !rest.is_empty()));
    groups
}

/// Locks the threads of all entries of one source, which are then learned from in [`groups`].
pub(in crate::searches) async fn lock_threads(
    connection: &mut PgConnection,
    tenant: &Tenant,
    source: &str,
    entries: &[Kept<Entry>],
) -> sqlx::Result<()> {
    UnitOfWork::lock(connection, &tenant.name, &threads_of(entries, source)).await?;
    Ok(())
}

/// Learns from a group of entries of one source, in order. `calls` has the known calls to which the entries refer.
pub(in crate::searches) async fn replay(
    connection: &mut PgConnection,
    tenant: &Tenant,
    source: &str,
    calls: &mut ToolCalls,
    entries: &[Kept<Entry>],
) -> sqlx::Result<TranscriptCounts> {
    let (threads, searches) = (threads_of(entries, source), searches_in(entries, calls, source));
    let mut unit = UnitOfWork::begin(connection, &tenant.name, &tenant.rules, &threads, &searches).await?;
    let corrected = entries.iter().filter(|entry| entry.activities.contains(&Activity::Correction));
    let corrected: Vec<_> = corrected.map(|entry| thread_of(entry, source)).collect();
    unit.load_answered(connection, &corrected, &searches).await?;
    let mut counts = TranscriptCounts::default();
    for entry in entries {
        unit.enter(entry, source, calls, &mut counts).await;
    }
    counts.add_saved(unit.save(connection, Timestamp::now()).await?);
    Ok(counts)
}

/// Counts the contents of entries, and learns nothing from them.
pub(in crate::searches) fn count(calls: &mut ToolCalls, entries: &[Kept<Entry>]) -> TranscriptCounts {
    let mut counts = TranscriptCounts::default();
    for entry in entries {
        for activity in &entry.activities {
            count_prompt(activity, &mut counts);
            pair(calls, entry, activity, Vec::new, &mut counts);
        }
    }
    counts
}

fn count_prompt(activity: &Activity, counts: &mut TranscriptCounts) {
    counts.human_turns += usize::from(matches!(activity, Activity::Prompt | Activity::Correction));
}

fn key_of(entry: &Entry) -> ThreadKey {
    ThreadKey { session: entry.session.clone(), agent: entry.agent.clone() }
}

fn threads_of(entries: &[Kept<Entry>], source: &str) -> BTreeMap<Uuid, ThreadKey> {
    entries.iter().map(|entry| (thread_of(entry, source), key_of(entry))).collect()
}

fn thread_of(entry: &Entry, source: &str) -> Uuid {
    key_of(entry).id(source.as_bytes())
}

/// Returns the id of an action of a call, which is the same from a hook and from a transcript, so that the action is
/// learned once. It is also the same in a forked session, whose transcript begins with the calls of the original
/// session. Ids that were drawn at random are the same call in every session. Other ids are counted within their
/// session.
fn action_id(entry: &Entry, source: &str, call: &str, index: usize) -> Uuid {
    let session = if is_random(call) { "" } else { entry.session.as_deref().unwrap_or(source) };
    derived_id(&[b"action", session.as_bytes(), call.as_bytes(), &index.to_be_bytes()])
}

/// Returns whether the id of a call was drawn at random, like `toolu_01…`, `call_…` and `exec-` with a UUID, so that
/// no other call has it. Names and numbers of tools have no such long part with digits.
fn is_random(call: &str) -> bool {
    const LONG: usize = 20;
    let is_long = |part: &str| part.len() >= LONG && part.bytes().any(|byte| byte.is_ascii_digit());
    let uuid = call.len().checked_sub(36).and_then(|start| call.get(start..));
    call.split(|character: char| !character.is_ascii_alphanumeric()).any(is_long)
        || uuid.is_some_and(|uuid| Uuid::try_parse(uuid).is_ok())
}

/// Returns the ids of the searches that these entries may start.
fn searches_in(entries: &[Kept<Entry>], calls: &ToolCalls, source: &str) -> Vec<Uuid> {
    let mut ids = Vec::new();
    for entry in entries {
        for activity in &entry.activities {
            let (call, actions) = match activity {
                Activity::ToolUse { id: Some(id), actions } => (id, actions),
                Activity::ToolResult { id: Some(id), .. } => {
                    match calls.get(&call_id(id)).and_then(|call| call.pending.as_ref()) {
                        Some(Half::Use(made)) => (id, &made.actions),
                        _ => continue,
                    }
                }
                _ => continue,
            };
            let numbered = actions.iter().enumerate();
            let searches = numbered.filter(|(_, action)| matches!(action, ToolAction::Search { .. }));
            ids.extend(searches.map(|(index, _)| action_id(entry, source, call, index)));
        }
    }
    ids
}

/// Returns the keys of the identifiers that the use of a tool writes to files.
fn written(entry: &Entry, activity: &Activity, names: Option<&Names>) -> Vec<Key> {
    let (Some(names), Activity::ToolUse { id: Some(id), .. }) = (names, activity) else { return Vec::new() };
    let written = entry
        .passages
        .iter()
        .find(|passage| matches!(&passage.source, PassageSource::Written(by) if by == id))
        .map(|written| names.identifiers(&written.text));
    written.unwrap_or_default().into_iter().take(MOST_IDENTIFIERS).collect()
}

/// A call with its result.
struct AnsweredCall<'a> {
    id: &'a str,
    made: &'a ToolUse,
    result: &'a ToolResult,
}

impl UnitOfWork<'_> {
    /// Applies an entry. Other work of the thread that it runs on gets its turn after each activity.
    async fn enter(
        &mut self,
        entry: &Kept<Entry>,
        source: &str,
        calls: &mut ToolCalls,
        counts: &mut TranscriptCounts,
    ) {
        let thread = thread_of(entry, source);
        if let Some(at) = entry.at {
            // The first folder in which a thread works is the root of its paths.
            let root = &mut self.thread(thread).root;
            if root.is_none() {
                *root = entry.root.as_deref().map(paths::folder);
            }
            self.advance(thread, at, entry.turn.as_deref());
        }
        let names = self.names_known_to(thread, entry);
        if let Some(names) = &names {
            self.hear(thread, entry, names);
        }
        for activity in &entry.activities {
            tokio::task::yield_now().await;
            count_prompt(activity, counts);
            match activity {
                Activity::ToolUse { id, .. } | Activity::ToolResult { id, .. } => {
                    if let Some(id) = id.as_deref().map(call_id) {
                        let is_use = matches!(activity, Activity::ToolUse { .. });
                        let answered = calls.get(&id).is_some_and(|call| call.answered);
                        self.thread(thread).answered(id);
                        if is_use && !answered {
                            self.thread(thread).wait(id);
                        }
                    }
                    let wrote = || written(entry, activity, names.as_ref());
                    if let Some((id, made, result)) = pair(calls, entry, activity, wrote, counts) {
                        let call = AnsweredCall { id, made: &made, result: &result };
                        self.take_call(thread, entry, source, &call);
                        if let Some(names) = &names {
                            self.touch_files(thread, entry, &call, names);
                        }
                    }
                }
                Activity::Prompt | Activity::Correction => {
                    if let Some(at) = entry.at {
                        let objects = *activity == Activity::Correction;
                        self.prompt(thread, &key_of(entry), entry.turn.as_deref(), at, objects);
                    }
                }
                Activity::TurnEnd | Activity::SessionEnd => {
                    if let Some(at) = entry.at {
                        self.end_turn(thread, at);
                    }
                }
            }
        }
    }

    /// Returns what finds the names in an entry, in the repository in which the thread works. It is none for an entry
    /// without a session, which could not ask for hints, or without a folder.
    fn names_known_to(&mut self, thread: Uuid, entry: &Entry) -> Option<Names> {
        let is_learned_from = self.rules().learn && entry.session.is_some();
        let project = self.project();
        let root = self.thread(thread).root.as_deref().filter(|_| is_learned_from)?;
        Some(Names::of(project, &repository(root)))
    }

    /// Adds the names of files that a thread was told.
    fn hear(&mut self, thread: Uuid, entry: &Entry, names: &Names) {
        let is_of_turn = entry.at.is_some_and(|at| self.thread(thread).turn_at(at).is_some());
        let answers =
            entry.passages.iter().filter(|passage| matches!(passage.source, PassageSource::Answer(_)));
        let told = answers.map(|answer| &answer.text).chain(&entry.prompt);
        for text in told.filter(|_| is_of_turn) {
            self.encounters().name(thread, names.files(text));
        }
    }

    /// Adds the files that a call has read or changed. What it has shown or written is attributed to a file only if
    /// it is the only one.
    fn touch_files(&mut self, thread: Uuid, entry: &Entry, call: &AnsweredCall<'_>, names: &Names) {
        let Some(at) = call.made.at.or(entry.at) else { return };
        let AgentThread { root: Some(root), .. } = self.thread(thread) else { return };
        let root = root.clone();
        let Some(turn) = self.thread(thread).turn_at(at).filter(|_| call.result.ok) else { return };
        let path = |action: &ToolAction| match action {
            ToolAction::Read { path } | ToolAction::Edit { path } | ToolAction::Index { path } => {
                let path = paths::normalise(path, call.made.folder.as_deref(), Some(&root));
                (1..=MOST_PATH).contains(&path.chars().count()).then_some(path)
            }
            ToolAction::Search { .. } => None,
        };
        let touched: BTreeSet<String> = call.made.actions.iter().filter_map(path).collect();
        let mut identifiers = BTreeSet::new();
        if touched.len() == 1 {
            let shown = entry.passages.iter().find(
                |passage| matches!(&passage.source, PassageSource::Answer(answered) if answered == call.id),
            );
            identifiers = shown.map(|shown| names.identifiers(&shown.text)).unwrap_or_default();
            identifiers.extend(&call.made.wrote);
        }
        for path in touched {
            self.encounters().touch(thread, &root, &path, (turn, at), identifiers.iter().copied());
        }
    }

    /// Applies the actions of a call as steps, and its searches as searches.
    fn take_call(&mut self, thread: Uuid, entry: &Entry, source: &str, call: &AnsweredCall<'_>) {
        let Some(at) = call.made.at.or(entry.at) else { return };
        let root = self.thread(thread).root.clone();
        let normalise = |path: &str| paths::normalise(path, call.made.folder.as_deref(), root.as_deref());
        for (index, action) in call.made.actions.iter().enumerate() {
            let id = action_id(entry, source, call.id, index);
            let step = |kind, target: String| Step { id, kind, target, ok: call.result.ok, at };
            match action {
                ToolAction::Read { path } | ToolAction::Edit { path } | ToolAction::Index { path } => {
                    let kind = match action {
                        ToolAction::Edit { .. } => FallbackKind::Edit,
                        ToolAction::Index { .. } => FallbackKind::Index,
                        _ => FallbackKind::Read,
                    };
                    if (1..=MOST_PATH).contains(&path.len()) {
                        self.step(thread, &step(kind, normalise(path)), None);
                    }
                }
                ToolAction::Search { tool, query, .. } => {
                    let mut query = query.clone();
                    cut(&mut query, MOST_QUERY);
                    if query.is_empty() || !call.result.ok {
                        continue;
                    }
                    let kind = match tool {
                        SearchTool::Grep => Some(FallbackKind::Grep),
                        SearchTool::Glob => Some(FallbackKind::Glob),
                        SearchTool::Index => None,
                    };
                    if let Some(kind) = kind {
                        self.step(thread, &step(kind, query.clone()), None);
                    }
                    let is_search = |output: &SearchOutput| {
                        kind.is_none() || (output.is_empty() && self.rules().track_builtin)
                    };
                    let output = call.result.output.as_ref().filter(|output| is_search(output));
                    if let Some(output) = output.filter(|_| self.stored(id).is_none()) {
                        let best_score = best_score(output);
                        let count = output.count.unwrap_or(output.hits.len() as u64);
                        let hits = output.hits.iter().take(MOST_RESULTS);
                        let result = |path, score| SearchResult { path: normalise(path), score };
                        let search = StartedSearch {
                            id,
                            thread,
                            key: key_of(entry),
                            turn: entry.turn.clone(),
                            query,
                            best_score,
                            result_count: i32::try_from(count).unwrap_or(i32::MAX),
                            results: hits.map(|hit| result(&hit.path, hit.score)).collect(),
                            root: root.clone(),
                            at,
                            state: SearchState::of_new(best_score, self.rules()),
                            hash: Vec::new(),
                            hints: Vec::new(),
                            corrects: None,
                        };
                        self.start(search);
                    }
                }
            }
        }
    }
}

/// Returns the best known score in a search's output. It is 0 if the search found nothing.
fn best_score(output: &SearchOutput) -> Option<f64> {
    if output.is_empty() {
        return Some(0.0);
    }
    let named = || output.hits.iter().filter_map(|hit| hit.score).max_by(f64::total_cmp);
    output.best_score.or_else(named)
}
