//! What passes: bodies byte for byte, streamed or not, and no faster than the client takes it.

use std::sync::atomic::Ordering;

use axum::http::Method;
use futures_util::StreamExt as _;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};

use super::{CHAT, MESSAGES, begun, bodies, call, chat, sent};
use crate::support::program::Settings;
use crate::support::provider;
use crate::support::{Service, assert_whole, eventually, with};

#[tokio::test]
async fn what_is_sent_and_answered_is_the_same_on_both_sides_and_kept() {
    let (service, asked) = provider::service().await;
    for (path, body) in bodies("What now?") {
        let text = format!("{body} ").replace("{\"", "{ \"");
        let query = format!("{path}?beta=true");
        let answer = service.post_text(&query, "application/json", text.clone()).await;
        assert_eq!(answer.status, 200, "{path}");
        assert_eq!(asked.bytes.lock().expect("never poisoned").last().expect("a body"), text.as_bytes());
        assert_eq!(asked.queries.lock().expect("never poisoned").last(), Some(&Some("beta=true".to_owned())));
        let send = sent(&service).await;
        assert_eq!((&send["mode"], &send["state"]), (&json!("gateway"), &json!("complete")), "{path}");
        assert_eq!(send["pair"]["user_text"], "What now?");
        assert_eq!(send["pair"]["assistant_text"], "Hello there");
        assert_eq!(send["messages"].as_array().map(Vec::len), Some(1));
    }
    let body = with(chat("m", &["one", "two", "three"]), &json!({"temperature": 0.50}));
    call(&service, CHAT, &[("gleaner-session", "s"), ("gleaner-topic", "t")], &body).await.expect(200);
    let mut send = sent(&service).await;
    assert!(send["attempts"][0]["latency_ms"].take().is_i64());
    assert_whole!("a_send_through_the_gateway", send);
}

#[tokio::test]
async fn tools_and_unusual_json_come_back_byte_for_byte() {
    let (service, asked) = provider::service().await;
    for (path, model) in [(CHAT, "tools"), (MESSAGES, "anth/tools")] {
        let answer = call(&service, path, &[("accept-encoding", "gzip")], &chat(model, &["list"])).await;
        let encodings: Vec<_> = asked.last_headers().get_all("accept-encoding").iter().cloned().collect();
        assert_eq!(encodings, ["identity"], "what is recorded must be read");
        assert_eq!(answer.header("x-request-id"), Some("theirs"));
        assert_eq!(answer.header("content-encoding"), None);
        assert!(answer.text().contains("\" : [{") && answer.text().ends_with('}'), "{}", answer.text());
        let send = sent(&service).await;
        let call = &send["pair"]["tool_calls"][0]["function"];
        assert_eq!(call["name"], "list", "{send}");
        let arguments: Value =
            serde_json::from_str(call["arguments"].as_str().expect("a text")).expect("JSON");
        assert_eq!(arguments, json!({"all": true}));
        assert!(["tool_calls", "tool_use"].contains(&send["finish_reason"].as_str().expect("a reason")));
    }
}

#[tokio::test]
async fn a_stream_passes_as_it_came_and_ends_after_the_commit() {
    let (service, _) = provider::service().await;
    for (path, body) in bodies("stream it") {
        let answer = call(&service, path, &[], &with(body, &json!({"stream": true}))).await;
        assert_eq!(answer.header("content-type"), Some("text/event-stream"));
        let text = answer.text();
        assert!(text.starts_with("event: x\ndata: {") && text.ends_with("}\n\n"), "{text}");
        let send = sent(&service).await;
        assert_eq!(
            (&send["state"], &send["pair"]["assistant_text"]),
            (&json!("complete"), &json!("Hello there"))
        );
        assert!(send["usage"].is_object() && send["attempts"][0]["stage"] == "attempt_success", "{send}");
    }
    // Whoever has seen the end of an answer finds it recorded.
    let body = with(chat("m", &["x"]), &json!({"stream": true}));
    let request = crate::support::request(Method::POST, CHAT).header("content-type", "application/json");
    let request = request.body(axum::body::Body::from(body.to_string())).expect("a request");
    let response = tower::ServiceExt::oneshot(service.router.clone(), request).await.expect("an answer");
    let mut pieces = response.into_body().into_data_stream();
    loop {
        let piece = pieces.next().await.expect("more").expect("a piece");
        if String::from_utf8_lossy(&piece).contains("finish_reason") {
            assert_eq!(sent(&service).await["state"], "complete");
            break;
        }
    }
}

#[tokio::test]
async fn of_an_answer_for_which_there_is_no_memory_the_client_gets_all_and_the_record_has_an_error() {
    let (settings, asked) = provider::settings_with_providers().await;
    let service = Service::with(Settings { body_memory: 1, ..settings }).await;
    let stream = json!({"stream": true});
    // All that one project may hold.
    let first = begun(&service, &asked, CHAT, &with(chat("long", &["wait"]), &stream)).await;
    let mut first = first.await.expect("an answer").into_body().into_data_stream();
    let mut read = 0;
    while read < 600_000 {
        read += first.next().await.expect("more").expect("a piece").len();
    }
    let execute = json!({"mode": "execute", "user_text": "x", "model": "long"});
    let send = service.post("/v1/sends", &execute).await.expect(201);
    assert_eq!(
        send["error"]["message"],
        "The answer is longer than 2 MiB, or there is no memory left for it."
    );
    assert_eq!(send["error"]["kind"], "overloaded");
    let passed = call(&service, CHAT, &[], &with(chat("long", &["x"]), &stream)).await;
    assert!(passed.text().matches("Hello ").count() == 100_000 && passed.text().contains("finish_reason"));
    let is_overloaded = async || {
        let send = sent(&service).await;
        assert_eq!((&send["state"], &send["pair"]["assistant_text"]), (&json!("error"), &Value::Null));
        assert_eq!(send["error"]["kind"], "overloaded");
        send["error"]["message"].as_str().expect("a text").to_owned()
    };
    assert_eq!(is_overloaded().await, "The answer is longer than 2 MiB, or there is no memory left for it.");
    let whole = call(&service, CHAT, &[], &chat("long", &["x"])).await;
    assert_eq!(whole.text().matches("Hello ").count(), 100_000);
    assert_eq!(is_overloaded().await, "The answer is longer than 2 MiB, or there is no memory left for it.");
    let failed = call(&service, CHAT, &[], &chat("failing", &["at length"])).await;
    assert_eq!((failed.status.as_u16(), failed.text().matches("Overloaded").count()), (503, 50_000));
    asked.go_on.notify_one();
    while let Some(piece) = first.next().await {
        piece.expect("the rest");
    }
    assert!(is_overloaded().await.contains("Overloaded Overloaded"), "what the provider says");
    let send = service.get("/v1/sends").await.expect(200)["data"][4]["id"].clone();
    let send = service.get(&format!("/v1/sends/{}", send.as_str().expect("an id"))).await.expect(200);
    let text = send["pair"]["assistant_text"].as_str().expect("a text");
    assert_eq!(text.matches("Hello ").count(), 100_000, "the first one had memory");
}

#[tokio::test]
async fn errors_of_each_class_pass_unchanged_and_are_labelled_in_the_record() {
    let (service, asked) = provider::service().await;
    for (model, status, class, kind) in [
        ("limited", 429, "quota", "rate_limit"),
        ("refused", 401, "auth", "authentication"),
        ("failing", 503, "unknown", "overloaded"),
        ("broken", 200, "unknown", "unknown"),
    ] {
        let answer = call(&service, CHAT, &[], &chat(model, &["x"])).await;
        assert_eq!(answer.status, status, "{model}");
        let send = sent(&service).await;
        assert_eq!(send["state"], "error", "{model}");
        assert_eq!(
            (&send["error"]["class"], &send["error"]["kind"]),
            (&json!(class), &json!(kind)),
            "{model}"
        );
        assert_eq!(send["error"]["message"].as_str(), Some(answer.text().as_str()), "{model}");
        if model == "limited" {
            assert_eq!(answer.header("retry-after"), Some("7"));
            assert_eq!(send["error"]["retry_after_s"], 7);
        }
    }
    // What does not fit is told as the provider tells it, and dropped only where the client asks for it.
    let answer = call(&service, MESSAGES, &[], &chat("claude", &["x", "y", &"z".repeat(1_300)])).await;
    assert!(answer.text().contains("prompt is too long") && answer.status == 400, "{}", answer.text());
    let send = sent(&service).await;
    assert_eq!(
        (&send["error"]["kind"], &send["overflow_matched"]),
        (&json!("context_overflow"), &json!(true))
    );
    assert_eq!((&send["counter"], asked.calls()), (&json!("1 / 1"), 5));
}

#[tokio::test]
async fn a_stream_that_breaks_off_never_looks_whole_and_is_kept_as_cut() {
    let (service, _) = provider::service().await;
    let body = with(chat("cut", &["x"]), &json!({"stream": true}));
    call(&service, CHAT, &[], &body).await;
    let send = sent(&service).await;
    assert_eq!((&send["error"]["kind"], &send["error"]["class"]), (&json!("cut_stream"), &json!("net")));
}

#[tokio::test]
async fn a_client_that_hangs_up_ends_the_call_and_the_send_is_cancelled() {
    let (service, asked) = provider::service().await;
    let gone = async || {
        eventually("the send is cancelled", async || {
            let send = sent(&service).await;
            send["error"]["reason"] == "client_gone" && send["pair"]["lifecycle_state"] == "error"
        })
        .await;
    };
    begun(&service, &asked, CHAT, &chat("slow", &["x"])).await.abort();
    gone().await;
    let body = with(chat("slow", &["x"]), &json!({"stream": true}));
    let response = begun(&service, &asked, CHAT, &body).await.await.expect("an answer");
    let mut body = response.into_body();
    assert!(body.frame().await.expect("a piece").is_ok());
    assert_eq!(sent(&service).await["state"], "sending");
    drop(body);
    gone().await;
}

#[tokio::test]
async fn a_send_can_be_cancelled_while_the_provider_thinks() {
    let (service, asked) = provider::service().await;
    let task = begun(&service, &asked, CHAT, &chat("slow", &["x"])).await;
    let id = sent(&service).await["id"].as_str().expect("an id").to_owned();
    service.post(&format!("/v1/sends/{id}/cancel"), &json!({})).await.expect(200);
    assert_eq!(task.await.expect("ends").status(), 400);
    assert_eq!(sent(&service).await["stage"], "cancelled");
}

#[tokio::test]
async fn a_slow_client_holds_the_provider_back() {
    let (service, asked) = provider::service().await;
    let body = with(chat("flood", &["x"]), &json!({"stream": true}));
    let response = begun(&service, &asked, CHAT, &body).await.await.expect("an answer");
    let mut body = response.into_body();
    assert!(body.frame().await.expect("a piece").is_ok());
    let taken = || asked.taken.load(Ordering::SeqCst);
    let mut before = 0;
    eventually("no more is asked for", async || {
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        std::mem::replace(&mut before, taken()) == taken()
    })
    .await;
    // What is under way fits into the buffers of two connections and of the channel between them.
    assert!(taken() < 400, "{} pieces of 60 KB", taken());
    drop(body);
}

#[tokio::test]
async fn counts_and_models_pass_too_and_nothing_is_kept_of_them() {
    let (service, _) = provider::service().await;
    let counted = call(&service, "/anthropic/v1/messages/count_tokens", &[], &chat("claude", &["x"])).await;
    assert_eq!(counted.expect(200), json!({"input_tokens": 7}));
    for path in ["/openai/v1/models", "/anthropic/v1/models?limit=5"] {
        assert_eq!(service.get(path).await.expect(200), json!({"object": "list", "data": []}));
    }
    assert_eq!(service.get("/v1/sends").await.expect(200)["data"], json!([]));
}
