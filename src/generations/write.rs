//! How generation logs are written: many events in few statements.
//!
//! The writer hands over whatever events of one project were waiting. `plan` sorts them into steps, each one statement
//! for all its events, such that the events of one log take effect in their order. A statement writes what is plainly
//! new; what it leaves (sent before, in conflict, to a log that never was) is judged one by one.

use std::collections::{HashMap, HashSet};

use sqlx::{Connection, PgConnection};
use uuid::Uuid;

use super::statements::{APPEND, LOCK, finalize, insert_attempts, insert_logs};
use super::{Action, Append, Event, NO_PROGRAM, Outcome, Start};
use crate::db;
use crate::db::receipt::{Receipt, Written};
use crate::error::Error;
use crate::privacy::kept::Kept;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Start,
    Append,
    Finalize,
    Review,
}

impl Event {
    fn kind(&self) -> Kind {
        match &self.action {
            Action::Start(_) => Kind::Start,
            Action::Append(_) => Kind::Append,
            Action::Finalize { .. } => Kind::Finalize,
            Action::Review { .. } => Kind::Review,
        }
    }
}

type Step = db::steps::Step<Kind>;

/// Sorts events into as few steps as keep the order within each log: several appends to a log go into one step where
/// they can.
fn plan(events: &[Kept<&Event>]) -> Vec<Step> {
    let mut appends: HashMap<Uuid, Appends> = HashMap::new();
    let mut joins = |(log, append)| appends.entry(log).or_default().take(append);
    let events = events.iter();
    db::steps::plan(
        events.map(|event| (event.generation_id, event.kind(), event.as_append().is_some_and(&mut joins))),
    )
}

/// The appends to one log that go into one step.
#[derive(Default)]
struct Appends {
    numbered: bool,
    ids: HashSet<Uuid>,
}

impl Appends {
    /// Takes one more, if a single statement can write it with those before it: it can neither see a number that one of
    /// them was given by the client, when it looks for the next, nor that one of them has the same id. Otherwise begins
    /// anew with this one.
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

/// Writes events of one project, all in one transaction. Verdicts are in the order of the events.
pub async fn write(
    connection: &mut PgConnection,
    project: &str,
    events: &[Kept<&Event>],
) -> sqlx::Result<Vec<Written>> {
    let steps = plan(events);
    let mut verdicts: Vec<Option<Written>> = events.iter().map(|_| None).collect();
    if let [step] = steps.as_slice()
        && step.is_one_statement(events)
    {
        // Such a statement is a transaction of its own; that saves two round trips where one client waits alone.
        step.write(connection, project, events, &mut verdicts).await?;
        if verdicts.iter().any(Option::is_none) {
            let mut transaction = connection.begin().await?;
            step.judge(&mut transaction, project, events, &mut verdicts).await?;
            transaction.commit().await?;
        }
    } else {
        let mut transaction = connection.begin().await?;
        for step in &steps {
            step.write(&mut transaction, project, events, &mut verdicts).await?;
            step.judge(&mut transaction, project, events, &mut verdicts).await?;
        }
        transaction.commit().await?;
    }
    Ok(verdicts.into_iter().map(|verdict| verdict.expect("every event is written or judged")).collect())
}

impl Step {
    /// Whether writing it takes a single statement.
    fn is_one_statement(&self, events: &[Kept<&Event>]) -> bool {
        if self.kind == Kind::Append {
            return !self.must_see_all(events);
        }
        self.members.iter().all(|&index| match &events[index].action {
            Action::Start(start) => start.attempts.is_empty(),
            Action::Append(_) => true,
            Action::Finalize { outcome, .. } => !outcome.success,
            Action::Review { .. } => false,
        })
    }

    /// Whether appends depend on what another writer may be adding to the same log: a statement that waits for the log's
    /// lock would not see it. So it is for an attempt known by its id alone, and for several that are numbered here.
    fn must_see_all(&self, events: &[Kept<&Event>]) -> bool {
        let nameless = || {
            let appends = self.members.iter().filter_map(|&index| events[index].as_append());
            appends.filter(|(_, append)| append.number.is_none())
        };
        let mut logs = HashSet::new();
        nameless().any(|(log, append)| append.id_given || !logs.insert(log))
    }

    /// Writes what is plainly new.
    async fn write(
        &self,
        connection: &mut PgConnection,
        project: &str,
        events: &[Kept<&Event>],
        verdicts: &mut [Option<Written>],
    ) -> sqlx::Result<()> {
        match self.kind {
            Kind::Start => {
                let starts: Vec<_> =
                    self.members.iter().filter_map(|&index| events[index].as_start()).collect();
                let created = insert_logs(connection, project, &starts).await?;
                for &index in &self.members {
                    if created.contains(&events[index].generation_id) {
                        verdicts[index] = Some(Ok(Receipt::created(None)));
                    }
                }
            }
            Kind::Append => {
                let appends: Vec<_> =
                    self.members.iter().filter_map(|&index| events[index].as_append()).collect();
                if self.must_see_all(events) {
                    let logs: Vec<_> = appends.iter().map(|(id, _)| *id).collect();
                    sqlx::query(LOCK).bind(project).bind(logs).execute(&mut *connection).await?;
                }
                let numbers = insert_attempts(connection, APPEND, project, &appends).await?;
                for &index in &self.members {
                    let Some((log, append)) = events[index].as_append() else {
                        continue;
                    };
                    if let Some(&number) = numbers.get(&(log, append.id)) {
                        verdicts[index] = Some(Ok(Receipt::created(Some(number))));
                    }
                }
            }
            Kind::Finalize => {
                let outcomes: Vec<_> =
                    self.members.iter().filter_map(|&index| events[index].as_outcome()).collect();
                let done = finalize(connection, project, &outcomes).await?;
                for &index in &self.members {
                    if done.contains(&events[index].generation_id) {
                        verdicts[index] = Some(Ok(Receipt::created(None)));
                    }
                }
            }
            Kind::Review => {}
        }
        Ok(())
    }

    /// Gives every event its verdict that writing has left without one.
    async fn judge(
        &self,
        connection: &mut PgConnection,
        project: &str,
        events: &[Kept<&Event>],
        verdicts: &mut [Option<Written>],
    ) -> sqlx::Result<()> {
        for &index in &self.members {
            if verdicts[index].is_none() {
                verdicts[index] = Some(judge(connection, project, &events[index]).await?);
            }
        }
        Ok(())
    }
}

impl Event {
    /// The log that begins.
    pub(super) fn as_start(&self) -> Option<(Uuid, &Start)> {
        match &self.action {
            Action::Start(start) => Some((self.generation_id, start)),
            _ => None,
        }
    }

    /// The attempt that is made.
    pub(super) fn as_append(&self) -> Option<(Uuid, &Append)> {
        match &self.action {
            Action::Append(append) => Some((self.generation_id, append)),
            _ => None,
        }
    }

    fn as_outcome(&self) -> Option<(Uuid, &Outcome, &[u8])> {
        match &self.action {
            Action::Finalize { outcome, hash } => Some((self.generation_id, outcome, hash)),
            _ => None,
        }
    }
}

/// The verdict on an event that is not plainly new, and its writing if it is new after all.
async fn judge(connection: &mut PgConnection, project: &str, event: &Event) -> sqlx::Result<Written> {
    let id = event.generation_id;
    match &event.action {
        Action::Start(start) => judge_start(connection, project, id, start).await,
        Action::Append(append) => judge_append(connection, project, id, append).await,
        Action::Finalize { outcome, hash } => judge_outcome(connection, project, id, outcome, hash).await,
        Action::Review { review, at } => {
            let sql =
                "update generations set rating = $3, reviewer = $4, review_note = $5, corrected_dsl = $6,
                           reviewed_at = $7 where project = $1 and id = $2";
            let done = sqlx::query(sql)
                .bind(project)
                .bind(id)
                .bind(review.rating)
                .bind(&review.reviewer)
                .bind(&review.note)
                .bind(&review.corrected_dsl)
                .bind(at)
                .execute(connection)
                .await?;
            Ok(if done.rows_affected() > 0 {
                Ok(Receipt::created(None))
            } else {
                Err(Error::NotFound("generation"))
            })
        }
    }
}

async fn judge_start(
    connection: &mut PgConnection,
    project: &str,
    id: Uuid,
    start: &Start,
) -> sqlx::Result<Written> {
    if !insert_logs(connection, project, &[(id, start)]).await?.is_empty() {
        return Ok(Ok(Receipt::created(None)));
    }
    let sql = "select request_hash from generations where project = $1 and id = $2";
    let stored: Option<Vec<u8>> =
        sqlx::query_scalar(sql).bind(project).bind(id).fetch_optional(connection).await?;
    Ok(match stored {
        Some(hash) if hash == start.hash => Ok(Receipt::replayed(None)),
        _ => Err(Error::Conflict(format!("the generation {id} is there already, with another body"))),
    })
}

async fn judge_append(
    connection: &mut PgConnection,
    project: &str,
    id: Uuid,
    append: &Append,
) -> sqlx::Result<Written> {
    let Some((finalized, _)) = lock(connection, project, id).await? else {
        return Ok(Err(Error::NotFound("generation")));
    };
    let sql = "select id, attempt, request_hash from attempts
               where project = $1 and generation_id = $2 and (id = $3 or attempt = $4) order by id = $3 desc limit 1";
    let stored: Option<(Uuid, i32, Vec<u8>)> = sqlx::query_as(sql)
        .bind(project)
        .bind(id)
        .bind(append.id)
        .bind(append.number)
        .fetch_optional(&mut *connection)
        .await?;
    if let Some((stored_id, number, hash)) = stored {
        let same_name =
            append.number.is_none_or(|own| own == number) && append.new.id.is_none_or(|id| id == stored_id);
        return Ok(if same_name && hash == append.hash {
            Ok(Receipt::replayed(Some(number)))
        } else {
            Err(Error::Conflict(format!(
                "attempt {number} of the generation {id} is there already, with another body"
            )))
        });
    }
    if finalized {
        return Ok(Err(Error::Conflict(format!(
            "the generation {id} is finalized; no attempt can be added"
        ))));
    }
    let numbers = insert_attempts(connection, APPEND, project, &[(id, append)]).await?;
    let number = numbers.into_values().next();
    Ok(number.map_or_else(
        || Err(anyhow::anyhow!("an attempt that is new could not be added").into()),
        |number| Ok(Receipt::created(Some(number))),
    ))
}

async fn judge_outcome(
    connection: &mut PgConnection,
    project: &str,
    id: Uuid,
    outcome: &Outcome,
    hash: &[u8],
) -> sqlx::Result<Written> {
    Ok(match lock(connection, project, id).await? {
        None => Err(Error::NotFound("generation")),
        Some((true, stored)) if stored.as_deref() == Some(hash) => Ok(Receipt::replayed(None)),
        Some((true, _)) => {
            Err(Error::Conflict(format!("the generation {id} is finalized already, with another body")))
        }
        Some((false, _)) if finalize(connection, project, &[(id, outcome, hash)]).await?.is_empty() => {
            Err(Error::invalid("/final_valid_dsl", NO_PROGRAM))
        }
        Some((false, _)) => Ok(Receipt::created(None)),
    })
}

/// Locks a log: whether it is finalized, and by what request.
async fn lock(
    connection: &mut PgConnection,
    project: &str,
    id: Uuid,
) -> sqlx::Result<Option<(bool, Option<Vec<u8>>)>> {
    let sql = "select completed_at is not null, outcome_hash from generations
               where project = $1 and id = $2 for no key update";
    sqlx::query_as(sql).bind(project).bind(id).fetch_optional(connection).await
}
