//! What the intake of agents' reports shares: database connections, and the order in which senders take turns.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use sqlx::PgPool;
use sqlx::postgres::PgConnectOptions;
use tokio::sync::{OwnedMutexGuard, OwnedSemaphorePermit, Semaphore};
use uuid::Uuid;

use crate::db;
use crate::types::derived_id;

/// The maximum number of hook reports that are processed at the same time.
const REPORTS: usize = 1_024;

/// The connections with which hooks, transcripts and expiry write, and the turns of those who send lines.
#[derive(Debug, Clone)]
pub struct IntakePool {
    /// The connections. They have the writer's application name, because exports wait for connections with it.
    pub db: PgPool,
    turns: Arc<Mutex<HashMap<Uuid, Weak<tokio::sync::Mutex<()>>>>>,
    /// The places for hook reports, whose processing may outlast their requests.
    places: Arc<Semaphore>,
}

impl IntakePool {
    /// Makes a pool of at most this many connections.
    #[must_use]
    pub fn new(options: &PgConnectOptions, connections: u32) -> Self {
        let db = db::pool(options, db::WRITER_NAME, connections);
        Self { db, turns: Arc::default(), places: Arc::new(Semaphore::new(REPORTS)) }
    }

    /// Returns a place for a hook report, or none if there are too many.
    pub fn place(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.places).try_acquire_owned().ok()
    }

    /// Waits until no other request sends lines of this source in the project. The turn ends when the guard is
    /// dropped.
    pub(super) async fn turn(&self, project: &str, source: Uuid) -> OwnedMutexGuard<()> {
        let turn = {
            let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
            turns.retain(|_, turn| turn.strong_count() > 0);
            let name = derived_id(&[project.as_bytes(), source.as_bytes()]);
            let turn = turns.get(&name).and_then(Weak::upgrade).unwrap_or_default();
            turns.insert(name, Arc::downgrade(&turn));
            turn
        };
        turn.lock_owned().await
    }
}
