//! What the schema of a row and the profile of a data set say, of every data set and format.

use serde_json::{Value, json};
use uuid::Uuid;

use super::{CORRECTIONS, TRAINING, solved};
use crate::support::{Service, assert_close, failed, passed, with};

/// A service with rows of every data set, of which some have tools, earlier answers, reviews and propensities.
pub(super) async fn everything() -> Service {
    let service = Service::open().await;
    let sent = json!({"tools": [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}],
    "messages": [
        {"role": "system", "content": "Be brief."}, {"role": "user", "content": "Where?"},
        {"role": "assistant", "content": null, "tool_calls": [
            {"id": "1", "index": 0, "type": "function", "function": {"name": "look", "arguments": {"at": 1}}}]},
        {"role": "tool", "tool_call_id": "1", "content": "there"}, {"role": "user", "content": "So?"}]});
    let raw = json!({"prompt_text": sent.to_string(), "raw_response": "It is (y)."});
    let chain = [with(failed(1, "(x)", "Unknown verb"), &raw), with(passed(2, "(y)"), &raw)];
    let more = json!({"model_used": "m", "session_id": "s", "metadata": {"team": ["a"]}});
    service.accept(&[with(solved(1, "one", &chain), &more), solved(2, "two", &chain)]).await;
    let review = json!({"rating": "poor", "corrected_dsl": "(better)", "note": "Use better."});
    service.put(&format!("/v1/generations/{}/review", Uuid::from_u128(2)), &review).await.expect(200);
    let slate = |id: u128, more: &Value| {
        with(
            json!({"event": "suggestion", "id": Uuid::from_u128(id), "context": {"blocks": [{"input": "git add ."}]},
            "suggestions": ["ls", "git commit"], "viewed_indices": [0, 1], "actual_input": "git commit"}),
            more,
        )
    };
    let request = json!({"llm_request": sent, "llm_response": {"usage": {"total_tokens": 3}}});
    let logged = json!({"propensities": [0.8, 0.2], "policy_id": "p"});
    service.accept(&[slate(11, &request), slate(12, &logged)]).await;
    let search = json!({"id": Uuid::from_u128(21), "query": "login button", "best_score": 0.42, "result_count": 1,
        "results": [{"path": "Button.tsx", "score": 0.42}], "agent_session_id": "s", "root": "/src/app",
        "timestamp": 1_767_225_600});
    service.post("/v1/searches", &search).await.expect(201);
    let search = format!("/v1/searches/{}", Uuid::from_u128(21));
    let read = json!({"kind": "read", "path": "auth/LoginButton.tsx", "timestamp": 1_767_225_601});
    service.post(&format!("{search}/fallbacks"), &read).await.expect(201);
    service.post(&format!("{search}/resolve"), &json!({"timestamp": 1_767_225_630})).await.expect(200);
    for number in [31, 32] {
        let pair =
            json!({"id": Uuid::from_u128(number), "topic_id": "t", "user_text": "u", "assistant_text": "a"});
        service.post("/v1/pairs", &pair).await.expect(201);
    }
    for (number, content) in [
        (41, "AuthMiddleware refuses a JWT whose clock is ahead by more than 30 seconds."),
        (42, "The staging database is on port 5433."),
    ] {
        service
            .accept(&[json!({"event": "memory", "id": Uuid::from_u128(number), "content": content})])
            .await;
    }
    let asked = json!({"query": "How does AuthMiddleware verify a JWT on staging?"});
    service.post("/v1/conversations/s/queries", &asked).await.expect(201);
    service.post("/v1/conversations/s/suggest", &json!({"confidence_threshold": 0})).await.expect(200);
    for (number, verdict) in [(41, "used"), (42, "dismissed")] {
        let feedback = json!({"memory_id": Uuid::from_u128(number), "verdict": verdict});
        service.post("/v1/conversations/s/feedback", &feedback).await.expect(200);
    }
    service
}

/// The data sets with their formats of JSON, each with the parameters with which it has rows.
pub(super) async fn of_json(service: &Service) -> Vec<(String, String)> {
    let list = service.get("/v1/exports").await.expect(200);
    let sets = list["data"].as_array().expect("data").iter();
    let of = |set: &Value| {
        let name = set["dataset"].as_str().expect("a name").to_owned();
        let formats = set["formats"].as_array().expect("formats").clone();
        let names = formats.into_iter().map(|format| format.as_str().expect("a name").to_owned());
        let json = names.filter(|format| !["letor", "lightgbm-tsv"].contains(&format.as_str()));
        json.map(move |format| (name.clone(), format)).collect::<Vec<_>>()
    };
    sets.flat_map(of).collect()
}

#[tokio::test]
async fn every_row_of_every_format_is_as_its_schema_says() {
    let service = everything().await;
    for (dataset, format) in of_json(&service).await {
        let mut queries = vec![format!("format={format}"), format!("format={format}&include=metadata")];
        let chats = ["training-pairs", "correction-pairs"].contains(&dataset.as_str());
        if chats && !["raw", "pairs", "trl-stepwise"].contains(&format.as_str()) {
            queries.push(format!("format={format}&prompt=sent"));
        }
        if format == "openai" {
            queries.push("format=openai&weights=none".to_owned());
        }
        if dataset == "rankings" && format == "raw" {
            queries.push("format=raw&propensities=true".to_owned());
        }
        for query in queries {
            let schema = service.get(&format!("/v1/exports/{dataset}/schema?{query}")).await.expect(200);
            assert!(jsonschema::meta::is_valid(&schema), "{schema:#}");
            let validator = jsonschema::validator_for(&schema).expect("a schema");
            let rows = service.get(&format!("/v1/exports/{dataset}?{query}")).await.rows();
            assert!(!rows.is_empty(), "{dataset} {query}");
            for row in rows {
                let errors: Vec<_> = validator.iter_errors(&row).map(|error| error.to_string()).collect();
                assert!(errors.is_empty(), "{dataset} {query}: {errors:?}\n{row:#}\n{schema:#}");
            }
            // A schema that takes everything would say nothing.
            assert!(!validator.is_valid(&json!({})), "{dataset} {query}");
            assert_eq!(schema["additionalProperties"], false, "{dataset} {query}");
        }
    }
    service.get("/v1/exports/rankings/schema?format=letor").await.refused(422, &["/format"]);
    service.get(&format!("{TRAINING}/schema?format=csv")).await.refused(422, &["/format"]);
    service.get(&format!("{TRAINING}/schema?domain_name=cbu")).await.refused(422, &["/domain_name"]);
    service.get("/v1/exports/rumours/schema").await.refused(404, &[]);
}

#[tokio::test]
async fn a_profile_counts_repeated_texts_and_shares() {
    let service = Service::open().await;
    let log = |number: u128| {
        let (intent, program) = match number {
            0..6 => (format!("intent {number}"), "submit".to_owned()),
            6..8 => ("the same".to_owned(), "(same)".to_owned()),
            _ => (format!("intent {number}"), format!("(program {number})")),
        };
        let error = if number.is_multiple_of(2) { "Unknown verb" } else { "No such name" };
        let log = solved(number, &intent, &[failed(1, "(x)", error), passed(2, &program)]);
        with(log, &json!({"model_used": if number < 4 { json!("small") } else { Value::Null }}))
    };
    service.accept(&(0..10).map(log).collect::<Vec<_>>()).await;
    let profile = service.get(&format!("{TRAINING}/profile")).await.expect(200);
    let counts = ["rows", "profiled", "sampled", "repeated_prompts", "repeated_answers", "repeated_rows"];
    let found: Vec<_> = counts.iter().map(|name| profile[*name].clone()).collect();
    assert_eq!(found, [json!(10), json!(10), json!(false), json!(1), json!(6), json!(1)], "{profile:#}");
    assert_close(
        &profile["most_frequent_answers"],
        &json!([{"value": "submit", "rows": 6, "share": 0.6}, {"value": "(same)", "rows": 2, "share": 0.2}]),
    );
    assert_close(
        &profile["shares"]["model"],
        &json!([{"value": null, "rows": 6, "share": 0.6}, {"value": "small", "rows": 4, "share": 0.4}]),
    );
    assert_close(&profile["shares"]["domain"], &json!([{"value": "cbu", "rows": 10, "share": 1.0}]));
    assert_close(
        &profile["answer_characters"],
        &json!({"min": 6, "mean": 7.0, "p50": 6, "p90": 11, "p99": 11, "max": 11}),
    );
    assert_eq!(profile["candidates"], json!(null));
    let filtered =
        service.get(&format!("{CORRECTIONS}/profile?model_used=small&max_per_answer=3")).await.expect(200);
    assert_eq!((&filtered["rows"], &filtered["dataset"]), (&json!(3), &json!("correction-pairs")));
    assert_close(&filtered["shares"]["error_stage"], &json!([{"value": "lint", "rows": 3, "share": 1.0}]));
    service.get(&format!("{TRAINING}/profile?limit=3")).await.refused(422, &["/limit"]);
}

#[tokio::test]
async fn every_data_set_has_a_profile_also_where_it_has_no_rows() {
    for (service, has_rows) in [(everything().await, true), (Service::open().await, false)] {
        let list = service.get("/v1/exports").await.expect(200);
        for set in list["data"].as_array().expect("data") {
            let (name, formats) = (&set["dataset"], set["formats"].as_array().expect("formats"));
            for format in formats {
                let [name, format] = [name, format].map(|text| text.as_str().expect("a name"));
                let path = format!("/v1/exports/{name}/profile?format={format}");
                let profile = service.get(&path).await.expect(200);
                assert_eq!(profile["rows"] != 0, has_rows, "{path} {profile}");
                assert_eq!(profile["profiled"], profile["rows"], "{path}");
                assert_eq!(profile["row_bytes"].is_object(), has_rows, "{path}");
            }
        }
    }
}
