//! The memory of requests that read records, some of which are long.

use std::sync::Arc;

use tokio::time::timeout;

use super::{FULL, Held, Memory, PATIENCE, lock};
use crate::error::Result;
use crate::sharing::Place;

/// The number of bytes of records from which on a request that reads them waits until others that read leave memory for all that it
/// may read. If each held some, and waited for more, none would get it.
const LONG_READ: usize = 512 << 10;

impl Memory {
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
    pub(super) place: Option<Place>,
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
