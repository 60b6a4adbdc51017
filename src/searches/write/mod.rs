//! How searches are written, in one transaction each time: events that clients post ([`write`](fn@write)), entries of agents
//! (`replay`), and the silence of agents (`expire`).
//!
//! There is no other way to the tables, and the ways in take only what has passed the project's policy
//! ([`Kept`](crate::privacy::kept::Kept)). Each loads a `UnitOfWork`, tells it what happened, and saves it.

mod counts;
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
use crate::types::Timestamp;

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
