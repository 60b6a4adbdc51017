//! Our own refusals have the shape of the provider's errors.

use axum::body::Body;
use axum::http::Method;
use serde_json::{Value, json};

use super::{CHAT, MESSAGES, RESPONSES, begun, call, chat, sent};
use crate::support::program::Settings;
use crate::support::{Service, provider, request};

#[tokio::test]
async fn refusals_say_what_is_wrong_as_the_provider_would() {
    let (service, asked) = provider::service().await;
    let (status, wrong) =
        (|answer: &crate::support::Answer| answer.status.as_u16(), [("gleaner-trim", "perhaps")]);
    for (path, headers, body, expected) in [
        (CHAT, &[][..], json!({"messages": []}), 422),
        (CHAT, &[], json!([1]), 400),
        (RESPONSES, &[], chat("b/unknown", &["x"]), 200),
        (MESSAGES, &[], json!({"model": "claude", "messages": 5}), 400),
        (MESSAGES, &wrong, chat("claude", &["x"]), 422),
        (CHAT, &[], chat(&"m".repeat(201), &["x"]), 422),
        (MESSAGES, &[], chat(&"\u{e9}".repeat(201), &["x"]), 422),
        ("/anthropic/v1/complete", &[], json!({}), 404),
        ("/openai/v1/models", &[], json!({}), 405),
    ] {
        let answer = call(&service, path, headers, &body).await;
        assert_eq!(status(&answer), expected, "{path} {body}: {}", answer.text());
        if expected == 200 {
            continue;
        }
        assert_eq!(answer.header("content-type"), Some("application/json"));
        let error = answer.json();
        let message = error["error"]["message"].as_str().expect("a text");
        assert!(!message.is_empty() && !message.contains("struct"), "{message}");
        if path.starts_with("/anthropic") {
            assert_eq!(error["type"], "error");
            assert!(error["request_id"].is_string(), "{error}");
        } else {
            assert_eq!(error["error"]["param"], Value::Null);
        }
    }
    assert_eq!(asked.calls(), 1);
    let foreign = service
        .call(Method::POST, CHAT, &[("origin", "http://evil.example")], Some(&chat("m", &["x"])))
        .await;
    assert_eq!(foreign.expect(403)["error"]["type"], "permission_error");
    let large = format!("{{\"model\": \"m\", \"messages\": [\"{}\"]}}", "x".repeat(32 << 20));
    let answer = service.post_text(CHAT, "application/json", large).await;
    assert_eq!(answer.expect(413)["error"]["type"], "invalid_request_error");
}

#[tokio::test]
async fn a_body_of_nothing_but_values_is_refused_before_it_is_parsed() {
    let (service, asked) = provider::service().await;
    for (path, list) in [(CHAT, "messages"), (RESPONSES, "input"), (MESSAGES, "system")] {
        let body = format!("{{\"model\": \"m\", \"{list}\": [{}0]}}", "0,".repeat(250_000));
        let error = service.post_text(path, "application/json", body).await.expect(413);
        assert_eq!(error["error"]["message"], "the body has more than 250000 JSON values");
    }
    assert_eq!(asked.calls(), 0);
    let commas = chat("m", &[&",[{".repeat(250_000)]);
    call(&service, CHAT, &[], &commas).await;
    assert_eq!(asked.calls(), 1, "commas in a text are no values");
}

#[tokio::test]
async fn a_model_that_no_provider_has_is_a_404_and_an_answer_that_leads_elsewhere_is_not_followed() {
    let service = crate::support::Service::open().await;
    let unknown = call(&service, CHAT, &[], &chat("m", &["x"])).await.expect(404);
    assert_eq!(unknown["error"]["message"], "no such model in the providers file");
    service.get("/anthropic/v1/models").await.expect(404);
    assert_eq!(service.all("/v1/sends").await.len(), 0);
    let (service, _) = provider::service().await;
    let moved = call(&service, CHAT, &[], &chat("moved", &["x"])).await;
    assert_eq!(moved.header("location"), None);
    assert_eq!(moved.expect(502)["error"]["type"], "server_error");
    assert_eq!(sent(&service).await["state"], "error");
    let moved = call(&service, CHAT, &[], &chat("moved", &["at length"])).await;
    assert_eq!((moved.status.as_u16(), moved.header("location")), (502, None));
    let switched = call(&service, CHAT, &[], &chat("moved", &["another protocol"])).await;
    assert_eq!(switched.header("upgrade"), None);
    assert_eq!(switched.expect(502)["error"]["type"], "server_error");
}

#[tokio::test]
async fn a_project_has_so_many_requests_waiting_for_providers_and_others_have_theirs() {
    let (settings, asked) = provider::settings_with_providers().await;
    let service = Service::with(Settings { calls: 1, ..settings }).await;
    service.project("quiet").await;
    let first = begun(&service, &asked, CHAT, &chat("slow", &["x"])).await;
    let refused = call(&service, CHAT, &[], &chat("m", &["x"])).await.expect(503);
    assert_eq!(
        refused["error"]["message"],
        "the project has as many requests waiting for providers as it may; try again"
    );
    call(&service, CHAT, &[("gleaner-project", "quiet")], &chat("m", &["x"])).await.expect(200);
    asked.go_on.notify_one();
    assert_eq!(first.await.expect("ends").status(), 200);
    call(&service, CHAT, &[], &chat("m", &["x"])).await.expect(200);
}

#[tokio::test]
async fn a_request_whose_body_has_not_come_keeps_no_place_at_the_providers() {
    let (settings, _) = provider::settings_with_providers().await;
    let service = Service::with(Settings { calls: 1, ..settings }).await;
    let (asked, is_asked) = tokio::sync::oneshot::channel();
    let nothing = futures_util::stream::once(async {
        asked.send(()).expect("somebody waits for it");
        std::future::pending::<std::io::Result<axum::body::Bytes>>().await
    });
    let slow = request(Method::POST, CHAT).header("content-type", "application/json");
    let slow = service.send(slow.body(Body::from_stream(nothing)).expect("a request"));
    let other = async {
        is_asked.await.expect("it is read");
        call(&service, CHAT, &[], &chat("m", &["x"])).await.expect(200)
    };
    tokio::select! {
        _ = slow => panic!("the body does not come"),
        _ = other => {}
    }
}
