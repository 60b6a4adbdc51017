//! What people want, in conversations of several queries.

use serde::Deserialize;
use serde_json::json;

use crate::support::Service;

#[derive(Deserialize)]
struct Scenario {
    intent: String,
    queries: Vec<String>,
}

#[tokio::test]
async fn four_in_five_conversations_have_the_intent_that_a_person_would_say() {
    let service = Service::open().await;
    let scenarios: Vec<Scenario> =
        serde_json::from_str(include_str!("intent_scenarios.json")).expect("a list of scenarios");
    assert_eq!(scenarios.len(), 40);
    let mut wrong = Vec::new();
    for Scenario { intent, queries } in &scenarios {
        let detected =
            service.post("/v1/intents/detect", &json!({"recent_queries": queries})).await.expect(200);
        let confidence = detected["confidence"].as_f64().expect("a number");
        assert!(confidence > 0.2 && confidence <= 1.0, "{detected}");
        if detected["intent_type"] != intent.as_str() {
            wrong.push(format!("{queries:?} is {} and not {intent}", detected["intent_type"]));
        }
    }
    assert!(wrong.len() <= 8, "{wrong:#?}");
}
