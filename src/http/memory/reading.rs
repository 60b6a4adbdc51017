//! The memory of requests that read records, some of which are long.

use std::sync::Arc;

use tokio::time::timeout;

use super::{FULL, Held, Memory, PATIENCE, lock};
use crate::error::Result;
use crate::sharing::Place;

/// The number of bytes of records from which on a request that reads them waits until others that read leave memory for all that it
/// may read. If each held some, and waited for more, none would get it.
const LONG_READ: usize = 512 << 10;

/// The number of bytes from which on a record is long. How long one is becomes known only when it is there, and its request holds
/// no memory for it yet.
const LONG_RECORD: usize = 1 << 20;

impl Memory {
    /// Begins to read records that have at most so many bytes together.
    #[must_use]
    pub fn reading(&self, most: usize) -> Reading<'_> {
        Reading { memory: self, most: Some(most), read: 0, place: None }
    }

    /// Begins to read a single record, which has as many bytes as it has.
    #[must_use]
    pub fn reading_one(&self) -> Reading<'_> {
        Reading { memory: self, most: None, read: 0, place: None }
    }
}

/// The reading of some records, or of a single one.
#[derive(Debug)]
pub struct Reading<'a> {
    memory: &'a Memory,
    most: Option<usize>,
    /// How many bytes have come.
    read: usize,
    /// What the request may hold when it has read all of them.
    pub(super) place: Option<Place>,
}

impl Reading<'_> {
    /// Holds memory for a record of so many bytes, besides those that the request has read before. Returns whether it does: it
    /// does not wait with a long one until others that read leave memory, because many that did would together have much more than
    /// all may hold. What was read is then to be let go, and to be read again after [`Reading::wait`].
    pub async fn hold(&mut self, bytes: usize) -> Result<bool> {
        self.read += bytes;
        let read = {
            let mut read = lock(&self.memory.0.read);
            *read += bytes;
            *read
        };
        if read >= LONG_READ && self.place.is_none() {
            if bytes < LONG_RECORD {
                self.take_place(self.wanted()).await?;
            } else {
                let Held { budget, project, .. } = &*self.memory.0;
                self.place = budget.reading.try_take(project.get_or_init(Arc::default), self.wanted());
                if self.place.is_none() {
                    return Ok(false);
                }
            }
        }
        self.memory.hold(read).await?;
        Ok(true)
    }

    /// Waits until others that read leave memory, to read anew what was let go.
    pub async fn wait(&mut self) -> Result<()> {
        let wanted = self.wanted();
        *lock(&self.memory.0.read) -= std::mem::take(&mut self.read);
        self.take_place(wanted).await
    }

    async fn take_place(&mut self, units: u32) -> Result<()> {
        let Held { budget, project, .. } = &*self.memory.0;
        let place = budget.reading.take(project.get_or_init(Arc::default), units);
        self.place = Some(timeout(PATIENCE, place).await.map_err(|_| FULL)?);
        Ok(())
    }

    /// Returns how many units the request may hold when it has read all.
    fn wanted(&self) -> u32 {
        self.memory.units(self.most.unwrap_or(self.read))
    }
}
