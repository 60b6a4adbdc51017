//! The records that a project may still store by its quota.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::FRESH;
use crate::error::{Error, Result};
use crate::sharing::while_wanted;

/// How many times as long as counting takes a count is good for, so that counting is a small part of all work.
const RARE: u32 = 20;

/// The records that a project may still store. They are counted when the project first writes, and then every few seconds.
/// What is written meanwhile is subtracted. While there is room, a record that is sent again counts like a new one until the next
/// count.
#[derive(Debug, Default)]
pub struct Room {
    counted: Mutex<Option<Counted>>,
    /// Held by the request that counts.
    counting: tokio::sync::Mutex<()>,
}

/// The outcome of a count.
#[derive(Debug)]
struct Counted {
    /// How many records the project may have.
    quota: u64,
    /// How many records there is room for.
    left: i64,
    /// Until when the count is good.
    until: Instant,
}

impl Room {
    fn counted(&self) -> MutexGuard<'_, Option<Counted>> {
        self.counted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns until when the last count for this quota is good.
    fn good_until(&self, quota: u64) -> Option<Instant> {
        self.counted().as_ref().filter(|counted| counted.quota == quota).map(|counted| counted.until)
    }

    /// Counts how many records there is room for, by `count`, unless that was done lately. One request counts at a time. The
    /// others wait only for the first count, and otherwise go by the last one.
    pub async fn count(&self, quota: u64, count: impl Future<Output = Result<i64>>) -> Result<()> {
        let is_good = || self.good_until(quota).is_some_and(|until| Instant::now() < until);
        if is_good() {
            return Ok(());
        }
        let _counting = match self.counting.try_lock() {
            Ok(counting) => counting,
            Err(_) if self.good_until(quota).is_some() => return Ok(()),
            Err(_) => while_wanted(self.counting.lock()).await,
        };
        if is_good() {
            return Ok(());
        }
        let (begun, before) = (Instant::now(), self.left());
        let left = count.await?;
        let mut counted = self.counted();
        // What was stored while the records were counted is not among them for certain.
        let stored = before.zip(counted.as_ref()).map_or(0, |(before, counted)| before - counted.left);
        let until = Instant::now() + FRESH.max(begun.elapsed() * RARE);
        *counted = Some(Counted { quota, left: left - stored, until });
        Ok(())
    }

    fn left(&self) -> Option<i64> {
        self.counted().as_ref().map(|counted| counted.left)
    }

    /// Takes room for new records, or answers that the quota, which is of so many records, has none. A project without a
    /// quota has room for all.
    pub fn take(&self, records: usize, quota: Option<u64>) -> Result<()> {
        let (Some(quota), true) = (quota, records > 0) else { return Ok(()) };
        let records = i64::try_from(records).unwrap_or(i64::MAX);
        match &mut *self.counted() {
            Some(counted) if counted.left < records => Err(full(quota)),
            Some(counted) => {
                counted.left -= records;
                Ok(())
            }
            None => Ok(()),
        }
    }
}

/// Makes the response to a request that would exceed a quota of records.
fn full(quota: u64) -> Error {
    let detail =
        format!("this project has reached its quota of {quota} records; erase some, or set retention_days");
    Error::exceeded("rows", quota, FRESH, FRESH, detail)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use futures_util::future::join_all;

    use super::*;

    #[tokio::test]
    async fn of_many_requests_one_counts() {
        let (room, counts) = (Room::default(), AtomicU32::new(0));
        let count = async || {
            counts.fetch_add(1, Ordering::Relaxed);
            tokio::task::yield_now().await;
            Ok(3)
        };
        let many = async |quota| join_all((0..20).map(|_| room.count(quota, count()))).await;
        assert!(many(10).await.iter().all(Result::is_ok));
        assert_eq!((counts.load(Ordering::Relaxed), room.left()), (1, Some(3)));
        assert!(many(20).await.iter().all(Result::is_ok));
        assert_eq!(counts.load(Ordering::Relaxed), 2, "another quota leaves other room");
    }

    #[tokio::test]
    async fn what_is_stored_during_a_count_is_subtracted() {
        let room = Room::default();
        room.count(10, async { Ok(3) }).await.expect("a count");
        let stores = async {
            room.take(2, Some(20)).expect("room");
            Ok(13)
        };
        room.count(20, stores).await.expect("a count");
        assert_eq!(room.left(), Some(11));
        room.take(12, Some(20)).expect_err("no room");
    }
}
