//! The gateway: what official clients send passes unchanged, and is kept.

mod conversation;
mod erasure;
mod keys;
mod outage;
mod passing;
mod races;
mod record;
mod refusals;
mod trimming;

use axum::body::Body;
use axum::http::{Method, header};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tower::ServiceExt as _;

use crate::support::provider::Asked;
use crate::support::{Answer, Service, request};

const CHAT: &str = "/openai/v1/chat/completions";
const RESPONSES: &str = "/openai/v1/responses";
const MESSAGES: &str = "/anthropic/v1/messages";

/// A request for each API that says `text` to a model of the provider.
fn bodies(text: &str) -> [(&'static str, Value); 3] {
    [
        (CHAT, json!({"model": "m", "messages": [{"role": "user", "content": text}]})),
        (RESPONSES, json!({"model": "m", "input": [{"role": "user", "content": text}]})),
        (
            MESSAGES,
            json!({"model": "claude", "max_tokens": 9, "messages": [{"role": "user", "content": text}]}),
        ),
    ]
}

/// A chat in which these texts were said in turn, by the user first.
fn chat(model: &str, texts: &[&str]) -> Value {
    let roles = ["user", "assistant"].into_iter().cycle();
    let messages = texts.iter().zip(roles).map(|(text, role)| json!({"role": role, "content": text}));
    json!({"model": model, "messages": messages.collect::<Vec<_>>()})
}

async fn call(service: &Service, path: &str, headers: &[(&str, &str)], body: &Value) -> Answer {
    service.call(Method::POST, path, headers, Some(body)).await
}

/// The newest send, whole.
async fn sent(service: &Service) -> Value {
    let newest = service.get("/v1/sends?limit=1").await.expect(200);
    let id = newest["data"][0]["id"].as_str().expect("a send").to_owned();
    service.get(&format!("/v1/sends/{id}")).await.expect(200)
}

/// Begins a request, on a task of its own; it has reached the provider.
async fn begun(
    service: &Service,
    asked: &Asked,
    path: &str,
    body: &Value,
) -> JoinHandle<axum::response::Response> {
    let request = request(Method::POST, path).header(header::CONTENT_TYPE, "application/json");
    let request = request.body(Body::from(body.to_string())).expect("a request");
    let router = service.router.clone();
    let task = tokio::spawn(async move { router.oneshot(request).await.expect("an answer") });
    asked.came.notified().await;
    task
}

/// A number that a statement counts.
async fn stored(service: &Service, sql: &'static str) -> i64 {
    sqlx::query_scalar(sql).fetch_one(service.pool()).await.expect("a count")
}

/// How many messages of conversations are kept with their text.
const MESSAGES_KEPT: &str = "select count(*) from sent_messages where message is not null";

/// The id in a member of a send.
fn id<'a>(send: &'a Value, name: &str) -> &'a str {
    send[name].as_str().expect("a text")
}
