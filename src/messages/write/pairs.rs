//! Creates and changes message pairs.

use std::collections::{HashMap, HashSet};

use sqlx::PgConnection;

use crate::db::receipt::{Receipt, Written};
use crate::error::Error;
use crate::messages::event::StartPair;
use crate::messages::tables::{self, PairRow, Table};
use crate::messages::{Action, Event, PairState};
use crate::privacy::kept::Kept;

/// Makes pairs. Of several with the same id, the first one makes it.
pub(super) async fn start(
    connection: &mut PgConnection,
    project: &str,
    events: &[Kept<&Event>],
) -> sqlx::Result<Vec<Written>> {
    let mut first = HashSet::new();
    let starts: Vec<_> = events
        .iter()
        .filter_map(|event| match &event.action {
            Action::Pair(start) => Some((event.id, &**start, first.insert(event.id))),
            _ => None,
        })
        .collect();
    let new = starts.iter().filter(|(.., is_first)| *is_first);
    let rows: Vec<_> = new.map(|(id, start, _)| PairRow::posted(*id, start)).collect();
    let created = tables::insert_pairs(connection, project, &rows).await?;
    let is_created = |id, is_first| is_first && created.contains(&id);
    let left: Vec<_> =
        starts.iter().filter(|(id, _, is_first)| !is_created(*id, *is_first)).map(|(id, ..)| *id).collect();
    let stored = if left.is_empty() {
        HashMap::new()
    } else {
        tables::request_hashes(connection, project, Table::Pairs, &left).await?
    };
    let verdict = |(id, start, is_first): (_, &StartPair, _)| {
        if is_created(id, is_first) {
            return Ok(Receipt::created(None));
        }
        match stored.get(&id) {
            Some(hash) if *hash == start.hash => Ok(Receipt::replayed(None)),
            Some(_) => {
                Err(Error::Conflict("a pair with this id already exists with a different body".to_owned()))
            }
            None => Err(Error::Unavailable("the pair has just been erased; try again")),
        }
    };
    Ok(starts.into_iter().map(verdict).collect())
}

/// Changes pairs, one after the other.
pub(super) async fn edit(
    connection: &mut PgConnection,
    project: &str,
    events: &[Kept<&Event>],
) -> sqlx::Result<Vec<Written>> {
    let mut written = Vec::with_capacity(events.len());
    for event in events {
        let Action::Edit(edit) = &event.action else { continue };
        let verdict = match tables::lock_pair(connection, project, event.id).await? {
            None => Err(Error::NotFound("message pair")),
            Some(pair) if pair.state == PairState::Sending => {
                Err(Error::Conflict(format!("the pair {} is being sent", event.id)))
            }
            Some(_) => {
                tables::edit_pair(connection, project, event.id, edit).await?;
                Ok(Receipt::created(None))
            }
        };
        written.push(verdict);
    }
    Ok(written)
}
