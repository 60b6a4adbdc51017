//! Clients that ask for much and read none of it, on connections of HTTP/2, which have many requests each and may keep every
//! response waiting.

use std::time::{Duration, Instant};

use axum::body::Body;
use axum::http::{Request, Response};
use futures_util::future::join_all;
use hyper::body::Incoming;
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use uuid::Uuid;

use super::memory::fill;
use crate::support::eventually;
use crate::support::server::{Server, folder};

/// The address space of the server in KiB.
const ADDRESS_SPACE: u64 = 3 << 20;
const JSON: &str = "application/json";
/// The number of requests on a connection, as many as one may have at once while as many others are open as here.
const STREAMS: usize = 18;

/// A connection whose client has room for a byte of each response.
async fn connect(address: &str) -> SendRequest<Body> {
    let stream = TcpStream::connect(address).await.expect("connects");
    let mut client = Builder::new(TokioExecutor::new());
    client.initial_stream_window_size(1).initial_connection_window_size(1 << 30);
    let (requests, connection) = client.handshake(TokioIo::new(stream)).await.expect("HTTP/2");
    tokio::spawn(connection);
    requests
}

/// The responses to requests for the same on so many connections, of which nothing is read.
async fn unread(
    address: &str,
    connections: usize,
    path: &str,
    encoding: &str,
) -> Vec<(SendRequest<Body>, Vec<Response<Incoming>>)> {
    let connection = async |_| {
        let requests = connect(address).await;
        let responses = join_all((0..STREAMS).map(|_| {
            let request = Request::get(format!("http://{address}{path}")).header("accept-encoding", encoding);
            requests.clone().send_request(request.body(Body::empty()).expect("a request"))
        }));
        let responses = responses.await.into_iter().map(|response| response.expect("a response")).collect();
        (requests, responses)
    };
    join_all((0..connections).map(connection)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn documents_and_answers_that_nobody_reads_take_little_memory() {
    let folder = folder();
    let server = Server::start_within(&folder, ADDRESS_SPACE, &["--log", "off"]);
    // Nothing that a compressor is done with at once.
    let mut random = fastrand::Rng::with_seed(1);
    let intent: String = (0..15_000).map(|_| random.alphanumeric()).collect();
    let log = json!({"user_intent": intent, "domain_name": "d"});
    let (status, made) = server.post("/v1/generations", &log).await;
    assert_eq!(status, 201);
    let record = format!("/v1/generations/{}", made["id"].as_str().expect("an id"));
    let before = server.peak();
    let mut unread_yet = Vec::new();
    for encoding in ["identity", "zstd", "gzip"] {
        for path in ["/openapi.json", record.as_str(), "/metrics"] {
            let responses = unread(&server.address, 3, path, encoding).await;
            for response in responses.iter().flat_map(|(_, responses)| responses) {
                assert_eq!(response.status(), 200, "{path}");
            }
            unread_yet.push(responses);
        }
    }
    let (status, _) = server.get("/v1/generations").await;
    let taken = server.peak() - before;
    assert_eq!(status, 200);
    assert!(taken < 24 << 10, "{} responses that wait for their clients take {taken} KiB", 9 * 3 * STREAMS);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lists_that_a_project_leaves_unread_take_bounded_memory_and_leave_some_to_others() {
    let folder = folder();
    let server = Server::start_within(&folder, ADDRESS_SPACE, &["--body-memory", "128", "--log", "off"]);
    let address = &server.address;
    fill(address).await;
    let project = format!("http://{address}/v1/projects/quiet");
    as_quiet(|agent| agent.put(project).content_type(JSON).send("{}")).await;
    let requests = connect(address).await;
    let mut unread = Vec::new();
    for _ in 0..3 {
        let request = Request::get(format!("http://{address}/v1/generations?limit=500"));
        let request = request.body(Body::empty()).expect("a request");
        unread.push(requests.clone().send_request(request).await.expect("a response"));
    }
    // Each takes some 28 MiB, and the project may have 64.
    let statuses: Vec<_> = unread.iter().map(|response| response.status().as_u16()).collect();
    assert_eq!(statuses, [200, 200, 503]);
    let log = json!({"user_intent": "a ".repeat(10_000), "domain_name": "d"});
    let logs = format!("http://{address}/v1/generations");
    as_quiet(move |agent| {
        agent.post(logs).header("gleaner-project", "quiet").content_type(JSON).send(&log.to_string())
    })
    .await;
    let peak = server.peak();
    assert!(peak < 400 << 10, "{peak} KiB");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshot_for_which_its_project_has_no_memory_lets_those_of_others_go_first() {
    let folder = folder();
    let server = Server::start_within(&folder, ADDRESS_SPACE, &["--body-memory", "128", "--log", "off"]);
    let address = &server.address;
    let pair = json!({"topic_id": "t", "user_text": "x".repeat(1_900_000), "assistant_text": "a"});
    assert_eq!(server.post("/v1/pairs", &pair).await.0, 201);
    let project = format!("http://{address}/v1/projects/quiet");
    as_quiet(|agent| agent.put(project).content_type(JSON).send("{}")).await;
    // The project may have 64 MiB, of which a batch holds as much as has come of it.
    let mut batch = TcpStream::connect(address).await.expect("connects");
    let head = format!(
        "POST /v1/events HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/x-ndjson\r\nContent-Length: {}\r\n\r\n",
        62 << 20
    );
    batch.write_all(head.as_bytes()).await.expect("sends");
    batch.write_all(&vec![b' '; 61 << 20]).await.expect("sends");
    let snapshot = json!({"dataset": "conversations", "file": "jsonl"});
    let (status, waiting) = server.post("/v1/snapshots", &snapshot).await;
    assert_eq!(status, 202, "{waiting}");
    let waiting = format!("/v1/snapshots/{}", waiting["id"].as_str().expect("an id"));
    eventually("it is being built", async || server.get(&waiting).await.1["state"] == "building").await;
    let snapshots = format!("http://{address}/v1/snapshots");
    let other = json!({"id": Uuid::from_u128(1), "dataset": "conversations", "file": "jsonl"});
    let quiet = ("gleaner-project", "quiet");
    let agent = || ureq::Agent::config_builder().http_status_as_error(false).proxy(None).build().new_agent();
    as_quiet(move |agent| {
        agent.post(snapshots).header(quiet.0, quiet.1).content_type(JSON).send(&other.to_string())
    })
    .await;
    eventually("the other one is complete", async || {
        let built = format!("http://{address}/v1/snapshots/{}", Uuid::from_u128(1));
        let got = move || agent().get(built).header(quiet.0, quiet.1).call()?.body_mut().read_to_string();
        let got = tokio::task::spawn_blocking(got).await.expect("no panic").expect("an answer");
        got.contains("\"complete\"")
    })
    .await;
    assert_ne!(server.get(&waiting).await.1["state"], "complete");
    drop(batch);
    eventually("it is complete, too", async || server.get(&waiting).await.1["state"] == "complete").await;
}

/// Sends the same on many connections at once and reads no more of each response than its status.
async fn statuses(address: &str, connections: usize, head: &str, body: &Value) -> Vec<(TcpStream, String)> {
    let body = body.to_string();
    let request = format!(
        "{head} HTTP/1.1\r\nHost: {address}\r\nContent-Type: {JSON}\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let connection = async |_| {
        let mut stream = TcpStream::connect(address).await.expect("connects");
        stream.write_all(request.as_bytes()).await.expect("sends");
        let mut status = [0; 12];
        stream.read_exact(&mut status).await.expect("a status");
        (stream, String::from_utf8_lossy(&status[9..]).into_owned())
    };
    join_all((0..connections).map(connection)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn suggestions_that_are_asked_for_again_by_many_take_bounded_memory() {
    let folder = folder();
    let server = Server::start_within(&folder, ADDRESS_SPACE, &["--body-memory", "128", "--log", "off"]);
    for number in 10..30 {
        let content = format!("Staging uses port 8{number}. {}", "It is behind the gateway. ".repeat(10_000));
        let (status, _) = server.post("/v1/memories", &json!({"content": content})).await;
        assert_eq!(status, 201);
    }
    let query = json!({"query": "Which port does staging use behind the gateway?"});
    assert_eq!(server.post("/v1/conversations/s/queries", &query).await.0, 201);
    let suggest = json!({"id": Uuid::from_u128(1), "max_suggestions": 20, "confidence_threshold": 0});
    let (status, first) = server.post("/v1/conversations/s/suggest", &suggest).await;
    assert_eq!((status.as_u16(), &first["total_suggestions"]), (200, &json!(20)), "{first}");
    let suggestions = statuses(&server.address, 600, "POST /v1/conversations/s/suggest", &suggest).await;
    assert!(suggestions.iter().all(|(_, status)| ["200", "503"].contains(&status.as_str())));
    let peak = server.peak();
    assert!(peak < 400 << 10, "{peak} KiB");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_changes_long_records_leaves_the_database_to_others_while_the_responses_wait_for_memory() {
    let folder = folder();
    let server = Server::start_within(&folder, ADDRESS_SPACE, &["--body-memory", "128", "--log", "off"]);
    let (_, log) = server.post("/v1/generations", &json!({"user_intent": "i", "domain_name": "d"})).await;
    let path = format!("/v1/generations/{}", log["id"].as_str().expect("an id"));
    for attempt in 1..=15 {
        let new = json!({"attempt": attempt, "raw_response": "x".repeat(1_900_000)});
        assert_eq!(server.post(&format!("{path}/attempts"), &new).await.0, 201);
    }
    let quiet = format!("http://{}/v1/projects/quiet", server.address);
    as_quiet(|agent| agent.put(quiet).content_type(JSON).send("{}")).await;
    let (address, head) = (server.address.clone(), format!("PUT {path}/review"));
    let changes =
        tokio::spawn(async move { statuses(&address, 64, &head, &json!({"rating": "good"})).await });
    let lists = format!("http://{}/v1/generations", server.address);
    let mut read = 0;
    while !changes.is_finished() {
        let lists = lists.clone();
        let (status, took) = tokio::task::spawn_blocking(move || {
            let begun = Instant::now();
            let agent: ureq::Agent =
                ureq::Agent::config_builder().http_status_as_error(false).proxy(None).build().into();
            let response = agent.get(lists).header("gleaner-project", "quiet").call().expect("a response");
            (response.status(), begun.elapsed())
        })
        .await
        .expect("no panic");
        assert!(status == 200 && took < Duration::from_secs(3), "{status} after {took:?}");
        read += 1;
    }
    assert!(read > 5, "{read}");
    let answers = changes.await.expect("no panic");
    assert!(
        answers.iter().all(|(_, status)| ["200", "204"].contains(&status.as_str())),
        "every change is kept"
    );
    let peak = server.peak();
    assert!(peak < 400 << 10, "{peak} KiB");
}

/// Sends a request that must make something.
async fn as_quiet(
    send: impl FnOnce(ureq::Agent) -> Result<ureq::http::Response<ureq::Body>, ureq::Error> + Send + 'static,
) {
    let agent = ureq::Agent::config_builder().http_status_as_error(false).proxy(None).build().into();
    let response =
        tokio::task::spawn_blocking(move || send(agent)).await.expect("no panic").expect("an answer");
    assert!([201, 202].contains(&response.status().as_u16()), "{}", response.status());
}
