//! Attempts of a log: their numbers, their replays, and totals that are always their sums.

use std::collections::BTreeMap;

use axum::http::Method;
use futures_util::future::join_all;
use serde_json::{Value, json};
use uuid::Uuid;

use super::{append, finalize, intent, numbers, start};
use crate::support::{Service, failed, passed, with};

#[tokio::test]
async fn an_attempt_sent_again_is_the_same_attempt_also_after_its_log_was_finalized() {
    let service = Service::open().await;
    let log = start(&service, intent("Create a fund")).await;
    let id = Uuid::new_v4();
    let numbered = with(failed(1, "(a)", "wrong"), &json!({"latency_ms": 3, "timestamp": 1_700_000_000}));
    let named = with(json!({"id": id, "extracted_dsl": "(b)"}), &json!({"parse_result": {"success": true}}));
    let one = append(&service, &log, &numbered).await.expect(201);
    let two = append(&service, &log, &named).await.expect(201);
    assert_eq!((&two["attempt"], &two["id"]), (&json!(2), &json!(id)));
    let same = with(numbered.clone(), &json!({"timestamp": "2023-11-14T22:13:20Z", "raw_response": null}));
    for _ in 0..2 {
        assert_eq!(append(&service, &log, &numbered).await.expect(200), one);
        assert_eq!(append(&service, &log, &same).await.expect(200), one);
        assert_eq!(append(&service, &log, &named).await.expect(200), two);
        for other in [
            failed(1, "(a)", "worse"),
            with(numbered.clone(), &json!({"latency_ms": 4})),
            json!({"id": id, "extracted_dsl": "(c)"}),
            with(named.clone(), &json!({"attempt": 3})),
        ] {
            append(&service, &log, &other).await.refused(409, &[]);
        }
        let outcome = finalize(&service, &log, &json!({"success": true})).await.expect(200);
        assert_eq!(numbers(&outcome), [1, 2]);
    }
    append(&service, &log, &passed(3, "(c)")).await.refused(409, &[]);
    append(&service, &log, &json!({"extracted_dsl": "(c)"})).await.refused(409, &[]);
    assert_eq!(service.get(&log).await.expect(200)["total_attempts"], 2);
}

#[tokio::test]
async fn an_attempt_without_a_number_gets_the_next_one_and_gaps_and_late_numbers_are_fine() {
    let service = Service::open().await;
    let log = start(&service, intent("Create a fund")).await;
    for (attempt, number) in [
        (json!({"latency_ms": 1}), 1),
        (json!({"latency_ms": 2}), 2),
        (json!({"attempt": 7, "latency_ms": 4}), 7),
        (json!({"attempt": null, "latency_ms": 8}), 8),
        (json!({"attempt": 4, "latency_ms": 16}), 4),
        (json!({}), 9),
        (json!({}), 10),
    ] {
        let made = append(&service, &log, &attempt).await.expect(201);
        assert_eq!(made["attempt"], number, "{attempt}");
    }
    let log = service.get(&log).await.expect(200);
    assert_eq!(numbers(&log), [1, 2, 4, 7, 8, 9, 10]);
    assert_eq!((&log["total_attempts"], &log["total_latency_ms"]), (&json!(7), &json!(31)));
}

#[tokio::test]
async fn attempts_of_one_batch_are_numbered_in_line_order() {
    let service = Service::open().await;
    let id = Uuid::new_v4();
    let attempt = |body: Value| with(body, &json!({"event": "attempt", "generation_id": id}));
    service
        .accept(&[
            with(intent("Create a fund"), &json!({"event": "generation", "id": id})),
            attempt(json!({"latency_ms": 1})),
            attempt(json!({"latency_ms": 2, "attempt": 5})),
            attempt(json!({"latency_ms": 3})),
            attempt(json!({"latency_ms": 4})),
            attempt(json!({"latency_ms": 5, "attempt": 3})),
            attempt(json!({"latency_ms": 6})),
        ])
        .await;
    let log = service.get(&format!("/v1/generations/{id}")).await.expect(200);
    let made: BTreeMap<_, _> = log["iterations"]
        .as_array()
        .expect("iterations")
        .iter()
        .map(|attempt| (attempt["latency_ms"].as_i64(), attempt["attempt"].as_i64()))
        .collect();
    let expected = [(1, 1), (2, 5), (3, 6), (4, 7), (5, 3), (6, 8)];
    assert_eq!(made, expected.map(|(latency, number)| (Some(latency), Some(number))).into());
}

#[tokio::test]
async fn the_same_attempt_twice_in_one_batch_is_one_attempt() {
    let service = Service::open().await;
    let (log, id) = (Uuid::new_v4(), Uuid::new_v4());
    let attempt =
        |body: Value| with(body, &json!({"event": "attempt", "generation_id": log, "latency_ms": 7}));
    let summary = service
        .events(&[
            with(intent("Create a fund"), &json!({"event": "generation", "id": log})),
            attempt(json!({"id": id})),
            attempt(json!({"id": id})),
            attempt(json!({"id": id})),
            attempt(json!({"attempt": 5})),
            attempt(json!({"attempt": 5})),
        ])
        .await
        .expect(200);
    assert_eq!(summary, json!({"accepted": 3, "duplicates": 3, "rejected": []}));
    let log = service.get(&format!("/v1/generations/{log}")).await.expect(200);
    assert_eq!(numbers(&log), [1, 5]);
    assert_eq!(log["total_latency_ms"], 14);
}

/// Attempts to append at once, each with its idempotency key: a third of them numbered and a third with a key, those twice.
fn attempts_and_retries() -> Vec<(Value, Option<String>)> {
    let mut requests = Vec::new();
    for turn in 0..60_i32 {
        let latency = 1 + turn * turn;
        let body = json!({"latency_ms": latency, "input_tokens": turn, "output_tokens": 2 * turn});
        let key = format!("key-{turn}");
        match turn % 3 {
            0 => {
                let numbered = with(body, &json!({"attempt": 1000 + turn}));
                requests.extend([(numbered.clone(), None), (numbered, None)]);
            }
            1 => requests.extend([(body.clone(), Some(key.clone())), (body, Some(key))]),
            _ => requests.push((body, None)),
        }
    }
    requests
}

#[tokio::test]
async fn totals_are_the_sums_over_the_attempts_also_when_many_append_and_retry_at_once() {
    let service = Service::open().await;
    let log = start(&service, intent("Create a fund")).await;
    let path = format!("{log}/attempts");
    let requests = attempts_and_retries();
    let answers = join_all(requests.iter().map(|(body, key)| {
        let headers: Vec<_> = key.iter().map(|key| ("idempotency-key", key.as_str())).collect();
        let path = &path;
        let service = &service;
        async move { service.call(Method::POST, path, &headers, Some(body)).await }
    }))
    .await;
    let mut made = BTreeMap::new();
    for ((body, key), answer) in requests.iter().zip(answers) {
        let status = answer.status.as_u16();
        // A number may have been given to an attempt without one before its own attempt came.
        assert!(
            [200, 201].contains(&status) || (status == 409 && body["attempt"].is_number()),
            "{}",
            answer.text()
        );
        if status == 409 {
            continue;
        }
        let attempt = answer.json();
        let entry = made.entry(body["latency_ms"].as_i64()).or_insert((attempt.clone(), 0));
        assert_eq!(entry.0, attempt, "a retry has another answer: {key:?}");
        entry.1 += i32::from(status == 201);
    }
    assert!(made.values().all(|(_, created)| *created == 1), "{made:?}");
    assert!(made.len() >= 40, "{}", made.len());

    let stored = service.get(&log).await.expect(200);
    let iterations = stored["iterations"].as_array().expect("iterations");
    let mut expected: Vec<_> = made.into_values().map(|(attempt, _)| attempt).collect();
    expected.sort_by_key(|attempt| attempt["attempt"].as_i64());
    assert_eq!(iterations, &expected);
    let sum = |field: &str| -> i64 {
        iterations.iter().map(|attempt| attempt[field].as_i64().expect("a number")).sum()
    };
    assert_eq!(stored["total_attempts"], iterations.len());
    assert_eq!(stored["total_latency_ms"], sum("latency_ms"));
    assert_eq!(stored["total_input_tokens"], sum("input_tokens"));
    assert_eq!(stored["total_output_tokens"], sum("output_tokens"));
}

#[tokio::test]
async fn the_same_number_with_the_same_body_is_a_replay_whatever_the_idempotency_key() {
    let service = Service::open().await;
    let path = format!("{}/attempts", start(&service, intent("i")).await);
    let body = passed(1, "y");
    let first =
        service.call(Method::POST, &path, &[("idempotency-key", "one")], Some(&body)).await.expect(201);
    let again = service.call(Method::POST, &path, &[("idempotency-key", "two")], Some(&body)).await;
    assert_eq!(again.expect(200), first);
    let named = with(body, &json!({"id": Uuid::now_v7()}));
    service.post(&path, &named).await.refused(409, &[]);
}

#[tokio::test]
async fn a_batch_of_which_a_part_is_sent_again_leaves_no_gap_in_the_numbers() {
    let service = Service::open().await;
    let log = Uuid::new_v4();
    let attempt = |id: u128| json!({"event": "attempt", "generation_id": log, "id": Uuid::from_u128(id), "latency_ms": 7});
    service.accept(&[with(intent("Create a fund"), &json!({"event": "generation", "id": log}))]).await;
    service.accept(&[attempt(1), attempt(2)]).await;
    let summary = service.events(&[attempt(1), attempt(3), attempt(2), attempt(4)]).await.expect(200);
    assert_eq!(summary, json!({"accepted": 2, "duplicates": 2, "rejected": []}));
    let log = service.get(&format!("/v1/generations/{log}")).await.expect(200);
    assert_eq!(numbers(&log), [1, 2, 3, 4]);
}

#[tokio::test]
async fn a_log_has_at_most_twenty_thousand_attempts() {
    let service = Service::open().await;
    let attempts: Vec<_> = (1..=20_000).map(|number| json!({"attempt": number})).collect();
    let log = start(&service, with(intent("Create a fund"), &json!({"iterations": attempts}))).await;
    append(&service, &log, &json!({"attempt": 20_000})).await.expect(200);
    for attempt in [passed(20_001, "(b)"), json!({})] {
        let refused = append(&service, &log, &attempt).await.refused(409, &[]);
        let detail = refused["detail"].as_str().expect("a text");
        assert!(detail.ends_with("has 20000 attempts; no attempt can be added"), "{detail}");
    }
    finalize(&service, &log, &json!({"success": true, "final_valid_dsl": "(c)"})).await.expect(200);
}
