//! MCP: the protocol in its versions, the tools and what they answer, and the program that serves them on standard input.

mod calls;
mod install;
mod places;
mod protocol;
mod stdio;

use axum::body::Body;
use axum::http::Method;
use serde_json::{Value, json};

use crate::support::{Answer, Service, request};

/// Posts a message as a client of 2025-11-25 does, with more headers.
async fn post(service: &Service, message: &Value, headers: &[(&str, &str)]) -> Answer {
    let mut request = request(Method::POST, "/mcp")
        .header("content-type", "application/json")
        .header("accept", "application/json, text/event-stream");
    if !headers.iter().any(|(name, _)| *name == "mcp-protocol-version") {
        request = request.header("mcp-protocol-version", "2025-11-25");
    }
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    service.send(request.body(Body::from(message.to_string())).expect("a request")).await
}

/// Calls a tool; the result.
async fn call(service: &Service, tool: &str, arguments: Value) -> Value {
    call_with(service, tool, arguments, json!({}), &[]).await
}

/// Calls a tool with what a client says beside the arguments, and with more headers; the result.
async fn call_with(
    service: &Service,
    tool: &str,
    arguments: Value,
    meta: Value,
    headers: &[(&str, &str)],
) -> Value {
    let params = json!({"name": tool, "arguments": arguments, "_meta": meta});
    let message = json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params});
    let answer = post(service, &message, headers).await.expect(200);
    assert_eq!((&answer["id"], &answer["error"]), (&json!(7), &Value::Null), "{answer}");
    answer["result"].clone()
}

/// What a call answered that was not refused, after a look at its text, which is the same.
#[track_caller]
fn content(result: &Value) -> Value {
    assert_eq!(result["isError"], false, "{result}");
    let text = result["content"][0]["text"].as_str().expect("a text");
    let content = result["structuredContent"].clone();
    assert_eq!(serde_json::from_str::<Value>(text).expect("JSON"), content);
    content
}

/// What a refused call was told.
#[track_caller]
fn refused(result: &Value) -> String {
    assert_eq!(result["isError"], true, "{result}");
    result["content"][0]["text"].as_str().expect("a text").to_owned()
}
