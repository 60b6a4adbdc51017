//! The memory that the bodies of requests take together, which is bounded however many clients send at once.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{FromRequestParts, Request};
use axum::http::Extensions;
use axum::http::request::Parts;
use axum::response::Response;
use hyper::body::Frame;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

use super::clean::{MOST_VALUES, too_many_values};
use crate::error::{Error, Result};
use crate::sharing::{Entry, Kind, Place, Served, Shares, Turn, Work};

/// How many bytes of a request are not counted. Nearly all requests stay below, and cost no bookkeeping.
pub(super) const FREE: usize = 16 << 10;

/// The unit of bookkeeping, in bytes.
const UNIT: usize = 1 << 10;

/// The number of bytes that a short request takes while it waits to be written: its future, its head and its event. It does so
/// even if its client has gone.
const REQUEST: usize = 10 << 10;

/// How long a request waits for memory that others hold.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long a request waits that holds some itself, if another one of its project does so, too. If all waited equally long, each
/// for what the others hold, all would be refused.
const PATIENCE_OF_OTHERS: Duration = Duration::from_millis(2_500);

/// The number of bytes of records from which on a request that reads them waits until others that read leave memory for all that it
/// may read. If each held some, and waited for more, none would get it.
const LONG_READ: usize = 512 << 10;

/// How long somebody who needs memory late pauses before they ask for it again.
const PAUSE: Duration = Duration::from_millis(100);

/// The error of a request for which there is no memory.
const FULL: Error = Error::Unavailable("other requests use all the memory for bodies; try again");

/// The memory that all requests share. Those of one project take at most half of it, and twice what they leave free, and so do
/// those whose project is not known.
#[derive(Debug, Clone)]
pub struct Budget {
    memory: Shares,
    /// The place of the request of each project that waits longest for more than it holds.
    growing: Shares,
    /// What requests that read long records may hold when they have read all of them.
    reading: Shares,
}

impl Budget {
    /// Makes a budget of `bytes`.
    #[must_use]
    pub fn new(bytes: usize) -> Self {
        let units = (bytes / UNIT).min(Semaphore::MAX_PERMITS);
        let growing = Shares::with_total(1, Semaphore::MAX_PERMITS);
        let reading = Shares::of_much(units / 2);
        Self { memory: Shares::of_much(units / 2), growing, reading }
    }

    /// Returns how many bytes are held.
    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        self.memory.taken() * UNIT
    }
}

/// What one request holds: memory of the budget, its place among those of its project, its turn at working, and that it is
/// being served. Clones hold it together: memory is given back when the last one is dropped, which is that of the writer's queue
/// if the client closes the connection before its events are written.
#[derive(Debug, Clone)]
pub struct Memory(Arc<Held>);

impl<S: Sync> FromRequestParts<S> for Memory {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(Self::of(&parts.extensions))
    }
}

/// Memory for what waits to be written.
#[derive(Debug)]
pub struct Queued {
    _place: Option<Place>,
}

#[derive(Debug)]
struct Held {
    budget: Budget,
    project: OnceLock<Arc<str>>,
    places: Mutex<Vec<Place>>,
    /// How many bytes the request has asked memory for, of those for which it needs to hold none.
    asked: AtomicUsize,
    /// How many bytes are kept besides the body and what is made of it.
    beside: AtomicUsize,
    /// How many bytes of records the request has read.
    read: Mutex<usize>,
    /// How long the request has waited for memory.
    waited: Mutex<Duration>,
    /// How the request was let in among those of its project, if it had to be.
    entry: Mutex<Option<Entry>>,
    place: Mutex<Option<Place>>,
    turn: Mutex<Option<Turn>>,
    served: Mutex<Option<Served>>,
    /// Gives turns at working to requests that have large bodies.
    work: OnceLock<Arc<Work>>,
}

impl Memory {
    /// Attaches to the request that it holds nothing yet, unless it is part of another request, whose memory is its own.
    pub fn begin(request: &mut Request, budget: &Budget) -> Self {
        if let Some(memory) = request.extensions().get::<Self>() {
            return memory.clone();
        }
        let memory = Self::holding_nothing(budget.clone());
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
        Self::holding_nothing(Budget::new(usize::MAX))
    }

    /// Holds nothing yet of a budget, for a part of a project's work whose memory is given back before a response is sent.
    #[must_use]
    pub fn of_project(budget: &Budget, project: &Arc<str>) -> Self {
        let memory = Self::holding_nothing(budget.clone());
        memory.set_project(project);
        memory
    }

    fn holding_nothing(budget: Budget) -> Self {
        Self(Arc::new(Held {
            budget,
            project: OnceLock::new(),
            places: Mutex::default(),
            asked: AtomicUsize::default(),
            beside: AtomicUsize::default(),
            read: Mutex::default(),
            waited: Mutex::default(),
            entry: Mutex::default(),
            place: Mutex::default(),
            turn: Mutex::default(),
            served: Mutex::default(),
            work: OnceLock::new(),
        }))
    }

    fn places(&self) -> MutexGuard<'_, Vec<Place>> {
        lock(&self.0.places)
    }

    /// Keeps memory that was taken together with what is held, because a request may ask for a little more any number of times.
    fn keep(&self, place: Place) {
        let mut places = self.places();
        let place = match places.last_mut() {
            Some(last) => last.add(place),
            None => Some(place),
        };
        places.extend(place);
    }

    /// Returns whether any memory is held.
    #[must_use]
    pub fn is_held(&self) -> bool {
        !self.places().is_empty()
    }

    /// Makes what is held from now on that of a project.
    pub fn set_project(&self, project: &Arc<str>) {
        let _ = self.0.project.set(Arc::clone(project));
    }

    /// Returns the project whose memory this is, or an empty name before that is known.
    #[must_use]
    pub fn project(&self) -> Arc<str> {
        self.0.project.get().map_or_else(|| "".into(), Arc::clone)
    }

    /// Makes the request one that takes a turn at working if its body is large, unless it has one anyway.
    pub fn takes_turns(&self, work: &Arc<Work>) {
        let _ = self.0.work.set(Arc::clone(work));
    }

    /// Waits for a turn at working if a body has so many bytes that reading it keeps others from its thread, unless the
    /// request has one.
    pub(super) async fn begin_turn(&self, bytes: usize) {
        let is_small = bytes <= FREE || lock(&self.0.turn).is_some();
        if let (false, Some(project), Some(work)) = (is_small, self.0.project.get(), self.0.work.get()) {
            let turn = work.turn(project, Kind::Parse).await;
            *lock(&self.0.turn) = Some(turn);
        }
    }

    /// Holds that the request is being served until its response is made, or until it waits for its client.
    pub fn is_served(&self, served: Served) {
        *lock(&self.0.served) = Some(served);
    }

    /// Waits until the request is let in. It then holds a place of its project, and a turn if it takes one, until its
    /// response is made.
    pub async fn enter(&self, entry: Entry) -> Result<()> {
        *lock(&self.0.entry) = Some(entry);
        self.enter_again().await
    }

    /// Waits until a request is let in again that has left, if it was let in before.
    pub(super) async fn enter_again(&self) -> Result<()> {
        let entry = lock(&self.0.entry).clone();
        if let Some(entry) = entry {
            let (place, turn) = entry.take().await?;
            *lock(&self.0.place) = Some(place);
            *lock(&self.0.turn) = turn;
        }
        Ok(())
    }

    /// Gives back the request's place and ends its turn, because its response is made, or because it now waits for its
    /// client or for a place of another kind. Otherwise those who wait would keep the rest of their project from working.
    pub fn leave(&self) {
        self.end_turn();
        lock(&self.0.place).take();
        lock(&self.0.served).take();
    }

    /// Ends the request's turn at working, if it has one, because it now waits for something.
    pub fn end_turn(&self) {
        lock(&self.0.turn).take();
    }

    /// Makes a response hold the memory until it is sent.
    pub fn until_sent(self, response: Response) -> Response {
        response.map(|body| Body::new(Holding { body, rest: Bytes::new(), _memory: self }))
    }

    /// Holds memory for a body of which `bytes` have come so far: once for the body and once for what is made
    /// of it. Waits a little if other requests hold too much, and is then a 503.
    pub async fn hold(&self, bytes: usize) -> Result<()> {
        self.0.asked.fetch_max(bytes.min(FREE), Ordering::Relaxed);
        if bytes <= FREE {
            return Ok(());
        }
        self.take(self.wanted(bytes)).await
    }

    /// Holds memory for so many bytes in all that are kept besides the body and what is made of it. As few as are free in a body are
    /// not counted, so that a short request waits among those for which [`Memory::queue`] counts.
    pub async fn hold_beside(&self, bytes: usize) -> Result<()> {
        if bytes <= FREE {
            return Ok(());
        }
        let before = self.0.beside.load(Ordering::Relaxed);
        let more = bytes.div_ceil(UNIT).saturating_sub(before.div_ceil(UNIT));
        let most = self.0.budget.memory.of_one().saturating_sub(self.held());
        self.take(u32::try_from(more.min(most)).unwrap_or(u32::MAX)).await?;
        self.0.beside.fetch_max(bytes, Ordering::Relaxed);
        Ok(())
    }

    async fn take(&self, wanted: u32) -> Result<()> {
        if wanted == 0 {
            return Ok(());
        }
        let project = self.0.project.get_or_init(Arc::default);
        let Budget { memory, growing, .. } = &self.0.budget;
        let growing = self.is_held().then(|| growing.try_take(project, 1));
        let most = if matches!(growing, Some(None)) { PATIENCE_OF_OTHERS } else { PATIENCE };
        let spent = || lock(&self.0.waited);
        let patience = most.saturating_sub(*spent());
        let begun = Instant::now();
        let taken = timeout(patience, memory.take(project, wanted)).await;
        *spent() += begun.elapsed();
        self.keep(taken.map_err(|_| FULL)?);
        Ok(())
    }

    /// Takes memory of `waiting` for a request that waits to be written, however short it is, unless it holds some anyway.
    /// Connections do not limit how many wait, because they do so even if their clients have gone. Returns none if others hold
    /// too much.
    pub fn queue(&self, waiting: &Budget) -> Option<Queued> {
        if self.is_held() {
            return Some(Queued { _place: None });
        }
        let project = self.0.project.get_or_init(Arc::default);
        let units = (REQUEST + 2 * self.0.asked.load(Ordering::Relaxed)) / UNIT;
        let place = waiting.memory.try_take(project, u32::try_from(units).unwrap_or(u32::MAX))?;
        Some(Queued { _place: Some(place) })
    }

    /// Holds memory as [`Memory::hold`] does, if it is there at once. Returns whether it was.
    #[must_use]
    pub fn try_hold(&self, bytes: usize) -> bool {
        let wanted = self.wanted(bytes);
        let project = self.0.project.get_or_init(Arc::default);
        let taken = (wanted > 0).then(|| self.0.budget.memory.try_take(project, wanted));
        let is_held = taken.as_ref().is_none_or(Option::is_some);
        if let Some(place) = taken.flatten() {
            self.keep(place);
        }
        is_held
    }

    /// Holds memory as [`Memory::hold`] does, for something that others need not wait behind: it waits for `patience` until
    /// there is as much at once.
    pub async fn hold_late(&self, bytes: usize, patience: Duration) -> Result<()> {
        let until = Instant::now() + patience;
        while !self.try_hold(bytes) {
            if Instant::now() > until {
                return Err(FULL);
            }
            tokio::time::sleep(PAUSE).await;
        }
        Ok(())
    }

    /// Gives back the memory that is held.
    pub fn give_back(&self) {
        self.places().clear();
    }

    /// Returns how many units more are needed for so many bytes.
    fn wanted(&self, bytes: usize) -> u32 {
        self.units(bytes).saturating_sub(u32::try_from(self.held()).unwrap_or(u32::MAX))
    }

    /// Returns how many units are needed for so many bytes. Who wants more than there can be for them waits until they are alone.
    fn units(&self, bytes: usize) -> u32 {
        let bytes = 2 * bytes + self.0.beside.load(Ordering::Relaxed);
        u32::try_from(bytes.div_ceil(UNIT).min(self.0.budget.memory.of_one())).unwrap_or(u32::MAX)
    }

    /// Returns how many units are held.
    fn held(&self) -> usize {
        self.places().iter().map(Place::count).sum()
    }

    /// Begins to read records that have at most so many bytes together.
    #[must_use]
    pub fn reading(&self, most: usize) -> Reading<'_> {
        Reading { memory: self, most, place: None }
    }
}

/// The reading of some records.
#[derive(Debug)]
pub struct Reading<'a> {
    memory: &'a Memory,
    most: usize,
    /// What the request may hold when it has read all of them.
    place: Option<Place>,
}

impl Reading<'_> {
    /// Holds memory for a record of so many bytes, besides those that the request has read before.
    pub async fn hold(&mut self, bytes: usize) -> Result<()> {
        let Held { budget, project, read, .. } = &*self.memory.0;
        let read = {
            let mut read = lock(read);
            *read += bytes;
            *read
        };
        if read >= LONG_READ && self.place.is_none() {
            let project = project.get_or_init(Arc::default);
            let place = budget.reading.take(project, self.memory.units(self.most));
            self.place = Some(timeout(PATIENCE, place).await.map_err(|_| FULL)?);
        }
        self.memory.hold(read).await
    }
}

fn lock<T>(held: &Mutex<T>) -> MutexGuard<'_, T> {
    held.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The number of bytes that a JSON value is assumed to take when it is parsed, besides its text.
pub const VALUE: usize = 300;

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

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn a_request_with_a_large_body_waits_for_a_turn_of_its_project_beside_others() {
        let work = Arc::new(Work::new(crate::sharing::Limits { at_a_time: 1, ..Default::default() }));
        let [own, other]: [Arc<str>; 2] = ["own".into(), "other".into()];
        work.note(&other);
        work.note(&own);
        let memory = Memory::unbounded();
        memory.set_project(&own);
        let held = work.turn(&own, Kind::Parse).await;
        memory.begin_turn(FREE + 1).now_or_never().expect("nothing has said that it takes turns");
        memory.takes_turns(&work);
        memory.begin_turn(FREE).now_or_never().expect("a small body needs none");
        assert!(memory.begin_turn(FREE + 1).now_or_never().is_none(), "another request has the turn");
        drop(held);
        memory.begin_turn(FREE + 1).now_or_never().expect("its turn");
        assert!(work.turn(&own, Kind::Read).now_or_never().is_none(), "the request has the turn");
        memory.begin_turn(FREE + 1).now_or_never().expect("it has one");
        memory.end_turn();
        assert!(work.turn(&own, Kind::Read).now_or_never().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_kept_beside_a_body_counts_when_it_was_taken_and_is_more_than_a_little() {
        let budget = Budget::new(200 << 10);
        let of = |project: &str| Memory::of_project(&budget, &project.into());
        let (memory, other) = (of("own"), of("other"));
        memory.hold_beside(FREE).await.expect("it is a little");
        assert!(!memory.is_held());
        other.hold(48 << 10).await.expect("there is enough");
        memory.hold_beside(90 << 10).await.expect_err("the other one holds 96 of 200 KiB");
        assert!(!memory.is_held());
        drop(other);
        for bytes in (20 << 10)..(24 << 10) {
            memory.hold_beside(bytes).await.expect("there is enough");
        }
        assert_eq!(budget.held(), 24 << 10, "a unit is taken for each KiB, and not for each step");
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

    #[tokio::test]
    async fn a_request_that_asks_for_a_little_more_any_number_of_times_holds_one_place() {
        let budget = Budget::new(8 << 20);
        let memory = Memory::begin(&mut Request::default(), &budget);
        for bytes in 0..1_000 {
            memory.hold(bytes * UNIT).await.expect("there is enough");
        }
        memory.set_project(&"p".into());
        assert!(memory.try_hold(1_000 * UNIT));
        assert_eq!((memory.places().len(), budget.held()), (1, 2_000 * UNIT));
        memory.give_back();
        assert_eq!(budget.held(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn requests_that_read_as_much_as_there_can_be_wait_for_each_other_until_all_have_read() {
        // Pages of a list, and large records, of one project and of several.
        for (steps, most, projects) in [(56, 16 << 20, 1), (80, 32 << 20, 1), (80, 32 << 20, 5)] {
            let budget = Budget::new(192 << 20);
            let step = 256 << 10;
            let read = async |number: usize| {
                let memory = Memory::begin(&mut Request::default(), &budget);
                memory.set_project(&(number % projects).to_string().into());
                let mut reading = memory.reading(most);
                for _ in 0..steps {
                    reading.hold(step).await?;
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                Ok::<_, Error>(memory.held())
            };
            let read = futures_util::future::join_all((0..8).map(read)).await;
            for held in read {
                assert_eq!(held.expect("its turn comes"), 2 * steps * step / UNIT);
            }
            assert_eq!(budget.held(), 0);
        }
    }

    #[tokio::test]
    async fn beside_large_pages_of_a_project_another_one_reads_a_large_record_at_once() {
        let budget = Budget::new(192 << 20);
        let reads = async |project: &str, most: usize| {
            let memory = Memory::of_project(&budget, &project.into());
            let mut reading = memory.reading(most);
            let held = reading.hold(1 << 20).now_or_never().is_some_and(|held| held.is_ok());
            let place = reading.place.take();
            (held, place)
        };
        let mut pages = Vec::new();
        while let (true, place) = reads("busy", 16 << 20).await {
            pages.push(place);
        }
        assert_eq!(pages.len(), 3);
        assert!(reads("quiet", 32 << 20).await.0);
    }

    #[tokio::test(start_paused = true)]
    async fn responses_that_clients_do_not_read_hold_memory_for_themselves_only() {
        let budget = Budget::new(192 << 20);
        let mut unread = Vec::new();
        for _ in 0..8 {
            let memory = Memory::begin(&mut Request::default(), &budget);
            memory.reading(32 << 20).hold(4 << 20).await.expect("the others have read");
            unread.push(memory);
        }
        assert_eq!(budget.held(), 64 << 20);
    }

    #[tokio::test(start_paused = true)]
    async fn of_requests_that_each_hold_what_the_others_wait_for_one_gets_it() {
        let budget = Budget::new(800 << 10);
        let grow = async |bytes: usize| {
            let memory = Memory::begin(&mut Request::default(), &budget);
            memory.hold(bytes).await?;
            // All hold a part before one of them needs more.
            tokio::time::sleep(Duration::from_secs(1)).await;
            let grown = memory.hold(3 * bytes).await;
            // Whoever is refused still has to say so, before what they hold is free.
            tokio::time::sleep(Duration::from_secs(1)).await;
            grown
        };
        let grown = futures_util::future::join_all((0..4).map(|_| grow(50 << 10))).await;
        assert_eq!(grown.iter().filter(|grown| grown.is_ok()).count(), 1, "{grown:?}");
    }
}
