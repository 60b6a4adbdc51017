//! A slate from its start to its end, the same request again, lists, and a finished record in one step.

use axum::http::Method;
use serde_json::{Value, json};
use uuid::Uuid;

use super::{SLATES, finalized, line, posted, slate};
use crate::support::{Service, assert_whole, column, with};

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
    assert_whole!("a_pending_slate", record);
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
    assert_whole!("a_finalized_slate", done);
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
async fn a_finished_record_is_stored_in_one_step() {
    let service = Service::open().await;
    let body = with(
        slate(&["a", "b", "c"]),
        &json!({"actual_input": "c", "viewed_indices": [0, 2, 0], "displayed_index_at_submit": -1,
            "time_to_action_ms": 12.5, "result_block_number": 9, "fetch_end_ts": 3.0, "submit_ts": 1_704_067_200.0}),
    );
    let record = service.post(SLATES, &body).await.expect(201);
    assert_whole!("a_slate_finished_in_one_step", record);
    let finalize = format!("{SLATES}/{}/finalize", record["id"].as_str().expect("an id"));
    let outcome = json!({"actual_input": "c", "displayed_index_at_submit": -1, "time_to_action_ms": 12.5,
        "result_block_number": 9, "submit_ts": 1_704_067_200.0});
    assert_eq!(service.post(&finalize, &outcome).await.expect(200), record);
    let plain = service.post(SLATES, &with(slate(&["a"]), &json!({"actual_input": "a"}))).await.expect(201);
    assert_eq!((&plain["viewed_indices"], &plain["displayed_index_at_submit"]), (&json!([0]), &json!(0)));
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
