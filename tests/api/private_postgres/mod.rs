//! The private Postgres: it starts, comes back, steps aside and cleans up, whatever was left behind.

mod crashes;
mod start;

use std::fs;
use std::path::Path;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions, PgConnection};

use crate::support::program::embedded::Settings;

fn settings(folder: &Path) -> Settings {
    Settings {
        data_dir: Some(folder.join("data")),
        durable: false,
        launcher: env!("CARGO_BIN_EXE_gleaner").into(),
        ..Settings::default()
    }
}

/// Runs work that needs a connection.
fn with<T>(
    options: &PgConnectOptions,
    work: impl AsyncFnOnce(&mut PgConnection) -> sqlx::Result<T>,
) -> sqlx::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { work(&mut options.connect().await?).await })
}

fn execute(options: &PgConnectOptions, sql: &'static str) {
    with(options, async |c| sqlx::query(sql).execute(c).await).unwrap();
}

fn number(options: &PgConnectOptions, sql: &'static str) -> sqlx::Result<i32> {
    with(options, async |c| sqlx::query_scalar(sql).fetch_one(c).await)
}

fn text(options: &PgConnectOptions, sql: &'static str) -> String {
    with(options, async |c| sqlx::query_scalar(sql).fetch_one(c).await).unwrap()
}

/// Waits for something that is due soon.
fn eventually<T>(what: &str, mut check: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = check() {
            return found;
        }
        assert!(begun.elapsed() < Duration::from_mins(1), "still not so: {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// The process id in `postmaster.pid`.
fn postmaster(folder: &Path) -> Option<i32> {
    let text = fs::read_to_string(folder.join("data/pgdata/postmaster.pid")).ok()?;
    text.lines().next()?.parse().ok()
}

/// A session in the midst of a query that does not end, and that would not notice its server's end. The
/// answer is whether the session was ended.
fn busy_session(options: &PgConnectOptions) -> JoinHandle<bool> {
    let session = options.clone();
    let handle = thread::spawn(move || {
        let endless = "select count(*) from generate_series(1, 1000000000) a, generate_series(1, 1000) b";
        with(&session, async |c| sqlx::query(endless).execute(c).await).is_err()
    });
    let busy = "select count(*)::int from pg_stat_activity where query like '%a, generate_series%) b'";
    eventually("a session is busy", || number(options, busy).ok().filter(|n| *n > 0));
    handle
}

fn signal(pid: i32, signal: Signal) {
    kill(Pid::from_raw(pid), signal).unwrap();
}
