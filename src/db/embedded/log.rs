//! The output of Postgres, kept in a file of bounded size, with the last lines in memory for error messages.

use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::account::Account;
use super::folder::open_no_link;

/// The size in bytes at which the file is set aside. With the one set aside before, twice as much is kept.
const FULL: u64 = 4 << 20;
/// How many bytes of one line are kept, because a statement in an error message can have any length.
const LONGEST_LINE: usize = 4096;
/// How many lines are kept in memory.
const TAIL: usize = 12;

/// A log file that is renamed to `….1` when full.
#[derive(Debug)]
pub(super) struct Log {
    path: PathBuf,
    owner: Account,
    file: File,
    size: u64,
}

impl Log {
    pub(super) fn open(path: &Path, owner: &Account) -> io::Result<Self> {
        let file = open_no_link(OpenOptions::new().append(true).create(true), path)?;
        owner.own(path)?;
        let size = file.metadata()?.len();
        Ok(Self { path: path.into(), owner: owner.clone(), file, size })
    }

    /// Adds a line. Errors are ignored, because a full disk must not stop the server.
    pub(super) fn write(&mut self, line: &[u8]) {
        if self.size >= FULL
            && let Err(error) = self.set_aside()
        {
            tracing::warn!(%error, "cannot set the log of Postgres aside");
            self.size = 0;
        }
        let line = &line[..line.len().min(LONGEST_LINE)];
        if self.file.write_all(line).and_then(|()| self.file.write_all(b"\n")).is_ok() {
            self.size += line.len() as u64 + 1;
        }
    }

    fn set_aside(&mut self) -> io::Result<()> {
        let mut old = self.path.clone().into_os_string();
        old.push(".1");
        fs::rename(&self.path, old)?;
        *self = Self::open(&self.path, &self.owner)?;
        Ok(())
    }
}

/// The last lines of output.
#[derive(Debug, Default)]
pub(super) struct Tail(VecDeque<String>);

impl Tail {
    pub(super) fn push(&mut self, line: &[u8]) {
        if self.0.len() == TAIL {
            self.0.pop_front();
        }
        self.0.push_back(String::from_utf8_lossy(&line[..line.len().min(LONGEST_LINE)]).into_owned());
    }

    /// Returns all of these lines, separated by newlines.
    pub(super) fn text(&self) -> String {
        self.0.iter().flat_map(|line| ["\n  ", line]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_does_not_grow_without_bound() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("postgres.log");
        let mut log = Log::open(&path, &Account::for_cluster(folder.path()).unwrap()).unwrap();
        let line = [b'x'; 2 * LONGEST_LINE];
        for _ in 0..(3 * FULL / LONGEST_LINE as u64) {
            log.write(&line);
        }
        let size = |name: &str| fs::metadata(folder.path().join(name)).unwrap().len();
        assert!(size("postgres.log") + size("postgres.log.1") <= 2 * (FULL + LONGEST_LINE as u64 + 1));
        assert_eq!(folder.path().read_dir().unwrap().count(), 2);
    }

    #[test]
    fn only_the_last_lines_are_at_hand() {
        let mut tail = Tail::default();
        for n in 0..100 {
            tail.push(format!("line {n}").as_bytes());
        }
        assert!(tail.text().starts_with("\n  line 88\n") && tail.text().ends_with("\n  line 99"));
    }
}
