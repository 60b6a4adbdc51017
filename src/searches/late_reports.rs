//! Hook reports whose senders have their answers before what they report is stored. Erasures wait for them, those of other
//! servers and of commands, too: late reports have marks in the database, which are transactions that hold a lock for each of
//! their projects. The reports of a second share a mark, of whichever projects they are.

use std::collections::HashSet;
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use sqlx::error::DatabaseError;
use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, PgPool, Postgres, Transaction};
use tokio::sync::Mutex;
use tokio::time::sleep;

use crate::db;
use crate::error::{Error, Result};

/// The number of marks at the same time, each of which takes a connection.
const MARKS: u32 = 4;

/// How long a mark is also that of further reports. An erasure waits until those that share one are stored.
const SHARED: Duration = Duration::from_secs(1);

/// The pause after which a mark is tried again.
const PAUSE: Duration = Duration::from_millis(50);

/// The maximum time for which an erasure waits for the hook reports before it.
pub(super) const EARLIER: Duration = Duration::from_secs(10);

/// What is said if they take longer.
pub(super) const LATE: &str = "reports of hooks are still being stored; send the request again";

/// The error code of a statement that has waited too long for a lock.
const LOCK_NOT_AVAILABLE: &str = "55P03";

/// Locks in the database, one for each project, which are given back when the last of the reports that share them is stored.
#[derive(Debug)]
pub(super) struct Mark {
    since: Instant,
    locks: Mutex<Locks>,
}

#[derive(Debug)]
struct Locks {
    transaction: Transaction<'static, Postgres>,
    projects: HashSet<Arc<str>>,
}

/// Where a report keeps its mark, if it gets one.
pub(super) type Marked = Arc<OnceLock<Arc<Mark>>>;

/// What marks late reports, of whichever projects.
#[derive(Debug, Clone)]
pub(super) struct LateReports {
    db: PgPool,
    /// The mark that further reports share. Whoever marks a report holds it.
    newest: Arc<Mutex<Weak<Mark>>>,
}

impl LateReports {
    pub(super) fn new(options: &PgConnectOptions) -> Self {
        let db = db::pool(options, db::LATE_NAME, MARKS);
        // Connecting may take longer than there is time to mark a report.
        let first = db.clone();
        tokio::spawn(async move { drop(first.acquire().await) });
        Self { db, newest: Arc::default() }
    }

    /// Marks a report of a project as late until it is stored. The future must not be dropped before its end.
    pub(super) async fn mark(self, project: Arc<str>, marked: Marked) {
        loop {
            let mut newest = self.newest.lock().await;
            if Arc::strong_count(&marked) == 1 {
                // The report is stored meanwhile.
                return;
            }
            match self.try_mark(&mut newest, &project).await {
                Ok(Some(mark)) => {
                    let _ = marked.set(mark);
                    return;
                }
                // An erasure waits for earlier reports.
                Ok(None) => (),
                Err(_) => *newest = Weak::new(),
            }
            drop(newest);
            sleep(PAUSE).await;
        }
    }

    async fn try_mark(&self, newest: &mut Weak<Mark>, project: &Arc<str>) -> sqlx::Result<Option<Arc<Mark>>> {
        const LOCK: &str = "select pg_try_advisory_xact_lock_shared(hashtext('gleaner reports of ' || $1))";
        let are_taken = self.db.size() == MARKS && self.db.num_idle() == 0;
        let shared = newest.upgrade().filter(|mark| are_taken || mark.since.elapsed() < SHARED);
        let mark = if let Some(mark) = shared {
            mark
        } else {
            let locks = Locks { transaction: db::begin(&self.db).await?, projects: HashSet::new() };
            Arc::new(Mark { since: Instant::now(), locks: Mutex::new(locks) })
        };
        *newest = Arc::downgrade(&mark);
        let mut locks = mark.locks.lock().await;
        if !locks.projects.contains(project) {
            let lock = sqlx::query_scalar(LOCK).bind(&**project);
            if !lock.fetch_one(&mut *locks.transaction).await? {
                return Ok(None);
            }
            locks.projects.insert(Arc::clone(project));
        }
        drop(locks);
        Ok(Some(mark))
    }
}

/// Waits until all late reports of a project are stored, by whichever server.
pub async fn earlier(db: &PgPool, project: &str) -> Result<()> {
    const LOCK: &str = "select pg_advisory_xact_lock(hashtext('gleaner reports of ' || $1))";
    let begin = format!("begin; set local lock_timeout = {}", EARLIER.as_millis());
    let mut transaction = db::begin_with(db, AssertSqlSafe(begin)).await?;
    match sqlx::query(LOCK).bind(project).execute(&mut *transaction).await {
        Ok(_) => Ok(transaction.commit().await?),
        Err(error)
            if error.as_database_error().and_then(DatabaseError::code).as_deref()
                == Some(LOCK_NOT_AVAILABLE) =>
        {
            Err(Error::Unavailable(LATE))
        }
        Err(error) => Err(error.into()),
    }
}
