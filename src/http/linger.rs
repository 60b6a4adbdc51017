//! What is read of connections whose clients send much.
//!
//! A connection gives its thread back to others now and then, because a client may send for ever what takes long to read and
//! asks for nothing, such as the frames of HTTP/2 that only control a connection.
//!
//! The client of a connection that ends may still send, as one whose request is refused before all of its body has come. If
//! such a connection were closed at once, the system would reset it, and its client would often lose the response that says
//! why. So what still comes is read for a while and thrown away, and the response says that nothing else should be sent.
//! (RFC 9112, section 9.6)

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderValue, Request, Response, Version, header};
use bytes::{Buf as _, Bytes};
use hyper::body::{Body as _, Frame, Incoming, SizeHint};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf};
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::http2_limits::{Bodies, Frames, NO_PLACE, Waits};

/// How long a client may send nothing until its connection is closed.
const SILENCE: Duration = Duration::from_secs(1);
/// How long a client may send at most until its connection is closed, if it has no less time.
const MOST: Duration = Duration::from_secs(10);
/// The number of bytes that are read until others have their turn.
const PIECE: usize = 32 << 10;

/// A stream from which no more than a piece is read at a time, and only what its frames allow. When it is dropped, it is not closed,
/// but given to whoever made this value, with whether everything was sent on it.
pub(super) struct Lingering<S> {
    stream: Option<S>,
    /// The number of bytes that were read since others had their turn.
    read: usize,
    frames: Frames,
    /// What was read of the stream and may not be passed on yet.
    ahead: Bytes,
    to: Option<oneshot::Sender<(S, bool)>>,
    is_sent: bool,
}

impl<S: Unpin> Lingering<S> {
    /// Wraps a stream. The receiver gets it when it is no longer used.
    pub(super) fn new(stream: S, frames: Frames) -> (Self, oneshot::Receiver<(S, bool)>) {
        let (to, from) = oneshot::channel();
        (
            Self { stream: Some(stream), read: 0, frames, ahead: Bytes::new(), to: Some(to), is_sent: false },
            from,
        )
    }

    fn stream(&mut self) -> Pin<&mut S> {
        Pin::new(self.stream.as_mut().expect("the stream is given away when this is dropped"))
    }
}

impl<S> Drop for Lingering<S> {
    fn drop(&mut self) {
        if let (Some(stream), Some(to)) = (self.stream.take(), self.to.take()) {
            // If nobody waits for it, it is closed.
            drop(to.send((stream, self.is_sent)));
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Lingering<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(self.frames.poll_allowed(context));
        if self.read >= PIECE {
            self.read = 0;
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        if !self.ahead.is_empty() {
            let ahead = self.ahead.slice(..self.ahead.len().min(buffer.remaining()));
            let passed = self.frames.pass(&ahead)?;
            buffer.put_slice(&ahead[..passed]);
            self.ahead.advance(passed);
            return Poll::Ready(Ok(()));
        }
        let before = buffer.filled().len();
        let result = self.stream().poll_read(context, buffer);
        let read = &buffer.filled()[before..];
        self.read = if result.is_pending() { 0 } else { self.read + read.len() };
        match self.frames.pass(read) {
            Ok(passed) => {
                self.ahead = Bytes::copy_from_slice(&read[passed..]);
                buffer.set_filled(before + passed);
                result
            }
            Err(error) => {
                if self.frames.has_no_place() {
                    self.is_sent = self.stream().poll_write(context, NO_PLACE).is_ready();
                }
                Poll::Ready(Err(error))
            }
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Lingering<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let sent = ready!(self.stream().poll_write(context, bytes))?;
        self.frames.pass_sent(&bytes[..sent]);
        Poll::Ready(Ok(sent))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream().poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.stream().poll_shutdown(context))?;
        self.is_sent = true;
        Poll::Ready(Ok(()))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.as_ref().is_some_and(AsyncWrite::is_write_vectored)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let sent = ready!(self.stream().poll_write_vectored(context, bytes))?;
        let mut left = sent;
        for piece in bytes {
            let of_piece = left.min(piece.len());
            self.frames.pass_sent(&piece[..of_piece]);
            left -= of_piece;
        }
        Poll::Ready(Ok(sent))
    }
}

/// How much of a request's body is unread.
pub(super) struct Unread {
    bytes: Arc<AtomicU64>,
    version: Version,
}

impl Unread {
    /// Watches the body of a request, which is one of those of its connection that wait to be read.
    pub(super) fn of(request: Request<Incoming>, bodies: &Bodies) -> (Request<Body>, Self) {
        let bytes = Arc::new(AtomicU64::new(left(request.body())));
        let unread = Self { bytes: Arc::clone(&bytes), version: request.version() };
        let has_frames = request.version() == Version::HTTP_2 && !request.body().is_end_stream();
        let waits = has_frames.then(|| bodies.one_more());
        (request.map(|body| Body::new(Watched { body, unread: bytes, waits })), unread)
    }

    /// Says in a response that the connection ends with it, if a part of the body is unread.
    pub(super) fn announce<B>(&self, response: &mut Response<B>) {
        if self.version < Version::HTTP_2 && self.bytes.load(Ordering::Relaxed) > 0 {
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
    }
}

/// Returns how many bytes of a body are still to be read, or a great number if its length is not known.
fn left(body: &Incoming) -> u64 {
    if body.is_end_stream() { 0 } else { body.size_hint().upper().unwrap_or(u64::MAX) }
}

/// A body that keeps note of how much of it is unread.
struct Watched {
    body: Incoming,
    unread: Arc<AtomicU64>,
    /// That the body waits, in HTTP/2.
    waits: Option<Waits>,
}

impl hyper::body::Body for Watched {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        let unread = if frame.is_none() { 0 } else { left(&self.body) };
        self.unread.store(unread, Ordering::Relaxed);
        if let (Some(waits), Some(Ok(frame))) = (&self.waits, &frame)
            && let Some(part) = frame.data_ref()
        {
            waits.part_is_read(part.len());
        }
        if unread == 0 {
            self.waits = None;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Watched {
    /// What has come of a body that nobody reads goes with it, and is unread no longer.
    fn drop(&mut self) {
        let Some(waits) = &self.waits else { return };
        let mut context = Context::from_waker(Waker::noop());
        while let Poll::Ready(Some(Ok(frame))) = Pin::new(&mut self.body).poll_frame(&mut context) {
            waits.part_is_read(frame.data_ref().map_or(0, Bytes::len));
        }
    }
}

/// Reads what a client still sends until it closes the connection, sends nothing for a second, or has sent for ten, or for as long
/// as its `patience` is.
pub(super) async fn linger(mut stream: impl AsyncRead + Unpin, patience: Duration) {
    let mut piece = vec![0; PIECE];
    let sent = async { while let Ok(Ok(1..)) = timeout(SILENCE, stream.read(&mut piece)).await {} };
    let _ = timeout(MOST.min(patience), sent).await;
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt as _;
    use tokio::time::Instant;

    use super::super::frames::PREFACE;
    use super::super::http2_limits::Places;
    use super::*;

    fn frames() -> Frames {
        Frames::new(Bodies::default(), Places::new(1))
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_keeps_sending_is_read_for_ten_seconds_and_one_that_does_not_for_one() {
        let (mut client, server) = tokio::io::duplex(PIECE);
        let begun = Instant::now();
        let sends = async {
            loop {
                tokio::time::sleep(SILENCE / 2).await;
                client.write_all(b"more").await.expect("it is read");
            }
        };
        tokio::select! {
            () = linger(server, Duration::MAX) => {}
            () = sends => {}
        }
        assert_eq!(begun.elapsed(), MOST);

        let (_client, server) = tokio::io::duplex(PIECE);
        let begun = Instant::now();
        linger(server, Duration::MAX).await;
        assert_eq!(begun.elapsed(), SILENCE);

        let (client, server) = tokio::io::duplex(PIECE);
        drop(client);
        let begun = Instant::now();
        linger(server, Duration::MAX).await;
        assert_eq!(begun.elapsed(), Duration::ZERO);
    }

    #[tokio::test]
    async fn a_connection_of_http_2_without_a_place_is_told_so() {
        let (mut client, server) = tokio::io::duplex(PIECE);
        client.write_all(PREFACE).await.expect("there is room");
        let frames = Frames::new(Bodies::default(), Places::new(0));
        let (mut stream, from) = Lingering::new(server, frames);
        stream.read(&mut [0; PREFACE.len()]).await.expect_err("it is hung up on");
        let mut told = [0; NO_PLACE.len()];
        client.read_exact(&mut told).await.expect("what it is told");
        assert_eq!(told, NO_PLACE);
        drop(stream);
        from.await.expect("what it still sends is read");
    }

    #[tokio::test]
    async fn whoever_reads_much_gives_way_to_others_after_each_piece() {
        let (mut client, server) = tokio::io::duplex(10 * PIECE);
        client.write_all(&vec![0; 10 * PIECE]).await.expect("there is room");
        let (mut stream, _from) = Lingering::new(server, frames());
        let mut buffer = [0; PIECE / 2];
        let mut reads = Vec::new();
        let mut context = Context::from_waker(std::task::Waker::noop());
        for _ in 0..5 {
            let mut into = ReadBuf::new(&mut buffer);
            let is_ready = Pin::new(&mut stream).poll_read(&mut context, &mut into).is_ready();
            reads.push((is_ready, into.filled().len()));
        }
        let half = (true, PIECE / 2);
        assert_eq!(reads, [half, half, (false, 0), half, half]);
        let rest = tokio::time::timeout(SILENCE, stream.read(&mut buffer)).await;
        assert_eq!(rest.expect("it is woken at once").expect("bytes"), PIECE / 2);
    }

    #[tokio::test]
    async fn a_stream_is_given_back_with_whether_everything_was_sent() {
        let (interrupted, from) = Lingering::new(tokio::io::duplex(1).0, frames());
        drop(interrupted);
        assert!(!from.await.expect("a stream").1);
        let (mut ended, from) = Lingering::new(tokio::io::duplex(1).0, frames());
        ended.shutdown().await.expect("shuts down");
        drop(ended);
        assert!(from.await.expect("a stream").1);
    }
}
