//! How a server starts, what it says before it can be used, and how it ends.

use std::io::{BufRead as _, BufReader, Read as _};
use std::net::TcpListener;
use std::process::{Child, Stdio};
use std::time::Duration;

use axum::http::StatusCode;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tempfile::TempDir;

use super::{command, complaint, said};
use crate::support::eventually;
use crate::support::server::{Client, folder, run};

/// A server with options of its own, whose log is read.
struct Logged {
    process: Child,
    address: String,
}

impl Logged {
    fn start(folder: &TempDir, options: &str, environment: &[(&str, &str)]) -> Self {
        let port = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address");
        let mut command = command(folder, &format!("serve --bind {port}{options}"));
        command.envs(environment.iter().copied()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Self { process: command.spawn().expect("starts"), address: port.to_string() }
    }

    async fn get(&self, path: &str) -> Option<(StatusCode, Value)> {
        Client::new().send(format!("http://{}{path}", self.address), None).await.ok()
    }

    async fn until(&self, path: &str, status: u16) -> Value {
        let mut answer = Value::Null;
        eventually(&format!("{path} answers {status}"), async || match self.get(path).await {
            Some((given, body)) if given == status => {
                answer = body;
                true
            }
            _ => false,
        })
        .await;
        answer
    }

    /// Stops the server; what it wrote to standard output and standard error.
    fn stop(mut self) -> (String, String) {
        let pid = Pid::from_raw(self.process.id().try_into().expect("a process id"));
        kill(pid, Signal::SIGTERM).expect("the server is there");
        let (mut out, mut log) = (String::new(), String::new());
        self.process.stdout.take().expect("piped").read_to_string(&mut out).expect("text");
        self.process.stderr.take().expect("piped").read_to_string(&mut log).expect("text");
        assert_eq!(self.process.wait().expect("ends").code(), Some(0), "{log}");
        (out, log)
    }
}

impl Drop for Logged {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_listens_before_its_database_is_there_and_says_what_it_waits_for() {
    let folder = folder();
    // The port of discard, where nothing listens.
    let url = "postgres://gleaner:secret@127.0.0.1:9/gleaner";
    let server = Logged::start(&folder, " --log-requests true", &[("DATABASE_URL", url)]);
    assert_eq!(server.until("/healthz", 200).await["status"], "ok");
    assert_eq!(server.until("/version", 200).await["name"], "gleaner");
    eventually("the reason is known", async || {
        let problem = server.until("/readyz", 503).await;
        problem["detail"].as_str().is_some_and(|detail| detail.contains("Connection refused"))
    })
    .await;
    let problem = server.until("/readyz", 503).await;
    assert_eq!(
        problem["detail"],
        "the server is starting: the database gleaner at 127.0.0.1:9 cannot be reached: Connection refused"
    );
    assert_eq!(problem["type"], "/problems/service-unavailable");
    assert_eq!(problem["instance"].as_str().map(str::len), Some(36));
    assert_eq!(server.until("/v1/generations", 503).await["detail"], problem["detail"]);
    let (out, log) = server.stop();
    let is_logged = |line: &str| line.contains("path=\"/v1/generations\"") && line.contains("status=503");
    assert!(log.lines().any(is_logged), "{log}");
    assert_eq!(out, "");
    assert!(log.contains("127.0.0.1:9 cannot be reached: Connection refused"), "{log}");
    assert_eq!(log.matches("cannot be reached").count(), 1, "the same reason is logged once: {log}");
    assert!(!log.contains("secret"), "{log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_gives_freed_memory_back_soon_unless_the_operator_says_otherwise() {
    const KEEPS: &str = "MIMALLOC_PURGE_DELAY";
    let folder = folder();
    for (given, expected) in [(None, "10"), (Some("50"), "50")] {
        let mut environment = vec![("DATABASE_URL", "postgres://gleaner@127.0.0.1:9/gleaner")];
        environment.extend(given.map(|given| (KEEPS, given)));
        let server = Logged::start(&folder, "", &environment);
        server.until("/healthz", 200).await;
        let environment = format!("/proc/{}/environ", server.process.id());
        let environment = std::fs::read_to_string(environment).expect("the same process as was started");
        let expected = format!("{KEEPS}={expected}");
        assert!(environment.split('\0').any(|variable| variable == expected), "{environment}");
        server.stop();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_first_start_warns_of_nothing() {
    let folder = folder();
    let server = Logged::start(&folder, "", &[]);
    server.until("/readyz", 200).await;
    let (_, log) = server.stop();
    assert!(!log.contains("WARN") && !log.contains("ERROR"), "{log}");
}

#[test]
fn commands_say_at_once_that_a_database_cannot_be_reached_and_where() {
    let folder = folder();
    let mut export = command(&folder, "export training-pairs");
    let begun = std::time::Instant::now();
    let output = run(export.env("DATABASE_URL", "postgres://gleaner:secret@127.0.0.1:9/gleaner"), 1);
    assert!(begun.elapsed() < Duration::from_secs(10));
    let expected = "gleaner: the database gleaner at 127.0.0.1:9 cannot be reached: Connection refused; check that \
                    Postgres runs there and that this machine can reach it, or correct DATABASE_URL\n";
    assert_eq!(complaint(&output), expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_port_in_use_is_told_before_anything_is_made() {
    let folder = folder();
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address");
    let output = run(&mut command(&folder, &format!("serve --bind {address}")), 1);
    let complaint = complaint(&output);
    assert!(
        complaint.contains(&format!("cannot listen on {address}: another program listens there already")),
        "{complaint}"
    );
    assert!(complaint.contains("--bind"), "{complaint}");
    assert!(!folder.path().join("data").exists(), "a cluster was made");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_json_log_is_json_from_the_first_line_to_the_last_and_says_what_was_asked() {
    let folder = folder();
    let server = Logged::start(&folder, " --log-format json --log-requests", &[]);
    server.until("/readyz", 200).await;
    server.until("/v1/generations/none", 422).await;
    let (out, log) = server.stop();
    assert_eq!(out, "");
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
    let line_of = |message: &str| lines.iter().find(|line| line["message"] == message).expect(message);
    assert!(line_of("ready")["address"].is_string());
    let asked = lines.iter().find(|line| line["span"]["path"] == "/v1/generations/none").expect("a request");
    assert_eq!((&asked["status"], &asked["span"]["method"]), (&422.into(), &"GET".into()), "{asked}");
    assert!(asked["ms"].is_number() && asked["span"]["id"].is_string(), "{asked}");
    let stopping = lines.iter().filter_map(|line| line["message"].as_str());
    assert!(stopping.clone().any(|message| message.starts_with("stopping after SIGTERM")), "{log}");
    assert_eq!(stopping.clone().next_back(), Some("stopped"));

    let output = run(command(&folder, "serve --log-format json").env("DATABASE_URL", "nonsense"), 1);
    assert_eq!(said(&output), "");
    let complaint = complaint(&output);
    let line: Value = serde_json::from_str(complaint.lines().last().expect("a line")).expect(&complaint);
    assert_eq!((line["level"].as_str(), line["message"].is_string()), (Some("ERROR"), true));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_are_not_logged_unless_somebody_asks() {
    let folder = folder();
    let server = Logged::start(&folder, "", &[]);
    server.until("/readyz", 200).await;
    server.until("/v1/generations/none", 422).await;
    let (out, log) = server.stop();
    assert!(
        BufReader::new(out.as_bytes()).lines().count() == 2 && out.starts_with("gleaner listens on http://"),
        "{out}"
    );
    assert!(!log.contains("/v1/generations/none"), "{log}");
    assert!(log.contains("stopping after SIGTERM") && log.contains("stopped"), "{log}");
}
