//! Reviews of logs, and what they decide about exports and examples.

use serde_json::{Value, json};

use super::{append, finalize, intent, start};
use crate::support::{Service, column, passed, scrub, with};

#[tokio::test]
async fn a_review_may_come_before_or_after_the_end_and_decides_what_is_learned() {
    let service = Service::open().await;
    let review = async |log: &str, body: Value| service.put(&format!("{log}/review"), &body).await;
    let exported = async |query: &str| {
        let rows = service.get(&format!("/v1/exports/training-pairs?format=raw{query}")).await.rows();
        column(&rows, "valid_dsl")
    };
    let similar = async || {
        let found = service.get("/v1/generations/similar?intent=Create+a+fund").await.expect(200);
        column(found["data"].as_array().expect("data"), "valid_dsl")
    };
    let log = start(&service, intent("Create a fund")).await;
    let whole = json!({"rating": "good", "reviewer": "ann", "note": "n", "corrected_dsl": "(corrected)"});
    let reviewed = review(&log, whole.clone()).await.expect(200);
    let kept = with(whole, &json!({"reviewed_at": reviewed["review"]["reviewed_at"]}));
    assert_eq!(reviewed["review"], kept);
    assert!(reviewed["review"]["reviewed_at"].is_string());
    assert_eq!(exported("").await, Vec::<Value>::new());
    append(&service, &log, &passed(1, "(a)")).await.expect(201);
    let done = finalize(&service, &log, &json!({"success": true})).await.expect(200);
    assert_eq!((&done["review"], &done["final_valid_dsl"]), (&kept, &json!("(a)")));
    assert_eq!(exported("").await, ["(corrected)"]);
    assert_eq!(similar().await, ["(corrected)"]);

    let replaced = review(&log, json!({"rating": "poor"})).await.expect(200);
    assert_eq!(
        scrub(&replaced["review"]),
        json!({"rating": "poor", "reviewer": null, "note": null, "corrected_dsl": null, "reviewed_at": "time"})
    );
    assert_eq!(exported("").await, Vec::<Value>::new());
    assert_eq!(similar().await, Vec::<Value>::new());

    let corrected = json!({"rating": "poor", "corrected_dsl": "(c)"});
    review(&log, corrected).await.expect(200);
    assert_eq!(exported("").await, ["(c)"]);
    assert_eq!(exported("&min_rating=acceptable").await, Vec::<Value>::new());
    review(&log, json!({"rating": "acceptable"})).await.expect(200);
    assert_eq!(exported("&min_rating=acceptable").await, ["(a)"]);
    assert_eq!(exported("&min_rating=good").await, Vec::<Value>::new());
}

#[tokio::test]
async fn a_review_that_cannot_be_is_refused_by_its_fields() {
    let service = Service::open().await;
    let log = start(&service, intent("Create a fund")).await;
    for (body, pointers) in [
        (json!({}), vec!["/rating"]),
        (json!({"rating": "great"}), vec!["/rating"]),
        (json!({"rating": null}), vec!["/rating"]),
        (json!({"rating": "good", "corrected_dsl": ""}), vec!["/corrected_dsl"]),
        (json!({"rating": "good", "corrected_dsl": " \n"}), vec!["/corrected_dsl"]),
        (json!({"rating": "good", "reviewer": "x".repeat(201)}), vec!["/reviewer"]),
        (json!({"rating": "good", "stars": 5}), vec!["/stars"]),
    ] {
        service.put(&format!("{log}/review"), &body).await.refused(422, &pointers);
    }
}
