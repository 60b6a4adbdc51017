//! Bodies of responses that hold memory until they are sent.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use axum::body::{Body, Bytes, HttpBody};
use axum::response::Response;
use hyper::body::Frame;

use super::{FREE, Memory};
use crate::error::Result;

impl Memory {
    /// Makes a response hold the memory until it is sent.
    pub fn until_sent(self, response: Response) -> Response {
        response.map(|body| Body::new(Holding { body, rest: Bytes::new(), _memory: self }))
    }
}

/// A stream that holds memory until it is sent, in small pieces, because what is left of a chunk at the end is not counted.
struct Holding {
    body: Body,
    /// What is left of a chunk.
    rest: Bytes,
    _memory: Memory,
}

impl HttpBody for Holding {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.rest.is_empty() {
            let frame = ready!(Pin::new(&mut self.body).poll_frame(context)?);
            match frame.map(Frame::into_data) {
                Some(Ok(chunk)) => self.rest = chunk,
                Some(Err(other)) => return Poll::Ready(Some(Ok(other))),
                None => return Poll::Ready(None),
            }
        }
        let most = self.rest.len().min(FREE);
        // A part of a chunk would keep the whole of it.
        let piece = Bytes::copy_from_slice(&self.rest.split_to(most));
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }
}
