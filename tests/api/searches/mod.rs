//! Searches: followed while they are weak, learned from when they are over; associations, their feed, expansions, figures.

mod associations;
mod changes;
mod exports;
mod hints;
mod races;
mod requests;
mod sessions;
mod weights;

use serde_json::{Value, json};

use crate::support::{Answer, Service, column, encoded};

/// A weak search of the session `s`, so many seconds after midnight.
fn weak(query: &str, at: i64) -> Value {
    json!({"query": query, "best_score": 0.42, "result_count": 1, "results": [{"path": "Button.tsx", "score": 0.42}],
        "agent_session_id": "s", "root": "/src/app", "timestamp": MIDNIGHT + at})
}

const MIDNIGHT: i64 = 1_767_225_600;

fn read(path: &str, at: i64) -> Value {
    json!({"kind": "read", "path": path, "timestamp": MIDNIGHT + at})
}

fn grep(pattern: &str, at: i64) -> Value {
    json!({"kind": "grep", "pattern": pattern, "timestamp": MIDNIGHT + at})
}

fn edit(path: &str, at: i64) -> Value {
    json!({"kind": "edit", "path": path, "timestamp": MIDNIGHT + at})
}

async fn start(service: &Service, search: Value) -> String {
    format!("/v1/searches/{}", service.create("/v1/searches", search).await)
}

async fn append(service: &Service, search: &str, fallback: &Value) -> Answer {
    service.post(&format!("{search}/fallbacks"), fallback).await
}

async fn resolve(service: &Service, search: &str, at: i64) -> Value {
    service.post(&format!("{search}/resolve"), &json!({"timestamp": MIDNIGHT + at})).await.expect(200)
}

/// Searches, reads these files a second after each other, and ends the turn.
async fn find(service: &Service, search: Value, files: &[&str]) -> Value {
    let at = search["timestamp"].as_i64().expect("a time") - MIDNIGHT;
    let search = start(service, search).await;
    for (after, file) in (1..).zip(files) {
        append(service, &search, &read(file, at + after)).await.expect(201);
    }
    resolve(service, &search, at + 30).await
}

async fn associations(service: &Service, query: &str) -> Vec<Value> {
    let found = service.get(&format!("/v1/associations?query={}", encoded(query))).await.expect(200);
    found["data"].as_array().expect("data").clone()
}

async fn paths(service: &Service, query: &str) -> Vec<Value> {
    column(&associations(service, query).await, "path")
}
