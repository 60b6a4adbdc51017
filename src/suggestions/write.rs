//! How suggestion records are written: many events in few statements, as generation logs are.
//!
//! A statement writes what is plainly new; what it leaves (sent before, in conflict, about a record that never was) is
//! judged one by one.

use std::collections::{HashMap, HashSet};

use sqlx::{Connection, PgConnection};
use uuid::Uuid;

use super::event::{Ending, hash_all};
use super::statements::{self, Append, End, Pending, highest};
use super::viewing::resolve;
use super::{Action, Conclusion, Event, Move, Slate, Start};
use crate::db::plan::{self, plan};
use crate::db::writer::{Receipt, Written};
use crate::error::Error;
use crate::projects::{HASH, HashKey};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Start,
    Append,
    Finalize,
    Amend,
}

type Step = plan::Step<Kind>;

impl Event {
    fn kind(&self) -> Kind {
        match &self.action {
            Action::Start(_) => Kind::Start,
            Action::Append { .. } => Kind::Append,
            Action::Finalize { .. } => Kind::Finalize,
            Action::Amend(_) => Kind::Amend,
        }
    }
}

/// Whether appends go into one step with those to the same record before them: they do unless a name comes again, since
/// a statement could not tell which of the two it has written.
#[derive(Default)]
struct Joined(HashMap<Uuid, HashSet<Uuid>>);

impl Joined {
    fn take(&mut self, event: &Event) -> bool {
        let Some((record, moves, _)) = event.as_append() else {
            return false;
        };
        let names = self.0.entry(record).or_default();
        let joins = moves.iter().all(|made| !names.contains(&made.id));
        if !joins {
            names.clear();
        }
        names.extend(moves.iter().map(|made| made.id));
        joins
    }
}

/// Writes events of one project, all in one transaction. Verdicts are in the order of the events.
pub async fn write(
    connection: &mut PgConnection,
    project: &str,
    events: &[&Event],
) -> sqlx::Result<Vec<Written>> {
    let mut joined = Joined::default();
    let steps = plan(events.iter().map(|event| (event.suggestion_id, event.kind(), joined.take(event))));
    let mut verdicts: Vec<Option<Written>> = events.iter().map(|_| None).collect();
    if let [step] = steps.as_slice()
        && is_one_statement(step, events)
    {
        // Such a statement is a transaction of its own; that saves two round trips where one client waits alone.
        write_new(step, connection, project, events, &mut verdicts).await?;
        if verdicts.iter().any(Option::is_none) {
            let mut transaction = connection.begin().await?;
            judge_rest(step, &mut transaction, project, events, &mut verdicts).await?;
            transaction.commit().await?;
        }
    } else {
        let mut transaction = connection.begin().await?;
        for step in &steps {
            write_new(step, &mut transaction, project, events, &mut verdicts).await?;
            judge_rest(step, &mut transaction, project, events, &mut verdicts).await?;
        }
        transaction.commit().await?;
    }
    Ok(verdicts.into_iter().map(|verdict| verdict.expect("every event is written or judged")).collect())
}

/// Whether writing a step takes a single statement.
fn is_one_statement(step: &Step, events: &[&Event]) -> bool {
    step.members.iter().all(|&index| match &events[index].action {
        Action::Start(start) => start.conclusion.as_ref().is_none_or(|end| end.labels.is_empty()),
        Action::Append { .. } | Action::Amend(_) => true,
        Action::Finalize { .. } => false,
    })
}

/// Writes what is plainly new.
async fn write_new(
    step: &Step,
    connection: &mut PgConnection,
    project: &str,
    events: &[&Event],
    verdicts: &mut [Option<Written>],
) -> sqlx::Result<()> {
    let members = || step.members.iter().map(|&index| events[index]);
    match step.kind {
        Kind::Start => {
            let starts: Vec<_> = members().filter_map(Event::as_start).collect();
            let created = statements::insert(connection, project, &starts).await?;
            accept(step, events, verdicts, |event| created.contains(&event.suggestion_id));
        }
        Kind::Append => {
            let appends: Vec<_> = members().filter_map(Event::as_append).collect();
            let added = statements::append(connection, project, &appends).await?;
            accept(step, events, verdicts, |event| {
                let of = |(record, moves, _): Append<'_>| {
                    moves.iter().all(|made| added.contains(&(record, made.id)))
                };
                event.as_append().is_some_and(of)
            });
        }
        Kind::Finalize => {
            let endings: Vec<_> = members().filter_map(Event::as_ending).collect();
            let ended = finalize(connection, project, endings).await?;
            accept(step, events, verdicts, |event| ended.contains(&event.suggestion_id));
        }
        Kind::Amend => {
            let amendments: Vec<_> = members().filter_map(Event::as_amendment).collect();
            let amended = statements::amend(connection, project, &amendments).await?;
            accept(step, events, verdicts, |event| amended.contains(&event.suggestion_id));
        }
    }
    Ok(())
}

/// Gives those events of a step that were written their verdict.
fn accept(
    step: &Step,
    events: &[&Event],
    verdicts: &mut [Option<Written>],
    written: impl Fn(&Event) -> bool,
) {
    for &index in &step.members {
        if written(events[index]) {
            verdicts[index] = Some(Ok(Receipt::created(None)));
        }
    }
}

/// Ends those records that are pending and that can end so; the ids of these.
async fn finalize(
    connection: &mut PgConnection,
    project: &str,
    endings: Vec<Ending<'_>>,
) -> sqlx::Result<HashSet<Uuid>> {
    let ids: Vec<_> = endings.iter().map(|ending| ending.id).collect();
    let mut pending = statements::lock_pending(connection, project, &ids).await?;
    // Where texts are not kept, the match is told by hashes, and these need the project's key.
    let key = if pending.values().any(|slate| slate.suggestions.is_none()) {
        Some(statements::hash_key(connection, project).await?)
    } else {
        None
    };
    let ends = endings.into_iter().filter_map(|ending| {
        let conclusion = conclude(pending.remove(&ending.id)?, &ending, key.as_ref())?;
        Some((ending, conclusion))
    });
    let ends: Vec<End<'_>> = ends.collect();
    statements::finalize(connection, project, &ends).await?;
    Ok(ends.iter().map(|(ending, _)| ending.id).collect())
}

/// What follows; none where the outcome cannot be that of this slate.
fn conclude(pending: Pending, ending: &Ending<'_>, key: Option<&HashKey>) -> Option<Conclusion> {
    let outcome = ending.outcome;
    let count = usize::try_from(pending.suggestion_count).unwrap_or(0);
    let views = resolve(count, pending.looks);
    let viewed: Vec<_> = views.iter().map(|view| view.index).collect();
    if !outcome.is_within(count) {
        return None;
    }
    let known = match (&pending.suggestions, &outcome.suggestions, key) {
        (Some(stored), Some(sent), _) if stored != sent => return None,
        (Some(stored), ..) => Some(stored),
        (None, Some(sent), Some(key)) => {
            let same = pending.suggestion_hashes.as_deref() == Some(&hash_all(key, sent));
            if !same {
                return None;
            }
            Some(sent)
        }
        (None, ..) => None,
    };
    let fetch_end_ts = pending.fetch_end_ts;
    let Some(suggestions) = known else {
        let input = key.map(|key| key.hash(outcome.actual_input.as_bytes()));
        let hashes = pending.suggestion_hashes.as_deref().unwrap_or_default();
        let shown = outcome.displayed_index_at_submit.or(viewed.last().copied());
        let is_same = |place: &i32| {
            let own = usize::try_from(*place).ok().and_then(|place| hashes.chunks(HASH).nth(place));
            !outcome.actual_input.is_empty()
                && own.is_some()
                && own == input.as_ref().map(<[u8; HASH]>::as_slice)
        };
        let place = shown.filter(is_same).or_else(|| (0..pending.suggestion_count).find(is_same));
        return Some(Conclusion::of_hashes(fetch_end_ts, viewed, place, outcome));
    };
    let slate = Slate { suggestions, fetch_end_ts, prompt_hash: pending.prompt_hash.unwrap_or_default() };
    let conclusion = Conclusion::of(&slate, viewed, None, outcome);
    let kept = ending.input_hash.is_none() && pending.suggestions.is_some();
    Some(if kept { conclusion } else { conclusion.without_text() })
}

/// Gives every event of a step its verdict that writing has left without one.
async fn judge_rest(
    step: &Step,
    connection: &mut PgConnection,
    project: &str,
    events: &[&Event],
    verdicts: &mut [Option<Written>],
) -> sqlx::Result<()> {
    for &index in &step.members {
        if verdicts[index].is_none() {
            verdicts[index] = Some(judge(connection, project, events[index]).await?);
        }
    }
    Ok(())
}

/// A record that an event is about, locked.
#[derive(sqlx::FromRow)]
struct Stored {
    state: super::State,
    suggestion_count: i32,
    outcome_hash: Option<Vec<u8>>,
}

/// The verdict on an event that is not plainly new, and its writing if it is new after all.
async fn judge(connection: &mut PgConnection, project: &str, event: &Event) -> sqlx::Result<Written> {
    let id = event.suggestion_id;
    if let Action::Start(start) = &event.action {
        return judge_start(connection, project, id, start).await;
    }
    let sql = "select state, suggestion_count, outcome_hash from suggestions
               where project = $1 and id = $2 for no key update";
    let stored: Option<Stored> =
        sqlx::query_as(sql).bind(project).bind(id).fetch_optional(&mut *connection).await?;
    let Some(stored) = stored else {
        return Ok(Err(Error::NotFound("suggestion")));
    };
    let state = match stored.state {
        super::State::Pending => None,
        super::State::Finalized => Some("finalized"),
        super::State::Discarded => Some("discarded"),
    };
    match &event.action {
        Action::Append { moves, received_at } => {
            let append = (id, moves.as_slice(), *received_at);
            judge_append(connection, project, &append, stored.suggestion_count, state).await
        }
        Action::Finalize { outcome, hash, .. } => Ok(match state {
            Some(_) if stored.outcome_hash.as_deref() == Some(hash) => Ok(Receipt::replayed(None)),
            Some(state) => {
                Err(Error::Conflict(format!("the suggestion {id} is {state} already, with another body")))
            }
            // It may have come up only after the first look.
            None => {
                let endings = event.as_ending().into_iter().collect();
                if finalize(connection, project, endings).await?.contains(&id) {
                    Ok(Receipt::created(None))
                } else if outcome.is_within(usize::try_from(stored.suggestion_count).unwrap_or(0)) {
                    Err(Error::invalid("/suggestions", "is not the slate that the record began with"))
                } else {
                    Err(Error::invalid("/displayed_index_at_submit", NO_SUCH_PLACE))
                }
            }
        }),
        Action::Amend(_) => Ok(Err(Error::Conflict(format!("the suggestion {id} is discarded")))),
        Action::Start(_) => Ok(Err(anyhow::anyhow!("a start is judged before").into())),
    }
}

const NO_SUCH_PLACE: &str = "is not the place of a suggestion";

async fn judge_start(
    connection: &mut PgConnection,
    project: &str,
    id: Uuid,
    start: &Start,
) -> sqlx::Result<Written> {
    if !statements::insert(connection, project, &[(id, start)]).await?.is_empty() {
        return Ok(Ok(Receipt::created(None)));
    }
    let sql = "select request_hash from suggestions where project = $1 and id = $2";
    let stored: Option<Vec<u8>> =
        sqlx::query_scalar(sql).bind(project).bind(id).fetch_optional(connection).await?;
    Ok(match stored {
        Some(hash) if hash == start.hash => Ok(Receipt::replayed(None)),
        _ => Err(Error::Conflict(format!("the suggestion {id} is there already, with another body"))),
    })
}

/// A move as it is stored: its name, and what it was.
type StoredMove = (Uuid, Option<i32>, Option<i16>, Option<String>, String);

async fn judge_append(
    connection: &mut PgConnection,
    project: &str,
    append: &Append<'_>,
    suggestion_count: i32,
    ended: Option<&str>,
) -> sqlx::Result<Written> {
    let &(id, moves, received_at) = append;
    let sql = "select id, index, direction, text, kind from suggestion_moves
               where project = $1 and suggestion_id = $2 and id = any($3)";
    let names: Vec<_> = moves.iter().map(|made| made.id).collect();
    let stored: Vec<StoredMove> =
        sqlx::query_as(sql).bind(project).bind(id).bind(names).fetch_all(&mut *connection).await?;
    let stored: HashMap<_, _> = stored.into_iter().map(|stored| (stored.0, stored)).collect();
    if moves.iter().any(|made| stored.get(&made.id).is_some_and(|stored| !is_same(made, stored))) {
        let detail = format!("one of these moves of the suggestion {id} is there already, as another one");
        return Ok(Err(Error::Conflict(detail)));
    }
    let new: Vec<Move> = moves.iter().filter(|made| !stored.contains_key(&made.id)).cloned().collect();
    if new.is_empty() {
        return Ok(Ok(Receipt::replayed(None)));
    }
    if let Some(state) = ended {
        return Ok(Err(Error::Conflict(format!("the suggestion {id} is {state}; nothing can be added"))));
    }
    if highest(&new).is_some_and(|highest| highest >= suggestion_count) {
        let outside = |made: &&Move| made.what.columns().0.is_some_and(|index| index >= suggestion_count);
        let place = moves.iter().position(|made| outside(&made)).unwrap_or_default();
        let pointer = if moves.len() == 1 { "/index".to_owned() } else { format!("/views/{place}/index") };
        return Ok(Err(Error::invalid(pointer, NO_SUCH_PLACE)));
    }
    let added = statements::append(connection, project, &[(id, &new, received_at)]).await?;
    Ok(if added.len() == new.len() {
        Ok(Receipt::created(None))
    } else {
        Err(anyhow::anyhow!("moves that are new could not be added").into())
    })
}

/// Whether a move is the stored one. Of a text that was not kept only the name tells.
fn is_same(made: &Move, (_, index, direction, text, kind): &StoredMove) -> bool {
    let (own_index, own_direction, own_text) = made.what.columns();
    own_index == *index
        && own_direction == *direction
        && made.what.kind() == kind
        && (text.is_none() || own_text.is_none() || own_text == text.as_deref())
}
