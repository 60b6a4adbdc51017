//! One running Postgres: started, watched, started again when it dies, and stopped.

use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::child::Launcher;
use super::log::{Log, Tail};
use super::postmaster::{self, Postmaster};
use super::socket::SocketFolder;

/// How long a start may take. After a crash, Postgres first replays up to a gigabyte of its log.
const START: Duration = Duration::from_mins(5);
/// How often a slow start is logged.
const REPORT: Duration = Duration::from_secs(10);
/// The signals that stop a server, and how long each may take: fast shutdown, immediate shutdown, kill.
const STOP: [(Signal, Duration); 3] = [
    (Signal::SIGINT, Duration::from_secs(30)),
    (Signal::SIGQUIT, Duration::from_secs(10)),
    (Signal::SIGKILL, Duration::from_secs(5)),
];
/// The delay before the first restart and the longest delay. It doubles from one restart to the next.
const RESTART: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(10));
/// After running for this long, a server that dies is restarted with the first delay again.
const STEADY: Duration = Duration::from_mins(1);

/// A server that is kept running until dropped.
#[derive(Debug)]
pub(super) struct Server {
    shared: Arc<Shared>,
    pgdata: PathBuf,
}

/// The parameters of a start, used for the first one and for restarts.
#[derive(Debug)]
pub(super) struct Launch {
    pub(super) launcher: Launcher,
    pub(super) program: PathBuf,
    pub(super) args: Vec<OsString>,
    pub(super) pgdata: PathBuf,
    pub(super) socket: SocketFolder,
    pub(super) log: Log,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// The running server, forgotten as soon as it ends, because its process id may then be reused.
    pid: Option<Pid>,
    /// Whether the start has succeeded, so that the server is restarted when it dies.
    keep: bool,
    stopping: bool,
    /// Whether the supervising thread has ended.
    ended: bool,
    tail: Tail,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Server {
    /// Starts the server and waits until it accepts connections.
    pub(super) fn start(launch: Launch) -> Result<Self> {
        let shared = Arc::new(Shared::default());
        let server = Self { shared: Arc::clone(&shared), pgdata: launch.pgdata.clone() };
        // The child gets a signal when the thread that started it ends, so this thread lives as long as the
        // server.
        thread::Builder::new().name("postgres".to_owned()).spawn(move || supervise(launch, &shared))?;
        server.wait_until_ready()?;
        Ok(server)
    }

    /// Makes the server restart from now on when it dies.
    pub(super) fn keep(&self) {
        self.shared.lock().keep = true;
    }

    /// Returns the process id, unless the server has just died.
    pub(super) fn pid(&self) -> Option<Pid> {
        self.shared.lock().pid
    }

    fn wait_until_ready(&self) -> Result<()> {
        let begun = Instant::now();
        let mut report = REPORT;
        while begun.elapsed() < START {
            let state = self.shared.lock();
            if state.ended {
                bail!("Postgres did not start. It said:{}", state.tail.text());
            }
            let pid = state.pid;
            drop(state);
            if let Some(postmaster) = Postmaster::read(&self.pgdata)?
                && Some(postmaster.pid) == pid
                && postmaster.ready
            {
                return Ok(());
            }
            if begun.elapsed() > report {
                tracing::info!("Postgres is still starting, as after a crash of the machine");
                report += REPORT;
            }
            thread::sleep(Duration::from_millis(3));
        }
        Err(anyhow!("Postgres did not get ready in {START:?}. It said:{}", self.shared.lock().tail.text()))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.stopping = true;
        for (signal, patience) in STOP {
            if state.ended {
                return;
            }
            if let Some(pid) = state.pid {
                let _ = kill(pid, signal);
            }
            self.shared.changed.notify_all();
            let waited = self.shared.changed.wait_timeout_while(state, patience, |state| !state.ended);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        tracing::error!("Postgres does not stop");
    }
}

/// Runs the server until it is stopped, or until it ends before its start has succeeded.
fn supervise(mut launch: Launch, shared: &Shared) {
    let mut wait = RESTART.0;
    loop {
        let begun = Instant::now();
        if let Err(error) = run(&mut launch, shared) {
            shared.lock().tail.push(format!("{error:#}").as_bytes());
        }
        let mut state = shared.lock();
        if state.keep && !state.stopping {
            tracing::error!(
                "Postgres stopped unexpectedly and is started again. It said:{}",
                state.tail.text()
            );
            if begun.elapsed() > STEADY {
                wait = RESTART.0;
            }
            let waited = shared.changed.wait_timeout_while(state, wait, |state| !state.stopping);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            wait = RESTART.1.min(wait * 2);
        }
        if state.stopping || !state.keep {
            break;
        }
    }
    // The socket's folder is removed before anybody learns that the server has ended.
    drop(launch);
    shared.lock().ended = true;
    shared.changed.notify_all();
}

/// Runs the server once.
fn run(launch: &mut Launch, shared: &Shared) -> Result<()> {
    postmaster::make_way(&launch.pgdata)?;
    launch.socket.clear()?;
    let mut command = launch.launcher.command(&launch.program);
    command.args(&launch.args).stdout(Stdio::null()).stderr(Stdio::piped());

    let mut state = shared.lock();
    if state.stopping {
        return Ok(());
    }
    let mut child = command.spawn().with_context(|| format!("cannot run {}", named(&command)))?;
    state.pid = Some(Pid::from_raw(child.id().try_into()?));
    drop(state);

    let said = BufReader::new(child.stderr.take().context("no pipe")?);
    thread::scope(|scope| {
        scope.spawn(|| note(said, &mut launch.log, shared));
        let ended = child.wait();
        shared.lock().pid = None;
        // The sessions of a killed server may outlive it, and no other server can start before they end. When
        // the last of them ends the pipe closes, which is what the scope waits for.
        postmaster::stop_rest(&launch.pgdata)?;
        ended?;
        Ok(())
    })
}

/// Logs the server's output until all of its processes have ended.
fn note(mut said: impl BufRead, log: &mut Log, shared: &Shared) {
    let mut line = Vec::new();
    while said.read_until(b'\n', &mut line).unwrap_or(0) > 0 {
        let text = line.trim_ascii_end();
        log.write(text);
        shared.lock().tail.push(text);
        line.clear();
    }
}

fn named(command: &Command) -> String {
    command.get_program().display().to_string()
}
