//! Entries of agents, from transcripts and hooks. The actions of a tool call count once it is known whether the call
//! succeeded.

use std::collections::{BTreeMap, BTreeSet};

use sqlx::PgConnection;
use uuid::Uuid;

use super::answered_calls::AnsweredCall;
use super::counts::TranscriptCounts;
use super::rows::ThreadKey;
use super::tool_calls::{Half, ToolCalls, call_id, pair};
use super::unit_of_work::UnitOfWork;
use super::{MOST_TARGETS, MOST_THREADS};
use crate::agents::{Activity, Entry, PassageSource, SearchHit, ToolAction};
use crate::domain::Domain;
use crate::privacy::hash_key::HashKey;
use crate::privacy::kept::Kept;
use crate::privacy::policy::Private;
use crate::privacy::redact::{GroupName as _, Redaction, Texts};
use crate::projects::Tenant;
use crate::retrieval::keys::Key;
use crate::searches::rules::names::{MOST_IDENTIFIERS, Names};
use crate::searches::rules::paths;
use crate::searches::rules::repository::repository;
use crate::sharing::Pauses;
use crate::types::{Timestamp, derived_id};

/// The maximum number of activities that are learned from together, unless one entry has more. The calls to which they refer
/// are in memory with what is stored of them.
const MOST_ACTIVITIES: usize = 512;
/// The maximum number of actions that one unit of work learns from, unless one call has more. Each may start a search, and
/// is a step of all open searches, so that it takes far more memory than in its call.
const MOST_ACTIONS: usize = 512;

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
    let threads = entries.iter().map(|entry| (thread_of(entry, source), key_of(entry))).collect();
    UnitOfWork::lock(connection, &tenant.name, &threads).await?;
    Ok(())
}

/// Learns from a group of entries of one source, in order, in as many units of work as their actions need. `calls` has the
/// known calls to which the entries refer.
pub(in crate::searches) async fn replay(
    connection: &mut PgConnection,
    tenant: &Tenant,
    source: &str,
    calls: &mut ToolCalls,
    entries: &[Kept<Entry>],
) -> sqlx::Result<TranscriptCounts> {
    let all = moments(entries);
    let (mut rest, mut counts) = (&all[..], TranscriptCounts::default());
    while !rest.is_empty() {
        let (moments, later) = rest.split_at(length_of_unit(rest, calls));
        if !later.is_empty() && rest.len() == all.len() {
            lock_threads(connection, tenant, source, entries).await?;
        }
        rest = later;
        let (threads, searches) = (threads_of(moments, source), searches_in(moments, calls, source));
        let mut unit =
            UnitOfWork::begin(connection, &tenant.name, &tenant.rules, &threads, &searches).await?;
        let corrected = moments.iter().filter(|moment| moment.activity == Some(&Activity::Correction));
        let corrected: Vec<_> = corrected.map(|moment| thread_of(moment.entry, source)).collect();
        unit.load_answered(connection, &corrected).await?;
        for moment in moments {
            unit.apply_moment(connection, *moment, source, calls, &mut counts).await?;
        }
        counts.add_saved(unit.save(connection, Timestamp::now()).await?);
    }
    Ok(counts)
}

/// The beginning of an entry, or one of its activities.
#[derive(Clone, Copy)]
struct Moment<'e> {
    entry: &'e Kept<Entry>,
    activity: Option<&'e Activity>,
}

/// Returns the moments of entries, in order.
fn moments(entries: &[Kept<Entry>]) -> Vec<Moment<'_>> {
    let mut moments = Vec::new();
    for entry in entries {
        let activities = entry.activities.iter().map(Some);
        moments.extend(std::iter::once(None).chain(activities).map(|activity| Moment { entry, activity }));
    }
    moments
}

/// Returns how many of these moments one unit of work takes: at least one, and then those with few enough actions, and few enough
/// bytes in them.
fn length_of_unit(moments: &[Moment<'_>], calls: &ToolCalls) -> usize {
    let (mut count, mut bytes) = (0, 0);
    let few = moments.iter().take_while(|moment| {
        for action in moment.actions(calls).map_or(&[][..], |(_, actions)| actions) {
            count += 1;
            bytes += action.size();
        }
        count <= MOST_ACTIONS && bytes <= MOST_TARGETS
    });
    few.count().max(1)
}

impl<'e> Moment<'e> {
    /// Returns the actions of the call to which the activity belongs, with the id that the agent gives the call. A use that
    /// is known already does not count again.
    fn actions<'a>(&self, calls: &'a ToolCalls) -> Option<(&'e str, &'a [ToolAction])>
    where
        'e: 'a,
    {
        match self.activity? {
            Activity::ToolUse { id: Some(id), actions } => {
                let is_known = calls.get(&call_id(id)).is_some_and(|call| call.used);
                (!is_known).then_some((id, actions))
            }
            Activity::ToolResult { id: Some(id), .. } => match &calls.get(&call_id(id))?.pending {
                Some(Half::Use(made)) => Some((id, &made.actions)),
                _ => None,
            },
            _ => None,
        }
    }
}

/// Counts the contents of entries, and learns nothing from them.
pub(in crate::searches) fn count(calls: &mut ToolCalls, entries: &[Kept<Entry>]) -> TranscriptCounts {
    let mut counts = TranscriptCounts::default();
    for entry in entries {
        for activity in &entry.activities {
            count_prompt(entry, activity, &mut counts);
            pair(calls, entry, activity, Vec::new, &mut counts);
        }
    }
    counts
}

/// Counts a prompt of a person. Another agent writes to a subagent.
fn count_prompt(entry: &Entry, activity: &Activity, counts: &mut TranscriptCounts) {
    let is_prompt = matches!(activity, Activity::Prompt | Activity::Correction);
    counts.human_turns += usize::from(is_prompt && entry.agent.is_none());
}

pub(super) fn key_of(entry: &Entry) -> ThreadKey {
    ThreadKey { session: entry.session.clone(), agent: entry.agent.clone() }
}

fn threads_of(moments: &[Moment<'_>], source: &str) -> BTreeMap<Uuid, ThreadKey> {
    moments.iter().map(|moment| (thread_of(moment.entry, source), key_of(moment.entry))).collect()
}

fn thread_of(entry: &Entry, source: &str) -> Uuid {
    key_of(entry).id(source.as_bytes())
}

/// Returns the id of an action of a call, which is the same from a hook and from a transcript, so that the action is
/// learned once. It is also the same in a forked session, whose transcript begins with the calls of the original
/// session. Ids that were drawn at random are the same call in every session. Other ids are counted within their
/// session.
pub(super) fn action_id(entry: &Entry, source: &str, call: &str, index: usize) -> Uuid {
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

/// Returns the ids of the searches that may start in these moments.
fn searches_in(moments: &[Moment<'_>], calls: &ToolCalls, source: &str) -> Vec<Uuid> {
    let mut ids = Vec::new();
    for moment in moments {
        let Some((call, actions)) = moment.actions(calls) else { continue };
        let numbered = actions.iter().enumerate();
        let searches = numbered.filter(|(_, action)| matches!(action, ToolAction::Search { .. }));
        ids.extend(searches.map(|(index, _)| action_id(moment.entry, source, call, index)));
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

impl UnitOfWork<'_> {
    /// Applies a moment. Other work of the thread that it runs on gets its turn before each activity.
    async fn apply_moment(
        &mut self,
        connection: &mut PgConnection,
        Moment { entry, activity }: Moment<'_>,
        source: &str,
        calls: &mut ToolCalls,
        counts: &mut TranscriptCounts,
    ) -> sqlx::Result<()> {
        let thread = thread_of(entry, source);
        let Some(activity) = activity else {
            self.enter(thread, entry).await;
            return Ok(());
        };
        tokio::task::yield_now().await;
        count_prompt(entry, activity, counts);
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
                let names = self.names_known_to(thread, entry);
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
                    let objects = *activity == Activity::Correction && entry.agent.is_none();
                    let (key, turn) = (key_of(entry), entry.turn.as_deref());
                    self.prompt(connection, thread, &key, turn, at, objects).await?;
                }
            }
            Activity::TurnEnd | Activity::SessionEnd => {
                if let Some(at) = entry.at {
                    self.end_turn(thread, at);
                }
            }
        }
        Ok(())
    }

    /// Begins an entry, whose activities follow.
    async fn enter(&mut self, thread: Uuid, entry: &Entry) {
        if let Some(at) = entry.at {
            // The first folder in which a thread works is the root of its paths.
            let root = &mut self.thread(thread).root;
            if root.is_none() {
                *root = entry.root.as_deref().map(paths::folder);
            }
            self.advance(thread, at, entry.turn.as_deref());
        }
        if let Some(names) = self.names_known_to(thread, entry) {
            self.hear(thread, entry, &names).await;
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

    /// Adds the names of files that a thread was told, as long as there is room for them. An entry may have texts of many
    /// megabytes: other work gets its turn between them.
    pub(super) async fn hear(&mut self, thread: Uuid, entry: &Entry, names: &Names) {
        let is_of_turn = entry.at.is_some_and(|at| self.thread(thread).turn_at(at).is_some());
        let answers =
            entry.passages.iter().filter(|passage| matches!(passage.source, PassageSource::Answer(_)));
        let told = answers.map(|answer| &answer.text).chain(&entry.prompt);
        let mut pauses = Pauses::begin();
        for text in told.filter(|_| is_of_turn) {
            if !self.encounters().has_room_for_names(thread) {
                return;
            }
            self.encounters().name(thread, names.files(text));
            pauses.pause().await;
        }
    }
}
