//! Decontamination: rows that are in a snapshot, such as the one that a model is tested on, are left out of another
//! export.
//!
//! A snapshot stores the hashes of its questions and answers in long arrays, which are cheap to write. The first
//! export that excludes the snapshot turns them into rows, in which the hashes of a row are then looked up.

use sqlx::{PgExecutor, PgPool, Postgres, QueryBuilder};
use uuid::Uuid;

use super::params::Common;
use super::progress;
use super::split::Texts;
use crate::db;
use crate::error::{Error, Result};

/// Rejects a snapshot that rows cannot be compared with. Returns whether its texts are already rows.
pub(super) async fn expect(db: impl PgExecutor<'_>, project: &str, snapshot: Uuid) -> Result<bool> {
    const STATE: &str =
        "select state = 'complete', has_texts, is_indexed from snapshots where project = $1 and id = $2";
    let found: Option<(bool, bool, bool)> =
        sqlx::query_as(STATE).bind(project).bind(snapshot).fetch_optional(db).await?;
    match found {
        Some((true, true, is_indexed)) => Ok(is_indexed),
        Some((true, false, _)) => {
            Err(Error::invalid("/exclude", "is a snapshot of rows without a question and an answer"))
        }
        Some((false, ..)) => Err(Error::invalid("/exclude", "is a snapshot that is not complete")),
        None => Err(Error::invalid("/exclude", "there is no such snapshot")),
    }
}

/// Makes the texts of a snapshot searchable.
pub(super) async fn prepare(db: &PgPool, project: &str, snapshot: Uuid) -> Result<()> {
    // Of two exports that begin at the same time, one waits for the other. Erasures do not wait for them.
    const LOCK: &str = "select pg_advisory_xact_lock(hashtext('gleaner texts of ' || $2 || ' of ' || $1))";
    // Whoever deletes the snapshot waits for its texts, and then deletes them, too.
    const KEEP: &str = "select from snapshots where project = $1 and id = $2 for key share";
    const INDEX: &str = "
        insert into snapshot_texts (project, snapshot_id, hash)
        select distinct $1, $2::uuid, text.hash
        from snapshot_contents c cross join lateral unnest(c.texts) as text (hash)
        where c.project = $1 and c.snapshot_id = $2 and text.hash is not null
        on conflict do nothing";
    const DONE: &str = "update snapshots set is_indexed = true where project = $1 and id = $2";
    if expect(db, project, snapshot).await? {
        return Ok(());
    }
    let mut transaction = db::begin(db).await?;
    sqlx::query(LOCK).bind(project).bind(snapshot.to_string()).execute(&mut *transaction).await?;
    sqlx::query(KEEP).bind(project).bind(snapshot).execute(&mut *transaction).await?;
    if expect(&mut *transaction, project, snapshot).await? {
        return Ok(());
    }
    let indexed = sqlx::query(INDEX).bind(project).bind(snapshot).execute(&mut *transaction).await?;
    sqlx::query(DONE).bind(project).bind(snapshot).execute(&mut *transaction).await?;
    transaction.commit().await?;
    let texts = usize::try_from(indexed.rows_affected()).unwrap_or(usize::MAX);
    Ok(progress::renew_statistics(db, texts, "analyze snapshot_texts").await?)
}

/// Fails if the texts of a snapshot are not searchable any more, because it was deleted. Rows that were read before are
/// without those in the snapshot, but rows that are read now need not be.
pub(super) async fn confirm(db: impl PgExecutor<'_>, project: &str, snapshot: Uuid) -> Result<()> {
    const IS_INDEXED: &str =
        "select exists (select from snapshots where project = $1 and id = $2 and is_indexed)";
    if sqlx::query_scalar(IS_INDEXED).bind(project).bind(snapshot).fetch_one(db).await? {
        return Ok(());
    }
    Err(Error::invalid("/exclude", "is a snapshot that was deleted while rows were compared with it"))
}

impl Common {
    /// Adds the condition that neither the question nor the answer of a row is in the excluded snapshot.
    pub(super) fn push_exclude(&self, query: &mut QueryBuilder<Postgres>, texts: &Texts<'_>) {
        let Some(snapshot) = self.exclude else { return };
        let Texts { question, answer, .. } = texts;
        query.push(" and not exists (select from snapshot_texts other where other.project = $1 and other.snapshot_id = ");
        query.push_bind(snapshot).push(format_args!(
            " and other.hash in ({}, {}))",
            question.hash(),
            answer.hash()
        ));
    }
}
