//! The records that an event makes.

use sqlx::{AssertSqlSafe, PgConnection};
use uuid::Uuid;

/// The records that an event makes, of those that a quota limits, and where they are if it was sent before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Made {
    /// How many records it makes.
    pub records: usize,
    /// The tables and columns in which they, or those that they replace, have an id.
    pub ids: Vec<(&'static str, &'static str, Uuid)>,
}

impl Made {
    /// Makes one record, which has this id in a table.
    #[must_use]
    pub fn one(table: &'static str, id: Uuid) -> Self {
        Self { records: 1, ids: vec![(table, "id", id)] }
    }

    /// Returns how many records there are more than before when they are stored.
    pub async fn more(&self, connection: &mut PgConnection, project: &str) -> sqlx::Result<usize> {
        let mut more = self.records;
        for (table, column, id) in &self.ids {
            let sql = format!(
                "select count(*) from (select from {table} where project = $1 and {column} = $2 limit $3) records"
            );
            let most = i64::try_from(more).unwrap_or(i64::MAX);
            let query = sqlx::query_scalar(AssertSqlSafe(sql)).bind(project).bind(id).bind(most);
            let stored: i64 = query.fetch_one(&mut *connection).await?;
            more = more.saturating_sub(usize::try_from(stored).unwrap_or(usize::MAX));
        }
        Ok(more)
    }
}
