//! Whether the database takes no writes: readiness tells, and the log says so once at the beginning and once at the end.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::connection::KeptConnection;
use crate::outage::Outage;

/// How long a writer that has nothing to write waits until it tries again whether the database takes writes.
const AGAIN: Duration = Duration::from_millis(200);

/// A write of some pages that leaves nothing. A table that goes at the commit is enough: a full disk refuses its pages.
const TRY: &str = "
    create temporary table writable on commit drop as
    select repeat('x', 1000) from generate_series(1, 64)";

/// The outage that the last attempt to write has met, if any.
#[derive(Debug, Default)]
pub(super) struct Away(Mutex<Option<Outage>>);

impl Away {
    pub(super) fn outage(&self) -> Option<Outage> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, outage: Option<Outage>) -> Option<Outage> {
        std::mem::replace(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner), outage)
    }

    /// Notes that an attempt to write has met an outage.
    pub(super) fn met(&self, outage: Outage, error: &sqlx::Error) {
        if self.set(Some(outage)) != Some(outage) {
            tracing::warn!(%error, "events cannot be written: {}", outage.state());
        }
    }

    /// Notes that the database takes writes.
    pub(super) fn is_over(&self) {
        if self.set(None).is_some() {
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
