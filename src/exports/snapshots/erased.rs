//! Snapshots that contain records which were erased later. A snapshot never changes, so it is marked.

use sqlx::PgConnection;
use uuid::Uuid;

/// Locks the making of snapshots of a project against erasures, and against other snapshots.
const EXCLUSIVE: &str = "select pg_advisory_xact_lock(hashtext('gleaner snapshots of ' || $1))";
/// Locks erasures of a project against the making of snapshots, and not against each other.
const SHARED: &str = "select pg_advisory_xact_lock_shared(hashtext('gleaner snapshots of ' || $1))";

/// Waits until the erasures in progress have ended, so that a snapshot made afterwards does not contain erased
/// records without being marked.
pub(super) async fn wait(connection: &mut PgConnection, project: &str) -> sqlx::Result<()> {
    sqlx::query(EXCLUSIVE).bind(project).execute(connection).await?;
    Ok(())
}

/// Marks the snapshots of these data sets that contain these records, in the transaction that erases them. For snapshots
/// that are being built, this is not known yet.
pub(in crate::exports) async fn mark(
    connection: &mut PgConnection,
    project: &str,
    datasets: &[&str],
    records: &[Uuid],
) -> sqlx::Result<()> {
    const LOCK: &str = "
        select id, state in ('waiting', 'building') from snapshots
        where project = $1 and dataset = any($2) and state <> 'failed' order by id for no key update";
    const BUILDING: &str = "
        insert into snapshot_erased (project, snapshot_id, record)
        select $1, snapshot_id, record from unnest($2::uuid[]) as s (snapshot_id) cross join unnest($3::uuid[]) as r (record)
        on conflict do nothing";
    const MARK: &str = "
        update snapshots s set erased = s.erased + found.count
        from (
            select c.snapshot_id, count(distinct record.id)::bigint as count
            from snapshot_contents c cross join lateral unnest(c.records) as record (id)
            where c.project = $1 and c.records && $2 and record.id = any($2)
            group by c.snapshot_id
        ) found
        where s.project = $1 and s.id = found.snapshot_id and s.dataset = any($3) and s.state = 'complete'";
    sqlx::query(SHARED).bind(project).execute(&mut *connection).await?;
    let snapshots: Vec<(Uuid, bool)> =
        sqlx::query_as(LOCK).bind(project).bind(datasets).fetch_all(&mut *connection).await?;
    let building: Vec<_> =
        snapshots.iter().filter(|(_, is_building)| *is_building).map(|(id, _)| *id).collect();
    if !building.is_empty() {
        sqlx::query(BUILDING).bind(project).bind(&building).bind(records).execute(&mut *connection).await?;
    }
    if snapshots.len() > building.len() {
        sqlx::query(MARK).bind(project).bind(records).bind(datasets).execute(connection).await?;
    }
    Ok(())
}
