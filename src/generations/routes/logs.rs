//! The endpoints of generation logs.

use axum::extract::State;
use axum::http::StatusCode;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use crate::auth::{Admin, Caller, Read};
use crate::db::receipt::Receipt;
use crate::domain::Domain;
use crate::erasure;
use crate::error::{Error, Refusals, Result};
use crate::generations::store::{self, Filter};
use crate::generations::{
    Amendment, Attempt, Event, Generation, NewAttempt, NewGeneration, NewReview, Outcome,
};
use crate::http::memory::Memory;
use crate::http::page::{List, Page, PageParams};
use crate::http::reply::{Changed, Created, Prefer};
use crate::http::{ById, Json, Path};
use crate::state::App;
use crate::writing::Writing;

/// Returns the endpoints of generation logs.
pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(start_generation, list_generations))
        .routes(routes!(get_generation, amend_generation, delete_generation))
        .routes(routes!(append_attempt))
        .routes(routes!(finalize_generation))
        .routes(routes!(review_generation))
}

/// Starts a generation log.
///
/// A body with `success` is a log that is already finished. It is stored with its `iterations` and finalized in one
/// step.
#[utoipa::path(post, path = "/v1/generations", tag = "generations", params(Writing),
    request_body(content = NewGeneration, examples(
        ("open" = (summary = "An open log", value = json!({
            "id": "01946983-4c40-7a1c-9d3e-5b0f6c2e8a71",
            "user_intent": "Create hedge fund with John as director",
            "domain_name": "cbu",
            "session_id": "my-session",
            "model_used": "claude-sonnet-4",
        }))),
        ("finished" = (summary = "A log that is already finished", value = json!({
            "id": "01946983-4c40-7a1c-9d3e-5b0f6c2e8a72",
            "user_intent": "Create pension fund in Luxembourg",
            "domain_name": "cbu",
            "iterations": [{
                "extracted_dsl": "(cbu.create :kind \"pension-fund\" :jurisdiction \"LU\")",
                "parse_result": {"success": true},
            }],
            "success": true,
        }))),
    )),
    responses(Created<Generation>, Refusals))]
async fn start_generation(writing: Writing, Json(new): Json<NewGeneration>) -> Result<Created<Generation>> {
    let event = Event::start(new, writing.id("generations", None));
    let id = event.generation_id;
    // The response about an open log is known beforehand, which saves reading the log back.
    let open = event
        .as_start()
        .filter(|(_, start)| start.new.success.is_none() && writing.shows_record())
        .map(|(id, start)| start.stored(id));
    let record = async |receipt: Receipt| match open {
        Some(log) if receipt.is_as_sent() => Ok(log),
        _ => stored(&writing.app, &writing.caller.project, id, writing.memory()).await,
    };
    writing.create(event, address(id), record).await
}

/// Appends an attempt to an open log.
///
/// Sending an attempt again with the same number and body changes nothing, even after the log was finalized. A
/// different body with the same number is a conflict.
#[utoipa::path(post, path = "/v1/generations/{id}/attempts", tag = "generations", params(ById, Writing),
    request_body(content = NewAttempt, example = json!({
        "attempt": 1,
        "prompt_template": "cbu_create",
        "prompt_template_version": 1,
        "prompt_text": "Write a program that does this: Create hedge fund with John as director",
        "raw_response": "```\n(cbu.create :kind \"hedge-fund\" :director \"John\")\n```",
        "extracted_dsl": "(cbu.create :kind \"hedge-fund\" :director \"John\")",
        "parse_result": {"success": true},
        "lint_result": {"valid": true, "warnings": ["no jurisdiction is given"]},
        "compile_result": {"success": true, "step_count": 2},
        "latency_ms": 812,
        "input_tokens": 900,
        "output_tokens": 120,
    })),
    responses(Created<Attempt>, Refusals))]
async fn append_attempt(
    writing: Writing,
    Path(ById { id }): Path<ById>,
    Json(new): Json<NewAttempt>,
) -> Result<Created<Attempt>> {
    let event = Event::append(id, new, writing.id("attempts", Some(id)));
    let appended = event.as_append().filter(|_| writing.shows_record()).map(|(_, append)| append.stored(0));
    let record = async |receipt: Receipt| {
        let number = receipt.number.unwrap_or_default();
        match appended {
            Some(attempt) if receipt.is_as_sent() => Ok(Attempt { attempt: number, ..attempt }),
            _ => store::attempt(&writing.app.db, &writing.caller.project, id, number, writing.memory())
                .await?
                .ok_or(Error::NotFound("attempt")),
        }
    };
    writing.create(event, address(id), record).await
}

/// Finalizes a generation log.
///
/// If a success has no `final_valid_dsl`, the program of the last attempt that passed is used.
#[utoipa::path(post, path = "/v1/generations/{id}/finalize", tag = "generations", params(ById, Prefer),
    request_body(content = Outcome, example = json!({"success": true, "instance_id": "cbu-7"})),
    responses(Changed<Generation>, Refusals))]
async fn finalize_generation(
    writing: Writing,
    Path(ById { id }): Path<ById>,
    Json(outcome): Json<Outcome>,
) -> Result<Changed<Generation>> {
    change(&writing, Event::finalize(id, outcome)).await
}

/// Reviews a generation log. A later review replaces an earlier one.
#[utoipa::path(put, path = "/v1/generations/{id}/review", tag = "generations", params(ById, Prefer),
    request_body(content = NewReview, example = json!({
        "rating": "good",
        "reviewer": "jane",
        "corrected_dsl": "(cbu.create :kind \"hedge-fund\" :director \"John\" :jurisdiction \"LU\")",
    })),
    responses(Changed<Generation>, Refusals))]
async fn review_generation(
    writing: Writing,
    Path(ById { id }): Path<ById>,
    Json(review): Json<NewReview>,
) -> Result<Changed<Generation>> {
    change(&writing, Event::review(id, review)).await
}

/// Sets fields of a generation log that became known later, such as where its program was persisted. The log may be
/// open or finalized.
///
/// A field in the body replaces the log's value, and `metadata` is replaced as a whole. Other fields stay as they
/// are. Sending the request again changes nothing.
#[utoipa::path(patch, path = "/v1/generations/{id}", tag = "generations", params(ById, Prefer),
    request_body(content = Amendment, example = json!({"instance_id": "cbu-7", "cbu_id": "cbu-7"})),
    responses(Changed<Generation>, Refusals))]
async fn amend_generation(
    writing: Writing,
    Path(ById { id }): Path<ById>,
    Json(amendment): Json<Amendment>,
) -> Result<Changed<Generation>> {
    change(&writing, Event::amend(id, amendment)).await
}

/// Writes an event that changes a log, and responds with the changed log.
async fn change(writing: &Writing, event: Event) -> Result<Changed<Generation>> {
    let id = event.generation_id;
    writing
        .change(event, async |_| stored(&writing.app, &writing.caller.project, id, writing.memory()).await)
        .await
}

/// Returns the whole generation log, with its attempts as `iterations`.
#[utoipa::path(get, path = "/v1/generations/{id}", tag = "generations", params(ById),
    responses((status = 200, description = "The log", body = Generation), Refusals))]
async fn get_generation(
    State(app): State<App>,
    caller: Caller<Read>,
    memory: Memory,
    Path(ById { id }): Path<ById>,
) -> Result<axum::Json<Generation>> {
    stored(&app, &caller.project, id, &memory).await.map(axum::Json)
}

/// One page of generation logs.
type GenerationPage = Page<Generation>;

/// Lists generation logs, newest first, without their attempts.
#[utoipa::path(get, path = "/v1/generations", tag = "generations", params(Filter, PageParams),
    responses((status = 200, description = "A page of logs", body = GenerationPage), Refusals))]
async fn list_generations(
    State(app): State<App>,
    caller: Caller<Read>,
    list: List<Filter>,
) -> Result<GenerationPage> {
    // What is stored is redacted, so it is found by what is left of the names.
    let (filter, _) = caller.tenant.redacted(list.filter).await;
    store::list(&app.db, &caller.project, &filter, &list.page).await
}

/// Erases a generation log with its attempts.
#[utoipa::path(delete, path = "/v1/generations/{id}", tag = "generations",
    params(("id" = Uuid, Path, description = "The record's id.", example = "01946984-36a0-7b2e-8f41-c07d9e35a6b2")),
    responses((status = 204, description = "The record is erased"), Refusals))]
async fn delete_generation(
    State(app): State<App>,
    caller: Caller<Admin>,
    Path(ById { id }): Path<ById>,
) -> Result<StatusCode> {
    let erased =
        erasure::record(&app.db, &caller.tenant, &caller.actor(), &[Domain::Generations], id).await?;
    if erased.is_nothing() { Err(Error::NotFound("generation")) } else { Ok(StatusCode::NO_CONTENT) }
}

async fn stored(app: &App, project: &str, id: Uuid, memory: &Memory) -> Result<Generation> {
    store::get(&app.db, project, id, memory).await?.ok_or(Error::NotFound("generation"))
}

fn address(id: Uuid) -> String {
    format!("/v1/generations/{id}")
}
