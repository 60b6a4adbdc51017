//! The endpoints of memories.

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
use crate::http::page::{List, Page, PageParams};
use crate::http::reply::{Changed, Created, Prefer};
use crate::http::{ById, Json, Path, memory};
use crate::memories::code::{Counts, NewCode};
use crate::memories::store::{self, Filter};
use crate::memories::{Event, Memory, MemoryChange, NewMemory};
use crate::state::App;
use crate::writing::Writing;

/// Returns the endpoints of memories.
pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(put_code))
        .routes(routes!(store_memory, list_memories))
        .routes(routes!(get_memory, change_memory, delete_memory))
}

/// Stores a memory, such as a decision, a finding or a piece of code.
#[utoipa::path(post, path = "/v1/memories", tag = "memories", params(Writing),
    request_body(content = NewMemory, examples(
        ("note" = (summary = "A decision", value = json!({
            "id": "01946983-4c40-7a1c-9d3e-5b0f6c2e8a71",
            "content": "AuthMiddleware refuses a JWT whose clock is ahead by more than 30 seconds.",
            "importance": 0.8,
            "tags": ["auth"],
            "root": "/home/jane/my-project",
            "session_id": "my-session",
        }))),
        ("code" = (summary = "A function", value = json!({
            "content": "def verify_jwt(token):\n    return jwt.decode(token, KEY, algorithms=[\"EdDSA\"])",
            "source_type": "code",
            "file_path": "src/auth.py",
            "symbol": "verify_jwt",
        }))),
    )),
    responses(Created<Memory>, Refusals))]
async fn store_memory(writing: Writing, Json(new): Json<NewMemory>) -> Result<Created<Memory>> {
    let event = Event::start(new, writing.id("memories", None));
    let id = event.id;
    let record = async |_| stored(&writing.app, &writing.caller.project, id, writing.memory()).await;
    writing.create(event, format!("/v1/memories/{id}"), record).await
}

/// Replaces the memories of one source file: its functions and other pieces, as memories whose `source_type` is
/// `code`.
///
/// A piece keeps its id and its time as long as its text is the same and nobody has changed it. An empty list means that the
/// file no longer exists. Memories about the file that were stored one by one are not changed.
#[utoipa::path(put, path = "/v1/memories/code", tag = "memories", params(Prefer),
    request_body(content = NewCode, example = json!({
        "root": "/home/jane/my-project",
        "path": "src/auth.py",
        "chunks": [{"symbol": "verify_jwt", "content": "def verify_jwt(token):\n    return jwt.decode(token, KEY)"}],
    })),
    responses(Changed<Counts>, Refusals))]
async fn put_code(writing: Writing, Json(new): Json<NewCode>) -> Result<Changed<Counts>> {
    let counts = async |receipt: Receipt| {
        let [added, unchanged, removed] = receipt.counts.unwrap_or_default();
        Ok(Counts { added, unchanged, removed })
    };
    writing.change(Event::replace(new), counts).await
}

/// One page of memories.
type MemoryPage = Page<Memory>;

/// Lists memories, newest first.
#[utoipa::path(get, path = "/v1/memories", tag = "memories", params(Filter, PageParams),
    responses((status = 200, description = "A page of memories", body = MemoryPage), Refusals))]
async fn list_memories(
    State(app): State<App>,
    caller: Caller<Read>,
    list: List<Filter>,
) -> Result<MemoryPage> {
    let (filter, _) = caller.tenant.redacted(list.filter).await;
    store::list(&app.db, &caller.project, &filter, &list.page).await
}

/// Returns a memory.
#[utoipa::path(get, path = "/v1/memories/{id}", tag = "memories", params(ById),
    responses((status = 200, description = "The memory", body = Memory), Refusals))]
async fn get_memory(
    State(app): State<App>,
    caller: Caller<Read>,
    memory: memory::Memory,
    Path(ById { id }): Path<ById>,
) -> Result<axum::Json<Memory>> {
    stored(&app, &caller.project, id, &memory).await.map(axum::Json)
}

/// Changes a memory. Searches and suggestions use the new content at once.
#[utoipa::path(patch, path = "/v1/memories/{id}", tag = "memories", params(ById, Prefer),
    request_body(content = MemoryChange, example = json!({"importance": 0.9, "tags": ["auth", "jwt"]})),
    responses(Changed<Memory>, Refusals))]
async fn change_memory(
    writing: Writing,
    Path(ById { id }): Path<ById>,
    Json(change): Json<MemoryChange>,
) -> Result<Changed<Memory>> {
    // The id of a piece of code follows from its place.
    let writing = writing.for_readers();
    let record = async |_| stored(&writing.app, &writing.caller.project, id, writing.memory()).await;
    writing.change(Event::change(id, change), record).await
}

/// Erases a memory, which is then never suggested again. Statistics of past suggestions stay.
#[utoipa::path(delete, path = "/v1/memories/{id}", tag = "memories",
    params(("id" = Uuid, Path, description = "The record's id.", example = "01946984-36a0-7b2e-8f41-c07d9e35a6b2")),
    responses((status = 204, description = "The record is erased"), Refusals))]
async fn delete_memory(
    State(app): State<App>,
    caller: Caller<Admin>,
    Path(ById { id }): Path<ById>,
) -> Result<StatusCode> {
    let erased = erasure::record(&app.db, &caller.tenant, &caller.actor(), &[Domain::Memories], id).await?;
    if erased.is_nothing() { Err(Error::NotFound("memory")) } else { Ok(StatusCode::NO_CONTENT) }
}

async fn stored(app: &App, project: &str, id: Uuid, memory: &memory::Memory) -> Result<Memory> {
    store::get(&app.db, project, id, memory).await?.ok_or(Error::NotFound("memory"))
}
