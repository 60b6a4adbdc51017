//! How far each transcript was sent, in a file that outlives the watcher.

use std::collections::BTreeMap;
use std::fs::{self, File, Metadata, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::lines::Lines;
use super::mark::Mark;
use super::scan::Found;
use crate::cli::files;

/// How long what was sent may go unwritten: after a crash so much is sent again.
const SAVE: Duration = Duration::from_secs(1);

/// How much of a transcript was sent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Position {
    /// The name of the transcript where it is sent: the path under which it was first seen.
    source: String,
    device: u64,
    inode: u64,
    /// How many bytes were sent.
    offset: u64,
    /// The hash of the mark of those bytes.
    mark: String,
}

impl Position {
    /// The mark of what was sent, if `file` is the one it was sent from, perhaps grown since.
    fn mark_in(&self, file: &File, metadata: &Metadata) -> io::Result<Option<Mark>> {
        if !self.is_numbered(metadata) || metadata.len() < self.offset {
            return Ok(None);
        }
        Ok(Some(Mark::of(file, self.offset)?).filter(|mark| mark.hash() == self.mark))
    }

    fn is_numbered(&self, metadata: &Metadata) -> bool {
        (self.device, self.inode) == (metadata.dev(), metadata.ino())
    }
}

/// The name of a transcript where it is sent: its path, or the end of one that is longer than servers take.
fn source(path: &Path) -> String {
    const MOST: usize = 1_000;
    let path = path.to_string_lossy();
    let cut = path.chars().count().saturating_sub(MOST);
    path.chars().skip(cut).collect()
}

/// How far all transcripts were sent to one destination.
pub(super) struct Positions {
    path: PathBuf,
    /// The lock that is held as long as this watcher lives.
    _lock: File,
    positions: BTreeMap<PathBuf, Position>,
    changed: bool,
    saved: Instant,
}

impl Positions {
    /// Reads the positions that are written down in `folder` for the destination of that name, or begins anew.
    pub(super) fn open(folder: &Path, destination: &str, from_start: bool) -> Result<Self> {
        fs::create_dir_all(folder).with_context(|| format!("making the folder {}", folder.display()))?;
        let name = files::hex(&Sha256::digest(destination)[..8]);
        let path = folder.join(format!("watch-{name}.json"));
        let lock = File::create(path.with_extension("lock"))
            .with_context(|| format!("writing to the folder {}", folder.display()))?;
        match lock.try_lock() {
            Err(TryLockError::WouldBlock) => bail!("another gleaner watch already sends to {destination}"),
            result => result?,
        }
        let mut positions = BTreeMap::new();
        if !from_start {
            match fs::read(&path) {
                Ok(text) => {
                    positions = serde_json::from_slice(&text).with_context(|| {
                        format!("{} is damaged; remove it to send everything again", path.display())
                    })?;
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error).with_context(|| format!("reading {}", path.display())),
            }
        }
        Ok(Self { path, _lock: lock, positions, changed: from_start, saved: Instant::now() })
    }

    /// The lines of a file that were not sent, and the name to send them under: all of them, if it is new or was
    /// written anew.
    pub(super) fn unsent(
        &mut self,
        path: &Path,
        file: File,
        metadata: &Metadata,
    ) -> io::Result<(String, Lines)> {
        let known = self.positions.get(path);
        if let Some(position) = known
            && let Some(mark) = position.mark_in(&file, metadata)?
        {
            return Ok((position.source.clone(), Lines::new(file, position.offset, mark)));
        }
        let source = known.map_or_else(|| source(path), |position| position.source.clone());
        let (device, inode) = (metadata.dev(), metadata.ino());
        let position =
            Position { source: source.clone(), device, inode, offset: 0, mark: Mark::default().hash() };
        self.positions.insert(path.to_owned(), position);
        self.changed = true;
        Ok((source, Lines::new(file, 0, Mark::default())))
    }

    /// Notes that all was sent that `lines` has given.
    pub(super) fn advance(&mut self, path: &Path, lines: &Lines) {
        if let Some(position) = self.positions.get_mut(path) {
            position.offset = lines.offset();
            position.mark = lines.mark().hash();
            self.changed = true;
        }
    }

    /// Finds files that were renamed, so that what is left of them is sent under the name they had.
    pub(super) fn renamed(&mut self, found: &Found) {
        let moved = self.positions.iter().filter_map(|(path, position)| {
            let there = found.by_inode.get(&position.inode).filter(|there| *there != path)?;
            let here = fs::metadata(path).is_ok_and(|metadata| position.is_numbered(&metadata));
            let file = File::open(there).ok().filter(|_| !here && !self.positions.contains_key(there))?;
            position.mark_in(&file, &file.metadata().ok()?).ok()??;
            Some((path.clone(), there.clone()))
        });
        for (old, new) in moved.collect::<Vec<_>>() {
            if let Some(position) = self.positions.remove(&old) {
                self.positions.insert(new, position);
                self.changed = true;
            }
        }
    }

    /// Files that are followed though their name is no longer that of a transcript.
    pub(super) fn elsewhere(&self, found: &Found) -> Vec<PathBuf> {
        let is_there = |path: &&PathBuf| found.by_inode.values().any(|there| there == *path);
        let is_listed = |path: &&PathBuf| found.transcripts.binary_search(path).is_ok();
        self.positions.keys().filter(|path| !is_listed(path)).filter(is_there).cloned().collect()
    }

    /// Forgets files that are gone from folders that are there.
    pub(super) fn forget(&mut self, found: &Found, folders: &[PathBuf]) {
        let before = self.positions.len();
        let there = |path: &Path| folders.iter().any(|folder| path.starts_with(folder) && folder.is_dir());
        self.positions
            .retain(|path, _| found.transcripts.binary_search(path).is_ok() || !there(path) || path.exists());
        self.changed |= self.positions.len() != before;
    }

    /// Writes the positions down, if that was not done just now.
    pub(super) fn save_soon(&mut self) -> Result<()> {
        if self.saved.elapsed() < SAVE { Ok(()) } else { self.save() }
    }

    /// Writes the positions down.
    pub(super) fn save(&mut self) -> Result<()> {
        if self.changed {
            let text = serde_json::to_vec_pretty(&self.positions).context("a path is not UTF-8")?;
            files::replace(&self.path, &text).with_context(|| format!("writing {}", self.path.display()))?;
            self.changed = false;
        }
        self.saved = Instant::now();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;
    use crate::cli::watch::scan::scan;

    /// A folder of transcripts and one of positions.
    struct Folders {
        folder: tempfile::TempDir,
        state: tempfile::TempDir,
    }

    impl Folders {
        fn new() -> Self {
            let folder = || tempfile::tempdir().expect("a folder");
            Self { folder: folder(), state: folder() }
        }

        fn path(&self, name: &str) -> PathBuf {
            self.folder.path().join(name)
        }

        fn write(&self, name: &str, text: &str) {
            fs::write(self.path(name), text).expect("writes");
        }

        fn append(&self, name: &str, text: &str) {
            let mut file = File::options().append(true).open(self.path(name)).expect("opens");
            file.write_all(text.as_bytes()).expect("writes");
        }

        /// Sends what is new, as a watcher does that starts and ends: names of sources, and what was sent.
        fn sent(&self) -> Vec<(String, String)> {
            let mut positions = Positions::open(self.state.path(), "test", false).expect("positions");
            let found = scan(&[self.folder.path().to_owned()]);
            positions.renamed(&found);
            let mut sent = Vec::new();
            for path in found.transcripts.iter().cloned().chain(positions.elsewhere(&found)) {
                let file = File::open(&path).expect("opens");
                let metadata = file.metadata().expect("metadata");
                let (source, mut lines) = positions.unsent(&path, file, &metadata).expect("reads");
                while let Some(piece) = lines.next().expect("reads") {
                    let name = Path::new(&source).file_name().expect("a name").to_string_lossy().into_owned();
                    sent.push((name, String::from_utf8(piece).expect("text")));
                    positions.advance(&path, &lines);
                }
            }
            positions.forget(&found, &[self.folder.path().to_owned()]);
            positions.save().expect("saves");
            sent
        }

        #[track_caller]
        fn expect(&self, expected: &[(&str, &str)]) {
            let sent = self.sent();
            let sent: Vec<_> = sent.iter().map(|(source, text)| (source.as_str(), text.as_str())).collect();
            assert_eq!(sent, expected);
            assert_eq!(self.sent(), [], "sent again");
        }
    }

    #[test]
    fn only_what_is_new_is_sent() {
        let folders = Folders::new();
        folders.expect(&[]);
        folders.write("a.jsonl", "1\n2\n3");
        folders.write("a.txt", "no\n");
        folders.expect(&[("a.jsonl", "1\n2\n")]);
        folders.append("a.jsonl", "3\n");
        folders.write("b.jsonl", "4\n");
        folders.expect(&[("a.jsonl", "33\n"), ("b.jsonl", "4\n")]);
    }

    #[test]
    fn a_file_that_was_cut_or_written_anew_is_sent_from_its_beginning() {
        let folders = Folders::new();
        folders.write("a.jsonl", "1\n2\n3\n");
        folders.expect(&[("a.jsonl", "1\n2\n3\n")]);
        folders.write("a.jsonl", "1\n");
        folders.expect(&[("a.jsonl", "1\n")]);
        folders.write("a.jsonl", "5\n6\n7\n8\n");
        folders.expect(&[("a.jsonl", "5\n6\n7\n8\n")]);
        // Another file of the same name and beginning.
        folders.write("new", "5\n6\n7\n8\n9\n");
        fs::rename(folders.path("new"), folders.path("a.jsonl")).expect("renames");
        folders.expect(&[("a.jsonl", "5\n6\n7\n8\n9\n")]);
    }

    #[test]
    fn a_file_that_is_renamed_goes_on_under_its_first_name() {
        let folders = Folders::new();
        folders.write("a.jsonl", "1\n");
        folders.expect(&[("a.jsonl", "1\n")]);
        folders.append("a.jsonl", "2\n");
        fs::rename(folders.path("a.jsonl"), folders.path("a.jsonl.1")).expect("renames");
        folders.write("a.jsonl", "3\n");
        folders.expect(&[("a.jsonl", "3\n"), ("a.jsonl", "2\n")]);
        folders.append("a.jsonl.1", "4\n");
        fs::rename(folders.path("a.jsonl"), folders.path("b.jsonl")).expect("renames");
        folders.append("b.jsonl", "5\n");
        folders.expect(&[("a.jsonl", "5\n"), ("a.jsonl", "4\n")]);
    }

    #[test]
    fn a_file_that_is_gone_is_forgotten() {
        let folders = Folders::new();
        folders.write("a.jsonl", "1\n");
        folders.expect(&[("a.jsonl", "1\n")]);
        fs::remove_file(folders.path("a.jsonl")).expect("removes");
        folders.expect(&[]);
        folders.write("a.jsonl", "1\n");
        folders.expect(&[("a.jsonl", "1\n")]);
    }

    #[test]
    fn two_watchers_do_not_write_the_same_positions() {
        let folders = Folders::new();
        let _first = Positions::open(folders.state.path(), "test", false).expect("positions");
        assert!(Positions::open(folders.state.path(), "test", false).is_err());
        assert!(Positions::open(folders.state.path(), "elsewhere", false).is_ok());
    }
}
