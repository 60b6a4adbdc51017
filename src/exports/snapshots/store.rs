//! How snapshots are stored. What is stored while one is built is in [`building`](super::building).

use serde::Deserialize;
use serde_json::Value;
use sqlx::types::Json;
use sqlx::{PgConnection, PgExecutor, PgPool, Postgres, QueryBuilder};
use utoipa::IntoParams;
use uuid::Uuid;

use super::request::NewSnapshot;
use super::{Snapshot, State, erased};
use crate::db;
use crate::error::{Error, Result};
use crate::exports::format::Format;
use crate::http::Check;
use crate::http::page::{Page, PageRequest};
use crate::types::{Timestamp, derived_id};

/// The properties of a new snapshot that follow from its request.
#[derive(Debug)]
pub struct Fixed {
    /// The format of the rows.
    pub format: Format,
    /// The JSON Schema of a row.
    pub row_schema: Value,
    /// The time whose state of the data the snapshot contains.
    pub as_of: Timestamp,
    /// Whether rows have a question and an answer.
    pub has_texts: bool,
}

/// Which snapshots are listed.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Filter {
    /// Only snapshots of this data set.
    #[param(min_length = 1)]
    dataset: Option<String>,
    /// Only snapshots with this state.
    #[param(inline)]
    state: Option<State>,
}

impl Check for Filter {}

const SELECT: &str = "
    select id, name, dataset, format, file, parameters, licence, state, error, as_of, row_count, rows_dropped, byte_count,
        encode(sha256, 'hex') as sha256, erased as erased_records, created_at, completed_at, keep_until, rows_expected,
        row_schema
    from snapshots where project = ";

/// Makes a snapshot that waits to be built, if the project has fewer than `most`. Returns its id, and whether it is
/// new.
pub async fn make(
    connection: &mut PgConnection,
    project: &str,
    most: i64,
    new: &NewSnapshot,
    fixed: &Fixed,
) -> Result<(Uuid, bool)> {
    const KNOWN: &str = "select request_hash from snapshots where project = $1 and id = $2";
    const COUNT: &str = "select count(*) from snapshots where project = $1";
    const INSERT: &str = "
        insert into snapshots (project, id, name, dataset, format, file, parameters, licence, row_schema, request_hash, state,
            as_of, has_texts, created_at, keep_until)
        values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, 'waiting', $11, $12, $13, $14)";
    // From here on, no other request makes a snapshot in this project, and no erasure is in progress.
    erased::wait(&mut *connection, project).await?;
    let hash = hash(new)?;
    let id = new.id.unwrap_or_else(Uuid::now_v7);
    let known: Option<Vec<u8>> =
        sqlx::query_scalar(KNOWN).bind(project).bind(id).fetch_optional(&mut *connection).await?;
    match known {
        Some(known) if known == hash => return Ok((id, false)),
        Some(_) => {
            return Err(Error::Conflict(
                "a snapshot with this id already exists with a different body".to_owned(),
            ));
        }
        None => {}
    }
    let count: i64 = sqlx::query_scalar(COUNT).bind(project).fetch_one(&mut *connection).await?;
    if count >= most {
        return Err(Error::Conflict(format!(
            "the project has {count} snapshots, and {most} are allowed; delete one first"
        )));
    }
    let now = Timestamp::now();
    let keep_until = new.keep_days.and_then(|days| now.plus(chrono::TimeDelta::days(days.into())));
    let mut parameters = new.parameters.clone();
    parameters.retain(|name, value| !value.is_null() && name != "format" && name != "as_of");
    sqlx::query(INSERT)
        .bind(project)
        .bind(id)
        .bind(new.name.as_deref().unwrap_or(&new.dataset))
        .bind(&new.dataset)
        .bind(fixed.format.name())
        .bind(new.file.unwrap_or_default())
        .bind(Json(parameters))
        .bind(new.licence.as_deref())
        .bind(Json(&fixed.row_schema))
        .bind(hash.as_slice())
        .bind(fixed.as_of)
        .bind(fixed.has_texts)
        .bind(now)
        .bind(keep_until)
        .execute(connection)
        .await?;
    Ok((id, true))
}

/// Returns the hash of a request, which ignores nulls.
fn hash(new: &NewSnapshot) -> anyhow::Result<[u8; 16]> {
    let mut request = serde_json::to_value(new)?;
    if let Some(members) = request.as_object_mut() {
        members.retain(|_, value| !value.is_null());
    }
    Ok(derived_id(&[request.to_string().as_bytes()]).into_bytes())
}

/// Returns a snapshot.
pub async fn get(db: impl PgExecutor<'_>, project: &str, id: Uuid) -> Result<Snapshot> {
    let mut query = QueryBuilder::<Postgres>::new(SELECT);
    query.push_bind(project.to_owned()).push(" and id = ").push_bind(id);
    let found: Option<Snapshot> = query.build_query_as().fetch_optional(db).await?;
    found.map(Snapshot::complete).ok_or(Error::NotFound("snapshot"))
}

/// Returns all snapshots of a project, newest first.
pub async fn all(db: &PgPool, project: &str) -> Result<Vec<Snapshot>> {
    let mut query = QueryBuilder::<Postgres>::new(SELECT);
    query.push_bind(project.to_owned()).push(" order by created_at desc, id desc");
    let found: Vec<Snapshot> = query.build_query_as().fetch_all(db).await?;
    Ok(found.into_iter().map(Snapshot::complete).collect())
}

/// Returns a page of the snapshots of a project, newest first.
pub async fn page(db: &PgPool, project: &str, filter: Filter, page: &PageRequest) -> Result<Page<Snapshot>> {
    let mut query = QueryBuilder::<Postgres>::new(SELECT);
    query.push_bind(project.to_owned());
    if let Some(dataset) = filter.dataset {
        query.push(" and dataset = ").push_bind(dataset);
    }
    if let Some(state) = filter.state {
        query.push(" and state = ").push_bind(state);
    }
    page.push(&mut query, "created_at", "id", "uuid")?;
    page.read_as(&mut query, db, Snapshot::complete).await
}

/// Deletes a snapshot with its file. Returns whether there was one.
pub async fn delete(connection: &mut PgConnection, project: &str, id: Uuid) -> Result<bool> {
    const SNAPSHOT: &str = "delete from snapshots where project = $1 and id = $2";
    // Erasures wait for whoever has locked the snapshot, so its file, which may be large, is deleted before. What its
    // builder has added meanwhile is deleted when the builder can see that the snapshot is no longer wanted.
    clear(&mut *connection, project, id).await?;
    let query = sqlx::query(SNAPSHOT).bind(project).bind(id);
    let found = query.execute(&mut *connection).await?.rows_affected() > 0;
    if found {
        discard(connection, project, id).await?;
    }
    Ok(found)
}

/// Deletes all that is stored of a snapshot that is deleted or has failed, except the snapshot itself.
pub(super) async fn discard(connection: &mut PgConnection, project: &str, id: Uuid) -> sqlx::Result<()> {
    clear(&mut *connection, project, id).await?;
    forget_erased(connection, project, id).await
}

/// Deletes the list of the records that were erased while a snapshot was built.
pub(super) async fn forget_erased(
    connection: &mut PgConnection,
    project: &str,
    id: Uuid,
) -> sqlx::Result<()> {
    const SQL: &str = "delete from snapshot_erased where project = $1 and snapshot_id = $2";
    sqlx::query(SQL).bind(project).bind(id).execute(connection).await?;
    Ok(())
}

/// Deletes the file of a snapshot, and what is stored about its contents.
pub(super) async fn clear(connection: &mut PgConnection, project: &str, id: Uuid) -> sqlx::Result<()> {
    for sql in [
        "delete from snapshot_chunks where project = $1 and snapshot_id = $2",
        "delete from snapshot_contents where project = $1 and snapshot_id = $2",
        "delete from snapshot_texts where project = $1 and snapshot_id = $2",
    ] {
        sqlx::query(sql).bind(project).bind(id).execute(&mut *connection).await?;
    }
    Ok(())
}

/// Deletes the snapshots that have expired at `now`.
pub async fn expire(db: &PgPool, now: Timestamp) -> Result<()> {
    const SQL: &str = "select project, id from snapshots where keep_until < $1";
    let old: Vec<(String, Uuid)> = sqlx::query_as(SQL).bind(now).fetch_all(db).await?;
    for (project, id) in old {
        let mut transaction = db::begin(db).await?;
        delete(&mut transaction, &project, id).await?;
        transaction.commit().await?;
    }
    Ok(())
}

/// Returns the piece of a file with this number, from 0.
pub async fn chunk(db: &PgPool, project: &str, id: Uuid, number: u64) -> Result<Vec<u8>> {
    const SQL: &str =
        "select bytes from snapshot_chunks where project = $1 and snapshot_id = $2 and number = $3";
    let number = i32::try_from(number).map_err(anyhow::Error::from)?;
    let bytes = sqlx::query_scalar(SQL).bind(project).bind(id).bind(number).fetch_optional(db).await?;
    bytes.ok_or(Error::NotFound("snapshot"))
}

/// Merges the list of new entries into the index of the records in snapshots, which takes a few seconds for a million
/// records. Erasures read that list to its end.
pub async fn tidy(db: &PgPool) -> sqlx::Result<()> {
    const SQL: &str = "select gin_clean_pending_list('snapshot_contents_records')";
    sqlx::query(SQL).execute(db).await?;
    Ok(())
}
