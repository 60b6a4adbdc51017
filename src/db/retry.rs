//! Repeating of transactions that lost a race against another one.

use std::time::Duration;

use crate::error::Result;

/// How often a transaction is repeated.
const TRIES: u32 = 5;

/// The message for clients whose transaction lost every race.
pub const LOST: &str = "other requests change the same records at the same time; try again";

/// The error of a transaction that has lost a race without an error of the database: another one has written the records
/// that it took for new.
#[derive(Debug, thiserror::Error)]
#[error("another transaction has written the same records")]
pub struct Lost;

impl From<Lost> for sqlx::Error {
    fn from(lost: Lost) -> Self {
        Self::AnyDriverError(Box::new(lost))
    }
}

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

/// Repeats a transaction that has lost a race against another one.
pub async fn repeat<T, F: Future<Output = Result<T>>>(transaction: impl Fn() -> F) -> Result<T> {
    let mut losses = Losses::default();
    loop {
        match transaction().await {
            Err(error) if error.is_lost_race() && losses.once_more().await => {}
            result => return result,
        }
    }
}

/// Returns whether a transaction has [`Lost`], or a statement failed because of a deadlock (40P01), a serialization
/// failure (40001), a limit on the wait for a lock, if an operator has set one (55P03), or a foreign key (23503): what a row
/// refers to was erased meanwhile, or what is erased is referred to meanwhile.
#[must_use]
pub fn lost_a_race(error: &sqlx::Error) -> bool {
    if let sqlx::Error::AnyDriverError(cause) = error {
        return cause.is::<Lost>();
    }
    error
        .as_database_error()
        .and_then(sqlx::error::DatabaseError::code)
        .is_some_and(|code| ["23503", "40001", "40P01", "55P03"].contains(&code.as_ref()))
}
