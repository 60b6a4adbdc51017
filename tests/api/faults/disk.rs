//! A disk of the test's own, which can be filled.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::PathBuf;
use std::process::Command;

use tempfile::TempDir;

use crate::support::server::folder;

/// A file system in memory, gone when dropped.
pub(super) struct Disk {
    pub(super) folder: TempDir,
}

impl Disk {
    /// Makes a disk of so many MiB. None, with a message, where this process may not.
    pub(super) fn mount(mebibytes: u32) -> Option<Self> {
        let disk = Self { folder: folder() };
        let options = format!("size={mebibytes}m,mode=0755");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &options, "tmpfs"])
            .arg(disk.folder.path())
            .output()
            .is_ok_and(|output| output.status.success());
        if !mounted {
            eprintln!("skipped: this user may not mount a file system that can be filled");
        }
        mounted.then_some(disk)
    }

    /// Takes all the space that is left.
    pub(super) fn fill(&self) {
        let mut file = File::create(self.ballast()).expect("a file");
        // To the last page.
        for size in [1 << 20, 4 << 10] {
            while file.write_all(&vec![1; size]).is_ok() {}
        }
    }

    /// Gives the space back.
    pub(super) fn free(&self) {
        fs::remove_file(self.ballast()).expect("it was filled");
    }

    fn ballast(&self) -> PathBuf {
        self.folder.path().join("ballast")
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Who still has a file open there does not hold it up.
        let _ = Command::new("umount").arg("--lazy").arg(self.folder.path()).output();
    }
}
