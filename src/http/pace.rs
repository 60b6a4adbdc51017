//! The pace at which clients must read. What waits for a client takes memory, and often a place that others wait for.

use std::io;
use std::task::{Poll, ready};
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use futures_util::stream;
use tokio::sync::mpsc;

/// The time without reading after which a client is disconnected.
pub const STALL: Duration = Duration::from_mins(1);
/// The minimum average rate of a client in bytes per second, before compression and after the first minute of
/// waiting.
const SLOWEST: u64 = 16 << 10;

/// How much was sent to a client, and how long that took.
#[derive(Debug, Default)]
pub struct Pace {
    sent: u64,
    waited: Duration,
}

impl Pace {
    /// Notes that so many bytes are sent to the client.
    pub fn note(&mut self, bytes: usize) {
        self.sent += bytes as u64;
    }

    /// Returns how long the client was waited for.
    #[must_use]
    pub fn waited(&self) -> Duration {
        self.waited
    }

    /// Waits until there is room in `out` for what is sent. Returns whether the client is still there and fast enough.
    pub async fn wait<T>(&mut self, out: &mpsc::Sender<T>, sent: T) -> bool {
        let allowed = STALL + Duration::from_secs(self.sent / SLOWEST);
        let patience = allowed.saturating_sub(self.waited).min(STALL);
        let begun = Instant::now();
        let is_sent = matches!(tokio::time::timeout(patience, out.send(sent)).await, Ok(Ok(())));
        self.waited += begun.elapsed();
        is_sent
    }
}

/// Makes a body of the chunks that are received, which have `size` bytes together. It fails if they end earlier, because
/// half of a response must not look whole.
pub fn body(mut chunks: mpsc::Receiver<Bytes>, size: u64) -> Body {
    let mut left = size;
    Body::from_stream(stream::poll_fn(move |context| {
        let Some(chunk) = ready!(chunks.poll_recv(context)) else {
            let is_short = std::mem::take(&mut left) > 0;
            return Poll::Ready(is_short.then(|| Err(io::ErrorKind::ConnectionAborted.into())));
        };
        left = left.saturating_sub(chunk.len() as u64);
        Poll::Ready(Some(Ok::<_, io::Error>(chunk)))
    }))
}
