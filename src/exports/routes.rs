//! How exports are reached.

use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use flate2::Compression;
use flate2::write::GzEncoder;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::Write as _;
use std::task::Poll;
use tokio::sync::mpsc;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::params::{COMMON, Common};
use super::stream::Export;
use super::{CorrectionPairs, Listed, Records, SearchPairs, TrainingPairs};
use crate::app::App;
use crate::auth::{Caller, Read};
use crate::error::{Error, Refusals, Result};
use crate::extract::{Check, Checks, Path, from_pairs, query_pairs};
use axum::http::request::Parts;

/// The paths of exports.
pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(training_pairs))
        .routes(routes!(correction_pairs))
        .routes(routes!(search_pairs))
        .route("/v1/exports/{file}", axum::routing::get(by_file_name))
}

#[derive(Serialize, ToSchema)]
struct Datasets {
    data: Vec<Listed>,
}

/// The data sets with their formats, how many rows they have, and how many records lack the text they need.
#[utoipa::path(get, path = "/v1/exports", tag = "exports",
    responses((status = 200, description = "The data sets", body = Datasets), Refusals))]
async fn list(State(app): State<App>, caller: Caller<Read>) -> Result<axum::Json<Datasets>> {
    let data = vec![
        listed::<TrainingPairs>(&app, &caller.project).await?,
        listed::<CorrectionPairs>(&app, &caller.project).await?,
        listed::<SearchPairs>(&app, &caller.project).await?,
    ];
    Ok(axum::Json(Datasets { data }))
}

async fn listed<R: Records + Default>(app: &App, project: &str) -> Result<Listed> {
    let all = Export::prepare(&app.db, project, R::default(), Common::default()).await?;
    Ok(Listed { dataset: R::NAME, formats: R::FORMATS, rows: all.count(&app.db).await?, skipped: 0 })
}

/// Intent and program of every log that succeeded.
///
/// Formats: `openai` (default), `trl-prompt-completion`, `alpaca`, `rft`, `raw`. A review's `corrected_dsl` replaces the
/// program; `poor` without a correction is left out. Also under `/v1/exports/training-pairs.jsonl` and `.jsonl.gz`.
#[utoipa::path(get, path = "/v1/exports/training-pairs", tag = "exports", params(Common, TrainingPairs),
    responses((status = 200, description = "One JSON object a line", content_type = "application/x-ndjson", body = String,
        headers(("Gleaner-As-Of" = String, description = "The state of the data that is exported"),
            ("Gleaner-Next-Cursor" = String, description = "Where the next piece begins, if limit left any"))), Refusals))]
async fn training_pairs(State(app): State<App>, caller: Caller<Read>, request: Request) -> Result<Response> {
    answer::<TrainingPairs>(&app, &caller, request, false).await
}

/// Failed attempts with their errors, and the programs that fixed them.
///
/// Formats: `openai` (default), `trl-prompt-completion`, `trl-preference`, `openai-preference`, `trl-stepwise`, `raw`.
/// Only of logs that succeeded. Also under `/v1/exports/correction-pairs.jsonl` and `.jsonl.gz`.
#[utoipa::path(get, path = "/v1/exports/correction-pairs", tag = "exports", params(Common, CorrectionPairs),
    responses((status = 200, description = "One JSON object a line", content_type = "application/x-ndjson", body = String,
        headers(("Gleaner-As-Of" = String, description = "The state of the data that is exported"),
            ("Gleaner-Next-Cursor" = String, description = "Where the next piece begins, if limit left any"))), Refusals))]
async fn correction_pairs(
    State(app): State<App>,
    caller: Caller<Read>,
    request: Request,
) -> Result<Response> {
    answer::<CorrectionPairs>(&app, &caller, request, false).await
}

/// Queries that came back weak, the files that answered them, and the files that did not help.
///
/// Formats: `raw` (default: `query`, `path`, `unhelpful`, `root`), `triplets` (a row for each file that did not help). Only of
/// searches that were resolved; `split` goes by the agent's session. Also under `/v1/exports/search-pairs.jsonl` and
/// `.jsonl.gz`.
#[utoipa::path(get, path = "/v1/exports/search-pairs", tag = "exports", params(Common, SearchPairs),
    responses((status = 200, description = "One JSON object a line", content_type = "application/x-ndjson", body = String,
        headers(("Gleaner-As-Of" = String, description = "The state of the data that is exported"),
            ("Gleaner-Next-Cursor" = String, description = "Where the next piece begins, if limit left any"))), Refusals))]
async fn search_pairs(State(app): State<App>, caller: Caller<Read>, request: Request) -> Result<Response> {
    answer::<SearchPairs>(&app, &caller, request, false).await
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
struct ByFile {
    file: String,
}

/// The data sets by file name, for tools that look at the ending: `.jsonl`, and `.jsonl.gz` for a compressed file.
async fn by_file_name(
    State(app): State<App>,
    caller: Caller<Read>,
    Path(ByFile { file }): Path<ByFile>,
    request: Request,
) -> Result<Response> {
    let (dataset, zipped) = match (file.strip_suffix(".jsonl"), file.strip_suffix(".jsonl.gz")) {
        (Some(dataset), _) => (dataset, false),
        (_, Some(dataset)) => (dataset, true),
        _ => return Err(Error::NotFound("data set")),
    };
    match dataset {
        TrainingPairs::NAME => answer::<TrainingPairs>(&app, &caller, request, zipped).await,
        CorrectionPairs::NAME => answer::<CorrectionPairs>(&app, &caller, request, zipped).await,
        SearchPairs::NAME => answer::<SearchPairs>(&app, &caller, request, zipped).await,
        _ => Err(Error::NotFound("data set")),
    }
}

async fn answer<R: Records + DeserializeOwned + Check>(
    app: &App,
    caller: &Caller<Read>,
    request: Request,
    zipped: bool,
) -> Result<Response> {
    let (parts, _) = request.into_parts();
    let (common, records) = parameters::<R>(&parts)?;
    let place = app.exports.place().await?;
    let export = Export::prepare(&app.exports.db, &caller.project, records, common).await?;
    let as_of = export.as_of().to_string();
    let next_cursor = export.next_cursor.clone();
    let (sender, mut chunks) = mpsc::channel(4);
    let db = app.exports.db.clone();
    tokio::spawn(export.run(db, sender, place));
    let wants_jsonl = parts
        .headers
        .get(header::ACCEPT)
        .and_then(|accept| accept.to_str().ok())
        .is_some_and(|accept| accept.contains("application/jsonl"));
    let media_type = match (zipped, wants_jsonl) {
        (true, _) => "application/gzip",
        (false, true) => "application/jsonl",
        (false, false) => "application/x-ndjson",
    };
    if zipped {
        chunks = zip(chunks);
    }
    let mut ended = false;
    let body = Body::from_stream(futures_util::stream::poll_fn(move |context| {
        if ended {
            return Poll::Ready(None);
        }
        chunks.poll_recv(context).map(|chunk| {
            ended = chunk.as_ref().is_none_or(Bytes::is_empty);
            match chunk {
                Some(chunk) if !ended => Some(Ok(chunk)),
                Some(_) => None,
                None => Some(Err(anyhow::anyhow!("the export broke off"))),
            }
        })
    }));
    let mut response = ([(header::CONTENT_TYPE, media_type)], body).into_response();
    let headers = response.headers_mut();
    headers.insert("gleaner-as-of", HeaderValue::try_from(as_of).map_err(anyhow::Error::from)?);
    if let Some(cursor) = next_cursor {
        headers.insert("gleaner-next-cursor", HeaderValue::try_from(cursor).map_err(anyhow::Error::from)?);
    }
    Ok(response)
}

/// Compresses a stream of chunks. That takes the processor for milliseconds at a time: not on a thread that answers
/// requests.
fn zip(mut chunks: mpsc::Receiver<Bytes>) -> mpsc::Receiver<Bytes> {
    let (sender, zipped) = mpsc::channel(4);
    tokio::task::spawn_blocking(move || {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        while let Some(chunk) = chunks.blocking_recv() {
            if chunk.is_empty() {
                let rest = encoder.finish().unwrap_or_default();
                let _ = sender.blocking_send(rest.into());
                let _ = sender.blocking_send(chunk);
                return;
            }
            if encoder.write_all(&chunk).is_err() {
                return;
            }
            let packed = std::mem::take(encoder.get_mut());
            // The encoder holds back what it has not made up its mind about; an empty chunk would mean the end.
            if !packed.is_empty() && sender.blocking_send(packed.into()).is_err() {
                return;
            }
        }
    });
    zipped
}

/// The common parameters, and the data set's own.
fn parameters<R: DeserializeOwned + Check>(parts: &Parts) -> Result<(Common, R)> {
    let (common, own): (Vec<_>, Vec<_>) =
        query_pairs(parts).into_iter().partition(|(name, _)| COMMON.contains(&name.as_str()));
    Ok((from_pairs(&common)?, Checks::of(from_pairs(&own)?)?))
}
