//! Batches: each bad line is refused by itself, and no other is lost.

use serde_json::{Value, json};
use uuid::Uuid;

use super::{LOGS, count, line, log};
use crate::support::{Service, failed, passed, with};

#[tokio::test]
async fn events_of_a_batch_that_is_read_in_several_pieces_keep_their_order_their_numbers_and_their_names() {
    let service = Service::open().await;
    let ids = [1, 2].map(Uuid::from_u128);
    for (id, media_type) in ids.into_iter().zip(["application/x-ndjson", "application/json"]) {
        let begun = with(line("Create a fund"), &json!({"id": id}));
        let attempt = json!({"event": "attempt", "generation_id": id, "attempt": 1, "extracted_dsl": "(a)"});
        let ended = json!({"event": "generation_outcome", "generation_id": id, "success": false});
        // Each takes some 2.5 KB of memory, of which 4 MiB are read at a time.
        let wrong = std::iter::repeat_n(json!({}), 4_000);
        let lines: Vec<_> = [begun].into_iter().chain(wrong).chain([attempt, ended]).collect();
        let lines: Vec<_> = lines.iter().map(Value::to_string).collect();
        let body = match media_type {
            "application/json" => format!("[{}]", lines.join(", ")),
            _ => lines.join("\r\n\r\n"),
        };
        let blank = if media_type == "application/json" { 1 } else { 2 };
        for (accepted, duplicates) in [(3, 0), (0, 3)] {
            let summary = service.post_text("/v1/events", media_type, body.clone()).await.expect(200);
            assert_eq!(
                (&summary["accepted"], &summary["duplicates"]),
                (&json!(accepted), &json!(duplicates))
            );
            let rejected = summary["rejected"].as_array().expect("rejected").iter();
            let numbers: Vec<_> = rejected.map(|line| line["line"].as_u64().expect("a number")).collect();
            let expected: Vec<_> = (1..=4_000).map(|wrong| 1 + wrong * blank).collect();
            assert_eq!(numbers, expected);
        }
        let kept = service.get(&format!("{LOGS}/{id}")).await.expect(200);
        assert_eq!((&kept["total_attempts"], &kept["success"]), (&json!(1), &json!(false)));
    }
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

/// Lines that are refused, each with its status and the fields that the refusal names; `open` is a log that is not finalized.
fn bad_lines(open: &str) -> Vec<(String, u16, Vec<&'static str>)> {
    let unknown = Uuid::new_v4();
    let deep = format!(r#"{{"event": "generation", "metadata": {}{}}}"#, "[".repeat(200), "]".repeat(200));
    vec![
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
    ]
}

#[tokio::test]
async fn each_bad_line_is_refused_as_its_own_endpoint_would_refuse_it() {
    let service = Service::open().await;
    let open = service.create(LOGS, log("Create")).await;
    let cases = bad_lines(&open);
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
async fn a_long_string_in_place_of_events_is_refused_like_a_short_one() {
    let service = Service::open().await;
    for length in [1, 100_000] {
        let text = json!("a".repeat(length)).to_string();
        let whole = service.post_text("/v1/events", "application/json", text.clone()).await.expect(422);
        assert_eq!(whole["errors"], json!([{"pointer": "", "detail": "must be an array, not a string"}]));
        let list = service.post_text("/v1/events", "application/json", format!("[{text}]")).await;
        let line = service.post_text("/v1/events", "application/x-ndjson", text.clone()).await;
        let started = format!(
            r#"{{"event": "generation", "user_intent": "i", "domain_name": "d", "iterations": {text}}}"#
        );
        let parts = service.post_text("/v1/events", "application/x-ndjson", started).await;
        for (answer, pointer, detail) in [
            (list, "", "must be an object, not a string"),
            (line, "", "must be an object, not a string"),
            (parts, "/iterations", "must be an array, not a string"),
        ] {
            let refused = &answer.expect(200)["rejected"][0];
            assert_eq!(refused["errors"], json!([{"pointer": pointer, "detail": detail}]), "{length}");
        }
    }
}
