//! What exports store about records, and delete when a record is erased.

use sqlx::PgConnection;
use uuid::Uuid;

use super::{Description, groups, near, progress, snapshots};

/// Deletes what exports of these `datasets` have stored about records that were erased, and marks the snapshots that contain
/// them. It runs last in the transaction that erases the records. Records of other domains may have the same ids.
pub async fn forget(
    connection: &mut PgConnection,
    project: &str,
    datasets: &[&Description],
    records: &[Uuid],
) -> sqlx::Result<()> {
    if records.is_empty() {
        return Ok(());
    }
    // Snapshots may be locked for long. Reviews wait for the locks below, so nothing is waited for after these.
    let names: Vec<_> = datasets.iter().map(|dataset| dataset.name).collect();
    snapshots::erased::mark(connection, project, &names, records).await?;
    if let Some(source) = datasets.iter().find_map(|dataset| dataset.split.source()) {
        // Reviews wait for groups, and not for comparisons, which take longer.
        for comparison in source.comparisons {
            progress::wait(connection, project, comparison.work).await?;
        }
        progress::wait(connection, project, source.domain).await?;
        groups::forget(connection, project, source, records).await?;
        for comparison in source.comparisons {
            near::forget(connection, project, comparison, records).await?;
        }
    }
    Ok(())
}
