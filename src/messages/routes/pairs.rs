//! The endpoints of message pairs and topics.

use axum::extract::State;
use axum::http::StatusCode;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use super::{Erased, erase};
use crate::auth::{Admin, Caller, Read};
use crate::error::{Error, Refusals, Result};
use crate::http::memory::Memory;
use crate::http::page::{List, NoFilter, Page, PageParams};
use crate::http::reply::{Changed, Created, Prefer};
use crate::http::{ById, Json, Path};
use crate::messages::store::{self, ListFilter, Topic};
use crate::messages::{Event, NewPair, Pair, PairChange};
use crate::state::App;
use crate::writing::Writing;

/// Returns the endpoints of message pairs and topics.
pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(create_pair, list_pairs))
        .routes(routes!(get_pair, change_pair, delete_pair))
        .routes(routes!(list_topics))
}

/// Creates a message pair: a user's message and, if there is one already, the model's answer.
#[utoipa::path(post, path = "/v1/pairs", tag = "messages", params(Writing),
    request_body(content = NewPair, example = json!({
        "id": "01946983-4c40-7a1c-9d3e-5b0f6c2e8a71",
        "topic_id": "shell",
        "session_id": "my-session",
        "model": "gpt-4o-mini",
        "user_text": "How do I list files?",
        "assistant_text": "With `ls`.",
        "star": 2,
    })),
    responses(Created<Pair>, Refusals))]
async fn create_pair(writing: Writing, Json(new): Json<NewPair>) -> Result<Created<Pair>> {
    let event = Event::pair(new, writing.id("pairs", None));
    let id = event.id;
    let record = async |_| stored(&writing.app, &writing.caller.project, id, writing.memory()).await;
    writing.create(event, format!("/v1/pairs/{id}"), record).await
}

/// One page of message pairs.
type PairPage = Page<Pair>;

/// Lists message pairs, newest first unless `order` says otherwise.
#[utoipa::path(get, path = "/v1/pairs", tag = "messages", params(ListFilter, PageParams),
    responses((status = 200, description = "A page of pairs", body = PairPage), Refusals))]
async fn list_pairs(
    State(app): State<App>,
    caller: Caller<Read>,
    list: List<ListFilter>,
) -> Result<PairPage> {
    // What is stored is redacted, so it is found by what is left of the names.
    let (filter, _) = caller.tenant.redacted(list.filter.filter()).await;
    store::pairs(&app.db, &caller.project, &filter, list.filter.order(), &list.page).await
}

/// Returns a message pair.
#[utoipa::path(get, path = "/v1/pairs/{id}", tag = "messages", params(ById),
    responses((status = 200, description = "The pair", body = Pair), Refusals))]
async fn get_pair(
    State(app): State<App>,
    caller: Caller<Read>,
    memory: Memory,
    Path(ById { id }): Path<ById>,
) -> Result<axum::Json<Pair>> {
    stored(&app, &caller.project, id, &memory).await.map(axum::Json)
}

/// Changes a message pair.
///
/// Past sends of the pair still show the texts that were sent. A pair whose text changes loses its measured size, and
/// a pair that is given an answer becomes `complete`. Changing a pair that is being sent is a conflict.
#[utoipa::path(patch, path = "/v1/pairs/{id}", tag = "messages", params(ById, Prefer),
    request_body(content = PairChange, example = json!({"star": 3, "color_flag": "green"})),
    responses(Changed<Pair>, Refusals))]
async fn change_pair(
    writing: Writing,
    Path(ById { id }): Path<ById>,
    Json(change): Json<PairChange>,
) -> Result<Changed<Pair>> {
    let record = async |_| stored(&writing.app, &writing.caller.project, id, writing.memory()).await;
    writing.change(Event::edit(id, change), record).await
}

/// Erases a message pair with its texts, including those in sends. Statistics of sends stay.
///
/// A pair that is being sent is a conflict. A copy of its message in sends through the gateway is found by its content, so the
/// same message elsewhere in the session is erased from sends, too.
#[utoipa::path(delete, path = "/v1/pairs/{id}", tag = "messages",
    params(("id" = Uuid, Path, description = "The record's id.", example = "01946984-36a0-7b2e-8f41-c07d9e35a6b2")),
    responses((status = 204, description = "The record is erased"), Refusals))]
async fn delete_pair(
    State(app): State<App>,
    caller: Caller<Admin>,
    Path(ById { id }): Path<ById>,
) -> Result<StatusCode> {
    erase(&app, &caller, Erased::Pair, id).await
}

/// One page of topics.
type TopicPage = Page<Topic>;

/// Lists the topics of message pairs, the topic with the newest pair first. `since` and `until` apply to that newest
/// pair.
#[utoipa::path(get, path = "/v1/topics", tag = "messages", params(PageParams),
    responses((status = 200, description = "A page of topics", body = TopicPage), Refusals))]
async fn list_topics(
    State(app): State<App>,
    caller: Caller<Read>,
    list: List<NoFilter>,
) -> Result<TopicPage> {
    store::topics(&app.db, &caller.project, &list.page).await
}

async fn stored(app: &App, project: &str, id: Uuid, memory: &Memory) -> Result<Pair> {
    let reading = memory.reading_one();
    let read = async || store::pair(&mut *app.db.acquire().await?, project, id, &reading).await;
    reading.by(read).await?.ok_or(Error::NotFound("message pair"))
}
