//! Data sets of suggestion records: formats byte for byte, what counts as chosen and rejected, and the seed's line.

use std::collections::BTreeSet;

use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::support::{Service, column, with};

const PREFERENCES: &str = "/v1/exports/preference-pairs";
const ACCEPTED: &str = "/v1/exports/accepted-suggestions";
const RANKINGS: &str = "/v1/exports/rankings";
const HISTORY: &str = "/v1/exports/suggestion-history";

/// The line of a finished record, its id made of a number.
fn finished(number: u128, suggestions: &[&str], viewed: &[i32], input: &str) -> Value {
    json!({"event": "suggestion", "id": Uuid::from_u128(number), "context": {"blocks": [{"input": "git add ."}]},
        "suggestions": suggestions, "viewed_indices": viewed, "actual_input": input})
}

fn told(event: Value) -> Value {
    with(
        event,
        &json!({"llm_request": {"messages": [{"role": "system", "content": "Be brief"}, {"role": "user", "content": "Next?"}]}}),
    )
}

/// Four slates, one of each kind of match: exact at 1, partial and prefix at 0, and none.
async fn four() -> Service {
    let service = Service::open().await;
    service
        .accept(&[
            told(finished(1, &["ls", "git commit", "cd"], &[0, 1], "git commit")),
            finished(2, &["git", "pwd"], &[0, 1], "git push"),
            finished(3, &["git log", "pwd"], &[0], "git"),
            finished(4, &["ls", "pwd"], &[0], "make"),
        ])
        .await;
    service
}

async fn text(service: &Service, path: &str) -> String {
    let answer = service.get(path).await;
    assert_eq!(answer.status, 200, "{path}: {}", answer.text());
    answer.text()
}

const CONTEXT: &str = r#"{"role":"user","content":"{\"blocks\":[{\"input\":\"git add .\"}]}"}"#;
const TOLD: &str = r#"{"role":"system","content":"Be brief"},{"role":"user","content":"Next?"}"#;

fn said(text: &str) -> String {
    format!(r#"[{{"role":"assistant","content":"{text}"}}]"#)
}

#[tokio::test]
async fn each_format_of_preference_pairs_is_byte_exact() {
    let service = four().await;
    let pair = |prompt: &str, chosen: &str, rejected: &str| {
        format!("{{\"prompt\":[{prompt}],\"chosen\":{},\"rejected\":{}}}\n", said(chosen), said(rejected))
    };
    let label = |prompt: &str, text: &str, label: bool| {
        format!("{{\"prompt\":[{prompt}],\"completion\":{},\"label\":{label}}}\n", said(text))
    };
    let exact = pair(TOLD, "git commit", "ls");
    let partial = pair(CONTEXT, "git push", "pwd");
    let none = pair(CONTEXT, "make", "ls");
    for (query, expected) in [
        ("", exact.clone()),
        ("?format=trl-preference&match_type=exact", exact.clone()),
        ("?match_type=partial", partial.clone()),
        ("?match_type=prefix", String::new()),
        ("?match_type=none&include_typed=true", none.clone()),
        ("?include_typed=true", format!("{exact}{partial}{none}")),
        ("?match_type=partial,exact", format!("{exact}{partial}")),
        (
            "?format=openai-preference",
            format!(
                "{{\"input\":{{\"messages\":[{TOLD}]}},\"preferred_output\":{},\"non_preferred_output\":{}}}\n",
                said("git commit"),
                said("ls")
            ),
        ),
        (
            "?format=trl-kto&match_type=exact,prefix",
            [label(TOLD, "git commit", true), label(TOLD, "ls", false), label(CONTEXT, "git", true)].concat(),
        ),
        (
            "?format=raw",
            format!(
                "{{\"prompt\":[{TOLD}],\"chosen\":\"git commit\",\"rejected\":\"ls\",\"chosen_index\":1,\
                 \"rejected_index\":0,\"match_type\":\"exact\",\"suggestion_id\":\"{}\"}}\n",
                Uuid::from_u128(1)
            ),
        ),
    ] {
        assert_eq!(text(&service, &format!("{PREFERENCES}{query}")).await, expected, "{query}");
    }
    service.get(&format!("{PREFERENCES}?match_type=none")).await.refused(422, &["/include_typed"]);
    service.get(&format!("{PREFERENCES}?match_type=near")).await.refused(422, &["/match_type"]);
    service.get(&format!("{PREFERENCES}?format=openai")).await.refused(422, &["/format"]);
}

#[tokio::test]
async fn each_format_of_accepted_suggestions_is_byte_exact() {
    let service = four().await;
    for (query, expected) in [
        ("", format!("{{\"messages\":[{TOLD},{}]}}\n", said("git commit").trim_matches(['[', ']']))),
        (
            "?format=trl-prompt-completion",
            format!("{{\"prompt\":[{TOLD}],\"completion\":{}}}\n", said("git commit")),
        ),
        (
            "?format=alpaca&match_type=exact,prefix",
            concat!(
                r#"{"instruction":"Next?","input":"","output":"git commit","system":"Be brief"}"#,
                "\n",
                r#"{"instruction":"{\"blocks\":[{\"input\":\"git add .\"}]}","input":"","output":"git","system":""}"#,
                "\n"
            )
            .to_owned(),
        ),
        (
            "?format=raw",
            format!(
                "{{\"prompt\":[{TOLD}],\"accepted\":\"git commit\",\"accepted_index\":1,\"match_type\":\"exact\",\
                 \"suggestion_id\":\"{}\"}}\n",
                Uuid::from_u128(1)
            ),
        ),
    ] {
        assert_eq!(text(&service, &format!("{ACCEPTED}{query}")).await, expected, "{query}");
    }
    let rows = service.get(&format!("{ACCEPTED}?include=metadata")).await.rows();
    let metadata = &rows[0]["metadata"];
    let expected = json!({"suggestion_id": Uuid::from_u128(1), "match_type": "exact", "accepted_index": 1,
        "viewed_indices": [0, 1], "cycle_count": 1, "displayed_index_at_submit": 1, "context_block_count": 1});
    for (name, value) in expected.as_object().expect("an object") {
        assert_eq!(&metadata[name], value, "{name}");
    }
}

#[tokio::test]
async fn each_format_of_rankings_is_byte_exact() {
    let service = four().await;
    let id = |number: u128| Uuid::from_u128(number);
    let letor = format!(
        "# features: 1:position 2:characters 3:words 4:context_blocks 5:typed_before 6:same_command\n\
         0 qid:1 1:0 2:2 3:1 4:1 5:0 6:0 # docid={0}:0 match=exact\n\
         2 qid:1 1:1 2:10 3:2 4:1 5:0 6:1 # docid={0}:1 match=exact\n\
         1 qid:2 1:0 2:3 3:1 4:1 5:0 6:1 # docid={1}:0 match=partial\n\
         0 qid:2 1:1 2:3 3:1 4:1 5:0 6:0 # docid={1}:1 match=partial\n\
         1 qid:3 1:0 2:7 3:2 4:1 5:0 6:1 # docid={2}:0 match=prefix\n\
         0 qid:4 1:0 2:2 3:1 4:1 5:0 6:0 # docid={3}:0 match=none\n",
        id(1),
        id(2),
        id(3),
        id(4)
    );
    let answer = service.get(RANKINGS).await;
    assert_eq!(answer.header("content-type"), Some("text/plain; charset=utf-8"));
    assert_eq!(answer.text(), letor);
    assert_eq!(
        text(&service, &format!("{RANKINGS}?format=lightgbm-tsv&match_type=prefix")).await,
        "label\tqid\tposition\tcharacters\twords\tcontext_blocks\ttyped_before\tsame_command\n\
         1\t1\t0\t7\t2\t1\t0\t1\n"
    );
    assert_eq!(
        text(&service, &format!("{RANKINGS}?format=raw&match_type=partial")).await,
        format!(
            "{{\"suggestion_id\":\"{}\",\"prompt\":[{CONTEXT}],\"input\":\"git push\",\"match_type\":\"partial\",\
             \"candidates\":[{{\"index\":0,\"text\":\"git\",\"label\":1,\"viewed\":true}},\
             {{\"index\":1,\"text\":\"pwd\",\"label\":0,\"viewed\":true}}]}}\n",
            id(2)
        )
    );
    let mut pieces = String::new();
    let mut cursor = String::new();
    loop {
        let piece = service.get(&format!("{RANKINGS}?limit=1{cursor}")).await;
        pieces.push_str(&piece.text());
        let Some(next) = piece.header("gleaner-next-cursor") else { break };
        cursor = format!("&cursor={next}");
    }
    assert_eq!(pieces, letor, "pieces count on, and only the first has the header");
    service.get(&format!("{RANKINGS}?include=metadata")).await.refused(422, &["/include"]);
    service.get(&format!("{RANKINGS}?assume_uniform=true")).await.refused(422, &["/assume_uniform"]);
}

#[tokio::test]
async fn bandit_decisions_need_logged_propensities_or_the_word_that_none_are_assumed() {
    let service = Service::open().await;
    let logged = with(
        finished(1, &["git status", "ls"], &[0], "git status"),
        &json!({"propensities": [0.8, 0.2], "policy_id": "policy-1", "created_at": 1_704_067_200}),
    );
    service.accept(&[logged, finished(2, &["ls", "pwd"], &[0, 1], "pwd")]).await;
    let path = format!("{RANKINGS}?format=vw-dsjson");
    let first = json!({"_label_cost": -1.0, "_label_probability": 0.8, "_label_Action": 1, "_labelIndex": 0,
        "Timestamp": "2024-01-01T00:00:00.000000Z", "Version": "1", "EventId": Uuid::from_u128(1), "a": [1, 2],
        "c": {"Context": {"blocks": 1, "last": "git"}, "_multi": [
            {"Suggestion": {"command": "git", "characters": 10, "words": 2, "typed_before": 0, "same_command": 1}},
            {"Suggestion": {"command": "ls", "characters": 2, "words": 1, "typed_before": 0, "same_command": 0}}]},
        "p": [0.8, 0.2], "VWState": {"m": "policy-1"}});
    assert_eq!(service.get(&path).await.rows(), [first]);
    let all = service.get(&format!("{path}&assume_uniform=true")).await.rows();
    assert_eq!(column(&all, "p"), [json!([0.8, 0.2]), json!([0.5, 0.5])]);
    assert_eq!(column(&all, "_label_cost"), [json!(-1.0), json!(0.0)]);
}

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
        assert_eq!(*back, with(line.clone(), &json!({"ts": ts})));
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

#[tokio::test]
async fn exact_deduplication_keeps_the_oldest_of_equal_rows() {
    let service = Service::open().await;
    service
        .accept(&[
            finished(9, &["a", "b"], &[0, 1], "b"),
            finished(2, &["a", "b"], &[0, 1], "b"),
            finished(1, &["a", "b", "c"], &[0, 1, 2], "b"),
            told(finished(3, &["a", "b"], &[0, 1], "b")),
        ])
        .await;
    let of = async |path: &str| {
        let rows = service.get(path).await.rows();
        let ids = column(&rows, "suggestion_id");
        ids.iter()
            .map(|id| id.as_str().and_then(|id| id.parse::<Uuid>().ok()).map(|id| id.as_u128()))
            .collect::<Vec<_>>()
    };
    let pairs = of(&format!("{PREFERENCES}?format=raw&dedupe=exact")).await;
    assert_eq!(pairs, [Some(9), Some(1), Some(3)], "the second pair of 1 is new");
    assert_eq!(of(&format!("{ACCEPTED}?format=raw&dedupe=exact")).await, [Some(9), Some(3)]);
    assert_eq!(of(&format!("{RANKINGS}?format=raw&dedupe=exact")).await, [Some(9), Some(1), Some(3)]);
    let labels = service.get(&format!("{PREFERENCES}?format=trl-kto&dedupe=exact")).await.rows();
    assert_eq!(column(&labels, "label"), [true, false, false, true, false].map(Value::from));
}

#[tokio::test]
async fn a_session_is_on_one_side_of_a_split_only() {
    let service = Service::open().await;
    let events: Vec<_> = (0..200)
        .map(|number| {
            let session = format!("s{}", number % 20);
            with(finished(number, &["a", "b"], &[0, 1], "b"), &json!({"session_name": session}))
        })
        .collect();
    service.accept(&events).await;
    let part = async |split: &str| {
        let rows =
            service.get(&format!("{PREFERENCES}?include=metadata&holdout=0.4&split={split}")).await.rows();
        let sessions = rows.iter().map(|row| row["metadata"]["session_name"].to_string());
        (rows.len(), sessions.collect::<BTreeSet<_>>())
    };
    let ((train, train_sessions), (held, held_sessions)) = (part("train").await, part("validation").await);
    assert_eq!(train + held, 200);
    assert!(train > 0 && held > 0 && train_sessions.is_disjoint(&held_sessions));
}

#[tokio::test]
async fn what_is_listed_are_the_rows_with_default_parameters() {
    let service = four().await;
    let sets = service.get("/v1/exports").await.expect(200);
    let counted: Vec<_> = sets["data"]
        .as_array()
        .expect("data")
        .iter()
        .map(|set| json!([set["dataset"], set["rows"], set["skipped"]]))
        .collect();
    assert_eq!(
        json!(counted),
        json!([
            ["training-pairs", 0, 0],
            ["correction-pairs", 0, 0],
            ["preference-pairs", 1, 0],
            ["accepted-suggestions", 1, 0],
            ["rankings", 4, 0],
            ["suggestion-history", 4, 0],
            ["search-pairs", 0, 0],
        ])
    );
}

/// Records with views as they come in; texts are unique, so that a text says which suggestion it is.
#[tokio::test]
async fn no_export_ever_holds_an_unviewed_suggestion_as_rejected() {
    let service = Service::open().await;
    let strategy = proptest::collection::vec(
        (1..5_usize, proptest::collection::vec((0..5_usize, any::<bool>()), 0..5), 0..8_usize),
        1..12,
    );
    let mut runner = TestRunner::deterministic();
    let mut viewed = BTreeSet::new();
    let mut number = 0_u128;
    for _ in 0..8 {
        let records = strategy.new_tree(&mut runner).expect("a case").current();
        let mut events = Vec::new();
        for (count, moves, input) in records {
            number += 1;
            let id = Uuid::from_u128(number);
            let texts: Vec<_> = (0..count).map(|index| format!("#{number}/{index}")).collect();
            let input = match input {
                0..4 if input < count => texts[input].clone(),
                4 => format!("{} more", texts[0]),
                5 => format!("#{number}/"),
                _ => "typed".to_owned(),
            };
            events.push(json!({"event": "suggestion", "id": id, "context": {}, "suggestions": texts}));
            let mut current = 0;
            viewed.insert(texts[0].clone());
            for (index, jumps) in moves {
                current = if jumps { index % count } else { (current + 1) % count };
                viewed.insert(texts[current].clone());
                let made = if jumps { json!({"index": current}) } else { json!({"direction": "next"}) };
                events.push(with(made, &json!({"event": "view", "suggestion_id": id})));
            }
            events.push(json!({"event": "suggestion_outcome", "suggestion_id": id, "actual_input": input}));
        }
        service.accept(&events).await;
    }
    let mut seen = 0;
    for query in ["?include_typed=true", "?match_type=exact,partial,prefix,none&include_typed=true"] {
        for row in service.get(&format!("{PREFERENCES}{query}")).await.rows() {
            let rejected = row["rejected"][0]["content"].as_str().expect("a text");
            assert!(viewed.contains(rejected), "{rejected}");
            assert_ne!(row["chosen"], row["rejected"]);
            seen += 1;
        }
        for row in service.get(&format!("{PREFERENCES}{query}&format=trl-kto")).await.rows() {
            let text = row["completion"][0]["content"].as_str().expect("a text");
            assert!(row["label"] == true || viewed.contains(text), "{text}");
        }
    }
    for row in service.get(&format!("{RANKINGS}?format=raw")).await.rows() {
        for candidate in row["candidates"].as_array().expect("candidates") {
            let text = candidate["text"].as_str().expect("a text");
            assert!(candidate["label"] != 0 || viewed.contains(text), "{text}");
        }
    }
    assert!(seen > 50, "{seen}");
}
