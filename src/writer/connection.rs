//! The connection that a writer keeps from batch to batch.

use std::time::{Duration, Instant};

use sqlx::pool::PoolConnection;
use sqlx::{PgConnection, PgPool, Postgres};

/// A writer's connection and when it was last used. It is kept from batch to batch, because the pool tests connections that
/// come and go, at a round trip each.
pub(super) struct KeptConnection {
    db: PgPool,
    connection: Option<(PoolConnection<Postgres>, Instant)>,
}

impl KeptConnection {
    /// After so long the connection is given back, so that the pool tests it before it is used again.
    const REST: Duration = Duration::from_secs(1);

    pub(super) fn new(db: PgPool) -> Self {
        Self { db, connection: None }
    }

    /// The connection, taken from the pool if there is none or if it has rested.
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

    /// Lets go of the connection, whatever state it is in.
    pub(super) fn discard(&mut self) {
        self.connection = None;
    }
}
