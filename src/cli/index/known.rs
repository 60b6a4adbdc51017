//! What was sent of a folder, written down so that only what has changed is sent again.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::cli::files;

/// What tells without reading it that a file has not changed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Seen {
    /// The file's size in bytes.
    pub(super) size: u64,
    /// When the file was last changed, in Unix seconds.
    pub(super) modified: f64,
}

/// What is known of a file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct File {
    /// How the file looked when it was read.
    pub(super) seen: Seen,
    /// The hash of its bytes; empty if it is none that is sent.
    pub(super) hash: String,
}

impl File {
    /// Whether the service knows the file.
    pub(super) fn is_sent(&self) -> bool {
        !self.hash.is_empty()
    }
}

/// The files of a folder that were sent to one place.
#[derive(Debug)]
pub(super) struct Known {
    notes: PathBuf,
    files: BTreeMap<String, File>,
}

impl Known {
    /// Reads what was written down about `root` and the place that is called `name`. Notes that cannot be read count as none: all
    /// is sent again then.
    pub(super) fn open(state_dir: Option<&Path>, name: &str, root: &str) -> Result<Self> {
        let folder = match state_dir {
            Some(folder) => folder.to_owned(),
            None => files::home("XDG_STATE_HOME", ".local/state")?.join("gleaner"),
        };
        let hash = Sha256::digest(format!("{name}\n{root}"));
        let hash = files::hex(&hash[..8]);
        let notes = folder.join(format!("index-{hash}.json"));
        let known = files::read_text(&notes).ok().and_then(|text| serde_json::from_str(&text).ok());
        Ok(Self { notes, files: known.unwrap_or_default() })
    }

    pub(super) fn get(&self, path: &str) -> Option<&File> {
        self.files.get(path)
    }

    pub(super) fn set(&mut self, path: String, seen: Seen, hash: String) {
        self.files.insert(path, File { seen, hash });
    }

    pub(super) fn remove(&mut self, path: &str) {
        self.files.remove(path);
    }

    /// Forgets what tells that files have not changed, but not that they were sent.
    pub(super) fn forget_hashes(&mut self) {
        for file in self.files.values_mut().filter(|file| file.is_sent()) {
            file.seen.size = u64::MAX;
            "sent".clone_into(&mut file.hash);
        }
    }

    /// The files that are known and not among these.
    pub(super) fn not_in(&self, paths: &BTreeSet<String>) -> Vec<String> {
        self.files.keys().filter(|path| !paths.contains(*path)).cloned().collect()
    }

    pub(super) fn save(&self) -> Result<()> {
        let text = serde_json::to_vec(&self.files)?;
        files::replace(&self.notes, &text).with_context(|| format!("writing {}", self.notes.display()))
    }
}
