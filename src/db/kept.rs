//! The connections that requests need: they are made before requests are served, and again where they are lost.

use std::time::Duration;

use futures_util::future::join_all;
use sqlx::pool::PoolConnection;
use sqlx::{PgPool, Postgres};
use tokio::runtime::Handle;
use tokio::task::spawn_blocking;

use super::reason;
use crate::background::Rounds;
use crate::error::Result;
use crate::sharing::joined;

/// The pause between two looks at whether connections were lost.
const PAUSE: Duration = Duration::from_secs(1);

/// Makes as many connections of a pool as it may have. If Postgres does not have so many, they are made when they are needed.
pub async fn fill(db: &PgPool) {
    let made = join_all((0..db.options().get_max_connections()).map(|_| acquire(db))).await;
    if let Some(error) = made.iter().find_map(|made| made.as_ref().err()) {
        tracing::warn!("not all connections to the database can be made: {}", reason(error));
        // Others need some, too.
        for connection in made.into_iter().flatten() {
            let _ = connection.close().await;
        }
    }
}

/// Takes a connection of a pool, which is made on a thread of its own if there is none.
///
/// For a password, the library (0.9) computes a hash (SCRAM, RFC 5802) and gives way to all other tasks some 800 times meanwhile.
/// While the threads of requests are busy, that takes longer than anybody waits for a connection, and all that wait begin again.
async fn acquire(db: &PgPool) -> sqlx::Result<PoolConnection<Postgres>> {
    let (db, runtime) = (db.clone(), Handle::current());
    joined(spawn_blocking(move || runtime.block_on(db.acquire()))).await
}

/// Takes a connection of each pool in which none is free, and gives it back. If some were lost, because Postgres was started again,
/// for example, one of them is made anew in each round. If all are in use, a round waits for one as a request does.
#[derive(Debug)]
pub struct Refilling(pub Vec<PgPool>);

impl Rounds for Refilling {
    const NAME: &'static str = "the making of database connections";

    async fn round(&mut self) -> Result<Duration> {
        // If the database is away, requests say so.
        join_all(self.0.iter().filter(|db| db.num_idle() == 0).map(acquire)).await;
        Ok(PAUSE)
    }
}
