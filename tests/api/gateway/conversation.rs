//! What is a message of a person and an answer to it, so that it stands in a conversation, and what agents ask for themselves.

use serde_json::{Value, json};

use super::{CHAT, MESSAGES, RESPONSES, call, chat, id, sent};
use crate::support::provider;
use crate::support::{column, with};

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
