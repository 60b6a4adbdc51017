//! Forwards an answer as it arrives and parses it on the way. It reads from the provider only as fast as the client
//! does.

use std::io;
use std::sync::LazyLock;
use std::task::{Poll, ready};
use std::time::Duration;

use axum::body::{Body, Bytes};
use futures_util::stream;
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::http::memory::Memory;
use crate::http::pace::{Pace, STALL};
use crate::messages::CancelReason;
use crate::messages::failure::Failure;
use crate::providers::answer::{ARRIVING, Answer, Api};
use crate::providers::sse::{Events, Pieces};
use crate::sharing::{Place, Shares};

/// The largest piece in bytes that waits for a slow client, besides the one that has come from the provider. Pieces are copies,
/// because even a small part of a chunk keeps the whole of it.
const PIECE: usize = 16 << 10;
/// The number of bytes at the end of an answer that are held until its record is committed.
const MOST_HELD: usize = 256 << 10;
/// The number of bytes of an incomplete event, or of a piece that is forwarded, that are kept even without memory for them. It is
/// more than the event that ends an answer has.
const MOST_UNHELD: usize = 16 << 10;

/// The places of projects at forwarding large pieces for which there is no memory.
static UNHELD: LazyLock<Shares> = LazyLock::new(|| Shares::with_total(4, 16));
/// How long a client may take to read such a piece.
const UNHELD_PATIENCE: Duration = Duration::from_secs(10);

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
    /// Whether the client did not get something before the end.
    has_hole: bool,
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
        let (client, pieces) = mpsc::channel(1);
        let (events, pace) = (Events::default(), Pace::default());
        (
            Self {
                api,
                unread,
                events,
                answer,
                held: Vec::new(),
                client,
                has_hole: false,
                pace,
                memory,
                own,
            },
            body(pieces),
        )
    }

    /// Forwards the part of an answer that has already arrived, and then the rest. Returns whether the answer ended
    /// properly, or that the client disconnected first.
    pub(super) async fn pass(
        &mut self,
        response: &mut reqwest::Response,
        begun: Bytes,
    ) -> Result<bool, CancelReason> {
        // There is memory for nearly all of it.
        if !begun.is_empty() && !self.forward(begun).await {
            return Err(CancelReason::ClientGone);
        }
        let mut pieces = Pieces::of(response);
        loop {
            let has_ended = self.answer.has_ended();
            // An answer for which there is no memory may be large.
            let place = if self.unread.is_some() { self.unheld(ARRIVING).await? } else { None };
            let next = tokio::select! {
                biased;
                () = self.client.closed(), if !has_ended => return Err(CancelReason::ClientGone),
                next = pieces.next(has_ended) => next,
            };
            match next {
                Ok(Some(piece)) => self.take(piece, place).await?,
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

    /// Waits for a place to forward a piece of so many bytes if it is large and there is no memory for it. Meanwhile no more is
    /// read from the provider, whose pieces grow with each one that is read.
    async fn unheld(&self, bytes: usize) -> Result<Option<Place>, CancelReason> {
        if bytes <= MOST_UNHELD || self.memory.try_hold(self.own + bytes) {
            return Ok(None);
        }
        let project = self.memory.project();
        tokio::select! {
            () = self.client.closed() => Err(CancelReason::ClientGone),
            place = timeout(STALL, UNHELD.take(&project, 1)) => place.map(Some).map_err(|_| CancelReason::ClientGone),
        }
    }

    /// Parses a piece, and forwards it unless the answer ends with it, with a place if it has one.
    async fn take(&mut self, piece: Bytes, place: Option<Place>) -> Result<(), CancelReason> {
        if self.unread.is_none() {
            for data in self.events.push(&piece) {
                self.answer.event(self.api, &data);
            }
            // What there is no memory for is forwarded all the same, and not recorded.
            let kept = self.own + self.events.size() + self.answer.size() + self.held.len() + piece.len();
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
        let place = match place {
            Some(place) => Ok(Some(place)),
            None => self.unheld(piece.len()).await,
        };
        let is_taken = match place {
            Ok(Some(_place)) => timeout(UNHELD_PATIENCE, self.forward_next(piece)).await.unwrap_or(false),
            Ok(None) => self.forward_next(piece).await,
            Err(_) => false,
        };
        self.has_hole |= !is_taken;
        if is_taken || self.answer.has_ended() { Ok(()) } else { Err(CancelReason::ClientGone) }
    }

    /// Forwards what is held, and a piece. Returns whether the client is still connected and fast enough.
    async fn forward_next(&mut self, piece: Bytes) -> bool {
        self.release().await && self.forward(piece).await
    }

    /// Forwards what is held. Returns whether the client is still connected and fast enough.
    async fn release(&mut self) -> bool {
        let held = std::mem::take(&mut self.held);
        held.is_empty() || self.forward(held.into()).await
    }

    async fn forward(&mut self, piece: Bytes) -> bool {
        for part in piece.chunks(PIECE) {
            self.pace.note(part.len());
            if !self.pace.wait(&self.client, Piece::Part(Bytes::copy_from_slice(part))).await {
                return false;
            }
        }
        true
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
        if self.release().await && is_whole && !self.has_hole {
            self.pace.wait(&self.client, Piece::End).await;
        }
    }
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

    use axum::extract::Request;
    use http_body_util::BodyExt as _;
    use tokio::time::Instant;

    use super::*;
    use crate::http::memory::Budget;
    use crate::providers::sse::tests::kept_open;

    #[tokio::test(start_paused = true)]
    async fn who_reads_nothing_of_an_answer_is_given_up_after_a_minute() {
        let (mut passing, mut body) =
            Passing::new(Api::Messages, Answer::default(), None, Memory::unbounded(), 0);
        let begun = Instant::now();
        let mut taken = 0;
        while passing.take("data: {}\n\n".into(), None).await.is_ok() {
            taken += 1;
        }
        assert_eq!((taken, begun.elapsed().as_secs()), (1, 60));
        passing.finish(false).await;
        assert_eq!(begun.elapsed().as_secs(), 60, "nobody waits to tell them");
        body.frame().await.expect("what waited").expect("is there");
        body.frame().await.expect("an end").expect_err("half of an answer does not look whole");
        assert!(body.frame().await.is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn without_memory_large_pieces_are_forwarded_to_clients_that_read_them_and_a_few_at_once() {
        let budget = Budget::new(1 << 20);
        let begin = || {
            let memory = Memory::begin(&mut Request::default(), &budget);
            memory.set_project(&"p".into());
            Passing::new(Api::Messages, Answer::default(), None, memory, 0)
        };
        let held = Memory::begin(&mut Request::default(), &budget);
        held.set_project(&"p".into());
        assert!(held.try_hold(200 << 10));
        let piece = Bytes::from(vec![b'x'; 200 << 10]);
        let pass = async |mut passing: Passing| {
            let start = Instant::now();
            (passing.take(piece.clone(), None).await.is_ok(), start.elapsed().as_secs())
        };
        let (read, body) = begin();
        let reader = tokio::spawn(body.collect());
        assert_eq!(pass(read).await, (true, 5), "after it has waited for memory");
        assert!(reader.await.expect("no panic").is_err(), "that was not all of it");
        let silent: Vec<_> = (0..5).map(|_| begin()).collect();
        let (passings, _bodies): (Vec<_>, Vec<_>) = silent.into_iter().unzip();
        let taken = futures_util::future::join_all(passings.into_iter().map(pass)).await;
        assert_eq!(taken, [(false, 15), (false, 15), (false, 15), (false, 15), (false, 25)]);
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
