//! Agent sessions: a list of the sessions under whose names records of any domain were posted, and their erasure. A
//! session is identified by its name and server, so that the same name on two servers is two sessions.

use std::borrow::Cow;
use std::collections::BTreeMap;

use axum::extract::State;
use serde::{Deserialize, Serialize};
use sqlx::postgres::PgRow;
use sqlx::{FromRow, PgPool, QueryBuilder, Row as _};
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{ObjectBuilder, Schema, SchemaType, Type};
use utoipa::{IntoParams, PartialSchema, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::auth::{Admin, Caller, Read};
use crate::domain::{Domain, SessionColumns, SessionName};
use crate::erasure::{self, Erased};
use crate::error::{Refusals, Result};
use crate::http::page::{List, Listed, Page, PageParams, PageRequest};
use crate::http::{Check, Path, Query};
use crate::state::App;
use crate::types::Timestamp;

/// Returns the endpoints of sessions.
pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(list_sessions)).routes(routes!(erase_session))
}

/// An agent session, and the records posted under its name and server.
#[derive(Debug, Serialize, ToSchema)]
struct Session {
    /// The session's name.
    session: String,
    /// The server that the session runs on. Null for records that name no server. Only suggestion records name one.
    server: Option<String>,
    /// The number of records of this session in each domain.
    #[serde(flatten)]
    records: Records,
    /// When the first of these records was created.
    first_at: Timestamp,
    /// When the last of these records was created.
    last_at: Timestamp,
    /// A text that identifies name and server.
    #[serde(skip)]
    key: String,
}

/// A number of records for each domain.
#[derive(Debug, Serialize)]
struct Records(BTreeMap<Domain, i64>);

impl PartialSchema for Records {
    fn schema() -> RefOr<Schema> {
        let count = |domain: Domain| {
            ObjectBuilder::new()
                .schema_type(SchemaType::Type(Type::Integer))
                .description(Some(format!("The number of records of the domain {}.", domain.name())))
        };
        let object = Domain::ALL.into_iter().fold(ObjectBuilder::new(), |object, domain| {
            object.property(domain.name(), count(domain)).required(domain.name())
        });
        object.into()
    }
}

impl ToSchema for Records {
    fn name() -> Cow<'static, str> {
        "SessionRecordCounts".into()
    }
}

impl FromRow<'_, PgRow> for Session {
    fn from_row(row: &PgRow) -> sqlx::Result<Self> {
        let counts = Domain::ALL.into_iter().zip(row.try_get::<Vec<i64>, _>("counts")?);
        Ok(Self {
            session: row.try_get("session")?,
            server: row.try_get("server")?,
            records: Records(counts.collect()),
            first_at: row.try_get("first_at")?,
            last_at: row.try_get("last_at")?,
            key: row.try_get("key")?,
        })
    }
}

impl Listed for Session {
    fn sort_key(&self) -> (Timestamp, String) {
        (self.last_at, self.key.clone())
    }
}

/// The server that sessions run on.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct OnServer {
    /// Only records of sessions on this server. Only suggestion records name a server, so records of other domains
    /// are then not included.
    #[param(min_length = 1)]
    server: Option<String>,
}

impl Check for OnServer {}

/// One page of sessions.
type SessionPage = Page<Session>;

/// Lists agent sessions by name and server, the session with the newest record first. `since` and `until` apply to
/// that newest record.
#[utoipa::path(get, path = "/v1/sessions", tag = "sessions", params(OnServer, PageParams),
    responses((status = 200, description = "A page of sessions", body = SessionPage), Refusals))]
async fn list_sessions(
    State(app): State<App>,
    caller: Caller<Read>,
    list: List<OnServer>,
) -> Result<SessionPage> {
    let server = caller.tenant.redacted_name(list.filter.server).await;
    page(&app.db, &caller.project, server, &list.page).await
}

async fn page(db: &PgPool, project: &str, server: Option<String>, page: &PageRequest) -> Result<SessionPage> {
    let counts: Vec<_> = Domain::ALL
        .iter()
        .map(|domain| format!("count(*) filter (where domain = '{}')", domain.name()))
        .collect();
    let mut query = QueryBuilder::new(format!(
        "select * from (
             select session, server, jsonb_build_array(session, server)::text as key, array[{}] as counts,
                 min(created_at) as first_at, max(created_at) as last_at
             from (",
        counts.join(", ")
    ));
    for (index, domain) in Domain::ALL.into_iter().enumerate() {
        let SessionColumns { table, name, server, created_at } = domain.session_columns();
        let server = server.unwrap_or("null");
        let union = if index == 0 { "" } else { " union all " };
        query.push(format_args!(
            "{union}select '{}' as domain, {name} as session, {server}::text as server, {created_at} as created_at from {table}
             where {name} is not null and project = ",
            domain.name()
        ));
        query.push_bind(project.to_owned());
    }
    query.push(") records group by session, server) sessions where true");
    if let Some(server) = server {
        query.push(" and server = ").push_bind(server);
    }
    page.push(&mut query, "last_at", "key", "text")?;
    page.read(&mut query, db).await
}

/// The path parameter of an endpoint about one session.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
struct ByName {
    /// The session's name.
    #[param(example = "other-session")]
    session: String,
}

impl Check for ByName {}

/// Erases all records with this session name, in all domains and of all servers. With `server`, only the records of
/// that server's session are erased.
#[utoipa::path(delete, path = "/v1/sessions/{session}", tag = "sessions", params(ByName, OnServer),
    responses((status = 200, description = "The number of records erased", body = Erased), Refusals))]
async fn erase_session(
    State(app): State<App>,
    caller: Caller<Admin>,
    Path(ByName { session }): Path<ByName>,
    Query(OnServer { server }): Query<OnServer>,
) -> Result<axum::Json<Erased>> {
    let name = SessionName { session: &session, server: server.as_deref() };
    erasure::after_reports(&app, &caller.project).await?;
    erasure::session(&app.db, &caller.tenant, &caller.actor(), name).await.map(axum::Json)
}
