//! Serving of connections: accepting them, timing out idle ones, and closing them in order.

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{ConnectInfo, Request};
use axum::serve::Listener;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::GracefulShutdown;
use tokio::net::{TcpListener, TcpStream};
use tower::ServiceExt as _;

/// How long requests in flight may take once the server is stopping.
const END: Duration = Duration::from_secs(10);

/// Serves until `stop` completes. Then no further connections are accepted, and requests in flight have ten
/// seconds to finish. A connection is closed if its client takes longer than `patience` to send a request's
/// head or leaves it idle that long.
pub async fn serve(
    mut listener: TcpListener,
    router: Router,
    patience: Duration,
    stop: impl Future<Output = ()>,
) {
    let mut server = Builder::new(TokioExecutor::new());
    server.http1().timer(TokioTimer::new()).header_read_timeout(patience);
    server.http2().timer(TokioTimer::new()).keep_alive_interval(patience);
    let open = GracefulShutdown::new();
    let mut stop = std::pin::pin!(stop);
    loop {
        let taken = tokio::select! {
            taken = Listener::accept(&mut listener) => taken,
            () = &mut stop => break,
        };
        let (stream, address): (TcpStream, SocketAddr) = taken;
        let router = router.clone();
        let service = service_fn(move |request: Request<Incoming>| {
            let mut request = request.map(Body::new);
            request.extensions_mut().insert(ConnectInfo(address));
            router.clone().oneshot(request)
        });
        let connection = open.watch(server.serve_connection(TokioIo::new(stream), service).into_owned());
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(error, "a connection broke off");
            }
        });
    }
    drop(listener);
    if tokio::time::timeout(END, open.shutdown()).await.is_err() {
        tracing::warn!("some requests did not end within ten seconds");
    }
}
