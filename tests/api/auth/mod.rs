//! Who may do what: keys and scopes, projects, the open server, sessions and their erasure.

mod audit;
mod keys;
mod open_server;
mod operations;
mod projects;
mod quotas;
mod sessions;
mod slow_bodies;

use axum::http::Method;
use serde_json::{Value, json};

use crate::support::{Answer, Service, with};

const LOGS: &str = "/v1/generations";

fn log() -> Value {
    json!({"user_intent": "Create a fund", "domain_name": "cbu"})
}

async fn call(service: &Service, key: &str, method: Method, path: &str, body: Option<Value>) -> Answer {
    let bearer = format!("Bearer {key}");
    service.call(method, path, &[("authorization", &bearer)], body.as_ref()).await
}

/// Makes a key; its secret and its id.
async fn make(service: &Service, key: &str, body: Value) -> (String, String) {
    let body = with(json!({"name": "k", "scopes": ["read"]}), &body);
    let made = call(service, key, Method::POST, "/v1/keys", Some(body)).await.expect(201);
    let text = |name: &str| made[name].as_str().expect("a text").to_owned();
    (text("key"), text("id"))
}
