//! Agent sessions: a list of the session names under which records of any domain were posted, and their
//! erasure.

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
use crate::domain::{Domain, SessionColumns};
use crate::error::{Refusals, Result};
use crate::http::page::{List, Listed, Page, PageParams, PageRequest};
use crate::http::{Check, Path};
use crate::projects::Tenant;
use crate::state::App;
use crate::types::Timestamp;

/// Returns the endpoints of sessions.
pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(list_sessions)).routes(routes!(erase_session))
}

/// An agent session, and the records posted under its name.
#[derive(Debug, Serialize, ToSchema)]
struct Session {
    /// The session's name.
    session: String,
    /// How many records each domain has under this name.
    #[serde(flatten)]
    records: Records,
    /// When the first of these records was created.
    first_at: Timestamp,
    /// When the last of these records was created.
    last_at: Timestamp,
}

/// A number of records for each domain.
#[derive(Debug, Serialize)]
struct Records(BTreeMap<Domain, i64>);

impl PartialSchema for Records {
    fn schema() -> RefOr<Schema> {
        let count = |domain: Domain| {
            ObjectBuilder::new()
                .schema_type(SchemaType::Type(Type::Integer))
                .description(Some(format!("How many records of the domain {} there are.", domain.name())))
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
            records: Records(counts.collect()),
            first_at: row.try_get("first_at")?,
            last_at: row.try_get("last_at")?,
        })
    }
}

impl Listed for Session {
    fn sort_key(&self) -> (Timestamp, String) {
        (self.last_at, self.session.clone())
    }
}

/// The filter of a list that has none.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NoFilter {}

impl Check for NoFilter {}

/// One page of sessions.
type SessionPage = Page<Session>;

/// Lists the names of agent sessions, the one with the newest record first. `since` and `until` apply to that
/// record.
#[utoipa::path(get, path = "/v1/sessions", tag = "sessions", params(PageParams),
    responses((status = 200, description = "A page of sessions", body = SessionPage), Refusals))]
async fn list_sessions(
    State(app): State<App>,
    caller: Caller<Read>,
    list: List<NoFilter>,
) -> Result<SessionPage> {
    page(&app.db, &caller.project, &list.page).await
}

async fn page(db: &PgPool, project: &str, page: &PageRequest) -> Result<SessionPage> {
    let counts: Vec<_> = Domain::ALL
        .iter()
        .map(|domain| format!("count(*) filter (where domain = '{}')", domain.name()))
        .collect();
    let mut query = QueryBuilder::new(format!(
        "select * from (
             select session, array[{}] as counts, min(created_at) as first_at, max(created_at) as last_at
             from (",
        counts.join(", ")
    ));
    for (index, domain) in Domain::ALL.into_iter().enumerate() {
        let SessionColumns { table, name, created_at } = domain.session_columns();
        let union = if index == 0 { "" } else { " union all " };
        query.push(format_args!(
            "{union}select '{}' as domain, {name} as session, {created_at} as created_at from {table}
             where {name} is not null and project = ",
            domain.name()
        ));
        query.push_bind(project.to_owned());
    }
    query.push(") records group by session) sessions where true");
    page.push(&mut query, "last_at", "session", "text")?;
    Ok(page.page(query.build_query_as().fetch_all(db).await?))
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

/// How many records of each kind were erased, such as `generations` and their `attempts`.
#[derive(Debug, Serialize, ToSchema)]
#[serde(transparent)]
#[schema(as = ErasedRecordCounts)]
struct ErasedRecords(BTreeMap<&'static str, u64>);

/// Erases every record with this session name, in all domains.
#[utoipa::path(delete, path = "/v1/sessions/{session}", tag = "sessions", params(ByName),
    responses((status = 200, description = "How many records were erased", body = ErasedRecords), Refusals))]
async fn erase_session(
    State(app): State<App>,
    caller: Caller<Admin>,
    Path(ByName { session }): Path<ByName>,
) -> Result<axum::Json<ErasedRecords>> {
    erase(&app.db, &caller.tenant, &session).await.map(axum::Json)
}

async fn erase(db: &PgPool, tenant: &Tenant, session: &str) -> Result<ErasedRecords> {
    let mut transaction = db.begin().await?;
    let mut erased = BTreeMap::new();
    for domain in Domain::ALL {
        erased.extend(domain.erase_session(&mut transaction, &tenant.name, &tenant.rules, session).await?);
    }
    transaction.commit().await?;
    Ok(ErasedRecords(erased))
}
