//! The time whose state of the data is exported.

use sqlx::PgPool;

use crate::db::{WRITER_NAME, writer_name};
use crate::error::{Error, Result};
use crate::types::Timestamp;

/// Returns the newest time before which everything is decided in a project: just before its oldest write in progress, on
/// any server.
///
/// A record's `completed_at` is the database's clock, read within the transaction that writes the record. Postgres
/// publishes the start of that transaction before. A write that is not seen here therefore begins after this clock is
/// read, or is already committed.
pub(super) async fn before_writes_in_flight(db: &PgPool, project: &str) -> Result<Timestamp> {
    let now: Timestamp = sqlx::query_scalar("select clock_timestamp()").fetch_one(db).await?;
    Ok(oldest_write(db, project).await?.map_or(now, |oldest| oldest.min(now)))
}

async fn oldest_write(db: &PgPool, project: &str) -> Result<Option<Timestamp>> {
    let sql = "select min(xact_start) from pg_stat_activity where application_name in ($1, $2) and datname = current_database()";
    Ok(sqlx::query_scalar(sql).bind(WRITER_NAME).bind(writer_name(project)).fetch_one(db).await?)
}

/// Waits until no write is in progress that could still change the state at `as_of`.
pub(super) async fn settle(db: &PgPool, project: &str, as_of: Timestamp) -> Result<()> {
    for _ in 0..500 {
        if oldest_write(db, project).await?.is_none_or(|oldest| oldest >= as_of) {
            return Ok(());
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    Err(Error::Unavailable("writes from before as_of are still in progress; try again"))
}
