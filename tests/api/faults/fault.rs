//! What can happen to a server, its Postgres and its machine, and what the server says meanwhile.

use axum::http::StatusCode;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions as _, PgConnection};
use tempfile::TempDir;

use super::load::Load;
use super::shim::Shim;
use crate::support::eventually;
use crate::support::server::Server;

/// What can happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    ServerKilled,
    ServerStopped,
    PostgresKilled,
    PostgresRestarted,
    /// The database takes no writes for a while.
    ReadOnly,
    /// Others take all connections that the database has.
    NoConnections,
    /// It takes a fifth of a second to sync a file.
    SlowDisk,
    /// The clock is put ahead and back, as by somebody who types a wrong date, and as after a long sleep.
    ClockJumps,
}

/// A server under load, where faults strike.
pub(super) struct Scene<'a> {
    pub(super) folder: &'a TempDir,
    pub(super) server: Server,
    pub(super) load: Load,
    /// Moves the clock and slows the disk, where that is possible.
    pub(super) shim: Option<Shim>,
}

impl<'a> Scene<'a> {
    /// Starts a server under the load of so many clients.
    pub(super) fn start(folder: &'a TempDir, clients: usize, shim: Option<Shim>) -> Self {
        let server = shim.as_ref().map_or_else(|| Server::start(folder), |shim| shim.start(folder));
        let load = Load::start(&server, clients);
        Self { folder, server, load, shim }
    }

    /// Whether this fault can strike here.
    pub(super) fn can_have(&self, fault: Fault) -> bool {
        self.shim.is_some() || ![Fault::SlowDisk, Fault::ClockJumps].contains(&fault)
    }

    /// Has a fault strike, and takes it back.
    pub(super) async fn strike(&mut self, fault: Fault) {
        match fault {
            Fault::ServerKilled => self.restart(Signal::SIGKILL, None),
            Fault::ServerStopped => self.restart(Signal::SIGTERM, Some(0)),
            Fault::PostgresKilled => self.signal_postgres(Signal::SIGKILL),
            // Its fast shutdown; the server starts it again.
            Fault::PostgresRestarted => self.signal_postgres(Signal::SIGINT),
            Fault::ReadOnly => self.read_only().await,
            Fault::NoConnections => self.no_connections().await,
            Fault::SlowDisk => {
                let shim = self.shim.as_ref().expect("it can have it");
                shim.disk_is_slower_by(200);
                self.load.more(30).await;
                assert_eq!(self.readiness().await, ready(), "a slow disk is no reason to be unready");
                shim.disk_is_slower_by(0);
            }
            Fault::ClockJumps => {
                const DAY: i64 = 86_400;
                let shim = self.shim.as_ref().expect("it can have it");
                for ahead in [400 * DAY, -DAY, 0] {
                    shim.clock_is_ahead_by(ahead);
                    self.load.more(50).await;
                    assert_eq!(self.readiness().await, ready());
                }
            }
        }
    }

    fn restart(&mut self, signal: Signal, status: Option<i32>) {
        self.server.signal(signal);
        assert_eq!(self.server.ended(), status);
        self.server =
            self.shim.as_ref().map_or_else(|| Server::start(self.folder), |shim| shim.start(self.folder));
        self.load.moved_to(&self.server);
    }

    fn signal_postgres(&self, signal: Signal) {
        let pid = Pid::from_raw(Server::postgres(self.folder));
        kill(pid, signal).expect("Postgres is there");
    }

    /// What the server says of being ready.
    pub(super) async fn readiness(&self) -> (StatusCode, Value) {
        let (status, answer) = self.server.get("/readyz").await;
        (status, if status == StatusCode::OK { answer } else { answer["detail"].clone() })
    }

    /// Waits until the server is ready.
    pub(super) async fn is_ready(&self) {
        eventually("the server is ready", async || self.readiness().await == ready()).await;
    }

    /// Waits until the server says that it is not ready, and that it is alive.
    pub(super) async fn is_unready(&self, reasons: &[&str]) {
        eventually("the server says that it is not ready", async || {
            let (status, reason) = self.readiness().await;
            let is_known = reason.as_str().is_some_and(|reason| reasons.iter().any(|it| reason.contains(it)));
            assert!(status == StatusCode::OK || is_known, "{reason}");
            status == StatusCode::SERVICE_UNAVAILABLE
        })
        .await;
        assert_eq!(self.server.get("/healthz").await.0, StatusCode::OK);
    }

    async fn read_only(&self) {
        const ON: &str = "alter system set default_transaction_read_only = on";
        const OFF: &str = "alter system reset default_transaction_read_only";
        let mut admin = self.connect().await.expect("Postgres answers");
        for sql in ["set default_transaction_read_only = off", ON, "select pg_reload_conf()"] {
            execute(&mut admin, sql).await;
        }
        self.is_unready(&["the database is read-only"]).await;
        assert_eq!(self.server.get("/v1/generations?limit=1").await.0, StatusCode::OK, "it can be read");
        let log = json!({"user_intent": "i", "domain_name": "d"});
        let (status, problem) = self.server.post("/v1/generations", &log).await;
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{problem}");
        assert_eq!(problem["detail"], "the database is read-only; try again");
        for sql in [OFF, "select pg_reload_conf()"] {
            execute(&mut admin, sql).await;
        }
        self.is_ready().await;
    }

    async fn no_connections(&self) {
        const OURS: &str =
            "select pg_terminate_backend(pid) from pg_stat_activity where application_name like 'gleaner%'
            and pid <> pg_backend_pid()";
        let mut admin = self.connect().await.expect("Postgres answers");
        let mut taken = Vec::new();
        eventually("others have all connections", async || {
            while let Ok(connection) = self.connect().await {
                taken.push(connection);
            }
            // Those of the server go, and the places that they leave are taken too.
            execute(&mut admin, OURS).await;
            while let Ok(connection) = self.connect().await {
                taken.push(connection);
            }
            self.readiness().await.0 == StatusCode::SERVICE_UNAVAILABLE
        })
        .await;
        self.is_unready(&["the database cannot be reached"]).await;
        drop(taken);
        self.is_ready().await;
    }

    /// Connects to the server's Postgres.
    pub(super) async fn connect(&self) -> sqlx::Result<PgConnection> {
        let pid_file = self.folder.path().join("data/pgdata/postmaster.pid");
        let pid_file = std::fs::read_to_string(pid_file).unwrap_or_default();
        let socket = pid_file.lines().nth(4).unwrap_or_default().to_owned();
        let options = PgConnectOptions::new_without_pgpass();
        let options = options.socket(socket).port(5432).username("postgres").database("gleaner");
        options.application_name("somebody else").connect().await
    }
}

fn ready() -> (StatusCode, Value) {
    (StatusCode::OK, json!({"status": "ready"}))
}

/// Executes this SQL.
pub(super) async fn execute(connection: &mut PgConnection, sql: &str) {
    sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(connection).await.expect(sql);
}
