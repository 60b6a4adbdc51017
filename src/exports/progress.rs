//! Work that stores something about each record of a project, in the order in which the records were finalized. Writing
//! a record costs nothing: an export that needs the results first processes the records finalized since the last one,
//! page by page, each page in a transaction. Two exports that begin at the same time process the records one after the
//! other.

use std::time::{Duration, Instant};

use serde_json::Value;
use sqlx::postgres::PgRow;
use sqlx::types::Json;
use sqlx::{AssertSqlSafe, FromRow, PgConnection, PgPool, Postgres, Transaction};
use uuid::Uuid;

use crate::db;
use crate::db::retry::lost_a_race;
use crate::sharing::while_wanted;
use crate::types::Timestamp;

/// The number of new records from which on the planner's statistics are renewed.
const MANY: usize = 1_000;
/// The number of records of the first page.
const FIRST_PAGE: i64 = 50;
/// The duration of a page from which on the next one has fewer records.
const LONG: Duration = Duration::from_millis(500);

/// A record with the columns that the work reads.
#[derive(Debug, Clone, FromRow)]
pub(super) struct Record<T> {
    pub(super) record: Uuid,
    pub(super) completed_at: Timestamp,
    #[sqlx(flatten)]
    pub(super) read: T,
}

/// The number of records of a page, which depends on how long the last page took, because erasures and reviews wait for a
/// page, and records with long texts take long.
pub(super) struct PageSize {
    next: i64,
    most: i64,
}

impl PageSize {
    /// Makes the size of a first page, and limits that of all pages.
    pub(super) fn up_to(most: i64) -> Self {
        Self { next: FIRST_PAGE.min(most), most }
    }

    /// Notes how long a page took.
    fn note(&mut self, took: Duration) {
        self.next = if took > LONG { (self.next / 2).max(1) } else { (self.next * 2).min(self.most) };
    }
}

/// The next records to be processed, and the transaction that stores the results.
pub(super) struct Page<'a, T> {
    pub(super) transaction: Transaction<'static, Postgres>,
    pub(super) records: Vec<Record<T>>,
    /// When the last of the records was finalized, and its id.
    last: (Timestamp, Uuid),
    project: &'a str,
    work: &'a str,
    begun: Instant,
}

/// Reads the next records that were finalized before `as_of` and are not processed yet, at most a page, if there are
/// any. `sql` selects them as described at [`Source`](super::groups::Source). Others are kept from the same work until
/// the page ends.
pub(super) async fn next_page<'a, T>(
    db: &PgPool,
    (project, work): (&'a str, &'a str),
    sql: &'static str,
    as_of: Timestamp,
    size: &PageSize,
) -> sqlx::Result<Option<Page<'a, T>>>
where
    T: for<'r> FromRow<'r, PgRow> + Send + Unpin,
{
    // Between two pages, a request whose client has hung up ends.
    while_wanted(tokio::task::yield_now()).await;
    let mut transaction = db::begin(db).await?;
    let (completed_at, record) = lock(&mut transaction, project, work).await?;
    let begun = Instant::now();
    let query = sqlx::query_as(AssertSqlSafe(sql)).bind(project).bind(completed_at).bind(record);
    let records: Vec<Record<T>> = query.bind(as_of).bind(size.next).fetch_all(&mut *transaction).await?;
    let Some(last) = records.last().map(|last| (last.completed_at, last.record)) else {
        transaction.commit().await?;
        return Ok(None);
    };
    Ok(Some(Page { transaction, records, last, project, work, begun }))
}

/// Keeps others from this work until the transaction ends, and erasures of records that it could note. Returns when the
/// last of the processed records was finalized, and its id.
pub async fn lock(
    connection: &mut PgConnection,
    project: &str,
    work: &str,
) -> sqlx::Result<(Option<Timestamp>, Option<Uuid>)> {
    const SHARED: &str = "select pg_advisory_xact_lock_shared(hashtext('gleaner ' || $2 || ' of ' || $1))";
    const BEGIN: &str = "insert into text_progress (project, work) values ($1, $2) on conflict do nothing";
    const LOCK: &str =
        "select completed_at, record from text_progress where project = $1 and work = $2 for update";
    sqlx::query(SHARED).bind(project).bind(work).execute(&mut *connection).await?;
    sqlx::query(BEGIN).bind(project).bind(work).execute(&mut *connection).await?;
    sqlx::query_as(LOCK).bind(project).bind(work).fetch_one(connection).await
}

impl<T> Page<'_, T> {
    /// Stores that the records are processed, commits the transaction, and adapts the size of the next page.
    pub(super) async fn end(mut self, size: &mut PageSize) -> sqlx::Result<()> {
        const SQL: &str =
            "update text_progress set completed_at = $3, record = $4 where project = $1 and work = $2";
        let (completed_at, record) = self.last;
        let query = sqlx::query(SQL).bind(self.project).bind(self.work).bind(completed_at).bind(record);
        query.execute(&mut *self.transaction).await?;
        self.transaction.commit().await?;
        size.note(self.begun.elapsed());
        Ok(())
    }
}

/// Renews the planner's statistics of tables after work on so many records. Until autovacuum would do so, the planner takes
/// such a table to be almost empty, and compares each row of an export with the whole table.
pub(super) async fn renew_statistics(db: &PgPool, records: usize, analyze: &'static str) -> sqlx::Result<()> {
    if records >= MANY {
        sqlx::query(analyze).execute(db).await?;
    }
    Ok(())
}

/// Renews the planner's statistics of a table if the planner expects almost no records of the project, but there are many.
/// With that expectation any index that begins with the project looks as good as the right one, and each row of an export
/// could read all records of the project.
pub async fn renew_outdated_statistics(db: &PgPool, project: &str, table: &str) -> sqlx::Result<()> {
    const FEW: f64 = 100.0;
    const ONE_AT_A_TIME: &str = "select pg_advisory_xact_lock(hashtext('gleaner statistics of ' || $1))";
    let of_project = format!("select from {table} where project = $1");
    let explain = AssertSqlSafe(format!("explain (format json) {of_project}"));
    let Json(plans): Json<Value> = sqlx::query_scalar(explain).bind(project).fetch_one(db).await?;
    let expected = plans.pointer("/0/Plan/Plan Rows").and_then(Value::as_f64);
    if expected.is_none_or(|expected| expected >= FEW) {
        return Ok(());
    }
    // A table with very many projects has no statistics of each, however often they are renewed. So they are not renewed again
    // soon, unless a new project would be a good part of the table.
    let is_worthwhile = AssertSqlSafe(format!(
        "select exists ({of_project} offset {MANY}) and not exists (
            select from pg_stat_all_tables
            where relid = '{table}'::regclass and last_analyze > now() - interval '1 minute'
                and n_mod_since_analyze < greatest({MANY}, n_live_tup / 10))"
    ));
    // Nobody waits for long while others take statistics or vacuum the table. Autovacuum gives way after a second.
    let mut transaction = db::begin_with(db, "begin; set local lock_timeout = '2s'").await?;
    let renewed = async {
        sqlx::query(ONE_AT_A_TIME).bind(table).execute(&mut *transaction).await?;
        if sqlx::query_scalar(is_worthwhile).bind(project).fetch_one(&mut *transaction).await? {
            sqlx::query(AssertSqlSafe(format!("analyze {table}"))).execute(&mut *transaction).await?;
        }
        Ok(())
    };
    match renewed.await {
        Err(error) if lost_a_race(&error) => {
            tracing::info!(
                project,
                table,
                "an export begins without new statistics, because others keep the table busy"
            );
            transaction.rollback().await
        }
        renewed => {
            renewed?;
            transaction.commit().await
        }
    }
}

/// Waits until no such work is in progress that could still store something about records that this transaction has
/// erased. Work that ends before is seen afterwards, and work that begins later does not find the records.
pub(super) async fn wait(connection: &mut PgConnection, project: &str, work: &str) -> sqlx::Result<()> {
    const EXCLUSIVE: &str = "select pg_advisory_xact_lock(hashtext('gleaner ' || $2 || ' of ' || $1))";
    sqlx::query(EXCLUSIVE).bind(project).bind(work).execute(connection).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_become_larger_while_they_take_little_time_and_smaller_when_they_take_long() {
        let mut size = PageSize::up_to(120);
        let mut sizes = vec![size.next];
        for took in [LONG, LONG, LONG, LONG * 2, LONG * 2] {
            size.note(took);
            sizes.push(size.next);
        }
        assert_eq!(sizes, [50, 100, 120, 120, 60, 30]);
        for _ in 0..10 {
            size.note(LONG * 2);
        }
        assert_eq!(size.next, 1);
    }
}
