//! Keeps GIN indexes quick. They take new rows into a list first, which every search reads to its end, and the writer who
//! finds it full must sort it in. Here that is done in the background, a second after rows were written.

use std::sync::Arc;
use std::time::Duration;

use sqlx::PgPool;
use tokio::sync::Notify;

/// How long rows may stay in the lists.
const PAUSE: Duration = Duration::from_secs(1);

/// Tidies after each time that `written` is told, for ever. Of several servers on one database one does it.
pub async fn run(db: PgPool, written: Arc<Notify>) {
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
        if let Err(error) = sqlx::query(SQL).execute(&db).await {
            tracing::debug!(%error, "the indexes could not be tidied");
        }
    }
}
