//! The audit log: who changed keys and settings or erased records, and when. An entry is written in the transaction
//! of the action that it describes, so that neither exists without the other.

use axum::extract::State;
use serde::{Deserialize, Serialize};
use sqlx::{PgConnection, PgPool, Postgres, QueryBuilder};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use crate::auth::{Actor, Admin, Caller};
use crate::error::{Refusals, Result};
use crate::http::Check;
use crate::http::page::{List, Listed, Page, PageParams, PageRequest};
use crate::state::App;
use crate::types::{FreeForm, Timestamp};

/// Returns the endpoint of the audit log.
pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(list_audit))
}

/// The kind of action.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema, sqlx::Type)]
#[serde(rename_all = "snake_case")]
#[sqlx(type_name = "text", rename_all = "snake_case")]
#[schema(as = AuditAction)]
pub enum Action {
    /// A key was created.
    KeyMade,
    /// A key was replaced with a new one.
    KeyRotated,
    /// A key was revoked.
    KeyRevoked,
    /// A project was created.
    ProjectMade,
    /// The settings of a project were changed.
    SettingsChanged,
    /// The limits of a model were set.
    ModelChanged,
    /// Records were erased.
    RecordsErased,
    /// A snapshot was made.
    SnapshotMade,
    /// A snapshot was deleted.
    SnapshotDeleted,
}

/// An entry of the audit log.
#[derive(Debug, Serialize, ToSchema, sqlx::FromRow)]
#[schema(as = AuditEntry)]
struct Entry {
    /// The entry's id.
    id: Uuid,
    /// What was done.
    action: Action,
    /// The id of the key that was used. Null on a server without keys, and for commands that use the database
    /// directly.
    key_id: Option<Uuid>,
    /// Who did it: the name of the key, or `open server`, or `command line`.
    actor: String,
    /// Details of the action: the id of a key, the settings, or the number of records erased.
    details: FreeForm,
    /// When it was done.
    created_at: Timestamp,
}

impl Listed for Entry {
    fn sort_key(&self) -> (Timestamp, String) {
        (self.created_at, self.id.to_string())
    }
}

/// Which entries of the audit log are listed.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct Filter {
    /// Only entries of this kind.
    #[param(inline)]
    action: Option<Action>,
}

impl Check for Filter {}

/// One page of the audit log.
type AuditPage = Page<Entry>;

/// Lists changes of the project's keys and settings and erasures of records, with who made them and when, newest
/// first.
#[utoipa::path(get, path = "/v1/audit", tag = "keys", params(Filter, PageParams),
    responses((status = 200, description = "A page of the audit log", body = AuditPage), Refusals))]
async fn list_audit(State(app): State<App>, caller: Caller<Admin>, list: List<Filter>) -> Result<AuditPage> {
    page(&app.db, &caller.project, list.filter.action, &list.page).await
}

async fn page(db: &PgPool, project: &str, action: Option<Action>, page: &PageRequest) -> Result<AuditPage> {
    let mut query = QueryBuilder::<Postgres>::new(
        "select id, action, key_id, actor, details, created_at from audit where project = ",
    );
    query.push_bind(project.to_owned());
    if let Some(action) = action {
        query.push(" and action = ").push_bind(action);
    }
    page.push(&mut query, "created_at", "id", "uuid")?;
    page.read(&mut query, db).await
}

/// Records an action in a project's audit log.
pub async fn note(
    connection: &mut PgConnection,
    project: &str,
    actor: &Actor,
    action: Action,
    details: serde_json::Value,
) -> sqlx::Result<()> {
    note_so_far(connection, Uuid::now_v7(), project, actor, action, details).await
}

/// Records what an action in pieces has done so far, in the same entry each time.
pub async fn note_so_far(
    connection: &mut PgConnection,
    entry: Uuid,
    project: &str,
    actor: &Actor,
    action: Action,
    details: serde_json::Value,
) -> sqlx::Result<()> {
    let sql = "insert into audit (project, id, action, key_id, actor, details, created_at)
               values ($1, $2, $3, $4, $5, $6, $7)
               on conflict (id, project) do update set details = excluded.details";
    sqlx::query(sql)
        .bind(project)
        .bind(entry)
        .bind(action)
        .bind(actor.key)
        .bind(&*actor.name)
        .bind(details)
        .bind(Timestamp::now())
        .execute(connection)
        .await?;
    Ok(())
}
