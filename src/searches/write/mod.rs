//! How searches are written, each time in one transaction: events that clients post ([`write`](fn@write)), entries of
//! agents (`replay`), the ends of their turns (`end_turn`), and their silence (`expire`).
//!
//! Nothing else writes the tables, and these functions accept only what has passed the project's policy ([`Kept`]).
//! Each loads a `UnitOfWork`, applies events to it, and saves it. Entries with more actions than are in memory at the same time
//! need several units, in the same transaction.
//!
//! # Lock, replay, save
//!
//! 1. **Lock.** `UnitOfWork::begin` locks the threads concerned, in the order of their ids, and reads their open
//!    searches with everything that followed them. A *thread* is the work of one agent: an agent session, or a
//!    subagent in it. Concurrent events of one agent wait for the lock on its row.
//!
//! 2. **Replay.** `learner::AgentThread` applies the events in memory. It uses only the times of the events, so a
//!    transcript that is replayed next year teaches the same: a gap between two events of a thread that is longer
//!    than the window ends its searches, however long ago both were. While a tool runs, the agent is not considered
//!    silent for ten windows, because builds take time and people have to give permissions. Events older than the
//!    latest one (a transcript that repeats what a hook has reported) do not advance the time, end only searches that
//!    began before them, and are not steps of later ones.
//!
//! 3. **Save.** New searches, fallbacks and ends are written, each kind by one statement. `encounters` stores the
//!    files that agents encountered, and `evidence::learn` adds the evidence of what was found.

mod answered_calls;
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
pub(super) use self::replay::{count, groups, lock_threads, replay};
pub(super) use self::tool_calls::{Half, ToolCall, ToolCalls, call_ids};
use self::unit_of_work::UnitOfWork;
use super::settings::Rules;
use super::{TurnEnd, TurnSearch};
use crate::privacy::kept::Kept;
use crate::projects::Tenant;
use crate::types::Timestamp;

/// The number of threads whose open searches are in memory at the same time. Events about more of them take their turns in
/// the same transaction, which locks all of them first, in the order of their ids.
pub(super) const MOST_THREADS: usize = 8;

/// The number of bytes of paths and patterns that one unit of work takes. Each may follow all open searches of its agent.
const MOST_TARGETS: usize = 128 << 10;

/// Returns the threads of an agent's session.
pub(super) async fn threads_of_session(
    connection: &mut PgConnection,
    project: &str,
    session: &str,
) -> sqlx::Result<Vec<Uuid>> {
    const SQL: &str = "select id from agent_threads where project = $1 and session = $2 order by id";
    sqlx::query_scalar(SQL).bind(project).bind(session).fetch_all(connection).await
}

/// Ends the turn of an agent's session in these threads, at most [`MOST_THREADS`], except those that are already in another
/// turn. Returns the searches that ended, each with its time, and the number of new associations.
pub(super) async fn end_turn(
    connection: &mut PgConnection,
    tenant: &Tenant,
    turn: &Kept<TurnEnd>,
    threads: &[Uuid],
    received: Timestamp,
) -> sqlx::Result<(Vec<(Timestamp, TurnSearch)>, usize)> {
    let at = turn.timestamp.unwrap_or(received);
    let mut unit = UnitOfWork::of_known_threads(connection, &tenant.name, &tenant.rules, threads).await?;
    for &thread in threads {
        let under_way = unit.thread(thread).turn.clone();
        if turn.turn_id.is_none() || under_way.is_none() || under_way == *turn.turn_id {
            unit.advance(thread, at, None);
            unit.end_turn(thread, at);
        }
    }
    let searches = unit.ended_searches().collect();
    Ok((searches, unit.save(connection, received).await?.associations))
}

/// Ends the open searches of those threads that have been silent for too long. `received` is the current time by the
/// server's clock.
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
