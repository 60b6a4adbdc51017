//! What is to be forgotten of records that are erased, besides what their domain keeps of them.

use sqlx::PgConnection;
use uuid::Uuid;

use super::{near, progress, snapshots, split};

/// Forgets what exports have noted of records that are erased, and marks the snapshots that have them, by the transaction that
/// has erased them. It comes last there.
pub async fn forget(connection: &mut PgConnection, project: &str, records: &[Uuid]) -> sqlx::Result<()> {
    if records.is_empty() {
        return Ok(());
    }
    progress::wait(connection, project).await?;
    split::forget(connection, project, records).await?;
    near::forget(connection, project, records).await?;
    snapshots::erased::mark(connection, project, records).await
}
