//! What the audit log says of keys, however they were changed.

use serde_json::{Value, json};
use sqlx::PgConnection;
use uuid::Uuid;

use super::Actor;
use super::keys::{ApiKey, Rotation};
use crate::audit::{Action, note};

/// Notes that a key was created.
pub async fn made(connection: &mut PgConnection, key: &ApiKey, actor: &Actor) -> sqlx::Result<()> {
    note(connection, &key.project, actor, Action::KeyMade, what_it_may(key)).await
}

/// Notes that a key has replaced another one.
pub async fn rotated(
    connection: &mut PgConnection,
    key: &ApiKey,
    (old, rotation): (Uuid, &Rotation),
    actor: &Actor,
) -> sqlx::Result<()> {
    let mut details = what_it_may(key);
    details["old_key"] = json!(old);
    details["old_expires_at"] = json!(rotation.old_expires_at);
    note(connection, &key.project, actor, Action::KeyRotated, details).await
}

/// Notes that a key, which has this name, was revoked.
pub async fn revoked(
    connection: &mut PgConnection,
    project: &str,
    (id, name): (Uuid, &str),
    actor: &Actor,
) -> sqlx::Result<()> {
    note(connection, project, actor, Action::KeyRevoked, json!({"key": id, "name": name})).await
}

/// Describes a key by what may be done with it, and until when.
fn what_it_may(key: &ApiKey) -> Value {
    json!({
        "key": key.id,
        "name": key.name,
        "scopes": key.scopes,
        "expires_at": key.expires_at,
        "requests_per_second": key.requests_per_second,
    })
}
