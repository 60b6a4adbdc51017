//! The endpoint that suggests memories, files and examples for a conversation.

use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::auth::{Caller, Read};
use crate::error::{Refusals, Result};
use crate::generations::similar::{self, Example};
use crate::http::memory::Memory;
use crate::http::{IdempotencyKey, Json, Path};
use crate::memories::suggestion::{NewSuggest, SuggestionResponse};
use crate::memories::{BySession, conversations, event, suggest};
use crate::searches::associations::{self, Association};
use crate::searches::rules::repository::repository;
use crate::state::App;

/// The maximum number of examples in a response.
const MOST_EXAMPLES: i64 = 3;
/// The minimum similarity of these examples.
const LEAST_SIMILARITY: f64 = 0.2;
/// The maximum number of files in a response.
const MOST_FILES: i64 = 5;

/// Returns the endpoint.
pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(suggest_memories))
}

/// The suggestions for a conversation.
#[derive(Debug, Serialize, ToSchema)]
struct ConversationHelp {
    #[serde(flatten)]
    suggestions: SuggestionResponse,
    /// With `include_examples`, logs that succeeded and whose intent is similar to the last query.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    examples: Option<Vec<Example>>,
    /// With `include_files`, files that answered searches similar to the last query.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    files: Option<Vec<Association>>,
}

/// Suggests memories that are relevant to a conversation.
///
/// Suggested memories count as shown and are not suggested again in the conversation. A conversation without queries
/// gets no suggestions. With an `id` or an `Idempotency-Key`, the request can be sent again if its response was lost.
/// For a key without the scope `write`, nothing is recorded, as with `peek`.
#[utoipa::path(post, path = "/v1/conversations/{session_id}/suggest", tag = "memories", params(BySession, IdempotencyKey),
    request_body(content = NewSuggest, example = json!({"max_suggestions": 3, "confidence_threshold": 0.5})),
    responses((status = 200, description = "The suggestions", body = ConversationHelp), Refusals))]
async fn suggest_memories(
    State(app): State<App>,
    caller: Caller<Read>,
    key: IdempotencyKey,
    memory: Memory,
    Path(BySession { session_id }): Path<BySession>,
    Json(new): Json<NewSuggest>,
) -> Result<axum::Json<ConversationHelp>> {
    let session_id = caller.tenant.redacted_name(session_id).await;
    let parent = event::conversation(&session_id);
    let id = caller.tenant.id_of(&key, "suggest", Some(parent));
    let records = caller.may_write();
    let suggestions = suggest::suggest(&app, &caller.tenant, &session_id, &new, id, records, &memory).await?;
    let (mut examples, mut files) = (None, None);
    if new.includes_more() {
        let last = conversations::last_query(&app.db, &caller.project, &session_id).await?;
        let (query, root) = last.unwrap_or_default();
        if new.include_examples == Some(true) {
            examples = Some(find_examples(&app, &caller, &query, &memory).await?);
        }
        if new.include_files == Some(true) {
            files = Some(find_files(&app, &caller, &query, root.as_deref()).await?);
        }
    }
    Ok(axum::Json(ConversationHelp { suggestions, examples, files }))
}

async fn find_examples(
    app: &App,
    caller: &Caller<Read>,
    query: &str,
    memory: &Memory,
) -> Result<Vec<Example>> {
    if query.is_empty() {
        return Ok(Vec::new());
    }
    let _place = app.similar.take(&caller.project, 1).await;
    let wanted = similar::Wanted::of(query.to_owned(), MOST_EXAMPLES, LEAST_SIMILARITY);
    similar::find(&app.db, &app.samples, &caller.project, &wanted, memory).await
}

async fn find_files(
    app: &App,
    caller: &Caller<Read>,
    query: &str,
    root: Option<&str>,
) -> Result<Vec<Association>> {
    if query.is_empty() {
        return Ok(Vec::new());
    }
    let query: String = query.chars().take(2_000).collect();
    let _place = app.similar.take(&caller.project, 1).await;
    let rules = &caller.tenant.rules;
    let repository = root.map(repository);
    let repository = repository.as_deref();
    associations::find(&app.db, &app.samples, &caller.project, &query, repository, MOST_FILES, rules).await
}
