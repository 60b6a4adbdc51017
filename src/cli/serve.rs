//! `gleaner serve` and `gleaner healthcheck`.

use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail, ensure};
use clap::Args;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use sqlx::postgres::PgConnectOptions;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use super::client::{Presence, get_local, reachable};
use super::{block_on, checked, client, embedded_settings, parse_url, words};
use crate::auth::keys::{self, First, Secret};
use crate::auth::{Actor, audit_entries};
use crate::config::{Database, LogFormat, Logging, Privacy, Serve};
use crate::db;
use crate::db::embedded::Cluster;
use crate::http::serve::Limits;
use crate::projects::Defaults;
use crate::providers::Providers;
use crate::searches::settings::SearchSettings;
use crate::server::{self, Running, Settings};

/// The options of the server.
#[derive(Debug, Args)]
pub(super) struct Options {
    #[command(flatten)]
    serve: Serve,
    #[command(flatten)]
    database: Database,
    #[command(flatten)]
    privacy: Privacy,
    #[command(flatten)]
    searches: SearchSettings,
    #[command(flatten)]
    pub(super) logging: Logging,
}

impl Options {
    /// Serves until SIGINT or SIGTERM. The private Postgres, if there is one, stops after the last request.
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        // Dropped when nothing uses the database any more, which stops the private Postgres.
        let cluster = Mutex::new(None);
        block_on(self.serve(&cluster))?;
        if let Some(cluster) = cluster.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Cluster::stop(cluster);
        }
        tracing::info!("stopped");
        Ok(ExitCode::SUCCESS)
    }

    async fn serve(&self, cluster: &Mutex<Option<Cluster>>) -> anyhow::Result<()> {
        let key = self.serve.key()?.map(|key| Secret::chosen(&key)).transpose()?;
        let defaults = Defaults {
            capture: self.privacy.capture,
            searches: checked(self.searches.clone())?,
            ..Defaults::default()
        };
        let url = self.database.url()?.map(|url| parse_url(&url)).transpose()?;
        let file = self.serve.providers_file.as_deref().filter(|file| !file.as_os_str().is_empty());
        let providers = file.map(|file| Providers::load(file, |name| std::env::var(name).ok()));
        let mut settings = Settings {
            providers: Arc::new(providers.transpose()?.unwrap_or_default()),
            embedder: self.serve.embeddings.embedder()?.map(Arc::new),
            connections: self.serve.db_connections,
            exports: self.serve.exports,
            body_memory: self.serve.body_memory as usize,
            defaults,
            ..Settings::default()
        };
        let connections = most_connections(self.serve.most_connections)?;
        settings.calls = settings.calls.min(connections / CONNECTIONS_OF_A_CALL).max(1);
        let limits = Limits { connections, patience: settings.patience };
        // The address is taken before anything is made, so that a second server leaves nothing behind.
        let listener = listen(self.serve.bind).await?;
        let address = listener.local_addr()?;
        let stop = stop()?;
        tracing::info!(%address, "listening");
        let start = async |report: watch::Sender<String>| {
            let (options, data) = match url {
                Some(options) => {
                    let name = db::name(&options);
                    (options, name)
                }
                None => self.private(cluster, &report).await?,
            };
            let report = |reason: &str| {
                tracing::warn!("waiting: {reason}");
                let _ = report.send(reason.to_owned());
            };
            db::wait(&options, Duration::MAX, report).await?;
            let pool = db::pool(&options, "gleaner", 1);
            db::migrate(&pool).await?;
            pool.close().await;
            let mut running = Running::start(&options, settings);
            running.connect().await;
            let is_open = self.admit(&running, key).await?;
            Ok((running, move || self.announce(address, &data, is_open)))
        };
        server::serve(listener, limits, start, stop).await
    }

    /// Starts the private Postgres, and returns how to connect to it and where its data are.
    async fn private(
        &self,
        cluster: &Mutex<Option<Cluster>>,
        report: &watch::Sender<String>,
    ) -> anyhow::Result<(PgConnectOptions, String)> {
        let _ = report.send("the private Postgres is being started".to_owned());
        let settings = embedded_settings(&self.database);
        let started = tokio::task::spawn_blocking(move || Cluster::start(&settings)).await??;
        let (options, data) = (started.options(), started.data_dir().display().to_string());
        *cluster.lock().unwrap_or_else(PoisonError::into_inner) = Some(started);
        Ok((options, data))
    }

    /// Stores the first key, if one is given. Returns whether the server is open, which it may only be on this
    /// machine.
    async fn admit(&self, running: &Running, key: Option<Secret>) -> anyhow::Result<bool> {
        if let Some(key) = key {
            let mut transaction = db::begin(&running.app.db).await?;
            let First { key: row, is_new, replaced } = keys::replace_first(&mut transaction, &key).await?;
            let actor = Actor { key: None, name: "GLEANER_ADMIN_KEY".into() };
            if is_new {
                audit_entries::made(&mut transaction, &row, &actor).await?;
            }
            for id in replaced {
                audit_entries::revoked(&mut transaction, &row.project, (id, &row.name), &actor).await?;
            }
            transaction.commit().await?;
            if row.revoked_at.is_some() {
                tracing::warn!(id = %row.id, "the key in GLEANER_ADMIN_KEY has been revoked, so it is refused");
            }
        }
        let is_open = running.app.keyring.is_open().await?;
        ensure!(
            self.serve.bind.ip().is_loopback() || !is_open,
            "{} can be reached from other machines, and there is no key yet: set GLEANER_ADMIN_KEY, or make one with \
             `gleaner keys create --scope operator`, or listen on 127.0.0.1",
            self.serve.bind
        );
        Ok(is_open)
    }

    /// Says where the server can be reached, now that it can be used.
    fn announce(&self, address: SocketAddr, data: &str, is_open: bool) {
        if matches!(self.logging.log_format, LogFormat::Json) {
            tracing::info!(%address, data, "ready");
            return;
        }
        let key = if is_open { "" } else { "-H \"Authorization: Bearer $GLEANER_KEY\" " };
        // The output may be closed by now, which is no reason to stop.
        let _ = writeln!(
            io::stdout(),
            "gleaner listens on http://{address} (data: {data})\n\
             try: curl -s http://{address}/v1/generations {key}-H 'content-type: application/json' \
             -d '{{\"user_intent\": \"Create a hedge fund\", \"domain_name\": \"cbu\"}}'"
        );
    }
}

/// How many files the process needs beside its clients' connections and those to providers: those of the database, logs and
/// pipes.
const OTHER_FILES: u64 = 256;
/// How many connections of clients there are for each request of a project that waits for a provider, so that the requests of
/// all projects take a third of the files.
const CONNECTIONS_OF_A_CALL: usize = 8;

/// Raises the limit of open files as far as the system lets this process, and returns how many connections fit
/// below it: `wanted`, or fewer.
fn most_connections(wanted: usize) -> anyhow::Result<usize> {
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, most, most)?;
    let fitting = most.saturating_sub(OTHER_FILES) / 3 * 2;
    Ok(wanted.min(usize::try_from(fitting).unwrap_or(usize::MAX)).max(1))
}

/// Takes the address, or says who has it.
async fn listen(bind: SocketAddr) -> anyhow::Result<TcpListener> {
    let error = match TcpListener::bind(bind).await {
        Ok(listener) => return Ok(listener),
        Err(error) => error,
    };
    let port = bind.port();
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            let url = format!("http://{}", reachable(bind));
            let presence = tokio::task::block_in_place(|| client::presence_at(&url));
            let who = if presence == Presence::Nobody { "another program" } else { "a gleaner" };
            bail!(
                "cannot listen on {bind}: {who} listens there already; stop it, or choose another port with --bind \
                 127.0.0.1:{} (GLEANER_BIND)",
                port.checked_add(1).unwrap_or(8081)
            )
        }
        io::ErrorKind::PermissionDenied => {
            bail!(
                "cannot listen on {bind}: this user may not use port {port}; choose one from 1024 on with --bind"
            )
        }
        io::ErrorKind::AddrNotAvailable => {
            bail!("cannot listen on {bind}: this machine does not have the address {}", bind.ip())
        }
        _ => Err(anyhow!(error).context(format!("listening on {bind}"))),
    }
}

/// Completes at SIGINT or SIGTERM.
fn stop() -> anyhow::Result<impl Future<Output = ()>> {
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    Ok(async move {
        let name = tokio::select! {
            _ = interrupt.recv() => "SIGINT",
            _ = terminate.recv() => "SIGTERM",
        };
        tracing::info!(
            "stopping after {name}: requests in progress are answered, and queued events are committed"
        );
    })
}

/// Asks the server that listens on `bind` whether it is ready.
pub(super) fn healthcheck(bind: SocketAddr) -> anyhow::Result<ExitCode> {
    let address = reachable(bind);
    let answer = get_local(address, "/readyz", Duration::from_secs(4));
    let answer = answer.with_context(|| format!("no server answers at {address}"))?;
    ensure!(answer.status == 200, "not ready: {}", answer.body.trim());
    words::print(answer.body.trim())?;
    Ok(ExitCode::SUCCESS)
}
