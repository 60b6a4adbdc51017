//! What is wrong with a suggestion record is refused by its name.

use axum::http::Method;
use serde_json::{Value, json};
use uuid::Uuid;

use super::{SLATES, line, posted, slate};
use crate::support::{Service, with};

#[tokio::test]
async fn what_is_wrong_is_refused_by_its_name() {
    let service = Service::open().await;
    let start = |more: Value| with(slate(&["a", "b"]), &more);
    for (path, body, pointers) in [
        (SLATES, json!({"suggestions": []}), &["/context"][..]),
        (SLATES, json!({"context": [], "suggestions": []}), &["/context"]),
        (SLATES, json!({"context": {}, "suggestions": [1]}), &["/suggestions/0"]),
        (SLATES, json!({"context": {}, "suggestions": vec!["a"; 1_001]}), &["/suggestions"]),
        (SLATES, start(json!({"colour": 1})), &["/colour"]),
        (SLATES, start(json!({"session_name": "x".repeat(201)})), &["/session_name"]),
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
    ] {
        service.post(path, &body).await.refused(422, pointers);
    }
}

#[tokio::test]
async fn views_inputs_and_outcomes_that_cannot_be_are_refused_by_their_fields() {
    let service = Service::open().await;
    let address = posted(&service, &["a", "b"], json!({})).await;
    let (views, inputs, finalize) =
        (format!("{address}/views"), format!("{address}/partial-inputs"), format!("{address}/finalize"));
    for (path, body, pointers) in [
        (&views, json!({}), &["/index"][..]),
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
    service.get(&format!("{address}/block-metadata")).await.refused(409, &[]);
}

#[tokio::test]
async fn what_happens_to_a_slate_that_never_was_is_not_found() {
    let service = Service::open().await;
    let missing = format!("{SLATES}/{}", Uuid::from_u128(404));
    for (path, body) in [("/views", json!({"index": 0})), ("/finalize", json!({"actual_input": "a"}))] {
        service.post(&format!("{missing}{path}"), &body).await.refused(404, &[]);
    }
    service.get(&missing).await.refused(404, &[]);
    service
        .call(Method::PATCH, &missing, &[], Some(&json!({"result_block_number": 1})))
        .await
        .refused(404, &[]);
}
