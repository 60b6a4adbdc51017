//! The user that Postgres runs as.

use std::os::unix::fs::{DirBuilderExt, MetadataExt, lchown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{fs, io};

use anyhow::{Context, Result, bail};
use nix::unistd::{Gid, Uid, User};

/// A user and its group. Postgres refuses to run as root, so root runs it as another user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Account {
    pub(super) uid: Uid,
    pub(super) gid: Gid,
    pub(super) name: String,
}

impl Account {
    /// Chooses the user that runs Postgres: the caller, or for root the first of the owner of the existing
    /// cluster, `postgres` and `nobody`. The owner comes first so that a cluster stays usable when a user
    /// `postgres` is added later.
    pub(super) fn for_cluster(pgdata: &Path) -> Result<Self> {
        let me = Uid::effective();
        if !me.is_root() {
            return Ok(Self::named(User::from_uid(me)?, me, Gid::effective()));
        }
        if let Ok(metadata) = fs::symlink_metadata(pgdata)
            && metadata.uid() != 0
        {
            let owner = Uid::from_raw(metadata.uid());
            return Ok(Self::named(User::from_uid(owner)?, owner, Gid::from_raw(metadata.gid())));
        }
        for name in ["postgres", "nobody"] {
            if let Some(user) = User::from_name(name)? {
                return Ok(Self { uid: user.uid, gid: user.gid, name: user.name });
            }
        }
        bail!(
            "Postgres does not run as root, and this machine has no user `postgres` or `nobody` to run it as: \
             start gleaner as an ordinary user, or set DATABASE_URL"
        )
    }

    /// A user id need not have a name, as in a container started with `--user 1234`.
    fn named(user: Option<User>, uid: Uid, gid: Gid) -> Self {
        let name = user.map_or_else(|| uid.to_string(), |u| u.name);
        Self { uid, gid, name }
    }

    /// Returns whether this user is not the caller, which only root can arrange.
    pub(super) fn is_dropped_to(&self) -> bool {
        self.uid != Uid::effective()
    }

    /// Returns the topmost folder on the way to `path` that this user cannot enter, or none if the user can
    /// reach `path` or the folder in which it would be made.
    pub(super) fn barrier(&self, path: &Path) -> Result<Option<PathBuf>> {
        // A path that may not even be examined exists.
        let nearest = path.ancestors().find(|p| p.try_exists().unwrap_or(true)).unwrap_or(path);
        if self.can_enter(nearest)? {
            return Ok(None);
        }
        let mut down: Vec<_> = nearest.ancestors().collect();
        down.reverse();
        for folder in down {
            if !self.can_enter(folder)? {
                return Ok(Some(folder.into()));
            }
        }
        Ok(Some(nearest.into()))
    }

    /// Tries to enter the folder as that user. Mode bits alone do not tell (access control lists, containers,
    /// mounts).
    fn can_enter(&self, folder: &Path) -> Result<bool> {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", ":"]).current_dir(folder).env_clear();
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        if self.is_dropped_to() {
            // Setting a user id also drops root's supplementary groups. The folder is entered after both.
            command.uid(self.uid.as_raw()).gid(self.gid.as_raw());
        }
        match command.status() {
            Ok(_) => Ok(true),
            // The root folder is open to everyone, so it was the change of user that was not permitted.
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied && folder == Path::new("/") => {
                Err(e).with_context(|| format!("cannot run programs as the user {}", self.name))
            }
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => Ok(false),
            Err(e) => {
                Err(e).with_context(|| format!("cannot look into {} as {}", folder.display(), self.name))
            }
        }
    }

    /// Makes a folder and its missing parents, all private to this user.
    pub(super) fn make_folders(&self, path: &Path) -> Result<()> {
        let mut missing: Vec<_> = path.ancestors().take_while(|p| !p.exists()).collect();
        missing.reverse();
        missing.into_iter().try_for_each(|folder| self.make_folder(folder))
    }

    /// Makes one folder, private to this user.
    pub(super) fn make_folder(&self, path: &Path) -> Result<()> {
        let made = fs::DirBuilder::new().mode(0o700).create(path).and_then(|()| self.own(path));
        made.with_context(|| format!("cannot make the folder {} as {}", path.display(), self.name))
    }

    /// Gives what was just made to this user. Symbolic links are not followed, since they could lead
    /// anywhere.
    pub(super) fn own(&self, path: &Path) -> io::Result<()> {
        if !self.is_dropped_to() {
            return Ok(());
        }
        lchown(path, Some(self.uid.as_raw()), Some(self.gid.as_raw()))
    }
}
