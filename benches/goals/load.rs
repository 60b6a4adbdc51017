//! A lean HTTP client, because the client and the server share the machine.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::machine::KEY;

/// Returns the bytes of a request: a POST if it has a body, with this media type, and otherwise a GET.
pub(crate) fn request(project: &str, path: &str, body: Option<(&str, &str)>) -> Vec<u8> {
    let method = if body.is_some() { "POST" } else { "GET" };
    let (media_type, body) = body.unwrap_or_default();
    format!(
        "{method} {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {KEY}\r\ngleaner-project: {project}\r\n\
         content-type: {media_type}\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// Returns a request with a batch of events, one per line.
pub(crate) fn ndjson(project: &str, lines: &str) -> Vec<u8> {
    request(project, "/v1/events", Some(("application/x-ndjson", lines)))
}

/// A kept-alive connection.
pub(crate) struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Connection {
    pub(crate) async fn open(address: &str) -> Self {
        let stream = TcpStream::connect(address).await.expect("the server listens");
        stream.set_nodelay(true).expect("a TCP socket");
        Self { stream, buffer: Vec::with_capacity(16 << 10) }
    }

    /// Sends a request and returns the body of the response, which must be a success and reject no line of a batch.
    pub(crate) async fn send(&mut self, request: &[u8]) -> &str {
        self.stream.write_all(request).await.expect("the server reads");
        self.buffer.clear();
        loop {
            assert!(
                self.stream.read_buf(&mut self.buffer).await.expect("an answer") > 0,
                "the server hung up"
            );
            let Some(end) = self.buffer.windows(4).position(|bytes| bytes == b"\r\n\r\n") else { continue };
            let head = str::from_utf8(&self.buffer[..end]).expect("a head of text").to_ascii_lowercase();
            let length = head.split("content-length: ").nth(1).and_then(|rest| rest.lines().next());
            let length: usize = length.and_then(|length| length.parse().ok()).expect("a length");
            if self.buffer.len() < end + 4 + length {
                continue;
            }
            let body = str::from_utf8(&self.buffer[end + 4..]).expect("text");
            assert!(head.starts_with("http/1.1 2"), "{head}\n{body}");
            assert!(!body.contains(r#""rejected":[{"#), "{body}");
            return body;
        }
    }

    /// Sends a request and reads a chunked response to its end. It must be a success.
    pub(crate) async fn chunks(&mut self, request: &[u8]) {
        self.stream.write_all(request).await.expect("the server reads");
        self.buffer.clear();
        let mut is_first = true;
        while !self.buffer.ends_with(b"\r\n0\r\n\r\n") {
            if self.buffer.len() > 1 << 20 {
                let end = self.buffer.len() - 16;
                self.buffer.drain(..end);
            }
            let read = self.stream.read_buf(&mut self.buffer).await.expect("an answer");
            assert!(read > 0, "the server hung up");
            let begins = std::mem::replace(&mut is_first, false);
            assert!(!begins || self.buffer.starts_with(b"HTTP/1.1 200"), "a success");
        }
    }

    /// Sends a request and reads a streamed response to its end. It must be a success. Returns the times until the
    /// first event and until the end, in milliseconds.
    pub(crate) async fn stream(&mut self, request: &[u8]) -> (f64, f64) {
        let sent = Instant::now();
        self.stream.write_all(request).await.expect("the server reads");
        self.buffer.clear();
        let mut first = None;
        loop {
            let read = self.stream.read_buf(&mut self.buffer).await.expect("an answer");
            assert!(read > 0, "the server hung up");
            if first.is_none() && self.buffer.windows(5).any(|bytes| bytes == b"data:") {
                assert!(
                    self.buffer.starts_with(b"HTTP/1.1 200"),
                    "{}",
                    String::from_utf8_lossy(&self.buffer)
                );
                first = Some(sent.elapsed());
            }
            if self.buffer.ends_with(b"\r\n0\r\n\r\n") {
                let milliseconds = |time: Duration| time.as_secs_f64() * 1e3;
                return (milliseconds(first.expect("an event")), milliseconds(sent.elapsed()));
            }
        }
    }

    /// Sends a request and reads the response to its end without storing it. Returns its number of bytes. `watch` is
    /// called from time to time.
    pub(crate) async fn drain(mut self, path: &str, mut watch: impl FnMut()) -> usize {
        let request = request("default", path, None);
        let (first, rest) =
            request.split_at(request.iter().position(|&byte| byte == b'\n').expect("a line") + 1);
        self.stream
            .write_all(&[first, b"connection: close\r\n", rest].concat())
            .await
            .expect("the server reads");
        let (mut total, mut seen) = (0, 0);
        loop {
            self.buffer.clear();
            match self.stream.read_buf(&mut self.buffer).await.expect("an answer") {
                0 => return total,
                read => total += read,
            }
            assert!(total > self.buffer.len() || self.buffer.starts_with(b"HTTP/1.1 200"), "a success");
            if total - seen > 1 << 20 {
                seen = total;
                watch();
            }
        }
    }
}

/// The latencies of requests.
#[derive(Debug, Default)]
pub(crate) struct Latencies {
    /// The latencies in milliseconds, sorted by [`Latencies::new`].
    sorted: Vec<f64>,
    seconds: f64,
}

impl Latencies {
    pub(crate) fn new(mut milliseconds: Vec<f64>, seconds: f64) -> Self {
        milliseconds.sort_by(f64::total_cmp);
        Self { sorted: milliseconds, seconds }
    }

    /// Returns the number of requests.
    pub(crate) fn count(&self) -> u64 {
        self.sorted.len() as u64
    }

    /// Returns the number of requests per second.
    pub(crate) fn rate(&self) -> f64 {
        self.count() as f64 / self.seconds
    }

    /// Returns a percentile in milliseconds.
    pub(crate) fn percentile(&self, percent: usize) -> f64 {
        let place = (self.sorted.len() * percent / 100).min(self.sorted.len().saturating_sub(1));
        self.sorted.get(place).copied().unwrap_or(f64::NAN)
    }

    pub(crate) fn summary(&self) -> String {
        let [p50, p95, p99] = [50, 95, 99].map(|percent| self.percentile(percent));
        format!("p50 {p50:.2} p95 {p95:.2} p99 {p99:.2} ms")
    }
}

/// Sends requests over this many connections, each as soon as the previous one was answered. `request` makes them, by
/// number, until it makes no more.
pub(crate) async fn send_all(
    address: &str,
    connections: usize,
    request: impl Fn(u64) -> Option<Vec<u8>>,
) -> Latencies {
    let next = std::cell::Cell::new(0);
    let begun = Instant::now();
    let clients = (0..connections).map(async |_| {
        let mut connection = Connection::open(address).await;
        let mut took = Vec::new();
        while let Some(request) = request(next.replace(next.get() + 1)) {
            let sent = Instant::now();
            connection.send(&request).await;
            took.push(sent.elapsed().as_secs_f64() * 1e3);
        }
        took
    });
    let took = join_all(clients).await.concat();
    Latencies::new(took, begun.elapsed().as_secs_f64())
}

/// Sends requests as [`send_all`] does, for this duration.
pub(crate) async fn send_for(
    address: &str,
    connections: usize,
    duration: Duration,
    request: impl Fn(u64) -> Vec<u8>,
) -> Latencies {
    let begun = Instant::now();
    send_all(address, connections, |nth| (begun.elapsed() < duration).then(|| request(nth))).await
}

/// Sends the same request over this many connections for this duration, each time after the previous streamed
/// response has ended. Returns the times until the first events and until the ends.
pub(crate) async fn stream_for(
    address: &str,
    connections: usize,
    duration: Duration,
    request: &[u8],
) -> (Latencies, Latencies) {
    let begun = Instant::now();
    let clients = (0..connections).map(async |_| {
        let mut connection = Connection::open(address).await;
        let mut took = Vec::new();
        while begun.elapsed() < duration {
            took.push(connection.stream(request).await);
        }
        took
    });
    let took = join_all(clients).await.concat();
    let seconds = begun.elapsed().as_secs_f64();
    let (first, whole) = took.into_iter().unzip();
    (Latencies::new(first, seconds), Latencies::new(whole, seconds))
}
