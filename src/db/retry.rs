//! Repeating of transactions that lost a race against another one.

use std::time::Duration;

/// How often a transaction is repeated.
const TRIES: u32 = 5;

/// The message for clients whose transaction lost every race.
pub const LOST: &str = "other requests change the same records at the same time; try again";

/// Counts how often a transaction has lost a race.
#[derive(Debug, Default)]
pub struct Losses(u32);

impl Losses {
    /// Returns whether the transaction should be repeated after this error, and waits a little before it
    /// does.
    pub async fn again(&mut self, error: &sqlx::Error) -> bool {
        lost_a_race(error) && self.once_more().await
    }

    /// Returns whether a transaction that lost a race should be repeated, and waits a little before it does.
    pub async fn once_more(&mut self) -> bool {
        let again = self.0 < TRIES;
        if again {
            self.0 += 1;
            metrics::counter!("gleaner_commit_retries_total").increment(1);
            tokio::time::sleep(Duration::from_millis(1 << self.0)).await;
        }
        again
    }
}

/// Returns whether a statement failed because of a deadlock (40P01), a serialization failure (40001), or a limit on the
/// wait for a lock, if an operator has set one (55P03).
#[must_use]
pub fn lost_a_race(error: &sqlx::Error) -> bool {
    error
        .as_database_error()
        .and_then(sqlx::error::DatabaseError::code)
        .is_some_and(|code| ["40001", "40P01", "55P03"].contains(&code.as_ref()))
}
