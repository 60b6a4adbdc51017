//! Calls of tools: what they answer, and how they are refused.

use serde_json::{Value, json};
use uuid::Uuid;

use axum::body::Body;
use axum::http::Method;
use tower::ServiceExt as _;

use super::{call, call_with, content, refused};
use crate::support::program::Settings;
use crate::support::{Service, assert_whole, column, failed, request, settings};

#[tokio::test]
async fn a_response_that_is_more_than_a_model_reads_is_an_error_that_asks_for_less() {
    let service = Service::open().await;
    let known = |number: u128| json!({"id": Uuid::from_u128(number), "user_intent": "Create a fund", "domain_name": "cbu"});
    let changed = |metadata: Value| json!({"event": "generation_amendment", "generation_id": Uuid::from_u128(1), "metadata": metadata});
    let attempt =
        json!({"event": "attempt", "generation_id": Uuid::from_u128(2), "prompt_text": "x".repeat(5 << 20)});
    for log in [known(1), known(2)] {
        service.post("/v1/generations", &log).await.expect(201);
    }
    service.accept(&[changed(json!({"a": vec![json!({"": 0}); 10_000]})), attempt]).await;
    for (number, most) in [(1, "20000 JSON values"), (2, "4194304 bytes")] {
        let refused = refused(&call(&service, "log_generation", known(number)).await);
        assert_eq!(refused, format!("the answer has more than {most}; ask for less"));
    }
    service.accept(&[changed(json!({"a": vec![0; 19_000]}))]).await;
    let log = content(&call(&service, "log_generation", known(1)).await);
    assert_eq!(log["metadata"]["a"].as_array().map(Vec::len), Some(19_000));
    // Who is told of a failure would store the log again.
    let attempts: Vec<_> = (1..=1_100).map(|number| failed(number, "a", "e")).collect();
    let new = json!({"user_intent": "Create a fund", "domain_name": "long", "iterations": attempts});
    let told = call(&service, "log_generation", new).await;
    assert_eq!((&told["isError"], &told["structuredContent"]), (&json!(false), &json!({})));
    let stored = service.all("/v1/generations?domain_name=long").await;
    assert_eq!(column(&stored, "total_attempts"), [json!(1_100)]);
}

#[tokio::test]
async fn what_is_stored_in_one_session_is_suggested_and_found_in_another() {
    let service = Service::open().await;
    let stored = call(
        &service,
        "store_memory",
        json!({"content": "AuthMiddleware refuses a JWT whose clock is ahead by more than 30 seconds.", "session_id": "s",
            "root": "/src/app", "tags": ["auth"]}),
    )
    .await;
    let stored = content(&stored);
    assert_whole!("a_memory_stored_by_a_tool", stored);
    assert_eq!(
        service.get(&format!("/v1/memories/{}", stored["id"].as_str().expect("an id"))).await.expect(200),
        stored
    );

    service
        .post("/v1/conversations/t/queries", &json!({"query": "Why does AuthMiddleware refuse my JWT?"}))
        .await
        .expect(201);
    let suggested =
        call(&service, "suggest_memories", json!({"session_id": "t", "confidence_threshold": 0.1})).await;
    let suggested = content(&suggested);
    assert_eq!(suggested["suggestions"][0]["memory_id"], stored["id"]);
    assert_eq!(suggested["detected_intent"]["intent_type"], "explanation");

    let searched =
        call(&service, "search_memories", json!({"query": "clock of a JWT", "session_id": "u", "limit": 3}))
            .await;
    assert_eq!(content(&searched)["data"][0]["memory_id"], stored["id"]);
    // With a session, a search is one of its queries.
    let conversation = service.get("/v1/conversations/u").await.expect(200);
    assert_eq!(
        column(conversation["queries"].as_array().expect("queries"), "query"),
        [json!("clock of a JWT")]
    );

    let judged = call(
        &service,
        "memory_feedback",
        json!({"session_id": "t", "memory_id": stored["id"], "verdict": "used"}),
    )
    .await;
    assert_eq!(content(&judged)["verdict"], "used");
}

#[tokio::test]
async fn examples_files_and_figures_are_answered_as_over_http() {
    let service = Service::open().await;
    let log = json!({"user_intent": "Create a fund with Jane as director", "domain_name": "cbu", "success": true,
        "final_valid_dsl": "(cbu.create :director \"Jane\")", "iterations": [{"extracted_dsl": "(cbu.create)"}],
        "session_id": "s"});
    let logged = content(&call(&service, "log_generation", log).await);
    assert_eq!(
        (&logged["success"], &logged["total_attempts"], &logged["session_id"]),
        (&json!(true), &json!(1), &json!("s"))
    );
    let similar =
        call(&service, "find_similar_examples", json!({"intent": "Create a fund with John", "limit": 2}))
            .await;
    let over_http =
        service.get("/v1/generations/similar?intent=Create+a+fund+with+John&limit=2").await.expect(200);
    assert_eq!(content(&similar), over_http);
    assert_eq!(over_http["data"].as_array().map(Vec::len), Some(1));

    let search = json!({"query": "login button", "result_count": 0, "agent_session_id": "a", "root": "/src"});
    let search = service.create("/v1/searches", search).await;
    let read = json!({"kind": "read", "path": "/src/Login.tsx", "ok": true});
    service.post(&format!("/v1/searches/{search}/fallbacks"), &read).await.expect(201);
    service.post(&format!("/v1/searches/{search}/resolve"), &json!({})).await.expect(200);
    let files =
        call(&service, "find_files_for_query", json!({"query": "login button", "root": "/src"})).await;
    let over_http = service.get("/v1/associations?query=login+button&root=/src").await.expect(200);
    assert_eq!(content(&files), over_http);
    let figures = call(&service, "learner_stats", json!({})).await;
    assert_eq!(content(&figures), service.get("/v1/analytics/searches").await.expect(200));
}

#[tokio::test]
async fn a_refusal_names_what_is_wrong_for_the_model_to_read() {
    let service = Service::open().await;
    for (tool, arguments, said) in [
        ("store_memory", json!({}), "content: is missing"),
        ("store_memory", json!({"content": "x", "colour": "red"}), "colour: there is no such argument"),
        ("store_memory", json!({"content": "x", "importance": 2}), "importance: must be 0 to 1"),
        (
            "suggest_memories",
            json!({"session_id": "s", "max_suggestions": 51}),
            "max_suggestions: must be 1 to 50",
        ),
        ("suggest_memories", json!({"session_id": "s", "peek": true}), "peek: there is no such argument"),
        ("suggest_memories", json!({"session_id": ""}), "session_id: must not be empty"),
        ("search_memories", json!({"query": ["a"]}), "query: must be a text"),
        ("search_memories", json!({"query": "a", "limit": "many"}), "limit: "),
        (
            "memory_feedback",
            json!({"memory_id": Uuid::from_u128(1), "verdict": "used"}),
            "session_id: must be given",
        ),
        ("memory_feedback", json!({"session_id": "s", "memory_id": "1", "verdict": "used"}), "memory_id: "),
        (
            "memory_feedback",
            json!({"session_id": "s", "memory_id": Uuid::from_u128(1), "verdict": "used"}),
            "memory",
        ),
    ] {
        let result = call(&service, tool, arguments.clone()).await;
        let text = refused(&result);
        assert!(text.contains(said), "{tool} {arguments}: {text}");
        let status = result["structuredContent"]["status"].as_u64();
        assert!(status == Some(422) || status == Some(404), "{result}");
    }
    // Null is the same as leaving out.
    let stored =
        call(&service, "store_memory", json!({"content": "x", "importance": null, "tags": null})).await;
    assert_eq!(content(&stored)["importance"], 0.5);
}

#[tokio::test]
async fn a_call_may_do_what_its_key_may_do_in_its_project() {
    let (service, operator) = Service::closed().await;
    let operator = format!("Bearer {operator}");
    let new = json!({"name": "reader", "scopes": ["read"]});
    let reader =
        service.call(axum::http::Method::POST, "/v1/keys", &[("authorization", &operator)], Some(&new)).await;
    let reader = format!("Bearer {}", reader.expect(201)["key"].as_str().expect("a secret"));
    let memory = json!({"content": "The staging database is on port 5433."});
    let with = async |key: &str, project: Option<&str>, tool: &str, arguments: Value| {
        let mut headers = vec![("authorization", key)];
        headers.extend(project.map(|project| ("gleaner-project", project)));
        call_with(&service, tool, arguments, json!({}), &headers).await
    };
    assert!(
        refused(&with(&reader, None, "store_memory", memory.clone()).await).contains("lacks the scope write")
    );
    let other = service
        .call(
            axum::http::Method::PUT,
            "/v1/projects/other",
            &[("authorization", &operator)],
            Some(&json!({})),
        )
        .await;
    other.expect(201);
    content(&with(&operator, Some("other"), "store_memory", memory).await);
    let search = json!({"query": "port of the staging database"});
    let here = content(&with(&reader, None, "search_memories", search.clone()).await);
    assert_eq!(here["data"], json!([]));
    let there = content(&with(&operator, Some("other"), "search_memories", search).await);
    assert_eq!(there["data"].as_array().map(Vec::len), Some(1));
}

#[tokio::test]
async fn capture_and_rates_apply_to_calls() {
    let service = Service::open().await;
    let secret = "AKIAIOSFODNN7EXAMPLQ";
    let stored =
        call(&service, "store_memory", json!({"content": format!("The key is {secret}, do not tell.")}))
            .await;
    assert!(!content(&stored)["content"].as_str().expect("text").contains(secret), "{stored}");
    assert!(!service.dump().await.contains(secret));

    service.put("/v1/projects/default", &json!({"capture": {"memories": "off"}})).await.expect(200);
    let kept_not = call(&service, "store_memory", json!({"content": "x"})).await;
    assert_eq!((&kept_not["isError"], &kept_not["structuredContent"]), (&json!(false), &json!({})));
    assert_eq!(kept_not["content"][0]["text"], "The project stores nothing of this.");

    service.put("/v1/projects/default", &json!({"quotas": {"requests_per_second": 1}})).await.expect(200);
    let mut last = Value::Null;
    for _ in 0..4 {
        last = call(&service, "learner_stats", json!({})).await;
    }
    refused(&last);
    assert_eq!(last["structuredContent"]["status"], 429, "{last}");
}

#[tokio::test]
async fn a_result_holds_memory_until_it_is_read() {
    let service = Service::with(Settings { body_memory: 1, ..settings() }).await;
    service
        .post("/v1/memories", &json!({"content": "login ".repeat(10_000), "source_type": "memory"}))
        .await
        .expect(201);
    let body = json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call",
        "params": {"name": "search_memories", "arguments": {"query": "login"}}});
    let asked = request(Method::POST, "/mcp")
        .header("content-type", "application/json")
        .header("accept", "application/json, text/event-stream")
        .header("mcp-protocol-version", "2025-11-25")
        .body(Body::from(body.to_string()))
        .expect("a request");
    let unread = service.router.clone().oneshot(asked).await.expect("an answer");
    assert_eq!(unread.status(), 200);
    // The project may hold half of the memory, and this takes all of that.
    let log = json!({"user_intent": "a".repeat(300_000), "domain_name": "d"});
    service.post("/v1/generations", &log).await.refused(503, &[]);
    drop(unread);
    service.post("/v1/generations", &log).await.expect(201);
}
