//! Parts 2.1 and 3: how an agent logs what it generates; and what the goals, the last part and the notes ask for.

use serde_json::{Value, json};

use super::{id, lines, log, logs};
use crate::support::{Service, column, failed, passed, with};

const LOGS: &str = "/v1/generations";

#[tokio::test]
async fn a_log_is_started_with_intent_domain_session_unit_and_model() {
    let service = Service::open().await;
    let new = json!({"user_intent": "Create hedge fund", "domain_name": "cbu", "session_id": id(5), "cbu_id": id(6),
        "model_used": "claude-sonnet-4-20250514"});
    let log_id = service.create(LOGS, new).await;
    let sql = "SELECT log_id, user_intent, domain_name, session_id, cbu_id, model_used, created_at <= NOW()
        FROM \"ob-poc\".dsl_generation_log";
    let expected = format!("{log_id}|Create hedge fund|cbu|{}|{}|claude-sonnet-4-20250514|t", id(5), id(6));
    assert_eq!(lines(&service, sql).await, [expected]);
}

/// An attempt with every field of the seed's struct.
fn attempt(number: i32, program: &str, compiles: bool) -> Value {
    let error = if compiles { Value::Null } else { json!("Unknown verb: cbu.créate") };
    json!({
        "attempt": number, "timestamp": "2025-01-15T10:30:00Z", "prompt_template": "cbu_create_v1",
        "prompt_text": "Write …", "raw_response": format!("Here: {program}"), "extracted_dsl": program,
        "parse_result": {"success": true, "error": null},
        "lint_result": {"valid": true, "errors": [], "warnings": []},
        "compile_result": {"success": compiles, "error": error, "step_count": i32::from(compiles)},
        "latency_ms": 500, "input_tokens": null, "output_tokens": null,
    })
}

#[tokio::test]
async fn the_loop_of_the_seed_logs_each_attempt_until_one_compiles() {
    let service = Service::open().await;
    let log_id =
        service.create(LOGS, json!({"user_intent": "Create hedge fund", "domain_name": "cbu"})).await;
    let log = format!("{LOGS}/{log_id}");
    for (number, program, compiles) in [(1, "(cbu.créate)", false), (2, "(cbu.create)", true)] {
        service.post(&format!("{log}/attempts"), &attempt(number, program, compiles)).await.expect(201);
    }
    let success = json!({"success": true, "final_valid_dsl": "(cbu.create)"});
    service.post(&format!("{log}/finalize"), &success).await.expect(200);
    let sql =
        "SELECT success, final_valid_dsl, instance_id IS NULL, completed_at IS NOT NULL, total_attempts,
        total_latency_ms, iterations->0->'compile_result'->>'error' FROM \"ob-poc\".dsl_generation_log";
    assert_eq!(lines(&service, sql).await, ["t|(cbu.create)|t|t|2|1000|Unknown verb: cbu.créate"]);
}

#[tokio::test]
async fn a_program_that_does_not_parse_is_logged_with_the_stages_behind_as_not_valid() {
    let service = Service::open().await;
    let unparsed = json!({"extracted_dsl": "(", "parse_result": {"success": false, "error": "unclosed ("},
        "lint_result": {"valid": false, "errors": [], "warnings": []},
        "compile_result": {"success": false, "error": null, "step_count": 0}});
    let chain = [unparsed, passed(2, "()")];
    service.accept(&[log(1, "Create", &json!({"success": true, "iterations": chain}))]).await;
    let rows = service.get("/v1/exports/correction-pairs?format=raw").await.rows();
    assert_eq!((&rows[0]["error_stage"], &rows[0]["error_message"]), (&json!("parse"), &json!("unclosed (")));
}

#[tokio::test]
async fn a_log_whose_attempts_are_used_up_is_marked_as_failed() {
    let service = Service::open().await;
    let log = format!(
        "{LOGS}/{}",
        service.create(LOGS, json!({"user_intent": "Create", "domain_name": "cbu"})).await
    );
    service.post(&format!("{log}/attempts"), &attempt(1, "(cbu.créate)", false)).await.expect(201);
    let failed = json!({"success": false, "error": "Max attempts exceeded"});
    let ended = service.post(&format!("{log}/finalize"), &failed).await.expect(200);
    assert_eq!((&ended["success"], &ended["error"]), (&json!(false), &json!("Max attempts exceeded")));
    let sql = "SELECT success, completed_at IS NOT NULL FROM \"ob-poc\".dsl_generation_log";
    assert_eq!(lines(&service, sql).await, ["f|t"]);
}

#[tokio::test]
async fn where_a_program_was_persisted_is_said_when_it_is_known() {
    let service = Service::open().await;
    let solved = json!({"success": true, "iterations": [passed(1, "(cbu.create)")]});
    service.accept(&[log(1, "Create", &solved), log(2, "Create", &solved)]).await;
    let instance = json!({"instance_id": id(9)});
    service.patch(&format!("{LOGS}/{}", id(1)), &instance).await.expect(200);
    let sql = "SELECT log_id, instance_id FROM \"ob-poc\".dsl_generation_log ORDER BY created_at";
    assert_eq!(lines(&service, sql).await, [format!("{}|{}", id(1), id(9)), format!("{}|", id(2))]);
}

#[tokio::test]
async fn a_builder_stores_a_whole_log_in_one_step() {
    let service = Service::open().await;
    let whole = json!({"user_intent": "Create", "domain_name": "cbu", "session_id": id(5), "cbu_id": id(6),
        "model_used": "m", "iterations": [attempt(1, "(a)", false), attempt(2, "(b)", true)], "success": true});
    let made = service.post(LOGS, &whole).await.expect(201);
    assert_eq!((&made["final_valid_dsl"], &made["total_attempts"]), (&json!("(b)"), &json!(2)));
}

#[tokio::test]
async fn patterns_of_errors_and_what_repairs_them_are_told() {
    let service = Service::open().await;
    let error = "Unknown verb: cbu.créate";
    let chain = |name: &str| {
        json!({"success": true, "iterations": [
            failed(1, &format!("(cbu.créate :name \"{name}\")"), error),
            passed(2, &format!("(cbu.create :name \"{name}\")")),
        ]})
    };
    let lost = json!({"success": false, "iterations": [failed(1, "(cbu.créate)", error)]});
    service.accept(&[log(1, "One", &chain("A")), log(2, "Two", &chain("B")), log(3, "Three", &lost)]).await;
    let figures = service.get("/v1/analytics/generations").await.expect(200);
    let expected = json!({"stage": "lint", "message": error, "count": 3, "repaired": 2,
        "changes": [{"removed": "cbu.créate", "added": "cbu.create", "count": 2}],
        "example_generation_id": id(3)});
    assert_eq!(figures["errors"], json!([expected]));
}

#[tokio::test]
async fn two_prompt_templates_are_compared_by_their_success() {
    let service = logs().await;
    let path = "/v1/analytics/prompts/compare?a=cbu_create_v2&b=cbu_list";
    let compared = service.get(path).await.expect(200);
    assert_eq!((&compared["difference"], &compared["a"]["success_rate"]), (&json!(-0.5), &json!(0.5)));
}

#[tokio::test]
async fn a_persons_review_weighs_what_is_trained_on() {
    let service = logs().await;
    for (number, rating) in [(1, "good"), (2, "poor")] {
        let path = format!("{LOGS}/{}/review", id(number));
        service.put(&path, &json!({"rating": rating})).await.expect(200);
    }
    for query in ["", "&min_rating=good"] {
        let rows = service.get(&format!("/v1/exports/training-pairs?format=raw{query}")).await.rows();
        assert_eq!(column(&rows, "user_intent"), ["Create hedge fund with John"], "{query}");
    }
}

#[tokio::test]
async fn raw_responses_are_kept_and_are_in_no_export_unless_asked_for() {
    let service = Service::open().await;
    let attempt =
        with(passed(1, "(a)"), &json!({"raw_response": "needle", "prompt_text": "the full prompt"}));
    service.accept(&[log(1, "Create", &json!({"success": true, "iterations": [attempt]}))]).await;
    let exported = service.get("/v1/exports/training-pairs").await.text();
    assert!(!exported.contains("needle") && !exported.contains("the full prompt"), "{exported}");
    let with_metadata = service.get("/v1/exports/training-pairs?include=metadata").await.text();
    assert!(with_metadata.contains("needle"), "{with_metadata}");
    let kept = service.get(&format!("{LOGS}/{}", id(1))).await.expect(200);
    assert_eq!(kept["iterations"][0]["raw_response"], "needle");
}
