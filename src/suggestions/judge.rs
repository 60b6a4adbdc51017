//! The verdicts on events about suggestion records that are not plainly new.

use std::collections::HashMap;

use sqlx::PgConnection;
use uuid::Uuid;

use super::statements;
use super::statements::moves::{Append, append, highest};
use super::write::finalize;
use super::{Action, Event, Move, Start, State};
use crate::db::receipt::{Receipt, Written};
use crate::error::Error;

/// A record that an event is about, locked.
#[derive(sqlx::FromRow)]
struct Stored {
    state: State,
    suggestion_count: i32,
    outcome_hash: Option<Vec<u8>>,
}

/// The verdict on an event that is not plainly new, and its writing if it is new after all.
pub(super) async fn judge(
    connection: &mut PgConnection,
    project: &str,
    event: &Event,
) -> sqlx::Result<Written> {
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
        State::Pending => None,
        State::Finalized => Some("finalized"),
        State::Discarded => Some("discarded"),
    };
    match &event.action {
        Action::Append { moves, received_at } => {
            let made = (id, moves.as_slice(), *received_at);
            judge_append(connection, project, &made, stored.suggestion_count, state).await
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
    &(id, moves, received_at): &Append<'_>,
    suggestion_count: i32,
    ended: Option<&str>,
) -> sqlx::Result<Written> {
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
    let added = append(connection, project, &[(id, &new, received_at)]).await?;
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
