//! Work in the data folder: making the cluster, and running a server on it.

use std::ffi::OsString;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use sqlx::postgres::PgConnectOptions;

use super::child::Launcher;
use super::database::{connect_options, make_database};
use super::folder::{Folder, Lock};
use super::log::Log;
use super::programs::Programs;
use super::server::{Launch, Server};
use super::socket::SocketFolder;
use super::{PORT, Settings, postmaster, wait_for};

/// The locale of the cluster. Its character type decides which characters `pg_trgm` takes for letters.
const LOCALE: &str = if cfg!(target_os = "macos") { "en_US.UTF-8" } else { "C.UTF-8" };

/// A locked data folder and the programs that work in it.
#[derive(Debug)]
pub(super) struct Home {
    pub(super) folder: Folder,
    /// The major version of the Postgres that made the cluster; none if the cluster is still to be made.
    pub(super) version: Option<u32>,
    programs: Programs,
    launcher: Launcher,
    _lock: Lock,
}

impl Home {
    pub(super) fn open(settings: &Settings) -> Result<Self> {
        let mut folder = Folder::locate(settings.data_dir.as_deref())?;
        let version = folder.version()?;
        // The programs are found before anything is made, so that nothing is left behind where there is no
        // Postgres.
        let programs = Programs::find(settings, version)?;
        let lock = folder.lock()?;
        let program = settings.launcher.clone();
        let launcher = Launcher { program, account: folder.account.clone(), folder: folder.path().into() };
        Ok(Self { folder, version, programs, launcher, _lock: lock })
    }

    /// Makes a cluster with its database. It has a temporary name until it is complete. Syncing a thousand
    /// small files one by one takes seconds on a busy machine, so they are synced together at the end.
    pub(super) fn make_cluster(&self, durable: bool) -> Result<()> {
        let new = self.folder.path().join("pgdata.new");
        if new.exists() {
            postmaster::make_way(&new)?;
            fs::remove_dir_all(&new)
                .with_context(|| format!("cannot remove the unfinished {}", new.display()))?;
        }
        tracing::info!(folder = %self.folder.path().display(), "making a new Postgres cluster");
        self.folder.account.make_folder(&new)?;
        let coded = ["--encoding=UTF8", "--locale", LOCALE];
        let access = ["--username=postgres", "--auth-local=trust", "--auth-host=reject"];
        self.initdb(&new, &[&["--no-sync"], &coded[..], &access[..]].concat())?;
        drop(self.run(&new, false)?);
        if durable {
            #[cfg(target_os = "linux")]
            nix::unistd::syncfs(fs::File::open(&new)?).context("cannot write the new cluster to the disk")?;
            #[cfg(not(target_os = "linux"))]
            self.initdb(&new, &["--sync-only"])?;
        }
        fs::rename(&new, self.folder.pgdata()).context("cannot name the new cluster pgdata")?;
        if durable {
            fs::File::open(self.folder.path())?.sync_all()?;
        }
        Ok(())
    }

    fn initdb(&self, pgdata: &Path, args: &[&str]) -> Result<()> {
        let mut command = self.launcher.command(&self.programs.path("initdb"));
        let output = command.arg("-D").arg(pgdata).args(args).output().context("cannot run initdb")?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            bail!("initdb could not make a cluster. It said:\n{}", said.trim_end());
        }
        Ok(())
    }

    /// Starts a server, and makes the database if it is missing.
    pub(super) fn run(&self, pgdata: &Path, durable: bool) -> Result<(Server, PgConnectOptions)> {
        let socket = SocketFolder::make(&self.folder)?;
        let options = connect_options(socket.path());
        let log = self.folder.path().join("postgres.log");
        let server = Server::start(Launch {
            launcher: self.launcher.clone(),
            program: self.programs.path("postgres"),
            args: server_args(pgdata, socket.path(), durable),
            pgdata: pgdata.into(),
            socket,
            log: Log::open(&log, &self.folder.account)
                .with_context(|| format!("cannot open {}", log.display()))?,
        })?;
        wait_for(make_database(&options)).context("cannot make the database in the private Postgres")?;
        Ok((server, options))
    }
}

/// Returns the options that override the cluster's own configuration.
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
        // Without fsync too, what is committed survives at least the end of Postgres.
        "synchronous_commit=on".to_owned(),
        format!("full_page_writes={on}"),
    ];
    let mut args: Vec<OsString> = vec!["-D".into(), pgdata.into()];
    args.extend(fixed.into_iter().flat_map(|setting| ["-c".into(), setting.into()]));
    args
}
