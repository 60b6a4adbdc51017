//! Bodies that are not JSON, not UTF-8, or JSON that cannot be kept.

use serde_json::json;

use super::{LOGS, count, line, log, open_log};
use crate::support::Service;

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
        (
            // A name with which the parser reads the text in place of the object.
            r#"{"user_intent": "x", "domain_name": "d", "metadata": {"$serde_json::private::RawValue": "[1]"}}"#
                .to_owned(),
            "the name \"$serde_json::private::RawValue\" is reserved at line 1 column 55",
        ),
        (
            r#"{"user_intent": "x", "domain_name": "d", "metadata": {"\u0024serde_json::private::R\u0061wValue" :1}}"#
                .to_owned(),
            "is reserved",
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
async fn what_is_not_json_is_malformed_also_behind_a_value_of_a_wrong_type() {
    let service = Service::open().await;
    for (body, said) in [
        (r#"{"user_intent": 5, "domain_name": }"#, "line 1 column 35"),
        (r#"{"colour": 1, "user_intent": "x""#, "line 1 column 32"),
        (r#"{"user_intent": {"a": [1, 2}, "domain_name": "d"}"#, "line 1 column 28"),
    ] {
        let problem = service.post_text(LOGS, "application/json", body).await.refused(400, &[]);
        assert!(problem["detail"].as_str().expect("a text").contains(said), "{problem}");
        let line = format!("{{\"event\": \"generation\", {}", &body[1..]);
        let summary = service.post_text("/v1/events", "application/x-ndjson", line).await.expect(200);
        assert_eq!(summary["rejected"][0]["status"], 400, "{summary}");
    }
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
    // In a query string the bytes are replaced; what is sought then is not there.
    for query in ["q=%FF", "session_id=%ED%A0%80"] {
        let page = service.get(&format!("{LOGS}?{query}")).await.expect(200);
        assert_eq!(page, json!({"data": [], "next_cursor": null}), "{query}");
    }
    service.get(&format!("{LOGS}?%FF=1")).await.refused(422, &["/\u{fffd}"]);
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
        assert_eq!(answer.status, 201, "{number}: {}", answer.text());
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
