//! The outcome of a slate: the match, commands that discard it, and times.

use axum::http::Method;
use serde_json::json;
use uuid::Uuid;

use super::{SLATES, finalized, posted};
use crate::support::{Service, with};

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
