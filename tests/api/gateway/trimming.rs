//! `Gleaner-Trim`: the oldest turns are dropped when the provider says that the context overflows.

use serde_json::json;

use super::{CHAT, MESSAGES, call, sent};
use crate::support::column;
use crate::support::provider;

#[tokio::test]
async fn the_oldest_turns_are_dropped_with_their_tools_until_the_rest_fits() {
    let (service, asked) = provider::service().await;
    let long = "x".repeat(500);
    let messages = json!([
        {"role": "user", "content": long},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "Bash", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "ok"}]},
        {"role": "user", "content": long}, {"role": "assistant", "content": "y"},
        {"role": "user", "content": "z".repeat(900)}]);
    let body = json!({"model": "claude", "max_tokens": 9, "system": "Be brief.", "messages": messages});
    let answer = call(&service, MESSAGES, &[("gleaner-trim", "on")], &body).await;
    assert_eq!(answer.expect(200)["content"][0]["text"], "Hello there");
    assert_eq!(asked.calls(), 3);
    assert_eq!(asked.last()["messages"], json!([messages[5]]));
    assert_eq!(asked.last()["system"], "Be brief.");
    let send = sent(&service).await;
    assert_eq!(
        (&send["counter"], &send["attempts_used"], &send["sent_count"]),
        (&json!("[2-2]/2"), &json!(3), &json!(0))
    );
    let stages = ["overflow_initial", "overflow_retry", "attempt_success"];
    assert_eq!(column(send["attempts"].as_array().expect("attempts"), "stage"), stages);
    assert_eq!(column(send["attempts"].as_array().expect("attempts"), "trimmed_count"), [0, 1, 2]);
    let summary = send["trim_summary"].as_str().expect("a summary");
    assert!(summary.starts_with("The 2 oldest of 2 message pairs"), "{summary}");
    assert_eq!(send["messages"].as_array().map(Vec::len), Some(2));
}

#[tokio::test]
async fn no_more_is_dropped_than_there_is_or_than_the_project_allows() {
    let (service, asked) = provider::service().await;
    let trim = [("gleaner-trim", "on")];
    let long = "x".repeat(1_300);
    let body = json!({"model": "m", "messages": [
        {"role": "user", "content": "one"}, {"role": "user", "content": "two"}, {"role": "user", "content": long}]});
    let answer = call(&service, CHAT, &trim, &body).await;
    assert!(answer.text().contains("prompt is too long"), "{}", answer.text());
    let send = sent(&service).await;
    assert_eq!(
        (&send["error"]["kind"], &send["stage"]),
        (&json!("context_overflow_after_trimming"), &json!("overflow_exhausted"))
    );
    assert_eq!(asked.calls(), 3);
    service.put("/v1/projects/default", &json!({"messages": {"max_trim_attempts": 1}})).await.expect(200);
    call(&service, CHAT, &trim, &body).await;
    assert_eq!(asked.calls(), 5);
    assert_eq!(sent(&service).await["counter"], "[2-1]/2");
    // Another error ends it, and passes.
    let body = json!({"model": "limited", "messages": [{"role": "user", "content": "one"}, {"role": "user", "content": "two"}]});
    call(&service, CHAT, &trim, &body).await.expect(429);
    assert_eq!(asked.calls(), 6);
}

#[tokio::test]
async fn what_was_said_beside_the_result_of_a_tool_is_dropped_with_the_turn_of_the_tool() {
    let (service, asked) = provider::service().await;
    let long = "x".repeat(500);
    let uses = json!({"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "Bash", "input": {}}]});
    let result = |text: &str| {
        json!({"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "t", "content": "ok"}, {"type": "text", "text": text}]})
    };
    let messages = json!([
        {"role": "user", "content": long}, uses, result("wait"), {"role": "assistant", "content": "yes?"},
        {"role": "user", "content": "z".repeat(900)}, uses, result("and on")]);
    let body = json!({"model": "claude", "max_tokens": 9, "messages": messages});
    call(&service, MESSAGES, &[("gleaner-trim", "on")], &body).await.expect(200);
    let left = json!([messages[4], messages[5], messages[6]]);
    assert_eq!(asked.last()["messages"], left);
    let send = sent(&service).await;
    assert_eq!((&send["messages"], &send["counter"]), (&left, &json!("[1-1]/1")));
    assert_eq!(send["pair"]["user_text"], "and on");
}
