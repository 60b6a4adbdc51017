//! How a snapshot is made: its parameters are checked, and the state of the data is fixed.

use std::sync::Arc;

use serde_json::json;
use sqlx::PgPool;
use uuid::Uuid;

use super::request::{NewSnapshot, Wanted};
use super::store::{self, Fixed};
use crate::audit::{self, Action};
use crate::auth::Actor;
use crate::db;
use crate::error::Result;
use crate::exports::format::Shape;
use crate::exports::places::Exports;
use crate::exports::{as_of, exclude};
use crate::projects::Tenant;

/// Makes a snapshot, which waits to be built. Returns its id, and whether it is new.
pub async fn make(
    db: &PgPool,
    exports: &Exports,
    tenant: &Arc<Tenant>,
    actor: &Actor,
    new: NewSnapshot,
) -> Result<(Uuid, bool)> {
    let project = &*tenant.name;
    let (new, _) = tenant.redacted(new).await;
    let wanted = Wanted::read(&new.dataset, &new.parameters)?;
    let (format, row_schema) = wanted.check()?;
    if let Some(snapshot) = wanted.common.exclude {
        exclude::expect(db, project, snapshot).await?;
    }
    let as_of = match wanted.common.as_of {
        Some(as_of) => {
            as_of::expect_near(&exports.db, as_of, "/as_of").await?;
            as_of
        }
        None => as_of::before_writes_in_flight(&exports.db, project).await?,
    };
    let has_texts = wanted.dataset.texts(Shape::Raw).is_some();
    let fixed = Fixed { format, row_schema, as_of, has_texts };
    let mut transaction = db::begin(db).await?;
    let (id, is_new) = store::make(&mut transaction, project, exports.most_snapshots, &new, &fixed).await?;
    if is_new {
        let details = json!({"id": id, "dataset": new.dataset, "parameters": new.parameters});
        audit::note(&mut transaction, project, actor, Action::SnapshotMade, details).await?;
    }
    transaction.commit().await?;
    Ok((id, is_new))
}
