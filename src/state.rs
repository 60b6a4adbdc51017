//! The application's state: what handlers share.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::extract::FromRef;
use metrics_exporter_prometheus::PrometheusHandle;
use sqlx::PgPool;

use crate::auth::keyring::Keyring;
use crate::exports::stream::Exports;
use crate::retrieval::Samples;
use crate::searches::intake_pool::IntakePool;
use crate::writer::Writer;

/// What handlers share. Clones are the same application.
#[derive(Clone)]
pub struct App(pub(crate) Arc<State>);

impl Deref for App {
    type Target = State;

    fn deref(&self) -> &State {
        &self.0
    }
}

/// The parts of an application.
pub struct State {
    /// Connections for reading, and for the few writes that are not events.
    pub db: PgPool,
    /// The queue of events to be written.
    pub writer: Writer,
    /// The connections and places of exports.
    pub exports: Exports,
    /// The connections by which the work of agents is taken in.
    pub searches: IntakePool,
    /// The keys and projects that were seen last.
    pub keyring: Arc<Keyring>,
    /// What is remembered of documents, for finding similar ones.
    pub samples: Arc<Samples>,
    /// How long a client may keep the server waiting for what it sends.
    pub patience: Duration,
    /// Whether the server has begun to stop: it is no longer ready.
    pub(crate) stopping: AtomicBool,
    /// The recorder of this process's metrics.
    pub metrics: PrometheusHandle,
}

impl State {
    /// Whether the server has begun to stop.
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }
}

impl FromRef<App> for Arc<Keyring> {
    fn from_ref(app: &App) -> Self {
        Self::clone(&app.keyring)
    }
}
