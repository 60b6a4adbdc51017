//! The state that handlers share.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::extract::FromRef;
use metrics_exporter_prometheus::PrometheusHandle;
use sqlx::PgPool;

use crate::auth::keyring::Keyring;
use crate::db::silence::LongestStatement;
use crate::embeddings::Embedder;
use crate::error::{Error, Result};
use crate::exports::places::Exports;
use crate::http::memory::{Budget, Memory};
use crate::messages::in_flight::InFlight;
use crate::providers::Providers;
use crate::retrieval::Samples;
use crate::searches::intake_pool::IntakePool;
use crate::sharing::{Entry, Place, Shares, SingleFlight, Work};
use crate::writer::Writer;

/// The state that handlers share. Clones refer to the same state.
#[derive(Clone)]
pub struct App(pub(crate) Arc<State>);

impl Deref for App {
    type Target = State;

    fn deref(&self) -> &State {
        &self.0
    }
}

/// The parts of the shared state.
pub struct State {
    /// Connections for reading, and for the few writes that are not events.
    pub db: PgPool,
    /// The queue of events to write.
    pub writer: Writer,
    /// The connections and limits of exports.
    pub exports: Exports,
    /// The connections for agents' hooks and transcripts, and the locks that keep each source's lines in order.
    pub searches: IntakePool,
    /// The cache of keys and projects.
    pub keyring: Arc<Keyring>,
    /// The places of projects at looking for similar texts, which is the most expensive kind of reading.
    pub similar: Shares,
    /// The turns of projects at working.
    pub work: Arc<Work>,
    /// The samples of stored texts, with which searches for similar texts are planned.
    pub samples: Arc<Samples>,
    /// The memory for the bodies of requests.
    pub bodies: Budget,
    /// The model providers.
    pub providers: Arc<Providers>,
    /// The places of projects at waiting for providers.
    pub calls: Shares,
    /// The model of embeddings, if there is one.
    pub embedder: Option<Arc<Embedder>>,
    /// The sends that this server performs.
    pub in_flight: Arc<InFlight>,
    /// How long a client may pause while it sends a request.
    pub patience: Duration,
    /// The time for which an agent is kept waiting for help without a request.
    pub help_patience: Duration,
    /// The longest time that a statement of a request or of work in the background may take.
    pub longest_statement: LongestStatement,
    /// Whether the server has begun to stop, so that it no longer reports itself as ready.
    pub(crate) stopping: AtomicBool,
    /// Why the database cannot be used, if it cannot, as of the last time that somebody asked.
    pub(crate) unready: SingleFlight<Option<&'static str>>,
    /// The number of bytes of the database, if it could be learnt the last time that somebody asked.
    pub(crate) database_size: SingleFlight<Option<i64>>,
    /// The recorder of this process's metrics.
    pub metrics: PrometheusHandle,
}

impl State {
    /// Takes a project's place among the requests that wait for model providers. Without a free one, the request is a 503.
    pub fn place_at_providers(&self, project: &Arc<str>) -> Result<Place> {
        const BUSY: &str = "the project has as many requests waiting for providers as it may; try again";
        self.calls.try_take(project, 1).ok_or(Error::Unavailable(BUSY))
    }

    /// Waits for a project's place among those that read, for a request that writes, and reads something.
    pub async fn among_readers<T>(
        &self,
        project: &Arc<str>,
        memory: &Memory,
        read: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        memory.entered(Entry::without_turn(project, self.keyring.reading()), read).await
    }

    /// Returns whether the server has begun to stop.
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }
}

impl FromRef<App> for Arc<Keyring> {
    fn from_ref(app: &App) -> Self {
        Self::clone(&app.keyring)
    }
}
