//! The records that a project may still store by its quota.

use std::sync::{Mutex, PoisonError};

use super::FRESH;
use crate::error::{Error, Result};

/// The records that a project may still store. It is counted when the project first writes, and what is written afterwards
/// is subtracted, until the project is read again. A record that is sent again counts like a new one until the next count.
#[derive(Debug, Default)]
pub struct Room(Mutex<Option<i64>>);

impl Room {
    /// Returns how many records there is room for, if that was counted.
    #[must_use]
    pub fn left(&self) -> Option<i64> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes how many records there is room for.
    pub fn set(&self, left: i64) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(left);
    }

    /// Takes room for new records, or answers that the quota, which is of so many records, has none. A project without a
    /// quota has room for all.
    pub fn take(&self, records: usize, quota: Option<u64>) -> Result<()> {
        let (Some(quota), true) = (quota, records > 0) else { return Ok(()) };
        let records = i64::try_from(records).unwrap_or(i64::MAX);
        match &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(left) if *left < records => Err(full(quota)),
            Some(left) => {
                *left -= records;
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Answers that the quota, which is of so many records, has no room for another one, if that is so.
    pub fn expect(&self, quota: Option<u64>) -> Result<()> {
        match (quota, self.left()) {
            (Some(quota), Some(..=0)) => Err(full(quota)),
            _ => Ok(()),
        }
    }

    /// Notes that records were stored whose number was not known before.
    pub fn spend(&self, records: usize) {
        if let Some(left) = &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            *left = left.saturating_sub(i64::try_from(records).unwrap_or(i64::MAX));
        }
    }
}

/// Makes the response to a request that would exceed a quota of records.
fn full(quota: u64) -> Error {
    let detail =
        format!("this project has reached its quota of {quota} records; erase some, or set retention_days");
    Error::exceeded("rows", quota, FRESH, FRESH, detail)
}
