//! How far exports have worked through the records of a project, where something is noted of each of them. Two exports that
//! begin at the same time go through the records one after the other.

use sqlx::PgConnection;
use uuid::Uuid;

use crate::types::Timestamp;

/// A record that was worked through last: when it was finalized, and its id.
pub(super) type Place = (Option<Timestamp>, Option<Uuid>);

/// Returns the last record that a work has gone through, and keeps others from the same work until the transaction ends.
pub(super) async fn begin(connection: &mut PgConnection, project: &str, work: &str) -> sqlx::Result<Place> {
    const BEGIN: &str = "insert into text_progress (project, work) values ($1, $2) on conflict do nothing";
    const LOCK: &str =
        "select completed_at, record from text_progress where project = $1 and work = $2 for update";
    sqlx::query(BEGIN).bind(project).bind(work).execute(&mut *connection).await?;
    sqlx::query_as(LOCK).bind(project).bind(work).fetch_one(connection).await
}

/// Notes the last record that a work has gone through.
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

/// Waits until no work is under way that could still note something of records that this transaction has erased: it does so
/// before, and is seen then, or no longer finds them.
pub(super) async fn wait(connection: &mut PgConnection, project: &str) -> sqlx::Result<()> {
    const SQL: &str = "select from text_progress where project = $1 order by work for update";
    sqlx::query(SQL).bind(project).execute(connection).await?;
    Ok(())
}
