//! A newline at the end of JSON bodies, so that a shell's prompt stands on a line of its own.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use axum::body::{Body, Bytes, HttpBody};
use axum::http::{HeaderMap, header};
use axum::response::Response;
use hyper::body::{Frame, SizeHint};

use crate::error::PassedOn;
use crate::http::send::Shared;

/// Ends a JSON body with a newline. Other bodies, and none, and those of others or for everybody, stay as they are.
#[must_use]
pub fn end_line(response: Response) -> Response {
    let is_empty = response.body().size_hint().exact() == Some(0);
    let is_shared = response.extensions().get::<Shared>().is_some();
    let is_ours = !is_shared && response.extensions().get::<PassedOn>().is_none();
    if is_empty || !is_ours || !is_json(response.headers()) {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    parts.headers.remove(header::CONTENT_LENGTH);
    Response::from_parts(parts, Body::new(EndLine { body, ended: false }))
}

fn is_json(headers: &HeaderMap) -> bool {
    headers.get(header::CONTENT_TYPE).is_some_and(|value| value == "application/json")
}

/// A body with a newline after it.
struct EndLine {
    body: Body,
    ended: bool,
}

impl HttpBody for EndLine {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        Poll::Ready(frame.or_else(|| {
            self.ended = true;
            Some(Ok(Frame::data(Bytes::from_static(b"\n"))))
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.ended
    }

    fn size_hint(&self) -> SizeHint {
        let rest = u64::from(!self.ended);
        let mut hint = self.body.size_hint();
        if let Some(upper) = hint.upper() {
            hint.set_upper(upper + rest);
        }
        hint.set_lower(hint.lower() + rest);
        hint
    }
}
