//! Lines of the seed's history file, taken as finished records.

use serde_json::json;

use super::{SLATES, line};
use crate::support::{Service, with};

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
