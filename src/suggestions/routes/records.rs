//! The endpoints of suggestion records.

use axum::extract::{Request, State};
use axum::http::StatusCode;
use serde::Serialize;
use utoipa::openapi::schema::AnyOfBuilder;
use utoipa::openapi::{Ref, RefOr, Schema};
use utoipa::{OpenApi, PartialSchema, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use crate::auth::{Admin, Caller, Read};
use crate::db::receipt::Receipt;
use crate::domain::Domain;
use crate::erasure;
use crate::error::{Error, Refusals, Result};
use crate::http::json::{self, JSON_LIMIT, expect_media_type};
use crate::http::memory::Memory;
use crate::http::page::{List, Page, PageParams};
use crate::http::reply::{Changed, Created, Prefer};
use crate::http::{ById, Json, Path};
use crate::state::App;
use crate::suggestions::signals::{self, SignalFilter};
use crate::suggestions::store::{self, Extent, Filter};
use crate::suggestions::{
    Amendment, Event, HistoryLine, MatchType, Names, NewPartialInputs, NewSuggestion, NewViews, Outcome,
    State as Progress, Suggestion, is_history_line,
};
use crate::types::ids::line_id;
use crate::writing::Writing;

/// Returns the endpoints of suggestion records.
pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::with_openapi(Answers::openapi())
        .routes(routes!(start_suggestion, list_suggestions))
        .routes(routes!(list_negative_signals))
        .routes(routes!(get_suggestion, amend_suggestion, delete_suggestion))
        .routes(routes!(append_views))
        .routes(routes!(append_partial_inputs))
        .routes(routes!(finalize_suggestion))
        .routes(routes!(get_block_metadata))
}

/// The schemas of responses to writes, which no other response has.
#[derive(OpenApi)]
#[openapi(components(schemas(Answer)))]
struct Answers;

/// A discarded record, of which only the id is stored.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = DiscardedSuggestion)]
struct Discarded {
    /// The state of the record, which is always `discarded`.
    #[schema(inline)]
    state: IsDiscarded,
}

/// The state of a discarded record.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum IsDiscarded {
    Discarded,
}

/// The response to a request that starts or finalizes a record.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
#[schema(as = SuggestionOrDiscarded)]
enum Answer {
    Record(Box<Suggestion>),
    Discarded(Discarded),
}

impl From<Suggestion> for Answer {
    fn from(record: Suggestion) -> Self {
        match record.state {
            Progress::Discarded => Self::Discarded(Discarded { state: IsDiscarded::Discarded }),
            Progress::Pending | Progress::Finalized => Self::Record(Box::new(record)),
        }
    }
}

/// The body of a request to start a record: a slate, or a line of the seed's history. Member names tell which
/// one it is before it is parsed. A body that has none of the names that only one of them has, fits both.
struct SlateOrLine;

impl PartialSchema for SlateOrLine {
    fn schema() -> RefOr<Schema> {
        AnyOfBuilder::new()
            .item(Ref::from_schema_name(NewSuggestion::name()))
            .item(Ref::from_schema_name(HistoryLine::name()))
            .description(Some("A slate of suggestions, or a line of `suggestion_history.jsonl`."))
            .into()
    }
}

impl ToSchema for SlateOrLine {
    fn name() -> std::borrow::Cow<'static, str> {
        "SuggestionOrHistoryLine".into()
    }

    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        schemas.push((NewSuggestion::name().into(), NewSuggestion::schema()));
        schemas.push((HistoryLine::name().into(), HistoryLine::schema()));
        NewSuggestion::schemas(schemas);
        HistoryLine::schemas(schemas);
    }
}

/// Starts a suggestion record with a slate.
///
/// A body with `actual_input` is a record that is already finished. It is stored and finalized in one step. The same
/// holds for a line of a `suggestion_history.jsonl`, whose id is derived from its bytes. A submitted text that begins
/// with `:` is a command and discards the record.
#[utoipa::path(post, path = "/v1/suggestions", tag = "suggestions", params(Writing),
    request_body(content = SlateOrLine, content_type = "application/json", examples(
        ("pending" = (summary = "A slate, as fetched", value = json!({
            "id": "01946983-4c40-7a1c-9d3e-5b0f6c2e8a71",
            "context": {
                "cwd": "/home/jane/my-project",
                "blocks": [{"number": 5, "input": "make test", "output": "2 tests failed"}],
            },
            "suggestions": ["@claude explain the failures", "@bash make test", "@bash git diff"],
            "llm_request": {
                "model": "claude-haiku-4",
                "temperature": 0.2,
                "messages": [{"role": "user", "content": "Suggest what to do after: make test"}],
            },
            "llm_response": {"model": "claude-haiku-4", "usage": {"input_tokens": 310, "output_tokens": 24}},
            "suggestion_node_version": "v1.0",
            "session_name": "my-session",
            "server_name": "local",
            "trigger_block_number": 5,
            "fetch_start_ts": 1_736_937_000.0,
            "fetch_end_ts": 1_736_937_000.4,
        }))),
        ("finished" = (summary = "A record that is already finished", value = json!({
            "id": "01946983-4c40-7a1c-9d3e-5b0f6c2e8a72",
            "context": {"cwd": "/home/jane/my-project"},
            "suggestions": ["git status", "git diff"],
            "viewed_indices": [0, 1],
            "actual_input": "git diff --stat",
        }))),
        ("line" = (summary = "A line of suggestion_history.jsonl", value = json!({
            "ts": 1_736_937_010.0,
            "session": "my-session",
            "server": "local",
            "trigger_block": 6,
            "result_block": 7,
            "context": {"cwd": "/home/jane/my-project"},
            "suggestions": ["git commit"],
            "viewed_indices": [0],
            "cycle_count": 0,
            "actual_input": "git commit",
            "match_type": "exact",
            "accepted_index": 0,
        }))),
    )),
    responses(Created<Answer>, Refusals))]
async fn start_suggestion(writing: Writing, request: Request) -> Result<Created<Answer>> {
    expect_media_type(request.headers(), &["application/json"])?;
    let body = json::body(request, JSON_LIMIT).await?;
    let key = writing.id("suggestions", None);
    let event = if str::from_utf8(&body.bytes).is_ok_and(is_history_line) {
        let id = key.unwrap_or_else(|| line_id(body.bytes.trim_ascii(), 1));
        Event::line(body.parse().await?, id)
    } else {
        Event::start(body.parse().await?, key)
    };
    let id = event.suggestion_id;
    // The address of a discarded record would be of no use to the client.
    let is_kept = event.as_start().is_none_or(|(_, start)| start.is_kept());
    // The response about a pending record is known beforehand, which saves reading the record back.
    let pending = event
        .as_start()
        .filter(|(_, start)| start.conclusion.is_none() && writing.shows_record())
        .map(|(id, start)| start.stored(id));
    let record = async |receipt: Receipt| match pending {
        Some(pending) if receipt.is_as_sent() => Ok(pending.into()),
        _ => stored(&writing.app, &writing.caller.project, id, Extent::Whole, writing.memory())
            .await
            .map(Answer::from),
    };
    writing.create(event, is_kept.then(|| address(id)), record).await
}

fn address(id: Uuid) -> String {
    format!("/v1/suggestions/{id}")
}

/// Appends views of suggestions to a pending record.
///
/// Views are ordered by `at`, or by arrival if they have no `at`. A view that is sent again with the same `id`, or as
/// the same move with the same `at`, counts once. The response has the same fields as an entry of a list. A record has at
/// most 1,000 views, and further ones are refused.
#[utoipa::path(post, path = "/v1/suggestions/{id}/views", tag = "suggestions", params(ById, Writing),
    request_body(content = NewViews, examples(
        ("one" = (summary = "One view", value = json!({"index": 1, "at": 1_736_937_001.5}))),
        ("several" = (summary = "Several views", value = json!({"views": [
            {"index": 2, "at": 1_736_937_002.1},
            {"direction": "next", "at": 1_736_937_003.0},
        ]}))),
    )),
    responses(Created<Suggestion>, Refusals))]
async fn append_views(
    writing: Writing,
    Path(ById { id }): Path<ById>,
    Json(views): Json<NewViews>,
) -> Result<Created<Suggestion>> {
    let names = Names::of_key(writing.id("views", Some(id)));
    append(&writing, Event::view(id, views, names)).await
}

/// Appends earlier contents of the input field to a pending record.
///
/// An input that is sent again with the same `id`, or as the same text with the same `at`, counts once.
#[utoipa::path(post, path = "/v1/suggestions/{id}/partial-inputs", tag = "suggestions", params(ById, Writing),
    request_body(content = NewPartialInputs, example = json!({"inputs": [
        {"text": "@cl", "at": 1_736_937_004.0},
        {"text": "@claude", "at": 1_736_937_004.6},
    ]})),
    responses(Created<Suggestion>, Refusals))]
async fn append_partial_inputs(
    writing: Writing,
    Path(ById { id }): Path<ById>,
    Json(inputs): Json<NewPartialInputs>,
) -> Result<Created<Suggestion>> {
    let names = Names::of_key(writing.id("partial-inputs", Some(id)));
    append(&writing, Event::partial_inputs(id, inputs, names)).await
}

/// Writes an event that appends to a record, and responds with the record.
async fn append(writing: &Writing, event: Event) -> Result<Created<Suggestion>> {
    let id = event.suggestion_id;
    let record =
        async |_| stored(&writing.app, &writing.caller.project, id, Extent::Listed, writing.memory()).await;
    writing.create(event, address(id), record).await
}

/// Finalizes a suggestion record with the text that the user submitted.
///
/// The server matches the text to the slate. It looks first for an equal suggestion, then for the longest suggestion
/// that the text begins with, and then for a suggestion that begins with the text. A text that begins with `:` is a
/// command and discards the record.
#[utoipa::path(post, path = "/v1/suggestions/{id}/finalize", tag = "suggestions", params(ById, Prefer),
    request_body(content = Outcome, example = json!({
        "actual_input": "@claude explain the failures",
        "displayed_index_at_submit": 0,
        "submit_ts": 1_736_937_005.2,
    })),
    responses(Changed<Answer>, Refusals))]
async fn finalize_suggestion(
    writing: Writing,
    Path(ById { id }): Path<ById>,
    Json(outcome): Json<Outcome>,
) -> Result<Changed<Answer>> {
    change(&writing, Event::finalize(id, outcome)).await
}

/// Sets the number of the block that the submitted text became, which is known only after the user has submitted.
#[utoipa::path(patch, path = "/v1/suggestions/{id}", tag = "suggestions", params(ById, Prefer),
    request_body(content = Amendment, example = json!({"result_block_number": 6})),
    responses(Changed<Suggestion>, Refusals))]
async fn amend_suggestion(
    writing: Writing,
    Path(ById { id }): Path<ById>,
    Json(amendment): Json<Amendment>,
) -> Result<Changed<Suggestion>> {
    change(&writing, Event::amend(id, amendment)).await
}

/// Writes an event that changes a record, and responds with the record.
async fn change<T: From<Suggestion>>(writing: &Writing, event: Event) -> Result<Changed<T>> {
    let id = event.suggestion_id;
    let record = async |_| {
        stored(&writing.app, &writing.caller.project, id, Extent::Whole, writing.memory()).await.map(T::from)
    };
    writing.change(event, record).await
}

/// Returns a suggestion record with its views and partial inputs.
#[utoipa::path(get, path = "/v1/suggestions/{id}", tag = "suggestions", params(ById),
    responses((status = 200, description = "The record", body = Suggestion), Refusals))]
async fn get_suggestion(
    State(app): State<App>,
    caller: Caller<Read>,
    memory: Memory,
    Path(ById { id }): Path<ById>,
) -> Result<axum::Json<Suggestion>> {
    stored(&app, &caller.project, id, Extent::Whole, &memory).await.map(axum::Json)
}

/// One page of suggestion records.
type SuggestionPage = Page<Suggestion>;

/// Lists suggestion records, newest first, without their context, request, response and view times.
#[utoipa::path(get, path = "/v1/suggestions", tag = "suggestions", params(Filter, PageParams),
    responses((status = 200, description = "A page of records", body = SuggestionPage), Refusals))]
async fn list_suggestions(
    State(app): State<App>,
    caller: Caller<Read>,
    list: List<Filter>,
) -> Result<SuggestionPage> {
    // What is stored is redacted, so it is found by what is left of the names.
    let (filter, _) = caller.tenant.redacted(list.filter).await;
    store::list(&app.db, &caller.project, &filter, &list.page).await
}

/// Lists finalized records that show a negative signal, newest first.
#[utoipa::path(get, path = "/v1/suggestions/negative-signals", tag = "suggestions", params(SignalFilter, PageParams),
    responses((status = 200, description = "A page of records", body = SuggestionPage), Refusals))]
async fn list_negative_signals(
    State(app): State<App>,
    caller: Caller<Read>,
    list: List<SignalFilter>,
) -> Result<SuggestionPage> {
    let (filter, _) = caller.tenant.redacted(list.filter).await;
    signals::list(&app.db, &caller.project, filter, &list.page).await
}

/// The metadata that a client stores with the block that the submitted text became.
#[derive(Debug, Serialize, ToSchema)]
struct BlockMetadata {
    /// The suggestions in the order in which they were offered.
    suggestions: Option<Vec<String>>,
    /// The index of the suggestion that the text matches. Null if it matches none.
    accepted_index: Option<i32>,
    /// How the submitted text matches the slate.
    match_type: Option<MatchType>,
    /// The number of moves through the slate.
    cycle_count: i32,
    /// The time between showing the slate and the user's submission, in milliseconds.
    time_to_action_ms: Option<f64>,
}

/// Returns a short form of the record, which a client can store with the block that the submitted text became.
#[utoipa::path(get, path = "/v1/suggestions/{id}/block-metadata", tag = "suggestions", params(ById),
    responses((status = 200, description = "The metadata of a finalized record", body = BlockMetadata), Refusals))]
async fn get_block_metadata(
    State(app): State<App>,
    caller: Caller<Read>,
    memory: Memory,
    Path(ById { id }): Path<ById>,
) -> Result<axum::Json<BlockMetadata>> {
    let record = stored(&app, &caller.project, id, Extent::Listed, &memory).await?;
    if record.state != Progress::Finalized {
        return Err(Error::Conflict(format!("the suggestion {id} is not finalized")));
    }
    let Suggestion { suggestions, accepted_index, match_type, cycle_count, time_to_action_ms, .. } = record;
    Ok(axum::Json(BlockMetadata { suggestions, accepted_index, match_type, cycle_count, time_to_action_ms }))
}

/// Erases a suggestion record with everything that belongs to it.
#[utoipa::path(delete, path = "/v1/suggestions/{id}", tag = "suggestions",
    params(("id" = Uuid, Path, description = "The record's id.", example = "01946984-36a0-7b2e-8f41-c07d9e35a6b2")),
    responses((status = 204, description = "The record is erased"), Refusals))]
async fn delete_suggestion(
    State(app): State<App>,
    caller: Caller<Admin>,
    Path(ById { id }): Path<ById>,
) -> Result<StatusCode> {
    let erased =
        erasure::record(&app.db, &caller.tenant, &caller.actor(), &[Domain::Suggestions], id).await?;
    if erased.is_nothing() { Err(Error::NotFound("suggestion")) } else { Ok(StatusCode::NO_CONTENT) }
}

async fn stored(app: &App, project: &str, id: Uuid, extent: Extent, memory: &Memory) -> Result<Suggestion> {
    store::get(&app.db, project, id, extent, memory).await?.ok_or(Error::NotFound("suggestion"))
}
