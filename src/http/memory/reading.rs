//! The memory of requests that read records, some of which are long.

use std::sync::{Arc, Mutex, MutexGuard};

use tokio::time::timeout;

use super::{FULL, Held, Memory, PATIENCE, lock};
use crate::error::Result;
use crate::sharing::Place;

/// The number of bytes of records from which on a request that reads them needs what others that read leave. If each held much, and
/// waited for more, none would get it.
const LONG_READ: usize = 512 << 10;

/// How many bytes a request may read with its first place. If it reads more, it needs a place for all, because many that grew little
/// by little would read the same again and again.
const FIRST_PLACE: usize = 2 << 20;

impl Memory {
    /// Begins to read records, or the parts of one, that have at most about so many bytes together.
    #[must_use]
    pub fn reading(&self, most: usize) -> Reading<'_> {
        Reading { memory: self, most, held: self.held(), so_far: Mutex::default() }
    }

    /// Begins to read a single record, which has as many bytes as it has.
    #[must_use]
    pub fn reading_one(&self) -> Reading<'_> {
        self.reading(0)
    }
}

/// The reading of some records, or of the parts of one.
#[derive(Debug)]
pub struct Reading<'a> {
    memory: &'a Memory,
    most: usize,
    /// How many units the request has held before.
    held: usize,
    so_far: Mutex<SoFar>,
}

/// How far a reading has come.
#[derive(Debug, Default)]
pub(super) struct SoFar {
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

    /// Returns what `read` reads, and holds memory for it, for which it calls [`Reading::hold`]. If others that read leave no memory
    /// for a part of that, all is let go, and is read again when they do: many that waited with what they have read would together
    /// have much more than all may hold. While the request waits, it has no place among those of its project, and no connection.
    pub async fn by<T, F: Future<Output = Result<T>>>(&self, read: impl Fn() -> F) -> Result<T> {
        loop {
            let read = read().await;
            if read.is_ok() || !self.so_far().waits {
                return read;
            }
            self.memory.leave();
            self.wait().await?;
            self.memory.enter_again().await?;
        }
    }

    /// Holds memory for a record of so many bytes, besides those that the request has read before.
    pub async fn hold(&self, bytes: usize) -> Result<()> {
        let all = {
            let mut all = lock(&self.memory.0.read);
            *all += bytes;
            *all
        };
        {
            let mut so_far = self.so_far();
            so_far.read += bytes;
            if all >= LONG_READ && so_far.read > so_far.room && !self.take_place(&mut so_far) {
                so_far.waits = true;
                return Err(FULL);
            }
        }
        self.memory.hold(all).await
    }

    pub(super) fn so_far(&self) -> MutexGuard<'_, SoFar> {
        lock(&self.so_far)
    }

    /// Takes a place for what the request has read, and for some more, if it is there at once. Returns whether it is.
    fn take_place(&self, so_far: &mut SoFar) -> bool {
        let most = if so_far.place.is_none() { self.most.min(FIRST_PLACE) } else { self.most };
        let room = most.max(so_far.read);
        let Held { budget, project, .. } = &*self.memory.0;
        let has = so_far.place.as_ref().map_or(0, Place::count);
        let more = self.memory.units(room).saturating_sub(u32::try_from(has).unwrap_or(u32::MAX));
        let Some(more) = budget.reading.try_take(project.get_or_init(Arc::default), more) else {
            return false;
        };
        so_far.place = match so_far.place.take() {
            Some(mut place) => place.add(more).or(Some(place)),
            None => Some(more),
        };
        so_far.room = room;
        true
    }

    /// Waits for a place for all, with nothing that was read.
    async fn wait(&self) -> Result<()> {
        let read = std::mem::take(&mut *self.so_far()).read;
        *lock(&self.memory.0.read) -= read;
        self.memory.give_back_all_but(self.held);
        let room = self.most.max(read);
        let Held { budget, project, .. } = &*self.memory.0;
        let place = budget.reading.take(project.get_or_init(Arc::default), self.memory.units(room));
        let place = timeout(PATIENCE, place).await.map_err(|_| FULL)?;
        *self.so_far() = SoFar { place: Some(place), room, ..SoFar::default() };
        Ok(())
    }
}
