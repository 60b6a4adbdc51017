//! Figures of suggestion records, the comparison of versions, and the signs that a slate was no good.

use serde_json::{Value, json};
use uuid::Uuid;

use crate::support::{Service, assert_close, column, with};

/// A finished record of three suggestions, its id made of a number.
fn finished(number: u128, viewed: &[i32], input: &str, more: &Value) -> Value {
    let record = json!({"event": "suggestion", "id": Uuid::from_u128(number), "context": {"blocks": []},
        "suggestions": ["a1", "b2", "c3"], "viewed_indices": viewed, "actual_input": input});
    with(record, more)
}

fn version(name: &str, tokens: i64, time_ms: f64) -> Value {
    json!({"suggestion_node_version": name, "llm_response": {"model": "m", "usage": {"total_tokens": tokens}},
        "llm_request": {"temperature": 0.5}, "time_to_action_ms": time_ms})
}

/// A call of the model with the numbers of tokens that its parts took, and its own parameters.
fn call(name: &str, prompt: i64, completion: i64, time_ms: f64, parameters: &Value) -> Value {
    let usage = json!({"prompt_tokens": prompt, "completion_tokens": completion});
    let parts = json!({"llm_response": {"model": "m", "usage": usage},
        "llm_request": with(json!({"temperature": 0.5}), parameters), "server_name": "east"});
    with(version(name, 0, time_ms), &parts)
}

async fn service() -> Service {
    let service = Service::open().await;
    service
        .accept(&[
            finished(1, &[0], "a1", &version("v1", 100, 1000.0)),
            finished(2, &[0, 1], "b2", &call("v1", 80, 20, 2000.0, &json!({"max_tokens": 20, "top_p": 1}))),
            finished(
                3,
                &[0, 1, 2, 1],
                "c3 and more",
                &call("v2", 250, 50, 3000.0, &json!({"max_tokens": 50, "top_p": 1.0})),
            ),
            finished(
                4,
                &[0, 1, 0],
                "other",
                &call(
                    "v2",
                    170,
                    30,
                    20_000.0,
                    &json!({"max_tokens": 50, "top_p": null, "long": "x".repeat(200)}),
                ),
            ),
            finished(5, &[0], "a", &json!({})),
            with(finished(6, &[], "typed", &json!({})), &json!({"suggestions": []})),
            finished(7, &[0], ":quit", &version("v1", 900, 1.0)),
            json!({"event": "suggestion", "context": {}, "suggestions": ["pending"]}),
        ])
        .await;
    service
}

#[tokio::test]
async fn figures_answer_the_seeds_questions() {
    let service = service().await;
    let figures = service.get("/v1/analytics/suggestions").await.expect(200);
    let share = |count: i64, low: f64, high: f64| json!({"count": count, "share": count as f64 / 5.0, "interval": [low, high]});
    let fifth = share(1, 0.036_224, 0.624_465);
    assert_close(
        &round(&figures),
        &round(&json!({
            "fetches": 7, "failed": {"count": 0, "share": 0.0, "interval": [0.0, 0.354_330]},
            "records": 6, "empty": 1, "accepted": 4, "acceptance_rate": 0.8,
            "acceptance_rate_interval": [0.375_535, 0.963_776], "ignored": fifth,
            "by_match_type": {"exact": share(2, 0.117_621, 0.769_276), "partial": fifth, "prefix": fifth, "none": fifth,
                "unknown": 0},
            "by_position": [
                {"position": 0, "shown": 5, "accepted": 2, "rate": 0.4, "interval": [0.117_621, 0.769_276]},
                {"position": 1, "shown": 3, "accepted": 1, "rate": 0.333_333, "interval": [0.061_492, 0.792_345]},
                {"position": 2, "shown": 1, "accepted": 1, "rate": 1.0, "interval": [0.206_549, 1.0]}],
            "think_time": {"count": 4, "mean_ms": 6500.0, "p50_ms": 2500.0, "p90_ms": 14900.0, "p95_ms": 17450.0,
                "p99_ms": 19490.0},
            "cycles": {"mean": 1.2, "most": 3, "browsed": share(3, 0.230_724, 0.882_379)},
            "tokens": {"total": 700, "records": 4, "per_accepted": 233.333_333,
                "prompt": {"total": 500, "records": 3, "per_accepted": 250.0},
                "completion": {"total": 100, "records": 3, "per_accepted": 50.0}},
            "negative_signals": {"viewed_rejected": 3, "slow_rejection": 1, "many_cycles": 1, "partial": 1,
                "cycled_back": 2},
            "groups": null, "groups_left_out": null
        })),
    );
}

/// Numbers to four places: the intervals above are written by hand.
fn round(value: &Value) -> Value {
    match value {
        Value::Number(number) => json!((number.as_f64().expect("a number") * 1e4).round() / 1e4),
        Value::Array(items) => items.iter().map(round).collect(),
        Value::Object(members) => {
            members.iter().map(|(name, member)| (name.clone(), round(member))).collect()
        }
        other => other.clone(),
    }
}

#[tokio::test]
async fn figures_are_grouped_and_narrowed() {
    let service = service().await;
    for (group_by, expected) in [
        ("version", json!([["v1", 2, 2], ["v2", 2, 1], [null, 2, 1]])),
        ("model", json!([["m", 4, 3], [null, 2, 1]])),
        ("temperature", json!([[0.5, 4, 3], [null, 2, 1]])),
        ("context_block_count", json!([[0, 6, 4]])),
        ("session", json!([[null, 6, 4]])),
        ("server", json!([["east", 3, 2], [null, 3, 2]])),
        ("prompt_tokens", json!([[80, 1, 1], [170, 1, 0], [250, 1, 1], [null, 3, 2]])),
        ("completion_tokens", json!([[20, 1, 1], [30, 1, 0], [50, 1, 1], [null, 3, 2]])),
        ("llm:temperature", json!([[0.5, 4, 3], [null, 2, 1]])),
        ("llm:max_tokens", json!([[50, 2, 1], [20, 1, 1], [null, 3, 2]])),
        ("llm:top_p", json!([[1, 2, 2], [null, 4, 2]])),
        ("llm:long", json!([[null, 6, 4]])),
        ("llm:messages", json!([[null, 6, 4]])),
    ] {
        let figures =
            service.get(&format!("/v1/analytics/suggestions?group_by={group_by}")).await.expect(200);
        let groups = figures["groups"].as_array().expect("groups");
        let mut found: Vec<_> =
            groups.iter().map(|own| json!([own["group"], own["records"], own["accepted"]])).collect();
        // The largest group comes first; the one without a value is shown last here.
        assert!(groups.is_sorted_by_key(|own| std::cmp::Reverse(own["records"].as_i64())), "{group_by}");
        found.sort_by_key(|own| own[0].is_null());
        assert_close(&json!(found), &expected);
        assert_eq!(figures["groups_left_out"], 0);
        assert_eq!(figures["records"], 6);
        let shown = |figures: &Value| figures["by_position"][0]["shown"].as_i64().expect("a count");
        assert_eq!(groups.iter().map(shown).sum::<i64>(), shown(&figures), "{group_by}");
    }
    for (query, records) in [
        ("suggestion_node_version=v1", 2),
        ("session_name=none", 0),
        ("server_name=east", 3),
        ("server_name=west", 0),
        ("since=2000-01-01T00:00:00Z", 6),
        ("until=2000-01-01T00:00:00Z", 0),
    ] {
        let figures = service.get(&format!("/v1/analytics/suggestions?{query}")).await.expect(200);
        assert_eq!(figures["records"], records, "{query}");
    }
    for wrong in ["colour", "", "llm:", "llm"] {
        let path = format!("/v1/analytics/suggestions?group_by={wrong}");
        service.get(&path).await.refused(422, &["/group_by"]);
    }
    service.get("/v1/analytics/suggestions?many_cycles=0").await.refused(422, &["/many_cycles"]);
}

#[tokio::test]
async fn of_more_groups_than_1_000_the_largest_are_listed_with_their_positions() {
    let service = Service::open().await;
    let session = |number: u128| {
        finished(number + 1, &[0], "a1", &json!({"session_name": format!("s{}", number % 1_001)}))
    };
    service.accept(&(0..1_002).map(session).collect::<Vec<_>>()).await;
    let figures = service.get("/v1/analytics/suggestions?group_by=session").await.expect(200);
    let groups = figures["groups"].as_array().expect("groups");
    assert_eq!(
        (groups.len(), &figures["groups_left_out"], &groups[0]["group"]),
        (1_000, &json!(1), &json!("s0"))
    );
    assert!(groups.iter().all(|own| own["by_position"][0]["shown"] == own["records"]));
    assert_eq!(figures["by_position"][0]["shown"], 1_002);
}

#[tokio::test]
async fn two_versions_are_compared() {
    let service = service().await;
    let path = "/v1/analytics/suggestions/compare";
    let compared = service.get(&format!("{path}?a=v1&b=v2")).await.expect(200);
    assert_eq!(
        (&compared["a"]["acceptance_rate"], &compared["b"]["acceptance_rate"]),
        (&json!(1.0), &json!(0.5))
    );
    assert_eq!(compared["difference"], 0.5);
    assert_close(&round(&compared["p_value"]), &json!(0.2482));
    service.get(&format!("{path}?a=v1&b=v3")).await.refused(404, &[]);
    service.get(&format!("{path}?a=v1")).await.refused(422, &["/b"]);
}

#[tokio::test]
async fn each_negative_signal_lists_its_records() {
    let service = service().await;
    for (query, expected) in [
        ("viewed_rejected", vec![4, 3, 2]),
        ("slow_rejection", vec![4]),
        ("slow_rejection&slow_ms=30000", vec![]),
        ("many_cycles", vec![3]),
        ("many_cycles&many_cycles=2", vec![4, 3]),
        ("partial", vec![3]),
        ("partial&suggestion_node_version=v1", vec![]),
        ("partial&server_name=west", vec![]),
        ("partial&server_name=east", vec![3]),
        ("cycled_back", vec![4, 3]),
    ] {
        let mut found =
            column(&service.all(&format!("/v1/suggestions/negative-signals?signal={query}")).await, "id");
        found.sort_by_key(|id| std::cmp::Reverse(id.to_string()));
        let expected: Vec<_> = expected.into_iter().map(|number| json!(Uuid::from_u128(number))).collect();
        assert_eq!(found, expected, "{query}");
    }
    service.get("/v1/suggestions/negative-signals").await.refused(422, &["/signal"]);
    service.get("/v1/suggestions/negative-signals?signal=sad").await.refused(422, &["/signal"]);
}

#[tokio::test]
async fn impossible_durations_are_refused_and_impossible_tokens_do_not_count() {
    let service = Service::open().await;
    let record = |more: serde_json::Value| {
        with(json!({"event": "suggestion", "context": {}, "suggestions": ["a"], "actual_input": "a"}), &more)
    };
    let tokens = json!({"llm_response": {"usage": {"total_tokens": i64::MAX, "prompt_tokens": i64::MAX}}});
    let lines = json!([
        record(json!({"time_to_action_ms": 1e200})),
        record(json!({"fetch_end_ts": 0, "submit_ts": 1e8})),
        record(tokens.clone()),
        record(tokens),
    ]);
    let summary = service.post("/v1/events", &lines).await.expect(200);
    assert_eq!(summary["rejected"][0]["errors"][0]["pointer"], "/time_to_action_ms");
    assert_eq!((&summary["accepted"], summary["rejected"].as_array().map(Vec::len)), (&json!(3), Some(1)));
    let figures = service.get("/v1/analytics/suggestions").await.expect(200);
    assert_eq!((&figures["records"], &figures["think_time"]["count"]), (&json!(3), &json!(0)));
}

#[tokio::test]
async fn figures_by_position_are_of_the_first_fifty_positions() {
    let service = Service::open().await;
    let viewed: Vec<_> = (0..60).collect();
    let slate = json!({"suggestions": vec!["a"; 60], "session_name": "s"});
    service.accept(&[finished(1, &viewed, "a", &slate)]).await;
    let figures = service.get("/v1/analytics/suggestions?group_by=session").await.expect(200);
    for positions in [&figures["by_position"], &figures["groups"][0]["by_position"]] {
        let positions = column(positions.as_array().expect("positions"), "position");
        assert_eq!(positions, (0..50).collect::<Vec<_>>());
    }
}
