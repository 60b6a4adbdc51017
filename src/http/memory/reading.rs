//! The memory of requests that read records, some of which are long.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::{Instant, timeout};

use super::{FULL, Held, Memory, PATIENCE, lock};
use crate::error::Result;
use crate::sharing::Place;

/// The number of bytes of records from which on a request that reads them waits until others that read leave memory for all that it
/// may read. If each held some, and waited for more, none would get it.
const LONG_READ: usize = 512 << 10;

/// The number of bytes from which on a record is long. It takes much memory before the request holds any for it.
const LONG_RECORD: usize = 1 << 20;

/// How long a project counts as one that reads long records.
const REMEMBERED: Duration = Duration::from_mins(1);

/// The number of projects that are remembered, before those are forgotten that have read long records too long ago.
const MANY_PROJECTS: usize = 1_000;

/// When each project has last read a long record. How long one is becomes known only when it has come.
#[derive(Debug, Clone, Default)]
pub(super) struct LongRecords(Arc<Mutex<HashMap<Arc<str>, Instant>>>);

impl LongRecords {
    fn are_read_by(&self, project: &Arc<str>) -> bool {
        lock(&self.0).get(project).is_some_and(|at| at.elapsed() < REMEMBERED)
    }

    fn note(&self, project: &Arc<str>) {
        let mut last = lock(&self.0);
        if last.len() >= MANY_PROJECTS {
            last.retain(|_, at| at.elapsed() < REMEMBERED);
        }
        last.insert(Arc::clone(project), Instant::now());
    }
}

impl Memory {
    /// Begins to read records that have at most so many bytes together. Requests of a project that has read long records lately wait
    /// until others that read leave memory for that, before any comes.
    pub async fn reading(&self, most: usize) -> Result<Reading<'_>> {
        let mut reading = Reading { memory: self, most, place: None };
        if self.0.budget.long_records.are_read_by(self.0.project.get_or_init(Arc::default)) {
            reading.take_place(PATIENCE).await?;
        }
        Ok(reading)
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
    /// Holds memory for a record of so many bytes, besides those that the request has read before. It does not wait with a long one
    /// until others that read leave memory: many that did would together have much more than all may hold.
    pub async fn hold(&mut self, bytes: usize) -> Result<()> {
        let Held { budget, project, read, .. } = &*self.memory.0;
        let is_long = bytes >= LONG_RECORD;
        if is_long {
            budget.long_records.note(project.get_or_init(Arc::default));
        }
        let read = {
            let mut read = lock(read);
            *read += bytes;
            *read
        };
        if read >= LONG_READ && self.place.is_none() {
            self.take_place(if is_long { Duration::ZERO } else { PATIENCE }).await?;
        }
        self.memory.hold(read).await
    }

    async fn take_place(&mut self, patience: Duration) -> Result<()> {
        let Held { budget, project, .. } = &*self.memory.0;
        let place = budget.reading.take(project.get_or_init(Arc::default), self.memory.units(self.most));
        self.place = Some(timeout(patience, place).await.map_err(|_| FULL)?);
        Ok(())
    }
}
