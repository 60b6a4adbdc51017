//! Seed 002, walked: what its suggester, its settings and its tests say, over HTTP. Names in quotation marks are the seed's.

use serde_json::{Value, json};
use uuid::Uuid;

use crate::support::{Service, column};

/// The memories and code that the seed's scenarios are about.
async fn remembered() -> Service {
    let service = Service::open().await;
    let memory = |number: u128, content: &str| json!({"event": "memory", "id": Uuid::from_u128(number), "content": content});
    let code = |number: u128, symbol: &str, content: &str| json!({"event": "memory", "id": Uuid::from_u128(number), "source_type": "code", "symbol": symbol, "content": content});
    service
        .accept(&[
            memory(1, "Authentication: every JWT is signed with EdDSA, and tokens live for an hour."),
            code(
                2,
                "auth_middleware",
                "def auth_middleware(request):\n    return 401 unless verify(request.token)",
            ),
            memory(3, "The API returned 401 since the clock of the authentication server was ahead."),
            memory(4, "Python decorators wrap a function; functools.wraps keeps its name."),
            code(5, "timed", "# Examples of decorators\n@timed\ndef slow(): ..."),
            memory(6, "The canteen closes at two."),
        ])
        .await;
    service
}

async fn ask(service: &Service, session: &str, queries: &[&str]) {
    for query in queries {
        let path = format!("/v1/conversations/{session}/queries");
        service.post(&path, &json!({"query": query})).await.expect(201);
    }
}

async fn suggest(service: &Service, session: &str, body: Value) -> Value {
    service.post(&format!("/v1/conversations/{session}/suggest"), &body).await.expect(200)
}

fn ids(answer: &Value) -> Vec<Value> {
    column(answer["suggestions"].as_array().expect("a list"), "memory_id")
}

fn keys(value: &Value) -> Vec<&str> {
    value.as_object().expect("an object").keys().map(String::as_str).collect()
}

#[tokio::test]
async fn the_output_format_is_the_seeds_with_what_the_confidence_is_made_of() {
    let service = remembered().await;
    ask(&service, "s", &["How do I implement authentication?", "What's the best way to handle JWT tokens?"])
        .await;
    let answer = suggest(
        &service,
        "s",
        json!({"max_suggestions": 5, "confidence_threshold": 0, "include_code": true}),
    )
    .await;
    let mut expected =
        vec!["suggestions", "detected_intent", "confidence_threshold", "total_suggestions", "suggest_id"];
    expected.sort_unstable();
    assert_eq!(keys(&answer), expected);
    let suggestion = &answer["suggestions"][0];
    let mut expected =
        vec!["memory_id", "content", "confidence", "reason", "source_type", "factors", "score"];
    expected.sort_unstable();
    assert_eq!(keys(suggestion), expected);
    assert_eq!(keys(&answer["detected_intent"]), ["confidence", "intent_type", "keywords", "search_query"]);
    let factor = |name: &str| {
        let value = suggestion["factors"][name].as_f64().expect("a factor");
        assert!((0.0..=1.0).contains(&value), "{name} {value}");
        value
    };
    let sum = 0.5 * factor("semantic_similarity")
        + 0.2 * factor("recency")
        + 0.2 * factor("importance")
        + 0.1 * factor("context_match");
    assert!((suggestion["score"].as_f64().expect("a score") - sum).abs() < 1e-9);
}

#[tokio::test]
async fn the_three_scenarios_have_their_intents_keywords_and_suggestions() {
    let service = remembered().await;
    for (session, queries, intent, keywords, expected) in [
        (
            "implementation",
            ["How do I implement authentication?", "What's the best way to handle JWT tokens?"],
            "implementation",
            json!(["authentication", "JWT", "tokens"]),
            [1, 3],
        ),
        (
            "debugging",
            ["Why is my API returning 401?", "Authentication middleware not working"],
            "debugging",
            json!(["API", "401", "authentication", "middleware"]),
            [2, 3],
        ),
        (
            "learning",
            ["What are Python decorators?", "Show me decorator examples"],
            "learning",
            json!(["Python", "decorators", "examples"]),
            [4, 5],
        ),
    ] {
        ask(&service, session, &queries).await;
        let answer = suggest(&service, session, json!({"confidence_threshold": 0})).await;
        assert_eq!(answer["detected_intent"]["intent_type"], intent, "{answer}");
        assert_eq!(answer["detected_intent"]["keywords"], keywords);
        let found = ids(&answer);
        for number in expected {
            assert!(
                found.contains(&json!(Uuid::from_u128(number))),
                "{session}: {number} is not in {found:?}"
            );
        }
        assert!(!found.contains(&json!(Uuid::from_u128(6))), "the canteen is never meant");
    }
}

#[tokio::test]
async fn the_five_patterns_have_their_intents_and_edge_cases_have_none() {
    let service = Service::open().await;
    for (queries, intent) in [
        (json!(["I need to add a cache"]), "implementation"),
        (json!(["How do I sort a list?"]), "learning"),
        (json!(["Why does the cache expire?"]), "explanation"),
        (json!(["Fix the parser"]), "debugging"),
        (json!(["Show me examples of macros"]), "example_seeking"),
        (json!([]), "unknown"),
        (json!([""]), "unknown"),
        (json!(["the"]), "unknown"),
    ] {
        let body = json!({"recent_queries": queries});
        let detected = service.post("/v1/intents/detect", &body).await.expect(200);
        assert_eq!(detected["intent_type"], intent, "{queries}");
        assert_eq!(detected["confidence"] == 0.0, intent == "unknown");
    }
    let many = json!({"recent_queries": vec!["x"; 51]});
    service.post("/v1/intents/detect", &many).await.refused(422, &["/recent_queries"]);
}

#[tokio::test]
async fn nothing_is_under_the_threshold_and_no_more_comes_than_was_asked_for() {
    let service = remembered().await;
    for (session, body) in [
        ("a", json!({"confidence_threshold": 0, "max_suggestions": 2})),
        ("b", json!({"confidence_threshold": 0.2})),
        ("c", json!({})),
        ("d", json!({"confidence_threshold": 1})),
    ] {
        ask(&service, session, &["Why is my API returning 401?", "Authentication middleware not working"])
            .await;
        let answer = suggest(&service, session, body.clone()).await;
        let least = body["confidence_threshold"].as_f64().unwrap_or(0.85);
        assert_eq!(answer["confidence_threshold"], json!(least));
        let found = answer["suggestions"].as_array().expect("a list");
        assert!(found.iter().all(|it| it["confidence"].as_f64().expect("a number") >= least), "{answer}");
        let most = body["max_suggestions"].as_u64().unwrap_or(5);
        assert!(found.len() as u64 <= most && answer["total_suggestions"] == found.len());
        assert!(session != "d" || found.is_empty(), "nothing is certain");
    }
    for (body, pointer) in [
        (json!({"max_suggestions": 0}), "/max_suggestions"),
        (json!({"confidence_threshold": 1.01}), "/confidence_threshold"),
        (json!({"context_window": 51}), "/context_window"),
        (json!({"balance": -0.1}), "/balance"),
        (json!({"session_id": "s"}), "/session_id"),
    ] {
        service.post("/v1/conversations/s/suggest", &body).await.refused(422, &[pointer]);
    }
}

#[tokio::test]
async fn a_conversation_builds_its_context_over_several_turns() {
    let service = remembered().await;
    let best = async |session: &str, queries: &[&str], window: usize| {
        ask(&service, session, queries).await;
        let body = json!({"confidence_threshold": 0, "context_window": window});
        suggest(&service, session, body).await
    };
    let alone = best("alone", &["And what about examples of it?"], 5).await;
    assert_eq!(ids(&alone), [json!(Uuid::from_u128(5))]);
    let after = best("after", &["What are Python decorators?", "And what about examples of it?"], 5).await;
    assert!(ids(&after).contains(&json!(Uuid::from_u128(4))), "{after}");
    let short = best("short", &["What are Python decorators?", "And what about examples of it?"], 1).await;
    assert_eq!(ids(&short), ids(&alone), "a window of one query has no context");
}
