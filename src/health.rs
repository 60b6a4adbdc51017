//! Endpoints for those who run the service: health, readiness, version and metrics.

use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::header;
use axum::response::IntoResponse;
use axum::routing::get;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::auth::MayMeasure;
use crate::db;
use crate::error::{self, Error, Refusals, Result};
use crate::http::{Check, Path};
use crate::outage::Outage;
use crate::state::App;
use crate::telemetry;

/// How old the answer of `/readyz` may be.
pub(crate) const FRESH_READINESS: Duration = Duration::from_millis(100);

/// How old the size of the database in the metrics may be.
pub(crate) const FRESH_SIZE: Duration = Duration::from_secs(1);

/// Returns the endpoints for those who run the service.
pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(get_service))
        .routes(routes!(get_problem))
        .routes(routes!(get_health))
        .routes(routes!(get_readiness))
        .routes(routes!(get_version))
        .routes(routes!(get_metrics))
}

/// Returns the endpoints that answer before there is a database.
pub fn early() -> Router {
    Router::new().route("/healthz", get(get_health)).route("/version", get(get_version))
}

/// A description of the service, and the paths of its documentation.
#[derive(Serialize, ToSchema)]
struct ServiceDescription {
    /// The program's name.
    name: &'static str,
    /// The program's version (semantic versioning).
    version: &'static str,
    /// What the program does.
    description: &'static str,
    /// The path of a page that shows the endpoints and sends requests.
    documentation: &'static str,
    /// The path of the OpenAPI document.
    openapi: &'static str,
}

/// Describes this service and says where its documentation is.
#[utoipa::path(get, path = "/", tag = "operations", security(()),
    responses((status = 200, description = "The description of the service", body = ServiceDescription), Refusals))]
async fn get_service() -> axum::Json<ServiceDescription> {
    axum::Json(ServiceDescription {
        name: env!("CARGO_PKG_NAME"),
        version: env!("CARGO_PKG_VERSION"),
        description: env!("CARGO_PKG_DESCRIPTION"),
        documentation: "/docs/",
        openapi: "/openapi.yaml",
    })
}

/// The path parameter of an endpoint about a kind of problem.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
struct ByKind {
    /// The kind of problem, which is the last segment of a problem's `type`.
    #[param(example = "not-found")]
    kind: String,
}

impl Check for ByKind {}

/// A kind of problem.
#[derive(Serialize, ToSchema)]
struct ProblemKind {
    /// The kind, as in the `type` of problem documents.
    r#type: String,
    /// The kind as text.
    title: &'static str,
    /// The HTTP status of such problems.
    status: u16,
    /// What problems of this kind mean.
    meaning: &'static str,
}

/// Explains a kind of problem. The `type` of a problem document is the path of this endpoint.
#[utoipa::path(get, path = "/problems/{kind}", tag = "operations", security(()), params(ByKind),
    responses((status = 200, description = "What problems of this kind mean", body = ProblemKind), Refusals))]
async fn get_problem(Path(ByKind { kind }): Path<ByKind>) -> Result<axum::Json<ProblemKind>> {
    let (status, meaning) = error::explain(&kind).ok_or(Error::NotFound("kind of problem"))?;
    let title = status.canonical_reason().unwrap_or("Error");
    Ok(axum::Json(ProblemKind {
        r#type: format!("/problems/{kind}"),
        title,
        status: status.as_u16(),
        meaning,
    }))
}

/// The state of the service.
#[derive(Serialize, ToSchema)]
#[schema(as = ServiceStatus)]
struct Status {
    /// `ok` from `/healthz`, `ready` from `/readyz`.
    status: &'static str,
}

/// Returns 200 as long as the process is running.
#[utoipa::path(get, path = "/healthz", tag = "operations", security(()),
    responses((status = 200, description = "The process is running", body = Status), Refusals))]
async fn get_health() -> axum::Json<Status> {
    axum::Json(Status { status: "ok" })
}

/// Returns 200 if requests can be served: the database is reachable, accepts writes and has the current schema, the last
/// write did not fail because of the database, and the server is not stopping. Otherwise the status is 503.
#[utoipa::path(get, path = "/readyz", tag = "operations", security(()),
    responses((status = 200, description = "The service is ready", body = Status), Refusals))]
async fn get_readiness(State(app): State<App>) -> Result<axum::Json<Status>> {
    if app.is_stopping() {
        return Err(Error::Unavailable("the server is stopping"));
    }
    let unready = app.unready.answer(async || {
        match tokio::time::timeout(Duration::from_secs(2), db::expect_ready(&app.db)).await {
            Ok(Ok(())) => None,
            Ok(Err(Error::Unavailable(reason))) => Some(reason),
            _ => Some(Outage::Unreachable.state()),
        }
    });
    let reason = unready.await.or_else(|| app.writer.outage().map(Outage::state));
    reason.map_or(Ok(axum::Json(Status { status: "ready" })), |reason| Err(Error::Unavailable(reason)))
}

/// The program that answers, and its version.
#[derive(Serialize, ToSchema)]
#[schema(as = ServiceVersion)]
struct Version {
    /// The program's name.
    name: &'static str,
    /// The program's version (semantic versioning).
    version: &'static str,
}

/// Returns the program's version.
#[utoipa::path(get, path = "/version", tag = "operations", security(()),
    responses((status = 200, description = "The version", body = Version), Refusals))]
async fn get_version() -> axum::Json<Version> {
    axum::Json(Version { name: env!("CARGO_PKG_NAME"), version: env!("CARGO_PKG_VERSION") })
}

/// Returns metrics in the Prometheus text format. Requests from another machine need a key.
#[utoipa::path(get, path = "/metrics", tag = "operations",
    responses((status = 200, description = "The metrics", content_type = "text/plain", body = String), Refusals))]
async fn get_metrics(State(app): State<App>, _: MayMeasure) -> impl IntoResponse {
    // Metrics are most needed when the database is slow, so they do not wait long for its size.
    let size = app
        .database_size
        .answer(async || tokio::time::timeout(Duration::from_secs(1), db::size(&app.db)).await.ok()?.ok());
    if let Some(bytes) = size.await {
        metrics::gauge!("gleaner_database_size_bytes").set(bytes as f64);
    }
    telemetry::measure_process();
    metrics::gauge!("gleaner_queue_events").set(app.writer.queued() as f64);
    for (pool, db) in [("reading", &app.db), ("exports", &app.exports.db), ("searches", &app.searches.db)] {
        metrics::gauge!("gleaner_db_connections", "pool" => pool, "state" => "open")
            .set(f64::from(db.size()));
        metrics::gauge!("gleaner_db_connections", "pool" => pool, "state" => "idle")
            .set(db.num_idle() as f64);
    }
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], app.metrics.render())
}
