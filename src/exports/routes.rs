//! How exports are reached.

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use flate2::Compression;
use flate2::write::GzEncoder;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::Write as _;
use tokio::sync::mpsc;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::params::{COMMON, Common};
use super::stream::Export;
use super::{CorrectionPairs, Listed, Records, TrainingPairs};
use crate::app::App;
use crate::auth::{Caller, Read};
use crate::error::{Error, Refusals, Result};
use crate::extract::{Check, Checks, Path, from_pairs, query_pairs};
use crate::page::cursor_scope;
use axum::http::request::Parts;

/// The paths of exports.
pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(training_pairs))
        .routes(routes!(correction_pairs))
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
        listed::<TrainingPairs>(&app, &caller.project, "training-pairs").await?,
        listed::<CorrectionPairs>(&app, &caller.project, "correction-pairs").await?,
    ];
    Ok(axum::Json(Datasets { data }))
}

async fn listed<R: Records + Default>(app: &App, project: &str, dataset: &'static str) -> Result<Listed> {
    let all = Export::prepare(&app.db, project, R::default(), Common::default(), [0; 8]).await?;
    Ok(Listed { dataset, formats: R::FORMATS, rows: all.count(&app.db).await?, skipped: 0 })
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
    answer::<TrainingPairs>(&app, &caller, request, "training-pairs", false).await
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
    answer::<CorrectionPairs>(&app, &caller, request, "correction-pairs", false).await
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
        "training-pairs" => answer::<TrainingPairs>(&app, &caller, request, "training-pairs", zipped).await,
        "correction-pairs" => {
            answer::<CorrectionPairs>(&app, &caller, request, "correction-pairs", zipped).await
        }
        _ => Err(Error::NotFound("data set")),
    }
}

async fn answer<R: Records + DeserializeOwned + Check>(
    app: &App,
    caller: &Caller<Read>,
    request: Request,
    dataset: &str,
    zipped: bool,
) -> Result<Response> {
    let (parts, _) = request.into_parts();
    let (common, records, scope) = parameters::<R>(&parts, dataset)?;
    let export = Export::prepare(&app.db, &caller.project, records, common, scope).await?;
    let as_of = export.as_of().to_string();
    let next_cursor = export.next_cursor.clone();
    let (sender, mut chunks) = mpsc::channel(4);
    tokio::spawn(export.run(app.db.clone(), sender));
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
    let body = if zipped {
        let (sender, mut zipped) = mpsc::channel::<anyhow::Result<bytes::Bytes>>(4);
        // Compressing takes the processor for milliseconds at a time: not on a thread that answers requests.
        tokio::task::spawn_blocking(move || {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
            while let Some(chunk) = chunks.blocking_recv() {
                let failed = chunk.is_err();
                let packed = chunk.and_then(|chunk| {
                    encoder.write_all(&chunk)?;
                    Ok(std::mem::take(encoder.get_mut()).into())
                });
                if sender.blocking_send(packed).is_err() || failed {
                    return;
                }
            }
            let _ = sender.blocking_send(encoder.finish().map(Into::into).map_err(Into::into));
        });
        Body::from_stream(futures_util::stream::poll_fn(move |context| zipped.poll_recv(context)))
    } else {
        Body::from_stream(futures_util::stream::poll_fn(move |context| chunks.poll_recv(context)))
    };
    let mut response = ([(header::CONTENT_TYPE, media_type)], body).into_response();
    let headers = response.headers_mut();
    headers.insert("gleaner-as-of", HeaderValue::try_from(as_of).map_err(anyhow::Error::from)?);
    if let Some(cursor) = next_cursor {
        headers.insert("gleaner-next-cursor", HeaderValue::try_from(cursor).map_err(anyhow::Error::from)?);
    }
    Ok(response)
}

/// The common parameters, the data set's own, and what binds a cursor to these conditions.
fn parameters<R: DeserializeOwned + Check>(parts: &Parts, dataset: &str) -> Result<(Common, R, [u8; 8])> {
    let (common, own): (Vec<_>, Vec<_>) =
        query_pairs(parts).into_iter().partition(|(name, _)| COMMON.contains(&name.as_str()));
    let free = ["limit", "cursor", "as_of", "format", "include"];
    let mut conditions: Vec<_> =
        common.iter().chain(&own).filter(|(name, _)| !free.contains(&name.as_str())).collect();
    conditions.sort();
    let scope = cursor_scope(dataset, &conditions);
    Ok((from_pairs(&common)?, Checks::of(from_pairs(&own)?)?, scope))
}
