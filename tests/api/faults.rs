//! What fails while events come in: the server, its Postgres, clients, the queue. Whatever was acknowledged is there afterwards,
//! once; whatever was not is there as a whole or not at all.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::http::{Method, StatusCode};
use futures_util::future::join_all;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use sqlx::{Connection as _, Executor as _};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use uuid::Uuid;

use crate::support::program::{Settings, serve};
use crate::support::server::{Client, Server, folder};
use crate::support::{Service, settings};

/// What was acknowledged of a log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Progress {
    attempts: u64,
    finalized: bool,
}

const WHOLE: Progress = Progress { attempts: 3, finalized: true };

/// Clients that write logs, with ids of their own, until told to stop. Whatever is not answered with a 2xx is sent again, as
/// a client should.
struct Load {
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
    fn start(server: &Server, clients: usize) -> Self {
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
    async fn more(&self, events: usize) {
        let begun = Instant::now();
        let count = || self.shared.events.load(Ordering::Relaxed);
        let target = count() + events;
        while count() < target {
            assert!(begun.elapsed() < Duration::from_mins(1), "the server takes no more events");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    fn moved_to(&self, server: &Server) {
        self.shared.address.lock().expect("not poisoned").clone_from(&server.address);
    }

    /// Ends the load and asserts that the server has what it acknowledged; says how many events that were.
    async fn assert_kept(self, server: &Server) -> usize {
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
        let mut client = None;
        while !self.is_stopping() {
            let id = Uuid::now_v7();
            let log = json!({"id": id, "user_intent": "load", "domain_name": "test"});
            if self.insist(&mut client, "/v1/generations", &log).await.is_none() {
                return;
            }
            let mut progress = Progress::default();
            self.acknowledge(id, progress, 1);
            for number in 1..=3 {
                let path = format!("/v1/generations/{id}/attempts");
                if self.insist(&mut client, &path, &attempt(number)).await.is_none() {
                    return;
                }
                progress.attempts = number;
                self.acknowledge(id, progress, 1);
            }
            let path = format!("/v1/generations/{id}/finalize");
            if self.insist(&mut client, &path, &json!({"success": true})).await.is_none() {
                return;
            }
            self.acknowledge(id, WHOLE, 1);
        }
    }

    async fn in_batches(self: Arc<Self>) {
        let mut client = None;
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
                let Some(summary) = self.insist(&mut client, "/v1/events", &batch).await else { return };
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
    async fn insist(&self, client: &mut Option<Client>, path: &str, body: &Value) -> Option<Value> {
        loop {
            let answer = async {
                if client.is_none() {
                    *client = Some(Client::connect(&self.address()).await?);
                }
                client.as_mut().expect("just made").send(Method::POST, path, Some(body)).await
            };
            match answer.await {
                Ok((status, answer)) if status.is_success() => return Some(answer),
                Ok((status, answer)) => assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{answer}"),
                Err(_) => *client = None,
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
    let mut client = server.connect().await;
    let mut stored = HashMap::new();
    let mut path = "/v1/generations?limit=500".to_owned();
    loop {
        let (status, page) = client.send(Method::GET, &path, None).await.expect("an answer");
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

/// What can happen to a server or its Postgres.
#[derive(Debug, Clone, Copy)]
enum Fault {
    ServerKilled,
    ServerStopped,
    PostgresKilled,
    PostgresRestarted,
}

impl Fault {
    fn strike(self, folder: &TempDir, server: &mut Server, load: &Load) {
        let signal_postgres = |signal| {
            let pid_file = folder.path().join("data/pgdata/postmaster.pid");
            let text = std::fs::read_to_string(pid_file).unwrap_or_default();
            let pid = text.lines().next().and_then(|pid| pid.parse().ok()).expect("Postgres runs");
            kill(Pid::from_raw(pid), signal).expect("Postgres is there");
        };
        match self {
            Self::ServerKilled | Self::ServerStopped => {
                let is_kill = matches!(self, Self::ServerKilled);
                server.signal(if is_kill { Signal::SIGKILL } else { Signal::SIGTERM });
                let status = server.ended();
                assert_eq!(status, if is_kill { None } else { Some(0) });
                *server = Server::start(folder);
                load.moved_to(server);
            }
            Self::PostgresKilled => signal_postgres(Signal::SIGKILL),
            // Its fast shutdown; the server starts it again.
            Self::PostgresRestarted => signal_postgres(Signal::SIGINT),
        }
    }
}

/// Strikes the faults one after another, each while events come in.
async fn survives(faults: &[Fault]) {
    let folder = folder();
    let mut server = Server::start(&folder);
    let load = Load::start(&server, 8);
    load.more(200).await;
    for fault in faults {
        fault.strike(&folder, &mut server, &load);
        load.more(200).await;
    }
    load.assert_kept(&server).await;
    let begun = Instant::now();
    let mut client = server.connect().await;
    while client.send(Method::GET, "/readyz", None).await.expect("an answer").0 != StatusCode::OK {
        assert!(begun.elapsed() < Duration::from_mins(1), "the server does not come back");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kill_9_of_the_server_under_load_loses_nothing_acknowledged_and_stores_nothing_twice() {
    survives(&[Fault::ServerKilled, Fault::ServerKilled]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kill_9_of_postgres_under_load_is_a_503_until_it_is_back_by_itself_and_loses_nothing() {
    survives(&[Fault::PostgresKilled]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_of_postgres_under_load_needs_no_restart_of_the_server_and_loses_nothing() {
    survives(&[Fault::PostgresRestarted]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sigterm_under_load_ends_the_server_and_its_postgres_and_loses_nothing() {
    let folder = folder();
    let mut server = Server::start(&folder);
    let load = Load::start(&server, 8);
    load.more(200).await;
    server.signal(Signal::SIGTERM);
    assert_eq!(server.ended(), Some(0));
    assert!(!folder.path().join("data/pgdata/postmaster.pid").exists(), "Postgres has ended too");
    server = Server::start(&folder);
    load.moved_to(&server);
    load.assert_kept(&server).await;
}

/// The long run: `make torture`. `TORTURE_SECONDS` says how long (300 if not given).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes: make torture"]
async fn torture() {
    let seconds =
        std::env::var("TORTURE_SECONDS").ok().and_then(|seconds| seconds.parse().ok()).unwrap_or(300);
    let folder = folder();
    let mut server = Server::start(&folder);
    let load = Load::start(&server, 32);
    let begun = Instant::now();
    let mut struck = HashMap::<String, usize>::new();
    let faults = [Fault::ServerKilled, Fault::PostgresKilled, Fault::PostgresRestarted, Fault::ServerStopped];
    for fault in faults.iter().cycle() {
        load.more(10_000).await;
        if begun.elapsed() > Duration::from_secs(seconds) {
            break;
        }
        fault.strike(&folder, &mut server, &load);
        *struck.entry(format!("{fault:?}")).or_default() += 1;
    }
    let took = begun.elapsed().as_secs_f64();
    let events = load.assert_kept(&server).await;
    eprintln!(
        "{events} events acknowledged in {took:.0} s ({:.0}/s), all there and none twice, after {struck:?}",
        events as f64 / took
    );
}

#[tokio::test]
async fn a_full_queue_is_a_503_that_says_when_to_come_back_and_what_it_took_is_written() {
    let service = Service::open().await;
    let mut other = service.connection().await;
    let mut transaction = other.begin().await.expect("a transaction");
    transaction.execute("lock table generations in exclusive mode").await.expect("a lock");
    let batch = |batch: u64| {
        (0..512).map(move |line| {
            let id = Uuid::from_u64_pair(batch, line);
            json!({"event": "generation", "id": id, "user_intent": "i", "domain_name": "d"})
        })
    };
    // The queue holds 32 of these; the batches that the writers hold count too.
    let posted = join_all((1..=40).map(async |number| {
        let events: Vec<_> = batch(number).collect();
        (number, service.events(&events).await)
    }));
    let release = async {
        while service.get("/metrics").await.text().lines().all(|line| line != "gleaner_queue_events 16384") {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        transaction.commit().await.expect("released");
    };
    let (posted, ()) = futures_util::join!(posted, release);
    let mut refused = 0;
    for (number, answer) in posted {
        let kept: i64 = sqlx::query_scalar("select count(*) from generations where id = any($1)")
            .bind((0..512).map(|line| Uuid::from_u64_pair(number, line)).collect::<Vec<_>>())
            .fetch_one(&mut other)
            .await
            .expect("a count");
        if answer.status == StatusCode::SERVICE_UNAVAILABLE {
            refused += 1;
            assert!(answer.header("retry-after").is_some());
            assert_eq!(answer.json()["detail"], "the queue is full; try again");
            assert_eq!(kept, 0);
        } else {
            assert_eq!(answer.expect(200), json!({"accepted": 512, "duplicates": 0, "rejected": []}));
            assert_eq!(kept, 512);
        }
    }
    assert!((1..=8).contains(&refused), "{refused} refused");
}

#[tokio::test]
async fn a_deadlock_with_somebody_else_is_tried_again_and_not_reported() {
    let service = Service::open().await;
    let [first, second] = [1, 2].map(Uuid::from_u128);
    for id in [first, second] {
        let log = json!({"id": id, "user_intent": "i", "domain_name": "d"});
        service.post("/v1/generations", &log).await.expect(201);
    }
    let mut other = service.connection().await;
    // So that it is the writer who finds out, and loses.
    other.execute("set deadlock_timeout = '1min'").await.expect("set");
    let mut transaction = other.begin().await.expect("a transaction");
    let lock = |id: Uuid| sqlx::query("select from generations where id = $1 for update").bind(id);
    lock(second).execute(&mut *transaction).await.expect("the second");
    let attempt =
        |id: Uuid| json!({"event": "attempt", "generation_id": id, "attempt": 1, "prompt_text": "p"});
    let events = [attempt(first), attempt(second)];
    let posted = service.events(&events);
    let crossed = async {
        // The writer holds the first once it waits for the second.
        let sql = "select exists (select from pg_locks where not granted)";
        let mut watch = service.connection().await;
        while !sqlx::query_scalar::<_, bool>(sql).fetch_one(&mut watch).await.expect("an answer") {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        lock(first).execute(&mut *transaction).await.expect("the writer gives way");
        transaction.commit().await.expect("released");
    };
    let (answer, ()) = futures_util::join!(posted, crossed);
    assert_eq!(answer.expect(200), json!({"accepted": 2, "duplicates": 0, "rejected": []}));
}

#[tokio::test]
async fn a_client_that_stops_sending_is_not_waited_for() {
    let patience = Duration::from_millis(300);
    let service = Service::with(Settings { patience, ..settings() }).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let (stop, stopped) = oneshot::channel::<()>();
    let router = service.router.clone();
    let serving = tokio::spawn(serve(listener, router, patience, async { drop(stopped.await) }));
    let answer = async |sent: &str| {
        let mut connection = TcpStream::connect(address).await.expect("it listens");
        connection.write_all(sent.as_bytes()).await.expect("it reads");
        let mut answer = String::new();
        let end = tokio::time::timeout(Duration::from_secs(20), connection.read_to_string(&mut answer)).await;
        end.expect("it hangs up").expect("text");
        answer
    };
    let head = "POST /v1/generations HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n";
    assert_eq!(answer(&format!("{head}content-len")).await, "", "half a head");
    let slow = answer(&format!("{head}content-length: 100\r\n\r\n{{\"user_intent\"")).await;
    assert!(slow.starts_with("HTTP/1.1 408 Request Timeout\r\n"), "{slow}");
    assert!(slow.contains("\"detail\":\"the rest of the body did not come\""), "{slow}");
    // Whoever keeps a connection without using it is hung up on after the answer.
    let whole = answer("GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
    assert!(whole.ends_with("{\"status\":\"ok\"}"), "{whole}");
    drop(stop);
    serving.await.expect("it ends when told");
}
