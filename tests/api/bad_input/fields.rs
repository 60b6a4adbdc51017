//! Fields of a wrong type or value are refused by their names.

use axum::http::Method;
use serde_json::json;
use uuid::Uuid;

use super::{LOGS, count, log, open_log};
use crate::support::{Service, with};

#[tokio::test]
async fn a_number_without_a_fraction_is_an_integer_however_it_is_written() {
    let service = Service::open().await;
    let attempts = format!("{}/attempts", open_log(&service).await);
    let attempt =
        r#"{"attempt": 3.0, "latency_ms": 1e3, "input_tokens": -0.0, "parse_result": {"success": true}}"#;
    let made = service.post_text(&attempts, "application/json", attempt).await.expect(201);
    assert_eq!(
        (&made["attempt"], &made["latency_ms"], &made["input_tokens"]),
        (&json!(3), &json!(1000), &json!(0))
    );
    service
        .post(
            &attempts,
            &json!({"attempt": 3, "latency_ms": 1000, "input_tokens": 0, "parse_result": {"success": true}}),
        )
        .await
        .expect(200);
    for wrong in ["3.5", "1e300", "-1.0", "3000000000.0"] {
        let body = format!("{{\"attempt\": {wrong}}}");
        service.post_text(&attempts, "application/json", body).await.refused(422, &["/attempt"]);
    }
    let status = json!({"status": 429.0, "message": "m"});
    assert_eq!(service.post("/v1/errors/classify", &status).await.expect(200)["class"], "quota");
}

#[tokio::test]
async fn a_log_of_wrong_types_or_values_is_refused_by_the_fields_names() {
    let service = Service::open().await;
    let long = "é".repeat(51);
    let longer = "é".repeat(201);
    for (more, pointers) in [
        (json!({"user_intent": 5}), vec!["/user_intent"]),
        (json!({"user_intent": null}), vec!["/user_intent"]),
        (json!({"user_intent": ""}), vec!["/user_intent"]),
        (json!({"domain_name": ["cbu"]}), vec!["/domain_name"]),
        (json!({"domain_name": long}), vec!["/domain_name"]),
        (json!({"session_id": {}}), vec!["/session_id"]),
        (
            json!({"session_id": longer, "cbu_id": longer, "instance_id": longer, "model_used": longer, "domain_name": ""}),
            vec!["/domain_name", "/session_id", "/cbu_id", "/model_used", "/instance_id"],
        ),
        (json!({"metadata": []}), vec!["/metadata"]),
        (json!({"metadata": "text"}), vec!["/metadata"]),
        (json!({"created_at": "yesterday"}), vec!["/created_at"]),
        (json!({"created_at": "10000-01-01T00:00:00Z"}), vec!["/created_at"]),
        (json!({"created_at": 1e300}), vec!["/created_at"]),
        (json!({"created_at": i64::MAX}), vec!["/created_at"]),
        (json!({"created_at": -1e14}), vec!["/created_at"]),
        (json!({"id": "7"}), vec!["/id"]),
        (json!({"id": 7}), vec!["/id"]),
        (json!({"success": "yes"}), vec!["/success"]),
        (json!({"success": 1}), vec!["/success"]),
        (json!({"colour": "red"}), vec!["/colour"]),
        (json!({"a/b~c": "red"}), vec!["/a~1b~0c"]),
        (json!({"event": "generation"}), vec!["/event"]),
    ] {
        let refused = service.post(LOGS, &with(log("Create a fund"), &more)).await;
        let problem = refused.refused(422, &pointers);
        let detail = problem["detail"].as_str().expect("a text");
        assert!(pointers.iter().all(|pointer| detail.contains(pointer)), "{problem}");
    }
    assert_eq!(count(&service).await, 0);
}

#[tokio::test]
async fn attempts_within_a_log_are_refused_by_their_place_and_the_fields_names() {
    let service = Service::open().await;
    for (more, pointers) in [
        (json!({"iterations": "none"}), vec!["/iterations"]),
        (json!({"iterations": [5]}), vec!["/iterations/0"]),
        (json!({"iterations": [{}, {"attempt": "one"}]}), vec!["/iterations/1/attempt"]),
        (
            json!({"iterations": [{}, {"attempt": 0, "latency_ms": -1}]}),
            vec!["/iterations/1/attempt", "/iterations/1/latency_ms"],
        ),
        (json!({"iterations": [{"colour": 1}]}), vec!["/iterations/0/colour"]),
        (
            json!({"iterations": [{"lint_result": {"valid": true, "errors": [1]}}]}),
            vec!["/iterations/0/lint_result/errors/0"],
        ),
        (json!({"iterations": [{"lint_result": {"errors": []}}]}), vec!["/iterations/0/lint_result/valid"]),
    ] {
        service.post(LOGS, &with(log("Create a fund"), &more)).await.refused(422, &pointers);
    }
    assert_eq!(count(&service).await, 0);
}

#[tokio::test]
async fn a_log_without_its_fields_or_that_is_no_object_is_refused() {
    let service = Service::open().await;
    for (body, pointer) in [(r#"{"user_intent": "x"}"#, "/domain_name"), ("{}", "/user_intent")] {
        let refused = service.post_text(LOGS, "application/json", body).await;
        refused.refused(422, &[pointer]);
    }
    for body in ["5", "null", "true", "\"text\"", "[]", "[1, 2]"] {
        let refused = service.post_text(LOGS, "application/json", body).await;
        refused.refused(422, &[""]);
    }
    assert_eq!(count(&service).await, 0);
}

#[tokio::test]
async fn an_attempt_of_wrong_types_or_values_is_refused_by_the_fields_names() {
    let service = Service::open().await;
    let path = format!("{}/attempts", open_log(&service).await);
    for (body, pointers) in [
        (json!({"attempt": 0}), vec!["/attempt"]),
        (json!({"attempt": -1}), vec!["/attempt"]),
        (json!({"attempt": 2_147_483_648_i64}), vec!["/attempt"]),
        (json!({"attempt": -2_147_483_649_i64}), vec!["/attempt"]),
        (json!({"attempt": 1.5}), vec!["/attempt"]),
        (json!({"attempt": "1"}), vec!["/attempt"]),
        (json!({"attempt": true}), vec!["/attempt"]),
        (
            json!({"latency_ms": -1, "input_tokens": -1, "output_tokens": -1, "prompt_template_version": -1}),
            vec!["/prompt_template_version", "/latency_ms", "/input_tokens", "/output_tokens"],
        ),
        (json!({"latency_ms": 1e10}), vec!["/latency_ms"]),
        (json!({"prompt_template": 5}), vec!["/prompt_template"]),
        (json!({"prompt_template": "x".repeat(201)}), vec!["/prompt_template"]),
        (json!({"prompt_text": 1}), vec!["/prompt_text"]),
        (json!({"parse_result": true}), vec!["/parse_result"]),
        (json!({"parse_result": {"success": null}}), vec!["/parse_result/success"]),
        (json!({"parse_result": {"success": true, "warnings": []}}), vec!["/parse_result/warnings"]),
        (
            json!({"compile_result": {"success": true, "step_count": 2_147_483_648_i64}}),
            vec!["/compile_result/step_count"],
        ),
        (json!({"timestamp": {}}), vec!["/timestamp"]),
        (json!({"metadata": 5}), vec!["/metadata"]),
        (json!({"generation_id": Uuid::nil()}), vec!["/generation_id"]),
    ] {
        service.post(&path, &body).await.refused(422, &pointers);
    }
    service.post("/v1/generations/7/attempts", &json!({})).await.refused(422, &["/id"]);
}

#[tokio::test]
async fn numbers_end_so_early_that_there_is_always_a_next_one() {
    let service = Service::open().await;
    let path = format!("{}/attempts", open_log(&service).await);
    for number in [i32::MAX, 1_000_000_001] {
        service.post(&path, &json!({"attempt": number})).await.refused(422, &["/attempt"]);
    }
    for (body, number) in [(json!({"attempt": 1_000_000_000}), 1_000_000_000), (json!({}), 1_000_000_001)] {
        let made = service.post(&path, &body).await.expect(201);
        assert_eq!(made["attempt"], number);
    }
}

#[tokio::test]
async fn bodies_of_other_endpoints_are_refused_by_the_fields_names_too() {
    let service = Service::open().await;
    let log = open_log(&service).await;
    for (method, path, body, pointers) in [
        (Method::POST, format!("{log}/finalize"), json!({}), vec!["/success"]),
        (Method::POST, format!("{log}/finalize"), json!({"success": null}), vec!["/success"]),
        (Method::POST, format!("{log}/finalize"), json!({"success": true, "colour": 1}), vec!["/colour"]),
        (
            Method::POST,
            format!("{log}/finalize"),
            json!({"success": false, "instance_id": "x".repeat(201)}),
            vec!["/instance_id"],
        ),
        (Method::PUT, format!("{log}/review"), json!({"rating": 5}), vec!["/rating"]),
        (
            Method::PUT,
            "/v1/prompt-templates/t".to_owned(),
            json!({"template_text": 1, "domain_name": "d"}),
            vec!["/template_text"],
        ),
        (Method::POST, "/v1/keys".to_owned(), json!({"name": "k"}), vec!["/scopes"]),
        (Method::POST, "/v1/keys".to_owned(), json!({"name": "", "scopes": []}), vec!["/name", "/scopes"]),
        (Method::POST, "/v1/keys".to_owned(), json!({"name": "k", "scopes": ["root"]}), vec!["/scopes/0"]),
        (
            Method::POST,
            "/v1/keys".to_owned(),
            json!({"name": "k", "scopes": ["read"], "project": "none"}),
            vec!["/project"],
        ),
        (Method::PUT, "/v1/projects/a%20b".to_owned(), json!({}), vec!["/project"]),
        (Method::PUT, "/v1/projects/p".to_owned(), json!({"colour": 1}), vec!["/colour"]),
    ] {
        let answer = service.call(method, &path, &[], Some(&body)).await;
        answer.refused(422, &pointers);
    }
}
