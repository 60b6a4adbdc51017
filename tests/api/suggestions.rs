//! Suggestion records: slates, views, outcomes, the seed's line, and what is refused.

use axum::http::Method;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::support::{Service, column, scrub, with};

const SLATES: &str = "/v1/suggestions";

fn slate(suggestions: &[&str]) -> Value {
    json!({"context": {"blocks": [{"input": "ls", "output": "a", "success": true}], "cwd": "/"},
        "suggestions": suggestions})
}

/// A slate that was just posted; its address.
async fn posted(service: &Service, suggestions: &[&str], more: Value) -> String {
    let id = service.create(SLATES, with(slate(suggestions), &more)).await;
    format!("{SLATES}/{id}")
}

async fn finalized(service: &Service, address: &str, input: &str) -> Value {
    service.post(&format!("{address}/finalize"), &json!({"actual_input": input})).await.expect(200)
}

/// The seed's own example of a line of its history file.
fn line() -> Value {
    json!({
        "ts": 1_704_067_200.123_456_7, "session": "my-project", "server": "local", "trigger_block": 5, "result_block": 6,
        "context": {"nodes": ["claude", "bash"], "blocks": [{"input": "@bash ls", "output": "a.py\nb.py", "success": true},
            {"input": "@claude explain", "output": "…", "success": true}], "cwd": "/home/user/project"},
        "llm_request": {"messages": [{"role": "system", "content": "You suggest commands."},
            {"role": "user", "content": "{\"blocks\": []}"}], "model": "gpt-4o-mini", "temperature": 0.7, "max_tokens": 256},
        "llm_response": {"raw_content": "1. …", "model": "gpt-4o-mini-2024", "usage": {"prompt_tokens": 150,
            "completion_tokens": 50, "total_tokens": 200}, "finish_reason": "stop", "latency_ms": 234.5},
        "suggestions": ["@claude explain this error", "@bash cat logs.txt", "@python debug.py"],
        "suggestion_node_version": "v1.0", "viewed_indices": [0, 1, 0], "cycle_count": 2,
        "displayed_index_at_submit": 0, "accepted_index": 0, "actual_input": "@claude explain this error",
        "match_type": "exact", "time_to_action_ms": 1234.5
    })
}

#[tokio::test]
async fn a_slate_is_viewed_and_finalized() {
    let service = Service::open().await;
    let body = with(
        slate(&["@claude explain", "@bash ls"]),
        &json!({"llm_request": {"messages": [], "model": "gpt-4o-mini", "temperature": 0.7},
            "llm_response": {"model": "gpt-4o-mini-2024", "usage": {"prompt_tokens": 150, "completion_tokens": 50}},
            "suggestion_node_version": "v1.0", "fetch_start_ts": 1_704_067_200.0, "fetch_end_ts": 1_704_067_200.25,
            "session_name": "my-project", "server_name": "local", "trigger_block_number": 5}),
    );
    let answer = service.post(SLATES, &body).await;
    assert_eq!(answer.status, 201);
    let address = answer.header("location").expect("an address").to_owned();
    let record = answer.json();
    assert_eq!(address, format!("{SLATES}/{}", record["id"].as_str().expect("an id")));
    let expected = json!({
        "id": "id-1", "state": "pending", "suggestions": ["@claude explain", "@bash ls"], "suggestion_count": 2,
        "suggestion_node_version": "v1.0", "session_name": "my-project", "server_name": "local",
        "trigger_block_number": 5, "result_block_number": null, "policy_id": null, "propensities": null,
        "context_block_count": 1, "model": "gpt-4o-mini-2024", "temperature": 0.7, "total_tokens": 200,
        "fetch_start_ts": 1_704_067_200.0, "fetch_end_ts": 1_704_067_200.25, "submit_ts": null, "created_at": "time",
        "completed_at": null, "viewed_indices": [0], "cycle_count": 0, "displayed_index_at_submit": null,
        "actual_input": null, "match_type": null, "accepted_index": null, "time_to_action_ms": null,
        "context": body["context"], "llm_request": body["llm_request"], "llm_response": body["llm_response"],
        "reported": null, "views": [{"index": 0, "at": null, "dwell_ms": null}], "partial_inputs": []
    });
    assert_eq!(scrub(&record), expected);
    assert_eq!(service.get(&address).await.expect(200), record);

    let views = format!("{address}/views");
    let viewed = service.post(&views, &json!({"direction": "next", "at": 1_704_067_201.0})).await.expect(201);
    assert_eq!((&viewed["viewed_indices"], &viewed["cycle_count"]), (&json!([0, 1]), &json!(1)));
    assert_eq!(viewed.get("context"), None);
    service
        .post(
            &format!("{address}/partial-inputs"),
            &json!({"inputs": [{"text": "@ba", "at": 1_704_067_202.0}]}),
        )
        .await
        .expect(201);

    let outcome = json!({"actual_input": "@bash ls", "submit_ts": 1_704_067_203.0});
    let done = service.post(&format!("{address}/finalize"), &outcome).await.expect(200);
    let expected = with(
        expected,
        &json!({"state": "finalized", "submit_ts": 1_704_067_203.0, "completed_at": "time",
            "viewed_indices": [0, 1], "cycle_count": 1, "displayed_index_at_submit": 1, "actual_input": "@bash ls",
            "match_type": "exact", "accepted_index": 1, "time_to_action_ms": 2750.0,
            "views": [{"index": 0, "at": null, "dwell_ms": 750.0}, {"index": 1, "at": "time", "dwell_ms": 2000.0}],
            "partial_inputs": [{"id": "id-2", "text": "@ba", "at": "time"}]}),
    );
    assert_eq!(scrub(&done), expected);
    let amended = service
        .call(Method::PATCH, &address, &[], Some(&json!({"result_block_number": 6})))
        .await
        .expect(200);
    assert_eq!(amended, with(done, &json!({"result_block_number": 6})));
    assert_eq!(
        service.get(&format!("{address}/block-metadata")).await.expect(200),
        json!({"suggestions": ["@claude explain", "@bash ls"], "accepted_index": 1, "match_type": "exact",
            "cycle_count": 1, "time_to_action_ms": 2750.0})
    );
}

#[tokio::test]
async fn the_match_is_the_best_there_is() {
    let service = Service::open().await;
    for (suggestions, input, expected) in [
        (&["ls", "ls -l"][..], "ls -l", json!(["exact", 1])),
        (&["l", "ls", "cd"], "ls -la", json!(["partial", 1])),
        (&["cd", "ls -l"], "ls", json!(["prefix", 1])),
        (&["cd", ""], "pwd", json!(["none", null])),
        (&["cd"], "", json!(["none", null])),
        (&[], "cd", json!(["none", null])),
    ] {
        let address = posted(&service, suggestions, json!({})).await;
        let record = finalized(&service, &address, input).await;
        assert_eq!(json!([record["match_type"], record["accepted_index"]]), expected, "{input}");
    }
    let address = posted(&service, &["ls", "cd", "ls"], json!({})).await;
    service.post(&format!("{address}/views"), &json!({"index": 2})).await.expect(201);
    let record = finalized(&service, &address, "ls").await;
    assert_eq!((&record["accepted_index"], &record["displayed_index_at_submit"]), (&json!(2), &json!(2)));
}

#[tokio::test]
async fn views_end_in_the_order_of_their_times_once_each() {
    let service = Service::open().await;
    let address = posted(&service, &["a", "b", "c"], json!({"fetch_end_ts": 1_704_067_200.0})).await;
    let views = format!("{address}/views");
    let at = |seconds: i64| 1_704_067_200 + seconds;
    for (body, status) in [
        (json!({"direction": "prev", "at": at(3)}), 201),
        (json!({"views": [{"index": 2, "at": at(2)}, {"direction": "next", "at": at(1)}]}), 201),
        (json!({"direction": "prev", "at": at(3)}), 200),
        (json!({"views": [{"index": 2, "at": at(2)}, {"index": 0, "at": at(4)}]}), 201),
        (json!({"views": [{"direction": "next", "at": at(1)}, {"index": 0, "at": at(4)}]}), 200),
        (json!({"id": Uuid::from_u128(1), "index": 0, "at": at(5)}), 201),
        (json!({"id": Uuid::from_u128(1), "index": 0, "at": at(5)}), 200),
        (json!({"id": Uuid::from_u128(1), "index": 1, "at": at(5)}), 409),
    ] {
        let answer = service.post(&views, &body).await;
        assert_eq!(answer.status, status, "{body}: {}", answer.text());
    }
    let record = service.get(&address).await.expect(200);
    assert_eq!(record["viewed_indices"], json!([0, 1, 2, 1, 0, 0]));
    assert_eq!(record["cycle_count"], 5);
    let seen = record["views"].as_array().expect("views");
    assert_eq!(json!(column(seen, "dwell_ms")), json!([1000.0, 1000.0, 1000.0, 1000.0, 1000.0, null]));
    let listed = &service.all(SLATES).await[0];
    assert_eq!((&listed["viewed_indices"], &listed["cycle_count"]), (&record["viewed_indices"], &json!(5)));
    finalized(&service, &address, "a").await;
    let late = service.post(&views, &json!({"index": 1, "at": at(9)})).await.refused(409, &[]);
    assert!(late["detail"].as_str().expect("detail").ends_with("is finalized; nothing can be added"));
    service.post(&views, &json!({"direction": "prev", "at": at(3)})).await.expect(200);
}

#[tokio::test]
async fn views_without_name_or_time_all_count_and_an_idempotency_key_names_them() {
    let service = Service::open().await;
    let address = posted(&service, &["a", "b"], json!({})).await;
    let views = format!("{address}/views");
    let next = json!({"direction": "next"});
    for _ in 0..2 {
        service.post(&views, &next).await.expect(201);
    }
    let key = [("idempotency-key", "k")];
    assert_eq!(service.call(Method::POST, &views, &key, Some(&next)).await.status, 201);
    assert_eq!(service.call(Method::POST, &views, &key, Some(&next)).await.status, 200);
    let other = json!({"direction": "prev"});
    assert_eq!(service.call(Method::POST, &views, &key, Some(&other)).await.status, 409);
    assert_eq!(service.get(&address).await.expect(200)["viewed_indices"], json!([0, 1, 0, 1]));
}

#[tokio::test]
async fn a_request_sent_again_changes_nothing_and_another_one_is_a_conflict() {
    let service = Service::open().await;
    let start = with(slate(&["a"]), &json!({"id": Uuid::from_u128(7)}));
    let first = service.post(SLATES, &start).await.expect(201);
    assert_eq!(service.post(SLATES, &start).await.expect(200), first);
    service.post(SLATES, &with(start.clone(), &json!({"server_name": "b"}))).await.refused(409, &[]);
    let finalize = format!("{SLATES}/{}/finalize", Uuid::from_u128(7));
    let outcome = json!({"actual_input": "a", "result_block_number": 3});
    let done = service.post(&finalize, &outcome).await.expect(200);
    assert_eq!(service.post(&finalize, &outcome).await.expect(200), done);
    assert_eq!(service.post(SLATES, &start).await.expect(200), done);
    service.post(&finalize, &json!({"actual_input": "b"})).await.refused(409, &[]);
    let key = [("idempotency-key", "k")];
    let first = service.call(Method::POST, SLATES, &key, Some(&slate(&["x"]))).await.expect(201);
    assert_eq!(service.call(Method::POST, SLATES, &key, Some(&slate(&["x"]))).await.expect(200), first);
    service.call(Method::POST, SLATES, &key, Some(&slate(&["y"]))).await.refused(409, &[]);
}

#[tokio::test]
async fn two_finalizes_at_once_are_one_end_and_one_replay_or_conflict() {
    let service = Service::open().await;
    for round in 0..10 {
        let address = posted(&service, &["a", "b"], json!({})).await;
        let finalize = format!("{address}/finalize");
        let (one, other) =
            (json!({"actual_input": "a"}), json!({"actual_input": if round % 2 == 0 { "a" } else { "b" }}));
        let (first, second) = tokio::join!(service.post(&finalize, &one), service.post(&finalize, &other));
        let mut statuses = [first.status.as_u16(), second.status.as_u16()];
        statuses.sort_unstable();
        assert_eq!(statuses, if round % 2 == 0 { [200, 200] } else { [200, 409] });
        let winner = if first.status == 200 { "a" } else { "b" };
        assert_eq!(service.get(&address).await.expect(200)["actual_input"], winner);
    }
}

#[tokio::test]
async fn a_command_discards_the_record_and_leaves_nothing_of_it() {
    let service = Service::open().await;
    let gone = json!({"state": "discarded"});
    let body = json!({"context": {"secret": "needle"}, "suggestions": ["needle"], "id": Uuid::from_u128(1),
        "llm_request": {"a": "needle"}});
    service.post(SLATES, &body).await.expect(201);
    let address = format!("{SLATES}/{}", Uuid::from_u128(1));
    let typed = json!({"inputs": [{"text": ":needle", "at": 5}]});
    service.post(&format!("{address}/partial-inputs"), &typed).await.expect(201);
    let finalize = format!("{address}/finalize");
    let command = json!({"actual_input": ":quit needle"});
    for _ in 0..2 {
        assert_eq!(service.post(&finalize, &command).await.expect(200), gone);
    }
    service.post(&finalize, &json!({"actual_input": "needle"})).await.refused(409, &[]);
    service.post(&format!("{address}/partial-inputs"), &typed).await.expect(200);
    service.post(&format!("{address}/views"), &json!({"index": 0})).await.refused(409, &[]);
    service
        .call(Method::PATCH, &address, &[], Some(&json!({"result_block_number": 1})))
        .await
        .refused(409, &[]);
    let once = with(body, &json!({"id": Uuid::from_u128(2), "actual_input": ":needle"}));
    for _ in 0..2 {
        assert_eq!(service.post(SLATES, &once).await.expect(200), gone);
    }
    assert!(!service.dump().await.contains("needle"));
    assert_eq!(service.all(&format!("{SLATES}?state=discarded")).await.len(), 2);
}

#[tokio::test]
async fn a_finished_record_is_stored_in_one_step() {
    let service = Service::open().await;
    let body = with(
        slate(&["a", "b", "c"]),
        &json!({"actual_input": "c", "viewed_indices": [0, 2, 0], "displayed_index_at_submit": -1,
            "time_to_action_ms": 12.5, "result_block_number": 9, "fetch_end_ts": 3.0, "submit_ts": 1_704_067_200.0}),
    );
    let record = service.post(SLATES, &body).await.expect(201);
    let expected = json!({"state": "finalized", "match_type": "exact", "accepted_index": 2, "cycle_count": 2,
        "viewed_indices": [0, 2, 0], "displayed_index_at_submit": -1, "time_to_action_ms": 12.5,
        "result_block_number": 9, "reported": null});
    for (name, value) in expected.as_object().expect("an object") {
        assert_eq!(&record[name], value, "{name}");
    }
    let finalize = format!("{SLATES}/{}/finalize", record["id"].as_str().expect("an id"));
    let outcome = json!({"actual_input": "c", "displayed_index_at_submit": -1, "time_to_action_ms": 12.5,
        "result_block_number": 9, "submit_ts": 1_704_067_200.0});
    assert_eq!(service.post(&finalize, &outcome).await.expect(200), record);
    let plain = service.post(SLATES, &with(slate(&["a"]), &json!({"actual_input": "a"}))).await.expect(201);
    assert_eq!((&plain["viewed_indices"], &plain["displayed_index_at_submit"]), (&json!([0]), &json!(0)));
}

#[tokio::test]
async fn times_of_different_clocks_are_not_compared() {
    let service = Service::open().await;
    for (fetched, submitted, sent, expected) in [
        (Some(5_000.0), Some(5_001.5), None, json!(1500.0)),
        (Some(1_704_067_200.0), Some(1_704_067_200.2), None, json!(200.0)),
        (Some(5_000.0), Some(1_704_067_200.0), None, json!(null)),
        (Some(1_704_067_200.0), Some(5_000.0), None, json!(null)),
        (Some(5_001.0), Some(5_000.0), None, json!(null)),
        (None, Some(5_000.0), None, json!(null)),
        (Some(5_000.0), Some(5_001.0), Some(7.5), json!(7.5)),
    ] {
        let address = posted(&service, &["a"], json!({"fetch_end_ts": fetched})).await;
        let outcome = json!({"actual_input": "a", "submit_ts": submitted, "time_to_action_ms": sent});
        let record = service.post(&format!("{address}/finalize"), &outcome).await.expect(200);
        assert_eq!(record["time_to_action_ms"], expected, "{fetched:?} {submitted:?}");
    }
}

#[tokio::test]
async fn a_line_of_the_seeds_history_is_a_finished_record_with_an_id_of_its_bytes() {
    let service = Service::open().await;
    let record = service.post(SLATES, &line()).await.expect(201);
    assert_eq!(service.post(SLATES, &line()).await.expect(200), record);
    let batched = service.events(&[line()]).await.expect(200);
    assert_eq!(batched, json!({"accepted": 0, "duplicates": 1, "rejected": []}));
    let expected = json!({"state": "finalized", "session_name": "my-project", "server_name": "local",
        "trigger_block_number": 5, "result_block_number": 6, "context_block_count": 2, "total_tokens": 200,
        "viewed_indices": [0, 1, 0], "cycle_count": 2, "match_type": "exact", "accepted_index": 0,
        "created_at": "2024-01-01T00:00:00.123457Z", "time_to_action_ms": 1234.5});
    for (name, value) in expected.as_object().expect("an object") {
        assert_eq!(&record[name], value, "{name}");
    }
    assert_eq!(record["reported"]["ts"], 1_704_067_200.123_456_7);
}

#[tokio::test]
async fn what_a_line_reports_is_kept_beside_our_own_match() {
    let service = Service::open().await;
    let odd = with(
        line(),
        &json!({"session": "", "ts": 77.5, "viewed_indices": [0, 9, -1, 1], "displayed_index_at_submit": 8,
            "time_to_action_ms": -3.5, "match_type": "prefix", "accepted_index": 2}),
    );
    let record = service.post(SLATES, &odd).await.expect(201);
    let expected = json!({"session_name": "", "viewed_indices": [0, 1], "displayed_index_at_submit": 1,
        "time_to_action_ms": null, "match_type": "exact", "accepted_index": 0,
        "reported": {"ts": 77.5, "viewed_indices": [0, 9, -1, 1], "cycle_count": 2, "displayed_index_at_submit": 8,
            "accepted_index": 2, "match_type": "prefix", "time_to_action_ms": -3.5}});
    for (name, value) in expected.as_object().expect("an object") {
        assert_eq!(&record[name], value, "{name}");
    }
}

#[tokio::test]
async fn events_of_several_domains_go_in_one_batch_in_their_order() {
    let service = Service::open().await;
    let (log, record) = (Uuid::from_u128(1), Uuid::from_u128(2));
    let of = |event: &str, body: Value| with(body, &json!({"event": event, "suggestion_id": record}));
    let start = with(slate(&["a", "b"]), &json!({"event": "suggestion", "id": record}));
    let events = [
        of("view", json!({"index": 1})),
        start.clone(),
        json!({"event": "generation", "id": log, "user_intent": "x", "domain_name": "cbu"}),
        of("view", json!({"index": 1})),
        of("partial_inputs", json!({"inputs": [{"text": "b"}]})),
        of("suggestion_outcome", json!({"actual_input": "b"})),
        json!({"event": "generation_outcome", "generation_id": log, "success": false}),
        of("view", json!({"index": 0})),
        of("suggestion_amendment", json!({"result_block_number": 4})),
        start,
        of("suggestion_outcome", json!({"actual_input": "b"})),
        with(slate(&["a"]), &json!({"event": "suggestion", "suggestion_id": record})),
        json!({"event": "view", "index": 0}),
        with(line(), &json!({"generation_id": log})),
    ];
    let summary = service.events(&events).await.expect(200);
    assert_eq!((&summary["accepted"], &summary["duplicates"]), (&json!(7), &json!(2)), "{summary:#}");
    let rejected: Vec<_> = summary["rejected"]
        .as_array()
        .expect("rejected")
        .iter()
        .map(|line| json!([line["line"], line["status"], line["errors"][0]["pointer"]]))
        .collect();
    assert_eq!(
        json!(rejected),
        json!([
            [1, 404, null],
            [8, 409, null],
            [12, 422, "/suggestion_id"],
            [13, 422, "/suggestion_id"],
            [14, 422, "/generation_id"]
        ])
    );
    let stored = service.get(&format!("{SLATES}/{record}")).await.expect(200);
    assert_eq!(
        json!([stored["viewed_indices"], stored["match_type"], stored["result_block_number"]]),
        json!([[0, 1], "exact", 4])
    );
    assert_eq!(service.get(&format!("/v1/generations/{log}")).await.expect(200)["success"], false);
}

#[tokio::test]
async fn what_is_wrong_is_refused_by_its_name() {
    let service = Service::open().await;
    let address = posted(&service, &["a", "b"], json!({})).await;
    let (views, inputs, finalize) =
        (format!("{address}/views"), format!("{address}/partial-inputs"), format!("{address}/finalize"));
    let start = |more: Value| with(slate(&["a", "b"]), &more);
    for (path, body, pointers) in [
        (SLATES, json!({"suggestions": []}), &["/context"][..]),
        (SLATES, json!({"context": [], "suggestions": []}), &["/context"]),
        (SLATES, json!({"context": {}, "suggestions": [1]}), &["/suggestions/0"]),
        (SLATES, start(json!({"colour": 1})), &["/colour"]),
        (SLATES, start(json!({"session_name": ""})), &["/session_name"]),
        (SLATES, start(json!({"propensities": [0.5]})), &["/propensities"]),
        (SLATES, start(json!({"propensities": [0.0, 1.0]})), &["/propensities"]),
        (SLATES, start(json!({"propensities": [0.5, 1.5]})), &["/propensities"]),
        (
            SLATES,
            start(json!({"viewed_indices": [0], "cycle_count": 1})),
            &["/viewed_indices", "/cycle_count"],
        ),
        (SLATES, start(json!({"actual_input": "a", "viewed_indices": [0, 2]})), &["/viewed_indices/1"]),
        (
            SLATES,
            start(json!({"actual_input": "a", "displayed_index_at_submit": 2})),
            &["/displayed_index_at_submit"],
        ),
        (SLATES, start(json!({"actual_input": "a", "time_to_action_ms": -1})), &["/time_to_action_ms"]),
        (SLATES, with(line(), &json!({"colour": 1})), &["/colour"]),
        (SLATES, with(line(), &json!({"match_type": "near"})), &["/match_type"]),
        (&views, json!({}), &["/index"]),
        (&views, json!({"index": 0, "direction": "next"}), &["/index"]),
        (&views, json!({"index": -1}), &["/index"]),
        (&views, json!({"index": 2}), &["/index"]),
        (&views, json!({"views": []}), &["/views"]),
        (&views, json!({"views": [{"index": 0}, {"index": 2}]}), &["/views/1/index"]),
        (&views, json!({"views": [{"index": 0}, {}]}), &["/views/1/index"]),
        (&views, json!({"views": [{"index": 0}], "index": 1}), &["/index"]),
        (&inputs, json!({"inputs": []}), &["/inputs"]),
        (&inputs, json!({"inputs": [{"at": 1}]}), &["/inputs/0/text"]),
        (&finalize, json!({}), &["/actual_input"]),
        (
            &finalize,
            json!({"actual_input": "a", "displayed_index_at_submit": 2}),
            &["/displayed_index_at_submit"],
        ),
        (
            &finalize,
            json!({"actual_input": "a", "displayed_index_at_submit": -2}),
            &["/displayed_index_at_submit"],
        ),
    ] {
        service.post(path, &body).await.refused(422, pointers);
    }
    assert_eq!(service.get(&address).await.expect(200)["viewed_indices"], json!([0]));
    let missing = format!("{SLATES}/{}", Uuid::from_u128(404));
    for (path, body) in [("/views", json!({"index": 0})), ("/finalize", json!({"actual_input": "a"}))] {
        service.post(&format!("{missing}{path}"), &body).await.refused(404, &[]);
    }
    service.get(&missing).await.refused(404, &[]);
    service.get(&format!("{address}/block-metadata")).await.refused(409, &[]);
    service
        .call(Method::PATCH, &missing, &[], Some(&json!({"result_block_number": 1})))
        .await
        .refused(404, &[]);
}

#[tokio::test]
async fn lists_are_filtered_and_a_record_can_be_erased() {
    let service = Service::open().await;
    let one = posted(
        &service,
        &["a"],
        json!({"session_name": "s", "server_name": "x", "suggestion_node_version": "v1"}),
    )
    .await;
    let other = posted(&service, &["a"], json!({"session_name": "t", "suggestion_node_version": "v2"})).await;
    finalized(&service, &one, "a").await;
    let ids = |records: Vec<Value>| column(&records, "id");
    let (one_id, other_id) = (json!(one.rsplit('/').next()), json!(other.rsplit('/').next()));
    for (query, expected) in [
        ("", vec![other_id.clone(), one_id.clone()]),
        ("?state=pending", vec![other_id.clone()]),
        ("?match_type=exact", vec![one_id.clone()]),
        ("?session_name=t", vec![other_id]),
        ("?server_name=x&suggestion_node_version=v1", vec![one_id]),
        ("?match_type=none", vec![]),
    ] {
        assert_eq!(ids(service.all(&format!("{SLATES}{query}")).await), expected, "{query}");
    }
    assert_eq!(service.delete(&one).await.status, 204);
    service.get(&one).await.refused(404, &[]);
    service.delete(&one).await.refused(404, &[]);
    service.get(&format!("{SLATES}?match_type=near")).await.refused(422, &["/match_type"]);
}

#[tokio::test]
async fn of_an_empty_slate_nothing_is_viewed() {
    let service = Service::open().await;
    let address = posted(&service, &[], json!({})).await;
    let viewed = service.post(&format!("{address}/views"), &json!({"direction": "next"})).await.expect(201);
    assert_eq!((&viewed["viewed_indices"], &viewed["cycle_count"]), (&json!([]), &json!(0)));
    let record = finalized(&service, &address, "ls").await;
    assert_eq!(
        json!([
            record["viewed_indices"],
            record["cycle_count"],
            record["displayed_index_at_submit"],
            record["match_type"]
        ]),
        json!([[], 0, -1, "none"])
    );
}
