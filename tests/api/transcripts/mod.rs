//! Transcripts and hooks: what agents write of their work, in any pieces, learned from once.

mod agents;
mod codex;
mod forks_and_corrections;
mod hooks;
mod lines;

use axum::body::Body;
use serde_json::{Value, json};

use crate::support::{Service, column, encoded};

/// A line of a Claude Code transcript, so many seconds after ten.
fn line(kind: &str, at: u32, content: &Value) -> Value {
    json!({"type": kind, "sessionId": "s", "cwd": "/src/app", "timestamp": time(at),
        "message": {"role": kind, "content": content}})
}

fn time(at: u32) -> String {
    format!("2026-03-01T10:{:02}:{:02}.000Z", at / 60, at % 60)
}

fn prompt(at: u32, text: &str) -> Value {
    line("user", at, &json!(text))
}

fn uses(at: u32, id: &str, tool: &str, input: &Value) -> Value {
    line("assistant", at, &json!([{"type": "tool_use", "id": id, "name": tool, "input": input}]))
}

fn answers(at: u32, id: &str, content: &Value) -> Value {
    line("user", at, &json!([{"type": "tool_result", "tool_use_id": id, "content": content}]))
}

/// A use of a tool, and a second later its result.
fn call(at: u32, id: &str, tool: &str, input: &Value, content: &Value) -> [Value; 2] {
    [uses(at, id, tool, input), answers(at + 1, id, content)]
}

fn reads(at: u32, id: &str, file: &str) -> [Value; 2] {
    call(at, id, "Read", &json!({"file_path": file}), &json!("1\tthe file"))
}

/// A session in which an index knows only the wrong file, and the right one is found by hand, and edited.
fn session() -> Vec<Value> {
    let results = json!({"results": [{"path": "Button.tsx", "score": 0.42}]});
    let found = json!([{"type": "text", "text": results.to_string()}]);
    let mut lines =
        vec![json!({"type": "summary", "summary": "Styling"}), prompt(0, "find the login button component")];
    lines.extend(call(
        2,
        "t1",
        "mcp__ultrasync__jit_search",
        &json!({"query": "login button component"}),
        &found,
    ));
    lines.extend(call(
        4,
        "t2",
        "Grep",
        &json!({"pattern": "login.*button"}),
        &json!("Found 1 file\nsrc/auth/LoginButton.tsx"),
    ));
    lines.extend(reads(6, "t3", "/src/app/src/auth/LoginButton.tsx"));
    lines.push(prompt(90, "great, now update the styling"));
    lines.push(json!({"type": "file-history-snapshot", "snapshot": {}}));
    lines
}

fn text(lines: &[Value]) -> String {
    lines.iter().map(Value::to_string).collect::<Vec<_>>().join("\n") + "\n"
}

async fn send(service: &Service, source: &str, body: impl Into<Body>) -> Value {
    let path = format!("/v1/transcripts?agent=claude-code&source={}", encoded(source));
    service.post_text(&path, "application/x-ndjson", body).await.expect(200)
}

async fn hook(service: &Service, payload: &Value) {
    let answer = service.post("/v1/hooks/claude-code", payload).await;
    assert_eq!(answer.expect(200), json!({}));
}

async fn found(service: &Service, query: &str) -> Vec<Value> {
    let answer = service.get(&format!("/v1/associations?query={}", encoded(query))).await.expect(200);
    column(answer["data"].as_array().expect("data"), "path")
}

/// Everything that was learned, without what depends on when it was received.
async fn learned(service: &Service) -> Vec<Value> {
    let mut searches = Vec::new();
    for search in service.all("/v1/searches").await {
        let path = format!("/v1/searches/{}", search["id"].as_str().expect("an id"));
        let mut search = service.get(&path).await.expect(200);
        for association in search["associations"].as_array_mut().expect("associations") {
            association["weight"] = Value::Null;
        }
        searches.push(search);
    }
    searches
}
