//! Rates and quotas: off unless they are set, for a key and for a project.

use std::io::Write as _;
use std::ops::Range;

use axum::body::Body;
use axum::http::Method;
use flate2::Compression;
use flate2::write::GzEncoder;
use futures_util::future::join_all;
use serde_json::{Value, json};

use super::{LOGS, call, log, make};
use crate::support::{Answer, Service, eventually, request};

/// A service with the projects `a` and `b`, and a key for each.
async fn two_projects(quotas: Value) -> (Service, String, [String; 2]) {
    let (service, operator) = Service::closed().await;
    for (project, settings) in [("a", json!({"quotas": quotas})), ("b", json!({}))] {
        let path = format!("/v1/projects/{project}");
        call(&service, &operator, Method::PUT, &path, Some(settings)).await.expect(201);
    }
    let scopes = json!(["write", "read", "admin"]);
    let (a, _) = make(&service, &operator, json!({"project": "a", "scopes": scopes})).await;
    let (b, _) = make(&service, &operator, json!({"project": "b", "scopes": scopes})).await;
    (service, operator, [a, b])
}

/// How many of so many requests at once are refused because of this rate.
async fn refused(service: &Service, key: &str, policy: &str) -> usize {
    let answers = join_all((0..60).map(|_| call(service, key, Method::GET, LOGS, None))).await;
    let mut refused = 0;
    for answer in answers {
        if answer.status == 200 {
            continue;
        }
        refused += 1;
        assert_eq!(answer.header("retry-after"), Some("1"));
        assert_eq!(answer.header("ratelimit-policy"), Some(format!("\"{policy}\";q=2;w=1").as_str()));
        assert_eq!(answer.header("ratelimit"), Some(format!("\"{policy}\";r=0;t=1").as_str()));
        let problem = answer.refused(429, &[]);
        assert_eq!(problem["type"], "/problems/too-many-requests");
    }
    refused
}

#[tokio::test]
async fn a_project_that_asks_more_often_than_it_may_is_told_when_to_come_back_and_others_go_on() {
    let (service, _, [a, b]) = two_projects(json!({"requests_per_second": 2})).await;
    assert!(refused(&service, &a, "project").await > 0);
    assert_eq!(refused(&service, &b, "project").await, 0);
}

#[tokio::test]
async fn a_key_has_a_rate_of_its_own() {
    let (service, operator, [a, _]) = two_projects(json!({})).await;
    let limited = json!({"project": "a", "requests_per_second": 2});
    let (key, id) = make(&service, &operator, limited).await;
    assert!(refused(&service, &key, "key").await > 0);
    assert_eq!(refused(&service, &a, "key").await, 0);
    let path = format!("/v1/keys/{id}/rotate");
    let rotated = call(&service, &operator, Method::POST, &path, Some(json!({}))).await.expect(201);
    assert_eq!(rotated["requests_per_second"], 2);
    let wrong = json!({"name": "k", "scopes": ["read"], "requests_per_second": 0});
    call(&service, &operator, Method::POST, "/v1/keys", Some(wrong))
        .await
        .refused(422, &["/requests_per_second"]);
}

#[tokio::test]
async fn a_project_that_has_sent_its_bytes_of_the_day_writes_no_more() {
    let (service, operator, [a, b]) = two_projects(json!({"bytes_per_day": 300})).await;
    let post = async |key: &str| {
        let body = json!({"user_intent": "x".repeat(200), "domain_name": "cbu"});
        call(&service, key, Method::POST, LOGS, Some(body)).await
    };
    post(&a).await.expect(201);
    post(&a).await.expect(201);
    let answer = post(&a).await;
    assert_eq!(answer.header("ratelimit-policy"), Some("\"bytes\";q=300;w=86400"));
    let seconds: u32 = answer.header("retry-after").and_then(|text| text.parse().ok()).expect("seconds");
    assert!((1..=86_400).contains(&seconds));
    answer.refused(429, &[]);
    let batch = service
        .call(Method::POST, "/v1/events", &[("authorization", &format!("Bearer {a}"))], Some(&json!([])))
        .await;
    batch.refused(429, &[]);
    call(&service, &a, Method::GET, LOGS, None).await.expect(200);
    post(&b).await.expect(201);
    let settings = json!({"quotas": {"bytes_per_day": 100_000}});
    call(&service, &operator, Method::PUT, "/v1/projects/a", Some(settings)).await.expect(200);
    post(&a).await.expect(201);
}

#[tokio::test]
async fn a_project_that_has_its_records_writes_no_more_until_some_are_erased() {
    let (service, operator, [a, b]) = two_projects(json!({})).await;
    for _ in 0..3 {
        call(&service, &a, Method::POST, LOGS, Some(log())).await.expect(201);
    }
    let settings = json!({"quotas": {"rows": 3}});
    call(&service, &operator, Method::PUT, "/v1/projects/a", Some(settings)).await.expect(200);
    let answer = call(&service, &a, Method::POST, LOGS, Some(log())).await;
    assert_eq!(answer.header("ratelimit-policy"), Some("\"rows\";q=3;w=5"));
    answer.refused(429, &[]);
    call(&service, &a, Method::GET, LOGS, None).await.expect(200);
    call(&service, &a, Method::DELETE, "/v1/records?before=2999-01-01T00:00:00Z", None).await.expect(200);
    call(&service, &b, Method::POST, LOGS, Some(log())).await.expect(201);
}

#[tokio::test]
async fn what_was_begun_is_ended_and_changed_where_a_quota_has_no_room_for_more_records() {
    let (service, operator, [a, _]) = two_projects(json!({})).await;
    let post = async |path: &str, body: Value| call(&service, &a, Method::POST, path, Some(body)).await;
    let id = async |path: &str, body: Value| {
        let created = post(path, body).await.expect(201);
        created["id"].as_str().expect("an id").to_owned()
    };
    let [first, second] = [id(LOGS, log()).await, id(LOGS, log()).await];
    let slate = id("/v1/suggestions", json!({"context": {}, "suggestions": ["a", "b"]})).await;
    let pair = json!({"user_text": "question", "assistant_text": "answer", "model": "m"});
    let pair = id("/v1/pairs", pair).await;
    let settings = json!({"quotas": {"rows": 1}});
    call(&service, &operator, Method::PUT, "/v1/projects/a", Some(settings)).await.expect(200);
    post(LOGS, log()).await.refused(429, &[]);

    post(&format!("{LOGS}/{first}/attempts"), json!({"extracted_dsl": "(x)"})).await.expect(201);
    post(&format!("{LOGS}/{first}/finalize"), json!({"success": false})).await.expect(200);
    post(&format!("/v1/suggestions/{slate}/finalize"), json!({"actual_input": "b"})).await.expect(200);
    let star = Some(json!({"star": 1}));
    call(&service, &a, Method::PATCH, &format!("/v1/pairs/{pair}"), star).await.expect(200);
    let outcome = json!({"event": "generation_outcome", "generation_id": second, "success": false});
    let mut new = log();
    new["event"] = json!("generation");
    let summary = post("/v1/events", json!([outcome, new])).await.expect(200);
    assert_eq!(summary["accepted"], 1);
    assert_eq!(
        (&summary["rejected"][0]["line"], &summary["rejected"][0]["status"]),
        (&json!(2), &json!(429))
    );
}

#[tokio::test]
async fn what_is_sent_again_or_replaces_others_needs_no_room_for_more_records() {
    let (service, operator, [a, b]) = two_projects(json!({})).await;
    let call = async |method, path: &str, body: Value| call(&service, &a, method, path, Some(body)).await;
    let id = |n: u8| format!("00000000-0000-4000-8000-0000000000{n:02x}");
    let with_id = |n: u8, mut body: Value| {
        body["id"] = json!(id(n));
        body
    };
    let pair = json!({"user_text": "question", "assistant_text": "answer", "model": "m"});
    let send = json!({"mode": "record", "user_text": "question", "model": "gpt-4o", "pairs": []});
    let file = |pieces: usize| {
        let chunk = |n: usize| json!({"content": format!("fn f{n}() {{}}")});
        json!({"root": "/app", "path": "a.rs", "chunks": (0..pieces).map(chunk).collect::<Vec<_>>()})
    };
    let records = [
        (LOGS, with_id(1, log())),
        ("/v1/suggestions", with_id(2, json!({"context": {}, "suggestions": ["a", "b"]}))),
        ("/v1/searches", with_id(3, json!({"query": "word", "result_count": 0, "agent_session_id": "s"}))),
        ("/v1/pairs", with_id(4, pair)),
        ("/v1/sends", with_id(5, send.clone())),
        ("/v1/memories", with_id(6, json!({"content": "text"}))),
        ("/v1/conversations/s/queries", with_id(7, json!({"query": "text"}))),
    ];
    call(Method::PUT, "/v1/models/gpt-4o", json!({"context_window": 1_000})).await.expect(201);
    for (path, body) in &records {
        call(Method::POST, path, body.clone()).await.expect(201);
    }
    call(Method::PUT, "/v1/memories/code", file(3)).await.expect(200);
    let settings = json!({"quotas": {"rows": 10}});
    super::call(&service, &operator, Method::PUT, "/v1/projects/a", Some(settings)).await.expect(200);

    call(Method::POST, LOGS, log()).await.refused(429, &[]);
    let of_another = with_id(9, log());
    super::call(&service, &b, Method::POST, LOGS, Some(of_another.clone())).await.expect(201);
    call(Method::POST, LOGS, of_another).await.refused(429, &[]);
    for (path, body) in &records {
        call(Method::POST, path, body.clone()).await.expect(200);
    }
    let line = |n: u8| {
        let mut line = with_id(n, log());
        line["event"] = json!("generation");
        line
    };
    let summary = call(Method::POST, "/v1/events", json!([line(1), line(8)])).await.expect(200);
    assert_eq!(json!([summary["duplicates"], summary["rejected"][0]["line"]]), json!([1, 2]));
    call(Method::PUT, "/v1/memories/code", file(4)).await.refused(429, &[]);
    call(Method::PUT, "/v1/memories/code", file(2)).await.expect(200);
    let address = format!("/v1/sends/{}", id(5));
    let failure = json!({"error": {"message": "connect ECONNREFUSED"}});
    call(Method::POST, &format!("{address}/finalize"), failure).await.expect(200);
    let mut again = send;
    again["reask_of"] = call(Method::GET, &address, Value::Null).await.expect(200)["pair_id"].clone();
    call(Method::POST, "/v1/sends", again).await.expect(201);
}

#[tokio::test]
async fn a_batch_stores_no_more_records_than_a_quota_has_room_for() {
    let (service, _, [a, _]) = two_projects(json!({"rows": 10})).await;
    let line = |n: usize| json!({"event": "generation", "user_intent": format!("i{n}"), "domain_name": "d"});
    let batch = json!((0..7).map(line).collect::<Vec<_>>());
    let batches = (0..3).map(|_| call(&service, &a, Method::POST, "/v1/events", Some(batch.clone())));
    let mut accepted = 0;
    for answer in join_all(batches).await {
        if answer.status == 429 {
            continue;
        }
        let summary = answer.expect(200);
        accepted += summary["accepted"].as_u64().expect("a count");
        for rejected in summary["rejected"].as_array().expect("rejected") {
            assert_eq!(rejected["status"], 429);
        }
    }
    let sql = "select count(*) from generations";
    let stored: i64 = sqlx::query_scalar(sql).fetch_one(service.pool()).await.expect("a count");
    assert_eq!((accepted, stored), (10, 10));
}

/// Sends the prompts with these numbers as lines of a transcript.
async fn send_prompts(service: &Service, key: &str, numbers: Range<usize>) -> Answer {
    let line = |number: usize| {
        let message = json!({"role": "user", "content": format!("prompt {number}")});
        json!({"type": "user", "sessionId": "s", "cwd": "/app", "timestamp": "2026-03-01T10:00:00Z", "message": message})
            .to_string()
            + "\n"
    };
    let request = request(Method::POST, "/v1/transcripts?agent=claude-code&source=s")
        .header("authorization", format!("Bearer {key}"))
        .header("content-type", "application/x-ndjson");
    let lines: String = numbers.map(line).collect();
    service.send(request.body(Body::from(lines)).expect("a request")).await
}

#[tokio::test]
async fn queries_of_conversations_and_transcripts_count_as_records_too() {
    let (service, _, [a, _]) = two_projects(json!({"rows": 10})).await;
    let line = |n: usize| json!({"event": "conversation_query", "session_id": "s", "query": format!("q{n}")});
    let batch = json!((0..12).map(line).collect::<Vec<_>>());
    let summary = call(&service, &a, Method::POST, "/v1/events", Some(batch)).await.expect(200);
    assert_eq!(json!([summary["accepted"], summary["rejected"].as_array().map(Vec::len)]), json!([10, 2]));
    let (service, _, [a, _]) = two_projects(json!({"rows": 10})).await;
    for number in 0..10 {
        send_prompts(&service, &a, number..number + 1).await.expect(200);
    }
    send_prompts(&service, &a, 10..11).await.refused(429, &[]);
    send_prompts(&service, &a, 9..10).await.expect(200);
}

#[tokio::test]
async fn a_transcript_stores_no_more_queries_than_a_quota_has_room_for() {
    let (service, _, [a, _]) = two_projects(json!({"rows": 10})).await;
    send_prompts(&service, &a, 0..7).await.expect(200);
    send_prompts(&service, &a, 0..11).await.refused(429, &[]);
    send_prompts(&service, &a, 0..10).await.expect(200);
    let sql = "select count(*) from conversation_queries";
    let stored: i64 = sqlx::query_scalar(sql).fetch_one(service.pool()).await.expect("a count");
    assert_eq!(stored, 10);
}

#[tokio::test]
async fn searches_for_memories_that_are_recorded_count_as_records_too() {
    let (service, _, [a, _]) = two_projects(json!({"rows": 2})).await;
    let path = "/v1/memories/search?query=word&session_id=s";
    for _ in 0..2 {
        call(&service, &a, Method::GET, path, None).await.expect(200);
    }
    call(&service, &a, Method::GET, path, None).await.refused(429, &[]);
    // Nor do many at once wait for each other.
    for answer in join_all((0..30).map(|_| call(&service, &a, Method::GET, path, None))).await {
        answer.refused(429, &[]);
    }
    call(&service, &a, Method::GET, "/v1/memories/search?query=word", None).await.expect(200);
}

#[tokio::test]
async fn of_the_reports_of_hooks_a_quota_refuses_only_what_adds_records() {
    let (service, _, [a, _]) = two_projects(json!({"rows": 3})).await;
    let hook = async |tool: &str, id: &str, input: Value, response: Value| {
        let report = json!({
            "hook_event_name": "PostToolUse", "session_id": "s", "cwd": "/app", "tool_name": tool,
            "tool_use_id": id, "tool_input": input, "tool_response": response,
        });
        call(&service, &a, Method::POST, "/v1/hooks/claude-code", Some(report)).await.expect(200);
    };
    for number in 0..6 {
        let (id, pattern) = (format!("t{number}"), json!({"pattern": format!("word{number}")}));
        let nothing = json!({"mode": "files_with_matches", "filenames": [], "numFiles": 0});
        hook("Grep", &id, pattern, nothing).await;
    }
    let file =
        json!({"filePath": "/app/a.rs", "content": "word", "numLines": 1, "startLine": 1, "totalLines": 1});
    hook("Read", "r", json!({"file_path": "/app/a.rs"}), json!({"type": "text", "file": file})).await;
    let count = async |table: &str| {
        let sql = sqlx::AssertSqlSafe(format!("select count(*) from {table}"));
        sqlx::query_scalar::<_, i64>(sql).fetch_one(service.pool()).await.expect("a count")
    };
    eventually("the file that was read is stored", async || count("fallbacks").await > 0).await;
    assert_eq!(count("searches").await, 3);
}

#[tokio::test]
async fn a_body_counts_whether_or_not_it_has_a_length_and_a_type() {
    let (service, _, [a, _]) = two_projects(json!({"bytes_per_day": 1_000})).await;
    let hook = json!({"hook_event_name": "UserPromptSubmit", "session_id": "s", "cwd": "/app", "prompt": "x".repeat(2_000)});
    let send = async || {
        let body = futures_util::stream::iter([Ok::<_, std::io::Error>(hook.to_string())]);
        let request =
            request(Method::POST, "/v1/hooks/claude-code").header("authorization", format!("Bearer {a}"));
        service.send(request.body(Body::from_stream(body)).expect("a request")).await
    };
    send().await.expect(200);
    send().await.refused(429, &[]);
}

#[tokio::test]
async fn a_packed_body_counts_although_its_length_is_that_of_the_packed_one() {
    let (service, _, [a, _]) = two_projects(json!({"bytes_per_day": 1_000})).await;
    let mut random = fastrand::Rng::with_seed(1);
    let intent: String = (0..2_000).map(|_| random.alphanumeric()).collect();
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder
        .write_all(json!({"user_intent": intent, "domain_name": "d"}).to_string().as_bytes())
        .expect("packs");
    let packed = encoder.finish().expect("packs");
    let send = async || {
        let request = request(Method::POST, LOGS)
            .header("authorization", format!("Bearer {a}"))
            .header("content-type", "application/json")
            .header("content-encoding", "gzip")
            .header("content-length", packed.len());
        service.send(request.body(Body::from(packed.clone())).expect("a request")).await
    };
    send().await.expect(201);
    send().await.refused(429, &[]);
}
