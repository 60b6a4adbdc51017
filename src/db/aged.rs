//! The oldest records of a table, which erasure by age finds and locks before they are deleted.

use sqlx::{AssertSqlSafe, PgConnection};
use uuid::Uuid;

use crate::types::Timestamp;

/// A table with the columns `project` and `id` whose records are erased by age.
#[derive(Debug, Clone, Copy)]
pub struct Aged {
    /// The table's name.
    pub table: &'static str,
    /// The expression of the time from which a record's age is counted. An index begins with the project and
    /// continues with it.
    pub since: &'static str,
    /// A further condition on the records to erase, or `true`.
    pub may_go: &'static str,
}

impl Aged {
    /// Returns the ids of at most `most` of a project's records from before a time, oldest first.
    pub async fn oldest(
        &self,
        connection: &mut PgConnection,
        project: &str,
        time: Timestamp,
        most: i64,
    ) -> sqlx::Result<Vec<Uuid>> {
        let Self { table, since, may_go } = self;
        let sql = format!(
            "select id from {table} where project = $1 and {since} < $2 and {may_go} order by {since} limit $3"
        );
        sqlx::query_scalar(AssertSqlSafe(sql)).bind(project).bind(time).bind(most).fetch_all(connection).await
    }

    /// Locks these records in the order of their ids, in which the writer also locks them, to prevent deadlocks.
    /// Returns those that are still from before the time. A record that was finalized in the meantime is not.
    pub async fn lock(
        &self,
        connection: &mut PgConnection,
        project: &str,
        time: Timestamp,
        ids: &[Uuid],
    ) -> sqlx::Result<Vec<Uuid>> {
        let Self { table, since, may_go } = self;
        let sql = format!(
            "select id from {table} where project = $1 and id = any($2) and {since} < $3 and {may_go}
             order by id for update"
        );
        sqlx::query_scalar(AssertSqlSafe(sql)).bind(project).bind(ids).bind(time).fetch_all(connection).await
    }

    /// Finds the oldest records, and locks them. There are none only if no record is so old: those that another erasure has
    /// deleted meanwhile say nothing about the next ones.
    pub async fn lock_oldest(
        &self,
        connection: &mut PgConnection,
        project: &str,
        time: Timestamp,
        most: i64,
    ) -> sqlx::Result<Vec<Uuid>> {
        loop {
            let oldest = self.oldest(connection, project, time, most).await?;
            let locked = self.lock(connection, project, time, &oldest).await?;
            if oldest.is_empty() || !locked.is_empty() {
                return Ok(locked);
            }
        }
    }

    /// Deletes the oldest records. Returns their number.
    pub async fn delete_oldest(
        &self,
        connection: &mut PgConnection,
        project: &str,
        time: Timestamp,
        most: i64,
    ) -> sqlx::Result<u64> {
        let ids = self.lock_oldest(connection, project, time, most).await?;
        let sql = format!("delete from {} where project = $1 and id = any($2)", self.table);
        let deleted = sqlx::query(AssertSqlSafe(sql)).bind(project).bind(ids).execute(connection).await?;
        Ok(deleted.rows_affected())
    }
}
