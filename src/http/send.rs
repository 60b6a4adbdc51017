//! Sending of responses to clients that read slowly, or not at all. Each connection of HTTP/2 may leave many responses
//! unread, so that what one of them takes must be small, shared or counted:
//!
//! - A response of 16 KiB at most is sent as it is.
//! - What is larger is sent in small pieces at a minimum [`pace`], and from 32 KiB on it holds memory until the last of
//!   them. A connection of HTTP/2 keeps a whole chunk for a client that has room for one byte.
//! - A document that is the same for everybody is [`Shared`], and takes nothing.
//! - A response is compressed before any of it is sent, because the state of a compressor takes up to a megabyte, and as many at
//!   a time as there are processors. Streams are compressed while they are sent; whoever begins them limits how many there are.

use std::sync::Arc;

use axum::body::{Body, Bytes, HttpBody as _};
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use http_body_util::BodyExt as _;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use super::memory::{FREE, Memory};
use super::pace::{self, Pace};
use crate::error::Error;
use crate::sharing::Pauses;

/// The number of bytes that a client of HTTP/2 may leave unread beyond what is counted.
const PIECE: usize = 16 << 10;

/// The number of bytes up to which a response is not compressed, which would take longer than sending it.
pub const SMALL: u64 = 1 << 10;

/// Marks a response whose bytes all responses share. It is sent as it is.
#[derive(Debug, Clone, Copy)]
pub struct Shared;

/// Marks a response that was complete before it was compressed, and may be. A compressor has its state from its beginning, so
/// this value is one of the places of [`Compressors`].
#[derive(Debug, Clone)]
struct Whole {
    _compressor: Arc<OwnedSemaphorePermit>,
}

/// A limit on the responses that are being compressed at the same time.
#[derive(Debug, Clone)]
pub struct Compressors(Arc<Semaphore>);

impl Default for Compressors {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(std::thread::available_parallelism().map_or(1, usize::from))))
    }
}

/// Makes a request hold memory for its response, as far as it does not yet, and then leave its project's place to others. If
/// it left before, any number of responses could wait for memory. The response is a 503 if others hold too much.
pub async fn hold(response: Response, memory: &Memory) -> Response {
    if response.extensions().get::<Shared>().is_some() {
        memory.leave();
        return response;
    }
    memory.end_turn();
    let size = response.body().size_hint().exact().and_then(|size| usize::try_from(size).ok()).unwrap_or(0);
    // Memory is held twice over: for what has come, and for what is made of it.
    let held = memory.hold(size / 2).await;
    memory.leave();
    match held {
        Ok(()) => response,
        Err(error) => error.into_response(),
    }
}

/// Notes on a response, before it is compressed, what it holds and whether it is complete. One that may be compressed waits
/// until it can be.
pub async fn note(response: &mut Response, accepts: bool, memory: Memory, compressors: Compressors) {
    let is_large = response.body().size_hint().exact().is_some_and(|size| size > SMALL);
    if accepts
        && is_large
        && let Ok(compressor) = compressors.0.acquire_owned().await
    {
        response.extensions_mut().insert(Whole { _compressor: Arc::new(compressor) });
    }
    if memory.is_held() {
        response.extensions_mut().insert(memory);
    }
}

/// Returns whether a client says which encodings it accepts.
#[must_use]
pub fn accepts_encodings(headers: &HeaderMap) -> bool {
    headers.contains_key(header::ACCEPT_ENCODING)
}

/// Sends what the service inside has answered.
pub async fn send(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let memory = response.extensions_mut().remove::<Memory>();
    let whole = response.extensions_mut().remove::<Whole>();
    if response.extensions().get::<Shared>().is_some() {
        return response;
    }
    if whole.is_some() && response.headers().contains_key(header::CONTENT_ENCODING) {
        match collect(response).await {
            Ok(whole) => response = whole,
            Err(error) => return Error::Internal(error.into()).into_response(),
        }
    }
    match response.body().size_hint().exact() {
        Some(size) if size <= FREE as u64 => response,
        Some(size) => {
            response.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from(size));
            response.map(|body| paced(body, size, memory))
        }
        None => match memory {
            Some(memory) => memory.until_sent(response),
            None => response,
        },
    }
}

/// Reads a response to its end.
async fn collect(response: Response) -> Result<Response, axum::Error> {
    let (parts, mut body) = response.into_parts();
    let mut bytes = Vec::new();
    // Compressing a large response takes long.
    let mut pauses = Pauses::begin();
    while let Some(frame) = body.frame().await {
        if let Ok(data) = frame?.into_data() {
            bytes.extend_from_slice(&data);
        }
        pauses.pause().await;
    }
    Ok(Response::from_parts(parts, bytes.into()))
}

/// Sends a body in pieces to a client that must read them at a minimum pace. The pieces are copies, because even a small
/// part of a chunk keeps the whole of it.
fn paced(mut body: Body, size: u64, memory: Option<Memory>) -> Body {
    let (out, pieces) = mpsc::channel(1);
    tokio::spawn(async move {
        // It is given back when the last piece is sent, or the client is given up.
        let _memory = memory;
        let mut pace = Pace::default();
        while let Some(Ok(frame)) = body.frame().await {
            for piece in frame.data_ref().into_iter().flat_map(|data| data.chunks(PIECE)) {
                pace.note(piece.len());
                if !pace.wait(&out, Bytes::copy_from_slice(piece)).await {
                    return;
                }
            }
        }
    });
    pace::body(pieces, size)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::FutureExt as _;

    use super::*;
    use crate::http::memory::Budget;

    const BUDGET: usize = 4 << 20;

    async fn large(budget: &Budget) -> (Memory, Body) {
        let memory = Memory::begin(&mut Request::default(), budget);
        let response = hold(Response::new(Body::from(vec![b'x'; 1 << 20])), &memory).await;
        let size = response.body().size_hint().exact().expect("it is whole");
        (memory.clone(), paced(response.into_body(), size, Some(memory)))
    }

    #[tokio::test]
    async fn a_large_response_arrives_whole_and_holds_memory_meanwhile() {
        let budget = Budget::new(BUDGET);
        let (memory, body) = large(&budget).await;
        drop(memory);
        assert_eq!(budget.held(), 1 << 20);
        let bytes = body.collect().await.expect("a whole body").to_bytes();
        assert_eq!((bytes.len(), bytes.iter().all(|byte| *byte == b'x')), (1 << 20, true));
        assert_eq!(budget.held(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn who_reads_nothing_is_given_up_after_a_minute_and_half_a_response_is_an_error() {
        let budget = Budget::new(BUDGET);
        let (_, mut body) = large(&budget).await;
        let begun = tokio::time::Instant::now();
        while budget.held() > 0 {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        assert!(matches!(begun.elapsed().as_secs(), 60 | 61), "{:?}", begun.elapsed());
        let piece = body.frame().await.expect("what waited").expect("is there");
        assert_eq!(piece.into_data().map(|data| data.len()).ok(), Some(PIECE));
        assert!(body.frame().await.expect("an end").is_err());
    }

    #[tokio::test]
    async fn a_large_response_waits_until_it_can_be_compressed_and_a_small_one_does_not() {
        let compressors = Compressors(Arc::new(Semaphore::new(1)));
        let noted = async |size: u64| {
            let mut response = Response::new(Body::from(vec![0; usize::try_from(size).expect("a size")]));
            note(&mut response, true, Memory::unbounded(), compressors.clone()).await;
            response
        };
        let first = noted(SMALL + 1).await;
        noted(SMALL).now_or_never().expect("it is sent as it is");
        assert!(noted(SMALL + 1).now_or_never().is_none());
        drop(first);
        noted(SMALL + 1).now_or_never().expect("the first one is compressed");
    }

    #[tokio::test(start_paused = true)]
    async fn a_response_for_which_there_is_no_memory_is_refused() {
        let budget = Budget::new(BUDGET);
        let held = [large(&budget).await, large(&budget).await];
        let memory = Memory::begin(&mut Request::default(), &budget);
        let refused = hold(Response::new(Body::from(vec![0; 1 << 20])), &memory).await;
        assert_eq!(refused.status(), 503);
        let memory = Memory::begin(&mut Request::default(), &budget);
        memory.set_project(&"another".into());
        assert_eq!(hold(Response::new(Body::from(vec![0; 1 << 20])), &memory).await.status(), 200);
        drop(held);
    }
}
