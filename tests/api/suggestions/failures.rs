//! Fetches that failed: what is kept of them, how they are found, and their figure.

use serde_json::{Value, json};
use uuid::Uuid;

use super::{SLATES, finalized, posted, slate};
use crate::support::program::Capture;
use crate::support::{Service, column, with};

fn failure(number: u128, error: &str) -> Value {
    with(slate(&[]), &json!({"id": Uuid::from_u128(number), "error": error, "llm_request": {"model": "m"}}))
}

#[tokio::test]
async fn a_fetch_that_failed_keeps_its_error_and_is_found_by_it() {
    let service = Service::open().await;
    let made = service.post(SLATES, &failure(1, "timed out after 30 s")).await.expect(201);
    assert_eq!(
        json!([made["state"], made["failed"], made["error"], made["viewed_indices"]]),
        json!(["pending", true, "timed out after 30 s", []])
    );
    let address = format!("{SLATES}/{}", Uuid::from_u128(1));
    assert_eq!(service.get(&address).await.expect(200), made);
    service.post(SLATES, &failure(1, "another")).await.refused(409, &[]);
    let worked = posted(&service, &["a"], json!({"error": ""})).await;
    assert_eq!(service.get(&worked).await.expect(200)["failed"], false);
    let ids = async |query: &str| column(&service.all(&format!("{SLATES}?failed={query}")).await, "id");
    assert_eq!(ids("true").await, [json!(Uuid::from_u128(1))]);
    assert_eq!(ids("false").await.len(), 1);
    assert_eq!(ids("1").await, ids("true").await);
    service.get(&format!("{SLATES}?failed=perhaps")).await.refused(422, &["/failed"]);
    let ended = finalized(&service, &address, "ls").await;
    assert_eq!(json!([ended["failed"], ended["match_type"]]), json!([true, "none"]));
}

#[tokio::test]
async fn the_figures_say_how_many_fetches_failed_whether_or_not_the_user_went_on() {
    let service = Service::open().await;
    for number in 1..=3 {
        service.post(SLATES, &failure(number, "timed out")).await.expect(201);
    }
    finalized(&service, &format!("{SLATES}/{}", Uuid::from_u128(1)), "ls").await;
    finalized(&service, &format!("{SLATES}/{}", Uuid::from_u128(2)), ":quit").await;
    for model in ["m", "n"] {
        posted(&service, &["a"], json!({"llm_request": {"model": model}, "actual_input": "a"})).await;
    }
    posted(&service, &["a"], json!({"llm_request": {"model": "pending"}})).await;
    let figures = service.get("/v1/analytics/suggestions?group_by=model").await.expect(200);
    let of = |figures: &Value| {
        json!([
            figures["group"],
            figures["fetches"],
            figures["failed"]["count"],
            figures["records"],
            figures["acceptance_rate"]
        ])
    };
    assert_eq!(of(&figures), json!([null, 5, 2, 3, 1.0]));
    let groups: Value = figures["groups"].as_array().expect("groups").iter().map(of).collect();
    assert_eq!(groups, json!([["m", 3, 2, 2, 1.0], ["n", 1, 0, 1, 1.0]]));
}

#[tokio::test]
async fn where_no_text_is_kept_it_is_still_known_that_a_fetch_failed() {
    let service = Service::keeping(Capture::Metadata).await;
    let made = service.post(SLATES, &failure(1, "needle")).await.expect(201);
    assert_eq!(json!([made["failed"], made["error"]]), json!([true, null]));
    assert!(!service.dump().await.contains("needle"));
}
