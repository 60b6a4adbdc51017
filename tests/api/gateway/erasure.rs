//! What is erased: the text of a pair goes wherever requests have repeated it, and nothing else goes with it.

use serde_json::{Value, json};

use super::{CHAT, MESSAGES, MESSAGES_KEPT, call, chat, id, sent, stored};
use crate::support::column;
use crate::support::provider;

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
