//! Creates and changes message pairs.

use sqlx::PgConnection;

use crate::db::receipt::{Receipt, Written};
use crate::error::Error;
use crate::messages::tables::{self, PairRow, Table};
use crate::messages::{Action, Event, PairState};
use crate::privacy::kept::Kept;

/// Makes pairs.
pub(super) async fn start(
    connection: &mut PgConnection,
    project: &str,
    events: &[Kept<&Event>],
) -> sqlx::Result<Vec<Written>> {
    let starts = || {
        events.iter().filter_map(|event| match &event.action {
            Action::Pair(start) => Some((event.id, &**start)),
            _ => None,
        })
    };
    let rows: Vec<_> = starts().map(|(id, start)| PairRow::posted(id, start)).collect();
    let created = tables::insert_pairs(connection, project, &rows).await?;
    let left: Vec<_> = starts().map(|(id, _)| id).filter(|id| !created.contains(id)).collect();
    let stored = if left.is_empty() {
        std::collections::HashMap::new()
    } else {
        tables::request_hashes(connection, project, Table::Pairs, &left).await?
    };
    let verdict = |(id, start): (_, &crate::messages::event::StartPair)| {
        if created.contains(&id) {
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
    Ok(starts().map(verdict).collect())
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
