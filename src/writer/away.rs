//! Whether the database takes no writes: readiness tells, and the log says so once at the beginning and once at the end.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::connection::KeptConnection;
use crate::outage::Outage;
use crate::recurring;

/// How long a writer that has nothing to write waits until it tries again whether the database takes writes.
const AGAIN: Duration = Duration::from_millis(200);

/// A write of some pages that leaves nothing. A table that goes at the commit is enough: a full disk refuses its pages.
const TRY: &str = "
    create temporary table writable on commit drop as
    select repeat('x', 1000) from generate_series(1, 64)";

/// The outage that the last attempt to write has met, if any.
#[derive(Debug, Default)]
pub(super) struct Away(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    outage: Option<Outage>,
    /// Whether the log says that there is one.
    is_told: bool,
}

impl Away {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn outage(&self) -> Option<Outage> {
        self.state().outage
    }

    /// Notes that an attempt to write has met an outage.
    pub(super) fn met(&self, outage: Outage, error: &sqlx::Error) {
        let mut state = self.state();
        if state.outage.replace(outage) != Some(outage) {
            let warning = match outage {
                Outage::Unreachable => "events cannot be written: the database cannot be reached",
                Outage::Full => "events cannot be written: the database has no space left on its disk",
                Outage::ReadOnly => "events cannot be written: the database is read-only",
            };
            state.is_told |= recurring::warn(warning, error);
        }
    }

    /// Notes that the database takes writes.
    pub(super) fn is_over(&self) {
        let mut state = self.state();
        state.outage = None;
        if std::mem::take(&mut state.is_told) {
            tracing::info!("the database takes writes again");
        }
    }

    /// Waits a little, and finds out whether the database takes writes again. Without it, a server that is not ready, and
    /// gets no requests therefore, would never be ready again.
    pub(super) async fn try_again(&self, connection: &mut KeptConnection) {
        tokio::time::sleep(AGAIN).await;
        let tried = match connection.get().await {
            Ok(connection) => sqlx::raw_sql(TRY).execute(connection).await.map(drop),
            Err(error) => Err(error),
        };
        let failed = tried.err().and_then(|error| Some((Outage::of(&error)?, error)));
        match failed {
            Some((outage, error)) => {
                self.met(outage, &error);
                connection.discard();
            }
            // A role that may not make such tables still shows that the database answers and is writable.
            None => self.is_over(),
        }
    }
}
