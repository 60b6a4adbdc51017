//! The memory of requests that read records, some of which are long.

use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::time::timeout;

use super::{FREE, FULL, Held, Memory, PATIENCE, lock};
use crate::error::Result;
use crate::sharing::Place;

/// The number of bytes of records from which on a request that reads them needs what others that read leave. If each held much, and
/// waited for more, none would get it.
const LONG_READ: usize = 512 << 10;

/// How many bytes a request may read with its first place, and how many times as many with each further one. Many that grew little by
/// little would read the same again and again.
const FIRST_PLACE: usize = 2 << 20;
const GROWTH: usize = 4;

impl Memory {
    /// Begins to read records, or the parts of one, that have at most about so many bytes together.
    #[must_use]
    pub fn reading(&self, most: usize) -> Reading<'_> {
        self.begin_reading(Some(most))
    }

    /// Begins to read a single record, which has as many bytes as it has.
    #[must_use]
    pub fn reading_one(&self) -> Reading<'_> {
        self.begin_reading(None)
    }

    fn begin_reading(&self, most: Option<usize>) -> Reading<'_> {
        Reading { memory: self, most, held_before: self.held(), progress: Mutex::default() }
    }
}

/// The reading of some records, or of the parts of one.
#[derive(Debug)]
pub struct Reading<'a> {
    memory: &'a Memory,
    /// How many bytes are expected at most, unless it is a single record.
    most: Option<usize>,
    /// How many units the request has held before.
    held_before: usize,
    progress: Mutex<Progress>,
}

/// How far a reading has come.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// How many bytes have come.
    read: usize,
    /// What others that read leave to the request.
    pub(super) place: Option<Place>,
    /// How many bytes the place is for.
    room: usize,
    /// Whether the request is to wait for a place.
    pub(super) waits: bool,
}

impl Reading<'_> {
    /// Returns the memory of the request.
    #[must_use]
    pub fn memory(&self) -> &Memory {
        self.memory
    }

    /// Returns what `read` reads, and holds memory for it, for which it calls [`Reading::hold`]. If others leave no memory for a part of
    /// that, all is let go, and is read again when they do: many that waited with what they have read would together have much more
    /// than all may hold. While the request waits, it has no connection.
    pub async fn by<T, F: Future<Output = Result<T>>>(&self, read: impl Fn() -> F) -> Result<T> {
        let mut outside = None;
        loop {
            let read = read().await;
            if read.is_ok() {
                let all = *lock(&self.memory.0.read);
                self.memory.give_back_all_but(self.held_before.max(self.memory.units(all) as usize));
                return read;
            }
            let Progress { read: bytes, waits, .. } = self.let_go();
            if !waits {
                return read;
            }
            if let Err(error) =
                timeout(PATIENCE, self.wait_outside(&mut outside, bytes)).await.unwrap_or(Err(FULL))
            {
                self.let_go();
                return Err(error);
            }
        }
    }

    /// Waits as [`Reading::wait`] does, and leaves the place among those that read to others of its project, if it has or gets one
    /// `outside`. Only some of each project do: any number would otherwise read something to let it go.
    async fn wait_outside(&self, outside: &mut Option<Place>, bytes: usize) -> Result<()> {
        let mut waiting = pin!(self.wait(bytes));
        if outside.is_none() {
            let Held { budget, project, .. } = &*self.memory.0;
            *outside = tokio::select! {
                biased;
                waited = &mut waiting => return waited,
                place = budget.outside.take(project.get_or_init(Arc::default), 1) => Some(place),
            };
        }
        self.memory.leave();
        waiting.await?;
        self.memory.enter_to_read().await
    }

    /// Holds memory for a record of so many bytes, besides those that the request has read before, if it is there at once.
    pub fn hold(&self, bytes: usize) -> Result<()> {
        let all = {
            let mut all = lock(&self.memory.0.read);
            *all += bytes;
            *all
        };
        let mut progress = self.progress();
        progress.read += bytes;
        let has_place = all < LONG_READ || progress.read <= progress.room || self.take_place(&mut progress);
        progress.waits = !(has_place && (all <= FREE || self.memory.try_hold(all)));
        if progress.waits { Err(FULL) } else { Ok(()) }
    }

    pub(super) fn progress(&self) -> MutexGuard<'_, Progress> {
        lock(&self.progress)
    }

    /// Takes a place for what the request has read, and for some more, if it is there at once. Returns whether it is.
    fn take_place(&self, progress: &mut Progress) -> bool {
        let room = self.room(progress.read);
        let Held { budget, project, .. } = &*self.memory.0;
        let has = progress.place.as_ref().map_or(0, Place::count);
        let more = self.memory.units(room).saturating_sub(u32::try_from(has).unwrap_or(u32::MAX));
        let Some(more) = budget.reading.try_take(project.get_or_init(Arc::default), more) else {
            return false;
        };
        progress.place = match progress.place.take() {
            Some(mut place) => place.add(more).or(Some(place)),
            None => Some(more),
        };
        progress.room = room;
        true
    }

    /// Gives back all that was read, and returns how far that has come.
    fn let_go(&self) -> Progress {
        let progress = std::mem::take(&mut *self.progress());
        *lock(&self.memory.0.read) -= progress.read;
        self.memory.give_back_all_but(self.held_before);
        progress
    }

    /// Waits for a place and for memory to read more than so many bytes.
    async fn wait(&self, bytes: usize) -> Result<()> {
        let (room, before) = (self.room(bytes), *lock(&self.memory.0.read));
        if before + bytes >= LONG_READ {
            let Held { budget, project, .. } = &*self.memory.0;
            let place = budget.reading.take(project.get_or_init(Arc::default), self.memory.units(room));
            let place = Some(place.await);
            *self.progress() = Progress { place, room, ..Progress::default() };
        }
        self.memory.hold(before + room.min(2 * bytes)).await
    }

    /// Returns for how many bytes a place is taken if so many have come: for as many again, where there may be so many.
    fn room(&self, bytes: usize) -> usize {
        let Some(most) = self.most else { return bytes };
        let mut room = FIRST_PLACE;
        while room < 2 * bytes {
            room *= GROWTH;
        }
        room.min(most.max(bytes))
    }
}
