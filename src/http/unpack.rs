//! Unpacking of bodies in the codings `gzip` and `zstd`, also of several members or frames in a row, as in files that were
//! appended to each other. A frame of zstd names the window that its decoder has to keep, and may ask for 128 MiB in a few
//! bytes; here it gets 8 MiB at most, which is also the most that senders may ask for in HTTP (RFC 9659, section 3).

use std::io;
use std::pin::Pin;
use std::sync::LazyLock;
use std::task::ready;

use async_compression::tokio::bufread::{GzipDecoder, ZstdDecoder};
use async_compression::zstd::DParameter;
use axum::BoxError;
use axum::body::{Body, Bytes, HttpBody};
use axum::http::{Request, header};
use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream, Stream, StreamExt as _, TryStreamExt as _};
use tokio::io::AsyncRead;
use tokio::sync::Semaphore;
use tokio_util::io::{ReaderStream, StreamReader};

use super::memory::Memory;
use crate::error::Error;
use crate::sharing::{Pauses, Place, Shares};

/// The base 2 logarithm of the largest window in bytes.
const WINDOW_LOG: u32 = 23;
/// The number of bytes of the largest window.
const WINDOW: usize = 1 << WINDOW_LOG;
/// The number of unpacked bytes that are passed on at once.
const CHUNK: usize = 64 << 10;
/// The number of bytes for which a decoder holds memory, however few come out of it: for the chunk, and for what it keeps
/// besides a large window.
const DECODER: usize = 256 << 10;

/// The number of packed bytes that a decoder is given at once. It reads all that there are before anything else happens on its
/// thread, and may take a microsecond for every few of them, if they are the ends and beginnings of members.
const PIECE: usize = 4 << 10;

/// The places of projects at unpacking, one for each, so that their bodies do not wait together for a thread.
static UNPACKING: LazyLock<Shares> = LazyLock::new(|| Shares::with_total(1, Semaphore::MAX_PERMITS));

/// Why a packed body could not be read: such as that its sender was too slow.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Broken(#[source] BoxError);

/// Unpacks the body of a request if it is in a coding that is known here. An error is reported to the reader of the body, also
/// that there is no memory to unpack it.
pub fn unpack<B>(request: Request<B>) -> Request<Body>
where
    B: HttpBody<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    let (mut parts, body) = request.into_parts();
    let body = Body::new(body);
    let coding =
        parts.headers.get(header::CONTENT_ENCODING).map(|coding| coding.as_bytes().to_ascii_lowercase());
    let (decoder, window): (fn(Packed) -> Decoder, usize) = match coding.as_deref() {
        Some(b"gzip" | b"x-gzip") => (gzip, 0),
        Some(b"zstd") => (zstd, WINDOW),
        _ => return Request::from_parts(parts, body),
    };
    parts.headers.remove(header::CONTENT_ENCODING);
    parts.headers.remove(header::CONTENT_LENGTH);
    let memory = Memory::of(&parts.extensions);
    let unpacked = stream::once(async move {
        memory.hold_beside(DECODER).await.map_err(no_memory)?;
        let broken = |error: axum::Error| io::Error::other(Broken(error.into_inner()));
        let packed: Packed = StreamReader::new(in_pieces(body.into_data_stream().map_err(broken)).boxed());
        let unpacked = in_turn(ReaderStream::with_capacity(decoder(packed), CHUNK), memory.clone());
        Ok::<_, io::Error>(with_window(unpacked, memory, window))
    });
    Request::from_parts(parts, Body::from_stream(unpacked.try_flatten()))
}

fn no_memory(error: Error) -> io::Error {
    io::Error::other(Broken(error.into()))
}

/// Holds memory for the window of a decoder besides that for the body. What the decoder keeps there is what comes out of it, so
/// that a small body needs no whole window.
fn with_window(
    unpacked: impl Stream<Item = io::Result<Bytes>> + Unpin,
    memory: Memory,
    window: usize,
) -> impl Stream<Item = io::Result<Bytes>> {
    stream::try_unfold((unpacked, memory, window, 0), async |(mut unpacked, memory, window, kept)| {
        memory.hold_beside(DECODER + kept).await.map_err(no_memory)?;
        let chunk = unpacked.try_next().await?;
        Ok(chunk.map(|chunk| {
            let kept = window.min(kept + chunk.len());
            (chunk, (unpacked, memory, window, kept))
        }))
    })
}

/// Divides the chunks of a packed body, with pauses between the pieces.
fn in_pieces(
    chunks: impl Stream<Item = io::Result<Bytes>> + Unpin + Send,
) -> impl Stream<Item = io::Result<Bytes>> + Send {
    let rest = (chunks, Bytes::new(), Pauses::begin());
    stream::try_unfold(rest, async |(mut chunks, mut chunk, mut pauses)| {
        pauses.pause().await;
        if chunk.is_empty() {
            let Some(next) = chunks.try_next().await? else { return Ok(None) };
            chunk = next;
        }
        let piece = chunk.split_to(chunk.len().min(PIECE));
        Ok(Some((piece, (chunks, chunk, pauses))))
    })
}

/// Has an unpacked body read only while it has the place of its project.
fn in_turn(
    mut unpacked: impl Stream<Item = io::Result<Bytes>> + Unpin,
    memory: Memory,
) -> impl Stream<Item = io::Result<Bytes>> {
    let mut waiting: Option<BoxFuture<'static, Place>> = None;
    stream::poll_fn(move |context| {
        let waits = waiting.get_or_insert_with(|| {
            let project = memory.project();
            Box::pin(async move { UNPACKING.take(&project, 1).await })
        });
        let _place = ready!(waits.as_mut().poll(context));
        waiting = None;
        unpacked.poll_next_unpin(context)
    })
}

/// A packed body.
type Packed = StreamReader<BoxStream<'static, io::Result<Bytes>>, Bytes>;
/// What reads an unpacked body.
type Decoder = Pin<Box<dyn AsyncRead + Send>>;

fn gzip(packed: Packed) -> Decoder {
    let mut decoder = GzipDecoder::new(packed);
    decoder.multiple_members(true);
    Box::pin(decoder)
}

fn zstd(packed: Packed) -> Decoder {
    let mut decoder = ZstdDecoder::with_params(packed, &[DParameter::window_log_max(WINDOW_LOG)]);
    decoder.multiple_members(true);
    Box::pin(decoder)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use http_body_util::BodyExt as _;

    use super::*;
    use crate::http::json::body;
    use crate::http::memory::Budget;

    /// Counts how often another task gets its turn while a body is read.
    async fn turns_beside<T>(reading: impl Future<Output = T>) -> (T, u32) {
        let turns = Arc::new(AtomicU32::new(0));
        let others = Arc::clone(&turns);
        let others = tokio::spawn(async move {
            loop {
                others.fetch_add(1, Ordering::Relaxed);
                tokio::task::yield_now().await;
            }
        });
        let read = reading.await;
        others.abort();
        (read, turns.load(Ordering::Relaxed))
    }

    fn packed(body: Vec<u8>) -> Request<Body> {
        let request = Request::builder().header(header::CONTENT_ENCODING, "gzip").body(Body::from(body));
        unpack(request.expect("a request"))
    }

    #[tokio::test]
    async fn the_window_of_a_body_holds_memory_as_it_is_filled() {
        // A block of one byte that is repeated 128 KiB times (RFC 8878, sections 3.1.1.2 and 3.1.1.1.2), in a window of 8 MiB.
        const BLOCKS: usize = 100;
        const HEAD: [u8; 6] = [0x28, 0xb5, 0x2f, 0xfd, 0x00, 13 << 3];
        let block = |is_last: bool| [0x02 | u8::from(is_last), 0x00, 0x10, b'\n'];
        let body: Vec<_> = HEAD.into_iter().chain((1..=BLOCKS).flat_map(|at| block(at == BLOCKS))).collect();
        let budget = Budget::new(64 << 20);
        let mut request = Request::builder().header(header::CONTENT_ENCODING, "zstd").body(Body::from(body));
        Memory::begin(request.as_mut().expect("a request"), &budget);
        let mut unpacked = unpack(request.expect("a request")).into_body().into_data_stream();
        let (mut read, mut most) = (0, 0);
        while let Some(chunk) = unpacked.try_next().await.expect("a body") {
            read += chunk.len();
            most = budget.held().max(most);
            assert!(
                budget.held() + CHUNK >= read.min(WINDOW),
                "{} bytes are held after {read}",
                budget.held()
            );
        }
        assert_eq!((read, most), (BLOCKS << 17, WINDOW + DECODER));
        assert_eq!(budget.held(), 0);
    }

    #[tokio::test]
    async fn others_get_their_turns_while_a_body_is_unpacked_whatever_comes_out_of_it() {
        // Members (RFC 1952) of nothing, and of a line break.
        const EMPTY: [u8; 20] = [31, 139, 8, 0, 0, 0, 0, 0, 0, 255, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        const LINE: [u8; 21] = [31, 139, 8, 0, 0, 0, 0, 0, 0, 255, 227, 2, 0, 147, 6, 215, 50, 1, 0, 0, 0];
        let (unpacked, turns) = turns_beside(packed(EMPTY.repeat(100_000)).into_body().collect()).await;
        assert_eq!(unpacked.expect("a body").to_bytes().len(), 0);
        assert!(turns > 10, "{turns}");
        let (unpacked, turns) = turns_beside(body(packed(LINE.repeat(100_000)), 1 << 20)).await;
        assert_eq!(unpacked.map_err(drop).expect("a body").bytes, b"\n".repeat(100_000));
        assert!(turns > 10, "{turns}");
    }
}
