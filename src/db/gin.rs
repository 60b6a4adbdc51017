//! Upkeep of GIN indexes. New rows first go to an index's pending list. Every search reads that list to its
//! end, and a writer who finds it full must merge it into the index. Here the lists are merged in the
//! background, a second after rows were written.

use std::sync::Arc;
use std::time::Duration;

use sqlx::PgPool;
use tokio::sync::Notify;

use super::silence::LongestStatement;

/// How long rows may stay in the pending lists.
const PAUSE: Duration = Duration::from_secs(1);

/// Merges the pending lists a second after each notification of `written`, for ever. If several servers share
/// the database, an advisory lock lets one at a time do it.
pub async fn run(db: PgPool, written: Arc<Notify>, longest: LongestStatement) {
    const SQL: &str = "
        select gin_clean_pending_list(index.indexrelid)
        from (select pg_try_advisory_xact_lock(hashtext('gleaner gin_clean_pending_list')) as mine offset 0) lock
        join pg_class class on class.relnamespace = current_schema()::regnamespace
        join pg_am method on method.oid = class.relam and method.amname = 'gin'
        join pg_index index on index.indexrelid = class.oid
        where lock.mine";
    loop {
        written.notified().await;
        tokio::time::sleep(PAUSE).await;
        if let Err(error) = longest.while_heard(sqlx::query(SQL).execute(&db)).await.flatten() {
            tracing::debug!(%error, "the indexes could not be tidied");
        }
    }
}
