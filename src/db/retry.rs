//! Trying a transaction again that lost against another one.

use std::time::Duration;

/// How often a transaction is tried again.
const TRIES: u32 = 5;

/// How often a transaction has lost against another one.
#[derive(Debug, Default)]
pub struct Losses(u32);

impl Losses {
    /// Whether the same is to be tried again after this error, since it may well succeed; waits a little before.
    pub async fn again(&mut self, error: &sqlx::Error) -> bool {
        let again = self.0 < TRIES && lost_a_race(error);
        if again {
            self.0 += 1;
            metrics::counter!("gleaner_commit_retries_total").increment(1);
            tokio::time::sleep(Duration::from_millis(1 << self.0)).await;
        }
        again
    }
}

/// Whether a statement failed by a deadlock (40P01) or a serialization failure (40001).
fn lost_a_race(error: &sqlx::Error) -> bool {
    error
        .as_database_error()
        .and_then(sqlx::error::DatabaseError::code)
        .is_some_and(|code| code == "40001" || code == "40P01")
}
