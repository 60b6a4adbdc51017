//! The endpoints of sends.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use super::execute;
use super::{Erased, erase};
use crate::auth::keys::Scope;
use crate::auth::{Admin, Caller, Read};
use crate::db::receipt::Receipt;
use crate::error::{Error, Refusals, Result};
use crate::http::memory::Memory;
use crate::http::page::{List, Page, PageParams};
use crate::http::reply::{Changed, Created, Prefer};
use crate::http::{ById, Json, Path};
use crate::messages::store::{self, SendFilter};
use crate::messages::{AskedMode, AttemptAnswer, Cancellation, Event, NewAttempt, NewSend, Outcome, Send};
use crate::state::App;
use crate::writing::Writing;

/// Returns the endpoints of sends.
pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(start_send, list_sends))
        .routes(routes!(get_send, delete_send))
        .routes(routes!(append_send_attempt))
        .routes(routes!(finalize_send))
        .routes(routes!(cancel_send))
}

/// Creates a send: predicts which pairs fit, and creates a pair for the new message.
///
/// With `mode: record`, the client calls the provider itself, first with the `messages` of the response, and reports
/// the result of each call. A send that would exceed a quota of the model is rejected with 429. A send with `visible` or `reask_of` also needs the scope `read`. If the new message
/// alone exceeds the model's limit, the response is a 422 problem with the members `aut` and `max_context`. Nothing
/// is stored of a rejected send.
///
/// With `mode: execute`, Gleaner calls the provider and responds when the send has ended. The status is 201 even if
/// the send failed; `state` is then `error`. With `stream`, the response is a stream of server-sent events:
/// `attempt`, `delta`, `trimmed`, and finally `done` or `error` with the send. If the server is too busy to read the send
/// when it has ended, the last event has only the send's `id`, `state`, `assistant_text`, `error`, `usage`, `attempts_used` and
/// `trimmed_count`. A client that closes the connection cancels the send.
#[utoipa::path(post, path = "/v1/sends", tag = "messages", params(Writing),
    request_body(content = NewSend, example = json!({
        "mode": "record",
        "id": "01946983-4c40-7a1c-9d3e-5b0f6c2e8a71",
        "user_text": "And hidden ones?",
        "model": "gpt-4o-mini",
        "topic_id": "shell",
        "session_id": "my-session",
        "visible": {"filter": {"topic_id": "shell"}},
    })),
    responses(Created<Send>, Refusals))]
async fn start_send(writing: Writing, Json(new): Json<NewSend>) -> Result<Response> {
    if new.shows_pairs() {
        writing.caller.expect(Scope::Read)?;
    }
    if new.mode == AskedMode::Execute {
        return execute::start(writing, new).await;
    }
    let event = Event::send(new, writing.id("sends", None));
    let id = event.id;
    let record = async |_| stored(&writing.app, &writing.caller.project, id, writing.memory()).await;
    Ok(writing.create(event, address(id), record).await?.into_response())
}

/// Reports one provider call of a send with `mode: record`.
///
/// The response says what the client should do next. After an overflow, the oldest pair is dropped, and the remaining
/// pairs should be sent. Sending an attempt again with the same number or `Idempotency-Key` and the same body changes nothing,
/// even after the send was finalized.
#[utoipa::path(post, path = "/v1/sends/{id}/attempts", tag = "messages", params(ById, Writing),
    request_body(content = NewAttempt, example = json!({
        "attempt": 1,
        "usage": {"prompt_tokens": 96, "completion_tokens": 12},
        "latency_ms": 640,
    })),
    responses(Created<AttemptAnswer>, Refusals))]
async fn append_send_attempt(
    writing: Writing,
    Path(ById { id }): Path<ById>,
    Json(new): Json<NewAttempt>,
) -> Result<Created<AttemptAnswer>> {
    let record = async |receipt: Receipt| {
        let number = receipt.number.unwrap_or_default();
        let answer =
            store::attempt(&writing.app.db, &writing.caller.project, id, number, writing.memory()).await?;
        answer.ok_or(Error::NotFound("attempt"))
    };
    let event = Event::attempt(id, new, writing.id("send-attempts", Some(id)));
    writing.create(event, address(id), record).await
}

/// Ends a send with `mode: record`, with the model's answer or with an error.
///
/// A send without reported attempts counts as one attempt, and so does an answer after attempts that failed.
#[utoipa::path(post, path = "/v1/sends/{id}/finalize", tag = "messages", params(ById, Prefer),
    request_body(content = Outcome, example = json!({
        "assistant_text": "With `ls -a`.",
        "usage": {"prompt_tokens": 96, "completion_tokens": 12},
        "finish_reason": "stop",
    })),
    responses(Changed<Send>, Refusals))]
async fn finalize_send(
    writing: Writing,
    Path(ById { id }): Path<ById>,
    Json(outcome): Json<Outcome>,
) -> Result<Changed<Send>> {
    change(&writing, Event::end(id, outcome)).await
}

/// Cancels a send in progress. Its pair gets the state `error` with the kind `cancelled`.
///
/// A call of Gleaner's own ends at once, or within a few seconds if another server makes it.
/// Cancelling a send again changes nothing. Cancelling a send that has already ended is a conflict.
#[utoipa::path(post, path = "/v1/sends/{id}/cancel", tag = "messages",
    params(("id" = Uuid, Path, description = "The record's id.", example = "01946984-36a0-7b2e-8f41-c07d9e35a6b2"), Prefer),
    request_body(content = Cancellation, example = json!({"reason": "user"})),
    responses(Changed<Send>, Refusals))]
async fn cancel_send(
    writing: Writing,
    Path(ById { id }): Path<ById>,
    Json(cancellation): Json<Cancellation>,
) -> Result<Changed<Send>> {
    let reason = cancellation.reason.unwrap_or_default();
    let changed = change(&writing, Event::cancel(id, reason)).await?;
    writing.app.in_flight.cancel(&writing.caller.project, id, reason);
    Ok(changed)
}

/// Writes an event that changes a send, and responds with the changed send.
async fn change(writing: &Writing, event: Event) -> Result<Changed<Send>> {
    let id = event.id;
    writing
        .change(event, async |_| stored(&writing.app, &writing.caller.project, id, writing.memory()).await)
        .await
}

/// Returns a send with its messages, attempts and pair.
#[utoipa::path(get, path = "/v1/sends/{id}", tag = "messages", params(ById),
    responses((status = 200, description = "The send", body = Send), Refusals))]
async fn get_send(
    State(app): State<App>,
    caller: Caller<Read>,
    memory: Memory,
    Path(ById { id }): Path<ById>,
) -> Result<axum::Json<Send>> {
    stored(&app, &caller.project, id, &memory).await.map(axum::Json)
}

/// One page of sends.
type SendPage = Page<Send>;

/// Lists sends, newest first, without their messages, attempts and pairs.
#[utoipa::path(get, path = "/v1/sends", tag = "messages", params(SendFilter, PageParams),
    responses((status = 200, description = "A page of sends", body = SendPage), Refusals))]
async fn list_sends(
    State(app): State<App>,
    caller: Caller<Read>,
    list: List<SendFilter>,
) -> Result<SendPage> {
    // What is stored is redacted, so it is found by what is left of the names.
    let (filter, _) = caller.tenant.redacted(list.filter).await;
    store::list(&app.db, &caller.project, &filter, &list.page).await
}

/// Erases a send with its attempts. Its pair stays.
///
/// A send in progress is a conflict. Cancel it first.
#[utoipa::path(delete, path = "/v1/sends/{id}", tag = "messages",
    params(("id" = Uuid, Path, description = "The record's id.", example = "01946984-36a0-7b2e-8f41-c07d9e35a6b2")),
    responses((status = 204, description = "The record is erased"), Refusals))]
async fn delete_send(
    State(app): State<App>,
    caller: Caller<Admin>,
    Path(ById { id }): Path<ById>,
) -> Result<StatusCode> {
    erase(&app, &caller, Erased::Send, id).await
}

pub(super) async fn stored(app: &App, project: &str, id: Uuid, memory: &Memory) -> Result<Send> {
    store::get(&app.db, project, id, memory).await?.ok_or(Error::NotFound("send"))
}

pub(super) fn address(id: Uuid) -> String {
    format!("/v1/sends/{id}")
}
