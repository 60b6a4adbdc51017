//! The folder of the Unix socket.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::{env, fs};

use anyhow::{Context, Result, bail};
use nix::unistd::Uid;

use super::PORT;
use super::account::Account;
use super::folder::Folder;

/// Longest path of a socket in bytes: the system's limit is 108, on macOS 104, with the final zero.
const LONGEST: usize = 100;

/// What the names of a socket and its lock begin with; the port follows.
const SOCKET: &str = ".s.PGSQL.";

/// A folder that only the user Postgres runs as (and root) can enter: who can enter it is let in without
/// a password. Removed when dropped.
#[derive(Debug)]
pub(super) struct SocketFolder {
    path: PathBuf,
}

impl SocketFolder {
    /// `socket` in the data folder, or where its path will not do, a short one in the temp folder.
    pub(super) fn make(folder: &Folder) -> Result<Self> {
        let near = folder.path().join("socket");
        let path = if fits(&near) { near } else { short_path(folder)? };
        if fs::symlink_metadata(&path).is_err() {
            folder.account.make_folder(&path)?;
        }
        check_private(&path, &folder.account)?;
        let made = Self { path };
        made.clear()?;
        Ok(made)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Removes what a killed server left. Its lock names a process id that may since be another's, which
    /// would keep Postgres from starting; that none is running here the data folder's lock has shown.
    pub(super) fn clear(&self) -> Result<()> {
        for entry in self.path.read_dir()? {
            let entry = entry?;
            if entry.file_name().as_encoded_bytes().starts_with(SOCKET.as_bytes()) {
                fs::remove_file(entry.path())?;
            }
        }
        Ok(())
    }
}

impl Drop for SocketFolder {
    fn drop(&mut self) {
        // Not empty when Postgres could not be stopped: then it stays, as it is in use.
        let _ = fs::remove_dir(&self.path);
    }
}

/// Whether a socket in this folder can be named, also in a list in the configuration of Postgres.
fn fits(folder: &Path) -> bool {
    let plain = |path: &str| !path.contains([',', '"']) && !path.contains(char::is_control);
    let length = folder.join(format!("{SOCKET}{PORT}")).as_os_str().len();
    length <= LONGEST && folder.to_str().is_some_and(plain)
}

/// A name that is the data folder's alone, since no two have the same device and inode.
fn short_path(folder: &Folder) -> Result<PathBuf> {
    let metadata = fs::metadata(folder.path())?;
    let name = format!("gleaner-{}-{:x}-{:x}", folder.account.uid, metadata.dev(), metadata.ino());
    for temp in [env::temp_dir(), "/tmp".into()] {
        let path = temp.join(&name);
        if fits(&path) && temp.is_absolute() && folder.account.barrier(&temp)?.is_none() {
            return Ok(path);
        }
    }
    bail!(
        "no folder for the Unix socket of Postgres: the path of {} is too long, and there is no short temp folder",
        folder.path().display()
    )
}

/// In the temp folder anybody may have made a folder of this name first.
fn check_private(path: &Path, account: &Account) -> Result<()> {
    let metadata =
        fs::symlink_metadata(path).with_context(|| format!("cannot look at {}", path.display()))?;
    if !metadata.is_dir() || metadata.mode() & 0o077 != 0 {
        bail!("{} is not a folder private to the user {}: remove it", path.display(), account.name);
    }
    match metadata.uid() {
        uid if uid == account.uid.as_raw() => Ok(()),
        // Root made it, and was interrupted before it gave it away.
        uid if uid == Uid::effective().as_raw() => Ok(account.own(path)?),
        _ => bail!(
            "the folder {} for the socket of Postgres belongs to another user: remove it",
            path.display()
        ),
    }
}
