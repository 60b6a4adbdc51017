//! `gleaner watch`: the program on folders of transcripts that grow, are rotated and rewritten, while it is killed.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::eventually;
use crate::support::server::{Server, folder, gleaner, run};

/// The lines of a turn of a session, in which a search finds nothing and a file is read and changed.
fn turn(session: &str, turn: usize) -> Vec<String> {
    let at = |second: usize| format!("2026-03-01T{:02}:{:02}:{second:02}.000Z", turn / 60, turn % 60);
    let line = |second, kind: &str, message: Value| {
        json!({
            "type": kind, "timestamp": at(second), "sessionId": session, "cwd": "/srv/app", "isSidechain": false,
            "uuid": format!("{session}-{turn}-{second}"), "message": message,
        })
        .to_string()
    };
    let uses = |id: &str, name: &str, input: Value| {
        let block =
            json!({"type": "tool_use", "id": format!("{session}-{turn}-{id}"), "name": name, "input": input});
        json!({"role": "assistant", "content": [block], "stop_reason": "tool_use"})
    };
    let answers = |id: &str, text: &str| {
        let block =
            json!({"type": "tool_result", "tool_use_id": format!("{session}-{turn}-{id}"), "content": text});
        json!({"role": "user", "content": [block]})
    };
    let file = format!("/srv/app/src/{session}_{turn}.rs");
    vec![
        line(1, "user", json!({"role": "user", "content": format!("change number {turn}")})),
        line(2, "assistant", uses("a", "Grep", json!({"pattern": query(session, turn)}))),
        line(3, "user", answers("a", "No matches found")),
        line(4, "assistant", uses("b", "Read", json!({"file_path": file}))),
        line(5, "user", answers("b", "1\tfn main() {}")),
        line(
            6,
            "assistant",
            json!({"role": "assistant", "content": [{"type": "text", "text": "Done."}],
            "stop_reason": "end_turn"}),
        ),
    ]
}

fn query(session: &str, turn: usize) -> String {
    format!("fn needle_{session}_{turn}")
}

/// A watcher of a folder, killed when dropped.
struct Watcher(Child);

impl Watcher {
    fn start(folder: &TempDir, transcripts: &Path, address: &str) -> Self {
        let mut command = gleaner(folder);
        command.args(["watch", "--every", "0.02", "--url", &format!("http://{address}")]).arg(transcripts);
        Self(command.stderr(Stdio::piped()).spawn().expect("the watcher starts"))
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.0.id().try_into().expect("a process id"));
        kill(pid, signal).expect("the watcher is there");
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What `watch --once` says it has sent, with these options: new lines and known ones.
fn once(folder: &TempDir, options: &[&str], transcripts: &Path) -> (usize, usize) {
    let output = run(gleaner(folder).args(["watch", "--once"]).args(options).arg(transcripts), 0);
    let said = String::from_utf8(output.stderr).expect("text");
    // On a busy machine, connections to the private Postgres that stops may be complained about afterwards.
    let counts = said.lines().rfind(|line| line.contains(" new lines")).expect(&said);
    let number = |words: &str| -> usize {
        let before = counts.split_once(words).expect(counts).0;
        before.rsplit(' ').next().expect("a word").parse().expect(counts)
    };
    (number(" new lines"), number(" known"))
}

/// All searches, by their query, with how often each is there and how many reads it has.
async fn searches(server: &Server) -> BTreeMap<String, Vec<(String, usize)>> {
    let mut queries: BTreeMap<String, Vec<(String, usize)>> = BTreeMap::new();
    let mut path = "/v1/searches?limit=500".to_owned();
    loop {
        let (status, page) = server.get(&path).await;
        assert_eq!(status, StatusCode::OK, "{page}");
        for search in page["data"].as_array().expect("a page") {
            let text = |name: &str| search[name].as_str().expect(name).to_owned();
            let path = format!("/v1/searches/{}", text("id"));
            let (_, whole) = server.get(&path).await;
            let reads = whole["fallbacks"].as_array().expect("fallbacks").len();
            queries.entry(text("query")).or_default().push((text("state"), reads));
        }
        match page["next_cursor"].as_str() {
            Some(cursor) => path = format!("/v1/searches?limit=500&cursor={cursor}"),
            None => return queries,
        }
    }
}

/// How many searches were followed so far.
async fn started(server: &Server) -> usize {
    let (_, figures) = server.get("/v1/analytics/searches").await;
    figures["sessions_started"].as_u64().and_then(|count| count.try_into().ok()).expect("a count")
}

async fn until(server: &Server, count: usize) {
    eventually(&format!("{count} searches are followed"), async || started(server).await >= count).await;
}

/// Waits until the searches are these.
async fn until_there_are(server: &Server, expected: BTreeMap<String, Vec<(String, usize)>>) {
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_mins(1) && searches(server).await != expected {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(searches(server).await, expected);
}

fn expected(sessions: &[String], turns: usize) -> BTreeMap<String, Vec<(String, usize)>> {
    let queries = sessions.iter().flat_map(|session| (0..turns).map(move |turn| query(session, turn)));
    queries.map(|query| (query, vec![("resolved".to_owned(), 1)])).collect()
}

/// A place for transcripts beside the data.
fn transcripts(folder: &TempDir) -> PathBuf {
    let place = folder.path().join("projects");
    fs::create_dir_all(place.join("-srv-app/sub")).expect("a folder");
    place
}

/// Writes the transcripts of sessions turn by turn, each turn once it is allowed.
fn write_turns(place: &Path, sessions: &[String], turns: usize, allowed: &AtomicUsize) {
    let path = |session: &str| place.join("-srv-app").join(format!("{session}.jsonl"));
    let mut files: Vec<_> =
        sessions.iter().map(|session| File::create(path(session)).expect("a file")).collect();
    for number in 0..turns {
        while allowed.load(Ordering::Relaxed) <= number {
            std::thread::sleep(Duration::from_millis(1));
        }
        for line in 0..turn("", 0).len() {
            for (session, file) in sessions.iter().zip(&mut files) {
                // As agents do: now a part of a line, now the rest and the beginning of the next.
                let text = format!("{}\n", turn(session, number)[line]);
                let (first, second) = text.split_at(text.len() / 2 + number);
                file.write_all(first.as_bytes()).expect("writes");
                file.write_all(second.as_bytes()).expect("writes");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_sessions_that_grow_are_kept_once_through_three_kills_of_the_watcher() {
    const TURNS: usize = 12;
    let folder = folder();
    let server = Server::start(&folder);
    let place = transcripts(&folder);
    let sessions: Vec<_> = (0..50).map(|number| format!("s{number:02}")).collect();
    let allowed = Arc::new(AtomicUsize::new(3));
    let writer = {
        let (place, sessions, allowed) = (place.clone(), sessions.clone(), Arc::clone(&allowed));
        std::thread::spawn(move || write_turns(&place, &sessions, TURNS, &allowed))
    };
    for kills in 1..=3 {
        let watcher = Watcher::start(&folder, &place, &server.address);
        // While the next turns are written and sent.
        until(&server, (kills * 3 - 2) * sessions.len()).await;
        allowed.store(kills * 3 + 3, Ordering::Relaxed);
        until(&server, (kills * 3 - 1) * sessions.len()).await;
        watcher.signal(Signal::SIGKILL);
    }
    let watcher = Watcher::start(&folder, &place, &server.address);
    until(&server, TURNS * sessions.len()).await;
    writer.join().expect("the writer ends");
    watcher.signal(Signal::SIGTERM);
    let mut watcher = watcher;
    assert_eq!(watcher.0.wait().expect("ends").code(), Some(0));

    let url = format!("http://{}", server.address);
    let lines = sessions.len() * TURNS * turn("", 0).len();
    let (new, _) = once(&folder, &["--url", &url], &place);
    assert_eq!(once(&folder, &["--url", &url, "--from-start"], &place), (0, lines), "after {new} last lines");
    assert_eq!(once(&folder, &["--url", &url], &place), (0, 0), "nothing is sent again");
    assert_eq!(searches(&server).await, expected(&sessions, TURNS));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_that_are_renamed_cut_or_written_anew_are_kept_once() {
    let folder = folder();
    let server = Server::start(&folder);
    let place = transcripts(&folder);
    let _watcher = Watcher::start(&folder, &place, &server.address);
    let path = |name: &str| place.join("-srv-app").join(name);
    let text = |turns: std::ops::Range<usize>| {
        turns.flat_map(|number| turn("a", number)).map(|line| line + "\n").collect::<String>()
    };
    fs::write(path("a.jsonl"), text(0..3)).expect("writes");
    until(&server, 3).await;
    // Written anew with more in it, as an agent does that goes back in its session.
    fs::write(path("a.jsonl"), text(1..5)).expect("writes");
    until(&server, 5).await;
    // Another file takes its place.
    fs::write(path("sub/new"), text(0..6)).expect("writes");
    fs::rename(path("sub/new"), path("a.jsonl")).expect("renames");
    until(&server, 6).await;
    // Rotated while it grows.
    let mut file = File::options().append(true).open(path("a.jsonl")).expect("opens");
    file.write_all(text(6..7).as_bytes()).expect("writes");
    fs::rename(path("a.jsonl"), path("a.jsonl.1")).expect("renames");
    file.write_all(text(7..8).as_bytes()).expect("writes");
    fs::write(path("a.jsonl"), text(8..9)).expect("writes");
    until_there_are(&server, expected(&["a".to_owned()], 9)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watcher_waits_for_a_server_that_is_away() {
    let folder = folder();
    let server = Server::start(&folder);
    let address = server.address.clone();
    drop(server);
    let place = transcripts(&folder);
    fs::write(place.join("a.jsonl"), turn("a", 0).join("\n")).expect("writes");
    let mut watcher = Watcher::start(&folder, &place, &address);
    let mut said = BufReader::new(watcher.0.stderr.take().expect("piped")).lines();
    assert!(said.any(|line| line.expect("text").starts_with("waiting: ")));
    let server = Server::start_at(&folder, &address);
    until_there_are(&server, expected(&["a".to_owned()], 1)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_server_lines_go_into_the_database_and_without_learning_they_only_count() {
    let folder = folder();
    let place = transcripts(&folder);
    fs::write(place.join("a.jsonl"), turn("a", 0).join("\n") + "\n").expect("writes");
    run(gleaner(&folder).arg("migrate"), 0);
    assert_eq!(once(&folder, &[], &place), (6, 0));
    assert_eq!(once(&folder, &[], &place), (0, 0));
    assert_eq!(once(&folder, &["--from-start"], &place), (0, 6));
    fs::write(place.join("b.jsonl"), turn("b", 0).join("\n") + "\n").expect("writes");
    assert_eq!(once(&folder, &["--no-learn"], &place), (6, 6));
    assert_eq!(once(&folder, &["--no-learn"], &place), (0, 0));
    let server = Server::start(&folder);
    assert_eq!(searches(&server).await, expected(&["a".to_owned()], 1));
    // What was only counted is not used up.
    let url = format!("http://{}", server.address);
    assert_eq!(once(&folder, &["--learn", "--url", &url], &place), (6, 6));
    assert_eq!(searches(&server).await, expected(&["a".to_owned(), "b".to_owned()], 1));
    assert_eq!(once(&folder, &["--learn", "--url", &url], &place), (0, 0));
}

#[test]
fn kinds_of_lines_and_versions_that_nobody_has_seen_are_told_at_the_end() {
    let folder = folder();
    let place = transcripts(&folder);
    let line =
        |kind: &str, version: &str| json!({"type": kind, "version": version, "sessionId": "a"}).to_string();
    let lines = [line("user", "2.1.100"), line("of-tomorrow", "2.1.100"), line("of-tomorrow", "99.0.1")];
    fs::write(place.join("a.jsonl"), lines.join("\n") + "\n").expect("writes");
    let item = json!({"type": "event_msg", "payload": {"type": "item_completed", "item": {"type": "Dream"}}});
    fs::write(place.join("rollout-a.jsonl"), format!("{item}\n")).expect("writes");
    run(gleaner(&folder).arg("migrate"), 0);
    let output = run(gleaner(&folder).args(["watch", "--once", "--no-learn"]).arg(&place), 0);
    let said = String::from_utf8(output.stderr).expect("text");
    let last = said.lines().last().expect("a line");
    let told = "; unknown: lines of type \"of-tomorrow\" of Claude Code (2), version 99.0.1 of Claude Code (1), \
        lines of type \"event_msg item_completed Dream\" of Codex CLI (1)";
    assert!(last.ends_with(told), "{last}");
}

#[test]
fn a_watcher_that_cannot_do_its_work_ends_with_one_sentence() {
    let folder = folder();
    let place = transcripts(&folder);
    fs::write(place.join("a.jsonl"), turn("a", 0).join("\n")).expect("writes");
    let server = Server::start(&folder);
    let url = format!("http://{}", server.address);
    run(gleaner(&folder).args(["keys", "create", "--scope", "operator"]), 0);
    let key = ["watch", "--once", "--url", &url, "--key", "wrong"];
    let begun = Instant::now();
    // Servers learn of a key that another process has made within five seconds.
    let said = loop {
        let output = gleaner(&folder).args(key).arg("--from-start").arg(&place).output().expect("runs");
        if !output.status.success() {
            break String::from_utf8(output.stderr).expect("text");
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "a wrong key is taken");
        std::thread::sleep(Duration::from_millis(50));
    };
    let last = said.lines().last().expect("a line");
    assert!(last.starts_with("gleaner: sending ") && last.contains("answered 401"), "{said}");

    let output = run(gleaner(&folder).args(["watch", "--once", "--url", &url, "/nowhere"]), 1);
    let said = String::from_utf8(output.stderr).expect("text");
    assert!(said.starts_with("gleaner: opening the folder /nowhere"), "{said}");
}

/// A server that fails on one transcript and takes the others.
fn failing_on(name: &'static str) -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let mut reader = BufReader::new(stream.try_clone().expect("a stream"));
                let mut line = String::new();
                while reader.read_line(&mut line).is_ok_and(|read| read > 0) {
                    let fails = line.contains(name);
                    let mut length = 0;
                    loop {
                        line.clear();
                        reader.read_line(&mut line).expect("a header");
                        let lower = line.to_ascii_lowercase();
                        if let Some(given) = lower.strip_prefix("content-length:") {
                            length = given.trim().parse().expect("a number");
                        }
                        if line == "\r\n" {
                            break;
                        }
                    }
                    std::io::copy(&mut std::io::Read::take(&mut reader, length), &mut std::io::sink())
                        .expect("a body");
                    let status = if fails { "500 Internal Server Error" } else { "204 No Content" };
                    let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n");
                    stream.write_all(answer.as_bytes()).expect("answers");
                    line.clear();
                }
            });
        }
    });
    format!("http://{address}")
}

#[test]
fn one_transcript_that_cannot_be_sent_does_not_stop_the_others() {
    use std::os::unix::ffi::OsStrExt as _;

    let folder = folder();
    let place = transcripts(&folder);
    for name in ["a.jsonl", "b.jsonl", "c.jsonl"] {
        fs::write(place.join(name), "{}\n").expect("writes");
    }
    fs::write(place.join(std::ffi::OsStr::from_bytes(b"\xff.jsonl")), "{}\n").expect("writes");
    let url = failing_on("a.jsonl");
    let mut watch = gleaner(&folder);
    let output = run(watch.args(["watch", "--once", "--url", &url]).arg(&place), 0);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("answered 500") && said.contains("its name is not UTF-8"), "{said}");
    let state = fs::read_dir(folder.path().join(".local/state/gleaner")).expect("a folder").flatten();
    let positions =
        state.map(|entry| entry.path()).find(|path| path.extension().is_some_and(|it| it == "json"));
    let positions: Value =
        serde_json::from_slice(&fs::read(positions.expect("positions")).expect("reads")).expect("JSON");
    let sent = |name: &str| {
        positions[place.canonicalize().expect("a path").join(name).to_str().expect("text")]["offset"].clone()
    };
    assert_eq!(["a.jsonl", "b.jsonl", "c.jsonl"].map(sent), [0, 3, 3].map(Value::from));
}
