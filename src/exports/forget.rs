//! What exports store about records, and delete when a record is erased.

use sqlx::PgConnection;
use uuid::Uuid;

use super::{groups, near, progress, snapshots};

/// Deletes what exports have stored about records that are erased, and marks the snapshots that contain them. It runs
/// last in the transaction that erases the records.
pub async fn forget(connection: &mut PgConnection, project: &str, records: &[Uuid]) -> sqlx::Result<()> {
    if records.is_empty() {
        return Ok(());
    }
    progress::wait(connection, project).await?;
    groups::forget(connection, project, records).await?;
    near::forget(connection, project, records).await?;
    snapshots::erased::mark(connection, project, records).await
}
