//! Sends that Gleaner performs, with a provider that counts what it is asked.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{Method, header};
use futures_util::future::join;
use serde_json::{Value, json};
use tokio::time::timeout;
use tower::ServiceExt as _;
use uuid::Uuid;

use crate::support::program::Settings;
use crate::support::provider::{self, Asked};
use crate::support::{Answer, Service, assert_whole, column, eventually, request, with};

/// A pair of so many tokens.
async fn pairs(service: &Service, sizes: &[usize]) -> Vec<String> {
    let mut ids = Vec::new();
    for size in sizes {
        let pair = json!({"user_text": "u".repeat(2 * size), "assistant_text": "a".repeat(2 * size)});
        ids.push(service.create("/v1/pairs", pair).await);
    }
    ids
}

fn send(model: &str, more: &Value) -> Value {
    let send = json!({"mode": "execute", "model": model, "user_text": "What now?", "visible": {"filter": {}},
        "settings": {"chars_per_token": 4}});
    with(send, more)
}

async fn performed(service: &Service, model: &str, more: &Value) -> Value {
    service.post("/v1/sends", &send(model, more)).await.expect(201)
}

#[tokio::test]
async fn a_send_is_performed_with_what_is_visible_and_kept_with_its_answer() {
    let (service, asked) = provider::service().await;
    pairs(&service, &[10, 10]).await;
    let sent =
        performed(&service, "m", &json!({"id": Uuid::from_u128(1), "system": "Be brief.", "topic_id": "t"}))
            .await;
    let mut timeless = sent.clone();
    assert!(timeless["attempts"][0]["latency_ms"].take().is_i64());
    assert_whole!("a_send_that_was_performed", timeless);
    let body = asked.last();
    assert_eq!(body["messages"], sent["messages"]);
    assert_eq!(body.as_object().map(serde_json::Map::len), Some(2), "{body}");
    assert_eq!(asked.last_headers()["authorization"], "Bearer provider-key");
    assert_eq!(asked.last_headers()["accept-encoding"], "identity");
    assert!(!service.dump().await.contains("provider-key"));
    // The same again is not paid for twice.
    let more = json!({"id": Uuid::from_u128(1), "system": "Be brief.", "topic_id": "t"});
    assert_eq!(service.post("/v1/sends", &send("m", &more)).await.expect(200), sent);
    assert_eq!(asked.calls(), 1);
    let sent = performed(&service, "claude", &json!({"system": "Be brief."})).await;
    assert_eq!(sent["pair"]["assistant_text"], "Hello there");
    assert_eq!(
        (&asked.last()["system"], &asked.last()["messages"][0]["role"]),
        (&json!("Be brief."), &json!("user"))
    );
    assert_eq!(asked.last_headers()["x-api-key"], "provider-key");
}

#[tokio::test]
async fn overflows_drop_the_oldest_pair_until_the_rest_fits() {
    let (service, asked) = provider::service().await;
    let ids = pairs(&service, &[60, 60, 60, 60, 60]).await;
    let sent =
        performed(&service, "m", &json!({"settings": {"chars_per_token": 5, "user_request_allowance": 10}}))
            .await;
    assert_eq!(sent["state"], "complete");
    assert_eq!((&sent["counter"], &sent["attempts_used"]), (&json!("[5-1]/5"), &json!(2)));
    assert_eq!(sent["trimming_removed_ids"], json!([ids[0]]));
    assert_eq!(asked.calls(), 2);
    assert_eq!(asked.last()["messages"].as_array().map(Vec::len), Some(9));
    // Where nothing may be dropped, one call is made.
    let none =
        json!({"settings": {"chars_per_token": 8, "max_trim_attempts": 0}, "user_text": "x".repeat(1_300)});
    let sent = performed(&service, "m", &none).await;
    assert_eq!(sent["error"]["kind"], "context_overflow_after_trimming");
    assert_eq!(asked.calls(), 3);
    assert_eq!(sent["snapshot"]["included_pair_ids"].as_array().map(Vec::len), Some(6));
    // All are dropped, and it is still too much.
    let all = json!({"settings": {"chars_per_token": 8}, "user_text": "x".repeat(1_300)});
    let sent = performed(&service, "m", &all).await;
    assert_eq!(sent["attempts_used"], sent["predicted_message_count"].as_i64().expect("a count") + 1);
    assert_eq!((&sent["sent_count"], &sent["stage"]), (&json!(0), &json!("overflow_exhausted")));
}

#[tokio::test]
async fn errors_of_each_class_end_a_send_and_are_kept_with_their_wait() {
    let (service, asked) = provider::service().await;
    for (model, class, kind, stage) in [
        ("limited", "quota", "rate_limit", "other_error"),
        ("refused", "auth", "authentication", "auth_error"),
        ("broken", "unknown", "unknown", "other_error"),
        ("moved", "unknown", "unknown", "other_error"),
    ] {
        let sent = performed(&service, model, &json!({})).await;
        assert_eq!(
            (&sent["error"]["class"], &sent["error"]["kind"]),
            (&json!(class), &json!(kind)),
            "{model}"
        );
        assert_eq!((&sent["state"], &sent["stage"]), (&json!("error"), &json!(stage)), "{model}");
    }
    assert_eq!(asked.calls(), 4);
    let limited = service.get("/v1/sends?class=quota").await.expect(200);
    assert_eq!(limited["data"][0]["error"]["retry_after_s"], 7);
    service.post("/v1/sends", &send("nobodys", &json!({}))).await.refused(404, &[]);
    let large = send("m", &json!({"user_text": "x".repeat(4 * 401)}));
    service.post("/v1/sends", &large).await.refused(422, &["/user_text"]);
    assert_eq!(asked.calls(), 4);
}

#[tokio::test]
async fn a_stream_tells_of_attempts_deltas_and_trims_and_ends_after_the_commit() {
    let (service, _) = provider::service().await;
    pairs(&service, &[60, 60, 60, 60, 60]).await;
    let more = json!({"stream": true, "settings": {"chars_per_token": 5, "user_request_allowance": 10}});
    let told = service.post("/v1/sends", &send("m", &more)).await;
    assert_eq!(told.header("content-type"), Some("text/event-stream"));
    let text = told.text();
    let names: Vec<_> = text.lines().filter_map(|line| line.strip_prefix("event: ")).collect();
    assert_eq!(names, ["attempt", "trimmed", "attempt", "delta", "delta", "done"]);
    let last: Value =
        serde_json::from_str(text.lines().rev().find_map(|line| line.strip_prefix("data: ")).expect("data"))
            .expect("JSON");
    assert_eq!(last["send"]["pair"]["assistant_text"], "Hello there");
    assert_eq!(last["send"]["counter"], "[5-1]/5");
    let cut = service.post("/v1/sends", &send("cut", &json!({"stream": true, "visible": null}))).await.text();
    assert!(cut.contains("event: error") && cut.contains("cut_stream"), "{cut}");
    let kept = service.get("/v1/sends?state=error").await.expect(200);
    assert_eq!(column(kept["data"].as_array().expect("sends"), "model"), ["cut"]);
}

#[tokio::test]
async fn a_stream_ends_with_what_is_known_of_a_send_that_is_kept_and_cannot_be_read() {
    let (service, asked) = provider::service().await;
    let id = Uuid::from_u128(1);
    let body = send("slow", &json!({"id": id, "stream": true}));
    let unread = async {
        asked.came.notified().await;
        let places = service.holding_back_reads().await;
        asked.go_on.notify_one();
        places
    };
    let told = async { service.post("/v1/sends", &body).await.text() };
    let (told, places) = join(told, unread).await;
    drop(places);
    let last = told.lines().rev().find_map(|line| line.strip_prefix("data: ")).expect("data");
    let kept = service.get(&format!("/v1/sends/{id}")).await.expect(200);
    let text = &kept["pair"]["assistant_text"];
    assert!(text.is_string() && told.contains("event: done"), "{told}");
    let known = json!({"id": id, "state": "complete", "assistant_text": text, "error": null, "usage": kept["usage"],
        "attempts_used": 1, "trimmed_count": 0});
    assert_eq!(serde_json::from_str::<Value>(last).expect("JSON"), json!({"send": known}));
}

#[tokio::test]
async fn a_stream_tells_of_an_error_as_it_is_kept() {
    let (service, _) = provider::service().await;
    let rules = json!({"redact": {"custom": [{"name": "key", "regex": "API key"}]}});
    service.put("/v1/projects/default", &rules).await.expect(200);
    let told = service.post("/v1/sends", &send("refused", &json!({"stream": true}))).await.text();
    let last = told.lines().rev().find_map(|line| line.strip_prefix("data: ")).expect("data");
    let last: Value = serde_json::from_str(last).expect("JSON");
    let message = last["error"]["message"].as_str().expect("a message");
    assert!(message.contains("Incorrect [redacted:key]"), "{told}");
    assert_eq!(last["error"], last["send"]["error"]);
}

/// Begins a send to the slow model, on a task of its own; its id.
async fn begun(
    service: &Service,
    asked: &Asked,
) -> (Uuid, tokio::task::JoinHandle<axum::response::Response>) {
    let id = Uuid::new_v4();
    let body = send("slow", &json!({"id": id}));
    let request = request(Method::POST, "/v1/sends").header(header::CONTENT_TYPE, "application/json");
    let request = request.body(Body::from(body.to_string())).expect("a request");
    let router = service.router.clone();
    let task = tokio::spawn(async move { router.oneshot(request).await.expect("an answer") });
    asked.came.notified().await;
    (id, task)
}

#[tokio::test]
async fn a_send_in_flight_is_not_performed_twice_and_can_be_cancelled() {
    let (service, asked) = provider::service().await;
    let (id, task) = begun(&service, &asked).await;
    let again = service.post("/v1/sends", &send("slow", &json!({"id": id}))).await.expect(200);
    assert_eq!(again["state"], "sending");
    let cancel = json!({"reason": "filter_changed"});
    let cancelled = service.post(&format!("/v1/sends/{id}/cancel"), &cancel).await.expect(200);
    assert_eq!(cancelled["error"]["reason"], "filter_changed");
    assert_eq!(task.await.expect("ends").status(), 201);
    assert_eq!(service.get(&format!("/v1/sends/{id}")).await.expect(200)["stage"], "cancelled");
    assert_eq!(asked.calls(), 1);
}

#[tokio::test]
async fn a_client_that_hangs_up_cancels_its_send() {
    let (service, asked) = provider::service().await;
    let (id, task) = begun(&service, &asked).await;
    task.abort();
    eventually("the send is cancelled", async || {
        service.get(&format!("/v1/sends/{id}")).await.json()["error"]["reason"] == "client_gone"
    })
    .await;
}

#[tokio::test]
async fn a_call_that_was_under_way_when_its_send_was_cancelled_counts_in_quotas() {
    let (service, asked) = provider::service().await;
    super::model(&service, "slow", &json!({"context_window": 1_000, "rpm": 2})).await;
    for reason in ["user", "client_gone"] {
        let (id, task) = begun(&service, &asked).await;
        if reason == "user" {
            service.post(&format!("/v1/sends/{id}/cancel"), &json!({})).await.expect(200);
        } else {
            task.abort();
        }
        eventually("the send is cancelled", async || {
            service.get(&format!("/v1/sends/{id}")).await.json()["error"]["reason"] == reason
        })
        .await;
    }
    let problem = service.post("/v1/sends", &send("slow", &json!({}))).await.refused(429, &[]);
    assert_eq!(problem["quota"]["rpm"]["used"], 2);
    assert_eq!(asked.calls(), 2);
}

#[tokio::test]
async fn a_call_ends_whose_send_is_cancelled_by_way_of_another_server() {
    let (service, asked) = provider::service().await;
    let (id, task) = begun(&service, &asked).await;
    let cancel = json!({"reason": "filter_changed"});
    service.another().post(&format!("/v1/sends/{id}/cancel"), &cancel).await.expect(200);
    eventually("the call ends", async || task.is_finished()).await;
    let sent = service.get(&format!("/v1/sends/{id}")).await.expect(200);
    assert_eq!((&sent["stage"], &sent["error"]["reason"]), (&json!("cancelled"), &json!("filter_changed")));
}

#[tokio::test]
async fn a_send_that_is_erased_does_not_call_the_provider_again() {
    let (service, asked) = provider::service().await;
    pairs(&service, &[60; 5]).await;
    let more = json!({"session_id": "s", "settings": {"chars_per_token": 5, "user_request_allowance": 10}});
    let body = send("slow", &more);
    let erased = async {
        asked.came.notified().await;
        service.delete("/v1/sessions/s").await.expect(200);
        asked.go_on.notify_one();
        asked.came.notified().await;
    };
    tokio::select! {
        answer = service.post("/v1/sends", &body) => {
            answer.refused(404, &[]);
        }
        () = erased => panic!("the provider is called again"),
    }
    assert_eq!(asked.calls(), 1);
}

#[tokio::test]
async fn what_changes_during_a_send_does_not_change_the_send() {
    let (service, asked) = provider::service().await;
    let ids = pairs(&service, &[5]).await;
    let (id, task) = begun(&service, &asked).await;
    super::patch(&service, &format!("/v1/pairs/{}", ids[0]), &json!({"user_text": "edited"}))
        .await
        .expect(200);
    let settings = json!({"messages": {"user_request_allowance": 399}});
    service.put("/v1/projects/default", &settings).await.expect(200);
    asked.go_on.notify_one();
    assert_eq!(task.await.expect("ends").status(), 201);
    let sent = service.get(&format!("/v1/sends/{id}")).await.expect(200);
    assert_eq!((&sent["predicted_total_tokens"], &sent["state"]), (&json!(105), &json!("complete")));
    assert_eq!(sent["messages"][0]["content"], "u".repeat(10));
}

#[tokio::test]
async fn where_nothing_is_kept_sends_are_performed_all_the_same() {
    let (service, asked) = provider::service().await;
    pairs(&service, &[5]).await;
    service.put("/v1/projects/default", &json!({"capture": {"messages": "off"}})).await.expect(200);
    let sent = service.post("/v1/sends", &send("m", &json!({"user_text": "needle"}))).await.expect(200);
    assert_eq!((&sent["state"], &sent["assistant_text"]), (&json!("complete"), &json!("Hello there")));
    assert_eq!(asked.last()["messages"].as_array().map(Vec::len), Some(3));
    assert!(!service.dump().await.contains("needle"));
    service.put("/v1/projects/default", &json!({"capture": {"messages": "metadata"}})).await.expect(200);
    let sent = performed(&service, "m", &json!({"user_text": "needle"})).await;
    assert_eq!((&sent["state"], &sent["pair"]["assistant_text"]), (&json!("complete"), &Value::Null));
    assert_eq!(asked.last()["messages"][2]["content"], "needle");
    assert!(!service.dump().await.contains("needle"));
}

#[tokio::test]
async fn what_is_asked_again_is_sent_where_no_text_is_kept_any_longer() {
    let (service, asked) = provider::service().await;
    let keep = async |capture: &str| {
        service.put("/v1/projects/default", &json!({"capture": {"messages": capture}})).await.expect(200);
    };
    let mut last = Value::Null;
    for (capture, status) in [("off", 200), ("metadata", 201)] {
        keep("full").await;
        let said = json!({"user_text": "Which one?", "visible": null});
        let failed = performed(&service, "refused", &said).await["pair_id"].clone();
        keep(capture).await;
        let again = json!({"mode": "execute", "reask_of": failed});
        last = service.post("/v1/sends", &again).await.expect(status);
        assert_eq!(last["error"]["kind"], "authentication");
        let body = json!({"model": "refused", "messages": [{"role": "user", "content": "Which one?"}]});
        assert_eq!(asked.last(), body, "{capture}");
    }
    // Of the pair that this has made, no text is kept.
    let calls = asked.calls();
    let again = json!({"mode": "execute", "reask_of": last["pair_id"]});
    for capture in ["metadata", "off"] {
        keep(capture).await;
        service.post("/v1/sends", &again).await.refused(422, &["/user_text"]);
    }
    let unknown = json!({"mode": "execute", "reask_of": Uuid::from_u128(9)});
    service.post("/v1/sends", &unknown).await.refused(404, &[]);
    assert_eq!(asked.calls(), calls);
    service.post("/v1/sends", &with(again, &json!({"user_text": "This one"}))).await.expect(200);
    assert_eq!(asked.last()["messages"], json!([{"role": "user", "content": "This one"}]));
}

#[tokio::test]
async fn what_a_send_asks_again_is_read_in_a_place_of_its_project() {
    let (service, asked) = provider::service().await;
    let failed = performed(&service, "refused", &json!({"visible": null})).await["pair_id"].clone();
    let calls = asked.calls();
    let places = service.holding_back_reads().await;
    service.post("/v1/sends", &json!({"mode": "execute", "reask_of": failed})).await.refused(503, &[]);
    drop(places);
    assert_eq!(asked.calls(), calls);
}

#[tokio::test]
async fn a_send_of_a_server_that_died_is_interrupted_by_any_other() {
    let (service, asked) = provider::service().await;
    let (id, task) = begun(&service, &asked).await;
    let later = chrono::TimeDelta::minutes(2);
    crate::support::program::interrupt(service.pool(), later).await.expect("interrupts");
    let sent = service.get(&format!("/v1/sends/{id}")).await.expect(200);
    assert_eq!((&sent["state"], &sent["error"]["kind"]), (&json!("error"), &json!("interrupted")));
    asked.go_on.notify_one();
    assert_eq!(task.await.expect("ends").status(), 201);
    assert_eq!(service.get(&format!("/v1/sends/{id}")).await.expect(200)["error"]["kind"], "interrupted");
}

/// Sends while nothing can be read once the send is stored, for so long. Returns the answer.
async fn stored_unread(service: &Service, asked: &Asked, unread: Duration) -> Answer {
    let locked = service.holding("lock table sends in exclusive mode").await;
    let body = send("m", &json!({"id": Uuid::from_u128(1)}));
    let mut sent = pin!(service.post("/v1/sends", &body));
    tokio::select! {
        () = service.blocked(1) => {}
        sent = &mut sent => panic!("it is not stored yet: {}", sent.text()),
    }
    let places = service.holding_back_reads().await;
    locked.commit().await.expect("ends");
    let early = timeout(unread, &mut sent).await;
    assert_eq!(asked.calls(), 0);
    drop(places);
    match early {
        Ok(answer) => answer,
        Err(_) => sent.await,
    }
}

#[tokio::test]
async fn a_send_that_is_stored_is_performed_when_the_database_can_be_read_again() {
    let (service, asked) = provider::service().await;
    // A request waits five seconds for a place.
    let sent = stored_unread(&service, &asked, Duration::from_secs(7)).await.expect(201);
    assert_eq!(sent["state"], "complete");
}

#[tokio::test]
async fn a_send_that_is_stored_and_cannot_be_read_for_long_ends() {
    let (service, asked) = provider::service().await;
    stored_unread(&service, &asked, Duration::from_mins(1)).await.refused(503, &[]);
    let again = send("m", &json!({"id": Uuid::from_u128(1)}));
    let ended = service.post("/v1/sends", &again).await.expect(200);
    assert_eq!((&ended["state"], &ended["error"]["kind"]), (&json!("error"), &json!("overloaded")));
    assert_eq!(ended["error"]["message"], "Gleaner could not read what the send needs.");
    assert_eq!(asked.calls(), 0);
}

#[tokio::test]
async fn a_send_that_needs_more_texts_than_a_request_may_read_ends() {
    let (service, asked) = provider::service().await;
    pairs(&service, &[60, 60, 60, 60, 60]).await;
    let long = "update pairs set user_text = repeat('x', 7 << 20)";
    sqlx::raw_sql(long).execute(service.pool()).await.expect("long texts");
    let send = send("m", &json!({"id": Uuid::from_u128(1)}));
    service.post("/v1/sends", &send).await.refused(413, &[]);
    let ended = service.all("/v1/sends?state=error").await;
    assert_eq!((ended.len(), &ended[0]["error"]["kind"]), (1, &json!("request_too_large")));
    assert_eq!(asked.calls(), 0);
}

#[tokio::test]
async fn two_sends_at_once_in_one_topic_do_not_see_each_other() {
    let (service, _) = provider::service().await;
    let service = Arc::new(service);
    let both = [1, 2].map(|_| {
        let service = Arc::clone(&service);
        tokio::spawn(async move { performed(&service, "m", &json!({"topic_id": "t"})).await })
    });
    for task in both {
        assert_eq!(task.await.expect("ends")["state"], "complete");
    }
    assert_eq!(service.all("/v1/pairs?topic_id=t&state=complete").await.len(), 2);
}

#[tokio::test]
async fn a_project_has_a_limited_number_of_sends_that_wait_for_providers() {
    let (settings, asked) = provider::settings_with_providers().await;
    let service = Service::with(Settings { calls: 1, ..settings }).await;
    let (_, task) = begun(&service, &asked).await;
    let refused = service.post("/v1/sends", &send("m", &json!({}))).await;
    assert_eq!((refused.status.as_u16(), refused.header("retry-after").is_some()), (503, true));
    asked.go_on.notify_one();
    assert_eq!(task.await.expect("ends").status(), 201);
    performed(&service, "m", &json!({})).await;
}
