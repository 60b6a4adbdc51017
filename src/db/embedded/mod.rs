//! A private Postgres, run as a child of the service when no database is configured.
//!
//! [`Cluster::start`] finds the Postgres programs (`programs`), finds and locks the data folder (`folder`),
//! makes a cluster in it the first time (`home`), and runs a server on it (`server`) that listens only on a
//! Unix socket in a folder of its own (`socket`). If root starts the service, Postgres runs as another user
//! (`account`). However the service ends, the server ends with it (`child`). Should that fail, the next start
//! stops the server first (`postmaster`).
//!
//! # What has to be got right
//!
//! - Postgres does not run as root: `account.rs` drops to the owner of the cluster, else `postgres`, else `nobody`, and finds
//!   out by going there whether that user can reach the folder. Mode bits alone do not tell.
//! - `initdb` writes `pgdata.new`, which is renamed when complete; a half-made cluster is never taken for one. The locale is
//!   `C.UTF-8` (`en_US.UTF-8` on macOS): with plain `C`, pg_trgm drops everything that is not ASCII without a word.
//! - The folder is locked with `flock`, which the kernel lets go however the service ends. The second server is told by
//!   whom it is held.
//! - Postgres must not outlive the service, also when that is killed. Linux signals a child when its parent *thread* ends,
//!   and forgets the request when the child changes its user. So one thread forks and lives as long as the server
//!   (`server.rs`), and the child is this same program with a hidden command (`child.rs`), which drops the user, makes the
//!   request, and only then becomes Postgres.
//! - Ctrl-C goes to a whole process group. Postgres has its own, so that the service can drain first.
//! - After a kill, an orphan is stopped first. A left `postmaster.pid` may name a process that is by now something else:
//!   only a Postgres whose working folder is this cluster counts (`postmaster.rs`). Our own process id is then written over
//!   the dead one, since Postgres knows its parent to be no rival; the rest of the file stays, as Postgres uses it to find
//!   remains of the dead server in shared memory.
//! - Socket paths beyond about 100 bytes do not work: a short folder in the temporary folder takes their place, refused if
//!   it is not private.
//! - A Postgres that dies is started again on the same socket, after 0.1 to 10 seconds. What it says goes into
//!   `postgres.log`, 4 MiB twice at most, and its last lines into error messages.
//! - Programs are looked for in `PG_BINDIR`, `PATH`, what `pg_config --bindir` says, and the usual folders; an existing
//!   cluster is opened only by the major version that made it.

mod account;
mod child;
mod database;
mod folder;
mod home;
mod log;
mod postmaster;
mod programs;
mod server;
mod socket;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{env, thread};

use anyhow::{Context, Result, anyhow, bail};
use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions, Connection};

use self::database::connect_options;
use self::folder::Folder;
use self::home::Home;
use self::postmaster::Postmaster;
use self::server::Server;

pub use self::child::{COMMAND, child_main};

/// The port, which is only part of the socket's name: no TCP port is opened.
const PORT: u16 = 5432;
/// How long a command waits for a service that is just starting or stopping.
const PATIENCE: Duration = Duration::from_secs(15);

/// The settings of a private Postgres.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The data folder. The default is `./data`, or `/var/lib/gleaner` for root if the user that runs
    /// Postgres cannot reach `./data`.
    pub data_dir: Option<PathBuf>,
    /// The folder with the programs `initdb` and `postgres`. By default they are looked for on the path and
    /// in the usual folders.
    pub pg_bindir: Option<PathBuf>,
    /// The folders in which to look for programs, in the format of the variable `PATH`.
    pub path: Option<OsString>,
    /// Whether commits survive a crash of the machine. Only tests do without.
    pub durable: bool,
    /// The gleaner program, which child processes start with the hidden command [`COMMAND`].
    pub launcher: PathBuf,
}

impl Default for Settings {
    /// Uses the default folder, the programs on `PATH`, durable commits, and this very program as launcher.
    fn default() -> Self {
        // On Linux this name stays valid when the file is replaced by a newer version.
        let launcher =
            if cfg!(target_os = "linux") { Ok("/proc/self/exe".into()) } else { env::current_exe() };
        Self {
            data_dir: None,
            pg_bindir: None,
            path: env::var_os("PATH"),
            durable: true,
            launcher: launcher.unwrap_or_else(|_| "gleaner".into()),
        }
    }
}

/// A running private Postgres. If it dies it is started again, at the same socket. Dropping the cluster stops
/// it and waits for its end.
#[derive(Debug)]
pub struct Cluster {
    // Fields are dropped in this order. The lock, which the home holds, is released last.
    server: Server,
    options: PgConnectOptions,
    home: Home,
}

impl Cluster {
    /// Starts the private Postgres and returns when it accepts connections. Makes the cluster and the
    /// database `gleaner` if they are missing.
    ///
    /// The call blocks, the first time for a second or two. Within a Tokio runtime it belongs in
    /// `spawn_blocking`.
    ///
    /// # Errors
    ///
    /// Fails if no Postgres is installed, if the data folder cannot be used or is in use by another gleaner,
    /// or if Postgres does not start. Each error says what to do about it.
    pub fn start(settings: &Settings) -> Result<Self> {
        let home = Home::open(settings)?;
        if home.version.is_none() {
            home.make_cluster(settings.durable)?;
        }
        let (server, options) = home.run(&home.folder.pgdata(), settings.durable)?;
        server.keep();
        Ok(Self { server, options, home })
    }

    /// Returns the connection options: the Unix socket, the user `postgres` and the database `gleaner`. They
    /// stay valid when Postgres is started again.
    #[must_use]
    pub fn options(&self) -> PgConnectOptions {
        self.options.clone()
    }

    /// Returns the absolute path of the data folder.
    #[must_use]
    pub fn data_dir(&self) -> &Path {
        self.home.folder.path()
    }

    /// Returns the process id of Postgres, or none while it is being started again.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.server.pid().and_then(|pid| pid.as_raw().try_into().ok())
    }

    /// Stops Postgres: ends open sessions, writes everything to disk, and returns when the server has ended.
    /// After half a minute Postgres is stopped at once, which makes the next start take longer.
    pub fn stop(self) {
        drop(self);
    }
}

/// Returns how to connect to the private Postgres that a running service already uses, or none if no service
/// uses the data folder. It is for commands that work beside the service. It blocks for as long as connecting
/// takes.
///
/// # Errors
///
/// Fails if the folder cannot be used, or if a service has locked it but its Postgres does not answer.
pub fn attach(settings: &Settings) -> Result<Option<PgConnectOptions>> {
    let folder = Folder::locate(settings.data_dir.as_deref())?;
    let begun = Instant::now();
    let socket = loop {
        if !folder.is_locked()? {
            return Ok(None);
        }
        let postmaster = Postmaster::read(&folder.pgdata())?;
        if let Some(socket) = postmaster.filter(|p| p.ready).and_then(|p| p.socket) {
            break socket;
        }
        // The service is just starting or stopping, which takes seconds. A lock also outlives its holder for
        // as long as a process that was being forked from it.
        if begun.elapsed() > PATIENCE {
            bail!(
                "the gleaner that uses {} is starting or stopping: try again later",
                folder.path().display()
            );
        }
        thread::sleep(Duration::from_millis(20));
    };
    let options = connect_options(&socket);
    wait_for(async { Ok(options.connect().await?.close().await?) })
        .with_context(|| format!("the Postgres in {} does not answer", folder.path().display()))?;
    Ok(Some(options))
}

/// Returns the data folder that these settings mean, and whether there is a cluster in it. Nothing is made.
///
/// # Errors
///
/// Fails if the folder cannot be looked into.
pub fn find(settings: &Settings) -> Result<(PathBuf, bool)> {
    let folder = Folder::locate(settings.data_dir.as_deref())?;
    Ok((folder.path().to_owned(), folder.version()?.is_some()))
}

/// Runs a short future from blocking code, whether or not that code runs inside a runtime.
fn wait_for<T: Send>(work: impl Future<Output = Result<T>> + Send) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    thread::scope(|scope| {
        let thread = scope.spawn(move || runtime.block_on(work));
        thread.join().map_err(|_| anyhow!("the work panicked"))?
    })
}
