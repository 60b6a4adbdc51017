//! Clients that send a part of a body and then nothing, or more than there is memory for, on as many connections as they like.

use std::time::Duration;

use axum::body::Body;
use axum::http::Request;
use futures_util::future::join_all;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use hyper::client::conn::http2::Builder;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::memory::gzip;
use crate::support::server::{Server, folder};

/// The address space of the server in KiB.
const ADDRESS_SPACE: u64 = 3 << 20;
/// The number of connections, fewer than the files that a test may open.
const CONNECTIONS: usize = 400;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn packed_bodies_that_do_not_come_hold_memory_for_their_decoders() {
    let folder = folder();
    let server = Server::start_within(&folder, ADDRESS_SPACE, &["--body-memory", "128", "--log", "off"]);
    let packed = gzip(&b"{\"user_intent\": \"".repeat(10));
    let head = format!(
        "POST /v1/generations HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Encoding: gzip\r\n\
        Content-Length: 1000000\r\n\r\n",
        server.address
    );
    let beginning = [head.as_bytes(), &packed[..packed.len() / 2]].concat();
    let connection = async |_| {
        let mut stream = TcpStream::connect(&server.address).await.expect("connects");
        stream.write_all(&beginning).await.expect("sends");
        let mut status = [0; 12];
        stream.read_exact(&mut status).await.expect("a status");
        String::from_utf8_lossy(&status[9..]).into_owned()
    };
    let mut answers: FuturesUnordered<_> = (0..CONNECTIONS).map(connection).collect();
    // The project may have 64 MiB, of which each decoder takes twice its 128 KiB.
    for _ in 256..CONNECTIONS {
        let answer = timeout(Duration::from_secs(30), answers.next()).await;
        assert_eq!(answer.ok().flatten().as_deref(), Some("503"));
    }
    assert_eq!(server.get("/v1/generations").await.0, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bodies_that_are_sent_before_they_are_asked_for_take_bounded_memory() {
    let folder = folder();
    let server = Server::start_within(&folder, ADDRESS_SPACE, &["--body-memory", "128", "--log", "off"]);
    let before = server.peak();
    let body = "x".repeat(300 << 10);
    let connection = async |_| {
        let stream = TcpStream::connect(&server.address).await.expect("connects");
        let (mut requests, connection) =
            Builder::new(TokioExecutor::new()).handshake(TokioIo::new(stream)).await.expect("HTTP/2");
        tokio::spawn(connection);
        let request = Request::post(format!("http://{}/v1/events", server.address))
            .header("content-type", "application/x-ndjson")
            .body(Body::from(body.clone()))
            .expect("a request");
        requests.send_request(request).await.expect("a response").status().as_u16()
    };
    let statuses = join_all((0..CONNECTIONS).map(connection)).await;
    assert!(statuses.iter().all(|status| [200, 503].contains(status)), "{statuses:?}");
    let taken = server.peak() - before;
    assert!(taken < 140 << 10, "{taken} KiB");
}
