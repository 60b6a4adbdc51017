//! The bytes of requests that do not say how long they are, or that are packed, which are counted as they come.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use axum::body::{Body, HttpBody as _};
use axum::extract::Request;
use axum::http::{Extensions, HeaderMap, header};
use http_body_util::BodyExt as _;

/// Where the bytes of a request are counted, once that is known.
#[derive(Debug, Clone, Default)]
struct Received(Arc<OnceLock<Arc<AtomicU64>>>);

/// Sees to it that the bytes of a request can be counted.
#[must_use]
pub fn count(request: Request) -> Request {
    // The length of a packed body is gone once it is unpacked.
    let is_packed = request.headers().contains_key(header::CONTENT_ENCODING);
    if length(request.headers()).is_some() && !is_packed || request.body().is_end_stream() {
        return request;
    }
    let received = Received::default();
    let (mut head, body) = request.into_parts();
    head.extensions.insert(received.clone());
    let body = body.map_frame(move |frame| {
        if let (Some(count), Some(data)) = (received.0.get(), frame.data_ref()) {
            count.fetch_add(data.len() as u64, Ordering::Relaxed);
        }
        frame
    });
    Request::from_parts(head, Body::new(body))
}

/// Adds the bytes of a request to a count: those that it says it has, or else each as it comes.
pub fn add_to(count: &Arc<AtomicU64>, headers: &HeaderMap, extensions: &Extensions) {
    if let Some(length) = length(headers) {
        count.fetch_add(length, Ordering::Relaxed);
    } else if let Some(received) = extensions.get::<Received>() {
        let _ = received.0.set(Arc::clone(count));
    }
}

/// Returns how many bytes a request says it has. No body is larger than that: a made-up length must not make a count begin anew.
fn length(headers: &HeaderMap) -> Option<u64> {
    let length: u64 = headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()?;
    Some(length.min(u32::MAX.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_that_is_made_up_does_not_take_a_count_back() {
        let count = Arc::new(AtomicU64::new(1_000));
        let mut headers = HeaderMap::new();
        for length in ["18446744073709551614", "18446744073709550616", "5"] {
            let before = count.load(Ordering::Relaxed);
            headers.insert(header::CONTENT_LENGTH, length.parse().expect("a header"));
            add_to(&count, &headers, &Extensions::new());
            assert!(count.load(Ordering::Relaxed) > before, "{length}");
        }
    }
}
