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
/// The number of connections that may be ones of HTTP/2.
const OF_HTTP_2: usize = 160;

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
    let statuses = join_all((0..OF_HTTP_2).map(connection)).await;
    assert!(statuses.iter().all(|status| [200, 503].contains(status)), "{statuses:?}");
    let taken = server.peak() - before;
    assert!(taken < 140 << 10, "{taken} KiB");
}

/// A frame of HTTP/2 (RFC 9113, section 4.1).
fn frame(kind: u8, flags: u8, stream: u32, content: &[u8]) -> Vec<u8> {
    let length = u32::try_from(content.len()).expect("a short frame").to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), content].concat()
}

/// A field of a head that is sent as it is (RFC 7541, section 6.2.2).
fn field(name: &str, value: &str) -> Vec<u8> {
    let length = |text: &str| u8::try_from(text.len()).expect("a short text");
    [&[0, length(name)], name.as_bytes(), &[length(value)], value.as_bytes()].concat()
}

/// Reads a frame, and returns its kind and its content.
async fn received(stream: &mut TcpStream) -> (u8, Vec<u8>) {
    let mut head = [0; 9];
    stream.read_exact(&mut head).await.expect("a frame");
    let mut content = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
    stream.read_exact(&mut content).await.expect("its content");
    (head[3], content)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heads_of_very_many_fields_take_bounded_memory_while_their_bodies_do_not_come() {
    const ENDS_HEAD: u8 = 4;
    const DATA: u8 = 0;
    const HEADERS: u8 = 1;
    const SETTINGS: u8 = 4;
    const PING: u8 = 6;
    const MOST_STREAMS: [u8; 2] = [0, 3];
    for fields in [90, 440] {
        let folder = folder();
        let server = Server::start_within(&folder, ADDRESS_SPACE, &["--log", "off"]);
        let before = server.peak();
        let [method, scheme, path] = [(":method", "POST"), (":scheme", "http"), (":path", "/v1/generations")];
        let mut head = [method, scheme, path].map(|(name, value)| field(name, value)).concat();
        head.extend(field(":authority", &server.address));
        head.extend(field("content-type", "application/json"));
        head.extend((0..fields).flat_map(|number| field(&format!("{number:x}"), "")));
        let begin = [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".as_slice(), &frame(SETTINGS, 0, 0, &[])].concat();
        let connection = async |_| {
            let mut stream = TcpStream::connect(&server.address).await.expect("connects");
            stream.write_all(&begin).await.expect("sends");
            let (kind, settings) = received(&mut stream).await;
            assert_eq!(kind, SETTINGS);
            let streams = settings.chunks(6).find(|setting| setting[..2] == MOST_STREAMS).expect("a maximum");
            let request = |number: u8| {
                let stream = 2 * u32::from(number) + 1;
                [frame(HEADERS, ENDS_HEAD, stream, &head), frame(DATA, 0, stream, &[b' '; 1_000])].concat()
            };
            let requests: Vec<u8> = (0..streams[5]).flat_map(request).collect();
            stream.write_all(&requests).await.expect("sends");
            stream.write_all(&frame(PING, 0, 0, &[0; 8])).await.expect("sends");
            // The answer to the last frame says that all were read.
            while received(&mut stream).await.0 != PING {}
            stream
        };
        let connections = join_all((0..OF_HTTP_2).map(connection)).await;
        assert_eq!(server.get("/v1/generations").await.0, 200);
        let taken = server.peak() - before;
        assert!(taken < 100 << 10, "{taken} KiB for {fields} fields");
        drop(connections);
    }
}
