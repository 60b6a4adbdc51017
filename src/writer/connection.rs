//! The database connection that a writer keeps between batches.

use std::sync::Arc;
use std::time::{Duration, Instant};

use sqlx::pool::PoolConnection;
use sqlx::{PgConnection, PgPool, Postgres};

use crate::db::writer_name;

/// A writer's connection and when it was last used. It is kept between batches because the pool tests every
/// connection that it hands out, which costs a round trip.
pub(super) struct KeptConnection {
    db: PgPool,
    connection: Option<Kept>,
}

struct Kept {
    connection: PoolConnection<Postgres>,
    used: Instant,
    /// The project whose name the connection has.
    project: Option<Arc<str>>,
}

impl KeptConnection {
    /// How long the connection may be idle. After that it is returned, so that the pool tests it before the
    /// next use.
    const REST: Duration = Duration::from_secs(1);

    pub(super) fn new(db: PgPool) -> Self {
        Self { db, connection: None }
    }

    /// Returns the connection. It is taken from the pool if there is none or if it was idle too long.
    pub(super) async fn get(&mut self) -> sqlx::Result<&mut PgConnection> {
        let kept = self.take().await?;
        Ok(&mut self.connection.insert(kept).connection)
    }

    /// Returns the connection, with the name of the project in which it is going to write.
    pub(super) async fn named(&mut self, project: &Arc<str>) -> sqlx::Result<&mut PgConnection> {
        const NAME: &str = "select set_config('application_name', $1, false)";
        let mut kept = self.take().await?;
        if kept.project.as_ref() != Some(project) {
            sqlx::query(NAME).bind(writer_name(project)).execute(&mut *kept.connection).await?;
            kept.project = Some(Arc::clone(project));
        }
        Ok(&mut self.connection.insert(kept).connection)
    }

    /// Takes the connection out, so that it is dropped if its next statement fails.
    async fn take(&mut self) -> sqlx::Result<Kept> {
        let mut kept = match self.connection.take() {
            Some(kept) if kept.used.elapsed() < Self::REST => kept,
            rested => {
                drop(rested);
                Kept { connection: self.db.acquire().await?, used: Instant::now(), project: None }
            }
        };
        kept.used = Instant::now();
        Ok(kept)
    }

    /// Drops the connection, in whatever state it is.
    pub(super) fn discard(&mut self) {
        self.connection = None;
    }
}
