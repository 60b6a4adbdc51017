//! How projects are stored.

use std::sync::Arc;

use sqlx::PgExecutor;
use sqlx::types::Json;

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

/// Returns the project with what is needed to write its events, or none if there is no such project.
pub async fn tenant(db: impl PgExecutor<'_>, project: &str, defaults: &Defaults) -> Result<Option<Tenant>> {
    let sql = "select settings, hash_key, md5(settings::text) from projects where name = $1";
    let found: Option<(Json<Settings>, Vec<u8>, String)> =
        sqlx::query_as(sql).bind(project).fetch_optional(db).await?;
    let tenant = |(Json(settings), key, version): (Json<Settings>, Vec<u8>, String)| {
        let Settings { capture, redact, retention_days, quotas, searches, messages: own_messages, memories } =
            &settings;
        Ok(Tenant {
            name: project.into(),
            version,
            policy: Policy::new(capture.as_ref(), defaults.capture, redact, HashKey::new(key))?,
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
    };
    found.map(tenant).transpose()
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
