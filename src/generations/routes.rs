//! How generation logs are reached.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use super::store::{self, Filter};
use super::{Attempt, Event, Generation, NewAttempt, NewGeneration, NewReview, Outcome};
use crate::auth::{Admin, Caller, Read, Write};
use crate::error::{Error, Refusals, Result};
use crate::http::page::{List, Page, PageParams};
use crate::http::reply::{NotKept, Prefer};
use crate::http::{ById, IdempotencyKey, Json, Path};
use crate::privacy::capture::Capture;
use crate::state::App;

/// The paths of generation logs.
pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(start, list))
        .routes(routes!(get, delete))
        .routes(routes!(append))
        .routes(routes!(finalize))
        .routes(routes!(review))
}

/// Starts a log.
///
/// Given `success`, the log is finished already and stored finalized, with its `iterations`, in one step.
#[utoipa::path(post, path = "/v1/generations", tag = "generations", request_body = NewGeneration,
    params(Prefer, IdempotencyKey),
    responses(
        (status = 201, description = "The log", body = Generation, headers(("Location" = String, description = "Its address"))),
        (status = 200, description = "It had been sent before; as it is now", body = Generation),
        NotKept,
        Refusals,
    ))]
async fn start(
    State(app): State<App>,
    caller: Caller<Write>,
    key: IdempotencyKey,
    prefer: Prefer,
    Json(new): Json<NewGeneration>,
) -> Result<Response> {
    let id = key.id(&caller.project, "generations", None);
    let event = Event::start(new, id);
    let id = event.generation_id;
    // Of a log that is open the answer is known beforehand, which saves reading it back.
    let open = event
        .as_start()
        .filter(|(_, start)| start.new.success.is_none() && !prefer.minimal())
        .map(|(id, start)| start.stored(id));
    let receipt = app.writer.write(&caller.tenant, event).await?;
    let body = async || match open {
        Some(log) if !receipt.replayed && receipt.kept == Capture::Full => Ok(log),
        _ => stored(&app, &caller.project, id).await,
    };
    prefer.created(receipt, address(id), body).await
}

/// Appends an attempt to an open log.
///
/// The same number with the same body is a replay, also after the log was finalized; with another body a conflict.
#[utoipa::path(post, path = "/v1/generations/{id}/attempts", tag = "generations", request_body = NewAttempt,
    params(ById, Prefer, IdempotencyKey),
    responses(
        (status = 201, description = "The attempt", body = Attempt, headers(("Location" = String, description = "Its log's address"))),
        (status = 200, description = "It had been sent before", body = Attempt),
        NotKept,
        Refusals,
    ))]
async fn append(
    State(app): State<App>,
    caller: Caller<Write>,
    key: IdempotencyKey,
    prefer: Prefer,
    Path(ById { id }): Path<ById>,
    Json(new): Json<NewAttempt>,
) -> Result<Response> {
    let attempt_id = key.id(&caller.project, "attempts", Some(id));
    let event = Event::append(id, new, attempt_id);
    let appended = event.as_append().filter(|_| !prefer.minimal()).map(|(_, append)| append.stored(0));
    let receipt = app.writer.write(&caller.tenant, event).await?;
    let number = receipt.number.unwrap_or_default();
    let body = async || match appended {
        Some(attempt) if !receipt.replayed && receipt.kept == Capture::Full => {
            Ok(Attempt { attempt: number, ..attempt })
        }
        _ => store::attempt(&app.db, &caller.project, id, number).await?.ok_or(Error::NotFound("attempt")),
    };
    prefer.created(receipt, address(id), body).await
}

/// Finalizes a log.
///
/// On success without `final_valid_dsl`, the program is that of the last attempt that passed.
#[utoipa::path(post, path = "/v1/generations/{id}/finalize", tag = "generations", params(ById, Prefer), request_body = Outcome,
    responses((status = 200, description = "The log, finalized", body = Generation), NotKept, Refusals))]
async fn finalize(
    State(app): State<App>,
    caller: Caller<Write>,
    prefer: Prefer,
    Path(ById { id }): Path<ById>,
    Json(outcome): Json<Outcome>,
) -> Result<Response> {
    change(&app, &caller, prefer, Event::finalize(id, outcome)).await
}

/// Reviews a log; a later review replaces an earlier one.
#[utoipa::path(put, path = "/v1/generations/{id}/review", tag = "generations", params(ById, Prefer), request_body = NewReview,
    responses((status = 200, description = "The log with its review", body = Generation), NotKept, Refusals))]
async fn review(
    State(app): State<App>,
    caller: Caller<Write>,
    prefer: Prefer,
    Path(ById { id }): Path<ById>,
    Json(review): Json<NewReview>,
) -> Result<Response> {
    change(&app, &caller, prefer, Event::review(id, review)).await
}

/// Writes what changes a log; the answer is the log with it.
async fn change(app: &App, caller: &Caller<Write>, prefer: Prefer, event: Event) -> Result<Response> {
    let id = event.generation_id;
    let receipt = app.writer.write(&caller.tenant, event).await?;
    prefer.changed(receipt, async || stored(app, &caller.project, id).await).await
}

/// The whole log, with its attempts as `iterations`.
#[utoipa::path(get, path = "/v1/generations/{id}", tag = "generations", params(ById),
    responses((status = 200, description = "The log", body = Generation), Refusals))]
async fn get(
    State(app): State<App>,
    caller: Caller<Read>,
    Path(ById { id }): Path<ById>,
) -> Result<axum::Json<Generation>> {
    stored(&app, &caller.project, id).await.map(axum::Json)
}

/// The logs, newest first, without their attempts.
#[utoipa::path(get, path = "/v1/generations", tag = "generations", params(Filter, PageParams),
    responses((status = 200, description = "A page of logs", body = Page<Generation>), Refusals))]
async fn list(State(app): State<App>, caller: Caller<Read>, list: List<Filter>) -> Result<Page<Generation>> {
    store::list(&app.db, &caller.project, &list.filter, &list.page).await
}

/// Erases a log with its attempts.
#[utoipa::path(delete, path = "/v1/generations/{id}", tag = "generations", params(ById),
    responses((status = 204, description = "It is erased"), Refusals))]
async fn delete(
    State(app): State<App>,
    caller: Caller<Admin>,
    Path(ById { id }): Path<ById>,
) -> Result<StatusCode> {
    match store::delete(&app.db, &caller.project, id).await?.generations {
        0 => Err(Error::NotFound("generation")),
        _ => Ok(StatusCode::NO_CONTENT),
    }
}

async fn stored(app: &App, project: &str, id: Uuid) -> Result<Generation> {
    store::get(&app.db, project, id).await?.ok_or(Error::NotFound("generation"))
}

fn address(id: Uuid) -> String {
    format!("/v1/generations/{id}")
}
