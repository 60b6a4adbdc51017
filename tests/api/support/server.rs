//! The program as a process, for the tests that start it, load it and kill it.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use axum::http::StatusCode;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tempfile::TempDir;

/// A folder for data that also the user whom Postgres runs as under root can reach.
pub(crate) fn folder() -> TempDir {
    let folder = tempfile::tempdir_in("/tmp").expect("a temporary folder");
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755))
        .expect("a folder to be entered");
    folder
}

pub(crate) fn gleaner(folder: &TempDir) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gleaner"));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("GLEANER_")) {
        command.env_remove(name);
    }
    for name in ["DATABASE_URL", "DATABASE_URL_FILE", "CLAUDE_CONFIG_DIR", "CODEX_HOME", "XDG_STATE_HOME"] {
        command.env_remove(name);
    }
    // Nobody listens on the port of discard, so commands find no server that the test has not named.
    command.env("HOME", folder.path()).env("GLEANER_BIND", "127.0.0.1:9");
    command.env("GLEANER_DATA_DIR", folder.path().join("data"));
    command
}

/// A running server, killed when dropped.
pub(crate) struct Server {
    process: Child,
    client: Client,
    pub(crate) address: String,
}

impl Server {
    pub(crate) fn start(folder: &TempDir) -> Self {
        Self::start_at(folder, "127.0.0.1:0")
    }

    pub(crate) fn start_at(folder: &TempDir, address: &str) -> Self {
        Self::run(gleaner(folder).args(["serve", "--bind", address]))
    }

    /// A server with further variables in its environment.
    pub(crate) fn start_with(folder: &TempDir, environment: &[(&str, &str)]) -> Self {
        let mut command = gleaner(folder);
        Self::run(command.args(["serve", "--bind", "127.0.0.1:0"]).envs(environment.iter().copied()))
    }

    /// A server that gets no more than so many KiB of address space.
    pub(crate) fn start_within(folder: &TempDir, address_space: u64, arguments: &[&str]) -> Self {
        let gleaner = gleaner(folder);
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("ulimit -v {address_space}; exec \"$0\" \"$@\"")]);
        shell.arg(gleaner.get_program()).args(["serve", "--bind", "127.0.0.1:0"]).args(arguments);
        for (name, value) in gleaner.get_envs() {
            match value {
                Some(value) => shell.env(name, value),
                None => shell.env_remove(name),
            };
        }
        Self::run(&mut shell)
    }

    /// A server that writes its log into a file, whose path is returned.
    pub(crate) fn start_logged(folder: &TempDir) -> (Self, PathBuf) {
        let log = folder.path().join("log");
        let mut command = gleaner(folder);
        command.args(["serve", "--bind", "127.0.0.1:0"]);
        command.stderr(Stdio::from(fs::File::create(&log).expect("a file")));
        (Self::run(&mut command), log)
    }

    /// Runs a command that serves.
    pub(crate) fn run(command: &mut Command) -> Self {
        let mut process = command.stdout(Stdio::piped()).spawn().expect("gleaner starts");
        let mut line = String::new();
        BufReader::new(process.stdout.take().expect("piped")).read_line(&mut line).expect("a line");
        let address =
            line.split_once("http://").and_then(|(_, rest)| rest.split(' ').next()).expect(&line).to_owned();
        Self { process, client: Client::new(), address }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.process.id().try_into().expect("a process id"));
        kill(pid, signal).expect("the server is there");
    }

    /// The most memory that it has used so far, in KiB.
    pub(crate) fn peak(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process.id())).expect("it runs");
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect(&status);
        peak.trim().trim_end_matches(" kB").parse().expect(peak)
    }

    /// The process of the Postgres of a server, by what is written in the server's folder.
    pub(crate) fn postgres(folder: &TempDir) -> i32 {
        let pid_file = folder.path().join("data/pgdata/postmaster.pid");
        let text = std::fs::read_to_string(pid_file).unwrap_or_default();
        text.lines().next().and_then(|pid| pid.parse().ok()).expect("Postgres runs")
    }

    /// Ends it as an operator does.
    pub(crate) fn stop(mut self) {
        self.signal(Signal::SIGTERM);
        assert_eq!(self.ended(), Some(0));
    }

    /// Its exit status, once it has ended.
    pub(crate) fn ended(&mut self) -> Option<i32> {
        self.process.wait().expect("ends").code()
    }

    /// What it answers to a GET.
    pub(crate) async fn get(&self, path: &str) -> (StatusCode, Value) {
        let answer = self.client.send(format!("http://{}{path}", self.address), None).await;
        answer.expect("the server answers")
    }

    /// What it answers to a POST.
    pub(crate) async fn post(&self, path: &str, body: &Value) -> (StatusCode, Value) {
        let answer = self.client.send(format!("http://{}{path}", self.address), Some(body)).await;
        answer.expect("the server answers")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A client of the program, which keeps its connection.
#[derive(Clone)]
pub(crate) struct Client(ureq::Agent);

impl Client {
    pub(crate) fn new() -> Self {
        Self(ureq::Agent::config_builder().http_status_as_error(false).proxy(None).build().into())
    }

    /// Sends a request, a POST if it has a body, and reads the whole answer; null, should that not be JSON.
    pub(crate) async fn send(
        &self,
        url: String,
        body: Option<&Value>,
    ) -> anyhow::Result<(StatusCode, Value)> {
        let (agent, body) = (self.0.clone(), body.map(Value::to_string));
        let sent = tokio::task::spawn_blocking(move || {
            let mut response = match body {
                Some(body) => agent.post(url).content_type("application/json").send(body)?,
                None => agent.get(url).call()?,
            };
            anyhow::Ok((response.status(), response.body_mut().with_config().limit(u64::MAX).read_to_vec()?))
        });
        let (status, body) = sent.await??;
        Ok((status, serde_json::from_slice(&body).unwrap_or(Value::Null)))
    }
}

/// Runs a command to its end.
#[track_caller]
pub(crate) fn run(command: &mut Command, status: i32) -> Output {
    let output = command.output().expect("runs");
    assert_eq!(output.status.code(), Some(status), "{}", String::from_utf8_lossy(&output.stderr));
    output
}
