//! The folder of the Unix socket.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::{env, fs};

use anyhow::{Context, Result, bail};
use nix::unistd::Uid;

use super::PORT;
use super::account::Account;
use super::folder::Folder;

/// The longest path of a socket in bytes. The system's limit is 108, or 104 on macOS, including the final
/// zero.
const LONGEST: usize = 100;

/// The prefix of the names of a socket and its lock; the port follows.
const SOCKET: &str = ".s.PGSQL.";

/// A folder that only root and the user that runs Postgres can enter, because whoever can enter it may
/// connect without a password. It is removed when dropped.
#[derive(Debug)]
pub(super) struct SocketFolder {
    path: PathBuf,
}

impl SocketFolder {
    /// Makes `socket` in the data folder, or a folder with a short name in the temporary folder if that path
    /// is too long.
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

    /// Removes what a killed server left. Its lock names a process id that may have been reused, which would
    /// keep Postgres from starting. The lock of the data folder proves that no server runs here.
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
        // The folder is not empty if Postgres could not be stopped. Then it stays, because it is in use.
        let _ = fs::remove_dir(&self.path);
    }
}

/// Returns whether a socket in this folder can be named, also in a list in the configuration of Postgres.
fn fits(folder: &Path) -> bool {
    let plain = |path: &str| !path.contains([',', '"']) && !path.contains(char::is_control);
    let length = folder.join(format!("{SOCKET}{PORT}")).as_os_str().len();
    length <= LONGEST && folder.to_str().is_some_and(plain)
}

/// Returns a name that belongs to this data folder alone, since no two have the same device and inode.
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

/// Checks that a folder in the temporary folder is ours, because anybody may have made one of this name
/// first.
fn check_private(path: &Path, account: &Account) -> Result<()> {
    let metadata =
        fs::symlink_metadata(path).with_context(|| format!("cannot look at {}", path.display()))?;
    if !metadata.is_dir() || metadata.mode() & 0o077 != 0 {
        bail!("{} is not a folder private to the user {}: remove it", path.display(), account.name);
    }
    match metadata.uid() {
        uid if uid == account.uid.as_raw() => Ok(()),
        // Root made the folder, and was interrupted before giving it to the user.
        uid if uid == Uid::effective().as_raw() => Ok(account.own(path)?),
        _ => bail!(
            "the folder {} for the socket of Postgres belongs to another user: remove it",
            path.display()
        ),
    }
}
