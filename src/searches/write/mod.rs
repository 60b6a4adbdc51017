//! How searches are written, in one transaction each time: events that clients post ([`write`](fn@write)), entries of agents
//! (`replay`), the ends of their turns (`end_turn`), and the silence of agents (`expire`).
//!
//! There is no other way to the tables, and the ways in take only what has passed the project's policy
//! ([`Kept`]). Each loads a `UnitOfWork`, tells it what happened, and saves it.
//!
//! # Lock, replay, save
//!
//! 1. **Lock.** `UnitOfWork::begin` locks the threads concerned, in id order, and reads their open searches with all that followed
//!    them. A *thread* is the work of one agent: an agent session, or a subagent in it. Its row is what concurrent events of one
//!    agent wait for.
//! 2. **Replay.** `learner::AgentThread` takes the events in memory. It knows no clock but the events' own, so a transcript replayed
//!    next year teaches the same: a gap longer than the window between two events of a thread ends its searches, however long
//!    ago both were. Only while a tool has not answered yet is an agent not silent for ten windows: builds run, and somebody
//!    has to allow things. Events older than the latest (a transcript that tells what a hook has told) move no clock, end only
//!    searches made before them, and are no steps of later ones.
//! 3. **Save.** New searches, fallbacks and ends are written, a statement each. `encounters` has the files that agents came across,
//!    and `evidence::learn` adds what was found.

mod corrections;
mod counts;
mod encounters;
mod events;
mod replay;
mod rows;
mod tables;
mod tool_calls;
mod unit_of_work;

use sqlx::PgConnection;
use uuid::Uuid;

pub use self::counts::TranscriptCounts;
pub use self::events::write;
pub(super) use self::replay::{count, replay};
pub(super) use self::tool_calls::{Half, ToolCall, ToolCalls, call_ids};
use self::unit_of_work::UnitOfWork;
use super::settings::Rules;
use super::{EndedTurn, TurnEnd};
use crate::privacy::kept::Kept;
use crate::projects::Tenant;
use crate::types::Timestamp;

/// Ends the turn of an agent's session, that is of all its threads but those that are in another turn by now.
pub(super) async fn end_turn(
    connection: &mut PgConnection,
    tenant: &Tenant,
    turn: &Kept<TurnEnd>,
    received: Timestamp,
) -> sqlx::Result<EndedTurn> {
    const THREADS: &str = "select id from agent_threads where project = $1 and session = $2";
    let at = turn.timestamp.unwrap_or(received);
    let query = sqlx::query_scalar(THREADS).bind(&*tenant.name).bind(&turn.agent_session_id);
    let threads: Vec<Uuid> = query.fetch_all(&mut *connection).await?;
    let mut unit = UnitOfWork::of_known_threads(connection, &tenant.name, &tenant.rules, &threads).await?;
    for thread in threads {
        let under_way = unit.thread(thread).turn.clone();
        if turn.turn_id.is_none() || under_way.is_none() || under_way == *turn.turn_id {
            unit.advance(thread, at, None);
            unit.end_turn(thread, at);
        }
    }
    let searches = unit.ended_searches();
    let saved = unit.save(connection, received).await?;
    let agent_session_id = turn.agent_session_id.clone();
    Ok(EndedTurn { agent_session_id, searches, associations_created: saved.associations })
}

/// Ends the open searches of these threads, of which nothing has been heard for too long. `received` is the present, by our
/// clock.
pub(super) async fn expire(
    connection: &mut PgConnection,
    project: &str,
    rules: &Rules,
    threads: &[Uuid],
    received: Timestamp,
) -> sqlx::Result<()> {
    let mut unit = UnitOfWork::of_known_threads(connection, project, rules, threads).await?;
    unit.expire();
    unit.save(connection, received).await?;
    Ok(())
}
