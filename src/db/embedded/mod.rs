//! A private Postgres, run as a child of the service when no database is given.
//!
//! [`Cluster::start`] finds the programs of Postgres ([`programs`]), finds and locks the data folder
//! ([`folder`]), makes a cluster in it the first time, and runs a server on it ([`server`]) that listens on
//! nothing but a Unix socket in a folder of its own ([`socket`]). Started by root, Postgres runs as another
//! user ([`account`]). However the service ends, the server ends with it ([`child`]); where it could not,
//! the next start stops it first ([`postmaster`]).

mod account;
mod child;
mod database;
mod folder;
mod log;
mod postmaster;
mod programs;
mod server;
mod socket;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::{env, fs, io, thread};

use anyhow::{Context, Result, anyhow, bail};
use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions, Connection};

use self::child::Launcher;
use self::database::{connect_options, make_database};
use self::folder::{Folder, Lock};
use self::log::Log;
use self::postmaster::Postmaster;
use self::programs::Programs;
use self::server::{Launch, Server};
use self::socket::SocketFolder;

pub use self::child::{COMMAND, child_main};

/// Only names the socket: no port is opened.
const PORT: u16 = 5432;
/// The locale of the cluster; its character type decides which letters `pg_trgm` knows.
const LOCALE: &str = if cfg!(target_os = "macos") {
    "en_US.UTF-8"
} else {
    "C.UTF-8"
};

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
        let launcher = if cfg!(target_os = "linux") {
            Ok("/proc/self/exe".into())
        } else {
            env::current_exe()
        };
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
    // In the order in which they are to be dropped.
    server: Server,
    _lock: Lock,
    options: PgConnectOptions,
    folder: Folder,
}

impl Cluster {
    /// Starts the private Postgres, making its cluster and the database `gleaner` where they are missing, and
    /// returns when it accepts connections.
    ///
    /// Blocks for about a second; within a Tokio runtime call it through `spawn_blocking`.
    ///
    /// # Errors
    ///
    /// When no Postgres is installed, the data folder cannot be used or is used by another gleaner, or
    /// Postgres does not start; each says what to do about it.
    pub fn start(settings: &Settings) -> Result<Self> {
        let mut folder = Folder::locate(settings.data_dir.as_deref())?;
        let version = folder.version()?;
        let programs = Programs::find(settings, version)?;
        let lock = folder.lock()?;
        let launcher = Launcher {
            program: settings.launcher.clone(),
            account: folder.account.clone(),
            folder: folder.path().into(),
        };
        let pgdata = folder.pgdata();
        if version.is_none() {
            make_cluster(&folder, &launcher, &programs, settings.durable)?;
        }
        let socket = SocketFolder::make(&folder)?;
        let options = connect_options(socket.path());
        let server = Server::start(Launch {
            args: server_args(&pgdata, socket.path(), settings.durable),
            program: programs.path("postgres"),
            log: Log::open(&folder.path().join("postgres.log"), &folder.account)
                .context("cannot open postgres.log")?,
            launcher,
            pgdata,
            socket,
        })?;
        wait_for(make_database(&options)).context("cannot make the database in the private Postgres")?;
        server.keep();
        Ok(Self {
            server,
            _lock: lock,
            options,
            folder,
        })
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
        self.folder.path()
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
    if !folder.is_locked()? {
        return Ok(None);
    }
    let postmaster = Postmaster::read(&folder.pgdata())?;
    let Some(socket) = postmaster.filter(|p| p.ready).and_then(|p| p.socket) else {
        bail!(
            "the gleaner that uses {} is just starting or stopping: try again",
            folder.path().display()
        );
    };
    let options = connect_options(&socket);
    wait_for(async { Ok(options.connect().await?.close().await?) })
        .with_context(|| format!("the Postgres in {} does not answer", folder.path().display()))?;
    Ok(Some(options))
}

/// Makes a cluster under another name, which it loses only when complete.
fn make_cluster(folder: &Folder, launcher: &Launcher, programs: &Programs, durable: bool) -> Result<()> {
    let new = folder.path().join("pgdata.new");
    match fs::remove_dir_all(&new) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => {
            return Err(e).context(format!("cannot remove the unfinished {}", new.display()));
        }
        _ => folder.account.make_folder(&new)?,
    }
    tracing::info!(folder = %folder.path().display(), "making a new Postgres cluster");
    let mut command = launcher.command(&programs.path("initdb"));
    command
        .arg("-D")
        .arg(&new)
        .args(["--username=postgres", "--encoding=UTF8"]);
    command
        .arg(format!("--locale={LOCALE}"))
        .args(["--auth-local=trust", "--auth-host=reject"]);
    if !durable {
        command.arg("--no-sync");
    }
    let output = command
        .output()
        .with_context(|| format!("cannot run {}", launcher.program.display()))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!(
            "initdb did not make a cluster in {}. It said:\n{}",
            new.display(),
            said.trim_end()
        );
    }
    fs::rename(&new, folder.pgdata()).context("cannot name the new cluster pgdata")?;
    if durable {
        fs::File::open(folder.path())?.sync_all()?;
    }
    Ok(())
}

/// What must hold whatever the cluster's own configuration says.
fn server_args(pgdata: &Path, socket: &Path, durable: bool) -> Vec<OsString> {
    let on = if durable { "on" } else { "off" };
    let fixed = [
        "listen_addresses=".to_owned(),
        format!("port={PORT}"),
        format!("unix_socket_directories={}", socket.display()),
        "unix_socket_permissions=0700".to_owned(),
        "logging_collector=off".to_owned(),
        "log_destination=stderr".to_owned(),
        format!("fsync={on}"),
        // Without fsync too: what is committed then survives at least the end of Postgres.
        "synchronous_commit=on".to_owned(),
        format!("full_page_writes={on}"),
    ];
    let mut args: Vec<OsString> = vec!["-D".into(), pgdata.into()];
    args.extend(
        fixed
            .into_iter()
            .flat_map(|setting| ["-c".into(), setting.into()]),
    );
    args
}

/// Runs a little work of the async kind from code that blocks, whether or not a runtime is around it.
fn wait_for<T: Send>(work: impl Future<Output = Result<T>> + Send) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    thread::scope(|scope| {
        let thread = scope.spawn(move || runtime.block_on(work));
        thread.join().map_err(|_| anyhow!("the work panicked"))?
    })
}
