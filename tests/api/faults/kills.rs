//! The server or its Postgres is killed or restarted under load.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

use super::load::Load;
use crate::support::eventually;
use crate::support::server::{Server, folder};

/// What can happen to a server or its Postgres.
#[derive(Debug, Clone, Copy)]
enum Fault {
    ServerKilled,
    ServerStopped,
    PostgresKilled,
    PostgresRestarted,
}

impl Fault {
    fn strike(self, folder: &TempDir, server: &mut Server, load: &Load) {
        let signal_postgres = |signal| {
            let pid_file = folder.path().join("data/pgdata/postmaster.pid");
            let text = std::fs::read_to_string(pid_file).unwrap_or_default();
            let pid = text.lines().next().and_then(|pid| pid.parse().ok()).expect("Postgres runs");
            kill(Pid::from_raw(pid), signal).expect("Postgres is there");
        };
        match self {
            Self::ServerKilled | Self::ServerStopped => {
                let is_kill = matches!(self, Self::ServerKilled);
                server.signal(if is_kill { Signal::SIGKILL } else { Signal::SIGTERM });
                let status = server.ended();
                assert_eq!(status, if is_kill { None } else { Some(0) });
                *server = Server::start(folder);
                load.moved_to(server);
            }
            Self::PostgresKilled => signal_postgres(Signal::SIGKILL),
            // Its fast shutdown; the server starts it again.
            Self::PostgresRestarted => signal_postgres(Signal::SIGINT),
        }
    }
}

/// Strikes the faults one after another, each while events come in.
async fn survives(faults: &[Fault]) {
    let folder = folder();
    let mut server = Server::start(&folder);
    let load = Load::start(&server, 8);
    load.more(200).await;
    for fault in faults {
        fault.strike(&folder, &mut server, &load);
        load.more(200).await;
    }
    load.assert_kept(&server).await;
    eventually("the server is ready", async || server.get("/readyz").await.0 == StatusCode::OK).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kill_9_of_the_server_under_load_loses_nothing_acknowledged_and_stores_nothing_twice() {
    survives(&[Fault::ServerKilled, Fault::ServerKilled]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kill_9_of_postgres_under_load_is_a_503_until_it_is_back_by_itself_and_loses_nothing() {
    survives(&[Fault::PostgresKilled]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_of_postgres_under_load_needs_no_restart_of_the_server_and_loses_nothing() {
    survives(&[Fault::PostgresRestarted]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sigterm_under_load_ends_the_server_and_its_postgres_and_loses_nothing() {
    let folder = folder();
    let mut server = Server::start(&folder);
    let load = Load::start(&server, 8);
    load.more(200).await;
    server.signal(Signal::SIGTERM);
    assert_eq!(server.ended(), Some(0));
    assert!(!folder.path().join("data/pgdata/postmaster.pid").exists(), "Postgres has ended too");
    server = Server::start(&folder);
    load.moved_to(&server);
    load.assert_kept(&server).await;
}

/// The long run: `make torture`. `TORTURE_SECONDS` says how long (300 if not given).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes: make torture"]
async fn torture() {
    let seconds =
        std::env::var("TORTURE_SECONDS").ok().and_then(|seconds| seconds.parse().ok()).unwrap_or(300);
    let folder = folder();
    let mut server = Server::start(&folder);
    let load = Load::start(&server, 32);
    let begun = Instant::now();
    let mut struck = HashMap::<String, usize>::new();
    let faults = [Fault::ServerKilled, Fault::PostgresKilled, Fault::PostgresRestarted, Fault::ServerStopped];
    for fault in faults.iter().cycle() {
        load.more(10_000).await;
        if begun.elapsed() > Duration::from_secs(seconds) {
            break;
        }
        fault.strike(&folder, &mut server, &load);
        *struck.entry(format!("{fault:?}")).or_default() += 1;
    }
    let took = begun.elapsed().as_secs_f64();
    let events = load.assert_kept(&server).await;
    eprintln!(
        "{events} events acknowledged in {took:.0} s ({:.0}/s), all there and none twice, after {struck:?}",
        events as f64 / took
    );
}
