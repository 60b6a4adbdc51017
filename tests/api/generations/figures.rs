//! Figures of logs and of the errors in them, checked against figures worked out by hand.

use serde_json::{Value, json};
use uuid::Uuid;

use super::{intent, start};
use crate::support::{Service, assert_close, column, with};

/// An attempt that takes so long; one that fails says why.
fn attempt(template: Option<&str>, latency: i32, program: &str, error: Option<&str>) -> Value {
    let said = match error {
        None => json!({"parse_result": {"success": true}, "compile_result": {"success": true}}),
        Some(error) => {
            json!({"parse_result": {"success": true}, "compile_result": {"success": false, "error": error}})
        }
    };
    let call = json!({"prompt_template": template, "latency_ms": latency, "input_tokens": 10, "output_tokens": 1,
        "extracted_dsl": program});
    with(said, &call)
}

fn log(domain: &str, model: Option<&str>, success: Option<bool>, iterations: &[Value]) -> Value {
    let more =
        json!({"domain_name": domain, "model_used": model, "success": success, "iterations": iterations});
    with(intent("Create a fund"), &more)
}

/// Five finalized logs, and one that is open and in no figure.
async fn logs() -> Service {
    let service = Service::open().await;
    let (t, u) = (Some("t"), Some("u"));
    let unknown = |line: i32| format!("Unknown verb 'cbu.créate' in line {line}");
    for log in [
        log("cbu", Some("m"), Some(true), &[attempt(t, 100, "(a)", None)]),
        log(
            "cbu",
            Some("m"),
            Some(true),
            &[attempt(t, 200, "(cbu.créate 1)", Some(&unknown(1))), attempt(u, 300, "(cbu.create 1)", None)],
        ),
        log(
            "cbu",
            None,
            Some(true),
            &[
                attempt(u, 100, "(cbu.créate 2)", Some(&unknown(2))),
                attempt(u, 100, "(cbu.creatte 2)", Some("Unknown verb `cbu.creatte` in line 7")),
                attempt(u, 100, "(cbu.create 2)", None),
            ],
        ),
        log("bond", Some("m"), Some(false), &[attempt(t, 700, "(cbu.créate 3)", Some(&unknown(3)))]),
        with(
            log("bond", None, Some(false), &[json!({"raw_response": "I cannot"})]),
            &json!({"created_at": "2020-01-01T00:00:00Z"}),
        ),
        log("cbu", Some("m"), None, &[attempt(t, 9, "(x)", Some("open"))]),
    ] {
        start(&service, log).await;
    }
    service
}

async fn figures(service: &Service, query: &str) -> Value {
    service.get(&format!("/v1/analytics/generations?{query}")).await.expect(200)
}

#[tokio::test]
async fn figures_of_logs_are_those_worked_out_by_hand() {
    let service = logs().await;
    let found = figures(&service, "").await;
    let all = json!({
        "logs": 5, "success": 3, "success_rate": 0.6, "success_rate_interval": [0.230_724_28, 0.882_379_23],
        "first_try_success": 1, "first_try_rate": 0.2, "first_try_rate_interval": [0.036_224_11, 0.624_465_37],
        "attempts": 8, "failed_attempts": 4, "avg_attempts": 1.6, "avg_latency_ms": 400.0,
        "total_input_tokens": 70, "total_output_tokens": 7,
    });
    let mut total = found.clone();
    for groups in ["by_domain", "by_model", "by_template", "errors_by_stage", "errors"] {
        total.as_object_mut().expect("an object").remove(groups);
    }
    assert_close(&total, &all);
    let told = |groups: &str| {
        let groups = found[groups].as_array().expect("groups").iter();
        let told = groups.map(|group| {
            json!([
                group["group"],
                group["logs"],
                group["success"],
                group["first_try_success"],
                group["attempts"],
                group["avg_latency_ms"],
                group["total_input_tokens"]
            ])
        });
        told.collect::<Value>()
    };
    let cbu = json!(["cbu", 3, 3, 1, 6, 300.0, 60]);
    assert_eq!(told("by_domain"), json!([cbu, ["bond", 2, 0, 0, 2, 700.0, 10]]));
    let m = json!(["m", 3, 2, 1, 4, 433.333_333_333_333_3, 40]);
    assert_close(&told("by_model"), &json!([m, [null, 2, 1, 0, 4, 300.0, 30]]));
    let t = json!(["t", 3, 2, 1, 4, 433.333_333_333_333_3, 40]);
    assert_close(
        &told("by_template"),
        &json!([t, ["u", 1, 1, 0, 3, 300.0, 30], [null, 1, 0, 0, 1, null, 0]]),
    );
}

#[tokio::test]
async fn errors_that_differ_in_names_and_numbers_are_one_with_the_change_that_repaired_them() {
    let service = logs().await;
    let found = figures(&service, "").await;
    assert_eq!(found["errors_by_stage"], json!([{"stage": "compile", "count": 4, "repaired": 3}]));
    let example = found["errors"][0]["example_generation_id"].as_str().expect("an id");
    Uuid::parse_str(example).expect("an id");
    let expected = json!([{
        "stage": "compile", "message": "Unknown verb <name> in line <number>", "count": 4, "repaired": 3,
        "changes": [
            {"removed": "cbu.créate", "added": "cbu.create", "count": 2},
            {"removed": "cbu.creatte", "added": "cbu.create", "count": 1},
        ],
        "example_generation_id": example,
    }]);
    assert_eq!(found["errors"], expected);
}

#[tokio::test]
async fn each_stage_has_errors_of_its_own_and_one_that_says_nothing_has_no_message() {
    let service = Service::open().await;
    let failed = |stage: &str, said: Value| with(json!({"extracted_dsl": "(a)"}), &json!({stage: said}));
    let no = json!({"success": false});
    for attempts in [
        vec![
            failed("parse_result", no.clone()),
            failed("lint_result", json!({"valid": false, "errors": ["l\nmore", "m"]})),
        ],
        vec![
            failed("parse_result", no.clone()),
            failed("parse_result", json!({"success": false, "error": "l"})),
        ],
    ] {
        start(&service, log("cbu", None, Some(false), &attempts)).await;
    }
    let found = figures(&service, "").await;
    let errors = found["errors"].as_array().expect("errors");
    assert_eq!(column(errors, "stage"), ["parse", "lint", "parse"]);
    assert_eq!(column(errors, "message"), [Value::Null, json!("l"), json!("l")]);
    assert_eq!(column(errors, "count"), [2, 1, 1]);
    assert_eq!(column(errors, "repaired"), [0, 0, 0]);
    assert_eq!(errors[0]["changes"], json!([]));
    let stages =
        json!([{"stage": "parse", "count": 3, "repaired": 0}, {"stage": "lint", "count": 1, "repaired": 0}]);
    assert_eq!(found["errors_by_stage"], stages);
}

#[tokio::test]
async fn figures_are_of_the_logs_asked_for() {
    let service = logs().await;
    for (query, logs, errors) in [
        ("domain_name=cbu", 3, 3),
        ("domain_name=bond", 2, 1),
        ("model_used=m", 3, 2),
        ("prompt_template=t", 3, 2),
        ("prompt_template=u", 1, 2),
        ("domain_name=cbu&model_used=m&prompt_template=t", 2, 1),
        ("since=2021-01-01T00:00:00Z", 4, 4),
        ("until=1609459200", 1, 0),
        ("domain_name=none", 0, 0),
    ] {
        let found = figures(&service, query).await;
        assert_eq!((&found["logs"], &found["failed_attempts"]), (&json!(logs), &json!(errors)), "{query}");
        let counted: i64 = found["errors"]
            .as_array()
            .expect("errors")
            .iter()
            .filter_map(|error| error["count"].as_i64())
            .sum();
        assert_eq!(counted, errors, "{query}");
    }
    let none = figures(&service, "domain_name=none").await;
    assert_eq!(
        (&none["success_rate"], &none["avg_attempts"], &none["by_domain"]),
        (&Value::Null, &Value::Null, &json!([]))
    );
    for (query, pointer) in
        [("group_by=model", "/group_by"), ("since=2&until=1", "/since"), ("limit=1", "/limit")]
    {
        service.get(&format!("/v1/analytics/generations?{query}")).await.refused(422, &[pointer]);
    }
}
