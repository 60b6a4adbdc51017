//! Hook reports whose senders have their answers before what they report is stored. Erasures wait for them, those of other
//! servers and of commands, too: late reports have marks in the database, which are transactions that hold a lock for each of
//! their projects. The reports of a second share a mark, of whichever projects they are, and those of a project its lock.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use sqlx::error::DatabaseError;
use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, PgPool, Postgres, Transaction};
use tokio::runtime::Handle;
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

/// A transaction whose connection holds the locks of some projects.
#[derive(Debug)]
struct Mark {
    since: Instant,
    locks: Mutex<Locks>,
}

#[derive(Debug)]
struct Locks {
    transaction: Transaction<'static, Postgres>,
    by_project: HashMap<Arc<str>, Weak<Lock>>,
}

/// A lock of a project in the database, which is given back when the last of the reports that share it is stored. An erasure
/// of the project need not wait for the reports of others.
#[derive(Debug)]
pub(super) struct Lock {
    mark: Arc<Mark>,
    project: Arc<str>,
}

impl Drop for Lock {
    fn drop(&mut self) {
        const UNLOCK: &str = "select pg_advisory_unlock_shared(hashtext('gleaner reports of ' || $1))";
        let (mark, project) = (Arc::clone(&self.mark), Arc::clone(&self.project));
        let unlock = async move {
            let mut locks = mark.locks.lock().await;
            let unlocked = sqlx::query(UNLOCK).bind(&*project).execute(&mut *locks.transaction).await;
            if let Err(error) = unlocked {
                tracing::debug!(%error, "the connection that held a lock is gone");
            }
        };
        // When the program ends, so does the connection.
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(unlock);
        }
    }
}

/// Where a report keeps the lock of its project, if it gets one.
pub(super) type Marked = Arc<OnceLock<Arc<Lock>>>;

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
                Ok(Some(lock)) => {
                    let _ = marked.set(lock);
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

    async fn try_mark(&self, newest: &mut Weak<Mark>, project: &Arc<str>) -> sqlx::Result<Option<Arc<Lock>>> {
        // It is the connection's and not the transaction's, so that it can be given back before the others.
        const LOCK: &str = "select pg_try_advisory_lock_shared(hashtext('gleaner reports of ' || $1))";
        let are_taken = self.db.size() == MARKS && self.db.num_idle() == 0;
        let shared = newest.upgrade().filter(|mark| are_taken || mark.since.elapsed() < SHARED);
        let mark = if let Some(mark) = shared {
            mark
        } else {
            let locks = Locks { transaction: db::begin(&self.db).await?, by_project: HashMap::new() };
            Arc::new(Mark { since: Instant::now(), locks: Mutex::new(locks) })
        };
        *newest = Arc::downgrade(&mark);
        let mut locks = mark.locks.lock().await;
        if let Some(lock) = locks.by_project.get(project).and_then(Weak::upgrade) {
            return Ok(Some(lock));
        }
        let is_locked = sqlx::query_scalar(LOCK).bind(&**project);
        if !is_locked.fetch_one(&mut *locks.transaction).await? {
            return Ok(None);
        }
        let lock = Arc::new(Lock { mark: Arc::clone(&mark), project: Arc::clone(project) });
        locks.by_project.insert(Arc::clone(project), Arc::downgrade(&lock));
        Ok(Some(lock))
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
