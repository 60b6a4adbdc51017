//! The database connection that a writer keeps between batches.

use std::time::{Duration, Instant};

use sqlx::pool::PoolConnection;
use sqlx::{PgConnection, PgPool, Postgres};

/// A writer's connection and when it was last used. It is kept between batches because the pool tests every
/// connection that it hands out, which costs a round trip.
pub(super) struct KeptConnection {
    db: PgPool,
    connection: Option<(PoolConnection<Postgres>, Instant)>,
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
        let connection = match self.connection.take() {
            Some((connection, used)) if used.elapsed() < Self::REST => connection,
            rested => {
                drop(rested);
                self.db.acquire().await?
            }
        };
        let (connection, _) = self.connection.insert((connection, Instant::now()));
        Ok(connection)
    }

    /// Drops the connection, in whatever state it is.
    pub(super) fn discard(&mut self) {
        self.connection = None;
    }
}
