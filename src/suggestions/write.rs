//! How suggestion records are written: many events in few statements, as generation logs are.
//!
//! A statement writes what is plainly new; what it leaves (sent before, in conflict, about a record that never was) is
//! judged one by one.

use std::collections::{HashMap, HashSet};

use sqlx::{Connection, PgConnection};
use uuid::Uuid;

use super::event::{Ending, hash_all};
use super::judge::judge;
use super::statements::moves::{Append, append};
use super::statements::{self, End, Pending};
use super::viewing::resolve;
use super::{Action, Conclusion, Event, Slate};
use crate::db::receipt::{Receipt, Written};
use crate::db::steps::{self, plan};
use crate::privacy::hash_key::{HASH, HashKey};
use crate::privacy::kept::Kept;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Start,
    Append,
    Finalize,
    Amend,
}

type Step = steps::Step<Kind>;

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
    events: &[Kept<&Event>],
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
fn is_one_statement(step: &Step, events: &[Kept<&Event>]) -> bool {
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
    events: &[Kept<&Event>],
    verdicts: &mut [Option<Written>],
) -> sqlx::Result<()> {
    let members = || step.members.iter().map(|&index| *events[index]);
    match step.kind {
        Kind::Start => {
            let starts: Vec<_> = members().filter_map(Event::as_start).collect();
            let created = statements::insert(connection, project, &starts).await?;
            accept(step, events, verdicts, |event| created.contains(&event.suggestion_id));
        }
        Kind::Append => {
            let appends: Vec<_> = members().filter_map(Event::as_append).collect();
            let added = append(connection, project, &appends).await?;
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
    events: &[Kept<&Event>],
    verdicts: &mut [Option<Written>],
    written: impl Fn(&Event) -> bool,
) {
    for &index in &step.members {
        if written(&events[index]) {
            verdicts[index] = Some(Ok(Receipt::created(None)));
        }
    }
}

/// Ends those records that are pending and that can end so; the ids of these.
pub(super) async fn finalize(
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
    if !ends.is_empty() {
        statements::finalize(connection, project, &ends).await?;
    }
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
    events: &[Kept<&Event>],
    verdicts: &mut [Option<Written>],
) -> sqlx::Result<()> {
    for &index in &step.members {
        if verdicts[index].is_none() {
            verdicts[index] = Some(judge(connection, project, &events[index]).await?);
        }
    }
    Ok(())
}
