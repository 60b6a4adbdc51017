//! A private Postgres, run as a child of the service when no database is given.
//!
//! [`Cluster::start`] finds the programs of Postgres (`programs`), finds and locks the data folder
//! (`folder`), makes a cluster in it the first time (`home`), and runs a server on it (`server`) that
//! listens on nothing but a Unix socket in a folder of its own (`socket`). Started by root, Postgres runs as another
//! user (`account`). However the service ends, the server ends with it (`child`); where it could not,
//! the next start stops it first (`postmaster`).

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

/// Only names the socket: no port is opened.
const PORT: u16 = 5432;
/// How long a command waits for a service that is just starting or stopping.
const PATIENCE: Duration = Duration::from_secs(15);

/// How to run a private Postgres.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The data folder. None: `./data`, and for root `/var/lib/gleaner` when the user that Postgres runs as
    /// cannot reach that.
    pub data_dir: Option<PathBuf>,
    /// The folder of the programs `initdb` and `postgres`. None: looked for on the path and in the usual places.
    pub pg_bindir: Option<PathBuf>,
    /// The folders to look for programs in, as the variable `PATH` has them.
    pub path: Option<OsString>,
    /// Whether what is committed survives a crash of the machine. Only tests do without.
    pub durable: bool,
    /// The gleaner program, whose hidden command [`COMMAND`] the child processes start as.
    pub launcher: PathBuf,
}

impl Default for Settings {
    /// The default folder, programs from `PATH`, durable, and this very program as launcher.
    fn default() -> Self {
        // On Linux by a name that stays true when the file is replaced by a newer version.
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

/// A running private Postgres. When it dies by itself it is started again, at the same socket; dropping the
/// cluster stops it and waits for its end.
#[derive(Debug)]
pub struct Cluster {
    // Dropped in this order: the lock, which the home holds, is let go last.
    server: Server,
    options: PgConnectOptions,
    home: Home,
}

impl Cluster {
    /// Starts the private Postgres, making its cluster and the database `gleaner` where they are missing, and
    /// returns when it accepts connections.
    ///
    /// Blocks, the first time for a second or two; within a Tokio runtime call it through `spawn_blocking`.
    ///
    /// # Errors
    ///
    /// When no Postgres is installed, the data folder cannot be used or is used by another gleaner, or
    /// Postgres does not start; each says what to do about it.
    pub fn start(settings: &Settings) -> Result<Self> {
        let home = Home::open(settings)?;
        if home.version.is_none() {
            home.make_cluster(settings.durable)?;
        }
        let (server, options) = home.run(&home.folder.pgdata(), settings.durable)?;
        server.keep();
        Ok(Self { server, options, home })
    }

    /// How to connect: through the Unix socket, as `postgres`, to the database `gleaner`. Stays the same when
    /// Postgres is started again.
    #[must_use]
    pub fn options(&self) -> PgConnectOptions {
        self.options.clone()
    }

    /// The data folder, as an absolute path.
    #[must_use]
    pub fn data_dir(&self) -> &Path {
        self.home.folder.path()
    }

    /// The process id of Postgres; none while it is being started again.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.server.pid().and_then(|pid| pid.as_raw().try_into().ok())
    }

    /// Stops Postgres: open sessions are ended, everything is written out, and it has ended on return. A
    /// shutdown that takes over half a minute is cut short, at the cost of a longer start next time.
    pub fn stop(self) {
        drop(self);
    }
}

/// How to connect to the private Postgres that a service already runs on the data folder; none when no
/// service does. For commands that work beside the service. Blocks for as long as a connection takes.
///
/// # Errors
///
/// When the folder cannot be used, or a service holds it but its Postgres does not answer.
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
        // It is just starting or stopping, which takes seconds; a lock also outlives its holder for as long as a process
        // that was being forked from it.
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

/// Runs a little work of the async kind from code that blocks, whether or not a runtime is around it.
fn wait_for<T: Send>(work: impl Future<Output = Result<T>> + Send) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    thread::scope(|scope| {
        let thread = scope.spawn(move || runtime.block_on(work));
        thread.join().map_err(|_| anyhow!("the work panicked"))?
    })
}
