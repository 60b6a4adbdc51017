//! A provider of models over real HTTP, which counts what it is asked and overflows by rule: four characters are a token,
//! and more than 300 tokens are too many. What the model is called decides what else happens.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use futures_util::{StreamExt as _, stream};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::Notify;

use super::program::{Providers, Settings};
use super::{Service, settings};

/// What the provider was asked, and how it is told to go on.
#[derive(Default)]
pub(crate) struct Asked {
    pub(crate) bodies: Mutex<Vec<Value>>,
    /// The bodies byte for byte.
    pub(crate) bytes: Mutex<Vec<Bytes>>,
    /// The queries of the addresses.
    pub(crate) queries: Mutex<Vec<Option<String>>>,
    /// How many pieces of the answer of the model `flood` were taken.
    pub(crate) taken: AtomicUsize,
    pub(crate) headers: Mutex<Vec<HeaderMap>>,
    /// Lets an answer of the model `slow` go on.
    pub(crate) go_on: Notify,
    /// Told when a request has come.
    pub(crate) came: Notify,
}

impl Asked {
    pub(crate) fn calls(&self) -> usize {
        self.bodies.lock().expect("never poisoned").len()
    }

    fn note(&self, RawQuery(query): RawQuery, body: &Bytes) {
        self.bytes.lock().expect("never poisoned").push(body.clone());
        self.queries.lock().expect("never poisoned").push(query);
    }

    pub(crate) fn last(&self) -> Value {
        self.bodies.lock().expect("never poisoned").last().cloned().expect("a call")
    }

    pub(crate) fn last_headers(&self) -> HeaderMap {
        self.headers.lock().expect("never poisoned").last().cloned().expect("a call")
    }
}

/// A service with providers of both kinds, which are the same loopback server.
pub(crate) async fn service() -> (Service, Arc<Asked>) {
    let (settings, asked) = settings_with_providers().await;
    (Service::with(settings).await, asked)
}

/// How a service with these providers runs.
pub(crate) async fn settings_with_providers() -> (Settings, Arc<Asked>) {
    let (file, asked) = file().await;
    let providers = Providers::parse(&file, |_| Some("provider-key".to_owned())).expect("a providers file");
    (Settings { providers: Arc::new(providers), ..settings() }, asked)
}

/// Starts the provider. Returns the providers file that names it, which reads the provider's key from `KEY`.
pub(crate) async fn file() -> (String, Arc<Asked>) {
    let asked = Arc::new(Asked::default());
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let router = Router::new()
        .route("/v1/chat/completions", post(openai))
        .route("/v1/responses", post(openai))
        .route("/v1/messages", post(anthropic))
        .route("/v1/messages/count_tokens", post(|| async { axum::Json(json!({"input_tokens": 7})) }))
        .route("/v1/models", get(|| async { axum::Json(json!({"object": "list", "data": []})) }))
        .with_state(Arc::clone(&asked));
    tokio::spawn(async move { axum::serve(listener, router).await });
    let names = [
        "m", "my-model", "slow", "limited", "refused", "cut", "broken", "moved", "tools", "failing", "flood",
        "telling", "quoting", "long",
    ];
    let models: Vec<_> = names
        .iter()
        .map(|name| format!("[[providers.models]]\nname = \"{name}\"\ncontext_window = 400\n"))
        .collect();
    let models = models.concat();
    let file = format!(
        "[[providers]]\nname = \"open\"\nkind = \"openai\"\nbase_url = \"http://{address}/v1\"\napi_key_env = \"KEY\"\n{models}
        [[providers]]\nname = \"anth\"\nkind = \"anthropic\"\nbase_url = \"http://{address}/v1\"\napi_key_env = \"KEY\"
        [[providers.models]]\nname = \"claude\"\ncontext_window = 400
        [[providers.models]]\nname = \"my-claude\"\ncontext_window = 400\n"
    );
    (file, asked)
}

async fn openai(
    State(asked): State<Arc<Asked>>,
    query: RawQuery,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    asked.note(query, &body);
    answer(&asked, headers, &body, false).await
}

async fn anthropic(
    State(asked): State<Arc<Asked>>,
    query: RawQuery,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    asked.note(query, &body);
    answer(&asked, headers, &body, true).await
}

async fn answer(asked: &Arc<Asked>, headers: HeaderMap, body: &[u8], is_anthropic: bool) -> Response {
    // Providers take half of a surrogate pair, which is no text in Rust.
    let body = String::from_utf8_lossy(body).replace(r"\ud83d ", "");
    let body: Value = serde_json::from_str(&body).expect("JSON");
    asked.bodies.lock().expect("never poisoned").push(body.clone());
    let sent = headers.clone();
    asked.headers.lock().expect("never poisoned").push(headers);
    asked.came.notify_one();
    let messages =
        body["messages"].as_array().or_else(|| body["input"].as_array()).cloned().unwrap_or_default();
    let chars: usize = messages.iter().map(|message| message["content"].as_str().map_or(0, str::len)).sum();
    let tokens = chars / 4;
    let error = |status: u16, error: Value| {
        (StatusCode::from_u16(status).expect("a status"), [("x-request-id", "theirs")], axum::Json(error))
            .into_response()
    };
    if body["model"] == "slow" && body["stream"] != true {
        asked.go_on.notified().await;
    }
    if tokens > 300 {
        let message = format!("prompt is too long: {tokens} tokens > 300 maximum");
        return error(400, json!({"error": {"type": "invalid_request_error", "message": message}}));
    }
    match body["model"].as_str().unwrap_or_default() {
        "failing" => {
            let times = if body["messages"][0]["content"] == "at length" { 50_000 } else { 1 };
            let message = vec!["Overloaded"; times].join(" ");
            return error(
                503,
                json!({"type": "error", "error": {"type": "overloaded_error", "message": message}}),
            );
        }
        "limited" => {
            let mut limited = error(
                429,
                json!({"error": {"message": "Rate limit reached", "code": "rate_limit_exceeded"}}),
            );
            limited.headers_mut().insert("retry-after", "7".parse().expect("a header"));
            return limited;
        }
        "refused" => return error(401, json!({"error": {"message": "Incorrect API key provided"}})),
        "telling" => {
            let sent = sent.get("authorization").and_then(|value| value.to_str().ok()).unwrap_or_default();
            return error(401, json!({"error": {"message": format!("Incorrect API key provided: {sent}")}}));
        }
        "quoting" => {
            let message = format!("Invalid message: {}", messages[messages.len() - 1]["content"]);
            return error(400, json!({"error": {"message": message}}));
        }
        "broken" => return (StatusCode::OK, "no JSON").into_response(),
        "moved" if body["messages"][0]["content"] == "another protocol" => {
            return (StatusCode::SWITCHING_PROTOCOLS, [("upgrade", "other"), ("connection", "upgrade")])
                .into_response();
        }
        "moved" => {
            // More than is held of a whole answer.
            let size = if body["messages"][0]["content"] == "at length" { 33 << 20 } else { 0 };
            return (StatusCode::FOUND, [("location", "http://example.com/")], vec![0; size]).into_response();
        }
        _ => {}
    }
    let usage = if is_anthropic {
        json!({"input_tokens": tokens, "output_tokens": 2})
    } else {
        json!({"prompt_tokens": tokens, "completion_tokens": 2, "total_tokens": tokens + 2})
    };
    if body["stream"] != true && body["model"] == "tools" {
        // Written as no serializer of ours would write it.
        let call = if is_anthropic {
            r#"{"content" : [{"type":"tool_use","id":"t","name":"list","input":{"all": true}}],  "stop_reason":"tool_use","usage":{"input_tokens":5,"output_tokens":1.50}}"#
        } else {
            r#"{"choices" : [{"message":{"content":null,"tool_calls":[{"id":"t","type":"function","function":{"name":"list","arguments":"{\"all\": true}"}}]}, "finish_reason":"tool_calls"}],  "usage":null, "cost": 1.50}"#
        };
        return ([("content-type", "application/json"), ("x-request-id", "theirs")], call).into_response();
    }
    let said = said(&body);
    if body["stream"] != true {
        return axum::Json(if is_anthropic {
            json!({"content": [{"type": "text", "text": "Hello there"}], "stop_reason": "end_turn", "usage": usage})
        } else if body.get("input").is_some() {
            json!({"status": "completed", "output": [{"type": "message", "role": "assistant",
                "content": [{"type": "output_text", "text": "Hello there"}]}], "usage": {"input_tokens": tokens, "output_tokens": 2}})
        } else {
            let reason = if body["max_tokens"] == 1 { "length" } else { "stop" };
            let mut choice = json!({"message": {"role": "assistant", "content": said + "there"}, "finish_reason": reason});
            if let Some(member) = body["adds"].as_str() {
                // As many values as there are with the probabilities of each token.
                choice[member] = json!(vec![0; 300_000]);
            }
            json!({"choices": [choice], "usage": usage})
        })
        .into_response();
    }
    streamed(asked, &body, is_anthropic, tokens, &usage)
}

/// What the model says first, which is all but the last word.
fn said(body: &Value) -> String {
    "Hello ".repeat(if body["model"] == "long" { 100_000 } else { 1 })
}

/// A streamed answer.
fn streamed(asked: &Arc<Asked>, body: &Value, is_anthropic: bool, tokens: usize, usage: &Value) -> Response {
    if body["model"] == "flood" {
        let asked = Arc::clone(asked);
        let pieces = stream::repeat_with(move || {
            asked.taken.fetch_add(1, Ordering::SeqCst);
            let delta = json!({"choices": [{"delta": {"content": "x".repeat(60_000)}}]});
            Ok::<_, std::io::Error>(format!("data: {delta}\n\n"))
        });
        return ([("content-type", "text/event-stream")], Body::from_stream(pieces)).into_response();
    }
    let mut events = if body.get("input").is_some() {
        let item = json!({"type": "message", "content": [{"type": "output_text", "text": "Hello there"}]});
        vec![
            json!({"type": "response.created", "response": {"id": "r"}}),
            json!({"type": "response.output_text.delta", "delta": "Hello there"}),
            json!({"type": "response.completed", "response": {"status": "completed", "output": [item], "usage": {"input_tokens": tokens, "output_tokens": 2}}}),
        ]
    } else if is_anthropic {
        vec![
            json!({"type": "message_start", "message": {"usage": usage}}),
            json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hello "}}),
            json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "there"}}),
            json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 2}}),
            json!({"type": "message_stop"}),
        ]
    } else {
        vec![
            json!({"choices": [{"delta": {"content": said(body)}}]}),
            json!({"choices": [{"delta": {"content": "there"}}]}),
            json!({"choices": [{"delta": {}, "finish_reason": "stop"}], "usage": usage}),
        ]
    };
    if body["model"] == "cut" {
        events.truncate(1);
    }
    let events: Vec<_> = events.into_iter().map(|event| format!("event: x\ndata: {event}\n\n")).collect();
    let waits = body["model"] == "slow" || body["messages"][0]["content"] == "wait";
    let asked = Arc::clone(asked);
    let events = stream::iter(events.into_iter().enumerate()).then(move |(nth, event)| {
        let asked = Arc::clone(&asked);
        async move {
            if waits && nth == 1 {
                asked.go_on.notified().await;
            }
            Ok::<_, std::io::Error>(event)
        }
    });
    ([("content-type", "text/event-stream")], Body::from_stream(events)).into_response()
}
