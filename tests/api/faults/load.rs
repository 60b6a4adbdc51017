//! Clients that write logs until told to stop, and know what was acknowledged to them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use uuid::Uuid;

use crate::support::eventually;
use crate::support::server::{Client, Server};

/// What was acknowledged of a log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Progress {
    attempts: u64,
    finalized: bool,
}

const WHOLE: Progress = Progress { attempts: 3, finalized: true };

/// Clients that write logs, with ids of their own, until told to stop. Whatever is not answered with a 2xx is sent again, as
/// a client should.
pub(super) struct Load {
    shared: Arc<Shared>,
    clients: Vec<tokio::task::JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    address: Mutex<String>,
    acknowledged: Mutex<HashMap<Uuid, Progress>>,
    events: AtomicUsize,
    /// Logs whose request was cut off before its end, and those whose answer nobody waited for.
    cut: Mutex<Vec<Uuid>>,
    unheard: Mutex<Vec<Uuid>>,
}

impl Load {
    /// Begins with so many clients that send events one by one; a quarter as many send batches, or hang up.
    pub(super) fn start(server: &Server, clients: usize) -> Self {
        let shared = Arc::new(Shared { address: Mutex::new(server.address.clone()), ..Shared::default() });
        let mut tasks = Vec::new();
        for number in 0..clients {
            tasks.push(tokio::spawn(Arc::clone(&shared).one_by_one()));
            match number % 4 {
                0 => tasks.push(tokio::spawn(Arc::clone(&shared).in_batches())),
                1 => tasks.push(tokio::spawn(Arc::clone(&shared).hanging_up())),
                _ => {}
            }
        }
        Self { shared, clients: tasks }
    }

    /// Waits until so many more events are acknowledged.
    pub(super) async fn more(&self, events: usize) {
        let count = || self.shared.events.load(Ordering::Relaxed);
        let target = count() + events;
        eventually("the server takes more events", async || count() >= target).await;
    }

    pub(super) fn moved_to(&self, server: &Server) {
        self.shared.address.lock().expect("not poisoned").clone_from(&server.address);
    }

    /// Ends the load and asserts that the server has what it acknowledged; says how many events that were.
    pub(super) async fn assert_kept(self, server: &Server) -> usize {
        self.shared.stop.store(true, Ordering::Relaxed);
        for client in self.clients {
            client.await.expect("a client ends well");
        }
        let stored = stored(server).await;
        for (id, acknowledged) in self.shared.acknowledged.lock().expect("not poisoned").iter() {
            let kept = stored.get(id).unwrap_or_else(|| panic!("{id} was acknowledged and is lost"));
            // One more may have been written whose acknowledgement was cut off; none is written twice.
            let attempts = acknowledged.attempts..=acknowledged.attempts + 1;
            let fits = attempts.contains(&kept.attempts) && kept.attempts <= 3;
            assert!(
                fits && kept.finalized >= acknowledged.finalized,
                "{id}: {acknowledged:?}, kept {kept:?}"
            );
        }
        for id in self.shared.cut.lock().expect("not poisoned").iter() {
            assert_eq!(stored.get(id), None, "{id} was never sent to its end");
        }
        for id in self.shared.unheard.lock().expect("not poisoned").iter() {
            assert!(stored.get(id).is_none_or(|kept| *kept == WHOLE), "{id} is there in part");
        }
        self.shared.events.load(Ordering::Relaxed)
    }
}

impl Shared {
    fn acknowledge(&self, id: Uuid, progress: Progress, events: usize) {
        self.acknowledged.lock().expect("not poisoned").insert(id, progress);
        self.events.fetch_add(events, Ordering::Relaxed);
    }

    fn is_stopping(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn address(&self) -> String {
        self.address.lock().expect("not poisoned").clone()
    }

    async fn one_by_one(self: Arc<Self>) {
        let client = Client::new();
        while !self.is_stopping() {
            let id = Uuid::now_v7();
            let log = json!({"id": id, "user_intent": "load", "domain_name": "test"});
            if self.insist(&client, "/v1/generations", &log).await.is_none() {
                return;
            }
            let mut progress = Progress::default();
            self.acknowledge(id, progress, 1);
            for number in 1..=3 {
                let path = format!("/v1/generations/{id}/attempts");
                if self.insist(&client, &path, &attempt(number)).await.is_none() {
                    return;
                }
                progress.attempts = number;
                self.acknowledge(id, progress, 1);
            }
            let path = format!("/v1/generations/{id}/finalize");
            if self.insist(&client, &path, &json!({"success": true})).await.is_none() {
                return;
            }
            self.acknowledge(id, WHOLE, 1);
        }
    }

    async fn in_batches(self: Arc<Self>) {
        let client = Client::new();
        while !self.is_stopping() {
            let ids: Vec<_> = (0..20).map(|_| Uuid::now_v7()).collect();
            let events = ids.iter().flat_map(|id| {
                let start =
                    json!({"event": "generation", "id": id, "user_intent": "load", "domain_name": "test"});
                let attempts = (1..=3).map(|number| {
                    let mut attempt = attempt(number);
                    attempt["event"] = json!("attempt");
                    attempt["generation_id"] = json!(id);
                    attempt
                });
                let end = json!({"event": "generation_outcome", "generation_id": id, "success": true});
                [start].into_iter().chain(attempts).chain([end]).collect::<Vec<_>>()
            });
            let batch = Value::from(events.collect::<Vec<_>>());
            loop {
                let Some(summary) = self.insist(&client, "/v1/events", &batch).await else { return };
                if summary["rejected"] == json!([]) {
                    break;
                }
                // The database went away in the middle.
                assert!(
                    summary["rejected"].as_array().expect("a list").iter().all(|line| line["status"] == 503),
                    "{summary}"
                );
            }
            for id in ids {
                self.acknowledge(id, WHOLE, 5);
            }
        }
    }

    /// Sends half a request, or a whole one without waiting for its answer.
    async fn hanging_up(self: Arc<Self>) {
        for number in 0_usize.. {
            if self.is_stopping() {
                return;
            }
            let id = Uuid::now_v7();
            let attempts: Vec<_> = (1..=3).map(attempt).collect();
            let log = json!({"id": id, "user_intent": "load", "domain_name": "test", "success": true, "iterations": attempts});
            let body = log.to_string();
            let head = format!(
                "POST /v1/generations HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
                body.len()
            );
            let whole = number % 2 == 0;
            let sent = if whole { &body[..] } else { &body[..body.len() * 2 / 3] };
            let sent_so = if whole { &self.unheard } else { &self.cut };
            sent_so.lock().expect("not poisoned").push(id);
            if let Ok(mut stream) = TcpStream::connect(self.address()).await {
                let _ = stream.write_all(format!("{head}{sent}").as_bytes()).await;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Posts until it is acknowledged; none when told to stop before that.
    async fn insist(&self, client: &Client, path: &str, body: &Value) -> Option<Value> {
        loop {
            match client.send(format!("http://{}{path}", self.address()), Some(body)).await {
                Ok((status, answer)) if status.is_success() => return Some(answer),
                Ok((status, answer)) => assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{answer}"),
                Err(_) => {}
            }
            if self.is_stopping() {
                return None;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

fn attempt(number: u64) -> Value {
    json!({"attempt": number, "prompt_text": "p".repeat(500), "extracted_dsl": format!("(program {number})"),
        "parse_result": {"success": number == 3}})
}

/// Every log that the server has. Asks again while the database is away: the processes of a killed Postgres may have taken
/// more events before they noticed.
async fn stored(server: &Server) -> HashMap<Uuid, Progress> {
    let begun = Instant::now();
    let mut stored = HashMap::new();
    let mut path = "/v1/generations?limit=500".to_owned();
    loop {
        let (status, page) = server.get(&path).await;
        if status == StatusCode::SERVICE_UNAVAILABLE && begun.elapsed() < Duration::from_mins(1) {
            tokio::time::sleep(Duration::from_millis(10)).await;
            continue;
        }
        assert_eq!(status, StatusCode::OK, "{page}");
        for log in page["data"].as_array().expect("a page") {
            let id: Uuid = log["id"].as_str().expect("an id").parse().expect("an id");
            let attempts = log["total_attempts"].as_u64().expect("a count");
            let progress = Progress { attempts, finalized: log["success"] == true };
            assert_eq!(stored.insert(id, progress), None, "{id} is there twice");
        }
        match page["next_cursor"].as_str() {
            Some(cursor) => path = format!("/v1/generations?limit=500&cursor={cursor}"),
            None => return stored,
        }
    }
}
