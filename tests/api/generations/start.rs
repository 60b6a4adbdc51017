//! Starting a log: what comes back, the same request again, and a finished log in one step.

use std::collections::HashSet;

use axum::http::Method;
use serde_json::{Value, json};
use uuid::Uuid;

use super::{append, finalize, intent, numbers, start};
use crate::support::{Service, assert_whole, failed, passed, with};

#[tokio::test]
async fn a_log_is_started_appended_to_finalized_and_comes_back_whole() {
    let service = Service::open().await;
    let started =
        service.post("/v1/generations", &json!({"user_intent": "Create a fund", "domain_name": "cbu"})).await;
    let location = started.header("location").expect("a location").to_owned();
    let started = started.expect(201);
    assert_whole!("a_started_log", started);
    assert_eq!(service.get(&location).await.expect(200), started);

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
    let id = Uuid::from_u128(1);
    let log = json!({
        "id": id, "user_intent": "Create a fund", "domain_name": "cbu", "session_id": "s", "cbu_id": "c",
        "model_used": "m", "metadata": {"k": [1, {"x": null}]}, "created_at": "2025-01-15T10:30:00+02:00",
    });
    let path = start(&service, log).await;
    assert_eq!(path, format!("/v1/generations/{id}"));
    let attempt = json!({
        "id": Uuid::from_u128(2), "attempt": 1, "timestamp": 1_736_929_800.5, "prompt_template": "t",
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
    assert_whole!("a_log_of_every_field", log);
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
    let refused = post(logs, "k", "default", &intent("Create a bond")).await.refused(409, &[]);
    // Whoever only guesses a key learns no id, by which records are changed and shown.
    let id = first["id"].as_str().expect("an id");
    assert!(!refused.to_string().contains(id), "{refused}");
    let mut ids = HashSet::from([first["id"].clone()]);
    for (key, project) in [("l", "default"), ("k", "other")] {
        let log = post(logs, key, project, &body).await.expect(201);
        assert!(ids.insert(log["id"].clone()), "{key} {project}");
    }
    let elsewhere = Service::open().await;
    elsewhere.project("other").await;
    let headers = [("idempotency-key", "k"), ("gleaner-project", "other")];
    let log = elsewhere.call(Method::POST, logs, &headers, Some(&body)).await.expect(201);
    assert!(ids.insert(log["id"].clone()), "the id is a secret of the project");
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
    assert_whole!("a_log_finished_in_one_step", log);

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
