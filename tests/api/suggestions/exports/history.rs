//! The data set of the seed's lines: what came as a line comes back as the same line.

use serde_json::{Value, json};
use uuid::Uuid;

use super::HISTORY;
use crate::support::{Service, with};

/// What the seed's history file may hold, in all its variety.
fn lines() -> Vec<Value> {
    let line = json!({
        "ts": 1_704_067_200.123_456_7, "session": "my-project", "server": "local", "trigger_block": 5, "result_block": 6,
        "context": {"nodes": ["claude"], "blocks": [{"input": "a", "output": null, "n": 1e3, "f": 0.1}], "cwd": "/ü"},
        "llm_request": {"messages": [{"role": "user", "content": "x"}], "model": "m", "temperature": 0.7},
        "llm_response": {"raw_content": "1. …", "usage": {"total_tokens": 200}, "latency_ms": 234.5},
        "suggestions": ["@a", "@b \"q\"\n", ""], "suggestion_node_version": "v1.0", "viewed_indices": [0, 1, 0],
        "cycle_count": 2, "displayed_index_at_submit": 0, "accepted_index": 0, "actual_input": "@a",
        "match_type": "exact", "time_to_action_ms": 1234.5
    });
    vec![
        line.clone(),
        with(line.clone(), &json!({"match_type": "prefix", "accepted_index": 2, "time_to_action_ms": -0.25})),
        with(line.clone(), &json!({"match_type": "none", "accepted_index": null, "cycle_count": 9})),
        with(
            line.clone(),
            &json!({"session": "", "server": "", "trigger_block": -1, "result_block": null,
            "llm_request": null, "llm_response": null, "suggestion_node_version": null, "suggestions": [],
            "viewed_indices": [], "displayed_index_at_submit": -1, "actual_input": "", "ts": 12.5}),
        ),
        with(line, &json!({"viewed_indices": [0, 7], "displayed_index_at_submit": 7, "ts": 1})),
    ]
}

#[tokio::test]
async fn a_line_of_history_comes_back_with_the_same_values_however_it_came() {
    let service = Service::open().await;
    let lines = lines();
    service.post("/v1/suggestions", &lines[0]).await.expect(201);
    service.accept(&lines[1..]).await;
    let back = service.get(HISTORY).await.rows();
    for (line, back) in lines.iter().zip(&back) {
        let ts = line["ts"].as_f64();
        assert_eq!(back["ts"].as_f64(), ts);
        // A name that is empty is one that is not known.
        let name = |name: &str| Some(&line[name]).filter(|own| **own != "");
        let expected = json!({"ts": ts, "session": name("session"), "server": name("server")});
        assert_eq!(*back, with(line.clone(), &expected));
    }
    assert_eq!(back.len(), lines.len());
    let again = Service::open().await;
    again.accept(&back).await;
    assert_eq!(again.get(HISTORY).await.text(), service.get(HISTORY).await.text());
    assert_eq!(service.get(&format!("{HISTORY}?session=my-project")).await.rows().len(), 4);
    assert_eq!(service.get(&format!("{HISTORY}?server=other")).await.rows().len(), 0);
}

#[tokio::test]
async fn an_object_sent_on_several_lines_comes_back_on_one() {
    let service = Service::open().await;
    let line = with(lines()[0].clone(), &json!({"ts": 1_704_067_200.5}));
    let pretty = serde_json::to_string_pretty(&line).expect("JSON").replace('\n', "\r\n");
    assert_eq!(service.post_text("/v1/suggestions", "application/json", pretty).await.status, 201);
    assert_eq!(service.get(HISTORY).await.rows(), [line]);
}

#[tokio::test]
async fn a_record_that_was_never_a_line_is_exported_as_one() {
    let service = Service::open().await;
    let slate = json!({"id": Uuid::from_u128(1), "context": {"a": 1}, "suggestions": ["x", "y"], "session_name": "s"});
    service.post("/v1/suggestions", &slate).await.expect(201);
    let path = format!("/v1/suggestions/{}", Uuid::from_u128(1));
    service.post(&format!("{path}/views"), &json!({"direction": "next"})).await.expect(201);
    let record = service.post(&format!("{path}/finalize"), &json!({"actual_input": "y"})).await.expect(200);
    let rows = service.get(HISTORY).await.rows();
    let at = chrono::DateTime::parse_from_rfc3339(record["completed_at"].as_str().expect("a time"))
        .expect("RFC 3339");
    let ts = rows[0]["ts"].as_f64().expect("seconds");
    assert!((ts * 1e6 - at.timestamp_micros() as f64).abs() < 1.0);
    let expected = json!({"ts": ts, "session": "s", "server": null, "trigger_block": null, "result_block": null,
        "context": {"a": 1}, "llm_request": null, "llm_response": null, "suggestions": ["x", "y"],
        "suggestion_node_version": null, "viewed_indices": [0, 1], "cycle_count": 1, "displayed_index_at_submit": 1,
        "accepted_index": 1, "actual_input": "y", "match_type": "exact", "time_to_action_ms": null});
    assert_eq!(rows, [expected]);
}
