//! Characters that Postgres cannot keep are replaced and counted, wherever they come.

use axum::body::Body;
use axum::http::{Method, header};
use serde_json::{Value, json};
use uuid::Uuid;

use super::{LOGS, log};
use crate::support::{Service, request, with};

const NUL: &str = r"\u0000";

const LONE: &str = r"\ud83d";

const REPLACED: &str = "a\u{fffd}b\u{fffd}";

/// A body in which every text `MARK` holds a NUL and a lone surrogate, and how many of them there are in all.
fn marked(body: &Value) -> (String, usize) {
    let text = body.to_string();
    let count = 2 * text.matches("MARK").count();
    (text.replace("MARK", &format!("a{NUL}b{LONE}")), count)
}

/// The same with what is kept of it.
fn kept(body: &Value) -> Value {
    serde_json::from_str(&body.to_string().replace("MARK", REPLACED)).expect("JSON")
}

async fn send_marked(service: &Service, method: Method, path: &str, body: &Value) -> Value {
    let (text, count) = marked(body);
    let request = request(method, path).header(header::CONTENT_TYPE, "application/json");
    let answer = service.send(request.body(Body::from(text)).expect("a request")).await;
    assert!(answer.status.is_success(), "{path}: {}", answer.text());
    assert_eq!(answer.header("gleaner-replaced"), Some(count.to_string().as_str()), "{path}");
    answer.json()
}

fn marked_attempt() -> Value {
    json!({"prompt_template": "MARK", "prompt_text": "MARK", "raw_response": "MARK", "extracted_dsl": "MARK",
        "parse_result": {"success": true, "error": "MARK"},
        "lint_result": {"valid": true, "errors": ["MARK"], "warnings": ["x", "MARK"]},
        "compile_result": {"success": true, "error": "MARK"}, "metadata": {"MARK": ["MARK", {"k": "MARK"}]}})
}

#[track_caller]
fn assert_holds(value: &Value, expected: &Value) {
    for (name, expected) in expected.as_object().expect("an object") {
        match (&value[name], expected) {
            (value @ Value::Object(_), Value::Object(_)) => assert_holds(value, expected),
            (value, expected) => assert_eq!(value, expected, "{name}"),
        }
    }
}

#[tokio::test]
async fn characters_that_cannot_be_kept_are_replaced_and_counted_in_every_text_of_every_body() {
    let service = Service::open().await;
    let start = json!({"user_intent": "MARK", "domain_name": "MARK", "session_id": "MARK", "cbu_id": "MARK",
        "model_used": "MARK", "metadata": {"MARK": "MARK"}});
    let finished =
        with(start.clone(), &json!({"success": true, "instance_id": "MARK", "final_valid_dsl": "MARK"}));
    let with_attempt = with(finished.clone(), &json!({"iterations": [marked_attempt()]}));
    let answered = send_marked(&service, Method::POST, LOGS, &with_attempt).await;
    assert_holds(&answered, &kept(&finished));
    assert_holds(&answered["iterations"][0], &kept(&marked_attempt()));

    let log = send_marked(&service, Method::POST, LOGS, &start).await;
    assert_holds(&log, &kept(&start));
    let path = format!("{LOGS}/{}", log["id"].as_str().expect("an id"));
    let attempt = send_marked(&service, Method::POST, &format!("{path}/attempts"), &marked_attempt()).await;
    assert_holds(&attempt, &kept(&marked_attempt()));
    let numbered = with(marked_attempt(), &json!({"attempt": 1}));
    let again = send_marked(&service, Method::POST, &format!("{path}/attempts"), &numbered).await;
    assert_eq!(again, attempt);
    let outcome = json!({"success": true, "final_valid_dsl": "MARK", "instance_id": "MARK", "error": "MARK"});
    let done = send_marked(&service, Method::POST, &format!("{path}/finalize"), &outcome).await;
    assert_holds(&done, &kept(&outcome));
    let review = json!({"rating": "good", "reviewer": "MARK", "note": "MARK", "corrected_dsl": "MARK"});
    let reviewed = send_marked(&service, Method::PUT, &format!("{path}/review"), &review).await;
    assert_holds(&reviewed["review"], &kept(&review));

    let template = json!({"template_text": "MARK", "domain_name": "MARK", "description": "MARK"});
    let made = send_marked(&service, Method::PUT, "/v1/prompt-templates/t", &template).await;
    assert_holds(&made, &kept(&template));
    let settings = json!({"redact": {"custom": [{"name": "x", "regex": "MARK"}]}});
    send_marked(&service, Method::PUT, "/v1/projects/p", &settings).await;
    let key = json!({"name": "MARK", "scopes": ["operator"]});
    let made = send_marked(&service, Method::POST, "/v1/keys", &key).await;
    assert_holds(&made, &kept(&key));
}

#[tokio::test]
async fn characters_that_cannot_be_kept_are_replaced_and_counted_in_batches() {
    let service = Service::open().await;
    let id = Uuid::new_v4();
    let of = |event: &str| json!({"event": event, "generation_id": id});
    let start = json!({"user_intent": "MARK", "domain_name": "MARK", "session_id": "MARK", "metadata": {"MARK": "MARK"}});
    let outcome = json!({"success": false, "error": "MARK"});
    let review = json!({"rating": "good", "note": "MARK"});
    let events = [
        with(start.clone(), &json!({"event": "generation", "id": id})),
        with(with(marked_attempt(), &json!({"attempt": 1})), &of("attempt")),
        with(outcome.clone(), &of("generation_outcome")),
        with(review.clone(), &of("review")),
    ];
    let lines: Vec<_> = events.iter().map(|event| marked(event).0).collect();
    let total: usize = events.iter().map(|event| marked(event).1).sum();
    let as_lines = (lines.join("\n"), "application/x-ndjson");
    let as_array = (format!("[{}]", lines.join(",")), "application/json");
    for ((body, media_type), expected) in [(as_lines, (4, 0)), (as_array, (1, 3))] {
        let answer = service.post_text("/v1/events", media_type, body).await;
        assert_eq!(answer.header("gleaner-replaced"), Some(total.to_string().as_str()));
        let summary = answer.expect(200);
        assert_eq!(
            (&summary["accepted"], &summary["duplicates"]),
            (&json!(expected.0), &json!(expected.1)),
            "{summary}"
        );
    }
    let log = service.get(&format!("{LOGS}/{id}")).await.expect(200);
    assert_holds(&log, &kept(&start));
    assert_holds(&log, &kept(&outcome));
    assert_holds(&log["review"], &kept(&review));
    assert_holds(&log["iterations"][0], &kept(&marked_attempt()));
}

#[tokio::test]
async fn characters_that_cannot_be_kept_are_replaced_and_counted_in_paths_and_queries() {
    let service = Service::open().await;
    let body = json!({"template_text": "x", "domain_name": "d"});
    let made = service.put("/v1/prompt-templates/a%00b%00", &body).await;
    assert_eq!(made.header("gleaner-replaced"), Some("2"));
    assert_eq!(made.expect(201)["template_id"], REPLACED);
    let log = with(log("a b"), &json!({"session_id": REPLACED, "success": true, "final_valid_dsl": "y"}));
    service.create(LOGS, log).await;
    for (path, status) in [
        ("/v1/prompt-templates/a%00b%00", 200),
        ("/v1/prompt-templates/a%EF%BF%BDb%00?version=1", 200),
        ("/v1/prompt-templates?domain_name=a%00", 200),
        ("/v1/generations?domain_name=%00", 200),
        ("/v1/generations?model_used=%00", 200),
        ("/v1/generations?prompt_template=%00", 200),
        ("/v1/generations?session_id=a%00b%00", 200),
        ("/v1/generations?q=%00", 200),
        ("/v1/generations?cursor=%00", 422),
        ("/v1/generations?since=%00", 422),
        ("/v1/generations/%00", 422),
        ("/v1/generations/similar?intent=%00&domain_name=%00&model_used=%00", 200),
        ("/v1/analytics/prompts?domain_name=%00", 200),
        ("/v1/analytics/prompts/compare?a=%00&b=x%00", 404),
        ("/v1/exports/training-pairs?domain_name=%00&model_used=%00&system=%00", 200),
        ("/v1/exports/correction-pairs?domain_name=%00&model_used=%00", 200),
        ("/v1/exports/training-pairs?format=%00", 422),
        ("/v1/projects/%00", 422),
        ("/v1/sessions?cursor=%00", 422),
    ] {
        let answer = service.get(path).await;
        assert_eq!(answer.status, status, "{path}: {}", answer.text());
        let expected = path.matches("%00").count().to_string();
        assert_eq!(answer.header("gleaner-replaced"), Some(expected.as_str()), "{path}");
    }
    let found = service.get("/v1/generations?session_id=a%00b%00").await.expect(200);
    assert_eq!(found["data"][0]["session_id"], REPLACED);
    let exported = service.get("/v1/exports/training-pairs?system=%00").await.rows();
    assert_eq!(exported[0]["messages"][0]["content"], "\u{fffd}");
    let erased = service.delete("/v1/sessions/a%00b%00").await;
    assert_eq!(erased.header("gleaner-replaced"), Some("2"));
    assert_eq!(erased.expect(200)["generations"], 1);
    let put = service.put("/v1/projects/%00", &json!({})).await;
    put.refused(422, &["/project"]);
    let deprecated = service.post("/v1/prompt-templates/a%00b%00/deprecate", &json!({})).await;
    assert_eq!(deprecated.expect(200)["template_id"], REPLACED);
}

#[tokio::test]
async fn nothing_is_said_of_replacements_where_there_are_none() {
    let service = Service::open().await;
    let body = r#"{"user_intent": "a\\u0000 \ud83d\ude00 \ufffd", "domain_name": "d"}"#;
    let answer = service.post_text(LOGS, "application/json", body).await;
    assert_eq!(answer.header("gleaner-replaced"), None);
    assert_eq!(answer.expect(201)["user_intent"], "a\\u0000 😀 \u{fffd}");
}
