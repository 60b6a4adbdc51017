//! Quotas: a send that would break one is refused beforehand, with the time to wait.

use futures_util::future::join_all;
use serde_json::{Value, json};
use sqlx::{Connection as _, Executor as _};

use super::model;
use crate::support::Service;

#[tokio::test]
async fn a_send_that_would_break_a_quota_says_so_before_any_call() {
    let service = Service::open().await;
    model(
        &service,
        "q",
        &json!({"context_window": 1_000, "rpm": 1, "tpm": 5_000, "tpd": 400, "chars_per_token": 1}),
    )
    .await;
    let send = |text: usize, ignore: bool| json!({"mode": "record", "model": "q", "user_text": "x".repeat(text), "settings": {"ignore_quota": ignore}});
    let first = service.post("/v1/sends", &send(100, false)).await.expect(201);
    assert_eq!(first["quota"]["rpm"], json!({"limit": 1, "used": 0, "resets_in_s": 0}));
    let address = format!("/v1/sends/{}", first["id"].as_str().expect("an id"));
    let answer = json!({"assistant_text": "y", "usage": {"prompt_tokens": 150, "completion_tokens": 50}});
    service.post(&format!("{address}/finalize"), &answer).await.expect(200);

    let refused = service.post("/v1/sends", &send(1, false)).await;
    let wait: i64 = refused.header("retry-after").expect("a wait").parse().expect("seconds");
    assert!((50..=60).contains(&wait), "{wait}");
    let problem = refused.refused(429, &[]);
    assert_eq!(problem["type"], "/problems/quota");
    assert_eq!(problem["quota"]["tpd"]["used"], 200);
    let ignored = service.post("/v1/sends", &send(201, true)).await.expect(201);
    assert_eq!(ignored["quota"]["tpm"]["used"], 200);
    assert_eq!(service.all("/v1/sends").await.len(), 2);
    let figures = service.get("/v1/analytics/messages").await.expect(200);
    assert_eq!(figures["data"][0]["quota"]["rpm"]["used"], 2);
}

/// A send of 70 tokens.
fn send(model: &str) -> Value {
    json!({"mode": "record", "model": model, "user_text": "x".repeat(70), "settings": {"chars_per_token": 1}})
}

#[tokio::test]
async fn a_send_counts_in_quotas_from_its_beginning_and_its_call_once() {
    let service = Service::open().await;
    model(&service, "q", &json!({"context_window": 1_000, "rpm": 3, "tpd": 200})).await;
    let mut addresses = Vec::new();
    for begun in 0..2 {
        let sent = service.post("/v1/sends", &send("q")).await.expect(201);
        assert_eq!(sent["quota"]["rpm"]["used"], begun);
        addresses.push(format!("/v1/sends/{}", sent["id"].as_str().expect("an id")));
    }
    let used = async |requests: i64, tokens: i64| {
        let quota = service.get("/v1/analytics/messages").await.expect(200)["data"][0]["quota"].clone();
        assert_eq!((&quota["rpm"]["used"], &quota["tpd"]["used"]), (&json!(requests), &json!(tokens)));
    };
    used(2, 140).await;
    let problem = service.post("/v1/sends", &send("q")).await.refused(429, &[]);
    assert!((86_000..=86_400).contains(&problem["quota"]["tpd"]["resets_in_s"].as_i64().expect("a wait")));
    let usage = json!({"usage": {"prompt_tokens": 50, "completion_tokens": 10}});
    service.post(&format!("{}/attempts", addresses[0]), &usage).await.expect(201);
    used(2, 130).await;
    // After an overflow, another call is under way.
    let overflow = super::overflow();
    let pairs = json!([{"id": "1", "user_text": "x".repeat(20), "assistant_text": "y".repeat(20)}]);
    let ignored =
        crate::support::with(send("q"), &json!({"pairs": pairs, "settings": {"ignore_quota": true}}));
    let sent = service.post("/v1/sends", &ignored).await.expect(201);
    let address = format!("/v1/sends/{}", sent["id"].as_str().expect("an id"));
    service.post(&format!("{address}/attempts"), &overflow).await.expect(201);
    let (first, rest) = (&sent["attempt_total_tokens"], &sent["aut"]);
    let tokens = 130 + first.as_i64().expect("a size") + rest.as_i64().expect("a size");
    used(4, tokens).await;
    for address in [&addresses[1], &address] {
        service.post(&format!("{address}/cancel"), &json!({})).await.expect(200);
    }
    used(2, tokens - 70 - rest.as_i64().expect("a size")).await;
}

#[tokio::test]
async fn a_send_that_nobody_ends_leaves_a_quota_with_its_period() {
    let service = Service::open().await;
    model(&service, "q", &json!({"context_window": 1_000, "rpm": 1})).await;
    service.post("/v1/sends", &send("q")).await.expect(201);
    service.post("/v1/sends", &send("q")).await.refused(429, &[]);
    let sql = "update sends set created_at = created_at - interval '1 minute'";
    service.pool().execute(sql).await.expect("a minute goes by");
    service.post("/v1/sends", &send("q")).await.expect(201);
}

#[tokio::test]
async fn a_call_whose_time_is_to_come_counts_as_one_of_now() {
    let service = Service::open().await;
    model(&service, "q", &json!({"context_window": 1_000, "rpm": 1})).await;
    let sent = service.post("/v1/sends", &send("q")).await.expect(201);
    let address = format!("/v1/sends/{}", sent["id"].as_str().expect("an id"));
    let call = json!({"at": "2990-01-01T00:00:00Z", "usage": {"prompt_tokens": 50}});
    service.post(&format!("{address}/attempts"), &call).await.expect(201);
    service.post(&format!("{address}/finalize"), &json!({"assistant_text": "y"})).await.expect(200);
    service.post("/v1/sends", &send("q")).await.refused(429, &[]);
    let sql = "update send_attempts set at = at - interval '1 minute'";
    service.pool().execute(sql).await.expect("a minute goes by");
    service.post("/v1/sends", &send("q")).await.expect(201);
}

#[tokio::test]
async fn an_answer_whose_usage_is_not_reported_counts_as_long_as_it_is() {
    let service = Service::open().await;
    model(&service, "q", &json!({"context_window": 1_000, "tpd": 1_000})).await;
    let first = service.post("/v1/sends", &send("q")).await.expect(201);
    let asked = first["attempt_total_tokens"].as_i64().expect("a size");
    let answer = json!({"assistant_text": "word ".repeat(2_000)});
    let address = format!("/v1/sends/{}/finalize", first["id"].as_str().expect("an id"));
    service.post(&address, &answer).await.expect(200);
    let problem = service.post("/v1/sends", &send("q")).await.refused(429, &[]);
    let used = problem["quota"]["tpd"]["used"].as_i64().expect("a number") - asked;
    assert!((1_500..2_500).contains(&used), "{used}");
}

#[tokio::test]
async fn quotas_hold_for_sends_that_begin_at_once() {
    let service = Service::open().await;
    for (name, rpm) in [("one", 1), ("two", 2)] {
        model(&service, name, &json!({"context_window": 1_000, "rpm": rpm})).await;
    }
    let mut other = service.connection().await;
    let mut transaction = other.begin().await.expect("a transaction");
    transaction.execute("lock table sends in exclusive mode").await.expect("a lock");
    let [one, two] = ["one", "two"].map(send);
    // Two writers have a send each, and the first to go on takes all that has come meanwhile.
    let second = async {
        service.blocked(1).await;
        service.post("/v1/sends", &one).await
    };
    let others = async {
        service.blocked(2).await;
        join_all((0..4).map(|_| service.post("/v1/sends", &two))).await
    };
    let release = async {
        service.queued(6).await;
        transaction.commit().await.expect("released");
    };
    let (first, second, others, ()) = tokio::join!(service.post("/v1/sends", &one), second, others, release);
    let mut statuses: Vec<_> = others.iter().map(|answer| answer.status.as_u16()).collect();
    statuses.sort_unstable();
    assert_eq!(statuses, [201, 201, 429, 429]);
    first.expect(201);
    second.refused(429, &[]);
}
