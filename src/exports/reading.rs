//! How the rows of a page are read in bounded memory, whoever they are for.

use std::sync::Arc;
use std::time::Duration;

use futures_util::{FutureExt as _, Stream, TryStreamExt as _};
use sqlx::PgPool;
use sqlx::postgres::PgRow;
use tokio::time::timeout;

use crate::sharing::Shares;

/// The time after which an export that waits for a row lets another one wait in its place. A row that has begun to come takes
/// less.
const SLICE: Duration = Duration::from_secs(1);

/// Makes the places of exports that wait for a row: one for each project, and two in all.
pub(super) fn arrivals() -> Shares {
    Shares::with_total(1, 2)
}

/// Waits for a row. How long it is is only known when it has come, so few exports wait at the same time, and those for whom none
/// comes let others wait in turn.
pub(super) async fn arrive(
    rows: &mut (impl Stream<Item = sqlx::Result<PgRow>> + Unpin),
    arriving: &Shares,
    project: &Arc<str>,
) -> sqlx::Result<Option<PgRow>> {
    if let Some(row) = rows.try_next().now_or_never() {
        return row;
    }
    loop {
        let _place = arriving.take(project, 1).await;
        if let Ok(row) = timeout(SLICE, rows.try_next()).await {
            return row;
        }
    }
}

/// Ends the statement of a process of which no further rows are wanted. Its connection can be used again, and its place given
/// back, when the statement has ended.
pub(super) async fn end(
    rows: &mut (impl Stream<Item = sqlx::Result<PgRow>> + Unpin),
    db: &PgPool,
    process: i32,
) -> sqlx::Result<()> {
    cancel(db, process).await?;
    while let Ok(Some(_)) = rows.try_next().await {}
    Ok(())
}

/// Cancels the statement of a process, if it has one.
pub(super) async fn cancel(db: &PgPool, process: i32) -> sqlx::Result<()> {
    sqlx::query("select pg_cancel_backend($1)").bind(process).execute(db).await?;
    Ok(())
}
