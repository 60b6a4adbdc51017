//! The memory that the bodies of requests take together, which is bounded however many clients send at once.

mod holding;
mod reading;
#[cfg(test)]
mod tests;

use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use axum::extract::{FromRequestParts, Request};
use axum::http::Extensions;
use axum::http::request::Parts;
use sqlx::PgPool;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

pub use self::reading::Reading;
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

/// The number of bytes that a JSON value is assumed to take when it is parsed, besides its text.
pub const VALUE: usize = 300;

/// How long a request waits for memory that others hold.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long a request waits that holds some itself, if another one of its project does so, too. If all waited equally long, each
/// for what the others hold, all would be refused.
const PATIENCE_OF_OTHERS: Duration = Duration::from_millis(2_500);

/// How many requests of a project wait to read long records without a place among those that read.
const OUTSIDE: usize = 16;

/// How many requests of a project read at a time that have waited so. They read through places of their own, because those whom they
/// left theirs to may wait for what they hold.
const RETURNING: usize = 2;

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
    /// The places of requests that wait to read long records, and leave those at reading to others of their project.
    outside: Shares,
    /// The places of requests that have waited so, and now read.
    returning: Shares,
    /// Connections through which statements are ended.
    ends: Option<PgPool>,
}

impl Budget {
    /// Makes a budget of `bytes`.
    #[must_use]
    pub fn new(bytes: usize) -> Self {
        let units = (bytes / UNIT).min(Semaphore::MAX_PERMITS);
        let growing = Shares::with_total(1, Semaphore::MAX_PERMITS);
        let reading = Shares::of_much(units / 2);
        let outside = Shares::with_total(OUTSIDE, Semaphore::MAX_PERMITS);
        let returning = Shares::new(RETURNING);
        Self { memory: Shares::of_much(units / 2), growing, reading, outside, returning, ends: None }
    }

    /// Has the statements of requests that leave some of their rows ended through these connections.
    #[must_use]
    pub fn ending_through(self, db: &PgPool) -> Self {
        Self { ends: Some(db.clone()), ..self }
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

    /// Returns the connections through which the request's statements are ended.
    #[must_use]
    pub fn ends(&self) -> Option<&PgPool> {
        self.0.budget.ends.as_ref()
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

    /// Reads something for a request that was not let in, or has left. It is let in before, and leaves afterwards, also if nobody
    /// waits for the end.
    pub async fn entered<T>(&self, entry: Entry, read: impl Future<Output = Result<T>>) -> Result<T> {
        struct Leaving<'a>(&'a Memory);
        impl Drop for Leaving<'_> {
            fn drop(&mut self) {
                self.0.leave();
            }
        }
        let _leaving = Leaving(self);
        self.enter(entry).await?;
        read.await
    }

    /// Waits until a request is let in again that has left, if it was let in before.
    pub(super) async fn enter_again(&self) -> Result<()> {
        self.enter_by(Entry::clone).await
    }

    /// Waits until a request is let in again that has waited to read with no place among those that read.
    async fn enter_to_read(&self) -> Result<()> {
        self.enter_by(|entry| entry.through(&self.0.budget.returning)).await
    }

    async fn enter_by(&self, entry: impl FnOnce(&Entry) -> Entry) -> Result<()> {
        let entry = lock(&self.0.entry).as_ref().map(entry);
        if let Some(entry) = entry {
            let (place, turn) = entry.take().await?;
            *lock(&self.0.place) = Some(place);
            *lock(&self.0.turn) = turn;
        }
        Ok(())
    }

    /// Returns whether the request holds a place of its project.
    #[must_use]
    pub fn has_place(&self) -> bool {
        lock(&self.0.place).is_some()
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

    /// Holds memory for a JSON text of so many bytes and values that is parsed as a whole. One with more than
    /// [`MOST_VALUES`] is a 413.
    pub async fn hold_values(&self, bytes: usize, values: usize) -> Result<()> {
        if values > MOST_VALUES {
            return Err(too_many_values());
        }
        self.hold(bytes + values * VALUE / 2).await
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

    /// Gives back the memory that is held beyond so many units.
    fn give_back_all_but(&self, units: usize) {
        let mut more = self.held().saturating_sub(units);
        let mut places = self.places();
        while more > 0
            && let Some(mut last) = places.pop()
        {
            let given = last.give_back(more);
            more -= given;
            places.extend(Some(last).filter(|last| last.count() > 0));
        }
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
}

fn lock<T>(held: &Mutex<T>) -> MutexGuard<'_, T> {
    held.lock().unwrap_or_else(PoisonError::into_inner)
}
