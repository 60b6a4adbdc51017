//! What makes a database fail whatever it is asked: it cannot be reached, has no space left, or takes no writes.

/// Why the database fails. Requests that need it are refused with 503, and may be sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outage {
    /// It does not answer, is starting or stopping, or has no connection to spare.
    Unreachable,
    /// Its disk is full.
    Full,
    /// It takes no writes, because it is a standby or because an operator has switched them off.
    ReadOnly,
}

impl Outage {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::Unreachable, Self::Full, Self::ReadOnly];

    /// Returns the outage that a statement has failed for, or none if the statement itself is at fault. The `SQLSTATE` classes
    /// are 08 (connection), 53 (resources) and 57 (operator intervention), with the codes 53100 (disk full) and 25006
    /// (read-only).
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
                code => ["08", "53", "57"].contains(&code.get(..2)?).then_some(Self::Unreachable),
            },
            _ => None,
        }
    }

    /// Returns what clients are told.
    #[must_use]
    pub fn refusal(self) -> &'static str {
        match self {
            Self::Unreachable => "the database cannot be reached; try again",
            Self::Full => "the database has no space left on its disk; try again",
            Self::ReadOnly => "the database is read-only; try again",
        }
    }

    /// Returns what readiness says.
    #[must_use]
    pub fn state(self) -> &'static str {
        match self {
            Self::Unreachable => "the database cannot be reached",
            Self::Full => "the database has no space left on its disk",
            Self::ReadOnly => "the database is read-only",
        }
    }
}
