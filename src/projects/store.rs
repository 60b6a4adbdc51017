//! How projects and keys are kept.

use sqlx::types::Json;
use sqlx::{PgExecutor, PgPool};
use uuid::Uuid;

use super::{Capture, Choice, HashKey, KeyRow, NewKey, Project, Settings, Tenant};
use crate::auth::{Scope, Secret};
use crate::error::Result;
use crate::value::Timestamp;

/// Whether the project exists.
pub async fn exists(db: impl PgExecutor<'_>, project: &str) -> Result<bool> {
    let sql = "select exists (select from projects where name = $1)";
    Ok(sqlx::query_scalar(sql).bind(project).fetch_one(db).await?)
}

/// The project as its events are taken on a server with that default, if it exists.
pub async fn tenant(db: impl PgExecutor<'_>, project: &str, default: Capture) -> Result<Option<Tenant>> {
    let sql = "select settings, hash_key from projects where name = $1";
    let found: Option<(Json<Settings>, Vec<u8>)> =
        sqlx::query_as(sql).bind(project).fetch_optional(db).await?;
    Ok(found.map(|(Json(settings), key)| Tenant {
        name: project.into(),
        captures: settings.capture.unwrap_or(Choice::All(default)).or(default),
        key: HashKey::new(key),
    }))
}

/// The project on a server with that default, if it exists.
pub(super) async fn get(db: impl PgExecutor<'_>, project: &str, default: Capture) -> Result<Option<Project>> {
    let sql = "select name, settings, created_at from projects where name = $1";
    let found: Option<(String, Json<Settings>, Timestamp)> =
        sqlx::query_as(sql).bind(project).fetch_optional(db).await?;
    Ok(found.map(|(name, Json(settings), created_at)| Project::new(name, settings, created_at, default)))
}

/// Makes the project, or gives it new settings; whether it was made.
pub async fn put(
    db: impl PgExecutor<'_>,
    project: &str,
    settings: &Settings,
    default: Capture,
) -> Result<(Project, bool)> {
    // xmax is zero in a row version that no update has made.
    let sql = "insert into projects (name, settings, created_at) values ($1, $2, $3)
               on conflict (name) do update set settings = excluded.settings
               returning name, settings, created_at, xmax = 0";
    let (name, Json(settings), created_at, made): (String, Json<Settings>, Timestamp, bool) =
        sqlx::query_as(sql).bind(project).bind(Json(settings)).bind(Timestamp::now()).fetch_one(db).await?;
    Ok((Project::new(name, settings, created_at, default), made))
}

/// Whether there is any key, revoked ones too.
pub async fn any_key(db: impl PgExecutor<'_>) -> Result<bool> {
    Ok(sqlx::query_scalar("select exists (select from keys)").fetch_one(db).await?)
}

/// The keys that begin so; nearly always none or one.
pub async fn keys_by_prefix(db: impl PgExecutor<'_>, prefix: &str) -> Result<Vec<KeyRow>> {
    Ok(sqlx::query_as("select * from keys where prefix = $1").bind(prefix).fetch_all(db).await?)
}

/// The keys of a project, or of all, newest first.
pub async fn list_keys(db: impl PgExecutor<'_>, project: Option<&str>) -> Result<Vec<KeyRow>> {
    let sql = "select * from keys where $1::text is null or project = $1 order by created_at desc, id desc";
    Ok(sqlx::query_as(sql).bind(project).fetch_all(db).await?)
}

/// Keeps a key in `project`. One that is there already, by its hash, stays as it is.
pub async fn insert_key(db: &PgPool, project: &str, key: &NewKey, secret: &Secret) -> Result<KeyRow> {
    let sql = "insert into keys (id, project, name, prefix, hash, scopes, created_at, expires_at)
               values ($1, $2, $3, $4, $5, $6, $7, $8) on conflict (hash) do nothing";
    sqlx::query(sql)
        .bind(Uuid::now_v7())
        .bind(project)
        .bind(&key.name)
        .bind(&secret.prefix)
        .bind(&secret.hash)
        .bind(key.scopes.iter().map(|scope| scope.as_str()).collect::<Vec<_>>())
        .bind(Timestamp::now())
        .bind(key.expires_at)
        .execute(db)
        .await?;
    Ok(sqlx::query_as("select * from keys where hash = $1").bind(&secret.hash).fetch_one(db).await?)
}

/// Keeps the first key, which the operator chose, and revokes the one chosen before it: whoever changes
/// `GLEANER_ADMIN_KEY` wants the old one to end. One that was revoked stays so, and replaces nothing.
pub async fn replace_first_key(db: &PgPool, secret: &Secret) -> Result<KeyRow> {
    let key = NewKey {
        project: None,
        name: "GLEANER_ADMIN_KEY".to_owned(),
        scopes: vec![Scope::Write, Scope::Read, Scope::Admin, Scope::Operator],
        expires_at: None,
    };
    let row = insert_key(db, "default", &key, secret).await?;
    if row.revoked_at.is_none() {
        let sql = "update keys set revoked_at = $3 where name = $1 and id <> $2 and revoked_at is null";
        sqlx::query(sql).bind(&key.name).bind(row.id).bind(Timestamp::now()).execute(db).await?;
    }
    Ok(row)
}

/// The project that a key belongs to, if there is such a key.
pub async fn project_of_key(db: impl PgExecutor<'_>, id: Uuid) -> Result<Option<String>> {
    Ok(sqlx::query_scalar("select project from keys where id = $1").bind(id).fetch_optional(db).await?)
}

/// Revokes a key, once; whether there is such a key.
pub async fn revoke_key(db: impl PgExecutor<'_>, id: Uuid) -> Result<bool> {
    let sql = "update keys set revoked_at = coalesce(revoked_at, $2) where id = $1";
    Ok(sqlx::query(sql).bind(id).bind(Timestamp::now()).execute(db).await?.rows_affected() > 0)
}
