//! A server beside a newer one, which has added columns to the tables of their database.

use axum::http::Method;
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, Executor as _};
use uuid::Uuid;

use crate::support::program::Settings;
use crate::support::{Answer, Service, settings};

/// Sends one request of most kinds. Returns what was sent, and the statuses of the answers.
async fn requests(service: &Service, number: u128) -> Vec<(String, u16)> {
    let (id, send) = (Uuid::from_u128(number), Uuid::from_u128(number + 100));
    let template = json!({"template_text": number.to_string(), "domain_name": "d"});
    let writes = [
        ("PUT", "/v1/prompt-templates/t".to_owned(), template),
        (
            "POST",
            "/v1/generations".to_owned(),
            json!({"id": id, "user_intent": "Create a fund", "domain_name": "d", "session_id": "s"}),
        ),
        (
            "POST",
            format!("/v1/generations/{id}/attempts"),
            json!({"extracted_dsl": "x", "parse_result": {"success": true}}),
        ),
        ("POST", format!("/v1/generations/{id}/finalize"), json!({"success": true})),
        ("PUT", format!("/v1/generations/{id}/review"), json!({"rating": "good"})),
        ("PATCH", format!("/v1/generations/{id}"), json!({"metadata": {"a": 1}})),
        (
            "POST",
            "/v1/suggestions".to_owned(),
            json!({"id": id, "context": {}, "suggestions": ["a", "b"], "session_name": "s"}),
        ),
        ("POST", format!("/v1/suggestions/{id}/finalize"), json!({"actual_input": "a"})),
        (
            "POST",
            "/v1/searches".to_owned(),
            json!({"id": id, "query": "q", "best_score": 0.2, "agent_session_id": "s"}),
        ),
        ("POST", format!("/v1/searches/{id}/resolve"), json!({})),
        (
            "POST",
            "/v1/memories".to_owned(),
            json!({"id": id, "content": format!("a memory {number}"), "session_id": "s"}),
        ),
        (
            "POST",
            "/v1/pairs".to_owned(),
            json!({"id": id, "user_text": "a", "assistant_text": "b", "topic_id": "t"}),
        ),
        ("PATCH", format!("/v1/pairs/{id}"), json!({"star": 1})),
        ("PUT", "/v1/models/m".to_owned(), json!({"context_window": 1_000})),
        (
            "POST",
            "/v1/sends".to_owned(),
            json!({"id": send, "mode": "record", "user_text": "a", "model": "m"}),
        ),
        (
            "POST",
            format!("/v1/sends/{send}/attempts"),
            json!({"attempt": 1, "error": {"status": 400, "message": "prompt is too long"}}),
        ),
        ("PUT", "/v1/projects/default".to_owned(), json!({})),
    ];
    let kinds = ["generations", "suggestions", "searches", "memories", "pairs"];
    let lists = [
        "models",
        "sends",
        "sessions",
        "topics",
        "audit",
        "keys",
        "prompt-templates",
        "prompt-templates/t",
        "projects/default",
    ];
    let analytics = ["generations", "prompts", "suggestions", "searches", "memories", "messages"]
        .map(|of| format!("analytics/{of}"));
    let exports = [
        "training-pairs",
        "correction-pairs",
        "accepted-suggestions",
        "rankings",
        "search-pairs",
        "conversations",
    ]
    .map(|of| format!("exports/{of}"));
    let reads = kinds
        .iter()
        .flat_map(|kind| [format!("{kind}/{id}"), (*kind).to_owned()])
        .chain(lists.map(str::to_owned))
        .chain([format!("sends/{send}")])
        .chain(analytics)
        .chain(exports)
        .chain(["generations/similar?intent=fund".to_owned()]);
    let reads = reads.map(|path| ("GET", format!("/v1/{path}"), Value::Null));
    let mut statuses = Vec::new();
    for (method, path, body) in writes.into_iter().chain(reads) {
        let method: Method = method.parse().expect("a method");
        let body = (!body.is_null()).then_some(&body);
        let Answer { status, .. } = service.call(method.clone(), &path, &[], body).await;
        statuses.push((
            format!("{method} {}", path.replace(&id.to_string(), "…").replace(&send.to_string(), "…")),
            status.as_u16(),
        ));
    }
    statuses
}

#[tokio::test]
async fn columns_that_a_newer_server_has_added_disturb_no_request() {
    // One connection reads everything.
    let service = Service::with(Settings { connections: 1, ..settings() }).await;
    requests(&service, 0).await;
    let before = requests(&service, 1).await;
    assert!(before.iter().all(|(_, status)| (200..300).contains(status)), "{before:?}");
    // Whatever is stored for a connection is stored now.
    assert_eq!(requests(&service, 2).await, before);
    let tables: Vec<String> =
        sqlx::query_scalar("select tablename::text from pg_tables where schemaname = current_schema()")
            .fetch_all(service.pool())
            .await
            .expect("the tables");
    for table in tables {
        let sql = format!("alter table \"{table}\" add column later text");
        service.pool().execute(AssertSqlSafe(sql)).await.expect("a column");
    }
    assert_eq!(requests(&service, 3).await, before);
}
