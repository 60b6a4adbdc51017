//! Hook reports whose senders have their answers before what they report is stored. Erasures wait for them, those of other
//! servers and of commands, too: each project's late reports have a mark in the database, which is a lock that they share.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use sqlx::error::DatabaseError;
use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, PgPool, Postgres, Transaction};

use crate::db;
use crate::error::{Error, Result};

/// The number of projects whose late reports are marked at the same time. Each takes a connection.
const MARKED: u32 = 2;

/// How long a mark is also that of further reports. An erasure waits until those that share one are stored.
const SHARED: Duration = Duration::from_secs(1);

/// The maximum time for which an erasure waits for the hook reports before it.
pub(super) const EARLIER: Duration = Duration::from_secs(10);

/// What is said if they take longer.
pub(super) const LATE: &str = "reports of hooks are still being stored; send the request again";

/// The error code of a statement that has waited too long for a lock.
const LOCK_NOT_AVAILABLE: &str = "55P03";

/// A lock in the database, which is given back when the last of the reports that share it is stored.
#[derive(Debug)]
pub(super) struct Mark {
    _transaction: Mutex<Transaction<'static, Postgres>>,
}

/// Where a report keeps its mark, if it gets one.
pub(super) type Marked = Arc<OnceLock<Arc<Mark>>>;

/// The newest mark of each project, and when it was made.
type Marks = HashMap<Arc<str>, (Instant, Weak<Mark>)>;

/// The marks of projects whose reports are late.
#[derive(Debug, Clone)]
pub(super) struct LateReports {
    db: PgPool,
    marks: Arc<Mutex<Marks>>,
    /// Held by whoever makes a mark, so that others share it.
    making: Arc<tokio::sync::Mutex<()>>,
}

impl LateReports {
    pub(super) fn new(options: &PgConnectOptions) -> Self {
        let db = db::pool(options, "gleaner-late", MARKED);
        Self { db, marks: Arc::default(), making: Arc::default() }
    }

    /// Marks a report of a project as late until it is dropped, if there is a connection for that.
    pub(super) async fn mark(&self, project: &Arc<str>, marked: &Marked) {
        let mut mark = self.shared(project);
        if mark.is_none() {
            let _making = self.making.lock().await;
            mark = self.shared(project);
            if mark.is_none() {
                mark = self.new_mark(project).await.ok();
            }
        }
        if let Some(mark) = mark {
            let _ = marked.set(mark);
        }
    }

    async fn new_mark(&self, project: &Arc<str>) -> sqlx::Result<Arc<Mark>> {
        const LOCK: &str = "select pg_advisory_xact_lock_shared(hashtext('gleaner reports of ' || $1))";
        let mut transaction = db::begin(&self.db).await?;
        sqlx::query(LOCK).bind(&**project).execute(&mut *transaction).await?;
        let mark = Arc::new(Mark { _transaction: Mutex::new(transaction) });
        let mut marks = self.marks.lock().unwrap_or_else(PoisonError::into_inner);
        marks.retain(|_, (_, mark)| mark.strong_count() > 0);
        marks.insert(Arc::clone(project), (Instant::now(), Arc::downgrade(&mark)));
        Ok(mark)
    }

    fn shared(&self, project: &str) -> Option<Arc<Mark>> {
        let marks = self.marks.lock().unwrap_or_else(PoisonError::into_inner);
        let (since, mark) = marks.get(project)?;
        if since.elapsed() < SHARED { mark.upgrade() } else { None }
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
