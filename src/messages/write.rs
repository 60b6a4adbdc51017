//! Writes events of message pairs and sends: many in a few statements, and all events of a batch in one transaction.

mod ends;
mod pairs;
mod sends;

use std::collections::HashSet;

use sqlx::{Connection as _, PgConnection};
use uuid::Uuid;

use super::settings::Rules;
use super::{Action, Event, prediction};
use crate::db::receipt::Written;
use crate::db::steps;
use crate::privacy::kept::Kept;

/// Which events are written together. Those of the gateway are about sends that nobody else knows yet, so they need no
/// transaction beside their single statement, and who waits for them does without its round trips.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lane {
    /// Requests have come to the gateway.
    Begins,
    /// Requests to the gateway have ended.
    Ends,
    /// Everything else.
    All,
}

/// The kinds of events, in the order in which they can happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Pair,
    Edit,
    Send,
    Attempt,
    End,
}

impl Event {
    /// Returns what the event is written together with.
    #[must_use]
    pub fn lane(&self) -> Lane {
        match &self.action {
            Action::Send(start) if start.passed.is_some() => Lane::Begins,
            Action::End(end) if end.begun.send().is_some() => Lane::Ends,
            _ => Lane::All,
        }
    }

    fn step(&self) -> Kind {
        match &self.action {
            Action::Pair(_) => Kind::Pair,
            Action::Edit(_) => Kind::Edit,
            Action::Send(_) => Kind::Send,
            Action::Attempt(_) => Kind::Attempt,
            Action::End(_) => Kind::End,
        }
    }
}

/// Writes events of one project and lane in one transaction. Returns their verdicts in the order of the events.
pub async fn write(
    connection: &mut PgConnection,
    project: &str,
    rules: &Rules,
    events: &[Kept<&Event>],
) -> sqlx::Result<Vec<Written>> {
    match events.first().map_or(Lane::All, |event| event.lane()) {
        Lane::Begins => return sends::begin(connection, project, rules, events).await,
        Lane::Ends => return ends::end_begun(connection, project, rules, events).await,
        Lane::All => {}
    }
    let mut verdicts: Vec<Option<Written>> = events.iter().map(|_| None).collect();
    // Events of a batch come in order, whatever they are about: a send may look at any pair before it. Only different pairs that
    // are made one after the other are written together.
    let are_in_order = events.iter().any(|event| event.in_order);
    let mut made = HashSet::new();
    let steps = steps::plan(events.iter().map(|event| {
        let record = if are_in_order { Uuid::nil() } else { event.id };
        let joins = are_in_order && event.step() == Kind::Pair && !made.contains(&event.id);
        if !joins {
            made.clear();
        }
        made.insert(event.id);
        (record, event.step(), joins)
    }));
    let mut transaction = connection.begin().await?;
    if steps.iter().any(|step| step.kind == Kind::Send) {
        // This lock comes first, so that nobody waits for it who has others.
        prediction::lock_quotas(&mut transaction, project, &rules.catalog).await?;
    }
    for step in &steps {
        let events = step.of(events);
        let written = match step.kind {
            Kind::Pair => pairs::start(&mut transaction, project, &events).await?,
            Kind::Edit => pairs::edit(&mut transaction, project, &events).await?,
            Kind::Send => sends::start(&mut transaction, project, rules, &events).await?,
            Kind::Attempt => sends::append(&mut transaction, project, &events).await?,
            Kind::End => ends::end(&mut transaction, project, rules, &events).await?,
        };
        for (&index, written) in step.members.iter().zip(written) {
            verdicts[index] = Some(written);
        }
    }
    transaction.commit().await?;
    Ok(verdicts.into_iter().map(|verdict| verdict.expect("every event is in a step")).collect())
}
