//! Writes events of memories and conversations, many in a few statements.

use std::collections::HashSet;

use sqlx::PgConnection;
use uuid::Uuid;

use super::code;
use super::event::{Ask, Judge, Start, Suggest};
use super::help::{self, HelpRow};
use super::tables;
use super::{Action, Event};
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

/// The kinds of events, in the order in which they can happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A memory is stored.
    Start,
    /// A memory is changed.
    Change,
    /// What is known of a file of source code is replaced.
    Replace,
    /// A query is added to a conversation.
    Ask,
    /// Memories are suggested in a conversation.
    Suggest,
    /// A verdict on a memory is given in a conversation.
    Judge,
    /// Help comes unasked, or is kept silent.
    Help,
    /// An agent has written or opened something.
    Traces,
}

impl Batched for Event {
    type Kind = Kind;
    type Joined = HashSet<Uuid>;
    const START: Kind = Kind::Start;
    const TABLE: &'static str = "memories";

    fn record(&self) -> Uuid {
        self.id
    }

    fn kind(&self) -> Kind {
        match &self.action {
            Action::Start(_) => Kind::Start,
            Action::Change(_) => Kind::Change,
            Action::Replace(_) => Kind::Replace,
            Action::Ask(_) => Kind::Ask,
            Action::Suggest(_) => Kind::Suggest,
            Action::Judge(_) => Kind::Judge,
            Action::Help(_) => Kind::Help,
            Action::Traces(_) => Kind::Traces,
        }
    }

    fn joins(&self, asked: &mut HashSet<Uuid>) -> bool {
        match &self.action {
            Action::Ask(ask) => asked.insert(ask.id),
            _ => false,
        }
    }

    fn is_one_statement(kind: Kind, events: &[Kept<&Self>]) -> bool {
        match kind {
            Kind::Start => {
                let starts: Vec<_> = starts(events).collect();
                tables::together(&starts) == starts.len()
            }
            Kind::Ask | Kind::Judge | Kind::Help => true,
            Kind::Change | Kind::Replace | Kind::Suggest | Kind::Traces => false,
        }
    }

    async fn write(
        connection: &mut PgConnection,
        project: &str,
        kind: Kind,
        events: &[Kept<&Self>],
    ) -> sqlx::Result<Vec<Option<Written>>> {
        let created = |new: bool| new.then(|| Ok(Receipt::created(None)));
        Ok(match kind {
            Kind::Start => {
                let made = tables::insert_memories(connection, project, starts(events).collect()).await?;
                starts(events).map(|(id, _)| created(made.contains(&id))).collect()
            }
            Kind::Change => {
                let mut written = Vec::with_capacity(events.len());
                for event in events {
                    let Action::Change(change) = &event.action else { continue };
                    let found = tables::change_memory(connection, project, event.id, change).await?;
                    written.push(Some(found_or_not(found)));
                }
                written
            }
            Kind::Replace => {
                let mut written = Vec::with_capacity(events.len());
                for event in events {
                    let Action::Replace(code) = &event.action else { continue };
                    let counts = code::replace(connection, project, code).await?;
                    written.push(Some(Ok(Receipt::counted(counts.added, counts.unchanged, counts.removed))));
                }
                written
            }
            Kind::Ask => {
                let rows = firsts(asks(events), |ask| ask.id);
                let mut made = tables::insert_queries(connection, project, &rows).await?;
                asks(events).map(|ask| created(made.remove(&ask.id))).collect()
            }
            Kind::Suggest => {
                let rows = firsts(suggests(events), |suggest| suggest.id);
                let mut made = tables::insert_suggests(connection, project, &rows).await?;
                suggests(events).map(|suggest| created(made.remove(&suggest.id))).collect()
            }
            Kind::Judge => {
                let rows: Vec<_> = judges(events).collect();
                let found = tables::judge(connection, project, &rows).await?;
                rows.iter().map(|judge| Some(found_or_not(found.contains(&judge.memory)))).collect()
            }
            Kind::Help => {
                let rows = events.iter().filter_map(|event| event.as_help());
                let rows = rows.flat_map(|help| help.items.iter().map(move |item| HelpRow { help, item }));
                let rows: Vec<_> = rows.collect();
                help::insert(connection, project, &rows).await?;
                events.iter().map(|_| created(true)).collect()
            }
            Kind::Traces => {
                for event in events {
                    let Action::Traces(traces) = &event.action else { continue };
                    help::note_use(connection, project, traces).await?;
                }
                events.iter().map(|_| created(true)).collect()
            }
        })
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
                judge_starts(connection, project, ("memories", "memory"), &hashes).await
            }
            Kind::Ask => {
                let hashes: Vec<_> = asks(events).map(|ask| (ask.id, ask.hash.as_slice())).collect();
                judge_starts(connection, project, ("conversation_queries", "query"), &hashes).await
            }
            Kind::Suggest => {
                let hashes: Vec<_> =
                    suggests(events).map(|suggest| (suggest.id, suggest.hash.as_slice())).collect();
                judge_starts(connection, project, ("memory_suggests", "answer"), &hashes).await
            }
            Kind::Change | Kind::Replace | Kind::Judge | Kind::Help | Kind::Traces => Ok(events
                .iter()
                .map(|_| Err(anyhow::anyhow!("an event was left unwritten").into()))
                .collect()),
        }
    }
}

/// Returns the memories that are stored.
fn starts<'a>(events: &[Kept<&'a Event>]) -> impl Iterator<Item = (Uuid, &'a Start)> {
    events.iter().filter_map(|event| event.as_start())
}

/// Returns what is asked.
fn asks<'a>(events: &[Kept<&'a Event>]) -> impl Iterator<Item = &'a Ask> {
    events.iter().filter_map(|event| event.as_ask())
}

/// Returns what is suggested.
fn suggests<'a>(events: &[Kept<&'a Event>]) -> impl Iterator<Item = &'a Suggest> {
    events.iter().filter_map(|event| event.as_suggest())
}

/// Returns the first row with each id. Events of two conversations may have the same one, of which the first is written and
/// the second judged.
fn firsts<'a, T>(rows: impl Iterator<Item = &'a T>, id: impl Fn(&T) -> Uuid) -> Vec<&'a T> {
    let mut seen = HashSet::new();
    rows.filter(|row| seen.insert(id(row))).collect()
}

/// Returns the verdicts on memories.
fn judges<'a>(events: &[Kept<&'a Event>]) -> impl Iterator<Item = &'a Judge> {
    events.iter().filter_map(|event| event.as_judge())
}

/// Returns the verdict on an event about a memory that has to exist.
fn found_or_not(found: bool) -> Written {
    if found { Ok(Receipt::created(None)) } else { Err(Error::NotFound("memory")) }
}
