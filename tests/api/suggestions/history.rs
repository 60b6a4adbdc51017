//! Lines of the seed's history file, taken as finished records.

use serde_json::json;

use super::{SLATES, line};
use crate::support::{Service, assert_whole, with};

#[tokio::test]
async fn a_line_of_the_seeds_history_is_a_finished_record_with_an_id_of_its_bytes() {
    let service = Service::open().await;
    let record = service.post(SLATES, &line()).await.expect(201);
    assert_eq!(service.post(SLATES, &line()).await.expect(200), record);
    let batched = service.events(&[line()]).await.expect(200);
    assert_eq!(batched, json!({"accepted": 0, "duplicates": 1, "rejected": []}));
    assert_whole!("a_line_of_history", record);
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
    assert_whole!("a_line_that_reports_another_match", record);
}

#[tokio::test]
async fn a_line_has_at_most_a_thousand_suggestions_and_views_as_a_record_has() {
    let service = Service::open().await;
    let most = json!({"suggestions": vec![""; 1_000], "viewed_indices": vec![0; 1_000]});
    service.post(SLATES, &with(line(), &most)).await.expect(201);
    let record = with(json!({"context": {}, "actual_input": "x"}), &most);
    service.post(SLATES, &record).await.expect(201);
    for start in [line(), record] {
        let slate = with(start.clone(), &json!({"suggestions": vec![""; 1_001]}));
        service.post(SLATES, &slate).await.refused(422, &["/suggestions"]);
        let views = with(start, &json!({"viewed_indices": vec![0; 1_001]}));
        service.post(SLATES, &views).await.refused(422, &["/viewed_indices"]);
        let lines = service.events(&[with(views, &json!({"event": "suggestion"}))]).await.expect(200);
        assert_eq!(lines["rejected"][0]["errors"][0]["pointer"], "/viewed_indices", "{lines}");
    }
}
