//! Keys: what one allows, how one is made, and how they are kept.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use sqlx::{PgExecutor, PgPool};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::error::{Error, Result};
use crate::http::{Check, Checks};
use crate::types::Timestamp;

/// Length of the part of a key that finds it in the table.
pub(super) const PREFIX: usize = 12;
/// The shortest text taken as a key chosen by the operator.
const SHORTEST: usize = 32;

/// What a key allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
#[schema(as = ApiKeyScope)]
pub enum Scope {
    /// Post events.
    Write,
    /// Read records, lists, figures and exports.
    Read,
    /// Change its project's settings and keys, and erase.
    Admin,
    /// All of these, in every project.
    Operator,
}

impl Scope {
    /// As stored and sent.
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
#[derive(Debug, Clone, Serialize, ToSchema, sqlx::FromRow)]
pub struct ApiKey {
    /// Names the key in `DELETE /v1/keys/{id}`.
    pub id: Uuid,
    /// The project it belongs to.
    pub project: String,
    /// What a person calls it.
    pub name: String,
    /// Its first characters.
    pub prefix: String,
    /// SHA-256 of the key.
    #[serde(skip)]
    pub hash: Vec<u8>,
    /// Out of `write`, `read`, `admin`, `operator`.
    pub scopes: Vec<String>,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it ceases to work; null: never.
    pub expires_at: Option<Timestamp>,
    /// When it was revoked; null: it was not.
    pub revoked_at: Option<Timestamp>,
}

impl ApiKey {
    /// Whether the key names `scope` itself.
    #[must_use]
    pub fn has(&self, scope: Scope) -> bool {
        self.scopes.iter().any(|own| own == scope.as_str())
    }
}

/// What a new key is to be.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewApiKey)]
pub struct NewKey {
    /// Names the key in `DELETE /v1/keys/{id}`; the server makes an id if none is given. One that is taken is a conflict, as the
    /// secret could not be shown again.
    pub id: Option<Uuid>,
    /// The project it belongs to; the caller's, if not given. Another one only for an operator.
    pub project: Option<String>,
    /// What to call it, at most 200 characters.
    #[schema(min_length = 1, max_length = 200)]
    pub name: String,
    /// At least one of `write`, `read`, `admin`, `operator`.
    #[schema(min_items = 1)]
    pub scopes: Vec<Scope>,
    /// When it ceases to work; never, if not given.
    pub expires_at: Option<Timestamp>,
}

impl Check for NewKey {
    fn check(&self, checks: &mut Checks) {
        checks.name("name", Some(&self.name));
        checks.require(!self.scopes.is_empty(), "scopes", "must not be empty");
    }
}

/// A secret that was just made, and what is stored of it.
pub struct Secret {
    /// The key itself, to be shown once.
    pub text: String,
    /// Its beginning, which finds it.
    pub prefix: String,
    /// SHA-256 of it.
    pub hash: Vec<u8>,
}

impl Secret {
    /// A new random key: 304 random bits, of which 262 stay secret once the prefix is known.
    pub fn random() -> Result<Self> {
        let mut bytes = [0; 38];
        getrandom::fill(&mut bytes).map_err(anyhow::Error::from)?;
        Ok(Self::of(format!("glnr_{}", URL_SAFE_NO_PAD.encode(bytes))))
    }

    /// A key chosen by the operator.
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

/// Whether there is any key, revoked ones too.
pub async fn any(db: impl PgExecutor<'_>) -> Result<bool> {
    Ok(sqlx::query_scalar("select exists (select from keys)").fetch_one(db).await?)
}

/// The keys that begin so; nearly always none or one.
pub async fn by_prefix(db: impl PgExecutor<'_>, prefix: &str) -> Result<Vec<ApiKey>> {
    Ok(sqlx::query_as("select * from keys where prefix = $1").bind(prefix).fetch_all(db).await?)
}

/// The keys of a project, or of all, newest first.
pub async fn list(db: impl PgExecutor<'_>, project: Option<&str>) -> Result<Vec<ApiKey>> {
    let sql = "select * from keys where $1::text is null or project = $1 order by created_at desc, id desc";
    Ok(sqlx::query_as(sql).bind(project).fetch_all(db).await?)
}

/// Keeps a key in `project`. One that is there already, by its hash, stays as it is.
pub async fn insert(db: &PgPool, project: &str, key: &NewKey, secret: &Secret) -> Result<ApiKey> {
    let sql = "insert into keys (id, project, name, prefix, hash, scopes, created_at, expires_at)
               values ($1, $2, $3, $4, $5, $6, $7, $8) on conflict (hash) do nothing";
    sqlx::query(sql)
        .bind(key.id.unwrap_or_else(Uuid::now_v7))
        .bind(project)
        .bind(&key.name)
        .bind(&secret.prefix)
        .bind(&secret.hash)
        .bind(key.scopes.iter().map(|scope| scope.as_str()).collect::<Vec<_>>())
        .bind(Timestamp::now())
        .bind(key.expires_at)
        .execute(db)
        .await
        .map_err(|error| match (key.id, error.as_database_error()) {
            (Some(id), Some(cause)) if cause.is_unique_violation() => {
                Error::Conflict(format!("there is a key {id} already"))
            }
            _ => error.into(),
        })?;
    Ok(sqlx::query_as("select * from keys where hash = $1").bind(&secret.hash).fetch_one(db).await?)
}

/// Keeps the first key, which the operator chose, and revokes the one chosen before it: whoever changes
/// `GLEANER_ADMIN_KEY` wants the old one to end. One that was revoked stays so, and replaces nothing.
pub async fn replace_first(db: &PgPool, secret: &Secret) -> Result<ApiKey> {
    let key = NewKey {
        id: None,
        project: None,
        name: "GLEANER_ADMIN_KEY".to_owned(),
        scopes: vec![Scope::Write, Scope::Read, Scope::Admin, Scope::Operator],
        expires_at: None,
    };
    let row = insert(db, "default", &key, secret).await?;
    if row.revoked_at.is_none() {
        let sql = "update keys set revoked_at = $3 where name = $1 and id <> $2 and revoked_at is null";
        sqlx::query(sql).bind(&key.name).bind(row.id).bind(Timestamp::now()).execute(db).await?;
    }
    Ok(row)
}

/// The project that a key belongs to, if there is such a key.
pub async fn project_of(db: impl PgExecutor<'_>, id: Uuid) -> Result<Option<String>> {
    Ok(sqlx::query_scalar("select project from keys where id = $1").bind(id).fetch_optional(db).await?)
}

/// Revokes a key, once; whether there is such a key.
pub async fn revoke(db: impl PgExecutor<'_>, id: Uuid) -> Result<bool> {
    let sql = "update keys set revoked_at = coalesce(revoked_at, $2) where id = $1";
    Ok(sqlx::query(sql).bind(id).bind(Timestamp::now()).execute(db).await?.rows_affected() > 0)
}
