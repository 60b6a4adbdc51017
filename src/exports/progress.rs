//! How far an export has processed the records of a project, when it stores something about each of them. Two exports
//! that begin at the same time process the records one after the other.

use sqlx::PgConnection;
use uuid::Uuid;

use crate::types::Timestamp;

/// The last record that was processed: when it was finalized, and its id.
pub(super) type Place = (Option<Timestamp>, Option<Uuid>);

/// Returns the last record that a kind of work has processed, and keeps others from the same work until the
/// transaction ends.
pub(super) async fn begin(connection: &mut PgConnection, project: &str, work: &str) -> sqlx::Result<Place> {
    const BEGIN: &str = "insert into text_progress (project, work) values ($1, $2) on conflict do nothing";
    const LOCK: &str =
        "select completed_at, record from text_progress where project = $1 and work = $2 for update";
    sqlx::query(BEGIN).bind(project).bind(work).execute(&mut *connection).await?;
    sqlx::query_as(LOCK).bind(project).bind(work).fetch_one(connection).await
}

/// Stores the last record that a kind of work has processed.
pub(super) async fn end(
    connection: &mut PgConnection,
    project: &str,
    work: &str,
    (completed_at, record): (Timestamp, Uuid),
) -> sqlx::Result<()> {
    const SQL: &str =
        "update text_progress set completed_at = $3, record = $4 where project = $1 and work = $2";
    let query = sqlx::query(SQL).bind(project).bind(work).bind(completed_at).bind(record);
    query.execute(connection).await?;
    Ok(())
}

/// Waits until no work is in progress that could still store something about records that this transaction has
/// erased. Work that ends before is seen afterwards, and work that begins later does not find the records.
pub(super) async fn wait(connection: &mut PgConnection, project: &str) -> sqlx::Result<()> {
    const SQL: &str = "select from text_progress where project = $1 order by work for update";
    sqlx::query(SQL).bind(project).execute(connection).await?;
    Ok(())
}
