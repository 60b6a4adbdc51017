//! The searches that a transaction has loaded, and the changes that it will save.

use std::collections::{BTreeMap, HashMap};

use sqlx::PgConnection;
use uuid::Uuid;

use super::corrections::{self, correction_id};
use super::encounters::Encounters;
use super::rows::{AnsweredSearch, AppendedStep, NamedFallback, StartedSearch, StoredSearch, ThreadKey};
use super::tables;
use crate::searches::associations::evidence;
use crate::searches::limits::{MOST_OF_RESULTS, first_results};
use crate::searches::rules::learner::{
    AgentThread, EndedSearch, FollowedStep, OpenSearch, SearchState, Step,
};
use crate::searches::rules::terms::Terms;
use crate::searches::settings::Rules;
use crate::searches::{SearchResult, TurnSearch};
use crate::types::Timestamp;

/// The threads that a transaction has locked, and what happens to their searches in it.
pub(super) struct UnitOfWork<'a> {
    project: &'a str,
    rules: &'a Rules,
    threads: BTreeMap<Uuid, AgentThread>,
    stored: HashMap<Uuid, StoredSearch>,
    started: Vec<StartedSearch>,
    appended: Vec<AppendedStep>,
    /// The steps that were posted for a search which has them already, because they were posted for another one.
    named: Vec<NamedFallback>,
    ended: Vec<EndedSearch>,
    /// The files to which searches of the current turns have led.
    answered: Vec<AnsweredSearch>,
    encounters: Encounters,
}

impl<'a> UnitOfWork<'a> {
    /// Locks these threads, creating those that do not exist, and loads their open searches and what is stored about
    /// `searches`.
    pub(super) async fn begin(
        connection: &mut PgConnection,
        project: &'a str,
        rules: &'a Rules,
        threads: &BTreeMap<Uuid, ThreadKey>,
        searches: &[Uuid],
    ) -> sqlx::Result<Self> {
        let mut threads = Self::lock(connection, project, threads).await?;
        tables::read_open_searches(connection, project, &mut threads).await?;
        let stored = tables::read_stored_searches(connection, project, searches).await?;
        Ok(Self { stored, ..Self::of(project, rules, threads) })
    }

    /// Locks these threads, creating those that do not exist.
    pub(super) async fn lock(
        connection: &mut PgConnection,
        project: &str,
        threads: &BTreeMap<Uuid, ThreadKey>,
    ) -> sqlx::Result<BTreeMap<Uuid, AgentThread>> {
        let ids: Vec<_> = threads.keys().copied().collect();
        loop {
            tables::insert_threads(connection, project, threads).await?;
            let locked = tables::lock_threads(connection, project, &ids).await?;
            // A thread that was erased just before it could be locked is created again.
            if locked.len() == ids.len() {
                return Ok(locked);
            }
        }
    }

    /// Locks those of these threads that exist, and loads their open searches.
    pub(super) async fn of_known_threads(
        connection: &mut PgConnection,
        project: &'a str,
        rules: &'a Rules,
        threads: &[Uuid],
    ) -> sqlx::Result<Self> {
        let mut threads = tables::lock_threads(connection, project, threads).await?;
        tables::read_open_searches(connection, project, &mut threads).await?;
        Ok(Self::of(project, rules, threads))
    }

    /// Makes the unit of work of locked threads.
    pub(super) fn of(project: &'a str, rules: &'a Rules, threads: BTreeMap<Uuid, AgentThread>) -> Self {
        Self {
            project,
            rules,
            threads,
            stored: HashMap::new(),
            started: Vec::new(),
            appended: Vec::new(),
            named: Vec::new(),
            ended: Vec::new(),
            answered: Vec::new(),
            encounters: Encounters::default(),
        }
    }

    /// Loads the searches to which a correction may refer: those that these threads have made since the last prompt.
    pub(super) async fn load_answered(
        &mut self,
        connection: &mut PgConnection,
        threads: &[Uuid],
    ) -> sqlx::Result<()> {
        if !threads.is_empty() {
            self.answered = corrections::read_answered_searches(connection, self.project, threads).await?;
        }
        Ok(())
    }

    /// Returns whether the threads of all loaded searches are locked. Those of a search that has started since its thread was
    /// looked up are not.
    pub(super) fn has_all_threads(&self) -> bool {
        self.stored.values().all(|search| self.threads.contains_key(&search.thread))
    }

    /// The project that the unit writes to.
    pub(super) fn project(&self) -> &'a str {
        self.project
    }

    /// What the threads have encountered.
    pub(super) fn encounters(&mut self) -> &mut Encounters {
        &mut self.encounters
    }

    /// The settings of the project.
    pub(super) fn rules(&self) -> &'a Rules {
        self.rules
    }

    /// Returns what is known of a search, if it is stored or was started in this unit.
    pub(super) fn stored(&self, search: Uuid) -> Option<&StoredSearch> {
        self.stored.get(&search)
    }

    /// Returns a thread that was locked.
    pub(super) fn thread(&mut self, id: Uuid) -> &mut AgentThread {
        self.threads.entry(id).or_default()
    }

    /// Records that something happened on a thread.
    pub(super) fn advance(&mut self, thread: Uuid, at: Timestamp, turn: Option<&str>) {
        let rules = self.rules;
        let ended = self.thread(thread).advance(at, turn, rules);
        self.end(thread, ended);
    }

    /// Adds a search, which is followed if it is weak.
    pub(super) fn start(&mut self, search: StartedSearch) {
        let stored = StoredSearch {
            thread: search.thread,
            state: search.state,
            root: search.root.clone(),
            hash: search.hash.clone(),
        };
        self.stored.insert(search.id, stored);
        let open = (search.state == SearchState::Tracking).then(|| OpenSearch {
            id: search.id,
            query: search.query.clone(),
            terms: Terms::of(&search.query),
            root: search.root.clone().unwrap_or_default(),
            at: search.at,
            is_correction: search.corrects.is_some(),
            offered: search.results.iter().map(|result| result.path.clone()).collect(),
            hints: search.hints.clone(),
            steps: Vec::new(),
        });
        let thread = search.thread;
        self.started.push(search);
        if let Some(open) = open {
            self.thread(thread).follow(open);
            self.make_room(thread);
        }
    }

    /// Ends the oldest searches of a thread if they are more than is followed.
    fn make_room(&mut self, thread: Uuid) {
        let rules = self.rules;
        let ended = self.thread(thread).make_room(rules);
        self.end(thread, ended);
    }

    /// Adds a step, from which open searches may learn. `addressed` is the search for which the step was posted, with
    /// the hash of the request. It keeps the step even if it has too many to consider one more. Returns what was added,
    /// for each search that keeps the step.
    pub(super) fn step(
        &mut self,
        thread: Uuid,
        step: &Step,
        addressed: Option<(Uuid, &[u8])>,
    ) -> &[AppendedStep] {
        let before = self.appended.len();
        let followed = self.thread(thread).step(step, addressed.map(|(search, _)| search));
        let ignored =
            addressed.filter(|(addressed, _)| followed.iter().all(|(search, _)| search != addressed));
        if let Some((search, hash)) = ignored {
            self.step_in_vain(search, step.clone(), hash);
        }
        self.appended.extend(followed.into_iter().map(|(search, followed)| {
            let hash = addressed.filter(|(addressed, _)| *addressed == search);
            AppendedStep { search, followed, hash: hash.map(|(_, hash)| hash.to_vec()) }
        }));
        self.make_room(thread);
        &self.appended[before..]
    }

    /// Adds a step that was posted for a search that is over, or that has too many steps. It is stored, but does not
    /// count. Returns what was added.
    pub(super) fn step_in_vain(&mut self, search: Uuid, step: Step, hash: &[u8]) -> &[AppendedStep] {
        let followed = FollowedStep { step, share: 0.0, counts: false };
        self.appended.push(AppendedStep { search, followed, hash: Some(hash.to_vec()) });
        &self.appended[self.appended.len() - 1..]
    }

    /// Records that a step which a search keeps already was now posted for that search.
    pub(super) fn name(&mut self, search: Uuid, id: Uuid, hash: &[u8]) {
        self.named.push(NamedFallback { search, id, hash: hash.to_vec() });
    }

    /// Ends the turn of one search.
    pub(super) fn end_search(&mut self, thread: Uuid, search: Uuid, at: Timestamp) {
        let rules = self.rules;
        let ended = self.thread(thread).end_search(search, at, rules);
        self.end(thread, ended);
    }

    /// Ends a turn.
    pub(super) fn end_turn(&mut self, thread: Uuid, at: Timestamp) {
        let rules = self.rules;
        let ended = self.thread(thread).end_turn(at, rules);
        self.end(thread, ended);
    }

    /// Records a prompt of a person, which ends the previous turn. If it objects to the result, the searches of that
    /// turn are repeated, as if they had returned just that result.
    pub(super) async fn prompt(
        &mut self,
        connection: &mut PgConnection,
        thread: Uuid,
        key: &ThreadKey,
        turn: Option<&str>,
        at: Timestamp,
        objects: bool,
    ) -> sqlx::Result<()> {
        if objects && self.thread(thread).is_correcting(at) {
            return Ok(());
        }
        self.end_turn(thread, at);
        let before = self.thread(thread).prompted_at;
        self.thread(thread).prompt(at);
        let (answered, others) =
            std::mem::take(&mut self.answered).into_iter().partition(|answered| answered.thread == thread);
        self.answered = others;
        let mut answered: Vec<AnsweredSearch> = answered;
        let Some(before) = before.filter(|_| objects) else { return Ok(()) };
        answered.retain(|answered| (before..=at).contains(&answered.at));
        answered.retain(|answered| self.stored(correction_id(answered.id)).is_none());
        // The searches that repeat them are stored if the correction was reported before, also if what they repeat was erased
        // since and has only now started again.
        let ids: Vec<_> = answered.iter().map(|answered| correction_id(answered.id)).collect();
        self.stored.extend(tables::read_stored_searches(connection, self.project, &ids).await?);
        for (id, answered) in ids.into_iter().zip(answered) {
            if self.stored(id).is_some() {
                continue;
            }
            let result_count = i32::try_from(answered.found.len()).unwrap_or(i32::MAX);
            let result = |path| SearchResult { path, score: None };
            let results = first_results(answered.found.into_iter().map(result), MOST_OF_RESULTS);
            let search = StartedSearch {
                id,
                thread,
                key: key.clone(),
                turn: turn.map(str::to_owned),
                query: answered.query,
                best_score: None,
                result_count,
                results,
                root: answered.root,
                at,
                state: SearchState::Tracking,
                hash: Vec::new(),
                hints: Vec::new(),
                corrects: Some(answered.id),
            };
            self.start(search);
        }
        Ok(())
    }

    /// Ends the searches of agents that have been silent for too long.
    pub(super) fn expire(&mut self) {
        let rules = self.rules;
        let expire = |(id, thread): (&Uuid, &mut AgentThread)| (*id, thread.expire(rules));
        let ended: Vec<_> = self.threads.iter_mut().map(expire).collect();
        for (thread, ended) in ended {
            self.end(thread, ended);
        }
    }

    /// Records that searches of a thread have ended.
    fn end(&mut self, thread: Uuid, ended: Vec<EndedSearch>) {
        for ended in ended {
            if ended.state == SearchState::Resolved {
                let search = &ended.search;
                self.answered.push(AnsweredSearch {
                    id: search.id,
                    thread,
                    query: search.query.clone(),
                    root: Some(search.root.clone()).filter(|root| !root.is_empty()),
                    at: search.at,
                    found: ended.finds.iter().map(|find| find.path.clone()).collect(),
                });
            }
            if let Some(stored) = self.stored.get_mut(&ended.search.id) {
                stored.state = ended.state;
            }
            self.ended.push(ended);
        }
    }

    /// Returns the searches that ended, each with the time at which it was made.
    pub(super) fn ended_searches(&self) -> impl Iterator<Item = (Timestamp, TurnSearch)> {
        self.ended
            .iter()
            .map(|ended| (ended.search.at, TurnSearch { id: ended.search.id, state: ended.state }))
    }

    /// Saves the changes, and learns from the searches that have ended. `received` is the time of arrival by the
    /// server's clock.
    pub(super) async fn save(
        mut self,
        connection: &mut PgConnection,
        received: Timestamp,
    ) -> sqlx::Result<Saved> {
        let project = self.project;
        tables::insert_searches(connection, project, &self.started).await?;
        tables::insert_fallbacks(connection, project, &self.appended).await?;
        tables::name_fallbacks(connection, project, &self.named).await?;
        tables::end_searches(connection, project, &self.ended).await?;
        self.encounters.save(connection, project, &mut self.threads).await?;
        tables::update_threads(connection, project, &self.threads, received).await?;
        let associations = evidence::learn(connection, project, self.rules, &self.ended).await?;
        Ok(Saved {
            records: self.started.len(),
            started: self.started.iter().filter(|search| search.state == SearchState::Tracking).count(),
            resolved: self.ended.iter().filter(|ended| ended.state == SearchState::Resolved).count(),
            associations,
        })
    }
}

/// The result of saving.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Saved {
    /// The number of new searches.
    pub(super) records: usize,
    /// The number of searches that are now followed.
    pub(super) started: usize,
    /// The number of searches that were resolved.
    pub(super) resolved: usize,
    /// The number of new associations.
    pub(super) associations: usize,
}
