//! Bad input: whatever is sent, the answer is a problem that names the field, never a 500, and nothing good is lost.

use std::io::Write as _;

use axum::body::Body;
use axum::http::{Method, header};
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::support::{Answer, Service, failed, passed, request, with};

const LOGS: &str = "/v1/generations";

fn log(intent: &str) -> Value {
    json!({"user_intent": intent, "domain_name": "cbu"})
}

fn line(intent: &str) -> Value {
    with(log(intent), &json!({"event": "generation"}))
}

async fn open_log(service: &Service) -> String {
    format!("{LOGS}/{}", service.create(LOGS, log("Create a fund")).await)
}

async fn count(service: &Service) -> i64 {
    let sql = "select count(*) from generations";
    sqlx::query_scalar(sql).fetch_one(&mut service.connection().await).await.expect("a count")
}

fn gzip(text: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(text).expect("packs");
    encoder.finish().expect("packs")
}

async fn post_encoded(
    service: &Service,
    path: &str,
    media_type: &str,
    encoding: &str,
    body: Vec<u8>,
) -> Answer {
    let request = request(Method::POST, path)
        .header(header::CONTENT_TYPE, media_type)
        .header(header::CONTENT_ENCODING, encoding);
    service.send(request.body(Body::from(body)).expect("a request")).await
}

#[tokio::test]
async fn a_log_of_wrong_types_or_values_is_refused_by_the_fields_names() {
    let service = Service::open().await;
    let long = "é".repeat(51);
    let longer = "é".repeat(201);
    for (more, pointers) in [
        (json!({"user_intent": 5}), vec!["/user_intent"]),
        (json!({"user_intent": null}), vec!["/user_intent"]),
        (json!({"user_intent": ""}), vec!["/user_intent"]),
        (json!({"domain_name": ["cbu"]}), vec!["/domain_name"]),
        (json!({"domain_name": long}), vec!["/domain_name"]),
        (json!({"session_id": {}}), vec!["/session_id"]),
        (json!({"session_id": ""}), vec!["/session_id"]),
        (
            json!({"session_id": longer, "cbu_id": longer, "instance_id": longer, "model_used": longer, "domain_name": ""}),
            vec!["/domain_name", "/session_id", "/cbu_id", "/model_used", "/instance_id"],
        ),
        (json!({"metadata": []}), vec!["/metadata"]),
        (json!({"metadata": "text"}), vec!["/metadata"]),
        (json!({"created_at": "yesterday"}), vec!["/created_at"]),
        (json!({"created_at": "10000-01-01T00:00:00Z"}), vec!["/created_at"]),
        (json!({"created_at": 1e300}), vec!["/created_at"]),
        (json!({"created_at": i64::MAX}), vec!["/created_at"]),
        (json!({"created_at": -1e14}), vec!["/created_at"]),
        (json!({"id": "7"}), vec!["/id"]),
        (json!({"id": 7}), vec!["/id"]),
        (json!({"success": "yes"}), vec!["/success"]),
        (json!({"success": 1}), vec!["/success"]),
        (json!({"colour": "red"}), vec!["/colour"]),
        (json!({"a/b~c": "red"}), vec!["/a~1b~0c"]),
        (json!({"event": "generation"}), vec!["/event"]),
        (json!({"iterations": "none"}), vec!["/iterations"]),
        (json!({"iterations": [5]}), vec!["/iterations/0"]),
        (json!({"iterations": [{}, {"attempt": "one"}]}), vec!["/iterations/1/attempt"]),
        (
            json!({"iterations": [{}, {"attempt": 0, "latency_ms": -1}]}),
            vec!["/iterations/1/attempt", "/iterations/1/latency_ms"],
        ),
        (json!({"iterations": [{"colour": 1}]}), vec!["/iterations/0/colour"]),
        (
            json!({"iterations": [{"lint_result": {"valid": true, "errors": [1]}}]}),
            vec!["/iterations/0/lint_result/errors/0"],
        ),
        (json!({"iterations": [{"lint_result": {"errors": []}}]}), vec!["/iterations/0/lint_result/valid"]),
    ] {
        let refused = service.post(LOGS, &with(log("Create a fund"), &more)).await;
        let problem = refused.refused(422, &pointers);
        let detail = problem["detail"].as_str().expect("a text");
        assert!(pointers.iter().all(|pointer| detail.contains(pointer)), "{problem}");
    }
    for (body, pointer) in [(r#"{"user_intent": "x"}"#, "/domain_name"), ("{}", "/user_intent")] {
        let refused = service.post_text(LOGS, "application/json", body).await;
        refused.refused(422, &[pointer]);
    }
    for body in ["5", "null", "true", "\"text\"", "[]", "[1, 2]"] {
        let refused = service.post_text(LOGS, "application/json", body).await;
        refused.refused(422, &[""]);
    }
    assert_eq!(count(&service).await, 0);
}

#[tokio::test]
async fn an_attempt_of_wrong_types_or_values_is_refused_by_the_fields_names() {
    let service = Service::open().await;
    let path = format!("{}/attempts", open_log(&service).await);
    for (body, pointers) in [
        (json!({"attempt": 0}), vec!["/attempt"]),
        (json!({"attempt": -1}), vec!["/attempt"]),
        (json!({"attempt": 2_147_483_648_i64}), vec!["/attempt"]),
        (json!({"attempt": -2_147_483_649_i64}), vec!["/attempt"]),
        (json!({"attempt": 1.5}), vec!["/attempt"]),
        (json!({"attempt": "1"}), vec!["/attempt"]),
        (json!({"attempt": true}), vec!["/attempt"]),
        (
            json!({"latency_ms": -1, "input_tokens": -1, "output_tokens": -1, "prompt_template_version": -1}),
            vec!["/prompt_template_version", "/latency_ms", "/input_tokens", "/output_tokens"],
        ),
        (json!({"latency_ms": 1e10}), vec!["/latency_ms"]),
        (json!({"prompt_template": ""}), vec!["/prompt_template"]),
        (json!({"prompt_template": "x".repeat(201)}), vec!["/prompt_template"]),
        (json!({"prompt_text": 1}), vec!["/prompt_text"]),
        (json!({"parse_result": true}), vec!["/parse_result"]),
        (json!({"parse_result": {"success": null}}), vec!["/parse_result/success"]),
        (json!({"parse_result": {"success": true, "warnings": []}}), vec!["/parse_result/warnings"]),
        (
            json!({"compile_result": {"success": true, "step_count": 2_147_483_648_i64}}),
            vec!["/compile_result/step_count"],
        ),
        (json!({"timestamp": {}}), vec!["/timestamp"]),
        (json!({"metadata": 5}), vec!["/metadata"]),
        (json!({"generation_id": Uuid::nil()}), vec!["/generation_id"]),
    ] {
        service.post(&path, &body).await.refused(422, &pointers);
    }
    service.post("/v1/generations/7/attempts", &json!({})).await.refused(422, &["/id"]);
}

#[tokio::test]
async fn numbers_end_so_early_that_there_is_always_a_next_one() {
    let service = Service::open().await;
    let path = format!("{}/attempts", open_log(&service).await);
    for number in [i32::MAX, 1_000_000_001] {
        service.post(&path, &json!({"attempt": number})).await.refused(422, &["/attempt"]);
    }
    for (body, number) in [(json!({"attempt": 1_000_000_000}), 1_000_000_000), (json!({}), 1_000_000_001)] {
        let made = service.post(&path, &body).await.expect(201);
        assert_eq!(made["attempt"], number);
    }
}

#[tokio::test]
async fn bodies_of_other_endpoints_are_refused_by_the_fields_names_too() {
    let service = Service::open().await;
    let log = open_log(&service).await;
    for (method, path, body, pointers) in [
        (Method::POST, format!("{log}/finalize"), json!({}), vec!["/success"]),
        (Method::POST, format!("{log}/finalize"), json!({"success": null}), vec!["/success"]),
        (Method::POST, format!("{log}/finalize"), json!({"success": true, "colour": 1}), vec!["/colour"]),
        (
            Method::POST,
            format!("{log}/finalize"),
            json!({"success": false, "instance_id": ""}),
            vec!["/instance_id"],
        ),
        (Method::PUT, format!("{log}/review"), json!({"rating": 5}), vec!["/rating"]),
        (
            Method::PUT,
            "/v1/prompt-templates/t".to_owned(),
            json!({"template_text": 1, "domain_name": "d"}),
            vec!["/template_text"],
        ),
        (Method::POST, "/v1/keys".to_owned(), json!({"name": "k"}), vec!["/scopes"]),
        (Method::POST, "/v1/keys".to_owned(), json!({"name": "", "scopes": []}), vec!["/name", "/scopes"]),
        (Method::POST, "/v1/keys".to_owned(), json!({"name": "k", "scopes": ["root"]}), vec!["/scopes/0"]),
        (
            Method::POST,
            "/v1/keys".to_owned(),
            json!({"name": "k", "scopes": ["read"], "project": "none"}),
            vec!["/project"],
        ),
        (Method::PUT, "/v1/projects/a%20b".to_owned(), json!({}), vec!["/project"]),
        (Method::PUT, "/v1/projects/p".to_owned(), json!({"colour": 1}), vec!["/colour"]),
    ] {
        let answer = service.call(method, &path, &[], Some(&body)).await;
        answer.refused(422, &pointers);
    }
}

#[tokio::test]
async fn what_is_not_json_is_malformed_and_the_place_is_named() {
    let service = Service::open().await;
    let deep = |depth: usize| {
        format!(
            r#"{{"user_intent": "x", "domain_name": "d", "metadata": {{"a": {}{}}}}}"#,
            "[".repeat(depth),
            "]".repeat(depth)
        )
    };
    for (body, said) in [
        (String::new(), "line 1 column 0"),
        ("{".to_owned(), "line 1 column 1"),
        ("{\"user_intent\": \"x\",\n \"domain_name\": }".to_owned(), "line 2 column 17"),
        (log("x").to_string() + " x", "column"),
        ("{'user_intent': 'x'}".to_owned(), "line 1 column 2"),
        (r#"{"user_intent": "x", "domain_name": "d", "metadata": {"a": NaN}}"#.to_owned(), "line 1"),
        (r#"{"user_intent": "x", "domain_name": "d", "metadata": {"a": 01}}"#.to_owned(), "line 1"),
        ("{\"user_intent\": \"a\0b\", \"domain_name\": \"d\"}".to_owned(), "line 1 column 19"),
        (r#"{"user_intent": "\x", "domain_name": "d"}"#.to_owned(), "line 1"),
        (r#"{"user_intent": "\u12", "domain_name": "d"}"#.to_owned(), "line 1"),
        (deep(200), "nesting is deeper than 127 levels at line 1"),
        (deep(126), "nesting is deeper than 127 levels at line 1"),
        (format!("{}{}", "[".repeat(200), "]".repeat(200)), "nesting is deeper"),
        (
            r#"{"user_intent": "x", "domain_name": "d", "metadata": {"a": [1, 1e400]}}"#.to_owned(),
            "number out of range at line 1 column 64",
        ),
        (
            r#"{"user_intent": "x", "domain_name": "d", "metadata": {"a": -1e999999999999}}"#.to_owned(),
            "number out of range",
        ),
        (
            r#"{"user_intent": "x", "domain_name": "d", "created_at": 1e400}"#.to_owned(),
            "number out of range",
        ),
    ] {
        let answer = service.post_text(LOGS, "application/json", body.clone()).await;
        let problem = answer.refused(400, &[]);
        assert_eq!(problem["type"], "/problems/bad-request");
        let detail = problem["detail"].as_str().expect("a text");
        assert!(detail.contains(said), "{body}: {detail}");
    }
    let kept = service.post_text(LOGS, "application/json", deep(125)).await.expect(201);
    assert!(kept["metadata"]["a"][0][0].is_array());
    assert_eq!(count(&service).await, 1);
}

#[tokio::test]
async fn a_body_that_is_not_utf_8_is_malformed() {
    let service = Service::open().await;
    let path = open_log(&service).await;
    for bad in [&b"\xff"[..], b"\xc3\x28", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\x80"] {
        let body = [&br#"{"user_intent": ""#[..], bad, br#"", "domain_name": "d"}"#].concat();
        let answer = service.post_text(LOGS, "application/json", body.clone()).await;
        let problem = answer.refused(400, &[]);
        assert_eq!(problem["detail"], "the body is not UTF-8 at byte 17");
        let metadata = [&br#"{"metadata": {"k": ""#[..], bad, br#""}}"#].concat();
        service.post_text(&format!("{path}/attempts"), "application/json", metadata).await.refused(400, &[]);
        let lines =
            [line("good").to_string().as_bytes(), b"\n", &body, b"\n", line("too").to_string().as_bytes()]
                .concat();
        let summary = service.post_text("/v1/events", "application/x-ndjson", lines).await.expect(200);
        assert_eq!(summary["accepted"], 2);
        assert_eq!(
            (&summary["rejected"][0]["line"], &summary["rejected"][0]["status"]),
            (&json!(2), &json!(400))
        );
    }
    for path in ["/v1/prompt-templates/%FF", "/v1/prompt-templates/%ED%A0%80"] {
        service.get(path).await.refused(400, &[]);
    }
    for query in ["q=%FF", "session_id=%ED%A0%80", "%FF=1"] {
        let answer = service.get(&format!("{LOGS}?{query}")).await;
        assert!([200, 400, 422].contains(&answer.status.as_u16()), "{query}: {}", answer.text());
    }
}

#[tokio::test]
async fn a_body_beyond_the_limit_is_too_large() {
    let service = Service::open().await;
    let text = "x".repeat(3 << 20);
    let log_path = open_log(&service).await;
    for (method, path, body) in [
        (Method::POST, LOGS.to_owned(), log(&text)),
        (Method::POST, format!("{log_path}/attempts"), json!({"prompt_text": text})),
        (Method::POST, format!("{log_path}/finalize"), json!({"success": true, "final_valid_dsl": text})),
        (Method::PUT, format!("{log_path}/review"), json!({"rating": "good", "note": text})),
        (
            Method::PUT,
            "/v1/prompt-templates/t".to_owned(),
            json!({"template_text": text, "domain_name": "d"}),
        ),
    ] {
        let answer = service.call(method, &path, &[], Some(&body)).await;
        let problem = answer.refused(413, &[]);
        assert_eq!(problem["detail"], "the body has more than 2097152 bytes");
    }
    let most = (2 << 20) - log("").to_string().len();
    service.create(LOGS, log(&"x".repeat(most))).await;
    service.post(LOGS, &log(&"x".repeat(most + 1))).await.refused(413, &[]);
}

#[tokio::test]
async fn a_line_of_a_batch_may_have_three_mebibytes() {
    let service = Service::open().await;
    let id = Uuid::new_v4();
    let text = "é".repeat(3 << 19);
    let attempt =
        json!({"event": "attempt", "generation_id": id, "prompt_text": text, "metadata": {"text": text}});
    service.accept(&[with(line(&text), &json!({"id": id})), attempt, line("small")]).await;
    let log = service.get(&format!("{LOGS}/{id}")).await.expect(200);
    assert!(log["user_intent"] == text.as_str() && log["iterations"][0]["prompt_text"] == text.as_str());
    assert!(log["iterations"][0]["metadata"]["text"] == text.as_str());
}

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
    let settings = json!({"retention_days": {"MARK": null}});
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
        ("/v1/exports/%00.jsonl", 404),
        ("/v1/projects/%00", 404),
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

#[tokio::test]
async fn numbers_in_free_form_objects_are_kept_as_they_are_or_refused() {
    let service = Service::open().await;
    let metadata = |number: &str| {
        format!(r#"{{"user_intent": "x", "domain_name": "d", "metadata": {{"n": {number}}}}}"#)
    };
    for (number, kept) in [
        ("12345678901234567890123", "12345678901234567890123"),
        ("1.10", "1.10"),
        ("-0.5", "-0.5"),
        ("0.1000000000000000055511151231257827", "0.1000000000000000055511151231257827"),
        ("1e3", "1000"),
        ("2.5e-3", "0.0025"),
        ("0", "0"),
    ] {
        let answer = service.post_text(LOGS, "application/json", metadata(number)).await;
        assert_eq!(answer.status, 201, "{number}: {}", answer.text());
        let path = answer.header("location").expect("a location");
        let text = service.get(path).await.text();
        assert!(text.contains(&format!(r#""metadata":{{"n": {kept}}}"#)), "{number}: {text}");
    }
    let many_digits = format!("0.{}1", "0".repeat(17_000));
    for number in [
        "1e400",
        "-1e400",
        "1e-20000",
        "0e99999999999",
        "1e-99999999999",
        many_digits.as_str(),
        "1.7976931348623159e308",
    ] {
        let answer = service.post_text(LOGS, "application/json", metadata(number)).await;
        let problem = answer.refused(400, &[]);
        let detail = problem["detail"].as_str().expect("a text");
        assert!(detail.contains("number out of range at line 1 column 60"), "{number}: {detail}");
    }
    for number in
        ["1.7976931348623157e308", "1.7976931348623158e308", "17976931348623157e292", "1e-16000", "5e-324"]
    {
        let answer = service.post_text(LOGS, "application/json", metadata(number)).await;
        assert!([201, 400].contains(&answer.status.as_u16()), "{number}: {}", answer.text());
    }
}

#[tokio::test]
async fn a_field_given_twice_is_refused_and_in_a_free_form_object_the_last_one_counts() {
    let service = Service::open().await;
    let body = r#"{"user_intent": "a", "domain_name": "d", "user_intent": "b"}"#;
    let refused = service.post_text(LOGS, "application/json", body).await;
    refused.refused(422, &["/user_intent"]);
    let path = open_log(&service).await;
    let nested = r#"{"parse_result": {"success": true, "success": false}}"#;
    let refused = service.post_text(&format!("{path}/attempts"), "application/json", nested).await;
    refused.refused(422, &["/parse_result/success"]);
    let line = r#"{"event": "generation", "user_intent": "a", "domain_name": "d", "domain_name": "e"}"#;
    let summary = service.post_text("/v1/events", "application/x-ndjson", line).await.expect(200);
    assert_eq!(summary["rejected"][0]["errors"][0]["pointer"], "/domain_name");
    service.get("/v1/generations?limit=1&limit=2").await.refused(422, &["/limit"]);
    let free = r#"{"user_intent": "a", "domain_name": "d", "metadata": {"k": 1, "k": 2}}"#;
    let log = service.post_text(LOGS, "application/json", free).await.expect(201);
    assert_eq!(log["metadata"], json!({"k": 2}));
}

#[tokio::test]
async fn a_record_of_another_project_is_not_found_and_its_id_may_be_used_again() {
    let service = Service::open().await;
    service.project("other").await;
    let id = Uuid::new_v4();
    let path = format!("{LOGS}/{id}");
    let call = async |method: Method, path: &str, project: &str, body: Option<Value>| {
        service.call(method, path, &[("gleaner-project", project)], body.as_ref()).await
    };
    service.create(LOGS, with(log("ours"), &json!({"id": id, "session_id": "s"}))).await;
    let attempts = format!("{path}/attempts");
    for (method, path, body) in [
        (Method::GET, path.clone(), None),
        (Method::DELETE, path.clone(), None),
        (Method::POST, attempts.clone(), Some(passed(1, "(a)"))),
        (Method::POST, format!("{path}/finalize"), Some(json!({"success": false}))),
        (Method::PUT, format!("{path}/review"), Some(json!({"rating": "good"}))),
    ] {
        call(method, &path, "other", body).await.refused(404, &[]);
    }
    let attempt = with(passed(1, "(a)"), &json!({"event": "attempt", "generation_id": id}));
    let summary = call(Method::POST, "/v1/events", "other", Some(json!([attempt]))).await.expect(200);
    assert_eq!(
        summary,
        json!({"accepted": 0, "duplicates": 0, "rejected": [{"line": 1, "status": 404, "detail": "no such generation"}]})
    );
    let erased = call(Method::DELETE, "/v1/sessions/s", "other", None).await.expect(200);
    assert_eq!(erased["generations"], 0);

    let theirs = with(log("theirs"), &json!({"id": id, "success": true, "final_valid_dsl": "(b)"}));
    call(Method::POST, LOGS, "other", Some(theirs)).await.expect(201);
    call(Method::POST, &attempts, "default", Some(passed(1, "(a)"))).await.expect(201);
    for (project, intent, attempts) in [("default", "ours", 1), ("other", "theirs", 0)] {
        let log = call(Method::GET, &path, project, None).await.expect(200);
        assert_eq!((&log["user_intent"], &log["total_attempts"]), (&json!(intent), &json!(attempts)));
        let list = call(Method::GET, LOGS, project, None).await.expect(200);
        assert_eq!(list["data"].as_array().map(Vec::len), Some(1));
    }
    let exported = call(Method::GET, "/v1/exports/training-pairs", "default", None).await.rows();
    assert!(exported.is_empty());
    let similar =
        call(Method::GET, "/v1/generations/similar?intent=theirs", "default", None).await.expect(200);
    assert_eq!(similar, json!({"data": []}));
    call(Method::DELETE, &path, "other", None).await;
    call(Method::GET, &path, "default", None).await.expect(200);
    call(Method::GET, LOGS, "none", None).await.refused(404, &[]);
    call(Method::GET, LOGS, "ö", None).await.refused(400, &[]);
}

#[tokio::test]
async fn a_cursor_made_up_or_of_another_list_or_other_filters_is_refused() {
    let service = Service::open().await;
    for number in 0..4 {
        let body = json!({"session_id": number.to_string()});
        service.create(LOGS, with(log("Create"), &body)).await;
        let body = json!({"template_text": "x", "domain_name": "d"});
        service.put(&format!("/v1/prompt-templates/{number}"), &body).await.expect(201);
    }
    let cursor = async |path: &str| {
        let page = service.get(path).await.expect(200);
        page["next_cursor"].as_str().expect("more").to_owned()
    };
    let of_logs = cursor("/v1/generations?limit=1").await;
    let of_domain = cursor("/v1/generations?limit=1&domain_name=cbu").await;
    let of_templates = cursor("/v1/prompt-templates?limit=1").await;
    let of_sessions = cursor("/v1/sessions?limit=1").await;
    let nil = "A".repeat(70);
    for (path, cursors) in [
        ("/v1/generations?", vec![&of_domain, &of_templates, &of_sessions, &nil]),
        ("/v1/generations?domain_name=cbu&", vec![&of_logs]),
        ("/v1/generations?domain_name=cbu&open=true&", vec![&of_domain]),
        ("/v1/generations?since=2020-01-01T00:00:00Z&", vec![&of_logs]),
        ("/v1/prompt-templates?", vec![&of_logs, &of_sessions]),
        ("/v1/sessions?", vec![&of_logs, &of_templates]),
    ] {
        for cursor in cursors {
            let answer = service.get(&format!("{path}cursor={cursor}")).await;
            answer.refused(422, &["/cursor"]);
        }
        for made_up in ["x", "made%20up", "%F0%9F%98%80", "AQ", "====", "AAAAAAAAAAAAAAAAAAAAAAAAAAAA"] {
            let answer = service.get(&format!("{path}cursor={made_up}")).await;
            answer.refused(422, &["/cursor"]);
        }
    }
    // Another page size is no other filter.
    let rest = service.get(&format!("/v1/generations?limit=500&cursor={of_logs}")).await.expect(200);
    assert_eq!(rest["data"].as_array().map(Vec::len), Some(3));
}

#[tokio::test]
async fn a_list_refuses_limits_and_times_that_make_no_sense() {
    let service = Service::open().await;
    for list in ["/v1/generations", "/v1/prompt-templates", "/v1/sessions"] {
        for (query, pointers) in [
            ("limit=0", vec!["/limit"]),
            ("limit=-1", vec!["/limit"]),
            ("limit=501", vec!["/limit"]),
            ("limit=100000", vec!["/limit"]),
            ("limit=99999999999999999999", vec!["/limit"]),
            ("limit=ten", vec!["/limit"]),
            ("since=2025-01-02T00:00:00Z&until=2025-01-01T00:00:00Z", vec!["/since"]),
            ("limit=0&since=2&until=1", vec!["/limit", "/since"]),
            ("since=never", vec!["/since"]),
            ("until=1e400", vec!["/until"]),
            ("colour=red", vec!["/colour"]),
        ] {
            service.get(&format!("{list}?{query}")).await.refused(422, &pointers);
        }
        for query in ["limit=1", "limit=500", "since=5&until=5", "limit=&cursor="] {
            service.get(&format!("{list}?{query}")).await.expect(200);
        }
    }
}

#[tokio::test]
async fn a_body_of_another_media_type_is_refused() {
    let service = Service::open().await;
    let body = log("Create a fund").to_string();
    for media_type in [
        "text/plain",
        "application/x-www-form-urlencoded",
        "application/jsonx",
        "",
        "json",
        "application/x-ndjson",
    ] {
        let answer = service.post_text(LOGS, media_type, body.clone()).await;
        let problem = answer.refused(415, &[]);
        assert_eq!(problem["type"], "/problems/unsupported-media-type");
    }
    let missing = request(Method::POST, LOGS).body(Body::from(body.clone())).expect("a request");
    service.send(missing).await.refused(415, &[]);
    for media_type in
        ["application/json; charset=utf-8", "Application/JSON", "application/json;charset=UTF-8"]
    {
        service.post_text(LOGS, media_type, body.clone()).await.expect(201);
    }
    let event = line("Create a fund").to_string();
    for media_type in ["text/plain", "application/xml", ""] {
        service.post_text("/v1/events", media_type, event.clone()).await.refused(415, &[]);
    }
    for media_type in ["application/x-ndjson", "application/jsonl", "application/jsonl; charset=utf-8"] {
        let summary = service.post_text("/v1/events", media_type, event.clone()).await.expect(200);
        assert_eq!(summary["accepted"], 1, "{media_type}");
    }
}

#[tokio::test]
async fn compressed_bodies_are_taken_and_broken_ones_refused() {
    let service = Service::open().await;
    let body = log("Create a fund").to_string().into_bytes();
    let events = [line("one").to_string(), line("two").to_string()].join("\n").into_bytes();
    let zstd = |text: &[u8]| zstd::encode_all(text, 1).expect("packs");
    for (encoding, packed, packed_events) in
        [("gzip", gzip(&body), gzip(&events)), ("zstd", zstd(&body), zstd(&events))]
    {
        let json = "application/json";
        let made = post_encoded(&service, LOGS, json, encoding, packed.clone()).await;
        assert_eq!(made.expect(201)["user_intent"], "Create a fund");
        let summary =
            post_encoded(&service, "/v1/events", "application/x-ndjson", encoding, packed_events).await;
        assert_eq!(summary.expect(200)["accepted"], 2);
        let mut corrupt = packed.clone();
        let middle = corrupt.len() / 2;
        corrupt[middle] ^= 0xff;
        corrupt[middle + 1] ^= 0xff;
        for broken in [body.clone(), packed[..packed.len() / 2].to_vec(), corrupt, b"\x1f\x8b".to_vec()] {
            post_encoded(&service, LOGS, json, encoding, broken).await.refused(400, &[]);
        }
    }
    for encoding in ["br", "deflate", "gzip, gzip", "snappy"] {
        let answer = post_encoded(&service, LOGS, "application/json", encoding, body.clone()).await;
        answer.refused(415, &[]);
    }
    assert_eq!(count(&service).await, 6);
}

#[tokio::test]
async fn a_zip_bomb_is_too_large() {
    let service = Service::open().await;
    let zeros = vec![b' '; 65 << 20];
    for (encoding, bomb) in
        [("gzip", gzip(&zeros)), ("zstd", zstd::encode_all(&zeros[..], 1).expect("packs"))]
    {
        assert!(bomb.len() < 1 << 20);
        for (path, media_type) in [(LOGS, "application/json"), ("/v1/events", "application/x-ndjson")] {
            let answer = post_encoded(&service, path, media_type, encoding, bomb.clone()).await;
            answer.refused(413, &[]);
        }
    }
}

#[tokio::test]
async fn a_batch_of_more_lines_than_allowed_is_too_large() {
    let service = Service::open().await;
    let lines = |count: usize| "{}\n\n".repeat(count);
    let too_many = service.post_text("/v1/events", "application/x-ndjson", lines(20_001)).await;
    let problem = too_many.refused(413, &[]);
    assert_eq!(problem["detail"], "a batch has at most 20000 events; this one has 20001");
    let most = service.post_text("/v1/events", "application/x-ndjson", lines(20_000)).await.expect(200);
    let rejected = most["rejected"].as_array().expect("rejected");
    assert_eq!((rejected.len(), &most["accepted"]), (20_000, &json!(0)));
    assert_eq!(
        rejected[19_999],
        json!({"line": 39_999, "status": 422, "detail": rejected[0]["detail"],
            "errors": [{"pointer": "/event", "detail": "must name what happened"}]})
    );
    let array = format!("[{}{{}}]", "{},".repeat(20_000));
    service.post_text("/v1/events", "application/json", array).await.refused(413, &[]);
}

#[tokio::test]
async fn one_bad_line_among_ten_thousand_loses_no_other() {
    let service = Service::open().await;
    let mut lines: Vec<_> =
        (1..=10_000).map(|number| line(&format!("intent {number}")).to_string()).collect();
    lines[7_776] = r#"{"event": "generation", "user_intent": 5, "domain_name": "cbu"}"#.to_owned();
    let summary = service.post_text("/v1/events", "application/x-ndjson", lines.join("\n")).await.expect(200);
    assert_eq!((&summary["accepted"], &summary["duplicates"]), (&json!(9_999), &json!(0)));
    let rejected = summary["rejected"].as_array().expect("rejected");
    assert_eq!(rejected.len(), 1);
    assert_eq!((&rejected[0]["line"], &rejected[0]["status"]), (&json!(7_777), &json!(422)));
    assert_eq!(rejected[0]["errors"][0]["pointer"], "/user_intent");
    let stored: (i64, i64) = sqlx::query_as("select count(*), count(distinct user_intent) from generations")
        .fetch_one(&mut service.connection().await)
        .await
        .expect("counts");
    assert_eq!(stored, (9_999, 9_999));
}

#[tokio::test]
async fn each_bad_line_is_refused_as_its_own_endpoint_would_refuse_it() {
    let service = Service::open().await;
    let open = service.create(LOGS, log("Create")).await;
    let unknown = Uuid::new_v4();
    let deep = format!(r#"{{"event": "generation", "metadata": {}{}}}"#, "[".repeat(200), "]".repeat(200));
    let cases = [
        ("not json".to_owned(), 400, vec![]),
        ("{".to_owned(), 400, vec![]),
        ("[]".to_owned(), 422, vec![""]),
        ("5".to_owned(), 422, vec![""]),
        ("null".to_owned(), 422, vec![""]),
        ("{}".to_owned(), 422, vec!["/event"]),
        (r#"{"event": null}"#.to_owned(), 422, vec!["/event"]),
        (r#"{"event": 5}"#.to_owned(), 422, vec!["/event"]),
        (r#"{"event": "party"}"#.to_owned(), 422, vec!["/event"]),
        (r#"{"event": "generation"}"#.to_owned(), 422, vec!["/user_intent"]),
        (with(line("x"), &json!({"colour": 1})).to_string(), 422, vec!["/colour"]),
        (with(line("x"), &json!({"metadata": 1})).to_string(), 422, vec!["/metadata"]),
        (with(line(""), &json!({"domain_name": ""})).to_string(), 422, vec!["/user_intent", "/domain_name"]),
        (with(line("x"), &json!({"generation_id": open})).to_string(), 422, vec!["/generation_id"]),
        (r#"{"event": "attempt"}"#.to_owned(), 422, vec!["/generation_id"]),
        (r#"{"event": "attempt", "generation_id": "x"}"#.to_owned(), 422, vec!["/generation_id"]),
        (json!({"event": "attempt", "generation_id": open, "attempt": 0}).to_string(), 422, vec!["/attempt"]),
        (
            json!({"event": "attempt", "generation_id": open, "lint_result": {"valid": "no"}}).to_string(),
            422,
            vec!["/lint_result/valid"],
        ),
        (
            json!({"event": "attempt", "generation_id": open, "iterations": []}).to_string(),
            422,
            vec!["/iterations"],
        ),
        (json!({"event": "attempt", "generation_id": unknown}).to_string(), 404, vec![]),
        (
            json!({"event": "generation_outcome", "generation_id": unknown, "success": false}).to_string(),
            404,
            vec![],
        ),
        (
            json!({"event": "generation_outcome", "generation_id": open, "success": true}).to_string(),
            422,
            vec!["/final_valid_dsl"],
        ),
        (json!({"event": "review", "generation_id": unknown, "rating": "good"}).to_string(), 404, vec![]),
        (
            json!({"event": "review", "generation_id": open, "rating": "bad"}).to_string(),
            422,
            vec!["/rating"],
        ),
        (deep, 400, vec![]),
        (r#"{"event": "generation", "metadata": {"a": 1e400}}"#.to_owned(), 400, vec![]),
        (r#"{"event": "generation", "metadata": {"a": 1e-20000}}"#.to_owned(), 400, vec![]),
    ];
    let good = line("good").to_string();
    let body: String = cases.iter().flat_map(|(bad, ..)| [good.as_str(), "\n", bad, "\n"]).collect();
    let summary = service.post_text("/v1/events", "application/x-ndjson", body).await.expect(200);
    assert_eq!((&summary["accepted"], &summary["duplicates"]), (&json!(cases.len()), &json!(0)));
    let rejected = summary["rejected"].as_array().expect("rejected");
    assert_eq!(rejected.len(), cases.len(), "{summary:#}");
    for (place, ((bad, status, pointers), rejected)) in cases.iter().zip(rejected).enumerate() {
        assert_eq!(rejected["line"], 2 * place + 2, "{bad}");
        assert_eq!(rejected["status"], *status, "{bad}: {rejected}");
        let errors = rejected["errors"].as_array().cloned().unwrap_or_default();
        let named: Vec<_> = errors.iter().filter_map(|error| error["pointer"].as_str()).collect();
        assert_eq!(&named, pointers, "{bad}: {rejected}");
        assert!(rejected["detail"].as_str().is_some_and(|detail| !detail.is_empty()));
    }
    assert_eq!(count(&service).await, 1 + i64::try_from(cases.len()).expect("few"));
}

#[tokio::test]
async fn a_batch_may_be_an_array_or_have_blank_lines_and_carriage_returns() {
    let service = Service::open().await;
    let events = |body: String, media_type: &'static str| service.post_text("/v1/events", media_type, body);
    let (one, two) = (line("one"), line("two"));
    let bad = json!({"event": "party"});
    let array = json!([one, bad, two, 5]).to_string();
    let lines = format!("\r\n{one}\r\n{bad}\r\n \t \r\n\n{two}\r\n5");
    for (body, media_type, numbers) in
        [(array, "application/json", [2, 4]), (lines, "application/x-ndjson", [3, 7])]
    {
        let summary = events(body, media_type).await.expect(200);
        assert_eq!((&summary["accepted"], &summary["duplicates"]), (&json!(2), &json!(0)));
        let rejected = summary["rejected"].as_array().expect("rejected");
        let given: Vec<_> = rejected.iter().map(|rejected| rejected["line"].clone()).collect();
        assert_eq!(given, numbers, "{media_type}");
    }
    let nothing = json!({"accepted": 0, "duplicates": 0, "rejected": []});
    for (body, media_type) in
        [("[]", "application/json"), ("", "application/x-ndjson"), ("\n \n\r\n", "application/jsonl")]
    {
        assert_eq!(events(body.to_owned(), media_type).await.expect(200), nothing);
    }
    events(one.to_string(), "application/json").await.refused(422, &[""]);
    events("[{}".to_owned(), "application/json").await.refused(400, &[]);
}

#[tokio::test]
async fn events_of_one_record_take_effect_in_line_order() {
    let service = Service::open().await;
    let id = Uuid::new_v4();
    let of = |event: &str, body: Value| with(body, &json!({"event": event, "generation_id": id}));
    let start = with(line("Create"), &json!({"id": id}));
    let outcome = json!({"success": true});
    let summary = service
        .events(&[
            of("attempt", passed(1, "(too early)")),
            start.clone(),
            of("review", json!({"rating": "poor"})),
            of("generation_outcome", outcome.clone()),
            of("attempt", failed(1, "(a)", "e")),
            of("attempt", passed(2, "(b)")),
            of("generation_outcome", outcome.clone()),
            of("attempt", passed(3, "(too late)")),
            of("attempt", passed(2, "(b)")),
            of("attempt", passed(2, "(other)")),
            of("generation_outcome", json!({"success": false})),
            of("generation_outcome", outcome),
            of("review", json!({"rating": "good"})),
            start.clone(),
            with(start, &json!({"user_intent": "Other"})),
        ])
        .await
        .expect(200);
    assert_eq!((&summary["accepted"], &summary["duplicates"]), (&json!(6), &json!(3)));
    let rejected: Vec<_> = summary["rejected"]
        .as_array()
        .expect("rejected")
        .iter()
        .map(|rejected| (rejected["line"].as_u64(), rejected["status"].as_u64()))
        .collect();
    let expected = [(1, 404), (4, 422), (8, 409), (10, 409), (11, 409), (15, 409)];
    assert_eq!(rejected, expected.map(|(line, status)| (Some(line), Some(status))));
    let log = service.get(&format!("{LOGS}/{id}")).await.expect(200);
    assert_eq!((&log["final_valid_dsl"], &log["total_attempts"]), (&json!("(b)"), &json!(2)));
    assert_eq!(log["review"]["rating"], "good");
}

#[tokio::test]
async fn the_same_start_twice_in_a_batch_is_one_log() {
    let service = Service::open().await;
    let id = Uuid::new_v4();
    let start = with(line("Create"), &json!({"id": id}));
    let finished = with(
        line("Create"),
        &json!({"id": Uuid::new_v4(), "success": true, "iterations": [failed(1, "a", "e"), passed(2, "b")]}),
    );
    let events = [start.clone(), start.clone(), finished.clone(), finished, start];
    let summary = service.events(&events).await.expect(200);
    assert_eq!(summary, json!({"accepted": 2, "duplicates": 3, "rejected": []}));
    let summary = service.events(&events).await.expect(200);
    assert_eq!(summary, json!({"accepted": 0, "duplicates": 5, "rejected": []}));
    assert_eq!(count(&service).await, 2);
    assert_eq!(service.get("/v1/exports/correction-pairs").await.rows().len(), 1);
}

#[tokio::test]
async fn a_path_says_which_methods_it_answers() {
    let service = Service::open().await;
    let id = Uuid::new_v4();
    for (method, path, allowed) in [
        (Method::DELETE, LOGS.to_owned(), "GET,HEAD,POST"),
        (Method::PUT, LOGS.to_owned(), "GET,HEAD,POST"),
        (Method::OPTIONS, LOGS.to_owned(), "GET,HEAD,POST"),
        (Method::PATCH, format!("{LOGS}/{id}"), "DELETE,GET,HEAD"),
        (Method::GET, format!("{LOGS}/{id}/attempts"), "POST"),
        (Method::HEAD, format!("{LOGS}/{id}/finalize"), "POST"),
        (Method::POST, format!("{LOGS}/similar"), "GET,HEAD"),
        (Method::GET, "/v1/events".to_owned(), "POST"),
        (Method::POST, "/v1/exports/training-pairs".to_owned(), "GET,HEAD"),
        (Method::POST, "/healthz".to_owned(), "GET,HEAD"),
    ] {
        let answer = service.call(method.clone(), &path, &[], None).await;
        assert_eq!(answer.status, 405, "{method} {path}");
        let mut allow: Vec<_> = answer.header("allow").expect("Allow").split(',').map(str::trim).collect();
        allow.sort_unstable();
        assert_eq!(allow.join(","), allowed, "{method} {path}");
        assert_eq!(answer.header("content-type"), Some("application/problem+json"));
        if method != Method::HEAD {
            answer.refused(405, &[]);
        }
    }
}

#[tokio::test]
async fn an_unknown_path_is_a_problem_too() {
    let service = Service::open().await;
    for path in [
        "/",
        "/v1",
        "/v1/",
        "/v1/generation",
        "/v1/generations/",
        "/v2/generations",
        "/v1/exports/a/b",
        "/v1//generations",
    ] {
        for method in [Method::GET, Method::POST, Method::DELETE] {
            let answer = service.call(method, path, &[("x-request-id", "r-1")], Some(&json!({}))).await;
            assert_eq!(answer.header("x-request-id"), Some("r-1"));
            let problem = answer.refused(404, &[]);
            assert_eq!(
                problem,
                json!({"type": "/problems/not-found", "title": "Not Found", "status": 404,
                    "detail": format!("there is nothing at {path}"), "instance": "r-1"})
            );
        }
    }
}

#[tokio::test]
async fn head_answers_as_get_does_but_without_a_body() {
    let service = Service::open().await;
    let log = open_log(&service).await;
    for path in
        [LOGS, &log, "/healthz", "/readyz", "/version", "/openapi.yaml", "/openapi.json", "/v1/exports"]
    {
        let get = service.get(path).await;
        let head = service.call(Method::HEAD, path, &[], None).await;
        assert_eq!((get.status.as_u16(), head.status.as_u16()), (200, 200), "{path}");
        assert_eq!(head.header("content-type"), get.header("content-type"), "{path}");
        assert!(head.body.is_empty() && !get.body.is_empty());
    }
    let missing = service.call(Method::HEAD, &format!("{LOGS}/{}", Uuid::new_v4()), &[], None).await;
    assert_eq!(missing.status, 404);
}
