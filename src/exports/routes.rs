//! How exports are reached.

use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::task::Poll;
use tokio::sync::mpsc;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::compress::{Coding, compress};
use super::params::{COMMON, Common};
use super::stream::Export;
use super::{
    AcceptedSuggestions, CorrectionPairs, Listed, PreferencePairs, Rankings, Records, SearchPairs,
    SuggestionHistory, TrainingPairs,
};
use crate::auth::{Caller, Read};
use crate::error::{Error, Refusals, Result};
use crate::http::params::{from_pairs, query_pairs};
use crate::http::{Check, Checks, Path, line};
use crate::state::App;
use axum::http::request::Parts;

/// The paths of exports.
pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(list_datasets))
        .routes(routes!(export_training_pairs))
        .routes(routes!(export_correction_pairs))
        .routes(routes!(export_preference_pairs))
        .routes(routes!(export_accepted_suggestions))
        .routes(routes!(export_rankings))
        .routes(routes!(export_suggestion_history))
        .routes(routes!(export_search_pairs))
        .route("/v1/exports/{file}", axum::routing::get(by_file_name))
}

#[derive(Serialize, ToSchema)]
struct Datasets {
    data: Vec<Listed>,
}

/// The data sets with their formats, how many rows they have, and how many records lack the text they need.
#[utoipa::path(get, path = "/v1/exports", tag = "exports",
    responses((status = 200, description = "The data sets", body = Datasets), Refusals))]
async fn list_datasets(State(app): State<App>, caller: Caller<Read>) -> Result<axum::Json<Datasets>> {
    let data = vec![
        listed::<TrainingPairs>(&app, &caller.project).await?,
        listed::<CorrectionPairs>(&app, &caller.project).await?,
        listed::<PreferencePairs>(&app, &caller.project).await?,
        listed::<AcceptedSuggestions>(&app, &caller.project).await?,
        listed::<Rankings>(&app, &caller.project).await?,
        listed::<SuggestionHistory>(&app, &caller.project).await?,
        listed::<SearchPairs>(&app, &caller.project).await?,
    ];
    Ok(axum::Json(Datasets { data }))
}

async fn listed<R: Records + Default>(app: &App, project: &str) -> Result<Listed> {
    let all = Export::prepare(&app.db, project, R::default(), Common::default()).await?;
    let skipped = match R::SKIPPED {
        Some(sql) => sqlx::query_scalar(sql).bind(project).fetch_one(&app.db).await?,
        None => 0,
    };
    Ok(Listed { dataset: R::NAME, formats: R::FORMATS, rows: all.count(&app.db).await?, skipped })
}

/// Intent and program of every log that succeeded.
///
/// Formats: `openai` (default), `trl-prompt-completion`, `alpaca`, `rft`, `raw`. A review's `corrected_dsl` replaces the
/// program; `poor` without a correction is left out. Also under `/v1/exports/training-pairs.jsonl` and `.jsonl.gz`.
#[utoipa::path(get, path = "/v1/exports/training-pairs", tag = "exports", params(Common, TrainingPairs),
    responses((status = 200, description = "One JSON object a line", content((String = "application/x-ndjson"), (String = "application/jsonl"), (String = "text/plain")),
        headers(("Gleaner-As-Of" = String, description = "The state of the data that is exported"),
            ("Gleaner-Next-Cursor" = String, description = "Where the next piece begins, if limit left any"))), Refusals))]
async fn export_training_pairs(
    State(app): State<App>,
    caller: Caller<Read>,
    request: Request,
) -> Result<Response> {
    answer::<TrainingPairs>(&app, &caller, request, false).await
}

/// Failed attempts with their errors, and the programs that fixed them.
///
/// Formats: `openai` (default), `trl-prompt-completion`, `trl-preference`, `openai-preference`, `trl-stepwise`, `raw`.
/// Only of logs that succeeded. Also under `/v1/exports/correction-pairs.jsonl` and `.jsonl.gz`.
#[utoipa::path(get, path = "/v1/exports/correction-pairs", tag = "exports", params(Common, CorrectionPairs),
    responses((status = 200, description = "One JSON object a line", content((String = "application/x-ndjson"), (String = "application/jsonl"), (String = "text/plain")),
        headers(("Gleaner-As-Of" = String, description = "The state of the data that is exported"),
            ("Gleaner-Next-Cursor" = String, description = "Where the next piece begins, if limit left any"))), Refusals))]
async fn export_correction_pairs(
    State(app): State<App>,
    caller: Caller<Read>,
    request: Request,
) -> Result<Response> {
    answer::<CorrectionPairs>(&app, &caller, request, false).await
}

/// What users chose over suggestions that they had seen and passed over: one row a pair, never one that was not viewed.
///
/// Formats: `trl-preference` (default), `openai-preference`, `trl-kto` (one row a text, chosen or rejected), `raw`. The
/// prompt is what the model was told: `llm_request.messages`, else the context as one user message. Only exact matches,
/// if `match_type` is not given; with others, chosen is what was typed. Also under `/v1/exports/preference-pairs.jsonl`
/// and `.jsonl.gz`.
#[utoipa::path(get, path = "/v1/exports/preference-pairs", tag = "exports", params(Common, PreferencePairs),
    responses((status = 200, description = "One row a line", content((String = "application/x-ndjson"), (String = "application/jsonl"), (String = "text/plain")),
        headers(("Gleaner-As-Of" = String, description = "The state of the data that is exported"),
            ("Gleaner-Next-Cursor" = String, description = "Where the next piece begins, if limit left any"))), Refusals))]
async fn export_preference_pairs(
    State(app): State<App>,
    caller: Caller<Read>,
    request: Request,
) -> Result<Response> {
    answer::<PreferencePairs>(&app, &caller, request, false).await
}

/// What the model was told, and the suggestion that was accepted.
///
/// Formats: `openai` (default), `trl-prompt-completion`, `alpaca`, `raw`. Only exact matches, if `match_type` is not
/// given; with others, the answer is what was typed. Also under `/v1/exports/accepted-suggestions.jsonl` and `.jsonl.gz`.
#[utoipa::path(get, path = "/v1/exports/accepted-suggestions", tag = "exports", params(Common, AcceptedSuggestions),
    responses((status = 200, description = "One row a line", content((String = "application/x-ndjson"), (String = "application/jsonl"), (String = "text/plain")),
        headers(("Gleaner-As-Of" = String, description = "The state of the data that is exported"),
            ("Gleaner-Next-Cursor" = String, description = "Where the next piece begins, if limit left any"))), Refusals))]
async fn export_accepted_suggestions(
    State(app): State<App>,
    caller: Caller<Read>,
    request: Request,
) -> Result<Response> {
    answer::<AcceptedSuggestions>(&app, &caller, request, false).await
}

/// Slates with grades: 2 for an exact match, 1 for a partial one or a prefix, 0 for what was viewed and passed over. What
/// was not viewed has no grade and is left out.
///
/// Formats: `letor` (default), `lightgbm-tsv`, `vw-dsjson`, `raw`. `vw-dsjson` has only slates with logged propensities,
/// unless `assume_uniform=true`. Also under `/v1/exports/rankings.jsonl` and `.jsonl.gz`.
#[utoipa::path(get, path = "/v1/exports/rankings", tag = "exports", params(Common, Rankings),
    responses((status = 200, description = "One row a line", content((String = "application/x-ndjson"), (String = "application/jsonl"), (String = "text/plain")),
        headers(("Gleaner-As-Of" = String, description = "The state of the data that is exported"),
            ("Gleaner-Next-Cursor" = String, description = "Where the next piece begins, if limit left any"))), Refusals))]
async fn export_rankings(State(app): State<App>, caller: Caller<Read>, request: Request) -> Result<Response> {
    answer::<Rankings>(&app, &caller, request, false).await
}

/// Finalized records as self-contained lines of the seed's `suggestion_history.jsonl`: `gleaner import` and
/// `POST /v1/events` take them back.
///
/// Format: `raw`. What a client reported itself stands there as reported. Also under
/// `/v1/exports/suggestion-history.jsonl` and `.jsonl.gz`.
#[utoipa::path(get, path = "/v1/exports/suggestion-history", tag = "exports", params(Common, SuggestionHistory),
    responses((status = 200, description = "One row a line", content((String = "application/x-ndjson"), (String = "application/jsonl"), (String = "text/plain")),
        headers(("Gleaner-As-Of" = String, description = "The state of the data that is exported"),
            ("Gleaner-Next-Cursor" = String, description = "Where the next piece begins, if limit left any"))), Refusals))]
async fn export_suggestion_history(
    State(app): State<App>,
    caller: Caller<Read>,
    request: Request,
) -> Result<Response> {
    answer::<SuggestionHistory>(&app, &caller, request, false).await
}

/// Queries that came back weak, the files that answered them, and the files that did not help.
///
/// Formats: `raw` (default: `query`, `path`, `unhelpful`, `root`), `triplets` (a row for each file that did not help). Only of
/// searches that were resolved; `split` goes by the agent's session. Also under `/v1/exports/search-pairs.jsonl` and
/// `.jsonl.gz`.
#[utoipa::path(get, path = "/v1/exports/search-pairs", tag = "exports", params(Common, SearchPairs),
    responses((status = 200, description = "One JSON object a line", content((String = "application/x-ndjson"), (String = "application/jsonl"), (String = "text/plain")),
        headers(("Gleaner-As-Of" = String, description = "The state of the data that is exported"),
            ("Gleaner-Next-Cursor" = String, description = "Where the next piece begins, if limit left any"))), Refusals))]
async fn export_search_pairs(
    State(app): State<App>,
    caller: Caller<Read>,
    request: Request,
) -> Result<Response> {
    answer::<SearchPairs>(&app, &caller, request, false).await
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
struct ByFile {
    file: String,
}

impl Check for ByFile {}

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
        PreferencePairs::NAME => answer::<PreferencePairs>(&app, &caller, request, zipped).await,
        AcceptedSuggestions::NAME => answer::<AcceptedSuggestions>(&app, &caller, request, zipped).await,
        Rankings::NAME => answer::<Rankings>(&app, &caller, request, zipped).await,
        SuggestionHistory::NAME => answer::<SuggestionHistory>(&app, &caller, request, zipped).await,
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
    let format = export.media_type();
    let (sender, mut chunks) = mpsc::channel(4);
    tokio::spawn(app.exports.clone().run(export, sender, place));
    let media_type = match (zipped, format) {
        (true, _) => "application/gzip",
        (false, Some(own)) => own,
        (false, None) => line::accepted(&parts.headers),
    };
    let coding = if zipped { None } else { Coding::accepted(&parts.headers) };
    if let Some(coding) = coding.or(zipped.then_some(Coding::Gzip)) {
        chunks = compress(coding, chunks);
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
    headers.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
    if let Some(coding) = coding {
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static(coding.name()));
    }
    headers.insert("gleaner-as-of", HeaderValue::try_from(as_of).map_err(anyhow::Error::from)?);
    if let Some(cursor) = next_cursor {
        headers.insert("gleaner-next-cursor", HeaderValue::try_from(cursor).map_err(anyhow::Error::from)?);
    }
    Ok(response)
}

/// The common parameters, and the data set's own.
fn parameters<R: DeserializeOwned + Check>(parts: &Parts) -> Result<(Common, R)> {
    let (common, own): (Vec<_>, Vec<_>) =
        query_pairs(parts).into_iter().partition(|(name, _)| COMMON.contains(&name.as_str()));
    Ok((from_pairs(&common)?, Checks::of(from_pairs(&own)?)?))
}
