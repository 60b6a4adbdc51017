//! Generation logs: start, append, finalize, review, list, erase; similar examples, prompt templates and their figures.

use std::collections::{BTreeMap, HashSet};

use axum::http::Method;
use futures_util::future::join_all;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::support::{Answer, Service, assert_close, column, encoded, failed, passed, scrub, with};

fn intent(text: &str) -> Value {
    json!({"user_intent": text, "domain_name": "cbu"})
}

/// A finished log of one passing attempt.
fn solved(text: &str, program: &str) -> Value {
    with(intent(text), &json!({"success": true, "iterations": [passed(1, program)]}))
}

async fn start(service: &Service, body: Value) -> String {
    format!("/v1/generations/{}", service.create("/v1/generations", body).await)
}

async fn append(service: &Service, log: &str, attempt: &Value) -> Answer {
    service.post(&format!("{log}/attempts"), attempt).await
}

async fn finalize(service: &Service, log: &str, outcome: &Value) -> Answer {
    service.post(&format!("{log}/finalize"), outcome).await
}

fn numbers(log: &Value) -> Vec<i64> {
    let iterations = log["iterations"].as_array().expect("iterations");
    iterations.iter().map(|attempt| attempt["attempt"].as_i64().expect("a number")).collect()
}

#[tokio::test]
async fn a_log_is_started_appended_to_finalized_and_comes_back_whole() {
    let service = Service::open().await;
    let started =
        service.post("/v1/generations", &json!({"user_intent": "Create a fund", "domain_name": "cbu"})).await;
    let location = started.header("location").expect("a location").to_owned();
    let expected = json!({
        "id": "id-1", "user_intent": "Create a fund", "domain_name": "cbu", "session_id": null, "cbu_id": null,
        "instance_id": null, "model_used": null, "metadata": {}, "created_at": "time", "success": null,
        "final_valid_dsl": null, "error": null, "completed_at": null, "total_attempts": 0, "total_latency_ms": 0,
        "total_input_tokens": 0, "total_output_tokens": 0, "review": null, "iterations": [],
    });
    assert_eq!(scrub(&started.expect(201)), expected);
    assert_eq!(scrub(&service.get(&location).await.expect(200)), expected);

    append(&service, &location, &failed(1, "(cbu.créate)", "Unknown verb")).await.expect(201);
    append(&service, &location, &passed(2, "(cbu.create)")).await.expect(201);
    let finalized = finalize(&service, &location, &json!({"success": true})).await.expect(200);
    assert_eq!(finalized["final_valid_dsl"], "(cbu.create)");
    assert_eq!(finalized["total_attempts"], 2);
    assert_eq!(service.get(&location).await.expect(200), finalized);
}

#[tokio::test]
async fn every_field_of_a_log_and_of_an_attempt_comes_back() {
    let service = Service::open().await;
    let id = Uuid::new_v4().to_string();
    let log = json!({
        "id": id, "user_intent": "Create a fund", "domain_name": "cbu", "session_id": "s", "cbu_id": "c",
        "model_used": "m", "metadata": {"k": [1, {"x": null}]}, "created_at": "2025-01-15T10:30:00+02:00",
    });
    let path = start(&service, log).await;
    assert_eq!(path, format!("/v1/generations/{id}"));
    let attempt_id = Uuid::new_v4().to_string();
    let attempt = json!({
        "id": attempt_id, "attempt": 1, "timestamp": 1_736_929_800.5, "prompt_template": "t",
        "prompt_template_version": 2, "prompt_text": "p", "raw_response": "r", "extracted_dsl": "(d)",
        "parse_result": {"success": true, "error": null},
        "lint_result": {"valid": true, "errors": [], "warnings": ["w"]},
        "compile_result": {"success": true, "error": null, "step_count": 3},
        "latency_ms": 812, "input_tokens": 900, "output_tokens": 120, "metadata": {"a": 1},
    });
    let answered = append(&service, &path, &attempt).await;
    assert_eq!(answered.header("location"), Some(path.as_str()));
    let expected = with(attempt, &json!({"timestamp": "2025-01-15T08:30:00.500000Z"}));
    assert_eq!(answered.expect(201), expected);
    let outcome = json!({"success": false, "error": "gave up", "instance_id": "i"});
    let log = finalize(&service, &path, &outcome).await.expect(200);
    assert!(log["completed_at"].is_string());
    let expected = json!({
        "id": id, "user_intent": "Create a fund", "domain_name": "cbu", "session_id": "s", "cbu_id": "c",
        "instance_id": "i", "model_used": "m", "metadata": {"k": [1, {"x": null}]},
        "created_at": "2025-01-15T08:30:00.000000Z", "success": false, "final_valid_dsl": null, "error": "gave up",
        "completed_at": log["completed_at"], "total_attempts": 1, "total_latency_ms": 812,
        "total_input_tokens": 900, "total_output_tokens": 120, "review": null, "iterations": [expected],
    });
    assert_eq!(log, expected);
}

#[tokio::test]
async fn a_log_sent_again_is_the_same_log_and_with_another_body_a_conflict() {
    let service = Service::open().await;
    let id = Uuid::new_v4().to_string();
    let body = json!({"id": id, "user_intent": "Create a fund", "domain_name": "cbu", "metadata": {"a": 1, "b": 2},
        "created_at": "2025-01-15T10:30:00+02:00"});
    let first = service.post("/v1/generations", &body).await.expect(201);
    let same = format!(
        r#"{{"created_at": 1736929800, "metadata": {{"b": 2, "a": 1}}, "session_id": null, "iterations": null,
            "domain_name": "cbu", "user_intent": "Create a fund", "id": "{id}"}}"#
    );
    let again = service.post_text("/v1/generations", "application/json", same).await;
    assert_eq!(again.header("location"), None);
    assert_eq!(again.expect(200), first);
    for other in [
        json!({"user_intent": "Create a bond"}),
        json!({"metadata": {"a": 1, "b": 3}}),
        json!({"created_at": "2025-01-15T10:30:01+02:00"}),
        json!({"session_id": "s"}),
        json!({"success": false}),
    ] {
        service.post("/v1/generations", &with(body.clone(), &other)).await.refused(409, &[]);
    }

    let path = format!("/v1/generations/{id}");
    append(&service, &path, &passed(1, "(a)")).await.expect(201);
    let now = finalize(&service, &path, &json!({"success": true})).await.expect(200);
    assert_eq!(service.post("/v1/generations", &body).await.expect(200), now);
}

#[tokio::test]
async fn an_idempotency_key_stands_for_the_id_that_a_client_cannot_make() {
    let service = Service::open().await;
    service.project("other").await;
    let post = async |path: &str, key: &str, project: &str, body: &Value| {
        let headers = [("idempotency-key", key), ("gleaner-project", project)];
        service.call(Method::POST, path, &headers, Some(body)).await
    };
    let body = intent("Create a fund");
    let logs = "/v1/generations";
    let first = post(logs, "k", "default", &body).await.expect(201);
    assert_eq!(post(logs, "k", "default", &body).await.expect(200), first);
    post(logs, "k", "default", &intent("Create a bond")).await.refused(409, &[]);
    let mut ids = HashSet::from([first["id"].clone()]);
    for (key, project) in [("l", "default"), ("k", "other")] {
        let log = post(logs, key, project, &body).await.expect(201);
        assert!(ids.insert(log["id"].clone()), "{key} {project}");
    }
    post(logs, "", "default", &body).await.refused(422, &["/Idempotency-Key"]);
    post(logs, &"k".repeat(256), "default", &body).await.refused(422, &["/Idempotency-Key"]);

    let path = format!("/v1/generations/{}/attempts", first["id"].as_str().expect("an id"));
    let attempt = json!({"extracted_dsl": "(a)", "latency_ms": 5});
    let made = post(&path, "k", "default", &attempt).await.expect(201);
    assert_eq!(made["attempt"], 1);
    assert_eq!(post(&path, "k", "default", &attempt).await.expect(200), made);
    post(&path, "k", "default", &json!({"extracted_dsl": "(b)"})).await.refused(409, &[]);
    let next = post(&path, "l", "default", &attempt).await.expect(201);
    assert_eq!(next["attempt"], 2);
    let second = start(&service, intent("Create a bond")).await;
    let elsewhere = post(&format!("{second}/attempts"), "k", "default", &attempt).await.expect(201);
    assert_ne!(elsewhere["id"], made["id"]);
}

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
async fn what_happens_to_a_log_that_never_was_is_not_found() {
    let service = Service::open().await;
    let log = format!("/v1/generations/{}", Uuid::new_v4());
    append(&service, &log, &passed(1, "(a)")).await.refused(404, &[]);
    finalize(&service, &log, &json!({"success": false})).await.refused(404, &[]);
    service.get(&log).await.refused(404, &[]);
    service.delete(&log).await.refused(404, &[]);
    service.put(&format!("{log}/review"), &json!({"rating": "good"})).await.refused(404, &[]);
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

#[tokio::test]
async fn totals_are_the_sums_over_the_attempts_also_when_many_append_and_retry_at_once() {
    let service = Service::open().await;
    let log = start(&service, intent("Create a fund")).await;
    let path = format!("{log}/attempts");
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
async fn finalizing_again_replays_and_with_another_body_conflicts() {
    let service = Service::open().await;
    let log = start(&service, intent("Create a fund")).await;
    append(&service, &log, &passed(1, "(a)")).await.expect(201);
    let outcome = json!({"success": true, "final_valid_dsl": "(final)", "instance_id": "i"});
    let first = finalize(&service, &log, &outcome).await.expect(200);
    assert_eq!(first["final_valid_dsl"], "(final)");
    let same = with(outcome.clone(), &json!({"error": null}));
    assert_eq!(finalize(&service, &log, &same).await.expect(200), first);
    for other in [
        json!({"success": true}),
        json!({"success": false}),
        with(outcome.clone(), &json!({"final_valid_dsl": "(other)"})),
        with(outcome.clone(), &json!({"instance_id": "j"})),
    ] {
        finalize(&service, &log, &other).await.refused(409, &[]);
    }
    assert_eq!(service.get(&log).await.expect(200), first);
}

#[tokio::test]
async fn a_success_without_a_program_is_refused_and_leaves_the_log_open() {
    let service = Service::open().await;
    let log = start(&service, intent("Create a fund")).await;
    let program = ["/final_valid_dsl"];
    append(&service, &log, &failed(1, "(a)", "wrong")).await.expect(201);
    for refused in [
        json!({"success": true}),
        json!({"success": true, "final_valid_dsl": ""}),
        json!({"success": false, "final_valid_dsl": "(a)"}),
    ] {
        finalize(&service, &log, &refused).await.refused(422, &program);
    }
    append(&service, &log, &passed(2, "(b)")).await.expect(201);
    let done = finalize(&service, &log, &json!({"success": true})).await.expect(200);
    assert_eq!(done["final_valid_dsl"], "(b)");
}

#[tokio::test]
async fn an_attempt_passed_if_it_has_a_program_and_every_stage_that_ran_succeeded() {
    let service = Service::open().await;
    let yes = json!({"success": true});
    let no = json!({"success": false, "error": "e"});
    for (passes, attempt) in [
        (false, json!({})),
        (false, json!({"extracted_dsl": "(a)"})),
        (false, json!({"parse_result": yes})),
        (false, json!({"extracted_dsl": "", "parse_result": yes})),
        (
            false,
            json!({"extracted_dsl": "(a)", "parse_result": null, "lint_result": null, "compile_result": null}),
        ),
        (false, json!({"extracted_dsl": "(a)", "parse_result": no})),
        (false, json!({"extracted_dsl": "(a)", "parse_result": yes, "lint_result": {"valid": false}})),
        (false, json!({"extracted_dsl": "(a)", "parse_result": no, "compile_result": yes})),
        (false, json!({"extracted_dsl": "(a)", "lint_result": {"valid": true}, "compile_result": no})),
        (true, json!({"extracted_dsl": "(a)", "parse_result": yes})),
        (
            true,
            json!({"extracted_dsl": "(a)", "lint_result": {"valid": true, "errors": ["said, not meant"]}}),
        ),
        (true, json!({"extracted_dsl": "(a)", "compile_result": yes})),
        (true, passed(1, "(a)")),
    ] {
        let log = start(&service, intent("Create a fund")).await;
        append(&service, &log, &attempt).await.expect(201);
        let outcome = finalize(&service, &log, &json!({"success": true})).await;
        if passes {
            assert_eq!(outcome.expect(200)["final_valid_dsl"], "(a)", "{attempt}");
        } else {
            outcome.refused(422, &["/final_valid_dsl"]);
        }
    }
}

#[tokio::test]
async fn the_program_is_that_of_the_last_passed_attempt_by_number_not_by_arrival() {
    let service = Service::open().await;
    let log = start(&service, intent("Create a fund")).await;
    for attempt in [passed(3, "(third)"), failed(4, "(fourth)", "wrong"), passed(1, "(first)")] {
        append(&service, &log, &attempt).await.expect(201);
    }
    let log = finalize(&service, &log, &json!({"success": true})).await.expect(200);
    assert_eq!(log["final_valid_dsl"], "(third)");
    let finished = with(
        intent("Create a fund"),
        &json!({"success": true, "iterations": [passed(2, "(second)"), passed(1, "(first)")]}),
    );
    let log = service.post("/v1/generations", &finished).await.expect(201);
    assert_eq!(log["final_valid_dsl"], "(second)");
}

#[tokio::test]
async fn a_finished_log_is_stored_in_one_step() {
    let service = Service::open().await;
    let body = json!({
        "user_intent": "Create a fund", "domain_name": "cbu", "created_at": "2025-01-15T10:30:00Z", "success": true,
        "instance_id": "i", "iterations": [
            {"latency_ms": 10, "extracted_dsl": "(a)", "parse_result": {"success": false, "error": "e"}},
            {"latency_ms": 20, "extracted_dsl": "(b)", "parse_result": {"success": true},
                "timestamp": "2025-01-15T10:30:05Z", "input_tokens": 1, "output_tokens": 2},
        ],
    });
    let log = service.post("/v1/generations", &body).await.expect(201);
    let attempt = json!({
        "id": "id-2", "attempt": 1, "timestamp": "2025-01-15T10:30:00.000000Z", "prompt_template": null,
        "prompt_template_version": null, "prompt_text": null, "raw_response": null, "extracted_dsl": "(a)",
        "parse_result": {"success": false, "error": "e"}, "lint_result": null, "compile_result": null,
        "latency_ms": 10, "input_tokens": null, "output_tokens": null, "metadata": {},
    });
    assert_eq!(log["iterations"][0]["timestamp"], attempt["timestamp"]);
    let first = with(attempt, &json!({"timestamp": "time"}));
    let second = with(
        first.clone(),
        &json!({"id": "id-3", "attempt": 2, "extracted_dsl": "(b)", "latency_ms": 20, "input_tokens": 1,
            "output_tokens": 2, "parse_result": {"success": true, "error": null}}),
    );
    let expected = json!({
        "id": "id-1", "user_intent": "Create a fund", "domain_name": "cbu", "session_id": null, "cbu_id": null,
        "instance_id": "i", "model_used": null, "metadata": {}, "created_at": "time", "success": true,
        "final_valid_dsl": "(b)", "error": null, "completed_at": "time", "total_attempts": 2, "total_latency_ms": 30,
        "total_input_tokens": 1, "total_output_tokens": 2, "review": null, "iterations": [first, second],
    });
    let mut scrubbed = scrub(&log);
    assert_eq!(scrubbed["iterations"][1]["id"], "id-3");
    scrubbed["iterations"][1]["timestamp"] = "time".into();
    assert_eq!(scrubbed, expected);

    let path = format!("/v1/generations/{}", log["id"].as_str().expect("an id"));
    append(&service, &path, &passed(3, "(c)")).await.refused(409, &[]);
    let same = json!({"success": true, "instance_id": "i"});
    assert_eq!(finalize(&service, &path, &same).await.expect(200), log);
    finalize(&service, &path, &json!({"success": false})).await.refused(409, &[]);
}

#[tokio::test]
async fn a_finished_log_needs_a_program_and_numbers_that_differ() {
    let service = Service::open().await;
    for (more, pointers) in [
        (json!({"success": true}), vec!["/final_valid_dsl"]),
        (json!({"success": true, "iterations": [failed(1, "(a)", "e")]}), vec!["/final_valid_dsl"]),
        (
            json!({"success": true, "final_valid_dsl": "", "iterations": [passed(1, "(a)")]}),
            vec!["/final_valid_dsl"],
        ),
        (json!({"success": false, "final_valid_dsl": "(a)"}), vec!["/final_valid_dsl"]),
        (json!({"final_valid_dsl": "(a)"}), vec!["/final_valid_dsl"]),
        (json!({"iterations": [passed(2, "(a)"), passed(2, "(b)")]}), vec!["/iterations/1/attempt"]),
        (json!({"iterations": [{"id": Uuid::nil()}, {"id": Uuid::nil()}]}), vec!["/iterations/1/id"]),
    ] {
        service.post("/v1/generations", &with(intent("Create a fund"), &more)).await.refused(422, &pointers);
    }
    let failed_one = with(intent("Create a fund"), &json!({"success": false}));
    let log = service.post("/v1/generations", &failed_one).await.expect(201);
    assert_eq!((&log["success"], &log["total_attempts"]), (&json!(false), &json!(0)));
    assert!(log["completed_at"].is_string());

    let open = with(
        intent("Create a fund"),
        &json!({"iterations": [{"attempt": 4, "latency_ms": 1}, {"latency_ms": 2}]}),
    );
    let log = service.post("/v1/generations", &open).await.expect(201);
    assert_eq!((&log["success"], numbers(&log)), (&Value::Null, vec![4, 5]));
    let path = format!("/v1/generations/{}", log["id"].as_str().expect("an id"));
    let next = append(&service, &path, &json!({})).await.expect(201);
    assert_eq!(next["attempt"], 6);
}

#[tokio::test]
async fn a_list_holds_what_each_filter_asks_for() {
    let service = Service::open().await;
    let template = |name: &str| json!({"iterations": [{"prompt_template": "x"}, {"prompt_template": name}]});
    for (text, more) in [
        ("Open Fund", json!({"session_id": "s 1", "model_used": "m"})),
        ("50% of a_b", template("t/1")),
        ("50 of axb", with(template("u"), &json!({"success": false}))),
        ("GRÜNE Anleihe", json!({"success": true, "final_valid_dsl": "(a)", "domain_name": "bond"})),
    ] {
        start(&service, with(intent(text), &more)).await;
    }
    let poor = start(&service, with(intent("poor"), &json!({"success": false}))).await;
    service.put(&format!("{poor}/review"), &json!({"rating": "poor"})).await.expect(200);
    for (query, expected) in [
        ("", vec!["poor", "GRÜNE Anleihe", "50 of axb", "50% of a_b", "Open Fund"]),
        ("domain_name=bond", vec!["GRÜNE Anleihe"]),
        ("success=true", vec!["GRÜNE Anleihe"]),
        ("success=false", vec!["poor", "50 of axb"]),
        ("open=true", vec!["50% of a_b", "Open Fund"]),
        ("open=false", vec!["poor", "GRÜNE Anleihe", "50 of axb"]),
        ("model_used=m", vec!["Open Fund"]),
        ("session_id=s%201", vec!["Open Fund"]),
        ("session_id=s+1", vec!["Open Fund"]),
        ("prompt_template=t%2F1", vec!["50% of a_b"]),
        ("prompt_template=x", vec!["50 of axb", "50% of a_b"]),
        ("prompt_template=x&success=false", vec!["50 of axb"]),
        ("rating=poor", vec!["poor"]),
        ("rating=good", vec![]),
        ("q=fund", vec!["Open Fund"]),
        ("q=gr%C3%BCne", vec!["GRÜNE Anleihe"]),
        ("q=50%25", vec!["50% of a_b"]),
        ("q=a_b", vec!["50% of a_b"]),
        ("q=%5C", vec![]),
        ("q=", vec!["poor", "GRÜNE Anleihe", "50 of axb", "50% of a_b", "Open Fund"]),
    ] {
        let page = service.get(&format!("/v1/generations?{query}")).await.expect(200);
        let data = page["data"].as_array().expect("data");
        assert_eq!(column(data, "user_intent"), expected, "{query}");
        assert_eq!(page["next_cursor"], Value::Null);
        assert!(data.iter().all(|log| log.get("iterations").is_none()));
    }
    for (query, pointer) in [
        ("colour=red", "/colour"),
        ("success=maybe", "/success"),
        ("rating=great", "/rating"),
        ("limit=0", "/limit"),
        ("limit=501", "/limit"),
        ("since=yesterday", "/since"),
    ] {
        let refused = service.get(&format!("/v1/generations?{query}")).await;
        refused.refused(422, &[pointer]);
    }
}

#[tokio::test]
async fn since_is_inclusive_and_until_is_not() {
    let service = Service::open().await;
    for second in 0..4 {
        let at = format!("2025-01-15T10:30:0{second}Z");
        start(&service, with(intent(&second.to_string()), &json!({"created_at": at}))).await;
    }
    for (query, expected) in [
        ("since=2025-01-15T10:30:01Z&until=2025-01-15T10:30:03Z", vec!["2", "1"]),
        ("since=1736937001&until=1736937003.0", vec!["2", "1"]),
        ("until=2025-01-15T12:30:01%2B02:00", vec!["0"]),
        ("since=2025-01-15T10:30:03.000001Z", vec![]),
        ("since=2025-01-15T10:30:01Z&until=2025-01-15T10:30:01Z", vec![]),
    ] {
        let logs = service.all(&format!("/v1/generations?{query}&limit=1")).await;
        assert_eq!(column(&logs, "user_intent"), expected, "{query}");
    }
}

#[tokio::test]
async fn paging_shows_every_log_once_though_times_are_equal_and_others_are_added_meanwhile() {
    let service = Service::open().await;
    let at = |time: &str| with(intent("old & new"), &json!({"created_at": time}));
    for time in
        ["2020-01-01T00:00:00Z"; 7].into_iter().chain(["0001-01-01T00:00:00Z", "1969-12-31T23:59:59.999999Z"])
    {
        start(&service, at(time)).await;
    }
    for _ in 0..3 {
        start(&service, intent("old & new")).await;
    }
    let whole = service.get("/v1/generations?limit=500&q=old+%26+new").await.expect(200);
    let expected = whole["data"].as_array().expect("data").clone();
    let places = expected.iter().map(|log| {
        let part = |name: &str| log[name].as_str().expect("a text").to_owned();
        (part("created_at"), part("id"))
    });
    assert!(places.rev().is_sorted(), "{expected:?}");
    assert_eq!(expected.len(), 12);
    for limit in [1, 3, 11, 12] {
        let paged = service.all(&format!("/v1/generations?limit={limit}&q=old+%26+new")).await;
        assert_eq!(paged, expected, "{limit}");
    }

    let first = service.get("/v1/generations?limit=5").await;
    let next = first.next().expect("more");
    let mut seen = first.expect(200)["data"].as_array().expect("data").clone();
    start(&service, intent("new")).await;
    let older = start(&service, at("0001-01-01T00:00:00Z")).await;
    seen.extend(service.all(&next).await);
    let added = service.get(&older).await.expect(200)["id"].clone();
    seen.retain(|log| log["id"] != added);
    assert_eq!(column(&seen, "id"), column(&expected, "id"));
}

#[tokio::test]
async fn a_deleted_log_is_gone_from_everywhere() {
    let service = Service::open().await;
    let id = Uuid::new_v4();
    let body = with(
        intent("Create a fund"),
        &json!({"id": id, "session_id": "s", "success": true, "metadata": {"k": "needle-metadata"},
            "iterations": [failed(1, "(needle-bad)", "e"), passed(2, "(needle-good)")]}),
    );
    let log = start(&service, body.clone()).await;
    let kept = start(&service, solved("Keep this", "(kept)")).await;
    assert!(service.dump().await.contains("needle"));
    let deleted = service.delete(&log).await;
    assert_eq!((deleted.status.as_u16(), deleted.text()), (204, String::new()));
    service.get(&log).await.refused(404, &[]);
    service.delete(&log).await.refused(404, &[]);
    append(&service, &log, &passed(3, "(c)")).await.refused(404, &[]);
    let dump = service.dump().await;
    assert!(!dump.contains("needle") && dump.contains("(kept)"));
    assert!(!dump.contains(&id.to_string()), "{dump}");
    assert!(service.get("/v1/exports/correction-pairs").await.rows().is_empty());
    service.get(&kept).await.expect(200);
    start(&service, body).await;
}

#[tokio::test]
async fn a_review_may_come_before_or_after_the_end_and_decides_what_is_learned() {
    let service = Service::open().await;
    let review = async |log: &str, body: Value| service.put(&format!("{log}/review"), &body).await;
    let exported = async |query: &str| {
        let rows = service.get(&format!("/v1/exports/training-pairs?format=raw{query}")).await.rows();
        column(&rows, "valid_dsl")
    };
    let similar = async || {
        let found = service.get("/v1/generations/similar?intent=Create+a+fund").await.expect(200);
        column(found["data"].as_array().expect("data"), "valid_dsl")
    };
    let log = start(&service, intent("Create a fund")).await;
    let whole = json!({"rating": "good", "reviewer": "ann", "note": "n", "corrected_dsl": "(corrected)"});
    let reviewed = review(&log, whole.clone()).await.expect(200);
    let kept = with(whole, &json!({"reviewed_at": reviewed["review"]["reviewed_at"]}));
    assert_eq!(reviewed["review"], kept);
    assert!(reviewed["review"]["reviewed_at"].is_string());
    assert_eq!(exported("").await, Vec::<Value>::new());
    append(&service, &log, &passed(1, "(a)")).await.expect(201);
    let done = finalize(&service, &log, &json!({"success": true})).await.expect(200);
    assert_eq!((&done["review"], &done["final_valid_dsl"]), (&kept, &json!("(a)")));
    assert_eq!(exported("").await, ["(corrected)"]);
    assert_eq!(similar().await, ["(corrected)"]);

    let replaced = review(&log, json!({"rating": "poor"})).await.expect(200);
    assert_eq!(
        scrub(&replaced["review"]),
        json!({"rating": "poor", "reviewer": null, "note": null, "corrected_dsl": null, "reviewed_at": "time"})
    );
    assert_eq!(exported("").await, Vec::<Value>::new());
    assert_eq!(similar().await, Vec::<Value>::new());

    let corrected = json!({"rating": "poor", "corrected_dsl": "(c)"});
    review(&log, corrected).await.expect(200);
    assert_eq!(exported("").await, ["(c)"]);
    assert_eq!(exported("&min_rating=acceptable").await, Vec::<Value>::new());
    review(&log, json!({"rating": "acceptable"})).await.expect(200);
    assert_eq!(exported("&min_rating=acceptable").await, ["(a)"]);
    assert_eq!(exported("&min_rating=good").await, Vec::<Value>::new());

    for (body, pointers) in [
        (json!({}), vec!["/rating"]),
        (json!({"rating": "great"}), vec!["/rating"]),
        (json!({"rating": null}), vec!["/rating"]),
        (json!({"rating": "good", "corrected_dsl": ""}), vec!["/corrected_dsl"]),
        (json!({"rating": "good", "reviewer": ""}), vec!["/reviewer"]),
        (json!({"rating": "good", "stars": 5}), vec!["/stars"]),
    ] {
        review(&log, body).await.refused(422, &pointers);
    }
}

#[tokio::test]
async fn similar_examples_are_solved_not_poor_distinct_and_the_best_first() {
    let service = Service::open().await;
    let id = |number: u128| Uuid::from_u128(number);
    let text = "Create a hedge fund";
    let log = |number: u128, text: &str, program: &str| {
        with(solved(text, program), &json!({"id": id(number), "model_used": "m"}))
    };
    for body in [
        log(1, text, "(fund)"),
        log(2, text, "(fund)"),
        log(3, text, "(other)"),
        log(4, "Create a hedge fund with John", "(john)"),
        with(
            log(5, "Create a hedge fund of funds", "(funds)"),
            &json!({"domain_name": "entity", "model_used": "n"}),
        ),
        log(6, text, "(poor)"),
        with(intent(text), &json!({"id": id(7), "success": false, "iterations": [passed(1, "(given up)")]})),
        with(intent(text), &json!({"id": id(8), "iterations": [passed(1, "(open)")]})),
        log(9, "xyzzy", "(unlike)"),
    ] {
        start(&service, body).await;
    }
    let poor = json!({"rating": "poor", "corrected_dsl": "(corrected)"});
    service.put(&format!("/v1/generations/{}/review", id(6)), &poor).await.expect(200);
    service.put(&format!("/v1/generations/{}/review", id(3)), &json!({"rating": "good"})).await.expect(200);
    let find = async |query: &str| {
        let intent = encoded(text);
        service.get(&format!("/v1/generations/similar?intent={intent}{query}")).await
    };
    let found = find("").await.expect(200);
    let data = found["data"].as_array().expect("data");
    let first = json!({"generation_id": id(1), "user_intent": text, "valid_dsl": "(fund)", "domain_name": "cbu",
        "similarity": 1.0, "rating": null});
    let second =
        with(first.clone(), &json!({"generation_id": id(3), "valid_dsl": "(other)", "rating": "good"}));
    assert_eq!(data[..2], [first, second]);
    let similarities: Vec<_> = data.iter().map(|row| row["similarity"].as_f64()).collect();
    assert!(similarities.is_sorted_by(|a, b| a >= b), "{similarities:?}");
    assert!(similarities.iter().flatten().all(|like| (0.2..=1.0).contains(like)));
    for (query, expected) in [
        ("", vec![1, 3, 5, 4]),
        ("&domain_name=cbu", vec![1, 3, 4]),
        ("&domain_name=entity", vec![5]),
        ("&model_used=m", vec![1, 3, 4]),
        ("&limit=1", vec![1]),
        ("&min_similarity=1", vec![1, 3]),
        ("&min_similarity=0&limit=100", vec![1, 3, 5, 4, 9]),
        (&format!("&exclude_id={}", id(3)), vec![1, 5, 4]),
        (&format!("&exclude_id={}", id(1)), vec![2, 3, 5, 4]),
    ] {
        let found = find(query).await.expect(200);
        let mut ids: Vec<_> = expected.iter().map(|&number| json!(id(number))).collect();
        let mut given = column(found["data"].as_array().expect("data"), "generation_id");
        let best = usize::from(query.starts_with("&limit"));
        // How the two near misses rank is the ranking's own affair.
        given[best..].sort_by_key(Value::to_string);
        ids[best..].sort_by_key(Value::to_string);
        assert_eq!(given, ids, "{query}");
    }
    let messages = find("&format=messages&min_similarity=1").await.expect(200);
    assert_eq!(
        messages,
        json!({"messages": [
            {"role": "user", "content": text}, {"role": "assistant", "content": "(fund)"},
            {"role": "user", "content": text}, {"role": "assistant", "content": "(other)"},
        ]})
    );
    for (query, pointer) in [
        ("&limit=0", "/limit"),
        ("&limit=101", "/limit"),
        ("&min_similarity=1.1", "/min_similarity"),
        ("&min_similarity=NaN", "/min_similarity"),
        ("&exclude_id=x", "/exclude_id"),
        ("&format=xml", "/format"),
        ("&colour=red", "/colour"),
    ] {
        find(query).await.refused(422, &[pointer]);
    }
    service.get("/v1/generations/similar").await.refused(422, &["/intent"]);
}

#[tokio::test]
async fn similar_examples_are_found_by_slips_of_the_pen_single_words_code_and_any_script() {
    let service = Service::open().await;
    let logs = [
        ("Create a hedge fund with John as director", "(hedge)"),
        ("Amend the custody agreement of a pension scheme", "(custody)"),
        ("find . -name '*.rs' | xargs wc -l", "(count)"),
        ("株主を追加してください", "(株主)"),
        ("Übertrage die Anteile an die Größte Tochter", "(anteile)"),
        ("สร้างกองทุนใหม่", "(กองทุน)"),
    ];
    let events: Vec<_> = logs
        .iter()
        .map(|(text, program)| {
            json!({"event": "generation", "user_intent": text, "domain_name": "cbu", "success": true, "final_valid_dsl": program})
        })
        .collect();
    service.events(&events).await.expect(200);
    for (intent, program) in [
        ("heqge fnud", "(hedge)"),
        ("custodi", "(custody)"),
        ("scheme", "(custody)"),
        ("xargs wc", "(count)"),
        ("*.rs", "(count)"),
        ("株主", "(株主)"),
        ("größte", "(anteile)"),
        ("กองทุน", "(กองทุน)"),
    ] {
        let path = format!("/v1/generations/similar?intent={}&min_similarity=0.05", encoded(intent));
        let found = service.get(&path).await.expect(200);
        assert_eq!(found["data"][0]["valid_dsl"], program, "{intent}: {found}");
    }
}

#[tokio::test]
async fn an_old_example_is_found_among_thousands_that_share_all_its_words() {
    let service = Service::open().await;
    let solved = |text: &str, program: &str| json!({"event": "generation", "user_intent": text, "domain_name": "cbu", "success": true, "final_valid_dsl": program});
    service.events(&[solved("create fund", "(old)"), solved("zebra", "(zebra)")]).await.expect(200);
    // More than are looked at by any one of the words, and so many others that the newest do not reach back to the first.
    let newer: Vec<_> = (0..8_000)
        .map(|n| match n % 4 {
            0 => solved(&format!("create fund number {n}"), &format!("(fund {n})")),
            _ => solved(&format!("list share {n}"), &format!("(share {n})")),
        })
        .collect();
    service.events(&newer).await.expect(200);
    for intent in ["create fund", "create fund zebra"] {
        for domain in ["", "&domain_name=cbu"] {
            let path = format!(
                "/v1/generations/similar?intent={}&limit=100&min_similarity=0{domain}",
                encoded(intent)
            );
            let found = service.get(&path).await.expect(200);
            let programs = column(found["data"].as_array().expect("examples"), "valid_dsl");
            assert!(programs.contains(&json!("(old)")), "{intent}{domain}: {programs:?}");
        }
    }
}

#[tokio::test]
async fn of_a_long_intent_the_first_thousand_characters_are_compared() {
    let service = Service::open().await;
    // 996 characters, a third more bytes.
    let beginning = "größe ".repeat(166);
    let solved = |end: &str, program: &str| {
        let intent = format!("{beginning}{end}");
        json!({"event": "generation", "user_intent": intent, "domain_name": "d", "success": true, "final_valid_dsl": program})
    };
    service.events(&[solved("wxyz and more", "(long)"), solved("wx", "(short)")]).await.expect(200);
    let path = format!("/v1/generations/similar?intent={}", encoded(&format!("{beginning}wxyz and other")));
    let found = service.get(&path).await.expect(200);
    assert_eq!(column(found["data"].as_array().expect("examples"), "valid_dsl"), ["(long)", "(short)"]);
    assert_eq!(found["data"][0]["similarity"], 1.0);
    assert!(found["data"][1]["similarity"].as_f64() < Some(1.0), "{found}");
}

#[tokio::test]
async fn every_version_of_a_prompt_template_is_kept() {
    let service = Service::open().await;
    let name = "a/b c?d%é#1";
    let path = format!("/v1/prompt-templates/{}", encoded(name));
    let body = |text: &str| json!({"template_text": text, "domain_name": "cbu", "description": "d"});
    let made = service.put(&path, &body("one")).await;
    let location = made.header("location").expect("a location").to_owned();
    assert_eq!(location, format!("{path}?version=1"));
    let first = made.expect(201);
    let expected = json!({"template_id": name, "version": 1, "template_text": "one", "domain_name": "cbu",
        "description": "d", "created_at": "time", "deprecated_at": null});
    assert_eq!(scrub(&first), expected);
    assert_eq!(service.put(&path, &body("one")).await.expect(200), first);
    let second = service.put(&path, &body("two")).await.expect(201);
    assert_eq!(second["version"], 2);
    let third = service.put(&path, &body("one")).await.expect(201);
    assert_eq!(third["version"], 3);
    let fourth = service.put(&path, &json!({"template_text": "one", "domain_name": "cbu"})).await.expect(201);
    assert_eq!((&fourth["version"], &fourth["description"]), (&json!(4), &Value::Null));
    assert_eq!(service.get(&path).await.expect(200), fourth);
    assert_eq!(service.get(&location).await.expect(200), first);
    for version in ["0", "5"] {
        service.get(&format!("{path}?version={version}")).await.refused(404, &[]);
    }
    service.get(&format!("{path}?version=new")).await.refused(422, &["/version"]);
    service.get("/v1/prompt-templates/unknown").await.refused(404, &[]);
    service
        .put(&format!("/v1/prompt-templates/{}", "x".repeat(201)), &body("one"))
        .await
        .refused(422, &["/template_id"]);
    service
        .put("/v1/prompt-templates/x", &json!({"template_text": "", "domain_name": "", "colour": 1}))
        .await
        .refused(422, &["/colour"]);
    service
        .put("/v1/prompt-templates/x", &json!({"template_text": "", "domain_name": ""}))
        .await
        .refused(422, &["/template_text", "/domain_name"]);
}

#[tokio::test]
async fn many_who_change_a_template_at_once_make_a_version_each() {
    let service = Service::open().await;
    let answers = join_all((0..12).map(|writer| {
        let service = &service;
        async move {
            let body = json!({"template_text": format!("text {writer}"), "domain_name": "cbu"});
            service.put("/v1/prompt-templates/t", &body).await.expect(201)
        }
    }))
    .await;
    let mut versions: Vec<_> = column(&answers, "version").iter().filter_map(Value::as_i64).collect();
    versions.sort_unstable();
    assert_eq!(versions, (1..=12).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_deprecated_template_is_listed_as_such_until_a_new_version_is_made() {
    let service = Service::open().await;
    for (name, domain) in [("one", "cbu"), ("two", "bond"), ("three", "cbu"), ("one", "kyc")] {
        let body = json!({"template_text": name, "domain_name": domain});
        service.put(&format!("/v1/prompt-templates/{name}"), &body).await.expect(201);
    }
    let gone = service.post("/v1/prompt-templates/one/deprecate", &json!({})).await.expect(200);
    assert_eq!(gone["version"], 2);
    assert!(gone["deprecated_at"].is_string());
    let again = service.post("/v1/prompt-templates/one/deprecate", &json!({})).await.expect(200);
    assert_eq!(again, gone);
    let old = service.get("/v1/prompt-templates/one?version=1").await.expect(200);
    assert_eq!(old["deprecated_at"], gone["deprecated_at"]);
    for (query, expected) in [
        ("", vec!["one", "three", "two"]),
        ("deprecated=true", vec!["one"]),
        ("deprecated=false", vec!["three", "two"]),
        ("domain_name=cbu", vec!["three"]),
        ("domain_name=kyc&deprecated=true", vec!["one"]),
    ] {
        let found = service.all(&format!("/v1/prompt-templates?limit=1&{query}")).await;
        assert_eq!(column(&found, "template_id"), expected, "{query}");
    }
    let body = json!({"template_text": "one", "domain_name": "kyc"});
    let back = service.put("/v1/prompt-templates/one", &body).await.expect(201);
    assert_eq!((&back["version"], &back["deprecated_at"]), (&json!(3), &Value::Null));
    service.post("/v1/prompt-templates/none/deprecate", &json!({})).await.refused(404, &[]);
}

/// Seven logs whose figures are worked out by hand below.
async fn log_prompts(service: &Service) {
    let attempt = |template: &str, version: i32, latency: i32, verdict: Option<bool>| {
        let said = match verdict {
            Some(true) => json!({"extracted_dsl": "(a)", "parse_result": {"success": true}}),
            Some(false) => json!({"extracted_dsl": "(b)", "parse_result": {"success": false, "error": "e"}}),
            None => json!({}),
        };
        let call = json!({"prompt_template": template, "prompt_template_version": version, "latency_ms": latency,
            "input_tokens": 10, "output_tokens": 1});
        with(said, &call)
    };
    let (yes, no) = (Some(true), Some(false));
    for (outcome, iterations) in [
        (json!({"success": true}), vec![attempt("t", 1, 100, yes)]),
        (json!({"success": true}), vec![attempt("t", 1, 200, no), attempt("t", 2, 300, yes)]),
        (json!({"success": true}), vec![attempt("t", 2, 400, no), attempt("u", 1, 500, yes)]),
        (json!({"success": false}), vec![attempt("t", 1, 600, no)]),
        (json!({"success": false}), vec![attempt("t", 1, 700, yes)]),
        (json!({}), vec![attempt("t", 1, 800, yes)]),
        (json!({"success": true, "final_valid_dsl": "(c)"}), vec![attempt("t", 2, 200, None)]),
    ] {
        let log = with(with(intent("Create a fund"), &outcome), &json!({"iterations": iterations}));
        start(service, log).await;
    }
    let elsewhere = json!({"domain_name": "bond", "created_at": "2020-01-01T00:00:00Z", "success": true,
        "iterations": [attempt("v", 1, 50, yes), {"latency_ms": 1}]});
    start(service, with(intent("Issue a bond"), &elsewhere)).await;
}

#[tokio::test]
async fn figures_of_templates_are_those_worked_out_by_hand() {
    let service = Service::open().await;
    log_prompts(&service).await;
    let t = json!({
        "prompt_template": "t", "prompt_template_version": null, "total_uses": 6, "first_try_success": 1,
        "first_try_rate": 0.166_666_667, "first_try_rate_interval": [0.030_053_37, 0.563_502_82],
        "success": 4, "success_rate": 0.666_666_667, "success_rate_interval": [0.299_993_32, 0.903_228_59],
        "avg_attempts": 1.333_333_333, "avg_latency_ms": 500.0, "attempts": 8, "passed": 4,
        "pass_rate": 0.571_428_571, "pass_rate_interval": [0.250_458_36, 0.841_780_14],
        "p50_latency_ms": 350.0, "p95_latency_ms": 765.0, "total_input_tokens": 80, "total_output_tokens": 8,
    });
    // Used in a later attempt only.
    let u = json!({
        "prompt_template": "u", "prompt_template_version": null, "total_uses": 0, "first_try_success": 0,
        "first_try_rate": null, "first_try_rate_interval": null,
        "success": 0, "success_rate": null, "success_rate_interval": null,
        "avg_attempts": null, "avg_latency_ms": null, "attempts": 1, "passed": 1,
        "pass_rate": 1.0, "pass_rate_interval": [0.206_549_31, 1.0],
        "p50_latency_ms": 500.0, "p95_latency_ms": 500.0, "total_input_tokens": 10, "total_output_tokens": 1,
    });
    let v = json!({
        "prompt_template": "v", "prompt_template_version": null, "total_uses": 1, "first_try_success": 1,
        "first_try_rate": 1.0, "first_try_rate_interval": [0.206_549_31, 1.0],
        "success": 1, "success_rate": 1.0, "success_rate_interval": [0.206_549_31, 1.0],
        "avg_attempts": 2.0, "avg_latency_ms": 51.0, "attempts": 1, "passed": 1,
        "pass_rate": 1.0, "pass_rate_interval": [0.206_549_31, 1.0],
        "p50_latency_ms": 50.0, "p95_latency_ms": 50.0, "total_input_tokens": 10, "total_output_tokens": 1,
    });
    let figures =
        async |query: &str| service.get(&format!("/v1/analytics/prompts?{query}")).await.expect(200);
    assert_close(&figures("").await, &json!({"data": [t, v, u]}));
    assert_close(&figures("domain_name=bond").await, &json!({"data": [v]}));
    assert_close(&figures("until=2021-01-01T00:00:00Z").await, &json!({"data": [v]}));
    assert_close(&figures("since=1609459200").await, &json!({"data": [t, u]}));
    assert_eq!(figures("domain_name=none").await, json!({"data": []}));
    for (query, pointer) in [("by=model", "/by"), ("since=2&until=1", "/since"), ("limit=1", "/limit")] {
        service.get(&format!("/v1/analytics/prompts?{query}")).await.refused(422, &[pointer]);
    }
}

fn first_version() -> Value {
    json!({
        "prompt_template": "t", "prompt_template_version": 1, "total_uses": 4, "first_try_success": 1,
        "first_try_rate": 0.25, "first_try_rate_interval": [0.045_587_26, 0.699_358_16],
        "success": 2, "success_rate": 0.5, "success_rate_interval": [0.150_038_99, 0.849_961_01],
        "avg_attempts": 1.25, "avg_latency_ms": 475.0, "attempts": 5, "passed": 3,
        "pass_rate": 0.6, "pass_rate_interval": [0.230_724_28, 0.882_379_23],
        "p50_latency_ms": 600.0, "p95_latency_ms": 780.0, "total_input_tokens": 50, "total_output_tokens": 5,
    })
}

fn second_version() -> Value {
    json!({
        "prompt_template": "t", "prompt_template_version": 2, "total_uses": 2, "first_try_success": 0,
        "first_try_rate": 0.0, "first_try_rate_interval": [0.0, 0.657_619_77],
        "success": 2, "success_rate": 1.0, "success_rate_interval": [0.342_380_23, 1.0],
        "avg_attempts": 1.5, "avg_latency_ms": 550.0, "attempts": 3, "passed": 1,
        "pass_rate": 0.5, "pass_rate_interval": [0.094_531_21, 0.905_468_79],
        "p50_latency_ms": 300.0, "p95_latency_ms": 390.0, "total_input_tokens": 30, "total_output_tokens": 3,
    })
}

#[tokio::test]
async fn attempts_count_under_their_own_version_of_the_template() {
    let service = Service::open().await;
    log_prompts(&service).await;
    let figures = service.get("/v1/analytics/prompts?by=version&domain_name=cbu").await.expect(200);
    let data = figures["data"].as_array().expect("data");
    assert_eq!(data.len(), 3);
    assert_close(&data[0], &first_version());
    assert_close(&data[1], &second_version());
    assert_eq!((&data[2]["prompt_template"], &data[2]["prompt_template_version"]), (&json!("u"), &json!(1)));
}

#[tokio::test]
async fn two_templates_or_versions_are_compared_by_a_two_proportion_z_test() {
    let service = Service::open().await;
    log_prompts(&service).await;
    let compare =
        async |a: &str, b: &str| service.get(&format!("/v1/analytics/prompts/compare?a={a}&b={b}")).await;
    assert_close(
        &compare("t@1", "t@2").await.expect(200),
        &json!({
            "a": first_version(), "b": second_version(), "difference": -0.5,
            "interval": [-0.989_990_996, -0.010_009_004], "p_value": 0.220_671_36,
            "first_try": {"difference": 0.25, "interval": [-0.174_344_65, 0.674_344_65], "p_value": 0.438_578_03},
        }),
    );
    let unused = compare("t", "u").await.expect(200);
    assert_eq!(
        (&unused["difference"], &unused["p_value"], &unused["first_try"]),
        (&Value::Null, &Value::Null, &Value::Null)
    );
    assert_eq!(unused["b"]["total_uses"], 0);
    compare("t", "unknown").await.refused(404, &[]);
    compare("t@7", "t").await.refused(404, &[]);
    service.get("/v1/analytics/prompts/compare?a=t").await.refused(422, &["/b"]);
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
async fn the_record_is_left_out_of_the_answer_where_the_client_prefers_so() {
    let service = Service::open().await;
    let minimal = async |path: &str, body: &Value| {
        let headers = [("prefer", "respond-async, return=minimal")];
        service.call(Method::POST, path, &headers, Some(body)).await
    };
    let name = |place: u128| Uuid::from_u128(place).to_string();
    let (log, slate, search) = (name(1), name(2), name(3));
    let search_body = json!({"id": search, "query": "q", "best_score": 0.4});
    let (log, slate, search) = (
        format!("/v1/generations/{log}"),
        format!("/v1/suggestions/{slate}"),
        format!("/v1/searches/{search}"),
    );
    let made = [
        ("/v1/generations".to_owned(), with(intent("i"), &json!({"id": name(1)})), &log),
        (format!("{log}/attempts"), passed(1, "(a)"), &log),
        (
            "/v1/suggestions".to_owned(),
            json!({"id": name(2), "context": {}, "suggestions": ["a", "b"]}),
            &slate,
        ),
        (format!("{slate}/views"), json!({"id": name(4), "index": 1}), &slate),
        ("/v1/searches".to_owned(), search_body, &search),
        (format!("{search}/fallbacks"), json!({"id": name(5), "kind": "read", "path": "a.rs"}), &search),
    ];
    for (path, body, address) in &made {
        let answer = minimal(path, body).await;
        assert_eq!(answer.header("location"), Some(address.as_str()), "{path}");
        assert_eq!(answer.header("preference-applied"), Some("return=minimal"), "{path}");
        assert_eq!((answer.status.as_u16(), answer.text()), (201, String::new()), "{path}");
        let again = minimal(path, body).await;
        assert_eq!(
            (again.status.as_u16(), again.header("location"), again.text()),
            (200, None, String::new()),
            "{path}"
        );
    }
    let ended = [
        (format!("{log}/finalize"), json!({"success": true})),
        (format!("{slate}/finalize"), json!({"actual_input": "a"})),
        (format!("{search}/resolve"), json!({})),
    ];
    for (path, body) in &ended {
        let answer = minimal(path, body).await;
        assert_eq!((answer.status.as_u16(), answer.text()), (200, String::new()), "{path}");
    }
    assert_eq!(service.get(&log).await.expect(200)["success"], true);
    assert_eq!(service.get(&slate).await.expect(200)["match_type"], "exact");
    assert_eq!(service.get(&search).await.expect(200)["state"], "resolved");
}

#[tokio::test]
async fn a_preference_is_read_in_every_spelling_and_changes_neither_verdict_nor_what_is_kept() {
    let service = Service::open().await;
    let post = async |path: &str, preference: &str, body: &Value| {
        service.call(Method::POST, path, &[("prefer", preference)], Some(body)).await
    };
    for preference in
        ["return=minimal", "Return = Minimal", "return=\"minimal\"; x=1", "wait=5, return=minimal"]
    {
        let answer = post("/v1/generations", preference, &intent("i")).await;
        assert_eq!((answer.status.as_u16(), answer.text()), (201, String::new()), "{preference}");
    }
    post("/v1/generations", "return=minimal", &json!({"domain_name": "d"}))
        .await
        .refused(422, &["/user_intent"]);
    let unknown = format!("/v1/generations/{}/attempts", Uuid::nil());
    post(&unknown, "return=minimal", &passed(1, "(a)")).await.refused(404, &[]);
    let discarded = json!({"context": {}, "suggestions": ["a"], "actual_input": ":q"});
    let answer = post("/v1/suggestions", "return=minimal", &discarded).await;
    assert_eq!((answer.status.as_u16(), answer.header("location")), (200, None));
    service.put("/v1/projects/default", &json!({"capture": "off"})).await.expect(200);
    let answer = post("/v1/generations", "return=minimal", &intent("i")).await;
    assert_eq!((answer.status.as_u16(), answer.header("preference-applied")), (204, None));
}

#[tokio::test]
async fn the_record_is_in_the_answer_where_the_client_prefers_it_or_something_unknown() {
    let service = Service::open().await;
    for preference in ["return=representation", "return=minimalist", "wait=5; return=minimal", "return", ""] {
        let answer = service
            .call(Method::POST, "/v1/generations", &[("prefer", preference)], Some(&intent("i")))
            .await;
        assert_eq!(answer.header("preference-applied"), None, "{preference}");
        assert_eq!(answer.expect(201)["user_intent"], "i", "{preference}");
    }
}
