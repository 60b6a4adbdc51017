//! How suggestion records are reached.

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use super::store::{self, Extent, Filter};
use super::{
    Amendment, Event, HistoryLine, MatchType, Names, NewPartialInputs, NewSuggestion, NewViews, Outcome,
    Suggestion, is_history_line,
};
use crate::auth::{Admin, Caller, Read, Write};
use crate::error::{Error, Refusals, Result};
use crate::http::json::{self, JSON_LIMIT, expect_media_type};
use crate::http::page::{List, Page, PageParams};
use crate::http::reply::{NotKept, Prefer};
use crate::http::{ById, IdempotencyKey, Json, Path};
use crate::privacy::capture::Capture;
use crate::state::App;
use crate::types::ids::line_id;

/// The paths of suggestion records.
pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(start, list))
        .routes(routes!(get, amend, delete))
        .routes(routes!(view))
        .routes(routes!(partial_inputs))
        .routes(routes!(finalize))
        .routes(routes!(block_metadata))
}

/// A record that a command has discarded: nothing of it is kept but its name.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = DiscardedSuggestion)]
struct Discarded {
    /// Always `discarded`.
    state: super::State,
}

/// What a request to start or finalize a record is answered with.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
#[schema(as = SuggestionOrDiscarded)]
enum Answer {
    Record(Box<Suggestion>),
    Discarded(Discarded),
}

impl From<Suggestion> for Answer {
    fn from(record: Suggestion) -> Self {
        match record.state {
            super::State::Discarded => Self::Discarded(Discarded { state: record.state }),
            super::State::Pending | super::State::Finalized => Self::Record(Box::new(record)),
        }
    }
}

/// What a request to start a record may hold.
#[derive(ToSchema)]
#[serde(untagged)]
#[expect(
    dead_code,
    reason = "shown in the OpenAPI document; which one it is, is told by names before parsing"
)]
#[schema(as = SuggestionOrHistoryLine)]
enum Started {
    Slate(NewSuggestion),
    Line(HistoryLine),
}

/// Starts a record with a slate, as fetched.
///
/// Given `actual_input`, the record is finished already and stored finalized in one step. So is a line of the seed's
/// `suggestion_history.jsonl`, whose id is derived from its bytes. An input that begins with `:` discards the record.
#[utoipa::path(post, path = "/v1/suggestions", tag = "suggestions",
    request_body(content = Started, content_type = "application/json"),
    params(Prefer, IdempotencyKey),
    responses(
        (status = 201, description = "The record", body = Suggestion, headers(("Location" = String, description = "Its address"))),
        (status = 200, description = "It had been sent before; as it is now. Or it is discarded", body = Answer),
        NotKept,
        Refusals,
    ))]
async fn start(
    State(app): State<App>,
    caller: Caller<Write>,
    key: IdempotencyKey,
    prefer: Prefer,
    request: Request,
) -> Result<Response> {
    expect_media_type(request.headers(), &["application/json"])?;
    let mut body = json::body(request, JSON_LIMIT).await?;
    let key = key.id(&caller.project, "suggestions", None);
    let event = if str::from_utf8(&body.bytes).is_ok_and(is_history_line) {
        let id = key.unwrap_or_else(|| line_id(&caller.project, body.bytes.trim_ascii(), 1));
        Event::line(json::parse(&mut body.bytes, &body.replaced)?, id)
    } else {
        Event::start(json::parse(&mut body.bytes, &body.replaced)?, key)
    };
    let id = event.suggestion_id;
    let is_kept = event.as_start().is_none_or(|(_, start)| start.is_kept());
    // Of a record that is pending the answer is known beforehand, which saves reading it back.
    let pending = event
        .as_start()
        .filter(|(_, start)| start.conclusion.is_none() && !prefer.minimal())
        .map(|(id, start)| start.stored(id));
    let receipt = app.writer.write(&caller.tenant, event).await?;
    let body = async || match pending {
        Some(pending) if !receipt.replayed && receipt.kept == Capture::Full => Ok(pending.into()),
        _ => stored(&app, &caller.project, id, Extent::Whole).await.map(Answer::from),
    };
    if is_kept {
        prefer.created(receipt, address(id), body).await
    } else {
        // It has no address that a client would want.
        prefer.changed(receipt, body).await
    }
}

fn address(id: Uuid) -> String {
    format!("/v1/suggestions/{id}")
}

/// Appends looks at suggestions to a pending record.
///
/// They are kept as sent, and resolved in the order of `at`, then of arrival. Sent again with the same `id`, or as the
/// same move with the same `at`, a look counts once. The answer leaves out what lists leave out.
#[utoipa::path(post, path = "/v1/suggestions/{id}/views", tag = "suggestions", request_body = NewViews,
    params(ById, Prefer, IdempotencyKey),
    responses(
        (status = 201, description = "The record with them", body = Suggestion, headers(("Location" = String, description = "Its address"))),
        (status = 200, description = "They had been sent before", body = Suggestion),
        NotKept,
        Refusals,
    ))]
async fn view(
    State(app): State<App>,
    caller: Caller<Write>,
    key: IdempotencyKey,
    prefer: Prefer,
    Path(ById { id }): Path<ById>,
    Json(views): Json<NewViews>,
) -> Result<Response> {
    let key = key.id(&caller.project, "views", Some(id));
    append(&app, &caller, prefer, Event::view(id, views, Names::of_key(key))).await
}

/// Appends what was typed on the way to a pending record.
///
/// Sent again with the same `id`, or as the same text with the same `at`, it counts once.
#[utoipa::path(post, path = "/v1/suggestions/{id}/partial-inputs", tag = "suggestions", request_body = NewPartialInputs,
    params(ById, Prefer, IdempotencyKey),
    responses(
        (status = 201, description = "The record", body = Suggestion, headers(("Location" = String, description = "Its address"))),
        (status = 200, description = "They had been sent before", body = Suggestion),
        NotKept,
        Refusals,
    ))]
async fn partial_inputs(
    State(app): State<App>,
    caller: Caller<Write>,
    key: IdempotencyKey,
    prefer: Prefer,
    Path(ById { id }): Path<ById>,
    Json(inputs): Json<NewPartialInputs>,
) -> Result<Response> {
    let key = key.id(&caller.project, "partial-inputs", Some(id));
    append(&app, &caller, prefer, Event::partial_inputs(id, inputs, Names::of_key(key))).await
}

async fn append(app: &App, caller: &Caller<Write>, prefer: Prefer, event: Event) -> Result<Response> {
    let id = event.suggestion_id;
    let receipt = app.writer.write(&caller.tenant, event).await?;
    let body = async || stored(app, &caller.project, id, Extent::Listed).await;
    prefer.created(receipt, address(id), body).await
}

/// Finalizes a record with what the user submitted.
///
/// The match is worked out here: an exact one anywhere, else the longest suggestion that the input begins with, else one
/// that begins with the input. An input that begins with `:` discards the record.
#[utoipa::path(post, path = "/v1/suggestions/{id}/finalize", tag = "suggestions", params(ById, Prefer), request_body = Outcome,
    responses((status = 200, description = "The record, finalized; or that it is discarded", body = Answer), NotKept, Refusals))]
async fn finalize(
    State(app): State<App>,
    caller: Caller<Write>,
    prefer: Prefer,
    Path(ById { id }): Path<ById>,
    Json(outcome): Json<Outcome>,
) -> Result<Response> {
    change(&app, &caller, prefer, Event::finalize(id, outcome)).await
}

/// Writes what changes a record; the answer is the record with it.
async fn change(app: &App, caller: &Caller<Write>, prefer: Prefer, event: Event) -> Result<Response> {
    let id = event.suggestion_id;
    let receipt = app.writer.write(&caller.tenant, event).await?;
    let body = async || stored(app, &caller.project, id, Extent::Whole).await.map(Answer::from);
    prefer.changed(receipt, body).await
}

/// Adds the block that the input became, which is made after the submit.
#[utoipa::path(patch, path = "/v1/suggestions/{id}", tag = "suggestions", params(ById, Prefer), request_body = Amendment,
    responses((status = 200, description = "The record with it", body = Suggestion), NotKept, Refusals))]
async fn amend(
    State(app): State<App>,
    caller: Caller<Write>,
    prefer: Prefer,
    Path(ById { id }): Path<ById>,
    Json(amendment): Json<Amendment>,
) -> Result<Response> {
    change(&app, &caller, prefer, Event::amend(id, amendment)).await
}

/// The whole record, with its views and partial inputs.
#[utoipa::path(get, path = "/v1/suggestions/{id}", tag = "suggestions", params(ById),
    responses((status = 200, description = "The record", body = Suggestion), Refusals))]
async fn get(
    State(app): State<App>,
    caller: Caller<Read>,
    Path(ById { id }): Path<ById>,
) -> Result<axum::Json<Suggestion>> {
    stored(&app, &caller.project, id, Extent::Whole).await.map(axum::Json)
}

/// The records, newest first, without context, request, response, and the times of views.
#[utoipa::path(get, path = "/v1/suggestions", tag = "suggestions", params(Filter, PageParams),
    responses((status = 200, description = "A page of records", body = Page<Suggestion>), Refusals))]
async fn list(State(app): State<App>, caller: Caller<Read>, list: List<Filter>) -> Result<Page<Suggestion>> {
    store::list(&app.db, &caller.project, &list.filter, &list.page).await
}

/// What a client keeps with the block that the input became.
#[derive(Debug, Serialize, ToSchema)]
struct BlockMetadata {
    /// The texts offered.
    suggestions: Option<Vec<String>>,
    /// Which one the input relates to; null where to none.
    accepted_index: Option<i32>,
    /// How.
    match_type: Option<MatchType>,
    /// How many moves through the slate there were.
    cycle_count: i32,
    /// From the slate's coming up to the submit.
    time_to_action_ms: Option<f64>,
}

/// The light object that a client keeps with the block that the input became.
#[utoipa::path(get, path = "/v1/suggestions/{id}/block-metadata", tag = "suggestions", params(ById),
    responses((status = 200, description = "Of a finalized record", body = BlockMetadata), Refusals))]
async fn block_metadata(
    State(app): State<App>,
    caller: Caller<Read>,
    Path(ById { id }): Path<ById>,
) -> Result<axum::Json<BlockMetadata>> {
    let record = stored(&app, &caller.project, id, Extent::Listed).await?;
    if record.state != super::State::Finalized {
        return Err(Error::Conflict(format!("the suggestion {id} is not finalized")));
    }
    let Suggestion { suggestions, accepted_index, match_type, cycle_count, time_to_action_ms, .. } = record;
    Ok(axum::Json(BlockMetadata { suggestions, accepted_index, match_type, cycle_count, time_to_action_ms }))
}

/// Erases a record with all that belongs to it.
#[utoipa::path(delete, path = "/v1/suggestions/{id}", tag = "suggestions", params(ById),
    responses((status = 204, description = "It is erased"), Refusals))]
async fn delete(
    State(app): State<App>,
    caller: Caller<Admin>,
    Path(ById { id }): Path<ById>,
) -> Result<StatusCode> {
    match store::delete(&app.db, &caller.project, id).await?.suggestions {
        0 => Err(Error::NotFound("suggestion")),
        _ => Ok(StatusCode::NO_CONTENT),
    }
}

async fn stored(app: &App, project: &str, id: Uuid, extent: Extent) -> Result<Suggestion> {
    store::get(&app.db, project, id, extent).await?.ok_or(Error::NotFound("suggestion"))
}
