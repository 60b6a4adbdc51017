//! The endpoints of snapshots.

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http_range_header::parse_range_header;
use serde::Deserialize;
use serde_json::json;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use super::download::Download;
use super::make::make;
use super::request::NewSnapshot;
use super::store::{self, Filter};
use super::{Snapshot, State as SnapshotState, build, card};
use crate::audit::{self, Action};
use crate::auth::{Caller, Change, Read};
use crate::db;
use crate::error::{Error, PassedOn, Refusals, Result, Special};
use crate::http::memory::Memory;
use crate::http::page::{List, Page, PageParams};
use crate::http::{ById, Check, Json, Path};
use crate::state::App;

/// Returns the endpoints of snapshots.
pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(create_snapshot, list_snapshots))
        .routes(routes!(get_snapshot, delete_snapshot))
        .routes(routes!(download_snapshot))
}

/// Requests a snapshot, which is an export that a server stores as a file in the background.
///
/// The body has the properties of the file and the parameters of the export. The snapshot contains the state of the
/// data at `as_of`, or at the time of the request if `as_of` is not given. `GET /v1/snapshots/{id}` shows the
/// progress.
#[utoipa::path(post, path = "/v1/snapshots", tag = "exports",
    request_body(content = NewSnapshot, example = json!({
        "id": "01946983-4c40-7a1c-9d3e-5b0f6c2e8a71", "dataset": "training-pairs", "format": "openai", "file": "parquet",
        "name": "train", "licence": "apache-2.0", "keep_days": 90, "split": "train", "dedupe": "exact",
    })),
    responses(
        (status = 202, description = "The snapshot, which will be built in the background", body = Snapshot,
            headers(("Location" = String, description = "The snapshot's address"))),
        (status = 200, description = "The request was sent before. The response has the current state of the snapshot", body = Snapshot),
        Refusals,
    ))]
async fn create_snapshot(
    State(app): State<App>,
    caller: Caller<Read>,
    Json(new): Json<NewSnapshot>,
) -> Result<Response> {
    let (id, is_new) = make(&app.db, &app.exports, &caller.tenant, &caller.actor(), new).await?;
    if is_new {
        build::build_soon(&app.exports);
    }
    let snapshot = axum::Json(store::get(&app.db, &caller.project, id).await?);
    let address = [(header::LOCATION, format!("/v1/snapshots/{id}"))];
    Ok(if is_new {
        (StatusCode::ACCEPTED, address, snapshot).into_response()
    } else {
        snapshot.into_response()
    })
}

/// One page of snapshots.
type SnapshotPage = Page<Snapshot>;

/// Lists snapshots, newest first.
#[utoipa::path(get, path = "/v1/snapshots", tag = "exports", params(Filter, PageParams),
    responses((status = 200, description = "A page of snapshots", body = SnapshotPage), Refusals))]
async fn list_snapshots(
    State(app): State<App>,
    caller: Caller<Read>,
    list: List<Filter>,
) -> Result<SnapshotPage> {
    store::page(&app.db, &caller.project, list.filter, &list.page).await
}

/// Returns a snapshot and its progress.
#[utoipa::path(get, path = "/v1/snapshots/{id}", tag = "exports", params(ById),
    responses((status = 200, description = "The snapshot", body = Snapshot), Refusals))]
async fn get_snapshot(
    State(app): State<App>,
    caller: Caller<Read>,
    Path(ById { id }): Path<ById>,
) -> Result<axum::Json<Snapshot>> {
    store::get(&app.db, &caller.project, id).await.map(axum::Json)
}

/// Deletes a snapshot with its file.
#[utoipa::path(delete, path = "/v1/snapshots/{id}", tag = "exports", params(ById),
    responses((status = 204, description = "The snapshot was deleted"), Refusals))]
async fn delete_snapshot(
    State(app): State<App>,
    caller: Caller<Change>,
    Path(ById { id }): Path<ById>,
) -> Result<StatusCode> {
    let mut transaction = db::begin(&app.db).await?;
    if !store::delete(&mut transaction, &caller.project, id).await? {
        return Err(Error::NotFound("snapshot"));
    }
    let details = json!({"id": id});
    audit::note(&mut transaction, &caller.project, &caller.actor(), Action::SnapshotDeleted, details).await?;
    transaction.commit().await?;
    Ok(StatusCode::NO_CONTENT)
}

/// The path parameters of a snapshot's file.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
struct OfFile {
    /// The snapshot's id.
    #[param(example = "01946983-4c40-7a1c-9d3e-5b0f6c2e8a71")]
    id: Uuid,
    /// The name of the snapshot's file with its extension, or README.md for the card.
    #[param(example = "README.md")]
    file_name: String,
}

impl Check for OfFile {}

/// Returns the file of a snapshot, or its data set card.
///
/// The file has a `Content-Length`, an `ETag` that never changes, and its SHA-256 in `Repr-Digest`. With the header
/// `Range`, the response has a part of the file, so that a download can be resumed and programs can read parts of
/// Parquet files.
#[utoipa::path(get, path = "/v1/snapshots/{id}/{file_name}", tag = "exports", params(OfFile),
    responses(
        (status = 200, description = "The file, or the card", content(
            (String = "text/markdown"), (String = "application/vnd.apache.parquet"), (String = "application/jsonl"),
            (String = "application/gzip"))),
        (status = 206, description = "The part of the file that `Range` requests"),
        (status = 304, description = "The client already has the file, according to `If-None-Match`"),
        Refusals,
    ))]
async fn download_snapshot(
    State(app): State<App>,
    caller: Caller<Read>,
    memory: Memory,
    Path(OfFile { id, file_name }): Path<OfFile>,
    method: Method,
    headers: HeaderMap,
) -> Result<Response> {
    let snapshot = store::get(&app.db, &caller.project, id).await?;
    if file_name == "README.md" {
        let text = [(header::CONTENT_TYPE, "text/markdown; charset=utf-8")];
        return Ok((text, card::card(&snapshot)).into_response());
    }
    if file_name != snapshot.file_name() {
        return Err(Error::NotFound("file"));
    }
    let (SnapshotState::Complete, Some(sha256)) = (snapshot.state, &snapshot.sha256) else {
        return Err(Error::Conflict("the snapshot is not complete".to_owned()));
    };
    let tag = format!("\"{sha256}\"");
    let length = u64::try_from(snapshot.bytes).unwrap_or_default();
    let is_known = |name| {
        let values = headers.get_all(name).iter().filter_map(|value: &HeaderValue| value.to_str().ok());
        let mut tags = values.flat_map(|value| value.split(',')).map(str::trim);
        tags.any(|other| other == "*" || other.trim_start_matches("W/") == tag)
    };
    let mut response = if is_known(header::IF_NONE_MATCH) {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        // Only for GET is it defined what a range means (RFC 9110, section 14.2).
        let is_read = method == Method::GET;
        let range = if is_read { wanted_range(&headers, &tag, length)? } else { None };
        let (start, end) = range.unwrap_or((0, length));
        let body = if is_read {
            memory.leave();
            let place = app.exports.download(&caller.project).await?;
            let (db, longest) = (app.db.clone(), app.longest_statement);
            Download { db, longest, project: caller.project, id, start, end }.body(place)
        } else {
            Body::empty()
        };
        let mut response = Response::new(body);
        response.headers_mut().insert(header::CONTENT_LENGTH, (end - start).into());
        if range.is_some() {
            *response.status_mut() = StatusCode::PARTIAL_CONTENT;
            insert(&mut response, header::CONTENT_RANGE, &format!("bytes {start}-{}/{length}", end - 1))?;
        }
        insert(&mut response, header::CONTENT_TYPE, snapshot.file.media_type())?;
        response
    };
    insert(&mut response, header::ETAG, &tag)?;
    insert(&mut response, header::ACCEPT_RANGES, "bytes")?;
    insert(&mut response, header::CACHE_CONTROL, "private, immutable, max-age=31536000")?;
    let digest = hex(sha256).map(|bytes| format!("sha-256=:{}:", STANDARD.encode(bytes)));
    insert(&mut response, header::HeaderName::from_static("repr-digest"), &digest.unwrap_or_default())?;
    // The hash is that of the uncompressed bytes, so nothing may compress them on the way.
    response.extensions_mut().insert(PassedOn);
    Ok(response)
}

fn insert(response: &mut Response, name: header::HeaderName, value: &str) -> Result<()> {
    let value = HeaderValue::try_from(value).map_err(anyhow::Error::from)?;
    response.headers_mut().insert(name, value);
    Ok(())
}

fn hex(digits: &str) -> Option<Vec<u8>> {
    (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(digits.get(at..at + 2)?, 16).ok()).collect()
}

/// Returns the range of bytes that is requested, without its last one, unless the whole file is. Several ranges and
/// invalid ones are ignored, as RFC 9110 allows.
fn wanted_range(headers: &HeaderMap, tag: &str, length: u64) -> Result<Option<(u64, u64)>> {
    let Some(range) = headers.get(header::RANGE).and_then(|range| range.to_str().ok()) else {
        return Ok(None);
    };
    if headers.get(header::IF_RANGE).is_some_and(|known| known != tag) {
        return Ok(None);
    }
    let Ok(ranges) = parse_range_header(range) else { return Ok(None) };
    match ranges.validate(length).as_deref() {
        Ok([only]) => Ok(Some((*only.start(), only.end() + 1))),
        Ok(_) => Ok(None),
        Err(_) => Err(Error::Special(Box::new(Special {
            status: 416,
            kind: "range-not-satisfiable",
            title: "Range not satisfiable",
            detail: format!("the file has {length} bytes"),
            errors: Vec::new(),
            members: serde_json::Map::new(),
            retry_after_s: None,
            headers: vec![("content-range", format!("bytes */{length}"))],
        }))),
    }
}
