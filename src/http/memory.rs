//! The memory that the bodies of requests take together, which is bounded however many clients send at once.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{FromRequestParts, Request};
use axum::http::Extensions;
use axum::http::request::Parts;
use axum::response::Response;
use hyper::body::{Frame, SizeHint};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::clean::{MOST_VALUES, too_many_values};
use crate::error::{Error, Result};
use crate::sharing::Turn;

/// How many bytes of a request are not counted. Nearly all requests stay below, and cost no bookkeeping.
const FREE: usize = 16 << 10;

/// The unit of bookkeeping, in bytes.
const UNIT: usize = 1 << 10;

/// How long a request waits for memory that others hold.
const PATIENCE: Duration = Duration::from_secs(5);

/// The memory that all requests share.
#[derive(Debug, Clone)]
pub struct Budget(Arc<Semaphore>);

impl Budget {
    /// Makes a budget of `bytes`.
    #[must_use]
    pub fn new(bytes: usize) -> Self {
        Self(Arc::new(Semaphore::new((bytes / UNIT).min(Semaphore::MAX_PERMITS))))
    }
}

/// What one request holds of the budget, and its turn at working. Clones hold it together: memory is given back when the
/// last one is dropped, which is that of the writer's queue if the client closes the connection before its events are written.
#[derive(Debug, Clone)]
pub struct Memory(Arc<Held>);

impl<S: Sync> FromRequestParts<S> for Memory {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(Self::of(&parts.extensions))
    }
}

#[derive(Debug)]
struct Held {
    budget: Budget,
    units: Mutex<Option<OwnedSemaphorePermit>>,
    turn: Mutex<Option<Turn>>,
}

impl Memory {
    /// Attaches to the request that it holds nothing yet.
    pub fn begin(request: &mut Request, budget: &Budget) -> Self {
        let memory =
            Self(Arc::new(Held { budget: budget.clone(), units: Mutex::default(), turn: Mutex::default() }));
        request.extensions_mut().insert(memory.clone());
        memory
    }

    /// Returns what the request holds.
    #[must_use]
    pub fn of(extensions: &Extensions) -> Self {
        extensions.get().cloned().unwrap_or_else(Self::unbounded)
    }

    /// Returns a budget of its own without a bound, for what is no request.
    #[must_use]
    pub fn unbounded() -> Self {
        Self(Arc::new(Held {
            budget: Budget::new(usize::MAX),
            units: Mutex::default(),
            turn: Mutex::default(),
        }))
    }

    /// Makes the request hold its project's turn at working until its response is made.
    pub fn begin_turn(&self, turn: Turn) {
        *self.0.turn.lock().unwrap_or_else(PoisonError::into_inner) = Some(turn);
    }

    /// Ends the request's turn at working, if it has one, because it now waits for something.
    pub fn end_turn(&self) {
        self.0.turn.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    /// Makes a response hold the memory until it is sent, if there is any to hold.
    pub fn until_sent(self, response: Response) -> Response {
        self.end_turn();
        let holds_nothing = self.0.units.lock().unwrap_or_else(PoisonError::into_inner).is_none();
        if holds_nothing {
            return response;
        }
        response.map(|body| Body::new(Holding { body, _memory: self }))
    }

    /// Holds memory for a body of which `bytes` have come so far: once for the body and once for what is made
    /// of it. Waits a little if other requests hold too much, and is then a 503.
    pub async fn hold(&self, bytes: usize) -> Result<()> {
        if bytes <= FREE {
            return Ok(());
        }
        let held = self
            .0
            .units
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .as_ref()
            .map_or(0, tokio::sync::OwnedSemaphorePermit::num_permits);
        let wanted = (2 * bytes).div_ceil(UNIT).saturating_sub(held);
        if wanted == 0 {
            return Ok(());
        }
        let wanted = u32::try_from(wanted).unwrap_or(u32::MAX);
        let taken =
            tokio::time::timeout(PATIENCE, Arc::clone(&self.0.budget.0).acquire_many_owned(wanted)).await;
        let full = || Error::Unavailable("other requests use all the memory for bodies; try again");
        let taken = taken.ok().and_then(std::result::Result::ok).ok_or_else(full)?;
        let mut units = self.0.units.lock().unwrap_or_else(PoisonError::into_inner);
        match units.as_mut() {
            Some(units) => units.merge(taken),
            None => *units = Some(taken),
        }
        Ok(())
    }
}

/// The number of bytes that a JSON value is assumed to take when it is parsed, besides its text.
const VALUE: usize = 300;

impl Memory {
    /// Holds memory for a JSON text of so many bytes and values that is parsed as a whole. One with more than
    /// [`MOST_VALUES`] is a 413.
    pub async fn hold_values(&self, bytes: usize, values: usize) -> Result<()> {
        if values > MOST_VALUES {
            return Err(too_many_values());
        }
        self.hold(bytes + values * VALUE / 2).await
    }
}

/// A body that holds memory until it is sent. It knows its length if the body inside does.
struct Holding {
    body: Body,
    _memory: Memory,
}

impl HttpBody for Holding {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_answer_that_holds_memory_still_knows_its_length() {
        let memory = Memory::begin(&mut Request::default(), &Budget::new(100 << 10));
        memory.hold(40 << 10).await.expect("there is enough");
        let answer = memory.until_sent(Response::new(Body::from("four")));
        assert_eq!(answer.body().size_hint().exact(), Some(4));
    }

    #[tokio::test(start_paused = true)]
    async fn requests_wait_for_memory_that_others_hold_and_are_refused_after_five_seconds() {
        let budget = Budget::new(100 << 10);
        let begin = || Memory::begin(&mut Request::default(), &budget);
        let (first, second) = (begin(), begin());
        first.hold(40 << 10).await.expect("there is enough");
        first.hold(FREE).await.expect("it holds more already");
        second.hold(FREE).await.expect("a small body is not counted");
        let refused = second.hold(40 << 10).await.expect_err("the first one holds 80 of 100 KiB");
        assert!(refused.is_transient(), "{refused}");
        drop(first);
        second.hold(40 << 10).await.expect("the first one has given its memory back");
        second.hold(50 << 10).await.expect("it grows by what is left");
    }
}
