//! The search for transcripts in folders.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::DirEntryExt as _;
use std::path::{Path, PathBuf};

use crate::agents;

/// How many levels deep folders are looked through.
const DEPTH: usize = 8;

/// The files that are in the folders.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// The transcripts, in the order of their paths.
    pub(super) transcripts: Vec<PathBuf>,
    /// Transcripts that are skipped because their names are not UTF-8.
    pub(super) unnamed: Vec<PathBuf>,
    /// All files by their inode, by which a file that is renamed is known again.
    pub(super) by_inode: HashMap<u64, PathBuf>,
}

/// Looks through `folders`, skipping what cannot be read.
pub(super) fn scan(folders: &[PathBuf]) -> Found {
    let mut found = Found::default();
    for folder in folders {
        look(folder, DEPTH, &mut found);
    }
    found.transcripts.sort();
    found.transcripts.dedup();
    found
}

fn look(folder: &Path, depth: usize, found: &mut Found) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let path = entry.path();
        match entry.file_type() {
            Ok(kind) if kind.is_dir() && depth > 0 => look(&path, depth - 1, found),
            Ok(kind) if kind.is_file() => {
                let is_lines = path.extension().is_some_and(|extension| extension == "jsonl");
                let is_transcript = is_lines && agents::of_transcript(&path).is_some();
                if is_transcript && path.to_str().is_none() {
                    // It could neither be named to a server nor written down.
                    found.unnamed.push(path);
                    continue;
                }
                if is_transcript {
                    found.transcripts.push(path.clone());
                }
                found.by_inode.insert(entry.ino(), path);
            }
            _ => {}
        }
    }
}
