//! How many parts of bodies a client may send in HTTP/2 before they are read.
//!
//! What waits of a body is a part of the buffers that the library has read, of 8 KiB and more. A client that sends a few bytes of
//! a body, then something that nobody reads, and so on, has a whole buffer kept for each of them, and its windows count only the
//! bytes. So the frames with parts of bodies are counted, too: a connection with too many unread ones is read slowly until none
//! of its bodies waits.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Sleep, sleep};

/// What a client that speaks HTTP/2 sends first (RFC 9113, section 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The number of bytes of a frame's head, and the type of a frame with a part of a body (RFC 9113, sections 4.1 and 6.1).
const HEAD: usize = 9;
const DATA: u8 = 0;

/// How long a connection with too many unread parts pauses, and after how many pauses it may send another one.
const PAUSE: Duration = Duration::from_millis(10);
const PAUSES: u32 = 25;

/// What is known of the bodies of a connection.
#[derive(Debug, Clone, Default)]
pub(super) struct Bodies(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    /// The number of requests whose bodies wait to be read.
    waiting: AtomicUsize,
    /// The number of parts that were read since none waited.
    read: AtomicUsize,
}

/// A body that waits to be read. Dropping this value says that it no longer does.
#[derive(Debug)]
pub(super) struct Waits(Bodies);

impl Bodies {
    /// Counts one more.
    pub(super) fn one_more(&self) -> Waits {
        self.0.waiting.fetch_add(1, Ordering::Relaxed);
        Waits(self.clone())
    }
}

impl Waits {
    /// Notes that a part of the body was read.
    pub(super) fn part_is_read(&self) {
        self.0.0.read.fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for Waits {
    fn drop(&mut self) {
        self.0.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The frames of a connection, if it is one of HTTP/2.
#[derive(Debug)]
pub(super) struct Frames {
    place: Place,
    bodies: Bodies,
    /// The number of parts of bodies that have come since no body waited.
    come: usize,
    /// The maximum number of unread ones.
    most: usize,
    pause: Option<Pin<Box<Sleep>>>,
    /// The number of pauses until the connection may send another part.
    pauses: u32,
}

/// Where in the frames a connection is.
#[derive(Debug)]
enum Place {
    /// In the preface, of which so many bytes have come.
    Preface(usize),
    /// In the head of a frame, of which so many bytes have come.
    Head([u8; HEAD], usize),
    /// In the rest of a frame, of which so many bytes are to come.
    Rest(usize),
    /// In HTTP/1.1, which has no frames.
    NoFrames,
}

impl Place {
    /// Goes on by what has been read. Returns how many parts of bodies begin in it. Empty ones keep nothing.
    fn pass(&mut self, mut read: &[u8]) -> usize {
        let mut parts = 0;
        while let Some(&first) = read.first() {
            let passed = match self {
                Self::NoFrames => break,
                Self::Preface(come) if PREFACE[*come] == first => {
                    *come += 1;
                    if *come == PREFACE.len() {
                        *self = Self::Head([0; HEAD], 0);
                    }
                    1
                }
                Self::Preface(_) => {
                    *self = Self::NoFrames;
                    break;
                }
                Self::Head(head, come) => {
                    head[*come] = first;
                    *come += 1;
                    if *come == HEAD {
                        let bytes = u32::from_be_bytes([0, head[0], head[1], head[2]]);
                        parts += usize::from(head[3] == DATA && bytes > 0);
                        *self = Self::Rest(usize::try_from(bytes).unwrap_or(usize::MAX));
                    }
                    1
                }
                Self::Rest(bytes) => {
                    let come = read.len().min(*bytes);
                    *bytes -= come;
                    come
                }
            };
            if let Self::Rest(0) = self {
                *self = Self::Head([0; HEAD], 0);
            }
            read = &read[passed..];
        }
        parts
    }
}

impl Frames {
    /// Counts the frames of a connection, of whose bodies so many parts may be unread.
    pub(super) fn new(bodies: Bodies, most: usize) -> Self {
        Self { place: Place::Preface(0), bodies, come: 0, most, pause: None, pauses: PAUSES }
    }

    /// Notes what has been read of the connection.
    pub(super) fn pass(&mut self, read: &[u8]) {
        self.come += self.place.pass(read);
    }

    /// Waits until the connection may be read.
    pub(super) fn poll_allowed(&mut self, context: &mut Context<'_>) -> Poll<()> {
        loop {
            let Counts { waiting, read } = &*self.bodies.0;
            if waiting.load(Ordering::Relaxed) == 0 {
                read.store(0, Ordering::Relaxed);
                self.come = 0;
            }
            if self.come <= self.most + read.load(Ordering::Relaxed) {
                self.pause = None;
                return Poll::Ready(());
            }
            ready!(self.pause.get_or_insert_with(|| Box::pin(sleep(PAUSE))).as_mut().poll(context));
            self.pause = None;
            self.pauses -= 1;
            if self.pauses == 0 {
                self.pauses = PAUSES;
                self.come -= 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use proptest::prelude::*;
    use tokio::time::Instant;

    use super::*;

    fn frame(kind: u8, bytes: usize) -> Vec<u8> {
        let length = u32::try_from(bytes).expect("it is short").to_be_bytes();
        [&length[1..], &[kind], &[0; 5], &vec![b'x'; bytes]].concat()
    }

    proptest! {
        #[test]
        fn frames_are_told_apart_wherever_the_pieces_end(
            frames in prop::collection::vec((0..=10_u8, 0..300_usize), 0..20),
            piece in 1..400_usize,
        ) {
            let sent = frames.iter().flat_map(|&(kind, bytes)| frame(kind, bytes));
            let sent: Vec<_> = PREFACE.iter().copied().chain(sent).collect();
            let mut place = Place::Preface(0);
            let parts: usize = sent.chunks(piece).map(|piece| place.pass(piece)).sum();
            prop_assert_eq!(parts, frames.iter().filter(|frame| frame.0 == DATA && frame.1 > 0).count());
        }
    }

    #[test]
    fn a_connection_of_http_1_has_no_frames() {
        let mut place = Place::Preface(0);
        assert_eq!(place.pass(b"PRI * HTTP/1.1\r\n\r\n"), 0);
        assert!(matches!(place, Place::NoFrames));
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_with_many_unread_parts_of_bodies_is_read_slowly_until_none_of_them_waits() {
        const BYTES: usize = 100;
        let bodies = Bodies::default();
        let mut frames = Frames::new(bodies.clone(), 4);
        frames.pass(PREFACE);
        let mut time = async |kind, count| {
            let begun = Instant::now();
            for _ in 0..count {
                poll_fn(|context| frames.poll_allowed(context)).await;
                frames.pass(&frame(kind, BYTES));
            }
            begun.elapsed()
        };
        let one_more = PAUSE * PAUSES;
        assert_eq!(time(DATA, 9).await, Duration::ZERO, "no body waits");
        let waits = bodies.one_more();
        assert_eq!(time(DATA, 4).await, Duration::ZERO);
        assert_eq!(time(6, 9).await, one_more, "there is one too many");
        assert_eq!(time(DATA, 3).await, one_more * 2);
        (0..7).for_each(|_| waits.part_is_read());
        assert_eq!(time(DATA, 7).await, Duration::ZERO);
        drop(waits);
        assert_eq!(time(DATA, 9).await, Duration::ZERO);
    }
}
