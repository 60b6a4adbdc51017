//! Unpacking of bodies in the coding `zstd`. A frame names the window that its decoder has to keep, and may ask for 128 MiB in
//! a few bytes; here it gets 8 MiB at most, which is also the most that senders may ask for in HTTP (RFC 9659, section 3).
//! Bodies in `gzip`, whose window is fixed at 32 KiB, are left to the layer after this one.

use std::io;

use async_compression::tokio::bufread::ZstdDecoder;
use async_compression::zstd::DParameter;
use axum::BoxError;
use axum::body::{Body, Bytes, HttpBody};
use axum::http::{Request, header};
use futures_util::TryStreamExt as _;
use tokio_util::io::{ReaderStream, StreamReader};

/// The base 2 logarithm of the largest window in bytes.
const WINDOW_LOG: u32 = 23;
/// The number of unpacked bytes that are passed on at once.
const CHUNK: usize = 64 << 10;

/// Why a packed body could not be read: such as that its sender was too slow.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Broken(#[source] BoxError);

/// Unpacks the body of a request if it is in the coding `zstd`. An error is reported to the reader of the body.
pub fn zstd<B>(request: Request<B>) -> Request<Body>
where
    B: HttpBody<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    let (mut parts, body) = request.into_parts();
    let body = Body::new(body);
    if parts.headers.get(header::CONTENT_ENCODING).is_none_or(|coding| coding != "zstd") {
        return Request::from_parts(parts, body);
    }
    parts.headers.remove(header::CONTENT_ENCODING);
    parts.headers.remove(header::CONTENT_LENGTH);
    let broken = |error: axum::Error| io::Error::other(Broken(error.into_inner()));
    let packed = StreamReader::new(body.into_data_stream().map_err(broken));
    let mut decoder = ZstdDecoder::with_params(packed, &[DParameter::window_log_max(WINDOW_LOG)]);
    decoder.multiple_members(true);
    Request::from_parts(parts, Body::from_stream(ReaderStream::with_capacity(decoder, CHUNK)))
}
