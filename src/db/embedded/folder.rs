//! The data folder: where it is, who has locked it, and what it contains.
//!
//! ```text
//! data/
//!   lock           locked by the running service; contains its process id
//!   pgdata/        the cluster
//!   socket/        the Unix socket, unless the path is too long for one
//!   postgres.log   the output of Postgres; older output is in postgres.log.1
//! ```

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{fs, process, thread};

use anyhow::{Context, Result, anyhow, bail};
use nix::fcntl::OFlag;

use super::account::Account;

/// The data folder if none is configured.
const DEFAULT: &str = "data";
/// The data folder for root if none is configured and the user that runs Postgres cannot reach [`DEFAULT`].
const DEFAULT_OF_ROOT: &str = "/var/lib/gleaner";
/// How long to wait for the lock, because the previous service may just be releasing it.
const PATIENCE: Duration = Duration::from_secs(1);

/// A data folder and the user that runs Postgres in it. Nothing has been made or locked yet.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    pub(super) account: Account,
}

impl Folder {
    /// Returns the configured folder or the default one, if the user that runs Postgres can reach it.
    pub(super) fn locate(configured: Option<&Path>) -> Result<Self> {
        let folder = Self::at(configured.unwrap_or(Path::new(DEFAULT)))?;
        let Some(barrier) = folder.account.barrier(&folder.path)? else {
            return Ok(folder);
        };
        if configured.is_none() && folder.account.is_dropped_to() {
            return Self::at(Path::new(DEFAULT_OF_ROOT));
        }
        bail!(
            "the data folder {} cannot be reached by the user {}, as whom Postgres runs: {} is closed to it; \
             open that folder (chmod o+x) or choose another with GLEANER_DATA_DIR",
            folder.path.display(),
            folder.account.name,
            barrier.display()
        )
    }

    fn at(path: &Path) -> Result<Self> {
        // Symbolic links are resolved, because that is how the system names the folder that a process is in.
        let path = path.canonicalize().or_else(|_| std::path::absolute(path))?;
        let account = Account::for_cluster(&path.join("pgdata"))?;
        Ok(Self { path, account })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn pgdata(&self) -> PathBuf {
        self.path.join("pgdata")
    }

    /// Returns the major version of the Postgres that made the cluster, or none if there is no cluster.
    pub(super) fn version(&self) -> Result<Option<u32>> {
        let file = self.pgdata().join("PG_VERSION");
        match fs::read_to_string(&file) {
            Ok(text) => {
                let version = text.trim().parse();
                Ok(Some(version.with_context(|| format!("{} does not contain a version", file.display()))?))
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e).with_context(|| self.not_ours()),
        }
    }

    /// Makes the folder if it is missing, and locks it. The error says which process holds the lock.
    pub(super) fn lock(&mut self) -> Result<Lock> {
        self.account.make_folders(&self.path)?;
        self.path = self.path.canonicalize()?;
        let path = self.path.join("lock");
        let mut file = open_no_link(OpenOptions::new().read(true).write(true).create(true), &path)
            .with_context(|| self.not_ours())?;
        self.account.own(&path)?;
        let begun = Instant::now();
        loop {
            match file.try_lock() {
                Ok(()) => break,
                Err(TryLockError::Error(e)) => {
                    return Err(e).context(format!("cannot lock {}", path.display()));
                }
                Err(TryLockError::WouldBlock) if begun.elapsed() < PATIENCE => {
                    thread::sleep(Duration::from_millis(10));
                }
                Err(TryLockError::WouldBlock) => return Err(self.held(&mut file)),
            }
        }
        file.set_len(0)?;
        writeln!(file, "{}", process::id())?;
        Ok(Lock { _file: file })
    }

    /// Returns whether a running service holds the lock.
    pub(super) fn is_locked(&self) -> Result<bool> {
        let file = match File::open(self.path.join("lock")) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(false),
            opened => opened.with_context(|| self.not_ours())?,
        };
        match file.try_lock_shared() {
            Ok(()) => Ok(false),
            Err(TryLockError::WouldBlock) => Ok(true),
            Err(TryLockError::Error(e)) => Err(e.into()),
        }
    }

    fn held(&self, lock: &mut File) -> anyhow::Error {
        let mut pid = String::new();
        let holder = match lock.read_to_string(&mut pid) {
            Ok(n) if n > 1 => format!("another gleaner (process {})", pid.trim()),
            _ => "another gleaner".to_owned(),
        };
        anyhow!(
            "the data folder {} is in use by {holder}: stop it first, or choose another folder with GLEANER_DATA_DIR",
            self.path.display()
        )
    }

    fn not_ours(&self) -> String {
        format!(
            "the user {} cannot use the data folder {}: choose another with GLEANER_DATA_DIR, or start gleaner as \
             the user it belongs to",
            self.account.name,
            self.path.display()
        )
    }
}

/// The lock of a data folder, released when dropped. The kernel releases it when the service is killed. No
/// Postgres that outlives the service can keep it, because the file is closed in every program started.
#[derive(Debug)]
pub(super) struct Lock {
    _file: File,
}

/// Opens a file in a folder that belongs to the user that runs Postgres. A symbolic link in the file's stead
/// must not lead root to another file.
pub(super) fn open_no_link(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    options.custom_flags(OFlag::O_NOFOLLOW.bits()).mode(0o600).open(path)
}
