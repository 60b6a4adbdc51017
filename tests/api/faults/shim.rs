//! A clock that jumps and a disk that is slow, for one server and its Postgres: a small library that is loaded before the C
//! library.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::support::server::{Server, gleaner};

/// The library, with the file that says what it does.
pub(super) struct Shim {
    library: PathBuf,
    control: File,
    control_path: PathBuf,
}

impl Shim {
    /// Compiles the library into this folder. None, with a message, where there is no compiler or the system is another.
    pub(super) fn build(folder: &TempDir) -> Option<Self> {
        let [source, library, control_path] =
            ["shim.c", "shim.so", "control"].map(|name| folder.path().join(name));
        fs::write(&source, include_str!("shim.c")).expect("a file");
        let mut compiler = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()));
        compiler.args(["-shared", "-fPIC", "-O1", "-o"]).args([&library, &source]);
        let is_built = cfg!(target_os = "linux") && compiler.status().is_ok_and(|status| status.success());
        if !is_built {
            eprintln!("skipped: there is no C compiler to build what moves the clock and slows the disk");
            return None;
        }
        fs::write(&control_path, [0; 16]).expect("a file");
        let control = File::options().write(true).open(&control_path).expect("the file is there");
        Some(Self { library, control, control_path })
    }

    /// Sets the clock ahead by so many seconds, or back.
    pub(super) fn clock_is_ahead_by(&self, seconds: i64) {
        self.control.write_all_at(&seconds.to_ne_bytes(), 0).expect("writes");
    }

    /// Makes every sync of a file take so many milliseconds longer.
    pub(super) fn disk_is_slower_by(&self, milliseconds: i64) {
        self.control.write_all_at(&(milliseconds * 1_000).to_ne_bytes(), 8).expect("writes");
    }

    /// Starts a server on this folder with the library in it, and in its Postgres.
    pub(super) fn start(&self, folder: &TempDir) -> Server {
        let programs = self.programs(folder);
        let mut command = gleaner(folder);
        command.args(["serve", "--bind", "127.0.0.1:0", "--pg-bindir"]).arg(programs);
        command.env("LD_PRELOAD", &self.library).env("SHIM_CONTROL", &self.control_path);
        Server::run(&mut command)
    }

    /// A folder with the programs of Postgres, each of which loads the library: they inherit no environment.
    fn programs(&self, folder: &TempDir) -> PathBuf {
        let programs = folder.path().join("bin");
        if programs.exists() {
            return programs;
        }
        // A server without the library says where the programs are.
        let plain = Server::start(folder);
        let program = fs::read_link(format!("/proc/{}/exe", Server::postgres(folder))).expect("its program");
        let real = program.parent().expect("a folder");
        plain.stop();
        fs::create_dir(&programs).expect("a folder");
        for name in ["postgres", "initdb"] {
            let script = format!(
                "#!/bin/sh\nLD_PRELOAD='{}' SHIM_CONTROL='{}' exec '{}' \"$@\"\n",
                self.library.display(),
                self.control_path.display(),
                real.join(name).display()
            );
            write_program(&programs.join(name), &script);
        }
        programs
    }
}

fn write_program(path: &Path, text: &str) {
    fs::write(path, text).expect("a file");
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("it is ours");
}
