//! Predictions: the boundary, the sizes, the refusals.

use serde_json::{Value, json};

use super::{model, pair, service};
use crate::support::{Service, assert_whole, column, with};

fn given(id: &str, tokens: usize) -> Value {
    json!({"id": id, "user_text": "u".repeat(2 * tokens), "assistant_text": "a".repeat(2 * tokens)})
}

async fn predict(service: &Service, more: &Value) -> Value {
    let settings = json!({"settings": {"chars_per_token": 4}, "model_limit": 400});
    service.post("/v1/context/predict", &with(settings, more)).await.expect(200)
}

#[tokio::test]
async fn the_newest_pairs_that_fit_beside_the_allowance_are_included() {
    let service = Service::open().await;
    let pairs = [given("a", 10), given("b", 200), given("c", 100)];
    let predicted = predict(&service, &json!({"pairs": pairs, "user_text": "12345678"})).await;
    assert_whole!("a_prediction", predicted);
    // One token more, and the boundary moves.
    let pairs = [given("a", 10), given("b", 200), given("c", 101)];
    assert_eq!(predict(&service, &json!({"pairs": pairs})).await["included"], json!(["c"]));
    let with_system =
        json!({"pairs": [given("a", 10), given("b", 200), given("c", 90)], "system": "s".repeat(40)});
    assert_eq!(predict(&service, &with_system).await["counter"], "2 / 3");
    assert_eq!(predict(&service, &json!({})).await["counter"], "0 / 0");
}

#[tokio::test]
async fn the_boundary_does_not_depend_on_the_new_message_and_preflight_only_changes_the_messages() {
    let service = Service::open().await;
    let pairs = [given("a", 100), given("b", 100), given("c", 100)];
    let ask = |preflight: bool| {
        json!({"pairs": pairs, "user_text": "x".repeat(4 * 250),
            "settings": {"chars_per_token": 4, "preflight_trim": preflight}})
    };
    let (plain, trimmed) = (predict(&service, &ask(false)).await, predict(&service, &ask(true)).await);
    assert_eq!(plain["included"], json!(["a", "b", "c"]));
    assert_eq!(plain["remaining_reserve"], -150);
    assert_eq!(plain["messages"].as_array().map(Vec::len), Some(7));
    assert_eq!(trimmed["included"], plain["included"]);
    assert_eq!(trimmed["preflight_count"], 2);
    assert_eq!(trimmed["messages"].as_array().map(Vec::len), Some(3));
}

#[tokio::test]
async fn a_message_of_the_whole_limit_fits_and_one_token_more_is_refused() {
    let service = Service::open().await;
    let ask = |tokens: usize| json!({"model_limit": 400, "user_text": "x".repeat(4 * tokens), "settings": {"chars_per_token": 4}});
    service.post("/v1/context/predict", &ask(400)).await.expect(200);
    let problem = service.post("/v1/context/predict", &ask(401)).await.refused(422, &["/user_text"]);
    assert_eq!(problem["type"], "/problems/user-prompt-too-large");
    assert_eq!((&problem["aut"], &problem["max_context"]), (&json!(401), &json!(400)));
}

#[tokio::test]
async fn measured_sizes_go_before_estimates_and_teach_the_others() {
    let service = Service::open().await;
    let text = "some words of a chat ".repeat(40);
    let pair = |id: &str, tokens: Value| json!({"id": id, "user_text": text, "assistant_text": text, "tokens": tokens});
    let ask =
        |tokens: Value| json!({"pairs": [pair("a", tokens), pair("b", Value::Null)], "model_limit": 100_000});
    let sizes = async |tokens: Value| {
        let answer = service.post("/v1/context/predict", &ask(tokens)).await.expect(200);
        answer["included_tokens"]
            .as_array()
            .expect("sizes")
            .iter()
            .map(|size| size.as_i64().expect("a size"))
            .collect::<Vec<_>>()
    };
    let estimated = sizes(Value::Null).await;
    assert_eq!(estimated[0], estimated[1]);
    let taught = sizes(json!(estimated[0] * 2)).await;
    assert_eq!(taught[0], estimated[0] * 2);
    assert!(taught[1] > estimated[1] && taught[1] < taught[0], "{taught:?}");
}

#[tokio::test]
async fn stored_pairs_are_named_or_found_and_blank_texts_make_no_message() {
    let service = service().await;
    let blank = json!({"user_text": " ", "assistant_text": "answer", "model": "m", "topic_id": "t"});
    let first = service.create("/v1/pairs", blank).await;
    let idle = json!({"user_text": "alone", "model": "m", "star": 2});
    let second = service.create("/v1/pairs", idle).await;
    let by = |visible: Value| json!({"visible": visible, "model": "m", "user_text": "\n"});
    let roles = |answer: &Value| column(answer["messages"].as_array().expect("messages"), "content");
    let named = service.post("/v1/context/predict", &by(json!({"ids": [second, first]}))).await.expect(200);
    assert_eq!(named["included"], json!([second, first]));
    assert_eq!(roles(&named), ["alone", "answer"]);
    let found = service.post("/v1/context/predict", &by(json!({"filter": {}}))).await.expect(200);
    assert_eq!(roles(&found), ["answer", "alone"]);
    let filter =
        json!({"filter": {"not": {"topic_id": ["t", "x"]}, "min_star": 1, "state": "idle", "q": "LON"}});
    let found = service.post("/v1/context/predict", &by(filter)).await.expect(200);
    assert_eq!(found["included"], json!([second]));
}

#[tokio::test]
async fn what_cannot_be_predicted_is_refused_by_its_name() {
    let service = service().await;
    let id = service.create("/v1/pairs", pair(1)).await;
    let unknown = "00000000-0000-0000-0000-000000000009";
    for (ask, pointers) in [
        (json!({}), vec!["/model"]),
        (json!({"model": "unknown"}), vec![]),
        (json!({"model": "m", "model_limit": 1}), vec!["/model_limit"]),
        (json!({"model": "m", "visible": {"ids": [id, unknown]}}), vec!["/visible/ids/1"]),
        (json!({"model": "m", "visible": {"ids": [id, id]}}), vec!["/visible/ids/1"]),
        (json!({"model": "m", "visible": {}}), vec!["/visible/ids"]),
        (json!({"model": "m", "visible": {"ids": []}, "pairs": []}), vec!["/visible"]),
        (json!({"model": "m", "pairs": [given("a", 1), given("a", 1)]}), vec!["/pairs/1/id"]),
        (json!({"model": "m", "settings": {"max_trim_attempts": -1}}), vec!["/settings/max_trim_attempts"]),
    ] {
        service.post("/v1/context/predict", &ask).await.refused(422, &pointers);
    }
}

#[tokio::test]
async fn a_models_limit_is_the_smaller_of_its_window_and_its_tokens_per_minute() {
    let service = Service::open().await;
    model(&service, "org%2Fsmall", &json!({"context_window": 1_000, "tpm": 300})).await;
    let predicted = service.post("/v1/context/predict", &json!({"model": "org/small"})).await.expect(200);
    assert_eq!(predicted["max_context"], 300);
    assert_whole!("models", service.get("/v1/models").await.expect(200));
}
