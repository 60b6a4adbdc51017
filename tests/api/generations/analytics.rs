//! Figures of prompt templates, checked against figures worked out by hand.

use serde_json::{Value, json};

use super::{intent, start};
use crate::support::{Service, assert_close, with};

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
