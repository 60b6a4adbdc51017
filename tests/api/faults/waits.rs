//! A full queue, a deadlock and a client that stops sending: nobody is waited for without end.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode};
use axum::routing::get;
use futures_util::StreamExt as _;
use futures_util::future::{join_all, ready};
use futures_util::stream;
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};
use sqlx::{Connection as _, Executor as _};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use uuid::Uuid;

use crate::support::program::{Connections, Settings, serve};
use crate::support::{Service, eventually, settings};

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
        eventually("the queue is full", async || {
            service.get("/metrics").await.text().lines().any(|line| line == "gleaner_queue_events 16384")
        })
        .await;
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

/// A batch of more than two pieces: the first one begins a log, the second one has its attempts, and the last line ends it.
fn log_in_pieces() -> Vec<Value> {
    let log = Uuid::from_u128(1);
    let begin = |n: u128| json!({"event": "generation", "id": Uuid::from_u128(n), "user_intent": "i", "domain_name": "d"});
    let attempt =
        |n: u128| json!({"event": "attempt", "generation_id": log, "attempt": n, "prompt_text": "p"});
    let end = json!({"event": "generation_outcome", "generation_id": log, "success": false, "error": "x"});
    (1..=512).map(begin).chain((1..=512).map(attempt)).chain([end]).collect()
}

/// Which statuses the rejected lines of a batch have, with their number.
fn rejected(summary: &Value) -> Vec<(u64, usize)> {
    let statuses = summary["rejected"].as_array().expect("a list").iter().map(|line| line["status"].as_u64());
    let statuses: Vec<_> = statuses.map(|status| status.expect("a number")).collect();
    statuses.chunk_by(u64::eq).map(|same| (same[0], same.len())).collect()
}

#[tokio::test]
async fn what_follows_in_a_batch_waits_for_what_the_database_refused_until_it_is_sent_again() {
    let service = Service::open().await;
    let mut other = service.connection().await;
    let mut transaction = other.begin().await.expect("a transaction");
    transaction.execute("lock table attempts in exclusive mode").await.expect("a lock");
    let events = log_in_pieces();
    let interrupt = async {
        let sql = "select count(pg_terminate_backend(pid)) from pg_stat_activity
                   where datname = current_database() and wait_event_type = 'Lock'";
        let mut admin = service.connection().await;
        eventually("the attempts wait", async || {
            sqlx::query_scalar::<_, i64>(sql).fetch_one(&mut admin).await.expect("an answer") > 0
        })
        .await;
        transaction.commit().await.expect("released");
    };
    let (first, ()) = futures_util::join!(service.events(&events), interrupt);
    let first = first.expect(200);
    assert_eq!((&first["accepted"], rejected(&first)), (&json!(512), vec![(503, 513)]));
    let again = service.events(&events).await.expect(200);
    assert_eq!(again, json!({"accepted": 513, "duplicates": 512, "rejected": []}));
}

/// How many transactions this process has begun again.
async fn retries(service: &Service) -> u64 {
    let metrics = service.get("/metrics").await.text();
    let count = metrics.lines().find_map(|line| line.strip_prefix("gleaner_commit_retries_total "));
    count.map_or(0, |count| count.parse().expect("a number"))
}

/// Begins two logs. Returns their ids in ascending order.
async fn two_logs(service: &Service) -> [Uuid; 2] {
    let ids = [1, 2].map(Uuid::from_u128);
    for id in ids {
        let log = json!({"id": id, "user_intent": "i", "domain_name": "d"});
        service.post("/v1/generations", &log).await.expect(201);
    }
    ids
}

#[tokio::test]
async fn a_deadlock_with_somebody_else_is_tried_again_and_not_reported() {
    let service = Service::open().await;
    let [first, second] = two_logs(&service).await;
    let mut other = service.connection().await;
    // So that it is the writer who finds out, and loses.
    other.execute("set deadlock_timeout = '1min'").await.expect("set");
    let mut transaction = other.begin().await.expect("a transaction");
    let lock = |id: Uuid| sqlx::query("select from generations where id = $1 for update").bind(id);
    lock(second).execute(&mut *transaction).await.expect("the second");
    let attempt =
        |id: Uuid| json!({"event": "attempt", "generation_id": id, "attempt": 1, "prompt_text": "p"});
    let events = [attempt(first), attempt(second)];
    let retried = retries(&service).await;
    let posted = service.events(&events);
    let crossed = async {
        // The writer holds the first once it waits for the second.
        let sql = "select exists (select from pg_stat_activity
                   where datname = current_database() and wait_event_type = 'Lock')";
        let mut watch = service.connection().await;
        eventually("the writer waits", async || {
            sqlx::query_scalar(sql).fetch_one(&mut watch).await.expect("an answer")
        })
        .await;
        lock(first).execute(&mut *transaction).await.expect("the writer gives way");
        transaction.commit().await.expect("released");
    };
    let (answer, ()) = futures_util::join!(posted, crossed);
    assert_eq!(answer.expect(200), json!({"accepted": 2, "duplicates": 0, "rejected": []}));
    assert!(retries(&service).await > retried, "there was no deadlock");
}

#[tokio::test]
async fn a_batch_locks_its_records_in_the_order_of_their_ids_whatever_happens_to_them() {
    let service = Service::open().await;
    let [first, second] = two_logs(&service).await;
    let mut other = service.connection().await;
    let mut transaction = other.begin().await.expect("a transaction");
    let lock = |id: Uuid| sqlx::query("select from generations where id = $1 for update nowait").bind(id);
    lock(first).execute(&mut *transaction).await.expect("the first");
    // Attempts are written before reviews.
    let events = [
        json!({"event": "attempt", "generation_id": second, "attempt": 1, "prompt_text": "p"}),
        json!({"event": "review", "generation_id": first, "rating": "good"}),
    ];
    let posted = service.events(&events);
    let locked = async {
        service.blocked(1).await;
        lock(second).execute(&mut *transaction).await.expect("nobody holds the second");
        transaction.commit().await.expect("released");
    };
    let (answer, ()) = futures_util::join!(posted, locked);
    assert_eq!(answer.expect(200), json!({"accepted": 2, "duplicates": 0, "rejected": []}));
}

#[tokio::test]
async fn short_events_that_wait_take_bounded_memory() {
    let service = Service::with(Settings { body_memory: 1, ..settings() }).await;
    let mut other = service.connection().await;
    let mut transaction = other.begin().await.expect("a transaction");
    transaction.execute("lock table generations in exclusive mode").await.expect("a lock");
    // Together they take six times the memory of a project.
    let log = json!({"user_intent": "x".repeat(7_500), "domain_name": "d"});
    let refused = AtomicUsize::new(0);
    let posted = join_all((0..100).map(async |_| {
        let answer = service.post("/v1/generations", &log).await;
        if answer.status == StatusCode::SERVICE_UNAVAILABLE {
            assert_eq!(answer.json()["detail"], "the queue is full; try again");
            refused.fetch_add(1, Ordering::Relaxed);
        } else {
            answer.expect(201);
        }
    }));
    let release = async {
        eventually("some are refused", async || refused.load(Ordering::Relaxed) > 0).await;
        transaction.commit().await.expect("released");
    };
    futures_util::join!(posted, release);
    assert!(refused.into_inner() < 100);
    service.post("/v1/generations", &log).await.expect(201);
}

/// Serves on a port until the sender is dropped.
async fn listen(router: &Router, limits: Connections) -> (SocketAddr, oneshot::Sender<()>, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let (stop, stopped) = oneshot::channel::<()>();
    let router = router.clone();
    let serving = tokio::spawn(serve(listener, tokio::sync::watch::channel(router).1, limits, async {
        drop(stopped.await);
    }));
    (address, stop, serving)
}

/// Asks for the health of the server on a new connection in HTTP/2, whose task ends when it is closed.
async fn http2(address: SocketAddr) -> Option<(SendRequest<Body>, JoinHandle<()>)> {
    let stream = TcpStream::connect(address).await.ok()?;
    let (mut requests, connection) = handshake(TokioExecutor::new(), TokioIo::new(stream)).await.ok()?;
    let connection = tokio::spawn(async move { drop(connection.await) });
    let request = Request::get(format!("http://{address}/healthz")).body(Body::empty()).expect("a request");
    let answer = requests.send_request(request).await.ok()?;
    (answer.status() == StatusCode::OK).then_some((requests, connection))
}

#[tokio::test]
async fn a_connection_in_http2_that_asks_for_nothing_is_closed_and_its_requests_are_answered() {
    let service = Service::open().await;
    let patience = Duration::from_millis(300);
    let (address, stop, serving) = listen(&service.router, Connections { connections: 2, patience }).await;
    let (_idle, connection) = http2(address).await.expect("an answer");
    tokio::time::timeout(Duration::from_secs(20), connection).await.expect("it is closed").expect("it ends");
    // The body of a request takes longer than that to come.
    let log = json!({"user_intent": "i", "domain_name": "d"}).to_string();
    let (first, rest) = log.split_at(5);
    let (first, rest) = (first.to_owned(), rest.to_owned());
    let body = stream::iter([first]).chain(stream::once(async move {
        tokio::time::sleep(4 * patience).await;
        rest
    }));
    let (mut requests, _connection) = http2(address).await.expect("an answer");
    let request = Request::post(format!("http://{address}/v1/generations"))
        .header("content-type", "application/json")
        .body(Body::from_stream(body.map(Ok::<_, Infallible>)))
        .expect("a request");
    let answer = requests.send_request(request).await.expect("an answer");
    assert_eq!(answer.status(), StatusCode::CREATED);
    drop(stop);
    serving.await.expect("it ends when told");
}

#[tokio::test]
async fn bodies_that_nobody_reads_do_not_slow_down_an_upload_on_the_same_connection_in_http2() {
    let service = Service::open().await;
    let limits = Connections { connections: 2, patience: Duration::from_mins(1) };
    let (address, stop, serving) = listen(&service.router, limits).await;
    let (mut requests, _connection) = http2(address).await.expect("an answer");
    let post = |path: &str, body: Body| {
        let request =
            Request::post(format!("http://{address}{path}")).header("content-type", "application/json");
        request.body(body).expect("a request")
    };
    let (rest, comes) = oneshot::channel();
    let body = stream::iter(["{".to_owned()]).chain(stream::once(async { comes.await.expect("the rest") }));
    let upload =
        requests.send_request(post("/v1/generations", Body::from_stream(body.map(Ok::<_, Infallible>))));
    let upload = tokio::spawn(upload);
    // If their parts were counted as unread, the last of them would take a minute.
    let refused = async {
        for _ in 0..300 {
            let answer =
                requests.send_request(post("/v1/nothing", Body::from("x"))).await.expect("an answer");
            assert_eq!(answer.status(), StatusCode::NOT_FOUND);
        }
    };
    tokio::time::timeout(Duration::from_secs(30), refused).await.expect("they are answered at once");
    rest.send("\"user_intent\": \"i\", \"domain_name\": \"d\"}".to_owned()).expect("it is awaited");
    let answer = upload.await.expect("ends").expect("an answer");
    assert_eq!(answer.status(), StatusCode::CREATED);
    drop(stop);
    serving.await.expect("it ends when told");
}

#[tokio::test]
async fn writers_look_rows_up_by_an_index_also_while_a_table_is_small() {
    const LOOKED_UP: &str = "
        explain select from suggestion_activity where project = 'p' and suggestion_id = gen_random_uuid()";
    let service = Service::open().await;
    sqlx::query("analyze suggestion_activity").execute(service.pool()).await.expect("analyzes");
    let mut connections = service.holding_back_reports().await;
    let plan: Vec<String> =
        sqlx::query_scalar(LOOKED_UP).fetch_all(&mut *connections[0]).await.expect("a plan");
    assert!(!plan.iter().any(|step| step.contains("Seq Scan")), "{plan:?}");
}

#[tokio::test]
async fn connections_beyond_the_most_are_closed_also_in_http2() {
    let service = Service::open().await;
    let patience = Duration::from_mins(1);
    let (address, stop, serving) = listen(&service.router, Connections { connections: 1, patience }).await;
    let held = join_all((0..33).map(|_| http2(address))).await;
    assert!(held.iter().all(Option::is_some));
    assert!(http2(address).await.is_none(), "no place is free");
    eventually("a probe is answered", async || http2(address).await.is_some()).await;
    drop((held, stop));
    serving.await.expect("it ends when told");
}

#[tokio::test]
async fn a_server_with_all_connections_taken_answers_probes_and_refuses_the_rest() {
    let service = Service::open().await;
    let limits = Connections { connections: 3, patience: Duration::from_mins(1) };
    let (address, stop, serving) = listen(&service.router, limits).await;
    let ask = async |path: &str| {
        let mut connection = TcpStream::connect(address).await.expect("it listens");
        let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n");
        connection.write_all(request.as_bytes()).await.expect("it reads");
        connection
    };
    let read = async |mut connection: TcpStream| {
        let mut answer = String::new();
        connection.read_to_string(&mut answer).await.expect("it answers and closes");
        answer
    };
    let mut idle = Vec::new();
    for _ in 0..3 {
        let mut connection = ask("/healthz").await;
        connection.read_exact(&mut [0; 15]).await.expect("it is served");
        idle.push(connection);
    }
    let probe = read(ask("/readyz").await).await;
    assert!(probe.starts_with("HTTP/1.1 200 OK\r\n") && probe.contains("connection: close\r\n"), "{probe}");
    let refused = read(ask("/v1/generations").await).await;
    assert!(refused.starts_with("HTTP/1.1 503 Service Unavailable\r\n"), "{refused}");
    assert!(
        refused.contains("\"detail\":\"the server has the maximum number of connections; try again\""),
        "{refused}"
    );
    drop(idle);
    eventually("a place is free", async || {
        let mut connection = ask("/v1/generations").await;
        let mut status = [0; 15];
        connection.read_exact(&mut status).await.expect("it answers");
        &status == b"HTTP/1.1 200 OK"
    })
    .await;
    drop(stop);
    serving.await.expect("it ends when told");
}

/// In HTTP/1.0, a response without a length ends with its connection, as those of nginx's proxies do unless they are told otherwise.
#[tokio::test]
async fn a_response_that_is_broken_off_does_not_look_whole_in_any_version_of_http() {
    let pieces = |is_whole: bool| {
        get(move || async move {
            let last =
                if is_whole { Ok("the rest\n") } else { Err(io::Error::from(io::ErrorKind::BrokenPipe)) };
            Body::from_stream(stream::iter([Ok("some rows\n")]).chain(stream::once(ready(last))))
        })
    };
    let router = Router::new().route("/whole", pieces(true)).route("/broken", pieces(false));
    let limits = Connections { connections: 3, patience: Duration::from_mins(1) };
    let (address, stop, serving) = listen(&router, limits).await;
    for version in ["1.0", "1.1"] {
        let read = async |path: &str| {
            let mut connection = TcpStream::connect(address).await.expect("it listens");
            let request =
                format!("GET /{path} HTTP/{version}\r\nhost: localhost\r\nconnection: close\r\n\r\n");
            connection.write_all(request.as_bytes()).await.expect("it reads");
            let mut answer = String::new();
            connection.read_to_string(&mut answer).await.map(|_| answer)
        };
        assert!(read("whole").await.expect("it is whole").contains("the rest\n"), "{version}");
        let is_over = |answer: String| version == "1.0" || answer.ends_with("0\r\n\r\n");
        assert!(!read("broken").await.is_ok_and(is_over), "{version}");
    }
    drop(stop);
    serving.await.expect("it ends when told");
}

#[tokio::test]
async fn a_client_that_stops_sending_is_not_waited_for() {
    let patience = Duration::from_millis(300);
    let service = Service::with(Settings { patience, ..settings() }).await;
    let (address, stop, serving) = listen(&service.router, Connections { connections: 10, patience }).await;
    let answer = async |sent: &str| {
        let mut connection = TcpStream::connect(address).await.expect("it listens");
        connection.write_all(sent.as_bytes()).await.expect("it reads");
        let mut answer = String::new();
        let end = tokio::time::timeout(Duration::from_secs(20), connection.read_to_string(&mut answer)).await;
        end.expect("it hangs up").expect("text");
        answer
    };
    let head = "POST /v1/generations HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n";
    for begun in [&format!("{head}content-len"), "", "P", "PRI * HTTP/2.0\r\n"] {
        assert_eq!(answer(begun).await, "", "{begun:?} is no request yet");
    }
    let slow = answer(&format!("{head}content-length: 100\r\n\r\n{{\"user_intent\"")).await;
    assert!(slow.starts_with("HTTP/1.1 408 Request Timeout\r\n"), "{slow}");
    assert!(slow.contains("\"detail\":\"the rest of the body did not arrive\""), "{slow}");
    // Whoever keeps a connection without using it is hung up on after the answer.
    let whole = answer("GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
    assert!(whole.ends_with("{\"status\":\"ok\"}\n"), "{whole}");
    drop(stop);
    serving.await.expect("it ends when told");
}

#[tokio::test]
async fn requests_that_wait_for_their_bodies_keep_nobody_from_reading_or_administering() {
    let service = Service::open().await;
    let patience = Duration::from_mins(1);
    let (address, stop, serving) = listen(&service.router, Connections { connections: 200, patience }).await;
    // The server asks for a body when the request has been let in.
    let begin = async |method: &str, path: &str| {
        let mut connection = TcpStream::connect(address).await.expect("it listens");
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\
             expect: 100-continue\r\n\r\n"
        );
        connection.write_all(head.as_bytes()).await.expect("it reads");
        let mut status = [0; 12];
        connection.read_exact(&mut status).await.expect("an answer");
        assert_eq!(str::from_utf8(&status), Ok("HTTP/1.1 100"), "{method} {path}");
        connection
    };
    let mut waiting = Vec::new();
    for _ in 0..40 {
        waiting.push(begin("POST", "/v1/context/predict").await);
        waiting.push(begin("POST", "/v1/keys").await);
    }
    service.get("/v1/generations").await.expect(200);
    service.post("/v1/keys", &json!({"name": "k", "scopes": ["read"]})).await.expect(201);
    drop(waiting);
    drop(stop);
    serving.await.expect("it ends when told");
}

#[tokio::test]
async fn a_head_beyond_32_kib_is_refused() {
    let service = Service::open().await;
    let patience = Duration::from_mins(1);
    let (address, stop, serving) = listen(&service.router, Connections { connections: 10, patience }).await;
    for (length, status) in [(30_000, "200"), (35_000, "431")] {
        let mut connection = TcpStream::connect(address).await.expect("it listens");
        let (mut reader, mut writer) = connection.split();
        let head = format!(
            "GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\nx: {}\r\n\r\n",
            "x".repeat(length)
        );
        let mut answer = [0; 12];
        let (_, read) =
            futures_util::join!(writer.write_all(head.as_bytes()), reader.read_exact(&mut answer));
        read.expect("an answer");
        assert_eq!(str::from_utf8(&answer), Ok(format!("HTTP/1.1 {status}").as_str()));
    }
    drop(stop);
    serving.await.expect("it ends when told");
}

#[tokio::test]
async fn a_client_that_sends_all_of_a_body_before_it_reads_learns_why_it_was_refused() {
    let service = Service::open().await;
    let patience = Duration::from_mins(1);
    let (address, stop, serving) = listen(&service.router, Connections { connections: 10, patience }).await;
    // It is refused for its length, before it has come.
    let body = vec![b' '; 32 << 20];
    let head = format!(
        "POST /v1/generations HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    let mut connection = TcpStream::connect(address).await.expect("it listens");
    connection.write_all(head.as_bytes()).await.expect("it reads the head");
    connection.write_all(&body).await.expect("it reads the body");
    let mut answer = String::new();
    connection.read_to_string(&mut answer).await.expect("it answers and closes");
    assert!(answer.starts_with("HTTP/1.1 413 Payload Too Large\r\n"), "{answer}");
    assert!(answer.contains("\"detail\":\"the body has more than 2097152 bytes\""), "{answer}");
    assert!(answer.contains("\r\nconnection: close\r\n"), "{answer}");
    drop(stop);
    serving.await.expect("it ends when told");
}

#[tokio::test]
async fn a_client_that_reads_nothing_of_its_answer_is_hung_up_on() {
    let service = Service::open().await;
    for _ in 0..8 {
        let log = json!({"user_intent": "x".repeat(2_000_000), "domain_name": "d"});
        service.post("/v1/generations", &log).await.expect(201);
    }
    let patience = Duration::from_millis(300);
    let (address, stop, serving) = listen(&service.router, Connections { connections: 1, patience }).await;
    let mut silent = TcpStream::connect(address).await.expect("it listens");
    let request = "GET /v1/generations HTTP/1.1\r\nhost: localhost\r\n\r\n";
    silent.write_all(request.as_bytes()).await.expect("it reads");
    silent.read_exact(&mut [0; 15]).await.expect("the answer begins");
    eventually("its place is free", async || {
        let mut connection = TcpStream::connect(address).await.expect("it listens");
        let sent = connection.write_all(b"GET /v1/sessions HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
        let mut status = [0; 15];
        sent.is_ok() && connection.read_exact(&mut status).await.is_ok() && &status == b"HTTP/1.1 200 OK"
    })
    .await;
    drop(stop);
    serving.await.expect("it ends when told");
}
