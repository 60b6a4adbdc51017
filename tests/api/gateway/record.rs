//! What is kept: a send, each message once, an attempt where the client says so, and no more than the project wants.

use axum::http::Method;
use serde_json::{Value, json};

use super::{CHAT, MESSAGES, RESPONSES, begun, call, chat, sent};
use crate::support::program::interrupt;
use crate::support::provider;
use crate::support::{Service, column, request, with};

async fn stored(service: &Service, sql: &'static str) -> i64 {
    sqlx::query_scalar(sql).fetch_one(service.pool()).await.expect("a count")
}

fn id<'a>(send: &'a Value, name: &str) -> &'a str {
    send[name].as_str().expect("a text")
}

const MESSAGES_KEPT: &str = "select count(*) from sent_messages where message is not null";

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
async fn a_pair_that_is_erased_leaves_no_text_in_later_requests_nor_does_a_send() {
    let (service, _) = provider::service().await;
    call(&service, CHAT, &[], &chat("m", &["needle one"])).await.expect(200);
    let first = sent(&service).await;
    call(&service, CHAT, &[], &chat("m", &["needle one", "needle answer", "two"])).await.expect(200);
    let pair = first["pair_id"].as_str().expect("an id");
    assert_eq!(service.delete(&format!("/v1/pairs/{pair}")).await.status, 204);
    assert!(!service.dump().await.contains("needle"));
    let later = sent(&service).await;
    assert_eq!(column(later["messages"].as_array().expect("messages"), "content"), ["two"]);
    // The same said again stays erased in the requests before.
    for send in service.all("/v1/sends").await {
        let id = send["id"].as_str().expect("an id").to_owned();
        assert_eq!(service.delete(&format!("/v1/sends/{id}")).await.status, 204);
    }
    assert_eq!(stored(&service, "select count(*) from sent_messages").await, 0);
}

#[tokio::test]
async fn a_pair_that_is_erased_leaves_no_text_in_requests_without_what_came_before_it() {
    let (service, _) = provider::service().await;
    let session = [("gleaner-session", "s")];
    call(&service, CHAT, &session, &chat("m", &["one", "answer", "needle two"])).await.expect(200);
    let pair = sent(&service).await["pair_id"].as_str().expect("an id").to_owned();
    call(&service, CHAT, &session, &chat("m", &["needle two", "needle answer", "three"])).await.expect(200);
    let middle = json!({"model": "m", "messages": [
        {"role": "assistant", "content": "needle answer"}, {"role": "user", "content": "three"},
        {"role": "assistant", "content": "answer"}, {"role": "user", "content": "four"}]});
    call(&service, CHAT, &session, &middle).await.expect(200);
    service.delete(&format!("/v1/pairs/{pair}")).await.gone();
    assert!(!service.dump().await.contains("needle"));
    let later = sent(&service).await;
    assert_eq!(
        column(later["messages"].as_array().expect("messages"), "content"),
        ["three", "answer", "four"]
    );
    assert_eq!(stored(&service, MESSAGES_KEPT).await, 6);
}

#[tokio::test]
async fn a_pair_that_is_erased_leaves_no_text_where_an_agent_has_put_something_else_beside_it() {
    let (service, _) = provider::service().await;
    let session = [("gleaner-session", "s")];
    let body = |messages: &[Value]| json!({"model": "m", "max_tokens": 5, "messages": messages});
    let text = |text: &str| json!({"type": "text", "text": text});
    let human = |blocks: Vec<Value>| json!({"role": "user", "content": blocks});
    let answer = |text: &str| json!({"role": "assistant", "content": text});
    let (todo, date) =
        (text("<system-reminder>todo</system-reminder>"), text("<system-reminder>date</system-reminder>"));
    let one = text("needle one");
    let mut messages = vec![human(vec![one.clone(), todo.clone()])];
    call(&service, MESSAGES, &session, &body(&messages)).await.expect(200);
    let pair = sent(&service).await["pair_id"].as_str().expect("an id").to_owned();
    for beside in [vec![one.clone()], vec![date.clone(), one.clone()], vec![todo.clone(), one, date.clone()]]
    {
        messages = vec![human(beside), answer("needle answer"), human(vec![text("two"), todo.clone()])];
        call(&service, MESSAGES, &session, &body(&messages)).await.expect(200);
    }
    service.delete(&format!("/v1/pairs/{pair}")).await.gone();
    assert!(!service.dump().await.contains("needle"));
    let later = sent(&service).await;
    assert_eq!(later["messages"], json!([human(vec![text("two"), todo])]));
}

#[tokio::test]
async fn a_pair_that_is_erased_after_its_send_leaves_no_text_in_requests_that_began_otherwise() {
    let (service, _) = provider::service().await;
    let request = |at: &str, texts: &[&str]| {
        let mut body = chat("m", texts);
        let messages = body["messages"].as_array_mut().expect("messages");
        messages.insert(0, json!({"role": "system", "content": format!("It is {at}.")}));
        body
    };
    let erasures: [fn(&Value, &Value) -> Vec<String>; 3] = [
        |first, _| {
            vec![format!("/v1/sends/{}", id(first, "id")), format!("/v1/pairs/{}", id(first, "pair_id"))]
        },
        |first, _| {
            vec![format!("/v1/records/{}", id(first, "id")), format!("/v1/records/{}", id(first, "pair_id"))]
        },
        // What is left is younger.
        |_, last| vec![format!("/v1/records?before={}&domain=messages", id(last, "created_at"))],
    ];
    for (session, erasure) in ["a", "b", "c"].into_iter().zip(erasures) {
        let session = [("gleaner-session", session)];
        call(&service, CHAT, &session, &request("10:00", &["needle one"])).await.expect(200);
        let first = sent(&service).await;
        let later = request("10:01", &["needle one", "needle answer", "two"]);
        call(&service, CHAT, &session, &later).await.expect(200);
        for path in erasure(&first, &sent(&service).await) {
            let answer = service.delete(&path).await;
            assert!(answer.status.is_success(), "{path}");
        }
        assert!(!service.dump().await.contains("needle"));
        let later = sent(&service).await;
        let left = column(later["messages"].as_array().expect("messages"), "content");
        assert_eq!(left, ["It is 10:01.", "two"]);
    }
}

#[tokio::test]
async fn a_pair_that_is_erased_takes_nothing_of_one_that_answers_the_same_words_elsewhere() {
    let (service, _) = provider::service().await;
    let erasures: [fn(&Value, &Value) -> String; 2] = [
        |first, _| format!("/v1/pairs/{}", id(first, "pair_id")),
        // The second pair is younger.
        |_, second| format!("/v1/records?before={}&domain=messages", id(second, "created_at")),
    ];
    for (session, erasure) in ["a", "b"].into_iter().zip(erasures) {
        let session = [("gleaner-session", session)];
        let said = ["plan", "planned", "continue", "needle one", "continue", "answer two", "thanks"];
        let mut sends = Vec::new();
        for length in [3, 5, 7] {
            call(&service, CHAT, &session, &chat("m", &said[..length])).await.expect(200);
            sends.push(sent(&service).await);
        }
        let answer = service.delete(&erasure(&sends[0], &sends[1])).await;
        assert!(answer.status.is_success());
        assert!(!service.dump().await.contains("needle"));
        let last = sent(&service).await;
        let left = column(last["messages"].as_array().expect("messages"), "content");
        assert_eq!(left, ["plan", "planned", "continue", "answer two", "thanks"]);
        // It still goes with its own pair.
        service.delete(&format!("/v1/pairs/{}", id(&sends[1], "pair_id"))).await.gone();
        let last = sent(&service).await;
        let left = column(last["messages"].as_array().expect("messages"), "content");
        assert_eq!(left, ["plan", "planned", "thanks"]);
    }
}

#[tokio::test]
async fn a_pair_that_is_asked_again_takes_no_text_from_other_sends_until_it_is_erased() {
    let (service, _) = provider::service().await;
    let session = [("gleaner-session", "s")];
    call(&service, CHAT, &session, &chat("failing", &["needle one"])).await.expect(503);
    let failed = sent(&service).await["pair_id"].clone();
    let whole = ["needle one", "needle answer", "two"];
    call(&service, CHAT, &session, &chat("m", &whole)).await.expect(200);
    let address = format!("/v1/sends/{}", id(&sent(&service).await, "id"));
    let carried = async || {
        let send = service.get(&address).await.expect(200);
        column(send["messages"].as_array().expect("messages"), "content")
    };
    let again = json!({"mode": "record", "model": "m", "reask_of": failed});
    let again = service.post("/v1/sends", &again).await.expect(201);
    assert_eq!(carried().await, whole);
    let outcome = json!({"assistant_text": "An answer."});
    service.post(&format!("/v1/sends/{}/finalize", id(&again, "id")), &outcome).await.expect(200);
    service.delete(&format!("/v1/pairs/{}", id(&again, "pair_id"))).await.gone();
    assert_eq!(carried().await, ["two"]);
    assert!(!service.dump().await.contains("needle"));
}

#[tokio::test]
async fn the_answers_of_pairs_that_grow_old_with_their_sends_leave_no_text_in_younger_requests() {
    let (service, _) = provider::service().await;
    let session = [("gleaner-session", "s")];
    call(&service, CHAT, &session, &chat("m", &["one"])).await.expect(200);
    call(&service, CHAT, &session, &chat("m", &["one", "needle answer", "two"])).await.expect(200);
    let middle = json!({"model": "m", "messages": [
        {"role": "assistant", "content": "needle answer"}, {"role": "user", "content": "three"}]});
    call(&service, CHAT, &session, &middle).await.expect(200);
    let before = format!("/v1/records?before={}", id(&sent(&service).await, "created_at"));
    let erased = service.delete(&before).await.expect(200)["erased"].clone();
    assert_eq!((&erased["sends"], &erased["pairs"]), (&json!(2), &json!(2)));
    assert!(!service.dump().await.contains("needle"));
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
async fn agents_are_known_by_the_session_that_they_name_and_a_turn_by_its_human_message() {
    let (service, _) = provider::service().await;
    let tool = |id: &str| {
        [
            json!({"role": "assistant", "content": [{"type": "tool_use", "id": id, "name": "Bash", "input": {}}]}),
            json!({"role": "user", "content": [{"type": "tool_result", "tool_use_id": id, "content": "ok"}]}),
        ]
    };
    let mut messages = vec![json!({"role": "user", "content": [
        {"type": "text", "text": "<system-reminder>be nice</system-reminder>"}, {"type": "text", "text": "fix it"}]})];
    let metadata = json!({"user_id": "user_1_account__session_claude-session"});
    for id in ["a", "b"] {
        let body = json!({"model": "claude", "max_tokens": 9, "messages": messages, "metadata": metadata});
        call(&service, MESSAGES, &[], &body).await.expect(200);
        messages.extend(tool(id));
    }
    let pairs = service.all("/v1/pairs?session_id=claude-session").await;
    assert_eq!(column(&pairs, "user_text"), ["fix it", "fix it"]);
    // In a conversation both are one.
    let rows = service.get("/v1/exports/conversations").await.rows();
    assert_eq!(rows.len(), 1);
    assert_eq!(rows[0]["messages"].as_array().map(Vec::len), Some(2));
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
async fn what_a_person_says_beside_the_result_of_a_tool_is_a_question_of_its_own() {
    let (service, _) = provider::service().await;
    let session = [("gleaner-session", "s")];
    let body = |messages: &[Value]| json!({"model": "claude", "max_tokens": 9, "messages": messages});
    let uses = |id: &str| {
        json!({"role": "assistant", "content": [
            {"type": "text", "text": "I will look."}, {"type": "tool_use", "id": id, "name": "Bash", "input": {}}]})
    };
    let result = |id: &str, texts: &[&str]| {
        let mut blocks = vec![json!({"type": "tool_result", "tool_use_id": id, "content": "a result"})];
        blocks.extend(texts.iter().map(|text| json!({"type": "text", "text": text})));
        json!({"role": "user", "content": blocks})
    };
    let mut messages = vec![json!({"role": "user", "content": "What does foo do?"})];
    call(&service, MESSAGES, &session, &body(&messages)).await.expect(200);
    for (id, texts) in [
        ("a", &["[Request interrupted by user for tool use]", "Forget foo. What is 2+2?"][..]),
        ("b", &[]),
        ("c", &["<system-reminder>be nice</system-reminder>", "[Request interrupted by user]", " "]),
        ("d", &["<environment_details>it is late</environment_details>"]),
    ] {
        messages.extend([uses(id), result(id, texts)]);
        call(&service, MESSAGES, &session, &body(&messages)).await.expect(200);
    }
    let pairs = service.all("/v1/pairs").await;
    let (first, second) = ("What does foo do?", "Forget foo. What is 2+2?");
    assert_eq!(column(&pairs, "user_text"), [second, second, second, second, first]);
    let rows = service.get("/v1/exports/conversations?format=raw").await.rows();
    let said: Vec<_> =
        rows.iter().map(|row| column(row["pairs"].as_array().expect("pairs"), "user_text")).collect();
    assert_eq!(said, [[first, second]]);
    // Each is erased for itself.
    let erase = async |pair: &Value| {
        service.delete(&format!("/v1/pairs/{}", pair["id"].as_str().expect("an id"))).await.gone();
    };
    erase(&pairs[4]).await;
    let left = service.dump().await;
    assert!(!left.contains(first) && left.contains(second));
    for pair in &pairs[..4] {
        erase(pair).await;
    }
    let left = service.dump().await;
    assert!(!left.contains(second) && !left.contains("a result"));
}

#[tokio::test]
async fn what_a_person_sends_while_the_agent_works_is_a_message_of_its_own() {
    let (service, _) = provider::service().await;
    let told = "The user sent a new message while you were working:\nAlso fix bar.\n\nThis is how Claude Code surfaces messages the user sends mid-turn.";
    let reminder = format!("<system-reminder>\n{told}\n</system-reminder>");
    let result = json!({"type": "tool_result", "tool_use_id": "a", "content": "a result"});
    let asked = json!({"role": "user", "content": "Fix foo."});
    let uses = json!({"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "Bash", "input": {}}]});
    let answered = json!({"role": "user", "content": [result]});
    // Agents send it beside the result of a tool, after it, or as a message of the system.
    for (session, sent) in [
        ("a", vec![json!({"role": "user", "content": [result, {"type": "text", "text": reminder}]})]),
        ("b", vec![answered.clone(), json!({"role": "user", "content": reminder})]),
        ("c", vec![answered.clone(), json!({"role": "system", "content": told})]),
    ] {
        let first = [asked.clone(), uses.clone()];
        for messages in [first[..1].to_vec(), [&first[..], &sent].concat()] {
            let body = json!({"model": "claude", "max_tokens": 9, "messages": messages});
            call(&service, MESSAGES, &[("gleaner-session", session)], &body).await.expect(200);
        }
    }
    let rows = service.get("/v1/exports/conversations?format=raw").await.rows();
    let said: Vec<_> =
        rows.iter().map(|row| column(row["pairs"].as_array().expect("pairs"), "user_text")).collect();
    assert_eq!(said, [["Fix foo.", "Also fix bar."]; 3]);
}

#[tokio::test]
async fn what_an_agent_asks_for_itself_is_in_no_conversation_and_is_erased_by_itself() {
    let (service, _) = provider::service().await;
    let session = [("gleaner-session", "s")];
    let user = |text: &str| json!({"role": "user", "content": text});
    let answer = || json!({"role": "assistant", "content": "Hello there"});
    let mut history = vec![user("one")];
    let body = |system: &str, messages: &[Value]| json!({"model": "m", "max_tokens": 5, "system": system, "messages": messages});
    let agent = "You work on code.";
    call(&service, MESSAGES, &session, &body(agent, &history)).await.expect(200);
    // A request for a title has the person's own message, which is also that of the conversation.
    let title =
        "You work on code.\nAnalyze if this message indicates a new conversation topic. Answer with JSON.";
    call(&service, MESSAGES, &session, &body(title, &history)).await.expect(200);
    for asked in [
        "[SUGGESTION MODE: what would they type?]",
        "Your task is to create a detailed summary of the conversation so far: needle",
        "You are performing a CONTEXT CHECKPOINT COMPACTION. Go.",
    ] {
        let messages = [&history[..], &[answer(), user(asked)]].concat();
        call(&service, MESSAGES, &session, &body(agent, &messages)).await.expect(200);
    }
    history.extend([answer(), user("two"), user("<skill>deploy</skill>")]);
    call(&service, MESSAGES, &session, &body(agent, &history)).await.expect(200);
    let pairs = service.all("/v1/pairs").await;
    assert_eq!(column(&pairs, "user_text"), ["two", "", "", "", "", "one"]);
    let rows = service.get("/v1/exports/conversations?format=raw").await.rows();
    let said: Vec<_> =
        rows.iter().map(|row| column(row["pairs"].as_array().expect("pairs"), "user_text")).collect();
    assert_eq!(said, [["one", "two"]]);
    service.delete(&format!("/v1/pairs/{}", id(&pairs[2], "id"))).await.gone();
    assert!(!service.dump().await.contains("needle"));
    assert_eq!(service.get("/v1/exports/conversations?format=raw").await.rows(), rows);
    service.delete(&format!("/v1/pairs/{}", id(&pairs[5], "id"))).await.gone();
    let left = sent(&service).await["messages"].clone();
    let system = json!({"role": "system", "content": agent});
    assert_eq!(left, json!([system, user("two"), user("<skill>deploy</skill>")]));
}

#[tokio::test]
async fn an_answer_that_was_cut_off_is_in_no_conversation() {
    let (service, _) = provider::service().await;
    for (session, texts, more) in [
        ("s", &["one"][..], json!({})),
        ("s", &["one", "Hello there", "two"], json!({"max_tokens": 1})),
        ("t", &["one"], json!({"max_tokens": 1})),
    ] {
        call(&service, CHAT, &[("gleaner-session", session)], &with(chat("m", texts), &more))
            .await
            .expect(200);
    }
    assert_eq!(sent(&service).await["finish_reason"], "length");
    let said = async || {
        let rows = service.get("/v1/exports/conversations?format=raw").await.rows();
        let listed = service.get("/v1/exports").await.expect(200);
        let sets = listed["data"].as_array().expect("data sets");
        let count = sets.iter().find(|set| set["dataset"] == "conversations").expect("the data set");
        assert_eq!(count["rows"], rows.len());
        let texts = |row: &Value| column(row["pairs"].as_array().expect("pairs"), "user_text");
        rows.iter().map(texts).collect::<Vec<_>>()
    };
    assert_eq!(said().await, [["one"]]);
    // What a person writes in its place is whole.
    for pair in service.all("/v1/pairs").await {
        let change = json!({"assistant_text": "All of it."});
        service.patch(&format!("/v1/pairs/{}", id(&pair, "id")), &change).await.expect(200);
    }
    assert_eq!(said().await, [&["one", "two"][..], &["one"]]);
}

#[tokio::test]
async fn what_a_person_has_taken_back_is_in_no_conversation() {
    let (service, _) = provider::service().await;
    let again = "Hello there";
    for texts in [
        &["one"][..],
        &["one", again, "two"],
        &["one", again, "two", again, "more of it"],
        &["one", again, "another two"],
        &["one", again, "another two", again, "three"],
    ] {
        call(&service, CHAT, &[("gleaner-session", "s")], &chat("m", texts)).await.expect(200);
    }
    let rows = service.get("/v1/exports/conversations?format=raw").await.rows();
    let said: Vec<_> =
        rows.iter().map(|row| column(row["pairs"].as_array().expect("pairs"), "user_text")).collect();
    assert_eq!(said, [["one", "another two", "three"]]);
}

#[tokio::test]
async fn what_begins_anew_takes_nothing_back() {
    let (service, _) = provider::service().await;
    // The provider remembers what came before, or another session goes on with the topic.
    for (session, text) in [("s", "one"), ("s", "two"), ("t", "three"), ("t", "four")] {
        let headers = [("gleaner-session", session), ("gleaner-topic", "billing")];
        call(&service, CHAT, &headers, &chat("m", &[text])).await.expect(200);
    }
    let rows = service.get("/v1/exports/conversations?format=raw").await.rows();
    let said: Vec<_> =
        rows.iter().map(|row| column(row["pairs"].as_array().expect("pairs"), "user_text")).collect();
    assert_eq!(said, [["one", "two", "three", "four"]]);
}

#[tokio::test]
async fn an_answer_to_a_message_with_a_picture_is_in_no_conversation() {
    let (service, _) = provider::service().await;
    let picture = json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}});
    let ask = json!({"role": "user", "content": "What is this?"});
    let mut messages =
        vec![json!({"role": "user", "content": [{"type": "text", "text": "See"}, picture]}), ask];
    for text in ["", "And what else do you know?"] {
        if !text.is_empty() {
            messages.push(json!({"role": "assistant", "content": "Hello there"}));
            messages.push(json!({"role": "user", "content": text}));
        }
        let request = with(chat("m", &[]), &json!({"messages": messages}));
        call(&service, CHAT, &[("gleaner-session", "s")], &request).await.expect(200);
    }
    assert_eq!(service.all("/v1/pairs").await.len(), 2);
    let rows = service.get("/v1/exports/conversations?format=raw").await.rows();
    let said: Vec<_> =
        rows.iter().map(|row| column(row["pairs"].as_array().expect("pairs"), "user_text")).collect();
    assert_eq!(said, [["And what else do you know?"]]);
}

#[tokio::test]
async fn an_error_that_quotes_a_message_is_erased_with_it_but_for_its_kind() {
    let (service, _) = provider::service().await;
    call(&service, CHAT, &[], &chat("quoting", &["needle"])).await.expect(400);
    let first = sent(&service).await;
    let again = json!({"mode": "execute", "reask_of": first["pair_id"]});
    let again = service.post("/v1/sends", &again).await.expect(201);
    let first = service.get(&format!("/v1/sends/{}", id(&first, "id"))).await.expect(200);
    for send in [&first, &again] {
        assert!(send["error"]["message"].as_str().expect("a text").contains("needle"), "{send}");
    }
    service.delete(&format!("/v1/pairs/{}", id(&again, "pair_id"))).await.gone();
    assert!(!service.dump().await.contains("needle"));
    let error =
        json!({"class": "unknown", "kind": "invalid_request", "message": null, "label": "[error: unknown]"});
    for send in [first, again] {
        let send = service.get(&format!("/v1/sends/{}", id(&send, "id"))).await.expect(200);
        assert_eq!([&send["error"], &send["attempts"][0]["error"]], [&error; 2]);
    }
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

#[tokio::test]
async fn the_same_said_after_different_responses_is_said_twice() {
    let (service, _) = provider::service().await;
    for before in [json!({}), json!({"previous_response_id": "r1"}), json!({"previous_response_id": "r2"})] {
        let body = with(json!({"model": "m", "input": [{"role": "user", "content": "continue"}]}), &before);
        call(&service, RESPONSES, &[("gleaner-session", "s")], &body).await.expect(200);
    }
    let rows = service.get("/v1/exports/conversations?format=raw").await.rows();
    let said: Vec<_> =
        rows.iter().map(|row| column(row["pairs"].as_array().expect("pairs"), "user_text")).collect();
    assert_eq!(said, [["continue"; 3]]);
}
