//! How projects are stored.

use std::sync::Arc;

use sqlx::types::Json;
use sqlx::{FromRow, PgExecutor};

use super::room::Room;
use super::{Defaults, Project, Settings, Tenant};
use crate::error::Result;
use crate::messages;
use crate::privacy::capture::Capture;
use crate::privacy::hash_key::HashKey;
use crate::privacy::policy::Policy;
use crate::searches::settings::Rules;
use crate::types::Timestamp;

/// Returns whether the project exists.
pub async fn exists(db: impl PgExecutor<'_>, project: &str) -> Result<bool> {
    let sql = "select exists (select from projects where name = $1)";
    Ok(sqlx::query_scalar(sql).bind(project).fetch_one(db).await?)
}

/// What is stored of a project.
#[derive(FromRow)]
pub struct Stored {
    name: String,
    settings: Json<Settings>,
    hash_key: Vec<u8>,
    /// What is different after each change.
    pub version: String,
}

/// Returns what is stored of a project, or none if there is no such project.
pub async fn stored(db: impl PgExecutor<'_>, project: &str) -> Result<Option<Stored>> {
    let sql = "select name, settings, hash_key, md5(settings::text || hash_key::text) as version
               from projects where name = $1";
    Ok(sqlx::query_as(sql).bind(project).fetch_optional(db).await?)
}

/// Returns the project with what is needed to write its events, or none if there is no such project.
pub async fn tenant(db: impl PgExecutor<'_>, project: &str, defaults: &Defaults) -> Result<Option<Tenant>> {
    match stored(db, project).await? {
        Some(stored) => stored.tenant(defaults).await.map(Some),
        None => Ok(None),
    }
}

impl Stored {
    /// Makes what is needed to write the project's events. If the project has expressions of its own, they are compiled on a
    /// thread that serves no requests.
    pub async fn tenant(self, defaults: &Defaults) -> Result<Tenant> {
        let Self { name, settings: Json(settings), hash_key, version } = self;
        let Settings { capture, redact, retention_days, quotas, searches, messages: own_messages, memories } =
            &settings;
        let name: Arc<str> = name.into();
        let key = HashKey::new(hash_key);
        let redactor = redact.redactor_apart(&name, &key).await.map_err(|(_, detail)| {
            anyhow::anyhow!("the project's settings contain an invalid expression: {detail}")
        })?;
        Ok(Tenant {
            name,
            version,
            policy: Policy::new(capture.as_ref(), defaults.capture, redactor, key),
            retention: retention_days.clone().unwrap_or_default(),
            quotas: quotas.clone(),
            room: Arc::new(Room::default()),
            rules: Rules::new(searches, &defaults.searches),
            messages: messages::settings::Rules {
                settings: own_messages.clone(),
                catalog: Arc::clone(&defaults.models),
                ratios: Arc::clone(&defaults.ratios),
            },
            memories: memories.clone(),
        })
    }
}

/// Returns the project with its settings, or none if there is no such project. `default` is the server's
/// setting for how much is kept.
pub(super) async fn get(db: impl PgExecutor<'_>, project: &str, default: Capture) -> Result<Option<Project>> {
    let sql = "select name, settings, created_at from projects where name = $1";
    let found: Option<(String, Json<Settings>, Timestamp)> =
        sqlx::query_as(sql).bind(project).fetch_optional(db).await?;
    Ok(found.map(|(name, Json(settings), created_at)| Project::new(name, settings, created_at, default)))
}

/// Makes the project or replaces its settings. Returns whether it was made.
pub async fn put(
    db: impl PgExecutor<'_>,
    project: &str,
    settings: &Settings,
    default: Capture,
) -> Result<(Project, bool)> {
    // In a row version that no update has made, `xmax` is zero.
    let sql = "insert into projects (name, settings, created_at) values ($1, $2, $3)
               on conflict (name) do update set settings = excluded.settings
               returning name, settings, created_at, xmax = 0";
    let (name, Json(settings), created_at, made): (String, Json<Settings>, Timestamp, bool) =
        sqlx::query_as(sql).bind(project).bind(Json(settings)).bind(Timestamp::now()).fetch_one(db).await?;
    Ok((Project::new(name, settings, created_at, default), made))
}
