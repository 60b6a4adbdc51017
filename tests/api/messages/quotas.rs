//! Quotas: a send that would break one is refused beforehand, with the time to wait.

use serde_json::json;

use super::model;
use crate::support::Service;

#[tokio::test]
async fn a_send_that_would_break_a_quota_says_so_before_any_call() {
    let service = Service::open().await;
    model(
        &service,
        "q",
        &json!({"context_window": 1_000, "rpm": 1, "tpm": 5_000, "tpd": 400, "chars_per_token": 1}),
    )
    .await;
    let send = |text: usize, ignore: bool| json!({"mode": "record", "model": "q", "user_text": "x".repeat(text), "settings": {"ignore_quota": ignore}});
    let first = service.post("/v1/sends", &send(100, false)).await.expect(201);
    assert_eq!(first["quota"]["rpm"], json!({"limit": 1, "used": 0, "resets_in_s": 0}));
    let address = format!("/v1/sends/{}", first["id"].as_str().expect("an id"));
    let answer = json!({"assistant_text": "y", "usage": {"prompt_tokens": 150, "completion_tokens": 50}});
    service.post(&format!("{address}/finalize"), &answer).await.expect(200);

    let refused = service.post("/v1/sends", &send(1, false)).await;
    let wait: i64 = refused.header("retry-after").expect("a wait").parse().expect("seconds");
    assert!((50..=60).contains(&wait), "{wait}");
    let problem = refused.refused(429, &[]);
    assert_eq!(problem["type"], "/problems/quota");
    assert_eq!(problem["quota"]["tpd"]["used"], 200);
    let ignored = service.post("/v1/sends", &send(201, true)).await.expect(201);
    assert_eq!(ignored["quota"]["tpm"]["used"], 200);
    assert_eq!(service.all("/v1/sends").await.len(), 2);
    let figures = service.get("/v1/analytics/messages").await.expect(200);
    assert_eq!(figures["data"][0]["quota"]["rpm"]["used"], 1);
}
