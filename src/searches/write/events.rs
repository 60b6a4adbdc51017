//! Events that clients post: searches that start, are continued and end.

use std::collections::{BTreeMap, HashMap, HashSet};

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
    let thread_of = |event: &Kept<&Event>| threads.get(&event.search_id).map(|(thread, _)| *thread);
    // Those of a thread come together, because each piece reads the open searches of its threads.
    let mut numbered: Vec<_> = events.iter().copied().enumerate().collect();
    numbered.sort_by_key(|(_, event)| thread_of(event));
    let (numbers, events): (Vec<_>, Vec<_>) = numbered.into_iter().unzip();
    let pieces = pieces(&events, thread_of, |event| event.bytes_of_fallback());
    if pieces.len() > 1 {
        UnitOfWork::lock(&mut transaction, project, &threads.values().cloned().collect()).await?;
    }
    let mut verdicts = Vec::with_capacity(events.len());
    for events in pieces {
        let threads = events.iter().filter_map(|event| threads.get(&event.search_id)).cloned().collect();
        apply(&mut transaction, project, rules, &threads, events, &mut verdicts).await?;
    }
    transaction.commit().await?;
    let mut verdicts: Vec<_> = numbers.into_iter().zip(verdicts).collect();
    verdicts.sort_by_key(|(number, _)| *number);
    Ok(verdicts.into_iter().map(|(_, verdict)| verdict).collect())
}

/// Divides events into pieces, each of at most [`MOST_THREADS`] threads and with so few fallbacks that they can be in memory: a
/// fallback is a step after each open search of its agent.
fn pieces<E, T: PartialEq>(
    events: &[E],
    thread_of: impl Fn(&E) -> T,
    bytes_of_fallback: impl Fn(&E) -> usize,
) -> Vec<&[E]> {
    let (mut pieces, mut begin, mut threads, mut bytes) = (Vec::new(), 0, 0, 0);
    for (index, event) in events.iter().enumerate() {
        let is_new = index == begin || thread_of(&events[index - 1]) != thread_of(event);
        threads += usize::from(is_new);
        bytes += bytes_of_fallback(event);
        if threads > MOST_THREADS || index > begin && bytes > MOST_TARGETS {
            pieces.push(&events[begin..index]);
            (begin, threads, bytes) = (index, 1, bytes_of_fallback(event));
        }
    }
    pieces.push(&events[begin..]);
    pieces
}

/// Returns the thread of each search that events concern, unless the search is not known.
async fn threads_of(
    connection: &mut PgConnection,
    project: &str,
    events: &[Kept<&Event>],
) -> sqlx::Result<HashMap<Uuid, (Uuid, ThreadKey)>> {
    let ids: Vec<_> = events.iter().map(|event| event.search_id).collect();
    let mut threads = tables::read_threads_of(connection, project, &ids).await?;
    for event in events {
        if let Some(thread) = event.thread_of_start() {
            threads.entry(event.search_id).or_insert(thread);
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
    // A stored search that was found may be gone now, and start on another thread.
    let mut started = HashSet::new();
    let is_locked = |event: &Kept<&Event>| match event.thread_of_start() {
        Some((thread, _)) if started.insert(event.search_id) => {
            threads.contains_key(&thread) || unit.stored(event.search_id).is_some()
        }
        _ => true,
    };
    if !unit.has_all_threads() || !events.iter().all(is_locked) {
        return Err(Lost.into());
    }
    let appends: Vec<_> =
        events.iter().filter_map(|event| Some((event.search_id, event.fallback_id()?))).collect();
    let mut fallbacks = tables::read_stored_fallbacks(connection, project, &appends).await?;
    verdicts.extend(events.iter().map(|event| unit.apply(*event, &mut fallbacks)));
    unit.save(connection, Timestamp::now()).await?;
    Ok(())
}

impl Event {
    /// Returns the thread of the search that the event starts, if it does.
    fn thread_of_start(&self) -> Option<(Uuid, ThreadKey)> {
        let Action::Start(start) = &self.action else { return None };
        let key = start.thread_key();
        Some((key.id(self.search_id.as_bytes()), key))
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers of events in the pieces of such events, each with its thread and the bytes of its fallback.
    fn lengths(events: &[(usize, usize)]) -> Vec<usize> {
        let pieces = pieces(events, |(thread, _)| *thread, |(_, bytes)| *bytes);
        assert_eq!(pieces.concat(), events);
        pieces.iter().map(|piece| piece.len()).collect()
    }

    #[test]
    fn a_piece_of_events_has_few_threads_and_few_bytes_of_fallbacks() {
        assert_eq!(lengths(&[(1, 0); 500]), [500]);
        let threads: Vec<_> = (0..3 * 20).map(|event| (event / 3, 0)).collect();
        assert_eq!(lengths(&threads), [24, 24, 12]);
        let half = MOST_TARGETS / 2;
        assert_eq!(lengths(&[(1, half); 6]), [2, 2, 2]);
        assert_eq!(lengths(&[(1, half), (1, half + 1), (1, 0), (2, 0)]), [1, 3]);
        let long = 3 * MOST_TARGETS;
        assert_eq!(lengths(&[(1, long), (1, long), (1, 0)]), [1, 1, 1], "a long one is alone");
    }
}
