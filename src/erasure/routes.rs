//! The endpoints of erasure by age and by id. The endpoint of erasure by session is in [`sessions`](crate::sessions).

use std::time::Duration;

use axum::extract::State;
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::{ByAge, Erased};
use crate::auth::{Admin, Caller};
use crate::domain::Domain;
use crate::error::{Error, Refusals, Result};
use crate::http::page::time_in_query;
use crate::http::{ById, Check, Path, Query};
use crate::state::App;
use crate::types::Timestamp;

/// The time limit for erasing in one request.
const PATIENCE: Duration = Duration::from_secs(20);

/// Returns the endpoints of erasure.
pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(erase_records)).routes(routes!(erase_record))
}

/// Which records are old.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct Old {
    /// Only records that were finalized before this time, or, if they were never finalized, created before it.
    /// It is given as RFC 3339 or Unix seconds.
    #[serde(deserialize_with = "time_in_query")]
    #[param(example = "2020-01-01T00:00:00Z")]
    before: Timestamp,
    /// Only records of this domain. By default, records of all domains are erased.
    #[param(inline)]
    domain: Option<Domain>,
}

impl Check for Old {}

/// Erases old records with everything that belongs to them or was learned from them.
///
/// Records are erased in batches, each of which is committed on its own. A request stops after twenty seconds; `more`
/// then says that records are left.
#[utoipa::path(delete, path = "/v1/records", tag = "erasure", params(Old),
    responses((status = 200, description = "The number of records erased, and whether there are more", body = ByAge), Refusals))]
async fn erase_records(
    State(app): State<App>,
    caller: Caller<Admin>,
    Query(Old { before, domain }): Query<Old>,
) -> Result<axum::Json<ByAge>> {
    let domains = domain.map_or(Domain::ALL.to_vec(), |domain| vec![domain]);
    super::after_reports(&app, &caller.project).await?;
    super::before(&app.db, &caller.tenant, &caller.actor(), &domains, before, PATIENCE).await.map(axum::Json)
}

/// Erases the record with this id in any domain, with everything that belongs to it or was learned from it.
///
/// A send or message pair in progress is a conflict.
#[utoipa::path(delete, path = "/v1/records/{id}", tag = "erasure",
    params(ById),
    responses((status = 200, description = "The number of records erased", body = Erased), Refusals))]
async fn erase_record(
    State(app): State<App>,
    caller: Caller<Admin>,
    Path(ById { id }): Path<ById>,
) -> Result<axum::Json<Erased>> {
    super::after_reports(&app, &caller.project).await?;
    let erased = super::record(&app.db, &caller.tenant, &caller.actor(), &Domain::ALL, id).await?;
    if erased.is_nothing() { Err(Error::NotFound("record")) } else { Ok(axum::Json(erased)) }
}
