//! `gleaner serve` and `gleaner healthcheck`.

use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use sqlx::postgres::PgConnectOptions;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

use super::client::get_local;
use super::{block_on, embedded_settings, parse_url};
use crate::auth::keys::{self, Secret};
use crate::config::{Database, Serve};
use crate::db;
use crate::db::embedded::Cluster;
use crate::projects::Defaults;
use crate::providers::Providers;
use crate::server::{self, Running, Settings};

/// Serves until SIGINT or SIGTERM. The private Postgres, if there is one, stops after the last request.
pub(super) fn run(serve: &Serve, database: &Database, defaults: Defaults) -> anyhow::Result<ExitCode> {
    let key = serve.key()?.map(|key| Secret::chosen(&key)).transpose()?;
    let mut own = None;
    let options = match database.url()? {
        Some(url) => parse_url(&url)?,
        None => own.insert(Cluster::start(&embedded_settings(database))?).options(),
    };
    let data = own.as_ref().map_or_else(
        || "the database that DATABASE_URL names".to_owned(),
        |cluster: &Cluster| cluster.data_dir().display().to_string(),
    );
    let providers = match serve.providers_file.as_deref().filter(|file| !file.as_os_str().is_empty()) {
        Some(file) => Providers::load(file, |name| std::env::var(name).ok())?,
        None => Providers::default(),
    };
    let settings = Settings {
        providers: Arc::new(providers),
        connections: database.db_connections,
        exports: serve.exports,
        body_memory: serve.body_memory as usize,
        most_connections: most_connections(serve.most_connections)?,
        defaults,
        ..Settings::default()
    };
    let result = block_on(serve_on(&options, serve.bind, key, settings, &data));
    if let Some(cluster) = own {
        cluster.stop();
    }
    result.map(|()| ExitCode::SUCCESS)
}

/// How many files the process needs beside its clients' connections: those of the database, logs and pipes.
const OTHER_FILES: u64 = 256;

/// Raises the limit of open files as far as the system lets this process, and returns how many connections fit
/// below it: `wanted`, or fewer.
fn most_connections(wanted: usize) -> anyhow::Result<usize> {
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, most, most)?;
    Ok(wanted.min(usize::try_from(most.saturating_sub(OTHER_FILES)).unwrap_or(usize::MAX)).max(1))
}

async fn serve_on(
    options: &PgConnectOptions,
    bind: SocketAddr,
    key: Option<Secret>,
    settings: Settings,
    data: &str,
) -> anyhow::Result<()> {
    // From here on a signal lets requests finish. Earlier ones end the process, and the private Postgres with
    // it.
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let stop = async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    };
    let mut stop = Box::pin(stop);
    let running = Running::start(options, settings);
    let ready = async {
        db::wait(&running.app.db).await?;
        db::migrate(&running.app.db).await?;
        if let Some(key) = key {
            let row = keys::replace_first(&running.app.db, &key).await?;
            if row.revoked_at.is_some() {
                tracing::warn!(id = %row.id, "the key in GLEANER_ADMIN_KEY has been revoked, so it is refused");
            }
        }
        let open = running.app.keyring.is_open().await?;
        ensure!(
            bind.ip().is_loopback() || !open,
            "{bind} can be reached from other machines, and there is no key yet: set GLEANER_ADMIN_KEY, or make one with \
             `gleaner keys create --scope operator`, or listen on 127.0.0.1"
        );
        anyhow::Ok(open)
    };
    let open = tokio::select! {
        open = ready => open?,
        () = &mut stop => return Ok(()),
    };
    let listener = TcpListener::bind(bind).await.with_context(|| format!("listening on {bind}"))?;
    let address = listener.local_addr()?;
    let key = if open { "" } else { "-H \"Authorization: Bearer $GLEANER_KEY\" " };
    // The output may be closed by now, which is no reason to stop.
    let _ = writeln!(
        std::io::stdout(),
        "gleaner listens on http://{address} (data: {data})\n\
         try: curl -s http://{address}/v1/generations {key}-H 'content-type: application/json' \
         -d '{{\"user_intent\": \"Create a hedge fund\", \"domain_name\": \"cbu\"}}'"
    );
    server::serve(running, listener, stop).await;
    Ok(())
}

/// Asks the server that listens on `bind` whether it is ready. An unspecified address (0.0.0.0) is reached on
/// this machine.
pub(super) fn healthcheck(bind: SocketAddr) -> anyhow::Result<ExitCode> {
    let ip = if bind.ip().is_unspecified() { Ipv4Addr::LOCALHOST.into() } else { bind.ip() };
    let address = SocketAddr::new(ip, bind.port());
    let answer = get_local(address, "/readyz", Duration::from_secs(4));
    let answer = answer.with_context(|| format!("asking {address}"))?;
    ensure!(answer.status == 200, "not ready: {}", answer.body.trim());
    println!("{}", answer.body.trim());
    Ok(ExitCode::SUCCESS)
}
