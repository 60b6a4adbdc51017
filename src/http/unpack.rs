//! Unpacking of bodies in the codings `gzip` and `zstd`, also of several members or frames in a row, as in files that were
//! appended to each other. A frame of zstd names the window that its decoder has to keep, and may ask for 128 MiB in a few
//! bytes; here it gets 8 MiB at most, which is also the most that senders may ask for in HTTP (RFC 9659, section 3).

use std::io;

use async_compression::tokio::bufread::{GzipDecoder, ZstdDecoder};
use async_compression::zstd::DParameter;
use axum::BoxError;
use axum::body::{Body, Bytes, HttpBody};
use axum::http::{Request, header};
use futures_util::TryStreamExt as _;
use tokio::io::AsyncRead;
use tokio_util::io::{ReaderStream, StreamReader};

/// The base 2 logarithm of the largest window in bytes.
const WINDOW_LOG: u32 = 23;
/// The number of unpacked bytes that are passed on at once.
const CHUNK: usize = 64 << 10;

/// Why a packed body could not be read: such as that its sender was too slow.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Broken(#[source] BoxError);

/// Unpacks the body of a request if it is in a coding that is known here. An error is reported to the reader of the body.
pub fn unpack<B>(request: Request<B>) -> Request<Body>
where
    B: HttpBody<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    let (mut parts, body) = request.into_parts();
    let body = Body::new(body);
    let coding =
        parts.headers.get(header::CONTENT_ENCODING).map(|coding| coding.as_bytes().to_ascii_lowercase());
    let broken = |error: axum::Error| io::Error::other(Broken(error.into_inner()));
    let packed = |body: Body| StreamReader::new(body.into_data_stream().map_err(broken));
    let body = match coding.as_deref() {
        Some(b"gzip" | b"x-gzip") => {
            let mut decoder = GzipDecoder::new(packed(body));
            decoder.multiple_members(true);
            body_of(decoder)
        }
        Some(b"zstd") => {
            let mut decoder =
                ZstdDecoder::with_params(packed(body), &[DParameter::window_log_max(WINDOW_LOG)]);
            decoder.multiple_members(true);
            body_of(decoder)
        }
        _ => return Request::from_parts(parts, body),
    };
    parts.headers.remove(header::CONTENT_ENCODING);
    parts.headers.remove(header::CONTENT_LENGTH);
    Request::from_parts(parts, body)
}

fn body_of(decoder: impl AsyncRead + Send + 'static) -> Body {
    Body::from_stream(ReaderStream::with_capacity(decoder, CHUNK))
}
