//! `postmaster.pid`, in which a running Postgres says where it is, and what a killed one leaves behind.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{fs, process, thread};

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::folder::open_no_link;

/// What stops a server that nobody waits for, and how long it may take: to write out all it has in memory,
/// then to drop everything.
const STOP: [(Signal, Duration); 2] =
    [(Signal::SIGINT, Duration::from_mins(1)), (Signal::SIGQUIT, Duration::from_secs(10))];
/// The same for the rest of a server that was killed: it ends by itself unless it is busy.
const STOP_REST: [(Signal, Duration); 3] = [
    (Signal::SIGCONT, Duration::from_secs(1)),
    (Signal::SIGQUIT, Duration::from_secs(5)),
    (Signal::SIGKILL, Duration::from_secs(5)),
];

/// What `postmaster.pid` says.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Postmaster {
    pub(super) pid: Pid,
    /// The folder of its socket, once it has one.
    pub(super) socket: Option<PathBuf>,
    /// Whether it accepts connections.
    pub(super) ready: bool,
}

impl Postmaster {
    /// Nothing when there is no such file, or none that makes sense.
    pub(super) fn read(pgdata: &Path) -> Result<Option<Self>> {
        match fs::read(file(pgdata)) {
            Ok(text) => Ok(Self::parse(&String::from_utf8_lossy(&text))),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e).with_context(|| format!("cannot read {}", file(pgdata).display())),
        }
    }

    /// The lines: pid, data folder, time of start, port, socket folder, address, shared memory, status.
    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        let pid = lines.next()?.trim().parse().ok().filter(|pid| *pid > 0)?;
        let socket = lines.nth(3).filter(|line| !line.is_empty()).map(PathBuf::from);
        let ready = lines.nth(2).is_some_and(|status| status.trim() == "ready");
        Some(Self { pid: Pid::from_raw(pid), socket, ready })
    }

    /// Whether the process is alive and really a Postgres on this cluster: a process id is soon another's.
    fn is_alive(&self, pgdata: &Path) -> bool {
        kill(self.pid, None).is_ok() && runs_on(self.pid, pgdata)
    }
}

/// Makes way for a new server: stops one that outlived its service, and keeps what a killed one left from
/// being mistaken for one that runs. The caller holds the lock of the data folder.
pub(super) fn make_way(pgdata: &Path) -> Result<()> {
    let Some(orphan) = Postmaster::read(pgdata)? else {
        // Nothing to be made sense of, as after a full disk: Postgres would refuse to start over it.
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

/// Stops the sessions of a server that was killed.
pub(super) fn stop_rest(pgdata: &Path) -> Result<()> {
    stop(|| all_on(pgdata), &STOP_REST, pgdata)
}

/// Sends the signals in turn, each to all that still run, until none does.
fn stop(running: impl Fn() -> Vec<Pid>, signals: &[(Signal, Duration)], pgdata: &Path) -> Result<()> {
    for (signal, patience) in signals {
        for pid in running() {
            // It may also have been suspended.
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

/// Writes our own process id over the dead one's in a left `postmaster.pid`. Postgres refuses to start while
/// the named process lives, and it may by now be any other; its own parent it knows to be no rival. The rest
/// stays: by the key in it Postgres finds out whether parts of the dead server still run.
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

/// Every process of a Postgres server stays in its cluster's folder; all but the first name themselves
/// after what they do (`postgres: checkpointer`).
#[cfg(target_os = "linux")]
fn runs_on(pid: Pid, pgdata: &Path) -> bool {
    let Ok(command) = fs::read(format!("/proc/{pid}/cmdline")) else {
        return false;
    };
    let program = command.split(|byte| *byte == 0).next().unwrap_or_default();
    let is_postgres = program.ends_with(b"postgres") || program.starts_with(b"postgres: ");
    is_postgres && fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|folder| folder == pgdata)
}

/// All processes of servers on this cluster, also those whose postmaster was killed.
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

/// Nobody to be found. Postgres itself refuses to start as long as there are some.
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
