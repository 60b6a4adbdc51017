//! A snapshot that is being built, as the database knows it: who builds it, and what of its file is stored so far.

use serde_json::{Map, Value};
use sqlx::{PgPool, Postgres};
use uuid::Uuid;

use super::store::{clear, discard, forget_erased};
use super::{CHUNK, File};
use crate::db;
use crate::error::{Error, Result};
use crate::types::Timestamp;

/// The number of times that the building of a snapshot is begun, if servers die during it.
const MOST_ATTEMPTS: i32 = 3;

/// A snapshot that is being built.
#[derive(Debug, Clone, sqlx::FromRow)]
pub struct Building {
    /// The project.
    pub project: String,
    /// The snapshot's id.
    pub id: Uuid,
    /// The data set.
    pub dataset: String,
    /// The format of the rows.
    pub format: String,
    /// The kind of file.
    pub file: File,
    /// The parameters of the export.
    #[sqlx(json)]
    pub parameters: Map<String, Value>,
    /// The time whose state of the data the snapshot contains.
    pub as_of: Timestamp,
    /// The JSON Schema of a row.
    #[sqlx(json)]
    pub row_schema: Value,
    /// Whether rows have a question and an answer.
    pub has_texts: bool,
    /// The lease of the builder.
    pub lease: Uuid,
}

/// Claims a snapshot that waits to be built or whose builder has died, if there is one. The projects in `served` have had
/// their turn, the last one most recently, and come after all others.
pub async fn claim(
    db: &PgPool,
    now: Timestamp,
    until: Timestamp,
    served: &[String],
) -> Result<Option<Building>> {
    const DUE: &str = "
        select project, id from snapshots
        where state = 'waiting' or state = 'building' and lease_until < $1
        order by array_position($2, project) nulls first, created_at limit 10";
    const GIVE_UP: &str = "
        update snapshots set state = 'failed', error = 'the building was interrupted too often', lease = null,
            lease_until = null, byte_count = 0
        where project = $1 and id = $2 and attempts >= $4
            and (state = 'waiting' or state = 'building' and lease_until < $3)";
    const TAKE: &str = "
        update snapshots set state = 'building', lease = $4, lease_until = $5, attempts = attempts + 1, row_count = 0,
            byte_count = 0, rows_expected = null
        where project = $1 and id = $2 and (state = 'waiting' or state = 'building' and lease_until < $3)
        returning project, id, dataset, format, file, parameters, as_of, row_schema, has_texts, lease";
    let due: Vec<(String, Uuid)> = sqlx::query_as(DUE).bind(now).bind(served).fetch_all(db).await?;
    for (project, id) in due {
        let query = sqlx::query(GIVE_UP).bind(&project).bind(id).bind(now).bind(MOST_ATTEMPTS);
        if query.execute(db).await?.rows_affected() > 0 {
            discard_failed(db, &project, id).await?;
            continue;
        }
        let query = sqlx::query_as(TAKE).bind(&project).bind(id).bind(now).bind(Uuid::new_v4()).bind(until);
        if let Some(building) = query.fetch_optional(db).await? {
            return Ok(Some(building));
        }
    }
    Ok(None)
}

/// Returns whether snapshots of other projects wait to be built.
pub async fn others_wait(db: &PgPool, project: &str) -> sqlx::Result<bool> {
    let sql = "select exists(select from snapshots where state = 'waiting' and project <> $1)";
    sqlx::query_scalar(sql).bind(project).fetch_one(db).await
}

/// Deletes what is stored of a snapshot that has failed. Erasures wait for whoever has locked the snapshot, so this comes
/// after it has failed. What a crash in between leaves is deleted with the snapshot.
async fn discard_failed(db: &PgPool, project: &str, id: Uuid) -> sqlx::Result<()> {
    let mut transaction = db::begin(db).await?;
    discard(&mut transaction, project, id).await?;
    transaction.commit().await
}

/// What is stored of a file while it is built.
#[derive(Debug)]
pub enum Part {
    /// The next piece of its bytes.
    Piece(Vec<u8>),
    /// A page of its rows: their number, and what is in them.
    Page(usize, Contents),
}

/// What was stored of a file.
#[derive(Debug, Clone, Copy, Default)]
pub struct Kept {
    /// The number of its rows.
    pub rows: i64,
    /// The number of its bytes.
    pub bytes: i64,
    /// The number of its pieces.
    pub pieces: i32,
    /// The number of pages of its rows.
    pub pages: i32,
}

/// What a page of rows adds to the contents of a snapshot.
#[derive(Debug, Default)]
pub struct Contents {
    /// The records with rows on the page.
    pub records: Vec<Uuid>,
    /// The hashes of the questions and answers on the page.
    pub texts: Vec<i64>,
}

impl Building {
    /// Renews the lease. Returns whether the snapshot is still wanted, and no other builder has taken over.
    pub async fn renew(&self, db: &PgPool, until: Timestamp) -> sqlx::Result<bool> {
        const SQL: &str = "
            update snapshots set lease_until = $4 where project = $1 and id = $2 and lease = $3 and state = 'building'";
        self.changed(sqlx::query(SQL).bind(&self.project).bind(self.id).bind(self.lease).bind(until), db)
            .await
    }

    /// Deletes what an earlier builder has stored. That one cannot store anything any more, and one that takes over waits
    /// until this has ended.
    pub async fn clear(&self, db: &PgPool) -> sqlx::Result<()> {
        let mut transaction = db::begin(db).await?;
        clear(&mut transaction, &self.project, self.id).await?;
        transaction.commit().await
    }

    /// Lets the snapshot wait again. That this building was begun does not count.
    pub async fn put_back(&self, db: &PgPool) -> sqlx::Result<()> {
        const SQL: &str = "
            update snapshots set state = 'waiting', lease = null, lease_until = null, attempts = attempts - 1, row_count = 0,
                byte_count = 0
            where project = $1 and id = $2 and lease = $3 and state = 'building'";
        let query = sqlx::query(SQL).bind(&self.project).bind(self.id).bind(self.lease);
        self.changed(query, db).await?;
        Ok(())
    }

    /// Ends the building with an error.
    pub async fn fail(&self, db: &PgPool, error: &str) -> Result<()> {
        const SQL: &str = "
            update snapshots set state = 'failed', error = $4, lease = null, lease_until = null, byte_count = 0
            where project = $1 and id = $2 and lease = $3 and state = 'building'";
        let query = sqlx::query(SQL).bind(&self.project).bind(self.id).bind(self.lease).bind(error);
        if self.changed(query, db).await? {
            discard_failed(db, &self.project, self.id).await?;
        }
        Ok(())
    }

    /// Stores how many rows there will be.
    pub async fn expect(&self, db: &PgPool, rows: i64) -> sqlx::Result<bool> {
        const SQL: &str = "
            update snapshots set rows_expected = $4
            where project = $1 and id = $2 and lease = $3 and state = 'building'";
        let query = sqlx::query(SQL).bind(&self.project).bind(self.id).bind(self.lease);
        self.changed(query.bind(rows), db).await
    }

    /// Stores a piece of the file, without waiting for the disk: a snapshot is not complete without all of its pieces. Whoever
    /// deletes the snapshot at that moment waits for it, and then finds the piece.
    pub async fn keep_chunk(&self, db: &PgPool, number: i32, bytes: &[u8]) -> sqlx::Result<bool> {
        const SQL: &str = "
            insert into snapshot_chunks (project, snapshot_id, number, bytes)
            select project, id, $4, $5 from snapshots, set_config('synchronous_commit', 'off', true)
            where project = $1 and id = $2 and lease = $3 and state = 'building' for key share of snapshots";
        debug_assert!(bytes.len() <= CHUNK, "a piece is as long as the others, or shorter");
        let query = sqlx::query(SQL).bind(&self.project).bind(self.id).bind(self.lease);
        self.changed(query.bind(number).bind(bytes), db).await
    }

    /// Stores the records and texts of a page of rows, and how many rows and bytes there are so far, in the same way.
    pub async fn keep_page(
        &self,
        db: &PgPool,
        number: i32,
        contents: &Contents,
        (rows, bytes): (i64, i64),
    ) -> sqlx::Result<bool> {
        const SQL: &str = "
            with ours as (
                update snapshots set row_count = $7, byte_count = $8
                where project = $1 and id = $2 and lease = $3 and state = 'building'
                returning id
            )
            insert into snapshot_contents (project, snapshot_id, number, records, texts)
            select $1, ours.id, $4, $5, $6 from ours, set_config('synchronous_commit', 'off', true)";
        let query = sqlx::query(SQL).bind(&self.project).bind(self.id).bind(self.lease).bind(number);
        let query = query.bind(&contents.records).bind(&contents.texts).bind(rows).bind(bytes);
        self.changed(query, db).await
    }

    /// Completes the snapshot, which does not change afterwards. If Postgres has crashed during the building, what was
    /// kept shortly before may be lost; the snapshot is then built again.
    pub async fn complete(
        &self,
        db: &PgPool,
        kept: Kept,
        dropped: Option<i64>,
        sha256: &[u8],
    ) -> Result<bool> {
        const ALL: &str = "
            select (select count(*) from snapshot_chunks where project = $1 and snapshot_id = $2) = $3
                and (select count(*) from snapshot_contents where project = $1 and snapshot_id = $2) = $4";
        const LOCK: &str = "
            select true from snapshots where project = $1 and id = $2 and lease = $3 and state = 'building' for update";
        const ERASED: &str = "
            select count(*) from snapshot_erased e
            where e.project = $1 and e.snapshot_id = $2 and exists (
                select from snapshot_contents c
                where c.project = $1 and c.snapshot_id = $2 and c.records @> array[e.record])";
        const COMPLETE: &str = "
            update snapshots set state = 'complete', row_count = $3, byte_count = $4, sha256 = $5, erased = $6,
                completed_at = $7, rows_dropped = $8, lease = null, lease_until = null
            where project = $1 and id = $2";
        let mut transaction = db::begin(db).await?;
        let lock = sqlx::query(LOCK).bind(&self.project).bind(self.id).bind(self.lease);
        if lock.fetch_optional(&mut *transaction).await?.is_none() {
            return Ok(false);
        }
        let query = sqlx::query_scalar(ALL).bind(&self.project).bind(self.id);
        let has_all: bool = query.bind(kept.pieces).bind(kept.pages).fetch_one(&mut *transaction).await?;
        if !has_all {
            return Err(Error::Unavailable(
                "the database has lost a part of the snapshot, which is built again",
            ));
        }
        let query = sqlx::query_scalar(ERASED).bind(&self.project).bind(self.id);
        let erased: i64 = query.fetch_one(&mut *transaction).await?;
        let query = sqlx::query(COMPLETE)
            .bind(&self.project)
            .bind(self.id)
            .bind(kept.rows)
            .bind(kept.bytes)
            .bind(sha256);
        query.bind(erased).bind(Timestamp::now()).bind(dropped).execute(&mut *transaction).await?;
        forget_erased(&mut transaction, &self.project, self.id).await?;
        transaction.commit().await?;
        Ok(true)
    }

    async fn changed(
        &self,
        query: sqlx::query::Query<'_, Postgres, sqlx::postgres::PgArguments>,
        db: &PgPool,
    ) -> sqlx::Result<bool> {
        Ok(query.execute(db).await?.rows_affected() > 0)
    }
}
