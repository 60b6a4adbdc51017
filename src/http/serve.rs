//! Serving of connections: accepting them, timing out idle ones, and closing them in order.

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::{ConnectInfo, Request};
use axum::http::{HeaderValue, StatusCode, Version, header};
use axum::response::{IntoResponse as _, Response};
use axum::serve::Listener;
use hyper::body::{Body as _, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio_io_timeout::TimeoutStream;
use tower::ServiceExt as _;

use super::http2_limits::{Bodies, Frames, Places};
use super::linger::{Lingering, Unread, linger};
use crate::error::{Error, Refused};

/// How long requests in flight may take once the server is stopping.
const END: Duration = Duration::from_secs(10);

/// How many connections are taken beyond the most, so that probes get through when the server is full.
const SPARE: usize = 32;

/// How long a connection beyond the most may take to send its one request, and how long its answer may then take.
const SPARE_PATIENCE: Duration = Duration::from_secs(2);
const SPARE_END: Duration = Duration::from_secs(10);

/// The maximum number of bytes of the head of a request in HTTP/1.1, and the most that are read ahead of a body.
const MOST_HEAD: u32 = 32 << 10;

/// The maximum number of bytes that a head has at least, however many connections are open.
const LEAST_HEAD: u32 = 8 << 10;

/// The bytes of heads that all connections together should take, since they are in no budget: an open connection keeps some three
/// times as many as its longest head has. A new connection has fewer, the more are open.
const HEADS: u32 = 8 << 20;

/// The same numbers for each head of a request in HTTP/2, where 32 bytes are counted for each field (RFC 9113, section 6.5.2).
/// Short fields take five times as much in memory, and there may be as many behind a body as before it.
const MOST_HEAD_2: u32 = 16 << 10;
const LEAST_HEAD_2: u32 = 4 << 10;
const HEADS_2: u32 = 4 << 20;

/// The maximum number of fields of a head in HTTP/2. The library allows as many in HTTP/1.1.
const MOST_FIELDS: usize = 100;

/// The maximum number of concurrent requests on a connection in HTTP/2.
const STREAMS: u32 = 32;

/// The number of connections that may have so many. A client that leaves its responses unread takes memory for each of
/// them, so that the more connections are open the fewer requests a new one may have.
const WITH_ALL_STREAMS: u32 = 16;

/// How many bytes of bodies a client may send in HTTP/2 before they are asked for. They are in no budget, so that each request of
/// a new connection has fewer, the more connections are open, but at least as many as a frame.
const WINDOW: u32 = 256 << 10;

/// The part of all connections that may be ones of HTTP/2, which take more memory. Agents use HTTP/1.1, and a proxy needs few.
const HTTP_2: usize = 8;

/// The size of a frame in HTTP/2, and the number of bytes of a response that are in no budget because they wait to be sent.
const FRAME: u32 = 16 << 10;

/// What is answered on a connection beyond the most.
const PROBES: [&str; 4] = ["/healthz", "/readyz", "/version", "/metrics"];

/// How many clients are served, and how long they may take.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// The maximum number of connections that are open at once. A few more are taken, which get no answers but those
    /// of probes.
    pub connections: usize,
    /// How long a client may take to send a request's head, or leave its connection idle.
    pub patience: Duration,
}

/// Serves what `routers` holds until `stop` completes. Then no further connections are accepted, and requests in flight have ten
/// seconds to finish. A connection is closed if its client takes longer than the patience to send a request's
/// head or leaves it idle that long.
pub async fn serve(
    mut listener: TcpListener,
    routers: watch::Receiver<Router>,
    limits: Limits,
    stop: impl Future<Output = ()>,
) {
    // Each connection has a receiver as long as it is open.
    let (stopping, is_stopping) = watch::channel(());
    let places = Arc::new(Semaphore::new(limits.connections));
    let http2_places = Places::new(limits.connections.div_ceil(HTTP_2) + SPARE);
    let spare_places = Arc::new(Semaphore::new(SPARE));
    let mut stop = pin!(stop);
    loop {
        let taken = tokio::select! {
            taken = Listener::accept(&mut listener) => taken,
            () = &mut stop => break,
        };
        let (stream, address): (TcpStream, SocketAddr) = taken;
        // The pieces of a streamed answer are small, and none of them waits until the client has acknowledged the one before.
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "a connection was interrupted");
            continue;
        }
        let place = Arc::clone(&places).try_acquire_owned();
        let is_full = place.is_err();
        let Ok(place) = place.or_else(|_| Arc::clone(&spare_places).try_acquire_owned()) else {
            continue;
        };
        let connections = limits.connections - places.available_permits();
        let patience = if is_full { SPARE_PATIENCE } else { limits.patience };
        let connections = u32::try_from(connections).unwrap_or(u32::MAX).max(1);
        let server = server(connections, patience);
        let (bodies, asked) = (Bodies::default(), Arc::new(Asked::default()));
        let (bodies_here, asked_here) = (bodies.clone(), Arc::clone(&asked));
        let routers = routers.clone();
        let service = service_fn(move |request: Request<Incoming>| {
            asked_here.count(&request);
            let has_many_fields = request.headers().len() > MOST_FIELDS;
            let (mut request, unread) = Unread::of(request, &bodies_here);
            request.extensions_mut().insert(ConnectInfo(address));
            // A connection that was opened while the server was starting goes on with what it serves then.
            let router = routers.borrow().clone();
            let (asked, version) = (Arc::clone(&asked_here), request.version());
            async move {
                if has_many_fields {
                    return Ok(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE.into_response());
                }
                if is_full && !PROBES.contains(&request.uri().path()) {
                    return Ok(refuse_full(&request));
                }
                let mut response = router.oneshot(request).await?;
                unread.announce(&mut response);
                if is_full {
                    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
                }
                asked.note(version, &response);
                Ok::<_, std::convert::Infallible>(response)
            }
        });
        // Who reads nothing of an answer is hung up on, as the answer stays in memory.
        let mut stream = TimeoutStream::new(stream);
        stream.set_write_timeout(Some(limits.patience));
        let frames = Frames::new(bodies.clone(), http2_places.clone());
        let (stream, ended_stream) = Lingering::new(Box::pin(stream), frames);
        let connection = server.serve_connection(TokioIo::new(stream), service).into_owned();
        let mut is_stopping = is_stopping.clone();
        tokio::spawn(async move {
            let _place = place;
            let ended = {
                let mut connection = pin!(connection);
                let mut requests = 0;
                loop {
                    tokio::select! {
                        ended = connection.as_mut() => break ended,
                        // It ends when the requests in flight are answered, and takes no others.
                        Ok(()) = is_stopping.changed() => connection.as_mut().graceful_shutdown(),
                        () = bodies.is_old() => connection.as_mut().graceful_shutdown(),
                        () = tokio::time::sleep(patience) => {
                            let before = std::mem::replace(&mut requests, asked.requests.load(Ordering::Relaxed));
                            // Until the first bytes tell which version of HTTP a client speaks, no timeout of that version runs.
                            if requests == 0 {
                                return;
                            }
                            if is_full {
                                connection.as_mut().graceful_shutdown();
                                let ended = tokio::time::timeout(SPARE_END, connection.as_mut()).await;
                                break ended.unwrap_or(Ok(()));
                            }
                            // In HTTP/2 the library asks only whether the client is still there.
                            if requests == before && asked.is_http2.load(Ordering::Relaxed) {
                                connection.as_mut().graceful_shutdown();
                            }
                        }
                    }
                }
            };
            if let Err(error) = ended {
                tracing::debug!(error, "a connection was interrupted");
            }
            match ended_stream.await {
                Ok((stream, true)) => linger(stream, patience).await,
                Ok((stream, false)) if asked.ends_with_response.load(Ordering::Relaxed) => reset(&stream),
                _ => {}
            }
        });
    }
    drop((listener, is_stopping));
    stopping.send_replace(());
    if tokio::time::timeout(END, stopping.closed()).await.is_err() {
        tracing::warn!("some requests did not end within ten seconds");
    }
}

/// Returns what serves a new connection as long as so many are open.
fn server(connections: u32, patience: Duration) -> Builder<TokioExecutor> {
    let streams = share(STREAMS, connections).clamp(1, STREAMS);
    let window = share(WINDOW, connections).clamp(FRAME, WINDOW);
    let head = (HEADS / connections).clamp(LEAST_HEAD, MOST_HEAD) as usize;
    let head_2 = (HEADS_2 / (connections * streams)).clamp(LEAST_HEAD_2, MOST_HEAD_2);
    let mut server = Builder::new(TokioExecutor::new());
    server.http1().timer(TokioTimer::new()).header_read_timeout(patience).max_buf_size(head);
    let mut http2 = server.http2();
    http2.timer(TokioTimer::new()).keep_alive_interval(patience).max_concurrent_streams(streams);
    http2.initial_connection_window_size(WINDOW).initial_stream_window_size(window);
    http2.max_send_buf_size(FRAME as usize).max_header_list_size(head_2);
    server
}

/// Returns the part of a limit that a new connection has as long as so many are open.
fn share(all: u32, connections: u32) -> u32 {
    all.saturating_mul(WITH_ALL_STREAMS) / connections
}

/// Makes a response look broken off whose end is that of its connection.
fn reset(stream: &TimeoutStream<TcpStream>) {
    if let Err(error) = stream.get_ref().set_zero_linger() {
        tracing::debug!(%error, "a connection was closed whose response is not whole");
    }
}

/// The requests that a connection has made, and whether it ends with the response to the last one.
#[derive(Debug, Default)]
struct Asked {
    requests: AtomicU64,
    is_http2: AtomicBool,
    ends_with_response: AtomicBool,
}

impl Asked {
    fn count(&self, request: &Request<Incoming>) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.is_http2.fetch_or(request.version() == Version::HTTP_2, Ordering::Relaxed);
    }

    /// Keeps note of whether nothing but the end of the connection tells that a response is over, as in HTTP/1.0 if its length is not
    /// known (RFC 9112, section 6.3).
    fn note(&self, version: Version, response: &Response) {
        let is_open = version < Version::HTTP_11 && response.body().size_hint().exact().is_none();
        self.ends_with_response.fetch_or(is_open, Ordering::Relaxed);
    }
}

/// Answers 503 to a request on a connection beyond the most.
fn refuse_full(request: &Request) -> Response {
    let mut response =
        Error::Unavailable("the server has the maximum number of connections; try again").into_response();
    Refused::of(request).render(&mut response);
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}
