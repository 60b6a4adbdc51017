//! Unpacking of bodies in the codings `gzip` and `zstd`, also of several members or frames in a row, as in files that were
//! appended to each other. A frame of zstd names the window that its decoder has to keep, and may ask for 128 MiB in a few
//! bytes; here it gets 8 MiB at most, which is also the most that senders may ask for in HTTP (RFC 9659, section 3).

use std::io;
use std::pin::Pin;

use async_compression::tokio::bufread::{GzipDecoder, ZstdDecoder};
use async_compression::zstd::DParameter;
use axum::BoxError;
use axum::body::{Body, Bytes, HttpBody};
use axum::http::{Request, header};
use futures_util::stream::{self, BoxStream, StreamExt as _, TryStreamExt as _};
use tokio::io::AsyncRead;
use tokio_util::io::{ReaderStream, StreamReader};

use super::memory::Memory;

/// The base 2 logarithm of the largest window in bytes.
const WINDOW_LOG: u32 = 23;
/// The number of unpacked bytes that are passed on at once.
const CHUNK: usize = 64 << 10;
/// The number of bytes for which a request with a packed body holds memory, however few come out of it: for the chunk, and for
/// what a decoder keeps besides its window.
const DECODER: usize = 128 << 10;

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
    let decoder: fn(Packed) -> Decoder = match coding.as_deref() {
        Some(b"gzip" | b"x-gzip") => gzip,
        Some(b"zstd") => zstd,
        _ => return Request::from_parts(parts, body),
    };
    parts.headers.remove(header::CONTENT_ENCODING);
    parts.headers.remove(header::CONTENT_LENGTH);
    let memory = Memory::of(&parts.extensions);
    let unpacked = stream::once(async move {
        memory.hold(DECODER).await.map_err(|error| io::Error::other(Broken(error.into())))?;
        let broken = |error: axum::Error| io::Error::other(Broken(error.into_inner()));
        let packed: Packed = StreamReader::new(body.into_data_stream().map_err(broken).boxed());
        Ok::<_, io::Error>(ReaderStream::with_capacity(decoder(packed), CHUNK))
    });
    Request::from_parts(parts, Body::from_stream(unpacked.try_flatten()))
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
