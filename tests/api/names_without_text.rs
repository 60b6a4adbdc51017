//! Where no text is kept, the names that are kept are redacted as everywhere.

use serde_json::{Value, json};
use uuid::Uuid;

use crate::support::{Service, passed, with};

/// The shape of a token of GitHub, which nobody has issued.
const TOKEN: &str = "ghp_0dZ8sQx3Wv5Lr7Tn1Ky9Mb2Cf4Hg6Jp8aEuI";
/// A password, which only the name before it tells.
const PASSWORD: &str = "mT9x2LqWz7RfK4";

/// Events of each kind, with a secret in each field that names something.
fn lines() -> Vec<Value> {
    let [log, slate, pair, send, memory] = [1, 2, 3, 4, 5].map(Uuid::from_u128);
    let usage = json!({"prompt_tokens": 3, "api_key": PASSWORD});
    let attempt = with(passed(1, "x"), &json!({"prompt_template": TOKEN}));
    vec![
        json!({"event": "generation", "id": log, "user_intent": "x", "domain_name": TOKEN, "session_id": TOKEN,
            "cbu_id": TOKEN, "instance_id": TOKEN, "model_used": TOKEN}),
        with(attempt, &json!({"event": "attempt", "generation_id": log})),
        json!({"event": "generation_outcome", "generation_id": log, "success": true, "instance_id": TOKEN}),
        json!({"event": "review", "generation_id": log, "rating": "good", "reviewer": TOKEN}),
        json!({"event": "generation_amendment", "generation_id": log, "cbu_id": TOKEN}),
        json!({"event": "suggestion", "id": slate, "context": {}, "suggestions": [TOKEN, PASSWORD], "session_name": TOKEN,
            "server_name": TOKEN, "suggestion_node_version": TOKEN, "policy_id": TOKEN, "llm_request": {"model": TOKEN}}),
        json!({"event": "view", "suggestion_id": slate, "index": 1}),
        json!({"event": "partial_inputs", "suggestion_id": slate, "inputs": [{"text": TOKEN}]}),
        json!({"event": "suggestion_outcome", "suggestion_id": slate, "actual_input": PASSWORD}),
        json!({"event": "pair", "id": pair, "user_text": "x", "assistant_text": "x", "topic_id": TOKEN, "session_id": TOKEN,
            "model": TOKEN, "color_flag": format!("password={PASSWORD}")}),
        json!({"event": "send", "id": send, "mode": "record", "model": "m", "user_text": "x", "topic_id": TOKEN,
            "session_id": TOKEN, "pairs": [{"id": TOKEN, "user_text": "x"}]}),
        json!({"event": "send_attempt", "send_id": send, "included_ids": [TOKEN], "usage": usage,
            "error": {"provider": TOKEN, "code": TOKEN, "message": TOKEN}}),
        json!({"event": "send_outcome", "send_id": send, "assistant_text": "x", "usage": usage, "finish_reason": TOKEN}),
        json!({"event": "memory", "id": memory, "content": "x", "session_id": TOKEN, "root": TOKEN, "tags": [TOKEN]}),
        json!({"event": "conversation_query", "session_id": TOKEN, "query": "x", "root": TOKEN}),
        json!({"event": "memory_feedback", "session_id": TOKEN, "memory_id": memory, "verdict": "used"}),
    ]
}

#[tokio::test]
async fn a_secret_in_a_name_is_nowhere_in_the_database_and_what_was_derived_stays() {
    let service = Service::open().await;
    service.put("/v1/projects/default", &json!({"capture": "metadata"})).await.expect(200);
    service.put("/v1/models/m", &json!({"context_window": 1_000_000})).await.expect(201);
    service.accept(&lines()).await;
    let change = json!({"model": TOKEN, "topic_id": TOKEN, "color_flag": TOKEN});
    service.patch(&format!("/v1/pairs/{}", Uuid::from_u128(3)), &change).await.expect(200);
    let file = json!({"root": TOKEN, "path": TOKEN, "chunks": [{"symbol": TOKEN, "content": "x"}]});
    service.put("/v1/memories/code", &file).await.expect(200);
    let dump = service.dump().await;
    for secret in [TOKEN, PASSWORD] {
        let before = dump.split_once(secret).map(|(before, _)| &before[before.len().saturating_sub(300)..]);
        assert_eq!(before, None, "{secret}");
    }
    let slate = service.get(&format!("/v1/suggestions/{}", Uuid::from_u128(2))).await.expect(200);
    assert_eq!((&slate["match_type"], &slate["accepted_index"]), (&json!("exact"), &json!(1)), "{slate}");
    assert_eq!(slate["model"], "[redacted:secrets]");
    let figures = service.get("/v1/analytics/prompts").await.expect(200);
    assert_eq!(figures["data"][0]["passed"], 1, "{figures}");
    let send = service.get(&format!("/v1/sends/{}", Uuid::from_u128(4))).await.expect(200);
    assert!(send.to_string().contains(r#"{"prompt_tokens":3}"#), "{send}");
    // The same name in a path and in a line of a batch is that of one conversation.
    let path = format!("/v1/conversations/{TOKEN}");
    service.post(&format!("{path}/queries"), &json!({"query": "x"})).await.expect(201);
    let conversation = service.get(&path).await.expect(200);
    assert_eq!(conversation["queries"].as_array().map(Vec::len), Some(2), "{conversation}");
}

#[tokio::test]
async fn events_that_are_sent_again_are_recognized() {
    let service = Service::open().await;
    service.put("/v1/projects/default", &json!({"capture": "metadata"})).await.expect(200);
    let pair = json!({"id": Uuid::from_u128(1), "user_text": "x", "topic_id": TOKEN});
    service.post("/v1/pairs", &pair).await.expect(201);
    service.post("/v1/pairs", &pair).await.expect(200);
    service.post("/v1/pairs", &with(pair, &json!({"user_text": "y"}))).await.refused(409, &[]);
}
