//! The endpoint of similar examples.

use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::auth::{Caller, Read};
use crate::error::{Refusals, Result};
use crate::generations::similar::{self, Example, Shape, Wanted};
use crate::http::Query;
use crate::http::memory::Memory;
use crate::state::App;

/// Returns the endpoint of similar examples.
pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(find_similar_generations))
}

/// The examples in the requested shape.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
#[schema(as = SolvedExamplesOrMessages)]
enum Found {
    Examples(Examples),
    Messages(Messages),
}

/// Solved examples.
#[derive(Serialize, ToSchema)]
#[schema(as = SolvedExamples)]
struct Examples {
    /// The examples, the most similar first. There is at most one example for each intent and program, and different
    /// programs come before similar ones.
    data: Vec<Example>,
}

/// Solved examples as a conversation that can be put into a prompt.
#[derive(Serialize, ToSchema)]
#[schema(as = ChatMessages)]
struct Messages {
    /// The examples, each as a user message with the intent and an assistant message with the program.
    messages: Vec<Message>,
}

/// A message of a conversation.
#[derive(Serialize, ToSchema)]
#[schema(as = ChatMessage)]
struct Message {
    /// The role of the author: `user` or `assistant`.
    role: &'static str,
    /// The text of the message.
    content: String,
}

/// Returns solved examples: logs with a similar intent that succeeded and were not rated `poor` by a reviewer.
#[utoipa::path(get, path = "/v1/generations/similar", tag = "generations", params(Wanted),
    responses((status = 200, description = "The examples, or chat messages with `format=messages`", body = Found), Refusals))]
async fn find_similar_generations(
    State(app): State<App>,
    caller: Caller<Read>,
    memory: Memory,
    Query(wanted): Query<Wanted>,
) -> Result<axum::Json<Found>> {
    let (wanted, _) = caller.tenant.redacted(wanted).await;
    let _place = app.similar.take(&caller.project, 1).await;
    let data = similar::find(&app.db, &app.samples, &caller.project, &wanted, &memory).await?;
    if wanted.format != Some(Shape::Messages) {
        return Ok(axum::Json(Found::Examples(Examples { data })));
    }
    let turns = data.into_iter().flat_map(|example| {
        [("user", example.user_intent), ("assistant", example.valid_dsl)]
            .map(|(role, content)| Message { role, content })
    });
    Ok(axum::Json(Found::Messages(Messages { messages: turns.collect() })))
}
