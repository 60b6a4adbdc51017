//! The router: every endpoint, and the middleware around them.

use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{MatchedPath, Request, State};
use axum::http::{Extensions, HeaderMap, HeaderName, HeaderValue, StatusCode, Version};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio::sync::watch;
use tower::ServiceBuilder;
use tower::util::MapRequestLayer;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::compression::CompressionLayer;
use tower_http::compression::predicate::{DefaultPredicate, NotForContentType, Predicate as _, SizeAbove};
use tower_http::decompression::RequestDecompressionLayer;
use tower_http::request_id::{MakeRequestId, PropagateRequestIdLayer, RequestId, SetRequestIdLayer};
use tower_http::timeout::RequestBodyTimeoutLayer;
use tower_http::trace::TraceLayer;
use utoipa::OpenApi as _;
use utoipa_axum::router::OpenApiRouter;
use uuid::Uuid;

use crate::error::{Error, PassedOn, Refused};
use crate::gateway::refusal;
use crate::http::Replaced;
use crate::http::end_line::end_line;
use crate::http::memory::Memory;
use crate::http::params::KnownParameters;
use crate::http::received;
use crate::http::send::{self, Compressors, Shared};
use crate::http::unpack;
use crate::mcp::Door;
use crate::openapi::{self, Document};
use crate::privacy::redact::has_secret;
use crate::sharing::in_full;
use crate::state::App;
use crate::telemetry::{self, log_failure, span};
use crate::{
    audit, auth, batch, docs, erasure, exports, gateway, generations, health, help, intake, mcp, memories,
    messages, projects, searches, sessions, suggestions,
};

/// The header with the id of a request, which a client may choose.
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// The maximum length of an id that is logged and returned, in bytes. A longer one is replaced.
const LONGEST_REQUEST_ID: usize = 200;

/// Returns every endpoint with its documentation.
fn api() -> OpenApiRouter<App> {
    let mut api = OpenApiRouter::with_openapi(Document::openapi())
        .merge(generations::routes::routes())
        .merge(suggestions::routes::routes())
        .merge(searches::routes::routes())
        .merge(messages::routes::routes())
        .merge(gateway::routes::routes())
        .merge(memories::routes::routes())
        .merge(help::routes::routes())
        .merge(intake::routes::routes())
        .merge(batch::routes())
        .merge(exports::routes::routes())
        .merge(exports::snapshots::routes::routes())
        .merge(projects::routes::routes())
        .merge(auth::routes::routes())
        .merge(audit::routes())
        .merge(sessions::routes())
        .merge(erasure::routes::routes())
        .merge(health::routes());
    openapi::complete(api.get_openapi_mut());
    api
}

/// Returns the OpenAPI document.
#[must_use]
pub fn openapi() -> utoipa::openapi::OpenApi {
    api().to_openapi()
}

/// Returns the whole service.
pub fn router(app: App) -> Router {
    let (api, document) = api().split_for_parts();
    let yaml = Bytes::from(document.to_yaml().expect("the document is made of plain values"));
    let json = Bytes::from(document.to_json().expect("the document is made of plain values") + "\n");
    let is_large = SizeAbove::new(send::SMALL + 1);
    let is_packed = NotForContentType::new("application/gzip");
    let compression = CompressionLayer::new()
        .compress_when(DefaultPredicate::new().and(is_large).and(is_packed).and(is_ours));
    let compressors = Compressors::default();
    let parameters = Arc::new(KnownParameters::of(&document));
    // The layers are added as one, because the router boxes every layer that is added to it, at a cost for
    // each request.
    let layers = ServiceBuilder::new()
        .layer(MapRequestLayer::new(without_unfit_id))
        .layer(SetRequestIdLayer::new(REQUEST_ID, NewRequestId))
        .layer(PropagateRequestIdLayer::new(REQUEST_ID))
        .layer(TraceLayer::new_for_http().make_span_with(span).on_failure(log_failure))
        .layer(middleware::from_fn(send::send))
        .layer(compression)
        .layer(middleware::from_fn_with_state((app.clone(), parameters, compressors), surround))
        .layer(CatchPanicLayer::custom(|_| {
            Error::Internal(anyhow::anyhow!("a handler panicked")).into_response()
        }))
        .layer(RequestBodyTimeoutLayer::new(app.patience))
        .layer(MapRequestLayer::new(unpack::unpack))
        // Refuses bodies in other codings.
        .layer(RequestDecompressionLayer::new());
    let service = api
        .merge(docs::routes())
        .route("/openapi.yaml", get(|| async move { docs::shared("application/yaml", yaml) }))
        .route("/openapi.json", get(|| async move { docs::shared("application/json", json) }))
        .method_not_allowed_fallback(|| async { StatusCode::METHOD_NOT_ALLOWED })
        .layer(layers.clone())
        .with_state(app.clone());
    // A call of a tool is a request to the rest of the service.
    let tools = mcp::routes::routes(&Door::of(service.clone()), &document);
    service.merge(tools.layer(layers).with_state(app))
}

/// Returns what is served while the server is starting: health and version, and a 503 for everything else that
/// says what `waiting_for` holds.
pub fn starting(waiting_for: watch::Receiver<String>) -> Router {
    let refuse = move || {
        let waiting_for = waiting_for.borrow().clone();
        async move { Error::Starting(format!("the server is starting: {waiting_for}")) }
    };
    let layers = ServiceBuilder::new()
        .layer(MapRequestLayer::new(without_unfit_id))
        .layer(SetRequestIdLayer::new(REQUEST_ID, NewRequestId))
        .layer(PropagateRequestIdLayer::new(REQUEST_ID))
        .layer(TraceLayer::new_for_http().make_span_with(span).on_failure(log_failure))
        .layer(middleware::from_fn(async |request: Request, next: Next| {
            let started = Instant::now();
            let refused = Refused::of(&request);
            let provider = refusal::api_of(request.uri().path());
            let mut response = next.run(request).await;
            match provider {
                Some(provider) => refusal::render(provider, &refused, &mut response),
                None => refused.render(&mut response),
            }
            telemetry::log_request(response.status().as_u16(), started.elapsed());
            end_line(response)
        }));
    health::early().fallback(refuse).layer(layers)
}

/// Returns whether a response may be compressed. What somebody else has made is passed on byte for byte, and what all
/// responses share stays as it is.
fn is_ours(_: StatusCode, _: Version, _: &HeaderMap, extensions: &Extensions) -> bool {
    extensions.get::<PassedOn>().is_none() && extensions.get::<Shared>().is_none()
}

/// Removes a client's id of a request if it is too long to be logged and returned, or has a secret in it.
fn without_unfit_id<B>(mut request: axum::http::Request<B>) -> axum::http::Request<B> {
    let is_unfit = |id: &HeaderValue| id.len() > LONGEST_REQUEST_ID || id.to_str().is_ok_and(has_secret);
    if request.headers().get(REQUEST_ID).is_some_and(is_unfit) {
        request.headers_mut().remove(REQUEST_ID);
    }
    request
}

#[derive(Clone)]
struct NewRequestId;

impl MakeRequestId for NewRequestId {
    fn make_request_id<B>(&mut self, _: &axum::http::Request<B>) -> Option<RequestId> {
        Some(RequestId::new(Uuid::now_v7().to_string().parse().ok()?))
    }
}

/// Surrounds every request: admits or refuses it, writes the body of refusals, and times the request by route
/// and status.
async fn surround(
    State((app, parameters, compressors)): State<(App, Arc<KnownParameters>, Compressors)>,
    mut request: Request,
    next: Next,
) -> Response {
    let started = Instant::now();
    let method = telemetry::method(request.method());
    let route = request.extensions().get::<MatchedPath>().map_or("none", MatchedPath::as_str).to_owned();
    let refused = Refused::of(&request);
    let replaced = Replaced::begin(&mut request);
    let memory = Memory::begin(&mut request, &app.bodies);
    let accepts = send::accepts_encodings(request.headers());
    let provider = refusal::api_of(request.uri().path());
    let request = received::count(request);
    let known = if provider.is_some() { Ok(()) } else { parameters.expect(&request) };
    let admitted = match auth::is_foreign(&request) {
        Ok(is_foreign) => auth::guard_open(&app.keyring, is_foreign).await,
        Err(error) => Err(error),
    };
    let mut response = match admitted.and(known) {
        Ok(()) => {
            let longest = app.longest_statement;
            let answered = in_full(async move { longest.while_heard(next.run(request)).await }).await;
            let response = answered.unwrap_or_else(|error| Error::from(error).into_response());
            send::hold(response, &memory).await
        }
        Err(error) => error.into_response(),
    };
    match provider {
        Some(provider) => refusal::render(provider, &refused, &mut response),
        None => refused.render(&mut response),
    }
    replaced.report(&mut response);
    let mut response = end_line(response);
    telemetry::log_request(response.status().as_u16(), started.elapsed());
    let labels =
        [("method", method.to_owned()), ("route", route), ("status", response.status().as_u16().to_string())];
    metrics::histogram!("gleaner_http_request_duration_seconds", &labels)
        .record(started.elapsed().as_secs_f64());
    send::note(&mut response, accepts, memory, compressors).await;
    response
}
