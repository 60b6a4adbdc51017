//! API keys: what a key allows, how one is made, and how keys are stored.

use std::collections::HashSet;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use chrono::NaiveDate;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use sqlx::{AssertSqlSafe, PgConnection, PgExecutor, PgPool, Postgres, QueryBuilder};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::error::{Error, Result};
use crate::http::page::{Listed, Page, PageRequest};
use crate::http::{Check, Checks};
use crate::types::Timestamp;

/// The length of a key's prefix in bytes. The prefix is stored in clear and finds the key in the table.
pub(super) const PREFIX: usize = 12;
/// The fewest characters accepted of a key that the operator has chosen.
const SHORTEST: usize = 32;

/// A permission that a key grants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
#[schema(as = ApiKeyScope)]
pub enum Scope {
    /// The key may post events.
    Write,
    /// The key may read records, lists, analytics and exports.
    Read,
    /// The key may change its project's settings and keys, and erase records.
    Admin,
    /// The key may do everything in every project.
    Operator,
}

impl Scope {
    /// Returns the scope's name, as it is stored and sent.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Write => "write",
            Self::Read => "read",
            Self::Admin => "admin",
            Self::Operator => "operator",
        }
    }
}

/// An API key, without its secret.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema, sqlx::FromRow)]
pub struct ApiKey {
    /// The key's id, as in `DELETE /v1/keys/{id}`.
    pub id: Uuid,
    /// The project that the key belongs to.
    pub project: String,
    /// The key's name.
    pub name: String,
    /// The key's first 12 characters.
    pub prefix: String,
    /// The key's SHA-256.
    #[serde(skip)]
    pub hash: Vec<u8>,
    /// The key's scopes: `write`, `read`, `admin` or `operator`.
    pub scopes: Vec<String>,
    /// When the key was created.
    pub created_at: Timestamp,
    /// When the key expires. Null means never.
    pub expires_at: Option<Timestamp>,
    /// When the key was revoked. Null means that the key is not revoked.
    pub revoked_at: Option<Timestamp>,
    /// The number of requests per second that the key may send. Null means no limit.
    pub requests_per_second: Option<i32>,
    /// The last day, in UTC, on which the key was used. Null means that the key was never used. The day may be up to
    /// a minute late.
    pub last_used_on: Option<NaiveDate>,
}

impl ApiKey {
    /// Returns whether the key names `scope` itself. `operator`, which includes every scope, is not
    /// considered.
    #[must_use]
    pub fn has(&self, scope: Scope) -> bool {
        self.scopes.iter().any(|own| own == scope.as_str())
    }
}

impl Listed for ApiKey {
    fn sort_key(&self) -> (Timestamp, String) {
        (self.created_at, self.id.to_string())
    }
}

/// A request for a new key.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewApiKey)]
pub struct NewKey {
    /// The key's id, as in `DELETE /v1/keys/{id}`. By default, the server chooses one. An id that is taken is a
    /// conflict, even if the request is repeated, because the secret cannot be shown again.
    pub id: Option<Uuid>,
    /// The project that the key belongs to. The default is the caller's project. Only an operator may name another
    /// one.
    pub project: Option<String>,
    /// The key's name, of at most 200 characters.
    #[schema(min_length = 1, max_length = 200)]
    pub name: String,
    /// The key's scopes, at least one of `write`, `read`, `admin` and `operator`, and each only once.
    #[schema(min_items = 1, value_type = std::collections::HashSet<Scope>)]
    pub scopes: Vec<Scope>,
    /// When the key expires. By default, it never expires.
    pub expires_at: Option<Timestamp>,
    /// The number of requests per second that the key may send. Without this option there is no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 1_000_000)]
    pub requests_per_second: Option<i32>,
}

impl Check for NewKey {
    fn check(&self, checks: &mut Checks) {
        checks.name("name", Some(&self.name));
        checks.require(!self.scopes.is_empty(), "scopes", "must not be empty");
        let different: HashSet<_> = self.scopes.iter().collect();
        checks.require(different.len() == self.scopes.len(), "scopes", "must not name a scope twice");
        let rate = self.requests_per_second.is_none_or(|rate| (1..=1_000_000).contains(&rate));
        checks.require(rate, "requests_per_second", "must be 1 to 1000000");
    }
}

/// What every key begins with that was made here.
pub const BEGINNING: &str = "glnr_";

/// A secret that was just made, and what is stored of it.
pub struct Secret {
    /// The key itself, which is shown once.
    pub text: String,
    /// The key's first 12 characters, which find it in the table.
    pub prefix: String,
    /// The key's SHA-256.
    pub hash: Vec<u8>,
}

impl Secret {
    /// Makes a random key of 304 bits, of which 262 stay secret once the prefix is known.
    pub fn random() -> Result<Self> {
        let mut bytes = [0; 38];
        getrandom::fill(&mut bytes).map_err(anyhow::Error::from)?;
        Ok(Self::of(format!("{BEGINNING}{}", URL_SAFE_NO_PAD.encode(bytes))))
    }

    /// Takes a key that the operator has chosen. Refuses one that is too short or not printable.
    pub fn chosen(text: &str) -> anyhow::Result<Self> {
        anyhow::ensure!(
            text.len() >= SHORTEST && text.bytes().all(|byte| byte.is_ascii_graphic()),
            "the admin key must have at least {SHORTEST} printable ASCII characters; `openssl rand -hex 32` makes one"
        );
        Ok(Self::of(text.to_owned()))
    }

    fn of(text: String) -> Self {
        Self { prefix: text[..PREFIX].to_owned(), hash: Sha256::digest(&text).to_vec(), text }
    }
}

/// The columns of a key. Each query names the columns that it returns, because a newer server may add others while an older
/// one runs.
const KEY: &str = "id, project, name, prefix, hash, scopes, created_at, expires_at, revoked_at, requests_per_second, last_used_on";

/// Returns whether any key was ever made. Revoked keys count.
pub async fn any(db: impl PgExecutor<'_>) -> Result<bool> {
    Ok(sqlx::query_scalar("select exists (select from keys)").fetch_one(db).await?)
}

/// Finds the keys that begin with `prefix`, which is nearly always none or one.
pub async fn by_prefix(db: impl PgExecutor<'_>, prefix: &str) -> Result<Vec<ApiKey>> {
    let sql = format!("select {KEY} from keys where prefix = $1");
    Ok(sqlx::query_as(AssertSqlSafe(sql)).bind(prefix).fetch_all(db).await?)
}

/// Returns a page of the keys of a project, newest first.
pub async fn page(db: &PgPool, project: &str, page: &PageRequest) -> Result<Page<ApiKey>> {
    let mut query = QueryBuilder::<Postgres>::new(format!("select {KEY} from keys where project = "));
    query.push_bind(project.to_owned());
    page.push(&mut query, "created_at", "id", "uuid")?;
    page.read(&mut query, db).await
}

/// Returns all keys of a project, or of all projects if none is given, newest first.
pub async fn all(db: impl PgExecutor<'_>, project: Option<&str>) -> Result<Vec<ApiKey>> {
    let sql = format!(
        "select {KEY} from keys where $1::text is null or project = $1 order by created_at desc, id desc"
    );
    Ok(sqlx::query_as(AssertSqlSafe(sql)).bind(project).fetch_all(db).await?)
}

/// Stores a key in `project`. A key whose hash is stored already stays as it is. An id that is taken is a
/// 409.
pub async fn insert(
    connection: &mut PgConnection,
    project: &str,
    key: &NewKey,
    secret: &Secret,
) -> Result<ApiKey> {
    let sql = "insert into keys (id, project, name, prefix, hash, scopes, created_at, expires_at, requests_per_second)
               values ($1, $2, $3, $4, $5, $6, $7, $8, $9) on conflict (hash) do nothing";
    sqlx::query(sql)
        .bind(key.id.unwrap_or_else(Uuid::now_v7))
        .bind(project)
        .bind(&key.name)
        .bind(&secret.prefix)
        .bind(&secret.hash)
        .bind(key.scopes.iter().map(|scope| scope.as_str()).collect::<Vec<_>>())
        .bind(Timestamp::now())
        .bind(key.expires_at)
        .bind(key.requests_per_second)
        .execute(&mut *connection)
        .await
        .map_err(|error| match (key.id, error.as_database_error()) {
            (Some(id), Some(cause)) if cause.is_unique_violation() => {
                Error::Conflict(format!("the key {id} already exists"))
            }
            _ => error.into(),
        })?;
    let sql = format!("select {KEY} from keys where hash = $1");
    Ok(sqlx::query_as(AssertSqlSafe(sql)).bind(&secret.hash).fetch_one(connection).await?)
}

/// Stores the first key, which the operator has chosen, and revokes the one chosen before it: operators who
/// change `GLEANER_ADMIN_KEY` want the old one to end. A key that was stored before, whatever became of it, replaces
/// nothing: it may have been rotated.
pub async fn replace_first(connection: &mut PgConnection, secret: &Secret) -> Result<First> {
    let id = Uuid::now_v7();
    let key = NewKey {
        id: Some(id),
        project: None,
        name: "GLEANER_ADMIN_KEY".to_owned(),
        scopes: vec![Scope::Write, Scope::Read, Scope::Admin, Scope::Operator],
        expires_at: None,
        requests_per_second: None,
    };
    let key = insert(&mut *connection, "default", &key, secret).await?;
    let is_new = key.id == id;
    let mut replaced = Vec::new();
    if is_new {
        let sql = "update keys set revoked_at = $3
            where project = 'default' and name = $1 and id <> $2 and revoked_at is null
            returning id";
        let query = sqlx::query_scalar(sql).bind(&key.name).bind(key.id).bind(Timestamp::now());
        replaced = query.fetch_all(connection).await?;
    }
    Ok(First { key, is_new, replaced })
}

/// The key that the operator has chosen.
#[derive(Debug)]
pub struct First {
    /// The key.
    pub key: ApiKey,
    /// Whether it was stored now.
    pub is_new: bool,
    /// The keys that it replaces, which were revoked.
    pub replaced: Vec<Uuid>,
}

/// Finds a key by its id.
pub async fn get(db: impl PgExecutor<'_>, id: Uuid) -> Result<Option<ApiKey>> {
    let sql = format!("select {KEY} from keys where id = $1");
    Ok(sqlx::query_as(AssertSqlSafe(sql)).bind(id).fetch_optional(db).await?)
}

/// How a key is replaced with a new one.
#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
#[schema(as = KeyRotation)]
pub struct Rotation {
    /// When the old key stops working. By default, it is revoked at once.
    pub old_expires_at: Option<Timestamp>,
    /// When the new key expires. Without this option, the new key expires when the old one would have.
    pub expires_at: Option<Timestamp>,
}

impl Check for Rotation {}

/// Replaces a key with a new one that has the same name, project and scopes. Returns the new key. A key that is
/// expired or revoked is a 409.
pub async fn rotate(
    connection: &mut PgConnection,
    id: Uuid,
    rotation: &Rotation,
    secret: &Secret,
) -> Result<ApiKey> {
    const END: &str = "
        update keys set expires_at = least(expires_at, $2), revoked_at = case when $2 is null then $3 end
        where id = $1 and revoked_at is null and (expires_at is null or expires_at > $3)";
    let insert = format!(
        "insert into keys (id, project, name, prefix, hash, scopes, created_at, expires_at, requests_per_second)
        select $2, project, name, $3, $4, scopes, $5, coalesce($6, $7), requests_per_second from keys where id = $1
        returning {KEY}"
    );
    let now = Timestamp::now();
    let Some(old) = get(&mut *connection, id).await? else { return Err(Error::NotFound("key")) };
    let ended = sqlx::query(END).bind(id).bind(rotation.old_expires_at).bind(now);
    if ended.execute(&mut *connection).await?.rows_affected() == 0 {
        return Err(Error::Conflict(format!("the key {id} has expired or was revoked")));
    }
    Ok(sqlx::query_as(AssertSqlSafe(insert))
        .bind(id)
        .bind(Uuid::now_v7())
        .bind(&secret.prefix)
        .bind(&secret.hash)
        .bind(now)
        .bind(rotation.expires_at)
        .bind(old.expires_at)
        .fetch_one(connection)
        .await?)
}

/// Records that these keys were used today.
pub async fn mark_used(db: impl PgExecutor<'_>, ids: &[Uuid], today: NaiveDate) -> Result<()> {
    let sql = "update keys set last_used_on = $2 where id = any($1) and last_used_on is distinct from $2";
    sqlx::query(sql).bind(ids).bind(today).execute(db).await?;
    Ok(())
}

/// Revokes a key, unless it is revoked already. Returns whether there is such a key.
pub async fn revoke(db: impl PgExecutor<'_>, id: Uuid) -> Result<bool> {
    let sql = "update keys set revoked_at = coalesce(revoked_at, $2) where id = $1";
    Ok(sqlx::query(sql).bind(id).bind(Timestamp::now()).execute(db).await?.rows_affected() > 0)
}
