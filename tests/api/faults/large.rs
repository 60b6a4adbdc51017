//! Records, calls and rows that are as large as they may be, of which many are asked for at once: what is made of them takes no
//! more than the memory that requests share.

use std::convert::Infallible;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::routing::{MethodRouter, post};
use futures_util::future::join_all;
use futures_util::stream;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use uuid::Uuid;

use super::memory::{exchange, gzip};
use crate::support::eventually;
use crate::support::server::{Server, folder};

/// The address space of the server in KiB.
const ADDRESS_SPACE: u64 = 3 << 20;

/// A server with so many MiB for bodies, and a providers file.
fn start(folder: &TempDir, body_memory: u64, file: &str) -> Server {
    let providers = folder.path().join("providers.toml");
    fs::write(&providers, file).expect("a file");
    let body_memory = body_memory.to_string();
    let providers = providers.to_str().expect("a path");
    let arguments = ["--body-memory", &body_memory, "--log", "off", "--providers-file", providers];
    Server::start_within(folder, ADDRESS_SPACE, &arguments)
}

/// Asserts that a server with so many MiB for bodies has really used little more.
#[track_caller]
fn assert_bounded(server: &Server, body_memory: u64, what: &str) {
    let used = server.peak();
    assert!(used < (body_memory + 200) << 10, "with {what}, the server has used {used} KiB");
}

async fn send(address: &str, project: &str, method: &str, path: &str, body: &Value) -> Option<u16> {
    let head =
        format!("{method} {path} HTTP/1.1\r\nContent-Type: application/json\r\nGleaner-Project: {project}");
    exchange(address, &head, body.to_string().as_bytes()).await
}

/// Makes pairs of a topic with the same message.
async fn pairs(address: &str, project: &str, topic: &str, count: usize, text: &str) {
    for _ in 0..count {
        let pair = json!({"topic_id": topic, "user_text": text, "assistant_text": "a"});
        assert_eq!(send(address, project, "POST", "/v1/pairs", &pair).await, Some(201));
    }
}

/// Reads a response slowly to its end. Returns whether it was whole, and its length.
async fn read_slowly(address: &str, project: &str, path: &str) -> (bool, usize) {
    let mut stream = TcpStream::connect(address).await.expect("connects");
    let head = format!(
        "GET {path} HTTP/1.1\r\nHost: {address}\r\nGleaner-Project: {project}\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.expect("sends");
    let (mut piece, mut length, mut end) = (vec![0; 64 << 10], 0, Vec::new());
    while let Ok(bytes @ 1..) = stream.read(&mut piece).await {
        length += bytes;
        end.extend_from_slice(&piece[..bytes]);
        end.drain(..end.len().saturating_sub(7));
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    (end == b"\r\n0\r\n\r\n", length)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn long_rows_of_exports_for_slow_readers_take_bounded_memory_and_arrive() {
    let folder = folder();
    let server = start(&folder, 256, "");
    let address = &server.address;
    let projects = ["a", "b", "c", "d"];
    for project in projects {
        let made = send(address, "default", "PUT", &format!("/v1/projects/{project}"), &json!({})).await;
        assert_eq!(made, Some(201));
        pairs(address, project, "t", 8, &"x".repeat(2_000_000)).await;
    }
    for format in ["openai", "raw"] {
        let path = format!("/v1/exports/conversations?format={format}");
        let readers = projects.iter().flat_map(|project| [project; 3]);
        let read = join_all(readers.map(|project| read_slowly(address, project, &path))).await;
        for (is_whole, length) in read {
            assert!(is_whole && length > 16_000_000, "{length} bytes");
        }
        assert_bounded(&server, 256, format);
    }
    // Whoever asks for a profile has it, or is answered that there is no memory.
    let path = "/v1/exports/conversations/profile";
    let asked = projects.iter().flat_map(|project| [project; 4]);
    let profiles = join_all(asked.map(|project| read_slowly(address, project, path))).await;
    assert!(profiles.iter().any(|(_, length)| *length > 500));
    assert_bounded(&server, 256, "profiles");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn searches_among_texts_that_have_nothing_in_common_take_bounded_memory() {
    const TEXTS: u32 = 1_000;
    const BODY_MEMORY: u64 = 128;
    let folder = folder();
    let server = start(&folder, BODY_MEMORY, "");
    let address = &server.address;
    let projects = ["a", "b", "c", "d"];
    // Syllables of Korean, of which there are eleven thousand.
    let mut random = fastrand::Rng::with_seed(1);
    let mut text = |length: usize| -> String {
        let syllable = || char::from_u32(random.u32(0xAC00..0xD7A4)).expect("a syllable");
        std::iter::repeat_with(syllable).take(length).collect()
    };
    let logs: Vec<_> = (0..TEXTS)
        .map(|_| {
            let passed =
                json!({"attempt": 1, "extracted_dsl": text(1_990), "parse_result": {"success": true}});
            json!({"event": "generation", "user_intent": format!("alpha {}", text(990)), "domain_name": "d",
                "success": true, "iterations": [passed]})
            .to_string()
        })
        .collect();
    for project in projects {
        let made = send(address, "default", "PUT", &format!("/v1/projects/{project}"), &json!({})).await;
        assert_eq!(made, Some(201));
        let head = format!(
            "POST /v1/events HTTP/1.1\r\nContent-Type: application/x-ndjson\r\nGleaner-Project: {project}"
        );
        assert_eq!(exchange(address, &head, logs.join("\n").as_bytes()).await, Some(200));
    }
    let asked = projects.iter().flat_map(|project| [project; 2]);
    let found = join_all(asked.map(async |project| {
        send(address, project, "GET", "/v1/generations/similar?intent=alpha", &json!({})).await
    }))
    .await;
    assert!(
        found.contains(&Some(200)) && found.iter().all(|status| matches!(status, Some(200 | 503))),
        "{found:?}"
    );
    assert_bounded(&server, BODY_MEMORY, "searches");
}

/// Starts a provider with this route. Returns its file.
async fn provider(completions: MethodRouter) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let router = Router::new()
        .route("/v1/chat/completions", completions)
        .layer(axum::extract::DefaultBodyLimit::disable());
    tokio::spawn(async move { axum::serve(listener, router).await });
    format!(
        "[[providers]]\nname = \"open\"\nkind = \"openai\"\nbase_url = \"http://{address}/v1\"
        [[providers.models]]\nname = \"m\"\ncontext_window = 1000000000\n"
    )
}

/// A provider that reads requests and does not answer them. Returns its file, and the number of requests that have come.
async fn silent_provider() -> (String, Arc<AtomicUsize>) {
    let came = Arc::new(AtomicUsize::new(0));
    let never = async |State(came): State<Arc<AtomicUsize>>, body: Bytes| {
        drop(body);
        came.fetch_add(1, Ordering::Relaxed);
        std::future::pending::<()>().await;
    };
    (provider(post(never).with_state(Arc::clone(&came))).await, came)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_that_come_byte_by_byte_take_no_more_memory_than_others() {
    let folder = folder();
    let answers = post(async || {
        let said =
            json!({"choices": [{"message": {"content": "x".repeat(256 << 10)}, "finish_reason": "stop"}]});
        let bytes = said.to_string().into_bytes().into_iter();
        let pieces = bytes.map(|byte| Ok::<_, Infallible>(Bytes::from(vec![byte])));
        ([("content-type", "application/json")], Body::from_stream(stream::iter(pieces)))
    });
    let server = start(&folder, 128, &provider(answers).await);
    let before = server.peak();
    let body = json!({"model": "open/m", "messages": [{"role": "user", "content": "hello"}]});
    let sends =
        (0..8).map(|_| send(&server.address, "default", "POST", "/openai/v1/chat/completions", &body));
    assert_eq!(join_all(sends).await, [Some(200); 8]);
    // The answers have 2 MiB.
    let taken = server.peak() - before;
    assert!(taken < 48 << 10, "the answers take {taken} KiB");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_records_and_calls_at_once_take_bounded_memory() {
    let folder = folder();
    let (file, came) = silent_provider().await;
    let server = start(&folder, 128, &file);
    let address = &server.address;
    // Six bytes of JSON each.
    let text = "\u{1}".repeat(320_000) + "a";
    pairs(address, "default", "many", 40, &text).await;
    pairs(address, "default", "some", 12, &text).await;
    let all = async |times: usize, path: &str, statuses: &[u16]| {
        let head = format!("GET {path} HTTP/1.1");
        let sent = join_all((0..times).map(|_| exchange(address, &head, b""))).await;
        assert!(sent.iter().flatten().all(|status| statuses.contains(status)), "{sent:?}");
    };
    all(12, "/v1/pairs?limit=500", &[200, 503]).await;
    assert_bounded(&server, 128, "lists of pairs");

    let asks = |mode: &str, topic: &str| json!({"mode": mode, "model": "m", "user_text": "q", "visible": {"filter": {"topic_id": topic}}});
    for (topic, statuses) in [("some", [200, 503]), ("many", [413, 503])] {
        let (status, made) = server.post("/v1/sends", &asks("record", topic)).await;
        assert!([201, 413].contains(&status.as_u16()), "{status} {made}");
        let (_, sends) = server.get("/v1/sends?limit=1").await;
        let id = sends["data"][0]["id"].as_str().expect("an id");
        all(8, &format!("/v1/sends/{id}"), &statuses).await;
        assert_bounded(&server, 128, "sends");
    }

    calls(&server, &came, 8, "/v1/sends", asks("execute", "some")).await;
    assert_bounded(&server, 128, "calls");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn long_messages_through_the_gateway_at_once_take_bounded_memory() {
    let folder = folder();
    let (file, came) = silent_provider().await;
    let server = start(&folder, 256, &file);
    let said = |bytes: usize| json!({"model": "open/m", "messages": [{"role": "user", "content": "x".repeat(bytes)}]});
    for (times, bytes) in [(2, 32_000_000), (16, 8_000_000)] {
        calls(&server, &came, times, "/openai/v1/chat/completions", said(bytes)).await;
        assert_bounded(&server, 256, &format!("{times} messages of {bytes} bytes"));
    }
}

/// Asks several times at once for calls of a silent provider. Whoever asks either reaches it or is answered that there is no
/// memory.
async fn calls(server: &Server, came: &AtomicUsize, times: usize, path: &'static str, body: Value) {
    let sending = async || {
        let (_, sends) = server.get("/v1/sends?state=sending").await;
        sends["data"].as_array().map(Vec::len)
    };
    let recorded = sending().await;
    let (answered, before) = (Arc::new(AtomicUsize::new(0)), came.load(Ordering::Relaxed));
    let call = |_| {
        let (address, answered, body) = (server.address.clone(), Arc::clone(&answered), body.clone());
        tokio::spawn(async move {
            send(&address, "default", "POST", path, &body).await;
            answered.fetch_add(1, Ordering::Relaxed);
        })
    };
    let calls: Vec<_> = (0..times).map(call).collect();
    eventually("all were called or answered", async || {
        let called = came.load(Ordering::Relaxed) - before;
        called + answered.load(Ordering::Relaxed) == times && called > 0
    })
    .await;
    // A client that is gone cancels its call.
    calls.iter().for_each(tokio::task::JoinHandle::abort);
    eventually("no call is left", async || sending().await == recorded).await;
}

/// Posts these bodies, a few at a time. Each is created.
async fn post_all(
    address: &str,
    path: impl Fn(&Uuid) -> String,
    ids: &[Uuid],
    body: impl Fn(&Uuid) -> Value,
) {
    for some in ids.chunks(4) {
        let posts = some.iter().map(async |id| {
            let head = format!(
                "POST {} HTTP/1.1\r\nContent-Type: application/json\r\nContent-Encoding: gzip\r\n\
                Prefer: return=minimal",
                path(id)
            );
            exchange(address, &head, &gzip(body(id).to_string().as_bytes())).await
        });
        assert_eq!(join_all(posts).await, vec![Some(201); some.len()]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inputs_that_name_many_long_stored_ones_take_bounded_memory() {
    let folder = folder();
    let server = start(&folder, 128, "");
    let address = &server.address;
    let ids: Vec<_> = (1..=160).map(Uuid::from_u128).collect();
    let text = "x".repeat(2_000_000);

    let slate = Uuid::from_u128(1_000);
    let (status, said) =
        server.post("/v1/suggestions", &json!({"id": slate, "suggestions": ["a", "b"], "context": {}})).await;
    assert_eq!(status, 201, "{said}");
    let inputs = format!("/v1/suggestions/{slate}/partial-inputs");
    post_all(address, |_| inputs.clone(), &ids, |id| json!({"inputs": [{"id": id, "text": text}]})).await;
    let others: Vec<_> = ids.iter().map(|id| json!({"id": id, "text": "y"})).collect();
    let (status, said) = server.post(&inputs, &json!({"inputs": others})).await;
    assert_eq!(status, 409, "{said}");
    assert_bounded(&server, 128, "partial inputs");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_and_ends_of_many_sends_with_long_pairs_at_once_take_bounded_memory() {
    let folder = folder();
    let server = start(&folder, 128, "");
    let address = &server.address;
    let ids: Vec<_> = (1..=160).map(Uuid::from_u128).collect();
    let text = "x".repeat(2_000_000);
    assert_eq!(
        send(address, "default", "PUT", "/v1/models/m", &json!({"context_window": 1_000_000})).await,
        Some(201)
    );
    let asks = |id: &Uuid| {
        let pair = json!({"id": "a", "user_text": text, "assistant_text": "b", "tokens": 0});
        json!({"id": id, "mode": "record", "model": "m", "user_text": "q", "pairs": [pair]})
    };
    post_all(address, |_| "/v1/sends".to_owned(), &ids, asks).await;
    let failed = json!({"latency_ms": 1, "included_ids": ["a"], "error": {"message": "overloaded"}});
    let answered = json!({"assistant_text": "c"});
    for (path, body) in [("attempts", failed), ("finalize", answered)] {
        let paths = ids.iter().map(|id| format!("/v1/sends/{id}/{path}")).collect::<Vec<_>>();
        let posts = paths.iter().map(|path| {
            let head =
                format!("POST {path} HTTP/1.1\r\nContent-Type: application/json\r\nPrefer: return=minimal");
            let body = body.to_string();
            async move { exchange(address, &head, body.as_bytes()).await }
        });
        let statuses = join_all(posts).await;
        assert!(statuses.iter().all(|status| matches!(status, Some(200 | 201))), "{statuses:?}");
        assert_bounded(&server, 128, path);
    }
}
