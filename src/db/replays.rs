//! Distinguishes a request that creates a record from the same request sent again.

use std::collections::HashMap;

use sqlx::{AssertSqlSafe, PgConnection};
use uuid::Uuid;

use super::receipt::{Receipt, Written};
use crate::error::Error;

/// Judges requests to make records whose ids were taken, each given as the id and the hash of the request. `table` has the
/// records with their `request_hash`, and `record` is what messages call one of them.
///
/// The same request is a replay, and another one a conflict.
pub async fn judge_starts(
    connection: &mut PgConnection,
    project: &str,
    (table, record): (&'static str, &str),
    starts: &[(Uuid, &[u8])],
) -> sqlx::Result<Vec<Written>> {
    let ids: Vec<_> = starts.iter().map(|(id, _)| *id).collect();
    let sql = format!("select id, request_hash from {table} where project = $1 and id = any($2)");
    let rows: Vec<(Uuid, Vec<u8>)> =
        sqlx::query_as(AssertSqlSafe(sql)).bind(project).bind(ids).fetch_all(connection).await?;
    let stored: HashMap<_, _> = rows.into_iter().collect();
    let verdict = |(id, hash): &(Uuid, &[u8])| match stored.get(id) {
        Some(stored) if stored == hash => Ok(Receipt::replayed(None)),
        Some(_) => {
            Err(Error::Conflict(format!("the {record} with this id already exists with a different body")))
        }
        None => Err(Error::Unavailable("the record has just been erased; try again")),
    };
    Ok(starts.iter().map(verdict).collect())
}
