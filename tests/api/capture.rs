//! What is kept of what is posted: everything, figures without text, or nothing.

use axum::http::Method;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::support::program::Capture;
use crate::support::{Answer, Service, assert_whole, column, failed, passed, with};

const NEEDLE: &str = "needle";

async fn capture(service: &Service, capture: Value) {
    service.put("/v1/projects/default", &json!({"capture": capture})).await.expect(200);
}

fn attempt(needle: &str, number: i32, passes: bool) -> Value {
    let judged = if passes { passed(number, needle) } else { failed(number, needle, needle) };
    with(
        judged,
        &json!({"prompt_text": needle, "raw_response": needle, "metadata": { needle: needle }, "latency_ms": 5,
            "parse_result": {"success": true, "error": needle}, "prompt_template": "t", "prompt_template_version": 2}),
    )
}

fn log(needle: &str) -> Value {
    json!({"user_intent": needle, "domain_name": "cbu", "session_id": "s", "metadata": {"k": needle}})
}

fn slate(needle: &str, suggestions: &[&str]) -> Value {
    json!({"context": {"blocks": [{"input": needle}]}, "suggestions": suggestions, "session_name": "s",
        "llm_request": {"messages": [{"role": "user", "content": needle}], "model": "m", "temperature": 0.5},
        "llm_response": {"raw_content": needle, "usage": {"total_tokens": 30}}})
}

/// Every request that stores text, in an order that works; each with the status it has when everything is kept.
pub(crate) async fn post_all(needle: &str, service: &Service) -> Vec<(u16, Answer)> {
    let (log_id, done_id, slate_id) = (Uuid::from_u128(1), Uuid::from_u128(2), Uuid::from_u128(3));
    let with_id = |body: Value, id: Uuid| with(body, &json!({"id": id}));
    let logs = format!("/v1/generations/{log_id}");
    let slates = format!("/v1/suggestions/{slate_id}");
    let finished = with(
        log(needle),
        &json!({"success": true, "final_valid_dsl": needle, "iterations": [attempt(needle, 1, false), attempt(needle, 2, true)]}),
    );
    let reviewed = json!({"rating": "good", "reviewer": needle, "note": needle, "corrected_dsl": needle});
    let line = json!({"ts": 1_704_067_200.5, "session": "s", "server": "x", "context": {"k": needle},
        "suggestions": [needle], "actual_input": needle, "match_type": "exact", "accepted_index": 0});
    let typed = json!({"inputs": [{"text": needle, "at": 1}, {"text": needle}]});
    let mut answers = Vec::new();
    for (status, method, path, body) in [
        (201, Method::POST, "/v1/generations".to_owned(), with_id(log(needle), log_id)),
        (201, Method::POST, format!("{logs}/attempts"), attempt(needle, 1, false)),
        (201, Method::POST, format!("{logs}/attempts"), attempt(needle, 2, true)),
        (200, Method::POST, format!("{logs}/finalize"), json!({"success": true, "instance_id": "i"})),
        (200, Method::PUT, format!("{logs}/review"), reviewed),
        (200, Method::PATCH, logs.clone(), json!({"cbu_id": "c", "metadata": { needle: needle }})),
        (201, Method::POST, "/v1/generations".to_owned(), with_id(finished, done_id)),
        (201, Method::POST, "/v1/suggestions".to_owned(), with_id(slate(needle, &["x", needle]), slate_id)),
        (201, Method::POST, format!("{slates}/views"), json!({"direction": "next", "at": 1})),
        (201, Method::POST, format!("{slates}/partial-inputs"), typed),
        (200, Method::POST, format!("{slates}/finalize"), json!({"actual_input": needle})),
        (200, Method::PATCH, slates.clone(), json!({"result_block_number": 4})),
        (201, Method::POST, "/v1/suggestions".to_owned(), line),
    ] {
        answers.push((status, service.call(method, &path, &[], Some(&body)).await));
    }
    answers
}

/// The same events as lines of a batch.
pub(crate) fn lines(needle: &str) -> Vec<Value> {
    let (log_id, slate_id) = (Uuid::from_u128(11), Uuid::from_u128(13));
    let of_log = |event: &str, body: Value| with(body, &json!({"event": event, "generation_id": log_id}));
    let of_slate = |event: &str, body: Value| with(body, &json!({"event": event, "suggestion_id": slate_id}));
    vec![
        with(log(needle), &json!({"event": "generation", "id": log_id})),
        of_log("attempt", attempt(needle, 1, false)),
        of_log("generation_outcome", json!({"success": false, "error": needle})),
        of_log("review", json!({"rating": "poor", "note": needle})),
        of_log("generation_amendment", json!({"metadata": { needle: needle }})),
        with(slate(needle, &[needle]), &json!({"event": "suggestion", "id": slate_id})),
        of_slate("view", json!({"index": 0})),
        of_slate("partial_inputs", json!({"inputs": [{"text": needle}]})),
        of_slate("suggestion_outcome", json!({"actual_input": needle})),
    ]
}

#[tokio::test]
async fn without_text_figures_and_verdicts_are_kept_and_the_text_is_nowhere_in_the_database() {
    let service = Service::open().await;
    capture(&service, json!("metadata")).await;
    for (expected, answer) in post_all(NEEDLE, &service).await {
        assert_eq!(answer.status, expected, "{}", answer.text());
        assert!(!answer.text().contains(NEEDLE), "{}", answer.text());
    }
    service.accept(&lines(NEEDLE)).await;
    assert!(!service.dump().await.contains(NEEDLE));

    let log = service.get(&format!("/v1/generations/{}", Uuid::from_u128(1))).await.expect(200);
    assert_whole!("a_log_without_text", log);
    let figures = service.get("/v1/analytics/prompts").await.expect(200);
    assert_eq!((&figures["data"][0]["passed"], &figures["data"][0]["total_uses"]), (&json!(2), &json!(3)));

    let figures = service.get("/v1/analytics/generations").await.expect(200);
    assert_eq!((&figures["logs"], &figures["failed_attempts"]), (&json!(3), &json!(3)));
    let error = &figures["errors"][0];
    assert_eq!(
        (&error["message"], &error["count"], &error["repaired"]),
        (&Value::Null, &json!(3), &json!(2))
    );

    let record = service.get(&format!("/v1/suggestions/{}", Uuid::from_u128(3))).await.expect(200);
    assert_whole!("a_slate_without_text", record);
    let figures = service.get("/v1/analytics/suggestions").await.expect(200);
    assert_eq!((&figures["records"], &figures["accepted"]), (&json!(3), &json!(3)));
    service.get("/v1/generations/similar?intent=needle").await.expect(200);
}

#[tokio::test]
async fn exports_leave_out_records_without_text_and_say_how_many() {
    let service = Service::open().await;
    capture(&service, json!("metadata")).await;
    post_all(NEEDLE, &service).await;
    capture(&service, json!("full")).await;
    let full =
        with(log(NEEDLE), &json!({"success": true, "iterations": [failed(1, "a", "e"), passed(2, "b")]}));
    service.post("/v1/generations", &full).await.expect(201);
    service
        .post(
            "/v1/suggestions",
            &with(slate(NEEDLE, &["x", "y"]), &json!({"actual_input": "x", "viewed_indices": [0, 1]})),
        )
        .await
        .expect(201);
    let sets = service.get("/v1/exports").await.expect(200);
    let sets = sets["data"].as_array().expect("data");
    // The last is of searches, of which nothing was posted.
    assert_eq!(json!(column(sets, "rows")), json!([1, 1, 1, 1, 1, 1, 0, 0, 0]));
    assert_eq!(json!(column(sets, "skipped")), json!([2, 2, 2, 2, 2, 2, 0, 0, 0]));
    for set in column(&sets[..6], "dataset") {
        let path = format!("/v1/exports/{}?format=raw", set.as_str().expect("a name"));
        assert_eq!(service.get(&path).await.rows().len(), 1, "{path}");
    }
}

#[tokio::test]
async fn requests_sent_again_are_told_without_their_text() {
    let service = Service::open().await;
    capture(&service, json!("metadata")).await;
    post_all(NEEDLE, &service).await;
    for (place, (_, answer)) in post_all(NEEDLE, &service).await.iter().enumerate() {
        // The second partial input has neither name nor time: it is another one, and comes too late.
        assert_eq!(answer.status, if place == 9 { 409 } else { 200 }, "{place}: {}", answer.text());
    }
    let other =
        json!({"id": Uuid::from_u128(1), "user_intent": "other", "domain_name": "cbu", "session_id": "s"});
    service.post("/v1/generations", &other).await.refused(409, &[]);
    let path = format!("/v1/suggestions/{}/finalize", Uuid::from_u128(3));
    service.post(&path, &json!({"actual_input": "other"})).await.refused(409, &[]);
}

/// What was sent tells whether it is the same, and not what was stored of it.
#[tokio::test]
async fn requests_sent_again_are_recognized_after_a_project_has_begun_or_ceased_to_keep_texts() {
    for [before, after] in [["full", "full"], ["metadata", "full"], ["full", "metadata"]] {
        let service = Service::open().await;
        capture(&service, json!(before)).await;
        post_all(NEEDLE, &service).await;
        service.accept(&lines(NEEDLE)).await;
        capture(&service, json!(after)).await;
        for (place, (_, answer)) in post_all(NEEDLE, &service).await.iter().enumerate() {
            // What has neither a name nor a time is another one, as above.
            assert_eq!(answer.status, if place == 9 { 409 } else { 200 }, "{place}: {}", answer.text());
        }
        let summary = service.events(&lines(NEEDLE)).await.expect(200);
        assert_eq!(column(summary["rejected"].as_array().expect("lines"), "line"), [7, 8], "{summary}");
    }
}

#[tokio::test]
async fn what_was_typed_at_a_time_counts_once_whether_texts_are_kept_or_not() {
    let service = Service::open().await;
    let id = service.post("/v1/suggestions", &slate(NEEDLE, &["x"])).await.expect(201)["id"].clone();
    let path = format!("/v1/suggestions/{}/partial-inputs", id.as_str().expect("an id"));
    for (capture_of, at, status) in
        [("full", 1, 201), ("metadata", 1, 200), ("metadata", 2, 201), ("metadata", 2, 200), ("full", 2, 200)]
    {
        capture(&service, json!(capture_of)).await;
        service.post(&path, &json!({"inputs": [{"text": NEEDLE, "at": at}]})).await.expect(status);
    }
}

#[tokio::test]
async fn where_nothing_is_kept_every_answer_is_204_and_lines_are_skipped() {
    let service = Service::open().await;
    capture(&service, json!(null)).await;
    service.accept(&lines(NEEDLE)[..1]).await;
    let before = service.dump_without_audit().await;
    capture(&service, json!("off")).await;
    for (_, answer) in post_all(NEEDLE, &service).await {
        assert_eq!((answer.status.as_u16(), answer.body.len()), (204, 0));
    }
    let mut lines = lines(NEEDLE);
    lines.push(json!({"event": "view"}));
    let summary = service.events(&lines).await.expect(200);
    assert_eq!(
        (&summary["accepted"], &summary["duplicates"], &summary["skipped"]),
        (&json!(0), &json!(0), &json!(9))
    );
    assert_eq!(summary["rejected"][0]["line"], 10);
    service.post("/v1/suggestions", &json!({})).await.refused(422, &["/context"]);
    capture(&service, json!(null)).await;
    assert_eq!(service.dump_without_audit().await, before);
}

#[tokio::test]
async fn domains_are_kept_as_chosen_for_each_and_the_rest_by_the_servers_default() {
    let service = Service::keeping(Capture::Metadata).await;
    let project = service.get("/v1/projects/default").await.expect(200);
    assert_eq!(project["capture"], "metadata");
    capture(&service, json!({"suggestions": "off"})).await;
    let project = service.get("/v1/projects/default").await.expect(200);
    assert_eq!(project["capture"], json!({"suggestions": "off"}));
    let made = service.post("/v1/generations", &log(NEEDLE)).await.expect(201);
    assert_eq!(made["user_intent"], json!(null));
    assert_eq!(service.post("/v1/suggestions", &slate(NEEDLE, &["x"])).await.status, 204);
    capture(&service, json!({"generations": "off", "suggestions": "full"})).await;
    assert_eq!(service.post("/v1/generations", &log(NEEDLE)).await.status, 204);
    let made = service.post("/v1/suggestions", &slate(NEEDLE, &["x"])).await.expect(201);
    assert_eq!(made["suggestions"], json!(["x"]));
    let summary = service.events(&lines(NEEDLE)).await.expect(200);
    assert_eq!(summary, json!({"accepted": 4, "duplicates": 0, "skipped": 5, "rejected": []}));
}

#[tokio::test]
async fn without_the_slates_text_a_match_is_exact_or_unknown_unless_the_client_sends_it() {
    let service = Service::open().await;
    capture(&service, json!("metadata")).await;
    let texts = ["git", "git status", "git"];
    for (input, sent, expected) in [
        ("git status", None, json!(["exact", 1])),
        ("git", None, json!(["exact", 0])),
        ("git push", None, json!([null, null])),
        ("git push", Some(json!(texts)), json!(["partial", 0])),
        ("gi", Some(json!(texts)), json!(["prefix", 0])),
        ("ls", Some(json!(texts)), json!(["none", null])),
        ("", None, json!([null, null])),
    ] {
        let id = service.create("/v1/suggestions", slate(NEEDLE, &texts)).await;
        let outcome = json!({"actual_input": input, "suggestions": sent});
        let record = service.post(&format!("/v1/suggestions/{id}/finalize"), &outcome).await.expect(200);
        assert_eq!(json!([record["match_type"], record["accepted_index"]]), expected, "{input}");
    }
    let id = service.create("/v1/suggestions", slate(NEEDLE, &texts)).await;
    let path = format!("/v1/suggestions/{id}/finalize");
    service
        .post(&path, &json!({"actual_input": "x", "suggestions": ["y"]}))
        .await
        .refused(422, &["/suggestions"]);
    capture(&service, json!("full")).await;
    service.post(&path, &json!({"actual_input": "git status"})).await.expect(200);
    assert_eq!(service.get(&format!("/v1/suggestions/{id}")).await.expect(200)["match_type"], "exact");
    let figures = service.get("/v1/analytics/suggestions").await.expect(200);
    assert_eq!(figures["by_match_type"]["unknown"], 2);
}

#[tokio::test]
async fn hashes_of_the_same_text_differ_between_projects() {
    let service = Service::open().await;
    for project in ["a", "b"] {
        service.put(&format!("/v1/projects/{project}"), &json!({"capture": "metadata"})).await.expect(201);
        let body = with(slate(NEEDLE, &["x"]), &json!({"actual_input": "x"}));
        service
            .call(Method::POST, "/v1/suggestions", &[("gleaner-project", project)], Some(&body))
            .await
            .expect(201);
    }
    let sql = "select count(distinct suggestion_hashes), count(distinct actual_input_hash), count(distinct request_hash),
                   count(*) from suggestions";
    let counts: (i64, i64, i64, i64) =
        sqlx::query_as(sql).fetch_one(&mut service.connection().await).await.expect("counts");
    assert_eq!(counts, (2, 2, 2, 2));
}

#[tokio::test]
async fn of_searches_transcripts_and_hooks_all_is_kept_or_nothing() {
    let service = Service::open().await;
    let (search, of) = (Uuid::from_u128(1), "/v1/searches/00000000-0000-0000-0000-000000000001");
    let new = json!({"id": search, "query": "needle", "agent_session_id": "needle", "results": [{"path": "needle.rs"}]});
    let fallback = json!({"kind": "read", "path": "needle.rs"});
    let line = json!({"type": "user", "sessionId": "needle", "uuid": "u", "timestamp": "2025-01-01T00:00:00Z",
        "message": {"role": "user", "content": "needle"}});
    let hook = json!({"session_id": "needle", "hook_event_name": "PostToolUse", "tool_name": "Read",
        "tool_input": {"file_path": "needle.rs"}, "tool_use_id": "needle"});
    for kept in [json!("off"), json!("metadata"), json!({"searches": "metadata"})] {
        capture(&service, kept.clone()).await;
        for (path, body) in [
            ("/v1/searches", &new),
            (&format!("{of}/fallbacks"), &fallback),
            (&format!("{of}/resolve"), &json!({})),
            ("/v1/associations/00000000-0000-0000-0000-000000000001/feedback", &json!({"verdict": "useful"})),
            ("/v1/associations/gone", &json!({"path": "needle.rs"})),
        ] {
            assert_eq!(service.post(path, body).await.expect(204), json!(null), "{kept} {path}");
        }
        let transcripts = "/v1/transcripts?agent=claude-code&source=s";
        service.post_text(transcripts, "application/x-ndjson", line.to_string()).await.expect(204);
        assert_eq!(service.post("/v1/hooks/claude-code", &hook).await.expect(200), json!({}));
        let event = with(new.clone(), &json!({"event": "search"}));
        let summary = json!({"accepted": 0, "duplicates": 0, "skipped": 1, "rejected": []});
        assert_eq!(service.events(&[event]).await.expect(200), summary);
        assert!(!service.dump().await.contains("needle"), "{kept}");
    }
    capture(&service, json!("full")).await;
    service.post("/v1/searches", &new).await.expect(201);
    assert!(service.dump().await.contains("needle"));
}
