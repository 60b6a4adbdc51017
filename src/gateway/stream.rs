//! Forwards an answer as it arrives and parses it on the way. It reads from the provider only as fast as the client
//! does.

use std::io;
use std::task::{Poll, ready};

use axum::body::{Body, Bytes};
use futures_util::stream;
use tokio::sync::mpsc;

use crate::http::memory::Memory;
use crate::http::pace::Pace;
use crate::messages::CancelReason;
use crate::messages::failure::Failure;
use crate::providers::answer::{Answer, Api};
use crate::providers::sse::{Events, Pieces};
use crate::sharing::Place;

/// The number of pieces of an answer that may wait for a slow client.
const WAITING: usize = 8;
/// The number of bytes at the end of an answer that are held until its record is committed.
const MOST_HELD: usize = 256 << 10;
/// The number of bytes of an incomplete event that are kept even without memory for them, which is more than the event that
/// ends an answer has.
const MOST_UNHELD: usize = 16 << 10;

/// What is sent to the client.
#[derive(Debug)]
enum Piece {
    Part(Bytes),
    /// The proper end. Without it, the body fails, because half of an answer must not look whole.
    End,
}

/// An answer that is being forwarded to the client, who must read it at a minimum pace.
pub(super) struct Passing {
    api: Api,
    /// Why nothing of it is read, unless it is a stream of events, which can be read piece by piece.
    unread: Option<Failure>,
    events: Events,
    answer: Answer,
    /// The end of the answer.
    held: Vec<u8>,
    client: mpsc::Sender<Piece>,
    pace: Pace,
    /// What the request holds of the memory for bodies.
    memory: Memory,
    /// The number of bytes of the request's own body.
    own: usize,
}

impl Passing {
    /// Makes a stream, and the body through which the client receives it. `unread` says why nothing of the answer is read, if
    /// it is not, and `answer` is its beginning. The request has a body of `own` bytes, and holds memory for what is kept of the
    /// answer, too.
    pub(super) fn new(
        api: Api,
        answer: Answer,
        unread: Option<Failure>,
        memory: Memory,
        own: usize,
    ) -> (Self, Body) {
        let (client, pieces) = mpsc::channel(WAITING);
        let (events, pace) = (Events::default(), Pace::default());
        (Self { api, unread, events, answer, held: Vec::new(), client, pace, memory, own }, body(pieces))
    }

    /// Forwards the part of an answer that has already arrived, and then the rest. Returns whether the answer ended
    /// properly, or that the client disconnected first.
    pub(super) async fn pass(
        &mut self,
        response: &mut reqwest::Response,
        begun: Bytes,
    ) -> Result<bool, CancelReason> {
        if !begun.is_empty() {
            self.take(begun).await?;
        }
        let mut pieces = Pieces::of(response);
        loop {
            let has_ended = self.answer.has_ended();
            let next = tokio::select! {
                biased;
                () = self.client.closed(), if !has_ended => return Err(CancelReason::ClientGone),
                next = pieces.next(has_ended) => next,
            };
            match next {
                Ok(Some(piece)) => self.take(piece).await?,
                Ok(None) => {
                    self.events
                        .finish()
                        .into_iter()
                        .for_each(|data| drop(self.answer.event(self.api, &data)));
                    return Ok(true);
                }
                Err(_) => return Ok(self.answer.has_ended()),
            }
        }
    }

    /// Parses a piece, and forwards it unless the answer ends with it.
    async fn take(&mut self, piece: Bytes) -> Result<(), CancelReason> {
        if self.unread.is_none() {
            for data in self.events.push(&piece) {
                self.answer.event(self.api, &data);
            }
            // What there is no memory for is forwarded all the same, and not recorded.
            let kept = self.own + self.events.size() + self.answer.size();
            if self.memory.hold(kept).await.is_err() {
                self.answer.close();
                if self.events.size() > MOST_UNHELD {
                    self.answer.is_cut = true;
                    self.events.clear();
                }
            }
        }
        if self.answer.has_ended() && self.held.len() + piece.len() <= MOST_HELD {
            self.held.extend_from_slice(&piece);
            return Ok(());
        }
        let is_taken = self.release().await && self.forward(piece).await;
        if is_taken || self.answer.has_ended() { Ok(()) } else { Err(CancelReason::ClientGone) }
    }

    /// Forwards what is held. Returns whether the client is still connected and fast enough.
    async fn release(&mut self) -> bool {
        let held = std::mem::take(&mut self.held);
        held.is_empty() || self.forward(held.into()).await
    }

    async fn forward(&mut self, piece: Bytes) -> bool {
        self.pace.note(piece.len());
        self.pace.wait(&self.client, Piece::Part(piece)).await
    }

    /// Returns the answer, or why it cannot be recorded.
    pub(super) fn answered(&self) -> Result<&Answer, Box<Failure>> {
        match self.unread.clone().or_else(|| self.answer.failure()) {
            Some(failure) => Err(failure.into()),
            None => Ok(&self.answer),
        }
    }

    /// Ends the body with what is held, and properly if the answer is complete.
    pub(super) async fn finish(mut self, is_whole: bool) {
        if self.release().await && is_whole {
            self.pace.wait(&self.client, Piece::End).await;
        }
    }
}

/// Makes a body through which the client receives an answer that is not read, at a minimum pace. The place of the request is
/// kept for as long as the provider is.
pub(super) fn forward(mut response: reqwest::Response, place: Place) -> Body {
    let (client, pieces) = mpsc::channel(WAITING);
    tokio::spawn(async move {
        let _place = place;
        let mut reader = Pace::default();
        loop {
            let next = tokio::select! {
                () = client.closed() => return,
                next = response.chunk() => next,
            };
            match next {
                Ok(Some(piece)) => {
                    reader.note(piece.len());
                    if !reader.wait(&client, Piece::Part(piece)).await {
                        return;
                    }
                }
                Ok(None) => {
                    reader.wait(&client, Piece::End).await;
                    return;
                }
                Err(_) => return,
            }
        }
    });
    body(pieces)
}

/// Makes a body of the pieces that are received.
fn body(mut pieces: mpsc::Receiver<Piece>) -> Body {
    let mut has_ended = false;
    Body::from_stream(stream::poll_fn(move |context| {
        if has_ended {
            return Poll::Ready(None);
        }
        let piece = ready!(pieces.poll_recv(context));
        has_ended = !matches!(piece, Some(Piece::Part(_)));
        Poll::Ready(match piece {
            Some(Piece::Part(bytes)) => Some(Ok(bytes)),
            Some(Piece::End) => None,
            None => Some(Err(io::Error::from(io::ErrorKind::ConnectionAborted))),
        })
    }))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http_body_util::BodyExt as _;
    use tokio::time::Instant;

    use super::*;
    use crate::providers::sse::tests::kept_open;
    use crate::sharing::Shares;

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_is_not_read_keeps_its_place_until_the_client_has_it_or_is_given_up() {
        let places = Shares::new(1);
        let answer = |text: &'static str| axum::http::Response::new(reqwest::Body::from(text)).into();
        let place = || places.try_take(&"p".into(), 1).expect("a place");
        let body = forward(answer("whole"), place());
        assert_eq!(places.taken(), 1);
        assert_eq!(body.collect().await.expect("a whole body").to_bytes(), "whole");
        places.idle().await;
        let begun = Instant::now();
        let _unread = forward(kept_open("data: {}\n\n"), place());
        places.idle().await;
        // The provider says something each second, and some of that waits.
        assert_eq!(begun.elapsed().as_secs(), 60 + WAITING as u64);
    }

    #[tokio::test(start_paused = true)]
    async fn who_reads_nothing_of_an_answer_is_given_up_after_a_minute() {
        let (mut passing, mut body) =
            Passing::new(Api::Messages, Answer::default(), None, Memory::unbounded(), 0);
        let begun = Instant::now();
        let mut taken = 0;
        while passing.take("data: {}\n\n".into()).await.is_ok() {
            taken += 1;
        }
        assert_eq!((taken, begun.elapsed().as_secs()), (WAITING, 60));
        passing.finish(false).await;
        assert_eq!(begun.elapsed().as_secs(), 60, "nobody waits to tell them");
        for _ in 0..WAITING {
            body.frame().await.expect("what waited").expect("is there");
        }
        body.frame().await.expect("an end").expect_err("half of an answer does not look whole");
        assert!(body.frame().await.is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_ends_five_seconds_after_its_end_although_the_provider_keeps_the_stream_open() {
        let (mut passing, _body) =
            Passing::new(Api::Messages, Answer::default(), None, Memory::unbounded(), 0);
        let begun = Instant::now();
        let mut response = kept_open("data: {\"type\": \"message_stop\"}\n\n");
        let passed = passing.pass(&mut response, Bytes::new());
        let ended = tokio::time::timeout(Duration::from_mins(1), passed).await.expect("an end");
        assert_eq!((ended.ok(), begun.elapsed().as_secs()), (Some(true), 5));
    }
}
