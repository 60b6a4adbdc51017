//! Reasons why a database fails, whatever the statement: it cannot be reached, has no space left, or accepts no
//! writes.

use sqlx::error::DatabaseError;
use sqlx::postgres::{PgDatabaseError, PgSeverity};

/// Why the database fails. Requests that need it get a 503 and can be sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outage {
    /// The database does not answer, is starting or stopping, or has no free connection.
    Unreachable,
    /// The disk of the database is full.
    Full,
    /// The database accepts no writes, because it is a standby or an operator has made it read-only.
    ReadOnly,
}

impl Outage {
    /// All outages.
    pub const ALL: [Self; 3] = [Self::Unreachable, Self::Full, Self::ReadOnly];

    /// Returns the outage that made a statement fail, or none if the statement itself is at fault. The `SQLSTATE`
    /// classes are 08 (connection), 53 (resources) and 57 (operator intervention), and the codes are 53100 (disk
    /// full) and 25006 (read-only). If Postgres ends the session, the classes XX (internal error) and 58 (system
    /// error) count too: it may not have been able to write a file of its own.
    #[must_use]
    pub fn of(error: &sqlx::Error) -> Option<Self> {
        match error {
            sqlx::Error::Io(_)
            | sqlx::Error::PoolTimedOut
            | sqlx::Error::PoolClosed
            | sqlx::Error::WorkerCrashed
            | sqlx::Error::Protocol(_)
            | sqlx::Error::Tls(_) => Some(Self::Unreachable),
            sqlx::Error::Database(error) => match error.code()?.as_ref() {
                "25006" => Some(Self::ReadOnly),
                "53100" => Some(Self::Full),
                // The database has ended a transaction in which nothing happened for long.
                "25P03" => Some(Self::Unreachable),
                code => {
                    let class = code.get(..2)?;
                    let is_outage = ["08", "53", "57"].contains(&class)
                        || ["58", "XX"].contains(&class) && ends_session(error.as_ref());
                    is_outage.then_some(Self::Unreachable)
                }
            },
            _ => None,
        }
    }

    /// Returns the message for clients.
    #[must_use]
    pub fn refusal(self) -> &'static str {
        match self {
            Self::Unreachable => "the database cannot be reached; try again",
            Self::Full => "the database has no space left on its disk; try again",
            Self::ReadOnly => "the database is read-only; try again",
        }
    }

    /// Returns the message of `/readyz`.
    #[must_use]
    pub fn state(self) -> &'static str {
        match self {
            Self::Unreachable => "the database cannot be reached",
            Self::Full => "the database has no space left on its disk",
            Self::ReadOnly => "the database is read-only",
        }
    }
}

/// Returns whether Postgres ends the session with this error.
fn ends_session(error: &dyn DatabaseError) -> bool {
    let error = error.try_downcast_ref::<PgDatabaseError>();
    error.is_some_and(|error| matches!(error.severity(), PgSeverity::Fatal | PgSeverity::Panic))
}
