//! The time whose state of the data is exported.

use std::time::Duration;

use chrono::TimeDelta;
use sqlx::PgPool;
use tokio::time::sleep;

use crate::db::{WRITER_NAME, writer_name};
use crate::error::{Error, Result};
use crate::types::Timestamp;

/// The time that an export waits for its `as_of` to come, and for older writes to end.
const PATIENCE: TimeDelta = TimeDelta::seconds(5);
/// The pause between two looks at the clock and at writes in progress, and the number of looks for which patience lasts.
const PAUSE: Duration = Duration::from_millis(10);
const LOOKS: usize = 500;

/// Returns the newest time before which everything is decided in a project: just before its oldest write in progress, on
/// any server.
///
/// A record's `completed_at` is the database's clock, read within the transaction that writes the record. Postgres
/// publishes the start of that transaction before. A write that is not seen here therefore begins after this clock is
/// read, or is already committed.
pub(super) async fn before_writes_in_flight(db: &PgPool, project: &str) -> Result<Timestamp> {
    let now = clock(db).await?;
    Ok(oldest_write(db, project).await?.map_or(now, |oldest| oldest.min(now)))
}

/// Returns the time on the database's clock.
async fn clock(db: &PgPool) -> Result<Timestamp> {
    Ok(sqlx::query_scalar("select clock_timestamp()").fetch_one(db).await?)
}

/// Returns when the oldest write in progress began, if there is one. Fails if that cannot be known.
async fn oldest_write(db: &PgPool, project: &str) -> Result<Option<Timestamp>> {
    // Postgres shows the transactions of other roles only to who may see them, and none if it does not keep track of them.
    const SQL: &str = "
        select min(xact_start), coalesce(bool_or(state is null or state = 'disabled'), false)
        from pg_stat_activity where application_name in ($1, $2) and datname = current_database()";
    for _ in 0..LOOKS {
        let query = sqlx::query_as(SQL).bind(WRITER_NAME).bind(writer_name(project));
        // A connection that is new has no state for a moment.
        if let (oldest, false) = query.fetch_one(db).await? {
            return Ok(oldest);
        }
        sleep(PAUSE).await;
    }
    Err(Error::Unavailable(
        "the writes in progress cannot be seen: the database must have track_activities on, and a server's role must be in \
         pg_read_all_stats if other servers have other roles",
    ))
}

/// Refuses an `as_of`, as the parameter with this pointer, that is so far in the future that nobody waits for it. Only the
/// database's clock decides, because records have its times.
pub(super) async fn expect_near(db: &PgPool, as_of: Timestamp, pointer: &str) -> Result<()> {
    let is_near = clock(db).await?.plus(PATIENCE).is_none_or(|latest| as_of <= latest);
    if is_near { Ok(()) } else { Err(Error::invalid(pointer, "must not be in the future")) }
}

/// Waits until it is `as_of` by the database's clock, and no write is in progress that could still change the state then.
/// Otherwise records that appear later would be behind what the work on texts has processed, and never be in a split. An
/// `as_of` that is far in the future is refused as the parameter with this pointer.
pub(super) async fn settle(db: &PgPool, project: &str, as_of: Timestamp, pointer: &str) -> Result<()> {
    expect_near(db, as_of, pointer).await?;
    for _ in 0..LOOKS {
        // The clock is read first, as above.
        let has_come = clock(db).await? >= as_of;
        if has_come && oldest_write(db, project).await?.is_none_or(|oldest| oldest >= as_of) {
            return Ok(());
        }
        sleep(PAUSE).await;
    }
    Err(Error::Unavailable("writes from before as_of are still in progress; try again"))
}
