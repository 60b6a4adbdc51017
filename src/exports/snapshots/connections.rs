//! The connections of a building, which has its own. A building may end before its statements have: the snapshot is
//! deleted, another builder takes over, or it takes too long. Postgres goes on with a statement that nobody waits for any
//! more, so the statements are found by the name of their connections and canceled.

use std::time::{Duration, Instant};

use sqlx::PgPool;
use tokio::time::sleep;
use uuid::Uuid;

use crate::db::EXPORT_NAME;
use crate::exports::places::Exports;

/// The number of connections: for the rows, for their hashes, for their number, and for the file.
const COUNT: u32 = 4;
/// The pause between two looks at whether all statements have ended.
const PAUSE: Duration = Duration::from_millis(20);
/// How long a connection may take to close while Postgres does nothing on it. It is dead if it takes longer.
const SILENCE: Duration = Duration::from_secs(10);

/// The connections of a building.
pub(super) struct Connections {
    pub(super) db: PgPool,
    name: String,
}

impl Connections {
    /// Makes the connections of the builder with this lease.
    pub(super) fn of(exports: &Exports, lease: Uuid) -> Self {
        let name = format!("{EXPORT_NAME} {}", lease.simple());
        Self { db: exports.connections(&name, COUNT), name }
    }

    /// Cancels the statements that are in progress, and waits until they have ended. `other` is to be another pool.
    pub(super) async fn end(self, other: &PgPool) {
        const CANCEL: &str = "
            select count(pg_cancel_backend(pid)) from pg_stat_activity where application_name = $1 and state <> 'idle'";
        let Self { db, name } = self;
        let closing = tokio::spawn(async move { db.close().await });
        let mut heard = Instant::now();
        loop {
            // Once the pool is closed, no other statement begins.
            let is_closed = closing.is_finished();
            let in_progress: sqlx::Result<i64> =
                sqlx::query_scalar(CANCEL).bind(&name).fetch_one(other).await;
            if matches!(in_progress, Ok(1..)) {
                heard = Instant::now();
            } else if is_closed || heard.elapsed() > SILENCE {
                return;
            }
            sleep(PAUSE).await;
        }
    }
}
