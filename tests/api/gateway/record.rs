//! What is kept: a send, each message once, an attempt where the client says so, and no more than the project wants.

use axum::http::Method;
use serde_json::{Value, json};

use super::{CHAT, MESSAGES, MESSAGES_KEPT, RESPONSES, begun, call, chat, sent, stored};
use crate::support::program::interrupt;
use crate::support::provider;
use crate::support::{column, request, with};

#[tokio::test]
async fn a_conversation_is_stored_once_however_often_it_is_sent() {
    let (service, _) = provider::service().await;
    let session = [("gleaner-session", "s")];
    call(&service, CHAT, &session, &chat("m", &["one"])).await.expect(200);
    call(&service, CHAT, &session, &chat("m", &["one", "Hello there", "two"])).await.expect(200);
    let cached = json!({"model": "m", "messages": [
        {"role": "user", "content": [{"type": "text", "text": "one", "cache_control": {"type": "ephemeral"}}]},
        {"role": "assistant", "content": "Hello there"}, {"role": "user", "content": "two"},
        {"role": "assistant", "content": "Hello there"}, {"role": "user", "content": "three"}]});
    call(&service, CHAT, &session, &cached).await.expect(200);
    assert_eq!(stored(&service, MESSAGES_KEPT).await, 5);
    let send = sent(&service).await;
    assert_eq!(column(send["messages"].as_array().expect("messages"), "content").len(), 5);
    assert_eq!((&send["counter"], &send["predicted_message_count"]), (&json!("2 / 2"), &json!(2)));
    // A long history is asked for before it is sent to the database.
    let long = "word ".repeat(230);
    for last in ["a", "b"] {
        call(&service, CHAT, &[], &chat("m", &[&long, last])).await.expect(200);
    }
    assert_eq!(stored(&service, MESSAGES_KEPT).await, 8);
    service.delete("/v1/sessions/s").await.expect(200);
    assert_eq!(stored(&service, MESSAGES_KEPT).await, 3);
    assert_eq!(service.all("/v1/pairs").await.len(), 2);
}

#[tokio::test]
async fn a_send_whose_messages_are_larger_than_an_answer_is_not_shown() {
    let (service, _) = provider::service().await;
    call(&service, CHAT, &[], &chat("m", &["one"])).await.expect(200);
    let id = sent(&service).await["id"].as_str().expect("an id").to_owned();
    let sql = "update sent_messages set message = to_json(repeat('x', 33 << 20))";
    sqlx::query(sql).execute(service.pool()).await.expect("a long message");
    service.get(&format!("/v1/sends/{id}")).await.refused(413, &[]);
}

#[tokio::test]
async fn an_answer_is_an_attempt_of_the_log_that_the_client_names() {
    let (service, asked) = provider::service().await;
    let log = service.create("/v1/generations", json!({"user_intent": "i", "domain_name": "d"})).await;
    let headers = [("gleaner-generation-id", log.as_str()), ("gleaner-attempt", "2")];
    let body = json!({"model": "claude", "max_tokens": 9, "system": "Be brief.", "messages": [{"role": "user", "content": "x"}]});
    call(&service, MESSAGES, &headers, &body).await.expect(200);
    let send = sent(&service).await;
    assert_eq!(send["generation_id"], json!(log));
    let log = service.get(&format!("/v1/generations/{log}")).await.expect(200);
    let attempt = &log["iterations"][0];
    assert_eq!((&attempt["attempt"], &attempt["raw_response"]), (&json!(2), &json!("Hello there")));
    assert_eq!((&attempt["output_tokens"], &attempt["metadata"]["send_id"]), (&json!(2), &send["id"]));
    let prompt: Value = serde_json::from_str(attempt["prompt_text"].as_str().expect("a text")).expect("JSON");
    assert_eq!(prompt, json!([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "x"}]));
    // What could not be kept is not asked for.
    let refused = call(&service, MESSAGES, &headers, &body).await;
    assert_eq!(refused.expect(409)["error"]["type"], "invalid_request_error");
    let unknown = [("gleaner-generation-id", "00000000-0000-0000-0000-000000000009")];
    call(&service, CHAT, &unknown, &chat("m", &["x"])).await.expect(404);
    assert_eq!(asked.calls(), 1);
}

#[tokio::test]
async fn a_secret_beside_half_of_an_emoji_is_in_no_prompt_that_is_kept() {
    let (service, asked) = provider::service().await;
    let log = service.create("/v1/generations", json!({"user_intent": "i", "domain_name": "d"})).await;
    let token = "ghp_0dZ8sQx3Wv5Lr7Tn1Ky9Mb2Cf4Hg6Jp8aEuI";
    let body = format!(r#"{{"model": "m", "messages": [{{"role": "user", "content": "\ud83d {token}"}}]}}"#);
    let request = request(Method::POST, CHAT).header("gleaner-generation-id", &log);
    let request = request.header("content-type", "application/json").body(body.clone().into());
    service.send(request.expect("a request")).await.expect(200);
    assert_eq!(asked.bytes.lock().expect("never poisoned").last().expect("a body"), body.as_bytes());
    assert!(!service.dump().await.contains(token));
    let log = service.get(&format!("/v1/generations/{log}")).await.expect(200);
    let prompt = log["iterations"][0]["prompt_text"].as_str().expect("a text");
    let prompt: Value = serde_json::from_str(prompt).expect("JSON");
    assert_eq!(prompt[0]["content"], "\u{fffd} [redacted:secrets]");
}

#[tokio::test]
async fn capture_and_redaction_hold_for_what_is_kept_and_never_for_what_passes() {
    let (service, asked) = provider::service().await;
    let settings = json!({"redact": {"builtin": ["emails"]}});
    service.put("/v1/projects/default", &settings).await.expect(200);
    let said = "write to needle@example.com";
    call(&service, CHAT, &[("gleaner-session", "s")], &chat("m", &[said])).await.expect(200);
    assert_eq!(asked.last()["messages"][0]["content"], said);
    assert!(!service.dump().await.contains("needle"));
    assert!(sent(&service).await["messages"][0]["content"].as_str().expect("a text").starts_with("write to"));
    for (capture, kept) in [("metadata", 2), ("off", 2)] {
        service.put("/v1/projects/default", &json!({"capture": {"messages": capture}})).await.expect(200);
        let answer = call(&service, CHAT, &[], &chat("m", &["needle"])).await;
        assert_eq!(answer.header("gleaner-recorded"), None);
        assert_eq!(answer.expect(200)["choices"][0]["message"]["content"], "Hello there");
        assert_eq!(asked.last()["messages"][0]["content"], "needle");
        assert!(!service.dump().await.contains("needle"));
        assert_eq!(service.all("/v1/sends").await.len(), kept);
    }
    let send = sent(&service).await;
    assert_eq!((&send["messages"], &send["pair"]["assistant_text"]), (&json!([]), &Value::Null));
    assert!(send["usage"].is_object() && send["aut"].as_i64() > Some(0), "{send}");
}

#[tokio::test]
async fn a_request_with_a_message_that_is_too_long_to_be_read_again_is_forwarded_and_not_recorded() {
    let (service, _) = provider::service().await;
    let long = "a ".repeat(4 << 20);
    for (text, recorded) in [(&long[..], Some("no")), (&long[..7 << 20], None)] {
        // The provider refuses both, which are too long for it.
        let answer = call(&service, CHAT, &[], &chat("m", &[text, "yes", "and?"])).await;
        assert_eq!((answer.status.as_u16(), answer.header("gleaner-recorded")), (413, recorded));
    }
    assert_eq!(service.all("/v1/sends").await.len(), 1);
}

#[tokio::test]
async fn usage_that_passes_teaches_the_ratio_of_its_model() {
    let (service, _) = provider::service().await;
    let words = "some words that are said in a chat ".repeat(20);
    call(&service, CHAT, &[], &chat("m", &[&words])).await.expect(200);
    let first = sent(&service).await["aut"].as_i64().expect("a size");
    call(&service, CHAT, &[], &chat("m", &[&words])).await.expect(200);
    let second = sent(&service).await["aut"].as_i64().expect("a size");
    let reported = i64::try_from(words.len() / 4).expect("a size");
    assert!((second - reported).abs() < (first - reported).abs(), "{first} {second} {reported}");
    let figures = service.get("/v1/analytics/messages").await.expect(200);
    assert_eq!(figures["data"][0]["estimate"]["sends"], 2);
}

#[tokio::test]
async fn a_send_that_somebody_else_has_ended_meanwhile_stays_as_they_ended_it() {
    let (service, asked) = provider::service().await;
    let task = begun(&service, &asked, CHAT, &chat("slow", &["x"])).await;
    let id = sent(&service).await["id"].as_str().expect("an id").to_owned();
    let outcome = json!({"assistant_text": "What they say."});
    service.post(&format!("/v1/sends/{id}/finalize"), &outcome).await.expect(200);
    let ended = sent(&service).await;
    asked.go_on.notify_one();
    assert_eq!(task.await.expect("an answer").status(), 200);
    assert_eq!(sent(&service).await, ended);
    let calls = "select count(*) from send_attempts";
    assert_eq!(stored(&service, calls).await, 1);
}

#[tokio::test]
async fn a_call_that_somebody_else_has_reported_meanwhile_counts_beside_the_last_one() {
    let (service, asked) = provider::service().await;
    let task = begun(&service, &asked, CHAT, &chat("slow", &["x"])).await;
    let id = sent(&service).await["id"].as_str().expect("an id").to_owned();
    let overflow = json!({"error": {"status": 400, "code": "context_length_exceeded", "message": "maximum context length"}});
    service.post(&format!("/v1/sends/{id}/attempts"), &overflow).await.expect(201);
    asked.go_on.notify_one();
    assert_eq!(task.await.expect("an answer").status(), 200);
    let ended = sent(&service).await;
    assert_eq!((&ended["state"], &ended["attempts_used"]), (&json!("complete"), &json!(2)));
}

#[tokio::test]
async fn an_answer_to_a_send_that_another_server_took_for_abandoned_is_not_said_to_be_recorded() {
    let (service, asked) = provider::service().await;
    let task = begun(&service, &asked, CHAT, &chat("slow", &["x"])).await;
    interrupt(service.pool(), chrono::TimeDelta::minutes(2)).await.expect("interrupts");
    asked.go_on.notify_one();
    let response = task.await.expect("ends");
    assert_eq!(
        (response.status().as_u16(), &response.headers()["gleaner-recorded"]),
        (200, &"no".parse().expect("a value"))
    );
    assert_eq!(sent(&service).await["stage"], "interrupted");
}

#[tokio::test]
async fn the_probabilities_of_an_answers_tokens_take_no_room_and_what_else_is_too_much_is_told_as_such() {
    let (service, _) = provider::service().await;
    let asked = |member: &str| with(chat("m", &["one"]), &json!({"adds": member}));
    call(&service, CHAT, &[], &asked("logprobs")).await.expect(200);
    let send = sent(&service).await;
    assert_eq!(
        (&send["state"], &send["pair"]["assistant_text"], &send["finish_reason"]),
        (&json!("complete"), &json!("Hello there"), &json!("stop"))
    );
    call(&service, CHAT, &[], &asked("other")).await.expect(200);
    let send = sent(&service).await;
    let expected = json!({"class": "unknown", "kind": "overloaded", "message": "The answer is longer than 2 MiB, or there is no memory left for it.",
        "label": "[error: unknown] The answer is longer than 2 MiB, or there is no memory left for it."});
    assert_eq!(send["error"], expected);
}

#[tokio::test]
async fn usage_of_more_than_the_text_that_was_sent_teaches_nothing() {
    let (service, _) = provider::service().await;
    let words = "some words that are said in a chat ".repeat(20);
    let body =
        json!({"model": "m", "previous_response_id": "r", "input": [{"role": "user", "content": words}]});
    let mut sizes = Vec::new();
    for _ in 0..2 {
        call(&service, RESPONSES, &[], &body).await.expect(200);
        sizes.push(sent(&service).await["aut"].clone());
    }
    assert_eq!(sizes[0], sizes[1]);
}
