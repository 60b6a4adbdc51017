//! Seed 001 from top to bottom: what it asks for, its SELECTs and its records as it prints them.

mod flow;
mod queries;
mod schema;

use serde_json::{Value, json};
use uuid::Uuid;

use crate::support::{Service, passed, with};

/// Two logs solved, the first after a failure, one given up and one still open; created in this order.
async fn logs() -> Service {
    let service = Service::open().await;
    let call = json!({"prompt_template": "cbu_create_v2", "latency_ms": 100, "input_tokens": 10, "output_tokens": 1});
    let bad = with(
        call.clone(),
        &json!({"attempt": 1, "extracted_dsl": "(cbu.créate)", "parse_result": {"success": true},
            "lint_result": {"valid": false, "errors": ["Unknown verb: cbu.créate", "No name"]}}),
    );
    let good = with(call.clone(), &passed(2, "(cbu.create)"));
    let first_try =
        with(with(call.clone(), &passed(1, "(cbu.list)")), &json!({"prompt_template": "cbu_list"}));
    let given_up = with(call, &json!({"attempt": 1, "extracted_dsl": null, "latency_ms": 300}));
    service
        .accept(&[
            log(1, "Create hedge fund with John", &json!({"success": true, "iterations": [bad, good]})),
            log(2, "List the hedge funds", &json!({"success": true, "iterations": [first_try]})),
            log(
                3,
                "Delete everything",
                &json!({"domain_name": "entity", "success": false, "iterations": [given_up]}),
            ),
            log(4, "Create hedge fund", &json!({})),
        ])
        .await;
    service
}

/// The line of a log whose id and time are made of a number.
fn log(number: u128, intent: &str, more: &Value) -> Value {
    let log = json!({"event": "generation", "id": id(number), "user_intent": intent, "domain_name": "cbu",
        "created_at": format!("2025-01-15T10:30:0{number}Z")});
    with(log, more)
}

fn id(number: u128) -> Uuid {
    Uuid::from_u128(number)
}

/// What a statement answers, line by line.
async fn lines(service: &Service, statements: &str) -> Vec<String> {
    service.sql(statements).await.expect(statements).lines().map(str::to_owned).collect()
}
