//! The endpoints of conversations.

use axum::extract::State;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use crate::auth::keys::Scope;
use crate::auth::{Caller, Read};
use crate::error::{Error, Refusals, Result};
use crate::http::memory::Memory;
use crate::http::reply::{Changed, Created, Prefer};
use crate::http::{Json, Path};
use crate::memories::conversations::{self, Conversation};
use crate::memories::suggest::suggest;
use crate::memories::suggestion::{AnsweredQuery, NewSuggest};
use crate::memories::{BySession, ConversationQuery, Event, Judged, NewFeedback, NewQuery};
use crate::state::App;
use crate::types::derived_id;
use crate::writing::Writing;

/// Returns the endpoints of conversations.
pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(add_conversation_query))
        .routes(routes!(get_conversation))
        .routes(routes!(judge_memory))
}

/// Adds a query, which a person or an agent has just asked, to a conversation. With `suggest`, the response also has
/// the members of a response of the `suggest` endpoint.
#[utoipa::path(post, path = "/v1/conversations/{session_id}/queries", tag = "memories", params(BySession, Writing),
    request_body(content = NewQuery, example = json!({
        "query": "Why is my API returning 401?",
        "root": "/home/jane/my-project",
    })),
    responses(Created<AnsweredQuery>, Refusals))]
async fn add_conversation_query(
    writing: Writing,
    Path(BySession { session_id }): Path<BySession>,
    Json(new): Json<NewQuery>,
) -> Result<Created<AnsweredQuery>> {
    let suggests = new.suggest == Some(true);
    if suggests {
        writing.caller.expect(Scope::Read)?;
    }
    let session_id = writing.caller.tenant.redacted_name(session_id).await;
    let address = format!("/v1/conversations/{}", utf8_percent_encode(&session_id, NON_ALPHANUMERIC));
    let conversation = derived_id(&[b"conversation", session_id.as_bytes()]);
    let event = Event::ask(session_id.clone(), new, writing.id("conversation-queries", Some(conversation)));
    let event = event.by(writing.caller.key());
    let id = event.query_id().unwrap_or_default();
    let record = async |_| {
        let query = stored(&writing.app, &writing.caller.project, id, writing.memory()).await?;
        // A repeated query gets the same suggestions as the first time.
        let of_query = Some(derived_id(&[b"suggest", id.as_bytes()])).filter(|_| suggests);
        let (tenant, new) = (&writing.caller.tenant, NewSuggest::default());
        let suggestions = match of_query {
            Some(_) => Some(
                suggest(&writing.app, tenant, &session_id, &new, of_query, true, writing.memory()).await?,
            ),
            None => None,
        };
        Ok(AnsweredQuery::new(query, suggestions))
    };
    writing.create(event, address, record).await
}

/// Returns a conversation: its queries and the memories that were shown in it.
#[utoipa::path(get, path = "/v1/conversations/{session_id}", tag = "memories", params(BySession),
    responses((status = 200, description = "The conversation", body = Conversation), Refusals))]
async fn get_conversation(
    State(app): State<App>,
    caller: Caller<Read>,
    memory: Memory,
    Path(BySession { session_id }): Path<BySession>,
) -> Result<axum::Json<Conversation>> {
    let session_id = caller.tenant.redacted_name(session_id).await;
    let found = conversations::get(&app.db, &caller.project, &session_id, &memory).await?;
    found.map(axum::Json).ok_or(Error::NotFound("conversation"))
}

/// Reports whether a memory was useful in a conversation.
///
/// A dismissed memory is not suggested again in the conversation, and is less likely to be suggested in others. If
/// there are several verdicts, the last one counts.
#[utoipa::path(post, path = "/v1/conversations/{session_id}/feedback", tag = "memories", params(BySession, Prefer),
    request_body(content = NewFeedback, example = json!({
        "memory_id": "01946983-4c40-7a1c-9d3e-5b0f6c2e8a71",
        "verdict": "used",
    })),
    responses(Changed<Judged>, Refusals))]
async fn judge_memory(
    writing: Writing,
    Path(BySession { session_id }): Path<BySession>,
    Json(feedback): Json<NewFeedback>,
) -> Result<Changed<Judged>> {
    let memory = feedback.memory_id;
    let session_id = writing.caller.tenant.redacted_name(session_id).await;
    let event = Event::judge(session_id.clone(), &feedback);
    let record = async |_| {
        let judged =
            conversations::judged(&writing.app.db, &writing.caller.project, &session_id, memory).await?;
        judged.ok_or(Error::NotFound("memory"))
    };
    writing.change(event, record).await
}

async fn stored(app: &App, project: &str, id: Uuid, memory: &Memory) -> Result<ConversationQuery> {
    conversations::query(&app.db, project, id, memory).await?.ok_or(Error::NotFound("query"))
}
