//! The sends that this server currently performs. They can be cancelled, and their leases are renewed.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use sqlx::PgPool;
use sqlx::types::Json;
use tokio::sync::watch;
use uuid::Uuid;

use super::{CancelReason, SendError};
use crate::error::Result;

/// The sends that this server currently performs, by project and id.
#[derive(Debug, Default)]
pub struct InFlight(Mutex<HashMap<Key, watch::Sender<Option<CancelReason>>>>);

/// The project and the id of a send.
type Key = (Arc<str>, Uuid);

/// A send that this server performs. It is no longer in flight once this is dropped.
#[derive(Debug)]
pub struct Flight {
    all: Arc<InFlight>,
    key: Key,
    /// Whether this flight made the entry and must remove it.
    owned: bool,
    /// Signals that the send is cancelled, with the reason.
    pub cancelled: watch::Receiver<Option<CancelReason>>,
}

impl InFlight {
    /// Registers a send that this server performs.
    pub fn begin(self: &Arc<Self>, project: &Arc<str>, id: Uuid) -> Flight {
        let key = (Arc::clone(project), id);
        let mut flights = self.0.lock().expect("never poisoned");
        let owned = !flights.contains_key(&key);
        let cancelled = flights.entry(key.clone()).or_insert_with(|| watch::channel(None).0).subscribe();
        drop(flights);
        Flight { all: Arc::clone(self), key, owned, cancelled }
    }

    /// Cancels a send, if this server performs it.
    pub fn cancel(&self, project: &Arc<str>, id: Uuid, reason: CancelReason) {
        if let Some(flight) = self.0.lock().expect("never poisoned").get(&(Arc::clone(project), id)) {
            flight.send_replace(Some(reason));
        }
    }

    /// Renews the leases of all sends that this server performs, and ends the calls of those that were cancelled by way of
    /// another server. A lease of which most is left stays as it is.
    pub async fn renew(&self, db: &PgPool) -> Result<()> {
        const SQL: &str = "
            with renewed as (
                update sends set lease_until = now() + interval '1 minute'
                where project = $1 and id = any($2) and state = 'sending' and lease_until < now() + interval '40 seconds'
            )
            select id, error from sends where project = $1 and id = any($2) and stage = 'cancelled'";
        let mut projects: HashMap<Arc<str>, Vec<Uuid>> = HashMap::new();
        for (project, id) in self.0.lock().expect("never poisoned").keys() {
            projects.entry(Arc::clone(project)).or_default().push(*id);
        }
        for (project, ids) in projects {
            let cancelled: Vec<(Uuid, Json<SendError>)> =
                sqlx::query_as(SQL).bind(&*project).bind(ids).fetch_all(db).await?;
            for (id, Json(error)) in cancelled {
                self.cancel(&project, id, error.reason.unwrap_or_default());
            }
        }
        Ok(())
    }
}

impl Flight {
    /// Waits until the send is cancelled. Returns the reason.
    pub async fn cancelled(&mut self) -> CancelReason {
        let reason = self.cancelled.wait_for(Option::is_some).await.ok().and_then(|reason| *reason);
        match reason {
            Some(reason) => reason,
            None => std::future::pending().await,
        }
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        if !self.owned {
            return;
        }
        self.all.0.lock().expect("never poisoned").remove(&self.key);
    }
}
