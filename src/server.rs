//! The server: how the application is started, served and stopped.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sqlx::PgPool;
use sqlx::postgres::PgConnectOptions;
use tokio::net::TcpListener;

use crate::auth::keyring::Keyring;
use crate::db;
use crate::exports::stream::{self, Exports};
use crate::http;
use crate::projects::Defaults;
use crate::router::router;
use crate::searches::expiry;
use crate::searches::intake_pool::IntakePool;
use crate::state::{App, State};
use crate::telemetry;
use crate::writer::{self, Writer};

/// How the application is to run.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The most connections for reading.
    pub connections: u32,
    /// What exports may take.
    pub exports: stream::Limits,
    /// What holds where projects do not say.
    pub defaults: Defaults,
    /// How long a client may keep the server waiting for what it sends.
    pub patience: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            connections: 16,
            exports: stream::Limits::default(),
            defaults: Defaults::default(),
            patience: Duration::from_mins(1),
        }
    }
}

/// The application and what it leaves running.
pub struct Running {
    /// The application.
    pub app: App,
    writing: writer::Tasks,
    expiry: expiry::Task,
    writer_db: PgPool,
}

impl Running {
    /// The application on a database whose schema is up to date.
    #[must_use]
    pub fn start(options: &PgConnectOptions, settings: Settings) -> Self {
        let db = db::pool(options, "gleaner", settings.connections);
        let writer_db = db::pool(options, db::WRITER_NAME, writer::WRITERS);
        let keyring = Arc::new(Keyring::new(db.clone(), settings.defaults));
        let (writer, writing) = Writer::start(&writer_db, &db);
        let exports = Exports::new(options, settings.exports);
        let searches = IntakePool::new(options, settings.connections.div_ceil(4).max(2));
        let expiry = expiry::Task::start(&searches.db, Arc::clone(&keyring));
        let app = App(Arc::new(State {
            db,
            writer,
            exports,
            searches,
            keyring,
            samples: Arc::default(),
            patience: settings.patience,
            stopping: AtomicBool::new(false),
            metrics: telemetry::recorder(),
        }));
        Self { app, writing, expiry, writer_db }
    }

    /// Waits until all that was handed to the writer is committed, then closes the connections.
    pub async fn finish(self) {
        self.expiry.finish().await;
        self.writing.finish().await;
        // An export whose reader stalls keeps its connection until the process ends.
        let close = async {
            tokio::join!(
                self.writer_db.close(),
                self.app.db.close(),
                self.app.exports.db.close(),
                self.app.searches.db.close()
            )
        };
        let _ = tokio::time::timeout(Duration::from_secs(1), close).await;
    }
}

/// Serves until `stop` completes, then finishes the requests under way, for ten seconds at most, then commits what
/// waits, then closes the database's connections: in this order nothing acknowledged is lost.
pub async fn serve(running: Running, listener: TcpListener, stop: impl Future<Output = ()>) {
    let app = running.app.clone();
    let stop = async {
        stop.await;
        app.stopping.store(true, Ordering::Relaxed);
    };
    http::serve::serve(listener, router(app.clone()), app.patience, stop).await;
    running.finish().await;
}
