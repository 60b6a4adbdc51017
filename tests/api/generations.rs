//! Generation logs: start, append, finalize, review, list, erase.

use serde_json::{Value, json};

use crate::support::{Service, scrub};

fn failed(number: i32, program: &str, error: &str) -> Value {
    json!({"attempt": number, "extracted_dsl": program, "parse_result": {"success": true},
        "lint_result": {"valid": false, "errors": [error]}})
}

fn passed(number: i32, program: &str) -> Value {
    json!({"attempt": number, "extracted_dsl": program, "parse_result": {"success": true},
        "lint_result": {"valid": true}, "compile_result": {"success": true, "step_count": 1}})
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

    let attempts = format!("{location}/attempts");
    service.post(&attempts, &failed(1, "(cbu.créate)", "Unknown verb")).await.expect(201);
    service.post(&attempts, &passed(2, "(cbu.create)")).await.expect(201);
    let finalized =
        service.post(&format!("{location}/finalize"), &json!({"success": true})).await.expect(200);
    assert_eq!(finalized["final_valid_dsl"], "(cbu.create)");
    assert_eq!(finalized["total_attempts"], 2);
    assert_eq!(service.get(&location).await.expect(200), finalized);
}
