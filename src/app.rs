//! The application: its state, its router with every layer, and how it is served and stopped.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderName, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use sqlx::PgPool;
use sqlx::postgres::PgConnectOptions;
use tokio::net::TcpListener;
use tower::ServiceBuilder;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::compression::CompressionLayer;
use tower_http::compression::predicate::{DefaultPredicate, NotForContentType, Predicate as _};
use tower_http::decompression::RequestDecompressionLayer;
use tower_http::request_id::{MakeRequestId, PropagateRequestIdLayer, RequestId, SetRequestIdLayer};
use tower_http::timeout::RequestBodyTimeoutLayer;
use tower_http::trace::TraceLayer;
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_swagger_ui::SwaggerUi;
use uuid::Uuid;

use crate::auth::{self, Keyring};
use crate::db::writer::{self, Writer};
use crate::error::{self, Error, Refused};
use crate::exports::stream::Exports;
use crate::extract::Replaced;
use crate::generations::similar::Samples;
use crate::projects::Capture;
use crate::searches::{self, Searches, expiry};
use crate::{batch, connections, db, exports, extract, generations, operations, projects, suggestions};

/// What handlers share: clones are the same application.
#[derive(Clone)]
pub struct App(Arc<Parts>);

impl Deref for App {
    type Target = Parts;

    fn deref(&self) -> &Parts {
        &self.0
    }
}

/// What an application consists of.
pub struct Parts {
    /// For reading, and for the few writes that are not events.
    pub db: PgPool,
    /// For events.
    pub writer: Writer,
    /// For exports.
    pub exports: Exports,
    /// For what agents tell of their work.
    pub searches: Searches,
    /// Keys and projects.
    pub keyring: Arc<Keyring>,
    /// What is known of solved logs, for finding similar ones.
    pub samples: Arc<Samples>,
    /// How long a client may keep the server waiting for what it sends.
    patience: Duration,
    /// Set once the server begins to stop: it is no longer ready.
    stopping: AtomicBool,
    /// Renders the metrics.
    pub metrics: PrometheusHandle,
}

impl Parts {
    /// Whether the server has begun to stop.
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }
}

/// How the application is to run.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// The most connections for reading.
    pub connections: u32,
    /// What exports may take.
    pub exports: exports::stream::Limits,
    /// How much is kept where projects do not say.
    pub capture: Capture,
    /// How long a client may keep the server waiting for what it sends.
    pub patience: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            connections: 16,
            exports: exports::stream::Limits::default(),
            capture: Capture::default(),
            patience: Duration::from_mins(1),
        }
    }
}

/// The application and what it leaves running.
pub struct Running {
    /// The application.
    pub app: App,
    writing: writer::Tasks,
    expiry: expiry::Task,
    writer_db: PgPool,
}

impl Running {
    /// The application on a database whose schema is up to date.
    #[must_use]
    pub fn start(options: &PgConnectOptions, settings: Settings) -> Self {
        let db = db::pool(options, "gleaner", settings.connections);
        let writer_db = db::pool(options, db::WRITER_NAME, writer::WRITERS);
        let keyring = Arc::new(Keyring::new(db.clone(), settings.capture));
        let (writer, writing) = Writer::start(&writer_db, &db, Arc::clone(&keyring));
        let exports = Exports::new(options, settings.exports);
        let searches = Searches::new(options, settings.connections.div_ceil(4).max(2));
        let expiry = expiry::Task::start(&searches.db);
        let app = App(Arc::new(Parts {
            db,
            writer,
            exports,
            searches,
            keyring,
            samples: Arc::default(),
            patience: settings.patience,
            stopping: AtomicBool::new(false),
            metrics: recorder(),
        }));
        Self { app, writing, expiry, writer_db }
    }

    /// Waits until all that was handed to the writer is committed, then closes the connections.
    pub async fn finish(self) {
        self.expiry.finish().await;
        self.writing.finish().await;
        // An export whose reader stalls keeps its connection until the process ends.
        let close = async {
            tokio::join!(
                self.writer_db.close(),
                self.app.db.close(),
                self.app.exports.db.close(),
                self.app.searches.db.close()
            )
        };
        let _ = tokio::time::timeout(Duration::from_secs(1), close).await;
    }
}

/// The one recorder of this process's metrics.
fn recorder() -> PrometheusHandle {
    static RECORDER: std::sync::OnceLock<PrometheusHandle> = std::sync::OnceLock::new();
    let handle = RECORDER.get_or_init(|| {
        let seconds = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];
        let counts = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0];
        PrometheusBuilder::new()
            .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), &seconds)
            .and_then(|builder| {
                builder.set_buckets_for_metric(Matcher::Suffix("_events".to_owned()), &counts)
            })
            .and_then(PrometheusBuilder::install_recorder)
            .expect("the buckets are not empty and nothing else installs a recorder")
    });
    handle.clone()
}

#[derive(OpenApi)]
#[openapi(
    info(title = "Gleaner", description = "Keeps what coding agents do and gives back what can be learned from it.\n\n\
        A 2xx means committed. Refusals are RFC 9457 problems that name the field."),
    components(schemas(error::Problem)),
    security((), ("key" = [])),
    modifiers(&KeyScheme),
    tags(
        (name = "generations", description = "An intent, the attempts to turn it into a program, how it ended"),
        (name = "suggestions", description = "A slate of suggestions, what was looked at, what was submitted"),
        (name = "searches", description = "Searches that came back weak, what agents then read, and what that teaches"),
        (name = "batch", description = "Many events at once"),
        (name = "exports", description = "Data sets to train on"),
        (name = "analytics", description = "Figures"),
        (name = "projects", description = "Tenants and their settings"),
        (name = "keys", description = "Who may act for a project"),
        (name = "sessions", description = "What was posted under a session's name, and its erasure"),
        (name = "operations", description = "For those who run the service"),
    ),
)]
struct Document;

struct KeyScheme;

impl utoipa::Modify for KeyScheme {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityScheme};
        let scheme = SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer));
        document.components.get_or_insert_default().add_security_scheme("key", scheme);
    }
}

/// Every endpoint under `/v1`, with its documentation.
fn api() -> OpenApiRouter<App> {
    OpenApiRouter::with_openapi(Document::openapi())
        .merge(generations::similar::routes())
        .merge(generations::routes::routes())
        .merge(generations::templates::routes())
        .merge(generations::analytics::routes())
        .merge(suggestions::signals::routes())
        .merge(suggestions::routes::routes())
        .merge(suggestions::analytics::routes())
        .merge(searches::expansions::routes())
        .merge(searches::routes::routes())
        .merge(searches::associations::routes())
        .merge(searches::hooks::routes())
        .merge(searches::transcripts::routes())
        .merge(searches::analytics::routes())
        .merge(batch::routes())
        .merge(exports::routes())
        .merge(projects::routes::routes())
        .merge(projects::session_routes())
        .merge(operations::routes())
}

/// The OpenAPI document.
#[must_use]
pub fn openapi() -> utoipa::openapi::OpenApi {
    api().to_openapi()
}

/// The whole service.
pub fn router(app: App) -> Router {
    let (api, document) = api().split_for_parts();
    let yaml = document.to_yaml().expect("the document is made of plain values");
    let json = document.to_json().expect("the document is made of plain values");
    let compression = CompressionLayer::new()
        .compress_when(DefaultPredicate::new().and(NotForContentType::new("application/gzip")));
    let parameters = Arc::new(extract::KnownParameters::of(&document));
    let request_id = HeaderName::from_static("x-request-id");
    // As one layer: the router puts every layer into a box of its own, which each request would have to pass.
    let layers = ServiceBuilder::new()
        .layer(SetRequestIdLayer::new(request_id.clone(), NewRequestId))
        .layer(PropagateRequestIdLayer::new(request_id))
        .layer(TraceLayer::new_for_http().make_span_with(span))
        .layer(compression)
        .layer(middleware::from_fn_with_state((app.clone(), parameters), surround))
        .layer(CatchPanicLayer::custom(|_| {
            Error::Internal(anyhow::anyhow!("a handler panicked")).into_response()
        }))
        .layer(RequestBodyTimeoutLayer::new(app.patience))
        .layer(RequestDecompressionLayer::new());
    api.merge(SwaggerUi::new("/docs").config(utoipa_swagger_ui::Config::from("/openapi.json")))
        .route("/openapi.yaml", get(|| async move { ([(header::CONTENT_TYPE, "application/yaml")], yaml) }))
        .route("/openapi.json", get(|| async move { ([(header::CONTENT_TYPE, "application/json")], json) }))
        .method_not_allowed_fallback(|| async { StatusCode::METHOD_NOT_ALLOWED })
        .layer(layers)
        .with_state(app)
}

#[derive(Clone)]
struct NewRequestId;

impl MakeRequestId for NewRequestId {
    fn make_request_id<B>(&mut self, _: &axum::http::Request<B>) -> Option<RequestId> {
        Some(RequestId::new(Uuid::now_v7().to_string().parse().ok()?))
    }
}

/// A span a request, with what relates it to others: its id, and the trace that the client says it is part of. Never bodies,
/// keys or query strings, which hold users' text.
fn span(request: &Request) -> tracing::Span {
    let header =
        |name: &str| request.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let (trace_id, parent_id) = trace_context(header("traceparent")).unwrap_or_default();
    tracing::info_span!(
        "request",
        method = %request.method(),
        path = request.uri().path(),
        id = header("x-request-id"),
        trace_id,
        parent_id,
    )
}

/// The trace and the span that a `traceparent` header names (W3C Trace Context, section 3.2); none if it is malformed.
fn trace_context(traceparent: &str) -> Option<(&str, &str)> {
    let mut fields = traceparent.split('-');
    let [version, trace_id, parent_id, flags] = [(); 4].map(|()| fields.next().unwrap_or_default());
    let is_hex = |text: &str, length| {
        text.len() == length && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    };
    let is_id = |text: &str, length| is_hex(text, length) && text.bytes().any(|byte| byte != b'0');
    // A later version may have more fields; this one has not.
    let ends = fields.next().is_none() || version != "00";
    let is_good = is_hex(version, 2) && version != "ff" && is_id(trace_id, 32) && is_id(parent_id, 16);
    (is_good && is_hex(flags, 2) && ends).then_some((trace_id, parent_id))
}

/// What happens around every request: it is admitted or refused, refusals get their shape, and it is counted and timed by
/// route and status.
async fn surround(
    State((app, parameters)): State<(App, Arc<extract::KnownParameters>)>,
    mut request: Request,
    next: Next,
) -> Response {
    let started = Instant::now();
    let method = request.method().to_string();
    let route = request.extensions().get::<MatchedPath>().map_or("none", MatchedPath::as_str).to_owned();
    let refused = Refused::of(&request);
    let replaced = Replaced::begin(&mut request);
    let known = parameters.expect(&request);
    let mut response = match auth::guard_open(&app, request.headers()).await.and(known) {
        Ok(()) => next.run(request).await,
        Err(error) => error.into_response(),
    };
    refused.render(&mut response);
    replaced.report(&mut response);
    let labels = [("method", method), ("route", route), ("status", response.status().as_u16().to_string())];
    metrics::histogram!("gleaner_http_request_duration_seconds", &labels)
        .record(started.elapsed().as_secs_f64());
    response
}

/// Serves until `stop` completes, then finishes the requests under way, for ten seconds at most, then commits what
/// waits, then closes the database's connections: in this order nothing acknowledged is lost.
pub async fn serve(running: Running, listener: TcpListener, stop: impl Future<Output = ()>) {
    let app = running.app.clone();
    let stop = async {
        stop.await;
        app.stopping.store(true, Ordering::Relaxed);
    };
    connections::serve(listener, router(app.clone()), app.patience, stop).await;
    running.finish().await;
}

#[cfg(test)]
mod tests {
    use super::trace_context;

    #[test]
    fn a_traceparent_is_taken_as_the_specification_says_or_not_at_all() {
        let (trace, parent) = ("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7");
        let good = format!("00-{trace}-{parent}-01");
        assert_eq!(trace_context(&good), Some((trace, parent)));
        assert_eq!(trace_context(&format!("01-{trace}-{parent}-01-more")), Some((trace, parent)));
        for bad in [
            "",
            "00",
            &good.to_uppercase(),
            &format!("{good}-more"),
            &format!("ff-{trace}-{parent}-01"),
            &format!("00-{}-{parent}-01", "0".repeat(32)),
            &format!("00-{trace}-{}-01", "0".repeat(16)),
            &format!("00-{trace}-{parent}"),
        ] {
            assert_eq!(trace_context(bad), None, "{bad}");
        }
    }
}
