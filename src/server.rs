//! The server: how it starts, serves and stops.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sqlx::PgPool;
use sqlx::postgres::PgConnectOptions;
use tokio::net::TcpListener;
use tokio::sync::{oneshot, watch};

use crate::auth::keyring::Keyring;
use crate::auth::last_used::LastUsed;
use crate::background::Task;
use crate::db;
use crate::db::kept::{self, Refilling};
use crate::db::silence::LongestStatement;
use crate::embeddings::Embedder;
use crate::erasure::retention::Retention;
use crate::exports::places::{self, Exports};
use crate::exports::snapshots::build::Snapshots;
use crate::health;
use crate::http;
use crate::http::memory::Budget;
use crate::http::serve::Limits;
use crate::memories::filling::Filling;
use crate::messages::in_flight::InFlight;
use crate::messages::lease::Leases;
use crate::projects::Defaults;
use crate::providers::Providers;
use crate::retrieval::Samples;
use crate::router::{router, starting};
use crate::searches::expiry::Expiry;
use crate::searches::intake_pool::IntakePool;
use crate::sharing::{self, Shares, SingleFlight, Work};
use crate::state::{App, State};
use crate::telemetry;
use crate::writer::{self, Writer};

/// The settings of a server.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The maximum number of database connections for reading.
    pub connections: u32,
    /// Limits on exports.
    pub exports: places::Limits,
    /// The settings that apply where a project has none.
    pub defaults: Defaults,
    /// The memory for the bodies of requests, in MiB. The events of short ones may take half as much besides while they wait
    /// to be written.
    pub body_memory: usize,
    /// The maximum number of client connections.
    pub most_connections: usize,
    /// The model providers.
    pub providers: Arc<Providers>,
    /// The maximum number of requests of a project that may wait for providers. Those of all projects are four times as many,
    /// and each has a connection.
    pub calls: usize,
    /// The model of embeddings, if there is one.
    pub embedder: Option<Arc<Embedder>>,
    /// How long a client may pause while it sends a request.
    pub patience: Duration,
    /// The time for which an agent is kept waiting for help without a request.
    pub help_patience: Duration,
    /// The time without an answer after which a writer asks whether the database still works on what it writes.
    pub silence: Duration,
    /// The longest time that a statement of a request or of work in the background may take.
    pub longest_statement: LongestStatement,
    /// Limits on the turns of a project at working beside others.
    pub turns: sharing::Limits,
    /// Whether the database is looked after in the background: searches end, records expire, snapshots are built. Commands that
    /// soon end leave that to the server.
    pub upkeep: bool,
    /// Whether no key is needed, because only the user who runs the program sends requests.
    pub trusts: bool,
}

/// The default of [`Settings::body_memory`], in MiB.
pub const BODY_MEMORY: u32 = 192;

impl Default for Settings {
    fn default() -> Self {
        Self {
            connections: 16,
            exports: places::Limits::default(),
            defaults: Defaults::default(),
            body_memory: BODY_MEMORY as usize,
            most_connections: 1024,
            providers: Arc::default(),
            calls: 256,
            embedder: None,
            patience: Duration::from_mins(1),
            help_patience: Duration::from_millis(150),
            silence: Duration::from_secs(10),
            longest_statement: LongestStatement::default(),
            turns: sharing::Limits::default(),
            upkeep: true,
            trusts: false,
        }
    }
}

/// The application with its background tasks.
pub struct Running {
    /// The state that handlers share.
    pub app: App,
    writing: writer::Tasks,
    tasks: Vec<Task>,
    writer_db: PgPool,
}

/// The number of connections to look up keys and projects, and for background tasks.
const LOOKUPS: u32 = 4;

/// How long hook reports that were answered may take to be stored once the server is stopping.
const REPORTS_END: Duration = Duration::from_secs(10);

impl Running {
    /// Starts the background tasks. The database must have an up-to-date schema before requests are served.
    #[must_use]
    pub fn start(options: &PgConnectOptions, settings: Settings) -> Self {
        // Whatever projects read and administer, there are connections left to look up keys and projects.
        let others = settings.connections.div_ceil(4) + LOOKUPS;
        let longest = settings.longest_statement;
        let limited = longest.limit(options);
        let db = db::pool(&limited, "gleaner", settings.connections + others);
        let writer_db = db::pool(options, db::WRITER_NAME, writer::WRITERS);
        let models = Arc::new(settings.providers.catalog());
        let work = Arc::new(Work::new(settings.turns));
        let defaults = Defaults { models, ..settings.defaults };
        let keyring = Keyring::new(db.clone(), settings.connections, defaults, Arc::clone(&work));
        let keyring = Arc::new(if settings.trusts { keyring.trusting() } else { keyring });
        let bodies = Budget::new(settings.body_memory << 20).ending_through(&db);
        let short = Budget::new((settings.body_memory << 20) / 2);
        let (writer, writing) =
            Writer::start(&writer_db, settings.silence, short, &db, keyring.reading(), &work, longest);
        let exports = Exports::new(options, settings.exports, &work, &bodies, longest);
        let searches = IntakePool::new(&limited, settings.connections.div_ceil(4).max(2));
        let in_flight = Arc::new(InFlight::default());
        let mut tasks = vec![
            Task::start(Leases { db: db.clone(), in_flight: Arc::clone(&in_flight) }, longest),
            Task::start(LastUsed(Arc::clone(&keyring)), longest),
            Task::start(telemetry::Upkeep, longest),
        ];
        if settings.upkeep {
            tasks.extend([
                Task::start(Expiry::new(&searches.db, Arc::clone(&keyring)), longest),
                Task::start(Retention::new(&db, Arc::clone(&keyring)), longest),
                Task::start(Snapshots(exports.clone()), longest),
            ]);
        }
        if let Some(embedder) = &settings.embedder {
            tasks.push(Task::start(Filling::new(&db, Arc::clone(&keyring), Arc::clone(embedder)), longest));
        }
        let app = App(Arc::new(State {
            db,
            writer,
            exports,
            searches,
            keyring,
            similar: Shares::new((settings.connections as usize).div_ceil(8)),
            work,
            samples: Arc::new(Samples::new(longest, bodies.clone())),
            bodies,
            providers: settings.providers,
            calls: Shares::new(settings.calls),
            embedder: settings.embedder,
            in_flight,
            patience: settings.patience,
            help_patience: settings.help_patience,
            longest_statement: longest,
            stopping: AtomicBool::new(false),
            unready: SingleFlight::new(health::FRESH_READINESS),
            database_size: SingleFlight::new(health::FRESH_SIZE),
            metrics: telemetry::recorder(),
        }));
        Self { app, writing, tasks, writer_db }
    }

    /// Makes the database connections that requests need, so that no request waits for one to be made, and makes them again if they
    /// are lost.
    pub async fn connect(&mut self) {
        let pools = [&self.writer_db, &self.app.db, &self.app.searches.db].map(PgPool::clone);
        for pool in &pools {
            kept::fill(pool).await;
        }
        self.tasks.push(Task::start(Refilling(pools.into()), self.app.longest_statement));
    }

    /// Waits until the hook reports that were answered are stored, if that does not take long, and until every event handed
    /// to the writer is committed or refused. Then the database connections are closed.
    pub async fn finish(self) {
        for task in self.tasks {
            task.finish().await;
        }
        if tokio::time::timeout(REPORTS_END, self.app.searches.idle()).await.is_err() {
            tracing::warn!("some hook reports could not be stored within ten seconds");
        }
        self.writing.finish().await;
        let written = tokio::time::timeout(Duration::from_secs(1), self.app.keyring.write_used()).await;
        if let Ok(Err(error)) = written {
            tracing::debug!(%error, "which keys were used could not be stored");
        }
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

/// Serves until `stop` completes, and answers from the first moment on. Until `start` completes, only health, version
/// and readiness are served, and the 503 of readiness says what the server waits for, as `start` reports it. At the
/// end, requests in flight get ten seconds to finish, queued events are committed, and the database connections are
/// closed. In this order no acknowledged event is lost.
///
/// Returns the error of `start`, if it fails. What `start` returns beside the application is called once the
/// application is served.
pub async fn serve<R: FnOnce()>(
    listener: TcpListener,
    limits: Limits,
    start: impl AsyncFnOnce(watch::Sender<String>) -> anyhow::Result<(Running, R)>,
    stop: impl Future<Output = ()>,
) -> anyhow::Result<()> {
    let mut stop = std::pin::pin!(stop);
    let (report, waiting_for) = watch::channel("it has just begun to listen".to_owned());
    let (routers, current) = watch::channel(starting(waiting_for));
    let (halt, halted) = oneshot::channel::<()>();
    let serving = http::serve::serve(listener, current, limits, async {
        let _ = halted.await;
    });
    let serving = tokio::spawn(serving);
    let started = tokio::select! {
        started = start(report) => started.map(|(running, ready)| {
            let _ = routers.send(router(running.app.clone()));
            ready();
            Some(running)
        }),
        () = &mut stop => Ok(None),
    };
    if let Ok(Some(running)) = &started {
        stop.await;
        running.app.stopping.store(true, Ordering::Relaxed);
    }
    let _ = halt.send(());
    serving.await?;
    if let Some(running) = started? {
        running.finish().await;
    }
    Ok(())
}
