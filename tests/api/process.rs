//! The program as a process: started, loaded, stopped, killed; and its commands.

use std::collections::HashMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::http::{Method, StatusCode};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tempfile::TempDir;
use uuid::Uuid;

use crate::program::{Client, Server, folder, gleaner, run};

/// Clients that start logs and append to them, with ids of their own, until told to stop. Whatever is not answered with
/// a 2xx is sent again, as a client should.
struct Load {
    stop: Arc<AtomicBool>,
    address: Arc<Mutex<String>>,
    acknowledged: Arc<Mutex<HashMap<Uuid, usize>>>,
    clients: Vec<tokio::task::JoinHandle<()>>,
}

impl Load {
    fn start(server: &Server) -> Self {
        let load = Self {
            stop: Arc::default(),
            address: Arc::new(Mutex::new(server.address.clone())),
            acknowledged: Arc::default(),
            clients: Vec::new(),
        };
        let clients = (0..8).map(|_| {
            let (stop, address) = (Arc::clone(&load.stop), Arc::clone(&load.address));
            let acknowledged = Arc::clone(&load.acknowledged);
            tokio::spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    let id = Uuid::now_v7();
                    let log = json!({"id": id, "user_intent": "load", "domain_name": "test"});
                    if !insist(&stop, &address, "/v1/generations", &log).await {
                        return;
                    }
                    acknowledged.lock().expect("not poisoned").insert(id, 0);
                    for attempt in 1..=3 {
                        let body = json!({"attempt": attempt, "prompt_text": "p".repeat(500)});
                        if !insist(&stop, &address, &format!("/v1/generations/{id}/attempts"), &body).await {
                            return;
                        }
                        acknowledged.lock().expect("not poisoned").insert(id, attempt);
                    }
                }
            })
        });
        let clients = clients.collect();
        Self { clients, ..load }
    }

    /// Waits until so many more logs are acknowledged.
    async fn more(&self, logs: usize) {
        let begun = Instant::now();
        let count = || self.acknowledged.lock().expect("not poisoned").len();
        let target = count() + logs;
        while count() < target {
            assert!(begun.elapsed() < Duration::from_mins(1), "the server takes no more events");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    fn moved_to(&self, server: &Server) {
        self.address.lock().expect("not poisoned").clone_from(&server.address);
    }

    /// Ends the load; the attempts acknowledged of each log.
    async fn end(self) -> HashMap<Uuid, usize> {
        self.stop.store(true, Ordering::Relaxed);
        for client in self.clients {
            client.await.expect("a client ends well");
        }
        let acknowledged = self.acknowledged.lock().expect("not poisoned");
        acknowledged.clone()
    }
}

/// Posts until it is acknowledged; false when told to stop before that.
async fn insist(stop: &AtomicBool, address: &Mutex<String>, path: &str, body: &Value) -> bool {
    loop {
        let target = address.lock().expect("not poisoned").clone();
        let answer = async { Client::connect(&target).await?.send(Method::POST, path, Some(body)).await };
        match answer.await {
            Ok((status, _)) if status.is_success() => return true,
            Ok((status, answer)) => assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{answer}"),
            Err(_) => {}
        }
        if stop.load(Ordering::Relaxed) {
            return false;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Everything that was acknowledged is there, once; of what was not, whole records at most.
async fn assert_kept(server: &Server, acknowledged: &HashMap<Uuid, usize>) {
    let mut client = server.connect().await;
    let mut stored = HashMap::new();
    let mut path = "/v1/generations?limit=500".to_owned();
    loop {
        let (status, page) = client.send(Method::GET, &path, None).await.expect("an answer");
        assert_eq!(status, StatusCode::OK, "{page}");
        for log in page["data"].as_array().expect("a page") {
            let id: Uuid = log["id"].as_str().expect("an id").parse().expect("an id");
            let attempts = log["total_attempts"].as_u64().expect("a count");
            assert!(stored.insert(id, attempts).is_none(), "{id} is there twice");
        }
        match page["next_cursor"].as_str() {
            Some(cursor) => path = format!("/v1/generations?limit=500&cursor={cursor}"),
            None => break,
        }
    }
    for (id, &attempts) in acknowledged {
        let kept = *stored.get(id).unwrap_or_else(|| panic!("{id} was acknowledged and is lost"));
        // One more may have been written whose acknowledgement was cut off; none is written twice.
        assert!(
            (attempts as u64..=attempts as u64 + 1).contains(&kept) && kept <= 3,
            "{id}: {attempts}, kept {kept}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sigterm_under_load_ends_the_server_and_its_postgres_and_loses_nothing() {
    let folder = folder();
    let mut server = Server::start(&folder);
    let load = Load::start(&server);
    load.more(50).await;
    server.signal(Signal::SIGTERM);
    assert_eq!(server.ended(), Some(0));
    assert!(!folder.path().join("data/pgdata/postmaster.pid").exists(), "Postgres has ended too");
    let acknowledged = load.end().await;
    assert_kept(&Server::start(&folder), &acknowledged).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kill_9_of_the_server_under_load_loses_nothing_acknowledged_and_stores_nothing_twice() {
    let folder = folder();
    let mut server = Server::start(&folder);
    let load = Load::start(&server);
    for _ in 0..2 {
        load.more(50).await;
        server.signal(Signal::SIGKILL);
        server.ended();
        server = Server::start(&folder);
        load.moved_to(&server);
    }
    load.more(50).await;
    assert_kept(&server, &load.end().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kill_9_of_postgres_under_load_is_a_503_until_it_is_back_by_itself_and_loses_nothing() {
    let folder = folder();
    let server = Server::start(&folder);
    let load = Load::start(&server);
    load.more(50).await;
    let pid_file = folder.path().join("data/pgdata/postmaster.pid");
    let pid = std::fs::read_to_string(pid_file).expect("Postgres runs");
    let pid = pid.lines().next().and_then(|pid| pid.parse().ok()).expect("a process id");
    kill(Pid::from_raw(pid), Signal::SIGKILL).expect("Postgres is there");
    load.more(50).await;
    assert_kept(&server, &load.end().await).await;
    let (status, _) = server.connect().await.send(Method::GET, "/readyz", None).await.expect("an answer");
    assert_eq!(status, StatusCode::OK);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_open_server_closes_when_the_command_line_makes_a_key_beside_it() {
    let folder = folder();
    let server = Server::start(&folder);
    let mut client = server.connect().await;
    assert_eq!(client.send(Method::GET, "/v1/generations", None).await.expect("an answer").0, StatusCode::OK);
    let made = run(gleaner(&folder).args(["keys", "create", "--name", "first", "--scope", "operator"]), 0);
    let key = String::from_utf8(made.stdout).expect("text");
    let begun = Instant::now();
    while client.send(Method::GET, "/v1/generations", None).await.expect("an answer").0
        != StatusCode::UNAUTHORIZED
    {
        assert!(begun.elapsed() < Duration::from_secs(20), "still open");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let listed = run(gleaner(&folder).args(["keys", "list"]), 0);
    let listed = String::from_utf8(listed.stdout).expect("text");
    assert!(listed.contains("first  operator") && listed.contains("in use"), "{listed}");
    assert!(!listed.contains(key.trim()), "the secret is shown once");
    let id = listed.split_whitespace().next().expect("an id");
    run(gleaner(&folder).args(["keys", "revoke", id]), 0);
    let listed = run(gleaner(&folder).args(["keys", "list"]), 0);
    assert!(String::from_utf8_lossy(&listed.stdout).contains("revoked"));
}

fn lines(folder: &TempDir, name: &str, lines: &[Value]) -> PathBuf {
    let place = folder.path().join(name);
    let text = lines.iter().map(Value::to_string).collect::<Vec<_>>().join("\n");
    std::fs::write(&place, text).expect("writes");
    place
}

#[test]
fn what_is_imported_is_exported_and_importing_it_again_changes_nothing() {
    let folder = folder();
    let log = |n: i32| {
        json!({"event": "generation", "user_intent": format!("intent {n}"), "domain_name": "cbu", "success": true,
            "final_valid_dsl": format!("(program {n})")})
    };
    // Two lines that are the same are two logs, on every run the same two.
    let plain = lines(&folder, "plain.jsonl", &[log(1), log(2), log(2)]);
    let zipped = folder.path().join("zipped.jsonl.gz");
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(format!("{}\n\n", log(3)).as_bytes()).expect("packs");
    std::fs::write(&zipped, encoder.finish().expect("packs")).expect("writes");
    let summary = |accepted: i32, duplicates: i32| {
        let output = run(gleaner(&folder).arg("import").arg(&plain).arg(&zipped), 0);
        let expected = format!("accepted {accepted}, duplicates {duplicates}, rejected 0\n");
        assert_eq!(String::from_utf8(output.stdout).expect("text"), expected);
    };
    summary(4, 0);
    summary(0, 4);

    let exported = run(gleaner(&folder).args(["export", "training-pairs", "--format", "raw"]), 0);
    let row = |n: i32| format!("{{\"user_intent\":\"intent {n}\",\"valid_dsl\":\"(program {n})\"}}\n");
    let expected = [row(1), row(2), row(2), row(3)].concat();
    assert_eq!(String::from_utf8(exported.stdout).expect("text"), expected);

    let place = folder.path().join("out.jsonl.gz");
    let dedupe = ["export", "training-pairs", "--format", "raw", "--dedupe", "exact", "--output"];
    run(gleaner(&folder).args(dedupe).arg(&place), 0);
    let mut text = String::new();
    let file = std::fs::File::open(&place).expect("the file is there");
    std::io::Read::read_to_string(&mut flate2::read::GzDecoder::new(file), &mut text).expect("unpacks");
    assert_eq!(text, [row(1), row(2), row(3)].concat());
    assert!(!Path::new(&format!("{}.part", place.display())).exists());
}

#[test]
fn an_import_tells_which_lines_it_refused_and_why_and_keeps_the_others() {
    let folder = folder();
    let good = json!({"event": "generation", "user_intent": "i", "domain_name": "d"});
    let place =
        lines(&folder, "mixed.jsonl", &[json!({"event": "nonsense"}), good, json!({"event": "nonsense"})]);
    let mut command = gleaner(&folder);
    let mut import =
        command.args(["import", "-"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("starts");
    let text = std::fs::read(place).expect("reads");
    import.stdin.take().expect("piped").write_all(&text).expect("takes input");
    let output = import.wait_with_output().expect("ends");
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        String::from_utf8(output.stdout).expect("text"),
        "accepted 1, duplicates 0, rejected 2\n  2 x /event: \"nonsense\" is not the name of an event \
         (first: standard input, line 1)\n"
    );
}

#[test]
fn without_postgres_or_a_key_where_one_is_needed_the_program_ends_with_one_sentence() {
    let folder = folder();
    let empty = folder.path().join("empty");
    std::fs::create_dir(&empty).expect("a folder");
    let output = run(gleaner(&folder).args(["migrate", "--pg-bindir"]).arg(&empty), 1);
    let said = String::from_utf8(output.stderr).expect("text");
    assert!(said.starts_with("gleaner: ") && said.contains("DATABASE_URL"), "{said}");

    let output = run(gleaner(&folder).args(["serve", "--bind", "0.0.0.0:0"]), 1);
    let said = String::from_utf8(output.stderr).expect("text");
    assert!(said.contains("GLEANER_ADMIN_KEY"), "{said}");

    let output = run(gleaner(&folder).args(["serve", "--admin-key", "short"]), 1);
    let said = String::from_utf8(output.stderr).expect("text");
    assert!(said.contains("at least 32") && !said.contains("short"), "{said}");

    let output = run(gleaner(&folder).args(["migrate", "--database-url", "nonsense:secret"]), 1);
    let said = String::from_utf8(output.stderr).expect("text");
    assert!(said.contains("DATABASE_URL") && !said.contains("secret"), "{said}");
}

#[test]
fn healthcheck_tells_by_its_exit_status_whether_a_server_is_ready() {
    let folder = folder();
    let server = Server::start(&folder);
    let output = run(gleaner(&folder).args(["healthcheck", "--bind", &server.address]), 0);
    assert_eq!(String::from_utf8(output.stdout).expect("text"), "{\"status\":\"ready\"}\n");
    let address = server.address.clone();
    drop(server);
    run(gleaner(&folder).args(["healthcheck", "--bind", &address]), 1);
}
