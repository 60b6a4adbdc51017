//! What a connection of HTTP/2 keeps besides the bytes that its windows count.
//!
//! What waits of a body, and each field of a head that later heads may refer to (RFC 7541, section 2.3.2), is a part of a buffer that
//! the library has read, of 8 to 16 KiB. A client that sends a few bytes of a body or a head, then something that nobody reads, and
//! so on, has a whole buffer kept for each of them. So the frames are counted, too:
//!
//! - A connection with too many unread parts of bodies is read slowly. The parts of a request that is answered do not count.
//! - A connection whose heads may keep too many buffers is old, because what they keep is never given back: it ends when its requests
//!   are answered, and its client makes another one. A client that goes on sending heads is hung up on.
//! - Only some connections may be ones of HTTP/2.

use std::collections::HashMap;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_util::task::AtomicWaker;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::{Sleep, sleep};

use super::frames::{CONTINUATION, DATA, END_STREAM, HEADERS, Position, RST_STREAM, Seen};
use crate::recurring;

/// What a client is told that finds no place (RFC 9113, sections 6.5 and 6.8): settings, as the beginning of each connection, and
/// that it should calm down and that no request was taken.
pub(super) const NO_PLACE: &[u8] = b"\0\0\0\x04\0\0\0\0\0\0\0\x08\x07\0\0\0\0\0\0\0\0\0\0\0\0\x0b";

/// The number of bytes that a buffer of the library has at most.
const BUFFER: usize = 16 << 10;

/// A part of a body with fewer bytes counts more: the library hangs up on a client that has sent a hundred of them unread.
const SMALL: usize = 256;
const SMALL_COUNTS: usize = 8;

/// What the unread parts of the bodies of a connection may count if few connections of HTTP/2 are open, and at least.
const PARTS: usize = 512;
const LEAST_PARTS: usize = 16;
/// How many buffers the heads of a connection may keep until it is old, if few connections of HTTP/2 are open, and at least.
const HEADS: usize = 64;
const LEAST_HEADS: usize = 8;
/// The number of connections that may have so many.
const WITH_ALL: usize = 8;

/// A client is hung up on when its heads keep so many times as many buffers as make its connection old.
const HUNG_UP: usize = 2;

/// How long a connection with too many unread parts pauses, and after how many pauses another one is read.
const PAUSE: Duration = Duration::from_millis(10);
const PAUSES: u32 = 25;

/// What is known of the bodies of a connection, and that it is old.
#[derive(Debug, Clone, Default)]
pub(super) struct Bodies(Arc<Known>);

#[derive(Debug, Default)]
struct Known {
    /// The number of requests whose bodies wait to be read.
    waiting: AtomicUsize,
    /// What the parts count that were read, of requests that are not answered.
    read: AtomicUsize,
    /// Wakes the connection when a part was read.
    waker: AtomicWaker,
    is_old: Notify,
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

    /// Waits until the connection is old.
    pub(super) async fn is_old(&self) {
        self.0.is_old.notified().await;
    }
}

impl Waits {
    /// Notes that a part of the body was read.
    pub(super) fn part_is_read(&self, bytes: usize) {
        self.0.0.read.fetch_add(counts(bytes), Ordering::Relaxed);
        self.0.0.waker.wake();
    }
}

impl Drop for Waits {
    fn drop(&mut self) {
        self.0.0.waiting.fetch_sub(1, Ordering::Relaxed);
        self.0.0.waker.wake();
    }
}

/// Returns what an unread part of a body with so many bytes counts. Empty ones keep nothing.
fn counts(bytes: usize) -> usize {
    match bytes {
        0 => 0,
        1..SMALL => SMALL_COUNTS,
        _ => 1,
    }
}

/// The frames of a connection, if it is one of HTTP/2.
#[derive(Debug)]
pub(super) struct Frames {
    /// Where the connection is in the frames that come, and in those that are sent.
    incoming: Position,
    outgoing: Position,
    places: Places,
    place: Option<OwnedSemaphorePermit>,
    bodies: Bodies,
    /// What the parts of the body of each request count that have come, until it is answered, and the last request.
    open: HashMap<u32, usize>,
    newest: u32,
    /// What all of them count, and how much the unread ones may count.
    counted: usize,
    most_unread: usize,
    /// How many buffers the heads may keep, and how many they may keep until the connection is old.
    heads_kept: usize,
    most_heads: usize,
    /// The number of bytes that have come, and that had come when a head was last found to keep another buffer.
    received: usize,
    last_head: usize,
    pause: Option<Pin<Box<Sleep>>>,
    /// The number of pauses until the connection may send another part.
    pauses: u32,
}

/// The places of connections in HTTP/2.
#[derive(Debug, Clone)]
pub(super) struct Places {
    free: Arc<Semaphore>,
    all: usize,
}

impl Places {
    pub(super) fn new(all: usize) -> Self {
        Self { free: Arc::new(Semaphore::new(all)), all }
    }
}

impl Frames {
    /// Counts the frames of a connection, which needs one of the places if it is one of HTTP/2.
    pub(super) fn new(bodies: Bodies, places: Places) -> Self {
        Self {
            incoming: Position::BEGIN,
            outgoing: Position::BETWEEN,
            places,
            place: None,
            bodies,
            open: HashMap::new(),
            newest: 0,
            counted: 0,
            most_unread: 0,
            heads_kept: 0,
            most_heads: 0,
            received: 0,
            last_head: 0,
            pause: None,
            pauses: PAUSES,
        }
    }

    /// Goes on by what was read of the connection while it is allowed. Returns the number of bytes until it is allowed no longer, at
    /// least one. Fails if the client is to be hung up on.
    pub(super) fn pass(&mut self, read: &[u8]) -> io::Result<usize> {
        let mut passed = 0;
        while passed < read.len() {
            let (bytes, come) = self.incoming.step(&read[passed..]);
            passed += bytes;
            self.received = self.received.wrapping_add(bytes);
            match come {
                Seen::Http2 => self.take_place()?,
                Seen::Frame { kind: DATA, request, bytes, .. } => {
                    // What is read of a request that its client has taken back counts for none.
                    self.bodies.0.read.fetch_min(self.counted, Ordering::Relaxed);
                    if let Some(of_request) = self.open.get_mut(&request) {
                        *of_request += counts(bytes);
                        self.counted += counts(bytes);
                    }
                    if !self.is_allowed() {
                        break;
                    }
                }
                Seen::Frame { kind: HEADERS, flags, request, .. } => {
                    // What comes behind a body is not another request.
                    if request > self.newest {
                        self.newest = request;
                        if flags & END_STREAM == 0 {
                            self.open.insert(request, 0);
                        }
                    }
                    self.keep_head()?;
                }
                Seen::Frame { kind: CONTINUATION, .. } => self.keep_head()?,
                Seen::Frame { kind: RST_STREAM, request, .. } => self.close(request),
                Seen::Frame { .. } | Seen::Nothing => {}
            }
        }
        Ok(passed)
    }

    /// Goes on by what was sent on the connection.
    pub(super) fn pass_sent(&mut self, mut sent: &[u8]) {
        while self.place.is_some() && !sent.is_empty() {
            let (bytes, come) = self.outgoing.step(sent);
            sent = &sent[bytes..];
            if let Seen::Frame { kind, flags, request, .. } = come {
                let is_last = matches!(kind, DATA | HEADERS) && flags & END_STREAM != 0;
                if is_last || kind == RST_STREAM {
                    self.close(request);
                }
            }
        }
    }

    /// Forgets the body of a request that is answered or that its client has taken back. All of it has been read, or is given back
    /// with the request.
    fn close(&mut self, request: u32) {
        let come = self.open.remove(&request).unwrap_or_default();
        self.counted -= come;
        let all_read = |read: usize| Some(read.saturating_sub(come));
        let _ = self.bodies.0.read.fetch_update(Ordering::Relaxed, Ordering::Relaxed, all_read);
    }

    fn take_place(&mut self) -> io::Result<()> {
        let Places { free, all } = &self.places;
        let Ok(place) = Arc::clone(free).try_acquire_owned() else {
            recurring::warn("a connection of HTTP/2 is closed", "there are as many as there may be");
            return Err(io::Error::other("there are too many connections of HTTP/2"));
        };
        let taken = all - free.available_permits();
        self.most_unread = (PARTS * WITH_ALL / taken).clamp(LEAST_PARTS, PARTS);
        self.most_heads = (HEADS * WITH_ALL / taken).clamp(LEAST_HEADS, HEADS);
        self.place = Some(place);
        Ok(())
    }

    /// Notes that a head may keep the buffer in which it begins.
    fn keep_head(&mut self) -> io::Result<()> {
        if self.heads_kept > 0 && self.received.wrapping_sub(self.last_head) < BUFFER {
            return Ok(());
        }
        self.last_head = self.received;
        self.heads_kept += 1;
        if self.heads_kept > self.most_heads {
            self.bodies.0.is_old.notify_one();
        }
        if self.heads_kept > HUNG_UP * self.most_heads {
            return Err(io::Error::other("the client goes on sending requests on an old connection"));
        }
        Ok(())
    }

    /// Returns whether the connection has no place, as one of HTTP/1.1, or one of HTTP/2 that found none.
    pub(super) fn has_no_place(&self) -> bool {
        self.place.is_none()
    }

    fn is_allowed(&self) -> bool {
        self.counted <= self.most_unread + self.bodies.0.read.load(Ordering::Relaxed)
    }

    /// Waits until the connection may be read.
    pub(super) fn poll_allowed(&mut self, context: &mut Context<'_>) -> Poll<()> {
        while !self.is_allowed() {
            self.bodies.0.waker.register(context.waker());
            if self.is_allowed() {
                break;
            }
            ready!(self.pause.get_or_insert_with(|| Box::pin(sleep(PAUSE))).as_mut().poll(context));
            self.pause = None;
            self.pauses = self.pauses.saturating_sub(1);
            // The body of a request that has just come waits after a pause at the latest.
            if self.bodies.0.waiting.load(Ordering::Relaxed) == 0 {
                self.bodies.0.read.store(0, Ordering::Relaxed);
                self.open.values_mut().for_each(|come| *come = 0);
                self.counted = 0;
            } else if self.pauses == 0 {
                self.pauses = PAUSES;
                let unread = self.counted - self.bodies.0.read.load(Ordering::Relaxed).min(self.counted);
                self.bodies.0.read.fetch_add(unread.saturating_sub(self.most_unread), Ordering::Relaxed);
            }
        }
        self.pause = None;
        Poll::Ready(())
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::pin::pin;

    use tokio::time::Instant;

    use super::super::frames::tests::{frame, frame_of};
    use super::super::frames::{HEAD, NUMBER, PADDED, PREFACE};
    use super::*;

    fn opened(places: usize) -> Frames {
        let mut frames = Frames::new(Bodies::default(), Places::new(places));
        assert_eq!(frames.pass(PREFACE).expect("a place"), PREFACE.len());
        frames
    }

    #[test]
    fn a_connection_of_http_1_has_no_frames_and_needs_no_place() {
        let mut frames = Frames::new(Bodies::default(), Places::new(0));
        let head = b"PRI * HTTP/1.1\r\n\r\n";
        assert_eq!(frames.pass(head).expect("HTTP/1.1"), head.len());
        assert!(matches!(frames.incoming, Position::NoFrames));
    }

    #[test]
    fn a_connection_of_http_2_needs_a_place_and_gives_it_back() {
        let places = Places::new(1);
        let open = || {
            let mut frames = Frames::new(Bodies::default(), places.clone());
            frames.pass(PREFACE).map(|_| frames)
        };
        let first = open().expect("a place");
        assert_eq!(open().expect_err("it is taken").to_string(), "there are too many connections of HTTP/2");
        drop(first);
        open().expect("it was given back");
    }

    #[tokio::test]
    async fn a_connection_whose_heads_keep_many_buffers_is_old_and_then_hung_up_on() {
        let mut frames = opened(1);
        let bodies = frames.bodies.clone();
        let mut heads = |count, junk: usize| {
            (0..count).all(|_| {
                let sent = [frame(HEADERS, 3), frame(0xbe, junk)].concat();
                frames.pass(&sent).is_ok_and(|passed| passed == sent.len())
            })
        };
        assert!(heads(400, 10), "they are in one buffer");
        assert!(heads(HEADS, BUFFER));
        let mut old = pin!(bodies.is_old());
        assert!(futures_util::poll!(old.as_mut()).is_pending());
        assert!(heads(2, BUFFER));
        assert!(futures_util::poll!(old.as_mut()).is_ready());
        assert!(heads(HEADS - 4, BUFFER), "requests that are under way");
        assert!(!heads(4, BUFFER));
    }

    #[tokio::test(start_paused = true)]
    async fn small_parts_of_a_body_are_passed_on_as_they_are_read() {
        const COUNT: usize = 1_000;
        let mut frames = opened(1);
        frames.pass(&frame(HEADERS, 3)).expect("a request");
        let waits = frames.bodies.one_more();
        let sent: Vec<u8> = (0..COUNT).flat_map(|_| frame(DATA, 10)).collect();
        let (mut passed, mut read) = (0, 0);
        let begun = Instant::now();
        while passed < sent.len() {
            poll_fn(|context| frames.poll_allowed(context)).await;
            passed += frames.pass(&sent[passed..]).expect("they are allowed");
            let come = passed / (HEAD + 10);
            assert!(come - read < 100, "the library would hang up");
            (read..come).for_each(|_| waits.part_is_read(10));
            read = come;
        }
        assert_eq!((read, begun.elapsed()), (COUNT, Duration::ZERO));
    }

    /// Sends frames of a request on a connection. Returns how long it takes until they are read.
    async fn time(frames: &mut Frames, request: u32, bytes: usize, count: usize) -> Duration {
        let begun = Instant::now();
        for _ in 0..count {
            let sent = frame_of(request, DATA, 0, bytes);
            let mut passed = 0;
            while passed < sent.len() {
                poll_fn(|context| frames.poll_allowed(context)).await;
                passed += frames.pass(&sent[passed..]).expect("they are allowed");
            }
        }
        begun.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_with_many_unread_parts_of_bodies_is_read_slowly_until_none_of_them_waits() {
        let mut frames = opened(1);
        let bodies = frames.bodies.clone();
        frames.pass(&frame(HEADERS, 3)).expect("a request");
        let one_more = PAUSE * PAUSES;
        assert_eq!(time(&mut frames, 1, SMALL, PARTS).await, Duration::ZERO);
        assert_eq!(time(&mut frames, 1, SMALL, 1).await, PAUSE, "no body waits");
        let waits = bodies.one_more();
        assert_eq!(time(&mut frames, 1, SMALL, PARTS).await, Duration::ZERO);
        let slow = time(&mut frames, 1, SMALL, 1).await;
        assert!(slow <= one_more && slow + PAUSE >= one_more, "{slow:?}");
        assert_eq!(time(&mut frames, 1, SMALL, 2).await, one_more * 2);
        assert_eq!(time(&mut frames, 1, 1, 3).await, one_more * 3);
        (0..PARTS / 2).for_each(|_| waits.part_is_read(SMALL));
        assert_eq!(time(&mut frames, 1, 1, PARTS / 2 / SMALL_COUNTS).await, Duration::ZERO);
        drop(waits);
        assert!(time(&mut frames, 1, SMALL, 9).await <= PAUSE);
    }

    #[tokio::test(start_paused = true)]
    async fn neither_padding_nor_the_bit_that_means_nothing_changes_what_a_part_counts() {
        const PADDING: usize = 9;
        let mut frames = opened(1);
        let waits = frames.bodies.one_more();
        frames.pass(&frame_of(1 | !NUMBER, HEADERS, 0, 3)).expect("a request");
        let mut padded = frame_of(1 | !NUMBER, DATA, PADDED, 1 + SMALL + PADDING);
        padded[HEAD] = 9;
        for _ in 0..PARTS {
            assert_eq!(frames.pass(&padded).expect("it is allowed"), padded.len());
        }
        assert_eq!(frames.counted, PARTS);
        assert_eq!(frames.pass(&padded).expect("a part"), HEAD + 1, "there is one too many");
        (0..=PARTS).for_each(|_| waits.part_is_read(SMALL));
        assert_eq!(frames.pass(&padded[HEAD + 1..]).expect("the rest"), padded.len() - HEAD - 1);
        frames.pass(&frame_of(3, HEADERS, 0, 3)).expect("a request");
        assert_eq!(frames.open.len(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn the_body_of_a_request_that_is_answered_counts_no_longer() {
        let mut frames = opened(1);
        let _waits = frames.bodies.one_more();
        for request in (1..60).step_by(2) {
            frames.pass(&frame_of(request, HEADERS, 0, 3)).expect("a request");
            assert_eq!(time(&mut frames, request, SMALL, PARTS / 2).await, Duration::ZERO);
            match request % 3 {
                0 => frames.pass_sent(&frame_of(request, DATA, END_STREAM, 9)),
                1 => frames.pass_sent(&frame_of(request, RST_STREAM, 0, 4)),
                _ => drop(frames.pass(&frame_of(request, RST_STREAM, 0, 4))),
            }
            // What still comes of it is thrown away.
            assert_eq!(time(&mut frames, request, SMALL, PARTS).await, Duration::ZERO);
        }
    }
}
