//! How searches are written: trails are locked and laid on a [`Desk`], events are played on them, and what came of it is
//! saved, all in one transaction. The writer's events, hooks, transcripts and expiry all go this way.

use std::collections::{BTreeMap, HashMap};

use sqlx::{Connection as _, PgConnection};
use uuid::Uuid;

use super::associations::evidence;
use super::event::{Action, Append, Start};
use super::learner::{Ended, Followed, Open, State, Step, Trail};
use super::settings::Rules;
use super::{Event, SearchResult, paths, tables};
use crate::db::receipt::{Receipt, Written};
use crate::error::Error;
use crate::privacy::kept::Kept;
use crate::types::{Timestamp, derived_id};

/// Whose trail it is.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Who {
    /// The agent's session.
    pub session: Option<String>,
    /// The subagent in it.
    pub agent: Option<String>,
}

impl Who {
    /// The trail's id. Without a session, `alone` stands for one.
    #[must_use]
    pub fn trail(&self, alone: &[u8]) -> Uuid {
        let agent = self.agent.as_deref().unwrap_or_default().as_bytes();
        match &self.session {
            Some(session) => derived_id(&[b"trail", session.as_bytes(), agent]),
            None => derived_id(&[b"lone trail", alone, agent]),
        }
    }
}

/// A search that is new.
#[derive(Debug)]
pub(super) struct Started {
    pub(super) id: Uuid,
    pub(super) trail: Uuid,
    pub(super) who: Who,
    pub(super) turn: Option<String>,
    pub(super) query: String,
    pub(super) best_score: Option<f64>,
    pub(super) result_count: i32,
    pub(super) results: Vec<SearchResult>,
    pub(super) root: Option<String>,
    pub(super) at: Timestamp,
    pub(super) state: State,
    pub(super) hash: Vec<u8>,
    pub(super) hints: Vec<(Uuid, f64)>,
}

/// What is known of a search that is stored.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) trail: Uuid,
    pub(super) state: State,
    pub(super) hash: Vec<u8>,
}

/// A fallback that is new, as one search sees it.
#[derive(Debug)]
pub(super) struct Appended {
    pub(super) search: Uuid,
    pub(super) followed: Followed,
    pub(super) hash: Option<Vec<u8>>,
}

/// Trails that this transaction has locked, and what happened to them in it.
pub struct Desk<'a> {
    pub(super) project: &'a str,
    /// The settings in force.
    pub rules: &'a Rules,
    pub(super) trails: BTreeMap<Uuid, Trail>,
    pub(super) known: HashMap<Uuid, Known>,
    pub(super) started: Vec<Started>,
    pub(super) appended: Vec<Appended>,
    pub(super) ended: Vec<Ended>,
}

impl<'a> Desk<'a> {
    /// Locks these trails, makes those that are not there yet, and reads their open searches, and what is known of the
    /// `searches`.
    pub async fn open(
        connection: &mut PgConnection,
        project: &'a str,
        rules: &'a Rules,
        trails: &BTreeMap<Uuid, Who>,
        searches: &[Uuid],
    ) -> sqlx::Result<Self> {
        let ids: Vec<_> = trails.keys().copied().collect();
        tables::insert_trails(connection, project, trails).await?;
        let mut trails = tables::lock_trails(connection, project, &ids).await?;
        tables::read_open(connection, project, &mut trails).await?;
        let known = tables::read_known(connection, project, searches).await?;
        Ok(Self { known, ..Self::of(project, rules, trails) })
    }

    /// A desk with these trails, which are locked.
    pub(super) fn of(project: &'a str, rules: &'a Rules, trails: BTreeMap<Uuid, Trail>) -> Self {
        let known = HashMap::new();
        Self { project, rules, trails, known, started: vec![], appended: vec![], ended: vec![] }
    }

    /// Whether this search is stored, or new on this desk.
    #[must_use]
    pub fn knows(&self, search: Uuid) -> bool {
        self.known.contains_key(&search)
    }

    /// Something happened on a trail.
    pub fn advance(&mut self, trail: Uuid, at: Timestamp, turn: Option<&str>) {
        let rules = self.rules;
        let ended = self.trails.entry(trail).or_default().advance(at, turn, rules);
        self.take_ended(ended);
    }

    /// A search was made; it is followed if it is weak.
    pub(super) fn start(&mut self, search: Started, hints: Vec<(Uuid, String)>) {
        let known = Known { trail: search.trail, state: search.state, hash: search.hash.clone() };
        self.known.insert(search.id, known);
        if search.state == State::Tracking {
            let open = Open {
                id: search.id,
                query: search.query.clone(),
                root: search.root.clone().unwrap_or_default(),
                at: search.at,
                offered: search.results.iter().map(|result| result.path.clone()).collect(),
                hints,
                steps: Vec::new(),
            };
            let rules = self.rules;
            let ended = self.trails.entry(search.trail).or_default().follow(open, rules);
            self.started.push(search);
            self.take_ended(ended);
        } else {
            self.started.push(search);
        }
    }

    /// Something was done that open searches may learn from.
    pub fn step(&mut self, trail: Uuid, step: &Step) {
        self.append(trail, step, None);
    }

    fn append(&mut self, trail: Uuid, step: &Step, addressed: Option<(Uuid, &[u8])>) {
        let trail = self.trails.entry(trail).or_default();
        let taken = trail.step(step, addressed.map(|(search, _)| search));
        self.appended.extend(taken.into_iter().map(|(search, followed)| {
            let hash = addressed.filter(|(addressed, _)| *addressed == search);
            Appended { search, followed, hash: hash.map(|(_, hash)| hash.to_vec()) }
        }));
    }

    /// A turn ended.
    pub fn end_turn(&mut self, trail: Uuid, at: Timestamp) {
        let rules = self.rules;
        let ended = self.trails.entry(trail).or_default().end_turn(at, rules);
        self.take_ended(ended);
    }

    /// Nothing has been heard of these agents for too long.
    pub fn expire(&mut self) {
        let rules = self.rules;
        let ended: Vec<_> = self.trails.values_mut().flat_map(|trail| trail.expire(rules)).collect();
        self.take_ended(ended);
    }

    fn take_ended(&mut self, ended: Vec<Ended>) {
        for ended in ended {
            if let Some(known) = self.known.get_mut(&ended.search.id) {
                known.state = ended.state;
            }
            self.ended.push(ended);
        }
    }

    /// Saves what happened. `received` is when it came in.
    pub async fn save(self, connection: &mut PgConnection, received: Timestamp) -> sqlx::Result<Saved> {
        let project = self.project;
        tables::insert_searches(connection, project, &self.started).await?;
        tables::insert_fallbacks(connection, project, &self.appended).await?;
        tables::end_searches(connection, project, &self.ended).await?;
        tables::update_trails(connection, project, &self.trails, received).await?;
        let learned = evidence::learn(connection, project, self.rules, &self.ended).await?;
        Ok(Saved {
            started: self.started.iter().filter(|search| search.state == State::Tracking).count(),
            resolved: self.ended.iter().filter(|ended| ended.state == State::Resolved).count(),
            associations: learned,
        })
    }
}

/// What was saved.
#[derive(Debug, Default, Clone, Copy)]
pub struct Saved {
    /// Searches that are now followed.
    pub started: usize,
    /// Searches that were resolved.
    pub resolved: usize,
    /// Associations that there were not before.
    pub associations: usize,
}

/// Writes events of one project, all in one transaction. Verdicts are in the order of the events.
pub async fn write(
    connection: &mut PgConnection,
    project: &str,
    rules: &Rules,
    events: &[Kept<&Event>],
) -> sqlx::Result<Vec<Written>> {
    let mut transaction = connection.begin().await?;
    let ids: Vec<_> = events.iter().map(|event| event.search_id).collect();
    let mut trails = tables::trails_of(&mut transaction, project, &ids).await?;
    for event in events {
        if let Action::Start(start) = &event.action {
            let who = start.who();
            trails.insert(who.trail(event.search_id.as_bytes()), who);
        }
    }
    let mut desk = Desk::open(&mut transaction, project, rules, &trails, &ids).await?;
    let appends: Vec<_> =
        events.iter().filter_map(|event| Some((event.search_id, event.fallback_id()?))).collect();
    let mut sent = tables::read_sent(&mut transaction, project, &appends).await?;
    let hinted: Vec<Uuid> = events.iter().flat_map(|event| event.hints()).map(|(id, _)| *id).collect();
    let hinted = tables::read_paths(&mut transaction, project, &hinted).await?;
    let mut verdicts = Vec::with_capacity(events.len());
    for event in events {
        verdicts.push(desk.play(event, &mut sent, &hinted));
    }
    desk.save(&mut transaction, Timestamp::now()).await?;
    transaction.commit().await?;
    Ok(verdicts)
}

impl Start {
    fn who(&self) -> Who {
        Who { session: self.new.agent_session_id.clone(), agent: self.new.agent_id.clone() }
    }
}

impl Event {
    fn hints(&self) -> &[(Uuid, f64)] {
        match &self.action {
            Action::Start(start) => &start.hints,
            _ => &[],
        }
    }
}

/// The hashes of the requests by which fallbacks were posted, by search and id.
pub(super) type Sent = HashMap<(Uuid, Uuid), Option<Vec<u8>>>;

impl Desk<'_> {
    fn play(&mut self, event: &Event, sent: &mut Sent, hinted: &HashMap<Uuid, String>) -> Written {
        let id = event.search_id;
        match &event.action {
            Action::Start(start) => self.play_start(id, start, hinted),
            Action::Append(append) => self.play_append(id, append, sent),
            Action::Finalize { at } => self.play_finalize(id, *at),
        }
    }

    fn play_start(&mut self, id: Uuid, start: &Start, hinted: &HashMap<Uuid, String>) -> Written {
        if let Some(known) = self.known.get(&id) {
            if known.hash == start.hash {
                return Ok(Receipt::replayed(None));
            }
            return Err(Error::Conflict(format!("the search {id} is there already, with another body")));
        }
        let (who, new) = (start.who(), &start.new);
        let trail = who.trail(id.as_bytes());
        self.advance(trail, start.at, new.turn_id.as_deref());
        let root = new.root.as_deref().map(paths::folder);
        let results = new.results.iter().map(|result| SearchResult {
            path: paths::normalise(&result.path, root.as_deref(), root.as_deref()),
            score: result.score,
        });
        let best_score = new.known_score();
        let state = if self.rules.is_weak(best_score) { State::Tracking } else { State::Strong };
        let hints: Vec<_> = start.hints.iter().filter(|(id, _)| hinted.contains_key(id)).copied().collect();
        let hint_paths = hints.iter().map(|(id, _)| (*id, hinted[id].clone())).collect();
        let search = Started {
            id,
            trail,
            who,
            turn: new.turn_id.clone(),
            query: new.query.clone(),
            best_score,
            result_count: new.count(),
            results: results.collect(),
            root,
            at: start.at,
            state,
            hash: start.hash.clone(),
            hints: if state == State::Tracking { hints } else { Vec::new() },
        };
        self.start(search, hint_paths);
        Ok(Receipt::created(None))
    }

    fn play_append(&mut self, id: Uuid, append: &Append, sent: &mut Sent) -> Written {
        let Some(Known { trail, state, .. }) = self.known.get(&id) else {
            return Err(Error::NotFound("search"));
        };
        let (trail, state) = (*trail, *state);
        match sent.get(&(id, append.id)) {
            Some(Some(hash)) if *hash == append.hash => return Ok(Receipt::replayed(None)),
            Some(_) => {
                let what = format!("the fallback {} is there already, with another body", append.id);
                return Err(Error::Conflict(what));
            }
            None => {}
        }
        if state != State::Tracking {
            return Err(Error::Conflict(format!("the search {id} is not tracked; nothing can be added")));
        }
        let root = self.root_of(trail, id);
        let target = append.new.target();
        let target = if append.new.kind.has_path() {
            paths::normalise(target, root.as_deref(), root.as_deref())
        } else {
            target.to_owned()
        };
        let ok = append.new.ok.unwrap_or(true);
        let step = Step { id: append.id, kind: append.new.kind, target, ok, at: append.at };
        self.advance(trail, append.at, None);
        sent.insert((id, append.id), Some(append.hash.clone()));
        if self.known.get(&id).is_some_and(|known| known.state == State::Tracking) {
            self.append(trail, &step, Some((id, &append.hash)));
        } else {
            // It shows that the session was over before; it is kept, and counts for nothing.
            let followed = Followed { step, share: 0.0, counts: false };
            self.appended.push(Appended { search: id, followed, hash: Some(append.hash.clone()) });
        }
        Ok(Receipt::created(None))
    }

    fn root_of(&self, trail: Uuid, search: Uuid) -> Option<String> {
        let open = self.trails.get(&trail)?.open.iter().find(|open| open.id == search)?;
        Some(open.root.clone()).filter(|root| !root.is_empty())
    }

    fn play_finalize(&mut self, id: Uuid, at: Timestamp) -> Written {
        let Some(Known { trail, state, .. }) = self.known.get(&id) else {
            return Err(Error::NotFound("search"));
        };
        let (trail, state) = (*trail, *state);
        if state != State::Tracking {
            return Ok(Receipt::replayed(None));
        }
        self.advance(trail, at, None);
        let rules = self.rules;
        let ended = self.trails.entry(trail).or_default().end_search(id, at, rules);
        self.take_ended(ended);
        Ok(Receipt::created(None))
    }
}
