//! Messages over HTTP: models, predictions, pairs, sends, and what is made of them.

mod execute;
mod exports;
mod models;
mod pairs;
mod predict;
mod quotas;
mod sends;
mod visible;

use axum::http::Method;
use serde_json::{Value, json};

use crate::support::{Answer, Service};

/// A service that knows the model `m`, which takes 400 tokens, of four characters each.
async fn service() -> Service {
    let service = Service::open().await;
    model(&service, "m", &json!({"context_window": 400, "chars_per_token": 4})).await;
    service
}

async fn model(service: &Service, name: &str, limits: &Value) {
    service.put(&format!("/v1/models/{name}"), limits).await.expect(201);
}

/// A completed pair of so many tokens of the model `m`.
fn pair(tokens: usize) -> Value {
    json!({"user_text": "u".repeat(2 * tokens), "assistant_text": "a".repeat(2 * tokens), "model": "m"})
}

async fn patch(service: &Service, path: &str, change: &Value) -> Answer {
    service.call(Method::PATCH, path, &[], Some(change)).await
}

/// The body of a send that the client performs.
fn recorded(text: &str, visible: &Value) -> Value {
    json!({"mode": "record", "model": "m", "user_text": text, "visible": visible})
}

/// An attempt that the provider refused because the context overflows.
fn overflow() -> Value {
    json!({"error": {"provider": "anthropic", "status": 400, "message": "prompt is too long: 500 tokens > 400 maximum"}})
}
