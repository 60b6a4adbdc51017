//! The processes of Postgres, each of which serves a connection.

use std::time::Duration;

use sqlx::{PgConnection, PgExecutor};

use crate::types::Timestamp;

/// The process that serves a connection. Its number alone may be that of another one after Postgres was started again.
#[derive(Debug, Clone, Copy, sqlx::FromRow)]
pub struct Process {
    #[sqlx(rename = "pid")]
    number: i32,
    #[sqlx(rename = "backend_start")]
    begun: Timestamp,
}

impl Process {
    /// Returns the process that serves this connection.
    pub async fn of(connection: &mut PgConnection) -> sqlx::Result<Self> {
        const SQL: &str = "select pid, backend_start from pg_stat_get_activity(pg_backend_pid())";
        sqlx::query_as(SQL).fetch_one(connection).await
    }

    /// Returns whether the process has worked within the last `silence`.
    pub async fn is_at_work(&self, other: impl PgExecutor<'_>, silence: Duration) -> sqlx::Result<bool> {
        self.ask("true", other, silence).await
    }

    /// Cancels the statement of the process, if it has one, and returns whether the process has worked within the last
    /// `silence`.
    pub async fn cancel(&self, other: impl PgExecutor<'_>, silence: Duration) -> sqlx::Result<bool> {
        self.ask("pg_cancel_backend(pid)", other, silence).await
    }

    /// Cancels the statement of the process with this number, which serves a connection that is in use.
    pub async fn cancel_number(other: impl PgExecutor<'_>, number: i32) -> sqlx::Result<()> {
        sqlx::query("select pg_cancel_backend($1)").bind(number).execute(other).await.map(drop)
    }

    async fn ask(
        &self,
        first: &'static str,
        other: impl PgExecutor<'_>,
        silence: Duration,
    ) -> sqlx::Result<bool> {
        let sql = format!(
            "select {first} and (state not like 'idle%' or state_change > clock_timestamp() - $3)
             from pg_stat_get_activity($1) where backend_start = $2"
        );
        let query =
            sqlx::query_scalar(sqlx::AssertSqlSafe(sql)).bind(self.number).bind(self.begun).bind(silence);
        let answer: Option<Option<bool>> = query.fetch_optional(other).await?;
        Ok(answer.flatten().unwrap_or_default())
    }
}
