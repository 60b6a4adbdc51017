//! Whether the database accepts writes. `/readyz` reports it, and the log says once when an outage begins and once
//! when it ends.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use super::connection::KeptConnection;
use crate::outage::Outage;
use crate::recurring;

/// The pause after which an idle writer tries again whether the database accepts writes.
const AGAIN: Duration = Duration::from_millis(200);

/// A write that leaves nothing behind. It makes a table that is dropped at the commit, because a full disk rejects
/// its pages.
const TRY: &str = "
    create temporary table writable on commit drop as
    select repeat('x', 1000) from generate_series(1, 64)";

/// The outage that the last attempt to write has met, if there was one.
#[derive(Debug, Default)]
pub(super) struct Away {
    state: Mutex<State>,
    /// Wakes the idle writer when an outage begins, which another writer may have met.
    begun: Notify,
}

#[derive(Debug, Default)]
struct State {
    outage: Option<Outage>,
    /// Whether the outage was logged.
    is_told: bool,
}

impl Away {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn outage(&self) -> Option<Outage> {
        self.state().outage
    }

    /// Records that an attempt to write has met an outage.
    pub(super) fn met(&self, outage: Outage, error: &sqlx::Error) {
        let mut state = self.state();
        if state.outage.replace(outage) != Some(outage) {
            self.begun.notify_one();
            let warning = match outage {
                Outage::Unreachable => "events cannot be written: the database cannot be reached",
                Outage::Full => "events cannot be written: the database has no space left on its disk",
                Outage::ReadOnly => "events cannot be written: the database is read-only",
            };
            state.is_told |= recurring::warn(warning, error);
        }
    }

    /// Records that the database accepts writes.
    pub(super) fn is_over(&self) {
        let mut state = self.state();
        state.outage = None;
        if std::mem::take(&mut state.is_told) {
            tracing::info!("the database accepts writes again");
        }
    }

    /// Waits until there is an outage, and for a short time, and then tries whether the database accepts writes again.
    /// Without this, a server that gets no requests because it is not ready would never become ready again.
    pub(super) async fn try_again(&self, connection: &mut KeptConnection) {
        while self.outage().is_none() {
            self.begun.notified().await;
        }
        tokio::time::sleep(AGAIN).await;
        let failed = connection.execute(TRY).await.err().and_then(|error| Some((Outage::of(&error)?, error)));
        match failed {
            Some((outage, error)) => self.met(outage, &error),
            // A role that may not create such tables still shows that the database answers and is writable.
            None => self.is_over(),
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use sqlx::postgres::PgConnectOptions;

    use super::*;
    use crate::db;

    #[tokio::test]
    async fn an_idle_writer_tries_again_after_an_outage_that_another_writer_has_met() {
        let away = Away::default();
        let nowhere = PgConnectOptions::new().socket("/nowhere");
        let mut connection =
            KeptConnection::new(db::pool(&nowhere, db::WRITER_NAME, 1), Duration::from_secs(10));
        let mut idle = Box::pin(away.try_again(&mut connection));
        assert!((&mut idle).now_or_never().is_none());
        away.met(Outage::Full, &sqlx::Error::PoolTimedOut);
        idle.await;
        assert_eq!(away.outage(), Some(Outage::Unreachable));
    }
}
