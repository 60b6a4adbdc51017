//! The position at which one part of an export ends and the next one begins.

use super::RowKey;
use super::params::Order;
use crate::error::{Error, Result};
use crate::http::page::{open_cursor, seal_cursor};
use crate::types::Timestamp;

/// The maximum number of exported records that a cursor may contain: more than any database holds, and small enough
/// to continue counting.
const MOST_RECORDS: i64 = 1 << 53;

/// Returns a row number that comes after all rows of a record in this order.
pub(super) fn edge(order: Order) -> i32 {
    match order {
        Order::Oldest => i32::MAX,
        Order::Newest => i32::MIN,
    }
}

pub(super) fn seal(scope: [u8; 8], as_of: Timestamp, last: RowKey) -> String {
    seal_cursor(scope, last.completed_at, &format!("{} {} {}", last.record_id, as_of.micros(), last.record))
}

/// Reads a cursor: the time whose state is exported, and the position after the last exported record.
pub(super) fn open(cursor: &str, scope: [u8; 8], edge: i32) -> Result<(Timestamp, RowKey)> {
    let (completed_at, rest) = open_cursor(cursor, scope)?;
    let parsed = || {
        let (record_id, rest) = rest.split_once(' ')?;
        let (as_of, record) = rest.split_once(' ')?;
        let record = record.parse().ok().filter(|record| (1..=MOST_RECORDS).contains(record))?;
        let key = RowKey { completed_at, record_id: record_id.parse().ok()?, row: edge, record };
        Some((Timestamp::from_micros(as_of.parse().ok()?)?, key))
    };
    parsed().ok_or_else(|| Error::invalid("/cursor", "is not a cursor of this list with these filters"))
}
