//! Endpoints for those who run the service: health, readiness, version and metrics.

use std::time::Duration;

use axum::extract::State;
use axum::http::header;
use axum::response::IntoResponse;
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::auth::MayMeasure;
use crate::db;
use crate::error::{Error, Refusals, Result};
use crate::state::App;

/// Returns the endpoints for those who run the service.
pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(get_health))
        .routes(routes!(get_readiness))
        .routes(routes!(get_version))
        .routes(routes!(get_metrics))
}

/// The state of the service.
#[derive(Serialize, ToSchema)]
#[schema(as = ServiceStatus)]
struct Status {
    /// `ok` from `/healthz`, `ready` from `/readyz`.
    status: &'static str,
}

/// Answers as long as the process is up.
#[utoipa::path(get, path = "/healthz", tag = "operations", security(()),
    responses((status = 200, description = "The process is up", body = Status), Refusals))]
async fn get_health() -> axum::Json<Status> {
    axum::Json(Status { status: "ok" })
}

/// Answers 200 if requests can be served: the database is reachable, takes writes and is migrated, and the
/// server is not stopping. Otherwise the status is 503.
#[utoipa::path(get, path = "/readyz", tag = "operations", security(()),
    responses((status = 200, description = "The service is ready", body = Status), Refusals))]
async fn get_readiness(State(app): State<App>) -> Result<axum::Json<Status>> {
    if app.is_stopping() {
        return Err(Error::Unavailable("the server is stopping"));
    }
    match tokio::time::timeout(Duration::from_secs(2), db::expect_ready(&app.db)).await {
        Ok(Ok(())) => Ok(axum::Json(Status { status: "ready" })),
        Ok(Err(error @ Error::Unavailable(_))) => Err(error),
        _ => Err(Error::Unavailable("the database cannot be reached")),
    }
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

/// Returns metrics in Prometheus's text format. From another machine a key is needed.
#[utoipa::path(get, path = "/metrics", tag = "operations",
    responses((status = 200, description = "The metrics", content_type = "text/plain", body = String), Refusals))]
async fn get_metrics(State(app): State<App>, _: MayMeasure) -> impl IntoResponse {
    describe();
    metrics::gauge!("gleaner_queue_events").set(app.writer.queued() as f64);
    for (pool, db) in [("reading", &app.db), ("exports", &app.exports.db)] {
        metrics::gauge!("gleaner_db_connections", "pool" => pool, "state" => "open")
            .set(f64::from(db.size()));
        metrics::gauge!("gleaner_db_connections", "pool" => pool, "state" => "idle")
            .set(db.num_idle() as f64);
    }
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], app.metrics.render())
}

/// Describes each metric. Names follow the conventions of Prometheus: the unit last, and `_total` for
/// counters.
fn describe() {
    use metrics::{describe_counter, describe_gauge, describe_histogram};
    describe_histogram!(
        "gleaner_http_request_duration_seconds",
        "Time to answer, by method, route and status"
    );
    describe_histogram!("gleaner_commit_events", "Events a transaction of the writer has");
    describe_histogram!("gleaner_commit_duration_seconds", "Time a transaction of the writer takes");
    describe_counter!(
        "gleaner_commit_retries_total",
        "Transactions begun again after a deadlock or serialization failure"
    );
    describe_counter!("gleaner_events_rejected_total", "Lines of batches that were refused");
    describe_counter!(
        "gleaner_replaced_characters_total",
        "Characters replaced because Postgres cannot keep them"
    );
    describe_counter!("gleaner_export_bytes_total", "Bytes that exports have sent, before compression");
    describe_gauge!("gleaner_queue_events", "Events that wait to be written or are being written");
    describe_gauge!("gleaner_db_connections", "Connections to the database, by pool and state");
}
