//! The file `postmaster.pid`, in which a running Postgres describes itself and which a killed one leaves
//! behind.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{fs, process, thread};

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::folder::open_no_link;

/// The signals that stop a server without a service, and how long each may take: a fast shutdown, which
/// writes everything to disk, then an immediate one.
const STOP: [(Signal, Duration); 2] =
    [(Signal::SIGINT, Duration::from_mins(1)), (Signal::SIGQUIT, Duration::from_secs(10))];
/// The signals that stop what is left of a killed server, and how long each may take. It ends by itself
/// unless it is busy.
const STOP_REST: [(Signal, Duration); 3] = [
    (Signal::SIGCONT, Duration::from_secs(1)),
    (Signal::SIGQUIT, Duration::from_secs(5)),
    (Signal::SIGKILL, Duration::from_secs(5)),
];

/// The contents of `postmaster.pid`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Postmaster {
    pub(super) pid: Pid,
    /// The folder of the server's socket, once there is one.
    pub(super) socket: Option<PathBuf>,
    /// Whether the server accepts connections.
    pub(super) ready: bool,
}

impl Postmaster {
    /// Reads the file. Returns none if it is missing or makes no sense.
    pub(super) fn read(pgdata: &Path) -> Result<Option<Self>> {
        match fs::read(file(pgdata)) {
            Ok(text) => Ok(Self::parse(&String::from_utf8_lossy(&text))),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e).with_context(|| format!("cannot read {}", file(pgdata).display())),
        }
    }

    /// Parses the file, whose lines are: pid, data folder, time of start, port, socket folder, address,
    /// shared memory, status.
    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        let pid = lines.next()?.trim().parse().ok().filter(|pid| *pid > 0)?;
        let socket = lines.nth(3).filter(|line| !line.is_empty()).map(PathBuf::from);
        let ready = lines.nth(2).is_some_and(|status| status.trim() == "ready");
        Some(Self { pid: Pid::from_raw(pid), socket, ready })
    }

    /// Returns whether the process is alive and really a Postgres on this cluster, because process ids are
    /// reused.
    fn is_alive(&self, pgdata: &Path) -> bool {
        kill(self.pid, None).is_ok() && runs_on(self.pid, pgdata)
    }
}

/// Prepares for a new server: stops one that outlived its service, and keeps the file of a killed one from
/// being mistaken for that of a running server. The caller must hold the lock of the data folder.
pub(super) fn make_way(pgdata: &Path) -> Result<()> {
    let Some(orphan) = Postmaster::read(pgdata)? else {
        // The file makes no sense, as after a full disk, and Postgres would refuse to start because of it.
        return match fs::remove_file(file(pgdata)) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e.into()),
            _ => Ok(()),
        };
    };
    if orphan.is_alive(pgdata) {
        tracing::warn!(
            pid = orphan.pid.as_raw(),
            "stopping the Postgres that an earlier gleaner left running"
        );
        let alive = || {
            if orphan.is_alive(pgdata) { vec![orphan.pid] } else { vec![] }
        };
        stop(alive, &STOP, pgdata)?;
    }
    stop_rest(pgdata)?;
    disown(pgdata)
}

/// Stops the remaining sessions of a server that was killed.
pub(super) fn stop_rest(pgdata: &Path) -> Result<()> {
    stop(|| all_on(pgdata), &STOP_REST, pgdata)
}

/// Sends the signals in turn to all processes that still run, until none does.
fn stop(running: impl Fn() -> Vec<Pid>, signals: &[(Signal, Duration)], pgdata: &Path) -> Result<()> {
    for (signal, patience) in signals {
        for pid in running() {
            // A suspended process handles signals only once it continues.
            let _ = kill(pid, *signal).and_then(|()| kill(pid, Signal::SIGCONT));
        }
        let begun = Instant::now();
        while begun.elapsed() < *patience {
            if running().is_empty() {
                return Ok(());
            }
            thread::sleep(Duration::from_millis(5));
        }
    }
    bail!(
        "Postgres still runs on {} and does not stop (processes {:?}): end it by hand",
        pgdata.display(),
        running()
    )
}

/// Replaces the dead process id in a left `postmaster.pid` by our own. Postgres refuses to start while the
/// named process lives, and that id may by now be any process; its own parent it knows not to be a rival. The
/// rest of the file stays, because its shared memory key tells Postgres whether parts of the dead server
/// still run.
fn disown(pgdata: &Path) -> Result<()> {
    let path = file(pgdata);
    let text = match fs::read(&path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        read => read?,
    };
    let end = text.iter().position(|byte| *byte == b'\n').unwrap_or(text.len());
    let mut file = open_no_link(OpenOptions::new().write(true).truncate(true), &path)?;
    file.write_all(&[process::id().to_string().as_bytes(), &text[end..]].concat())?;
    Ok(())
}

fn file(pgdata: &Path) -> PathBuf {
    pgdata.join("postmaster.pid")
}

/// Returns whether a process belongs to a server on this cluster. Every process of a server has the cluster's
/// folder as its working folder, and all but the first have titles such as `postgres: checkpointer`.
#[cfg(target_os = "linux")]
fn runs_on(pid: Pid, pgdata: &Path) -> bool {
    let Ok(command) = fs::read(format!("/proc/{pid}/cmdline")) else {
        return false;
    };
    let program = command.split(|byte| *byte == 0).next().unwrap_or_default();
    let is_postgres = program.ends_with(b"postgres") || program.starts_with(b"postgres: ");
    is_postgres && fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|folder| folder == pgdata)
}

/// Returns all processes of servers on this cluster, including those whose postmaster was killed.
#[cfg(target_os = "linux")]
fn all_on(pgdata: &Path) -> Vec<Pid> {
    let processes = fs::read_dir("/proc").into_iter().flatten().filter_map(Result::ok);
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).map(Pid::from_raw);
    pids.filter(|pid| runs_on(*pid, pgdata)).collect()
}

#[cfg(not(target_os = "linux"))]
fn runs_on(pid: Pid, pgdata: &Path) -> bool {
    let listed = process::Command::new("ps").args(["-ww", "-o", "args=", "-p", &pid.to_string()]).output();
    let Ok(output) = listed else { return false };
    let command = String::from_utf8_lossy(&output.stdout);
    command.contains("postgres") && command.contains(&*pgdata.to_string_lossy())
}

/// Returns no processes on systems other than Linux. Postgres itself refuses to start as long as there are
/// some.
#[cfg(not(target_os = "linux"))]
fn all_on(_pgdata: &Path) -> Vec<Pid> {
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_of_a_running_server_is_understood() {
        let text = "4711\n/data/pgdata\n1700000000\n5432\n/data/socket\n\n  5432001    163840\nready   \n";
        let expected =
            Postmaster { pid: Pid::from_raw(4711), socket: Some("/data/socket".into()), ready: true };
        assert_eq!(Postmaster::parse(text), Some(expected));
    }

    #[test]
    fn the_file_of_a_starting_server_is_understood() {
        let expected = Postmaster { pid: Pid::from_raw(4711), socket: None, ready: false };
        assert_eq!(Postmaster::parse("4711\n/data/pgdata\n1700000000\n5432\n"), Some(expected));
    }

    #[test]
    fn nonsense_is_no_server() {
        for text in ["", "\n", "abc\n", "-1\n", "0\n"] {
            assert_eq!(Postmaster::parse(text), None, "{text:?}");
        }
    }
}
