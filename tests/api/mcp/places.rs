//! Where a call comes from, if its arguments do not say.

use serde_json::{Value, json};

use super::{call, call_with, content};
use crate::support::{Service, column};

async fn ask(service: &Service, session: &str, headers: &[(&str, &str)]) {
    let query = json!({"query": "Why does AuthMiddleware refuse my JWT?", "root": "/src/app"});
    let path = format!("/v1/conversations/{session}/queries");
    service.call(axum::http::Method::POST, &path, headers, Some(&query)).await.expect(201);
}

async fn remember(service: &Service) -> Value {
    let memory =
        json!({"content": "AuthMiddleware refuses a JWT whose clock is ahead by more than 30 seconds."});
    service.post("/v1/memories", &memory).await.expect(201)["id"].clone()
}

#[tokio::test]
async fn a_client_that_sends_its_session_as_metadata_need_not_name_it_in_the_arguments() {
    let service = Service::open().await;
    let memory = remember(&service).await;
    ask(&service, "codex-thread", &[]).await;
    ask(&service, "later", &[]).await;
    let meta = json!({"threadId": "codex-thread", "callId": "1", "x-codex-turn-metadata": {"workspaces": {"/src/app": {}}}});
    let found =
        call_with(&service, "suggest_memories", json!({"confidence_threshold": 0.1}), meta.clone(), &[])
            .await;
    assert_eq!(content(&found)["suggestions"][0]["memory_id"], memory);
    let conversation = service.get("/v1/conversations/codex-thread").await.expect(200);
    assert_eq!(column(conversation["suggested"].as_array().expect("a list"), "memory_id"), [memory]);

    let stored =
        content(&call_with(&service, "store_memory", json!({"content": "x"}), meta.clone(), &[]).await);
    assert_eq!((&stored["session_id"], &stored["root"]), (&json!("codex-thread"), &json!("/src/app")));
    let arguments = json!({"content": "y", "session_id": "mine", "root": "/elsewhere"});
    let stored = content(&call_with(&service, "store_memory", arguments, meta, &[]).await);
    assert_eq!((&stored["session_id"], &stored["root"]), (&json!("mine"), &json!("/elsewhere")));
}

#[tokio::test]
async fn the_default_session_is_the_one_in_which_the_same_key_last_asked() {
    let (service, operator) = Service::closed().await;
    let operator = format!("Bearer {operator}");
    let mut keys = Vec::new();
    for name in ["ann", "bob"] {
        let new = json!({"name": name, "scopes": ["read", "write"]});
        let made = service
            .call(axum::http::Method::POST, "/v1/keys", &[("authorization", &operator)], Some(&new))
            .await;
        keys.push(format!("Bearer {}", made.expect(201)["key"].as_str().expect("a secret")));
    }
    let (ann, bob) = (("authorization", keys[0].as_str()), ("authorization", keys[1].as_str()));
    ask(&service, "first-of-ann", &[ann]).await;
    ask(&service, "second-of-ann", &[ann]).await;
    ask(&service, "of-bob", &[bob]).await;
    for (key, session) in [(ann, "second-of-ann"), (bob, "of-bob")] {
        let stored = call_with(&service, "store_memory", json!({"content": "x"}), json!({}), &[key]).await;
        let stored = content(&stored);
        assert_eq!((&stored["session_id"], &stored["root"]), (&json!(session), &json!("/src/app")));
    }
}

#[tokio::test]
async fn without_a_session_nothing_is_suggested_and_the_model_learns_how_to_name_one() {
    let service = Service::open().await;
    remember(&service).await;
    let result = call(&service, "suggest_memories", json!({})).await;
    assert_eq!(result["isError"], false);
    assert!(
        result["content"][0]["text"].as_str().is_some_and(|text| text.contains("session_id")),
        "{result}"
    );
    let unknown = service.post("/v1/conversations/nobody/suggest", &json!({})).await.expect(200);
    let mut expected = unknown;
    expected.as_object_mut().expect("an object").remove("suggest_id");
    assert_eq!(result["structuredContent"], expected);
    // On an open server, whoever asked last is the one at work.
    ask(&service, "s", &[]).await;
    let result = call(&service, "suggest_memories", json!({"confidence_threshold": 0.1})).await;
    assert_eq!(content(&result)["total_suggestions"], 1);
}
