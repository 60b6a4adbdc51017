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
pub struct InFlight(Mutex<HashMap<Key, Entry>>);

/// What is known of a send in flight.
#[derive(Debug)]
struct Entry {
    cancelled: watch::Sender<Option<CancelReason>>,
    /// The number of flights of the send. Requests with the same id are several, of which one performs the send.
    flights: usize,
}

/// The project and the id of a send.
type Key = (Arc<str>, Uuid);

/// A send that this server performs, or is about to. It is no longer in flight once all of its flights are dropped.
#[derive(Debug)]
pub struct Flight {
    all: Arc<InFlight>,
    key: Key,
    /// Signals that the send is cancelled, with the reason.
    cancelled: watch::Receiver<Option<CancelReason>>,
}

impl InFlight {
    /// Registers a send that this server performs.
    pub fn begin(self: &Arc<Self>, project: &Arc<str>, id: Uuid) -> Flight {
        let key = (Arc::clone(project), id);
        let mut all = self.0.lock().expect("never poisoned");
        let entry = all
            .entry(key.clone())
            .or_insert_with(|| Entry { cancelled: watch::Sender::default(), flights: 0 });
        entry.flights += 1;
        let cancelled = entry.cancelled.subscribe();
        drop(all);
        Flight { all: Arc::clone(self), key, cancelled }
    }

    /// Cancels a send, if this server performs it.
    pub fn cancel(&self, project: &Arc<str>, id: Uuid, reason: CancelReason) {
        if let Some(entry) = self.0.lock().expect("never poisoned").get(&(Arc::clone(project), id)) {
            entry.cancelled.send_replace(Some(reason));
        }
    }

    /// Renews the leases of all sends that this server performs, and ends the calls of those that were cancelled by way of
    /// another server. A lease of which most is left stays as it is, and so does one that an erasure holds: those of other projects
    /// do not wait for it.
    pub async fn renew(&self, db: &PgPool) -> Result<()> {
        const SQL: &str = "
            with renewed as (
                update sends set lease_until = now() + interval '1 minute' where project = $1 and id = any(array(
                    select id from sends where project = $1 and id = any($2) and state = 'sending'
                        and lease_until < now() + interval '40 seconds'
                    for no key update skip locked))
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
        let mut all = self.all.0.lock().expect("never poisoned");
        if let Some(entry) = all.get_mut(&self.key) {
            entry.flights -= 1;
            if entry.flights == 0 {
                all.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_send_is_in_flight_until_the_last_of_those_who_began_it_lets_go() {
        let (all, id) = (Arc::new(InFlight::default()), Uuid::from_u128(1));
        let project: Arc<str> = "p".into();
        let first = all.begin(&project, id);
        let mut second = all.begin(&project, id);
        drop(first);
        assert_eq!(all.0.lock().expect("never poisoned").len(), 1);
        all.cancel(&project, id, CancelReason::User);
        let told = tokio::time::timeout(std::time::Duration::from_secs(1), second.cancelled()).await;
        assert_eq!(told.ok(), Some(CancelReason::User));
        drop(second);
        assert!(all.0.lock().expect("never poisoned").is_empty());
    }
}
