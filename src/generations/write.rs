//! How generation logs are written: many events in a few statements.

use std::collections::{HashMap, HashSet};

use chrono::TimeDelta;
use sqlx::PgConnection;
use uuid::Uuid;

use super::append::{self, AppendTo, AttemptRow};
use super::tables::{self, LogRow, OutcomeRow, ReviewRow};
use super::{Action, Append, Event, MOST_ATTEMPTS, NO_PROGRAM, Start, pairs};
use crate::db::receipt::{Receipt, Written};
use crate::db::replays::judge_starts;
use crate::db::steps::{self, Batched};
use crate::error::Error;
use crate::privacy::kept::Kept;

/// Writes events of one project in one transaction. Returns their verdicts in the order of the events.
pub async fn write(
    connection: &mut PgConnection,
    project: &str,
    events: &[Kept<&Event>],
) -> sqlx::Result<Vec<Written>> {
    steps::write(connection, project, events).await
}

/// The kinds of events, in the order in which they happen to a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// The log begins.
    Start,
    /// An attempt is added to the log.
    Append,
    /// The log is finalized.
    Finalize,
    /// The log is reviewed.
    Review,
    /// Something is added to the log that became known later.
    Amend,
}

/// The attempts to one log that one statement adds.
#[derive(Debug, Default)]
pub struct Appends {
    numbered: bool,
    ids: HashSet<Uuid>,
}

impl Appends {
    /// Returns whether the statement that adds the previous attempts can add this one, too. It cannot if it
    /// must find the next number after one that a client has given, which it does not see, nor if the id
    /// comes again. In those cases the attempt begins a new statement.
    fn take(&mut self, append: &Append) -> bool {
        let nameless_after_number = append.number.is_none() && self.numbered;
        let again = append.id_given && self.ids.contains(&append.id);
        let joins = !nameless_after_number && !again;
        if !joins {
            *self = Self::default();
        }
        self.numbered |= append.number.is_some();
        if append.id_given {
            self.ids.insert(append.id);
        }
        joins
    }
}

impl Batched for Event {
    type Kind = Kind;
    type Joined = HashMap<Uuid, Appends>;
    const START: Kind = Kind::Start;
    const TABLE: &'static str = "generations";

    fn record(&self) -> Uuid {
        self.generation_id
    }

    fn kind(&self) -> Kind {
        match &self.action {
            Action::Start(_) => Kind::Start,
            Action::Append(_) => Kind::Append,
            Action::Finalize { .. } => Kind::Finalize,
            Action::Review { .. } => Kind::Review,
            Action::Amend(_) => Kind::Amend,
        }
    }

    fn joins(&self, appends: &mut HashMap<Uuid, Appends>) -> bool {
        match &self.action {
            Action::Append(append) => appends.entry(self.generation_id).or_default().take(append),
            _ => false,
        }
    }

    fn is_one_statement(kind: Kind, events: &[Kept<&Self>]) -> bool {
        match kind {
            Kind::Start => starts(events).all(|(_, start)| start.attempts.is_empty()),
            Kind::Append | Kind::Amend => true,
            Kind::Finalize | Kind::Review => false,
        }
    }

    async fn write(
        connection: &mut PgConnection,
        project: &str,
        kind: Kind,
        events: &[Kept<&Self>],
    ) -> sqlx::Result<Vec<Option<Written>>> {
        match kind {
            Kind::Start => write_starts(connection, project, events).await,
            Kind::Append => {
                let rows = append_rows(events);
                let numbers = append::insert_attempts(connection, project, AppendTo::Open, &rows).await?;
                Ok(rows.iter().map(|row| created(&numbers, row)).collect())
            }
            Kind::Finalize => finalize(connection, project, events).await,
            Kind::Review => review(connection, project, events).await,
            Kind::Amend => amend(connection, project, events).await,
        }
    }

    async fn judge(
        connection: &mut PgConnection,
        project: &str,
        kind: Kind,
        events: &[Kept<&Self>],
    ) -> sqlx::Result<Vec<Written>> {
        match kind {
            Kind::Start => {
                let hashes: Vec<_> = starts(events).map(|(id, start)| (id, start.hash.as_slice())).collect();
                judge_starts(connection, project, ("generations", "generation"), &hashes).await
            }
            Kind::Append => judge_appends(connection, project, &append_rows(events)).await,
            Kind::Finalize | Kind::Review | Kind::Amend => Ok(events
                .iter()
                .map(|_| Err(anyhow::anyhow!("an event was left unwritten").into()))
                .collect()),
        }
    }
}

/// Returns the logs that begin.
fn starts<'a>(events: &[Kept<&'a Event>]) -> impl Iterator<Item = (Uuid, &'a Start)> {
    events.iter().filter_map(|event| event.as_start())
}

/// Returns the rows of the attempts.
fn append_rows<'a>(events: &[Kept<&'a Event>]) -> Vec<AttemptRow<'a>> {
    let appends = events.iter().filter_map(|event| event.as_append());
    appends.map(|(log, append)| AttemptRow { log, append }).collect()
}

/// Returns the verdict on an attempt, if it was added.
fn created(numbers: &HashMap<(Uuid, Uuid), i32>, row: &AttemptRow<'_>) -> Option<Written> {
    numbers.get(&(row.log, row.append.id)).map(|&number| Ok(Receipt::created(Some(number))))
}

async fn write_starts(
    connection: &mut PgConnection,
    project: &str,
    events: &[Kept<&Event>],
) -> sqlx::Result<Vec<Option<Written>>> {
    let logs: Vec<_> = starts(events).map(|(id, start)| LogRow::new(project, id, start)).collect();
    let created = tables::insert_logs(connection, project, &logs).await?;
    let created_starts = || starts(events).filter(|(id, _)| created.contains(id));
    let attempts: Vec<_> = created_starts()
        .flat_map(|(log, start)| start.attempts.iter().map(move |append| AttemptRow { log, append }))
        .collect();
    if !attempts.is_empty() {
        let inserted = append::insert_attempts(connection, project, AppendTo::New, &attempts).await?;
        debug_assert_eq!(inserted.len(), attempts.len(), "a new log has no attempts yet");
        let failed_before: Vec<_> = created_starts()
            .filter(|(_, start)| start.attempts.iter().any(|attempt| attempt.verdict.passed == Some(false)))
            .map(|(id, _)| id)
            .collect();
        pairs::insert(connection, project, &failed_before).await?;
    }
    let verdict = |(id, _)| created.contains(&id).then(|| Ok(Receipt::created(None)));
    Ok(starts(events).map(verdict).collect())
}

/// Judges attempts that were not added: repeated ones, conflicts, and those that are new after all because
/// another server took their number while they waited for the log's lock.
async fn judge_appends(
    connection: &mut PgConnection,
    project: &str,
    rows: &[AttemptRow<'_>],
) -> sqlx::Result<Vec<Written>> {
    let ids: Vec<_> = rows.iter().map(|row| row.log).collect();
    let logs = tables::lock(connection, project, &ids).await?;
    let stored = append::stored_attempts(connection, project, rows).await?;
    let full = append::full(connection, project, &ids).await?;
    let verdict = |row: &AttemptRow<'_>| {
        let (id, append) = (row.log, row.append);
        let Some(log) = logs.get(&id) else {
            return Some(Err(Error::NotFound("generation")));
        };
        let same = |wanted: &dyn Fn(&append::StoredAttempt) -> bool| {
            stored.get(&id).into_iter().flatten().find(|stored| wanted(stored))
        };
        let found = same(&|stored| stored.id == append.id)
            .or_else(|| same(&|stored| append.number == Some(stored.number)));
        if let Some(stored) = found {
            let same_name = append.number.is_none_or(|number| number == stored.number)
                && append.new.id.is_none_or(|id| id == stored.id);
            return Some(if same_name && stored.request_hash == append.hash {
                Ok(Receipt::replayed(Some(stored.number)))
            } else {
                let number = stored.number;
                Err(Error::Conflict(format!(
                    "attempt {number} of the generation {id} already exists with a different body"
                )))
            });
        }
        let why = match (log.finalized, full.contains(&id)) {
            (true, _) => "is finalized".to_owned(),
            (_, true) => format!("has {MOST_ATTEMPTS} attempts"),
            _ => return None,
        };
        Some(Err(Error::Conflict(format!("the generation {id} {why}; no attempt can be added"))))
    };
    let mut verdicts: Vec<_> = rows.iter().map(verdict).collect();
    let left = |verdicts: &[Option<Written>]| -> Vec<usize> {
        (0..rows.len()).filter(|&index| verdicts[index].is_none()).collect()
    };
    let new = left(&verdicts);
    if !new.is_empty() {
        let new_rows: Vec<_> = new.iter().map(|&index| rows[index]).collect();
        let numbers = append::insert_attempts(connection, project, AppendTo::Open, &new_rows).await?;
        for &index in &new {
            verdicts[index] = created(&numbers, &rows[index]);
        }
        // Of two attempts with the same number in one batch, the first is stored only now.
        let late = left(&verdicts);
        if !late.is_empty() && late.len() < rows.len() {
            let late_rows: Vec<_> = late.iter().map(|&index| rows[index]).collect();
            let judged = Box::pin(judge_appends(connection, project, &late_rows)).await?;
            for (index, verdict) in late.into_iter().zip(judged) {
                verdicts[index] = Some(verdict);
            }
        }
    }
    let unwritten = || Err(anyhow::anyhow!("an attempt that is new could not be added").into());
    Ok(verdicts.into_iter().map(|verdict| verdict.unwrap_or_else(unwritten)).collect())
}

async fn finalize(
    connection: &mut PgConnection,
    project: &str,
    events: &[Kept<&Event>],
) -> sqlx::Result<Vec<Option<Written>>> {
    let outcomes: Vec<_> = events.iter().filter_map(|event| event.as_outcome()).collect();
    let ids: Vec<_> = outcomes.iter().map(|(id, ..)| *id).collect();
    let logs = tables::lock(connection, project, &ids).await?;
    let mut verdicts: Vec<Option<Written>> = Vec::with_capacity(outcomes.len());
    let mut open = Vec::new();
    for (&(id, outcome, hash), later) in outcomes.iter().zip(0..) {
        verdicts.push(match logs.get(&id) {
            None => Some(Err(Error::NotFound("generation"))),
            Some(log) if log.finalized && log.outcome_hash.as_deref() == Some(hash) => {
                Some(Ok(Receipt::replayed(None)))
            }
            Some(log) if log.finalized => Some(Err(Error::Conflict(format!(
                "the generation {id} is already finalized with a different body"
            )))),
            Some(log) => {
                // Exports are ordered by this time. It is the database's, and no two logs of a batch have the
                // same.
                let completed_at = log.now.plus(TimeDelta::microseconds(later)).unwrap_or(log.now);
                open.push(OutcomeRow { id, outcome, hash, completed_at });
                None
            }
        });
    }
    let finalized = tables::finalize(connection, project, &open).await?;
    for (verdict, (id, ..)) in verdicts.iter_mut().zip(&outcomes) {
        verdict.get_or_insert_with(|| {
            if finalized.contains(id) {
                Ok(Receipt::created(None))
            } else {
                Err(Error::invalid("/final_valid_dsl", NO_PROGRAM))
            }
        });
    }
    Ok(verdicts)
}

async fn review(
    connection: &mut PgConnection,
    project: &str,
    events: &[Kept<&Event>],
) -> sqlx::Result<Vec<Option<Written>>> {
    let reviews: Vec<_> = events
        .iter()
        .filter_map(|event| match &event.action {
            Action::Review { review, at } => Some(ReviewRow { id: event.generation_id, review, at: *at }),
            _ => None,
        })
        .collect();
    let reviewed = tables::review(connection, project, &reviews).await?;
    pairs::renew(connection, project, &reviewed.iter().copied().collect::<Vec<_>>()).await?;
    Ok(reviews.iter().map(|review| Some(found(&reviewed, review.id))).collect())
}

async fn amend(
    connection: &mut PgConnection,
    project: &str,
    events: &[Kept<&Event>],
) -> sqlx::Result<Vec<Option<Written>>> {
    let amendments: Vec<_> = events.iter().filter_map(|event| event.as_amendment()).collect();
    let amended = tables::amend(connection, project, &amendments).await?;
    Ok(amendments.iter().map(|(id, _)| Some(found(&amended, *id))).collect())
}

/// Returns the verdict on an event that changes any log that exists.
fn found(changed: &HashSet<Uuid>, id: Uuid) -> Written {
    if changed.contains(&id) { Ok(Receipt::created(None)) } else { Err(Error::NotFound("generation")) }
}
