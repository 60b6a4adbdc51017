//! Events that clients post: searches that start, are continued and end.

use std::collections::BTreeMap;

use sqlx::{Connection as _, PgConnection};
use uuid::Uuid;

use super::rows::{AppendedStep, StartedSearch, StoredFallbacks, StoredSearch, ThreadKey};
use super::unit_of_work::UnitOfWork;
use super::{MOST_TARGETS, MOST_THREADS, tables};
use crate::db::receipt::{Receipt, Written};
use crate::db::retry::Lost;
use crate::error::Error;
use crate::privacy::kept::Kept;
use crate::searches::SearchResult;
use crate::searches::event::{Action, Append, Event, Start};
use crate::searches::rules::learner::{SearchState, Step};
use crate::searches::rules::paths;
use crate::searches::settings::Rules;
use crate::types::Timestamp;

/// Writes events of one project in one transaction. Returns their verdicts in the order of the events.
pub async fn write(
    connection: &mut PgConnection,
    project: &str,
    rules: &Rules,
    events: &[Kept<&Event>],
) -> sqlx::Result<Vec<Written>> {
    let mut transaction = connection.begin().await?;
    let threads = threads_of(&mut transaction, project, events).await?;
    let mut verdicts = Vec::with_capacity(events.len());
    let most = if threads.len() <= MOST_THREADS { events.len() } else { MOST_THREADS };
    let pieces = pieces(events, most);
    if let [events] = pieces[..] {
        apply(&mut transaction, project, rules, &threads, events, &mut verdicts).await?;
    } else {
        UnitOfWork::lock(&mut transaction, project, &threads).await?;
        for events in pieces {
            let threads = threads_of(&mut transaction, project, events).await?;
            apply(&mut transaction, project, rules, &threads, events, &mut verdicts).await?;
        }
    }
    transaction.commit().await?;
    Ok(verdicts)
}

/// Divides events into pieces of at most `most`, each with so few fallbacks that they can be in memory: a fallback is a step after each
/// open search of its agent.
fn pieces<'e, 'a>(events: &'e [Kept<&'a Event>], most: usize) -> Vec<&'e [Kept<&'a Event>]> {
    let (mut pieces, mut begin, mut bytes) = (Vec::new(), 0, 0);
    for (index, event) in events.iter().enumerate() {
        let more = event.bytes_of_fallback();
        bytes += more;
        if index - begin == most || index > begin && bytes > MOST_TARGETS {
            pieces.push(&events[begin..index]);
            (begin, bytes) = (index, more);
        }
    }
    pieces.push(&events[begin..]);
    pieces
}

/// Returns the threads that events concern.
async fn threads_of(
    connection: &mut PgConnection,
    project: &str,
    events: &[Kept<&Event>],
) -> sqlx::Result<BTreeMap<Uuid, ThreadKey>> {
    let ids: Vec<_> = events.iter().map(|event| event.search_id).collect();
    let mut threads = tables::read_threads_of(connection, project, &ids).await?;
    for event in events {
        if let Action::Start(start) = &event.action {
            let key = start.thread_key();
            threads.insert(key.id(event.search_id.as_bytes()), key);
        }
    }
    Ok(threads)
}

/// Applies events of these threads together, and adds their verdicts.
async fn apply(
    connection: &mut PgConnection,
    project: &str,
    rules: &Rules,
    threads: &BTreeMap<Uuid, ThreadKey>,
    events: &[Kept<&Event>],
    verdicts: &mut Vec<Written>,
) -> sqlx::Result<()> {
    let ids: Vec<_> = events.iter().map(|event| event.search_id).collect();
    let mut unit = UnitOfWork::begin(connection, project, rules, threads, &ids).await?;
    if !unit.has_all_threads() {
        return Err(Lost.into());
    }
    let appends: Vec<_> =
        events.iter().filter_map(|event| Some((event.search_id, event.fallback_id()?))).collect();
    let mut fallbacks = tables::read_stored_fallbacks(connection, project, &appends).await?;
    verdicts.extend(events.iter().map(|event| unit.apply(*event, &mut fallbacks)));
    unit.save(connection, Timestamp::now()).await?;
    Ok(())
}

impl Start {
    fn thread_key(&self) -> ThreadKey {
        ThreadKey {
            session: self.new.agent_session_id.clone().into(),
            agent: self.new.agent_id.clone().into(),
        }
    }
}

impl UnitOfWork<'_> {
    fn apply(&mut self, event: Kept<&Event>, fallbacks: &mut StoredFallbacks) -> Written {
        let id = event.search_id;
        match &event.action {
            Action::Start(start) => self.apply_start(id, start),
            Action::Append(append) => self.apply_append(id, append, fallbacks),
            Action::Finalize { at } => self.apply_finalize(id, *at),
        }
    }

    fn apply_start(&mut self, id: Uuid, start: &Start) -> Written {
        if let Some(stored) = self.stored(id) {
            if stored.hash == start.hash {
                return Ok(Receipt::replayed(None));
            }
            return Err(Error::Conflict(
                "a search with this id already exists with a different body".to_owned(),
            ));
        }
        let (key, new) = (start.thread_key(), &start.new);
        let thread = key.id(id.as_bytes());
        self.advance(thread, start.at, new.turn_id.as_deref());
        let root = new.root.as_deref().map(paths::folder);
        let scores = new.results.iter().map(|result| result.score);
        let results = new.offered().zip(scores).map(|(path, score)| SearchResult { path, score });
        let best_score = new.known_score();
        let state = SearchState::of_new(best_score, self.rules());
        let search = StartedSearch {
            id,
            thread,
            key,
            turn: new.turn_id.clone().into(),
            query: new.query.clone(),
            best_score,
            result_count: new.count(),
            results: results.collect(),
            root,
            at: start.at,
            state,
            hash: start.hash.clone(),
            hints: if state == SearchState::Tracking { start.hints.clone() } else { Vec::new() },
            corrects: None,
        };
        self.start(search);
        Ok(Receipt::created(None))
    }

    fn apply_append(&mut self, id: Uuid, append: &Append, fallbacks: &mut StoredFallbacks) -> Written {
        let StoredSearch { thread, state, root, .. } = self.known(id)?;
        let (thread, state) = (*thread, *state);
        let root = root.as_deref().filter(|root| !root.is_empty());
        let target = append.new.target();
        let target =
            if append.new.kind.has_path() { paths::normalise(target, root, root) } else { target.to_owned() };
        let ok = append.new.ok.unwrap_or(true);
        let step = Step { id: append.id, kind: append.new.kind, target, ok, at: append.at };
        match fallbacks.get_mut(&(id, append.id)) {
            Some(stored) if stored.hash.as_ref() == Some(&append.hash) => return Ok(Receipt::replayed(None)),
            // It was posted for another search, and counts for this one.
            Some(stored) if stored.hash.is_none() && stored.is(&step) => {
                stored.hash = Some(append.hash.clone());
                self.name(id, append.id, &append.hash);
                return Ok(Receipt::created(None));
            }
            Some(_) => {
                let what = "a fallback with this id already exists with a different body".to_owned();
                return Err(Error::Conflict(what));
            }
            None => {}
        }
        if state != SearchState::Tracking {
            return Err(Error::Conflict(format!("the search {id} is not tracked; nothing can be added")));
        }
        self.advance(thread, append.at, None);
        let appended = if self.stored(id).is_some_and(|stored| stored.state == SearchState::Tracking) {
            self.step(thread, &step, Some((id, &append.hash)))
        } else {
            // The time of the event shows that the search was over before.
            self.step_in_vain(id, step, &append.hash)
        };
        fallbacks.extend(appended.iter().map(AppendedStep::stored));
        Ok(Receipt::created(None))
    }

    fn apply_finalize(&mut self, id: Uuid, at: Timestamp) -> Written {
        let &StoredSearch { thread, state, .. } = self.known(id)?;
        if state != SearchState::Tracking {
            return Ok(Receipt::replayed(None));
        }
        self.advance(thread, at, None);
        self.end_search(thread, id, at);
        Ok(Receipt::created(None))
    }

    fn known(&self, id: Uuid) -> crate::error::Result<&StoredSearch> {
        self.stored(id).ok_or(Error::NotFound("search"))
    }
}
