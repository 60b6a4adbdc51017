//! A record of what was sent of a folder, so that only changes are sent again.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::cli::files;

/// The properties of a file that show, without reading it, that it has not changed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Seen {
    /// The file's size in bytes.
    pub(super) size: u64,
    /// The time of the file's last change, in Unix seconds.
    pub(super) modified: f64,
}

/// What is known of a file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct File {
    /// The properties of the file when it was read.
    pub(super) seen: Seen,
    /// The hash of the file's bytes. It is empty if the file is not sent.
    pub(super) hash: String,
}

impl File {
    /// Returns whether the service has the file's memories.
    pub(super) fn is_sent(&self) -> bool {
        !self.hash.is_empty()
    }
}

/// The files of a folder that were sent to one server or database.
#[derive(Debug)]
pub(super) struct Known {
    notes: PathBuf,
    files: BTreeMap<String, File>,
    /// The files that the service has refused since this program started.
    refused: BTreeMap<String, Seen>,
}

impl Known {
    /// Reads the record for the folder `root` and the server or database `name`. If the record cannot be read,
    /// everything is sent again.
    pub(super) fn open(state_dir: Option<&Path>, name: &str, root: &str) -> Result<Self> {
        let folder = match state_dir {
            Some(folder) => folder.to_owned(),
            None => files::home("XDG_STATE_HOME", ".local/state")?.join("gleaner"),
        };
        let hash = Sha256::digest(format!("{name}\n{root}"));
        let hash = files::hex(&hash[..8]);
        let notes = folder.join(format!("index-{hash}.json"));
        let known = files::read_text(&notes).ok().and_then(|text| serde_json::from_str(&text).ok());
        Ok(Self { notes, files: known.unwrap_or_default(), refused: BTreeMap::new() })
    }

    pub(super) fn get(&self, path: &str) -> Option<&File> {
        self.files.get(path)
    }

    /// Returns whether a file has not changed since it was read or refused.
    pub(super) fn is_same(&self, path: &str, seen: &Seen) -> bool {
        self.get(path).is_some_and(|known| known.seen == *seen) || self.refused.get(path) == Some(seen)
    }

    /// Notes that the service has refused a file for what it contains.
    pub(super) fn refuse(&mut self, path: String, seen: Seen) {
        self.refused.insert(path, seen);
    }

    pub(super) fn set(&mut self, path: String, seen: Seen, hash: String) {
        self.files.insert(path, File { seen, hash });
    }

    pub(super) fn remove(&mut self, path: &str) {
        self.files.remove(path);
    }

    /// Forgets the properties that show that files have not changed, but not that the files were sent.
    pub(super) fn forget_hashes(&mut self) {
        for file in self.files.values_mut() {
            file.seen.size = u64::MAX;
            if file.is_sent() {
                "sent".clone_into(&mut file.hash);
            }
        }
    }

    /// Returns the known files that are not in `paths`.
    pub(super) fn not_in(&self, paths: &BTreeSet<String>) -> Vec<String> {
        self.files.keys().filter(|path| !paths.contains(*path)).cloned().collect()
    }

    pub(super) fn save(&self) -> Result<()> {
        let text = serde_json::to_vec(&self.files)?;
        files::replace(&self.notes, &text).with_context(|| format!("writing {}", self.notes.display()))
    }
}
