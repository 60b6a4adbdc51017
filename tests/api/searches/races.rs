//! Requests that change the same searches and files at the same time.

use serde_json::json;
use sqlx::{Connection as _, Executor as _};
use uuid::Uuid;

use super::{associations, find, read, weak};
use crate::support::{Service, with};

#[tokio::test]
async fn a_search_whose_id_another_session_has_just_used_is_refused() {
    const OTHER: &str = "
        insert into searches (project, id, thread_id, query, result_count, timestamp, state, request_hash)
        values ('default', $1, $1, 'other', 0, now(), 'strong', '')";
    let service = Service::open().await;
    let id = Uuid::from_u128(1);
    let mut connection = service.connection().await;
    let mut other = connection.begin().await.expect("begins");
    sqlx::query(OTHER).bind(id).execute(&mut *other).await.expect("inserts");
    let body = with(weak("login button", 0), &json!({"id": id}));
    let posted = service.post("/v1/searches", &body);
    let first = async {
        service.blocked(1).await;
        other.commit().await.expect("ends");
    };
    let (answer, ()) = tokio::join!(posted, first);
    answer.refused(409, &[]);
    assert_eq!(service.get(&format!("/v1/searches/{id}")).await.expect(200)["query"], "other");
}

#[tokio::test]
async fn a_fallback_of_a_search_that_starts_while_it_waits_counts_for_it() {
    let service = Service::open().await;
    let in_session = |number: u128, session: &str| {
        with(weak("login button", 0), &json!({"id": Uuid::from_u128(number), "agent_session_id": session}))
    };
    service.post("/v1/searches", &in_session(1, "one")).await.expect(201);
    let mut connection = service.connection().await;
    let mut other = connection.begin().await.expect("begins");
    other.execute("select from agent_threads for update").await.expect("locks the first thread");
    let fallback = |number: u128| {
        with(read("a.rs", 1), &json!({"event": "fallback", "search_id": Uuid::from_u128(number)}))
    };
    let fallbacks = [fallback(1), fallback(2)];
    let started = async {
        service.blocked(1).await;
        service.post("/v1/searches", &in_session(2, "two")).await.expect(201);
        other.commit().await.expect("ends");
    };
    let (answer, ()) = tokio::join!(service.events(&fallbacks), started);
    assert_eq!(answer.expect(200)["accepted"], 2);
    let threads = "select count(*) from agent_threads where has_open and last_at is not null";
    let open: i64 = sqlx::query_scalar(threads).fetch_one(service.pool()).await.expect("a count");
    let counted = "select count(*) from fallbacks where counts";
    let counted: i64 = sqlx::query_scalar(counted).fetch_one(service.pool()).await.expect("a count");
    assert_eq!((open, counted), (2, 2));
}

#[tokio::test]
async fn a_report_that_a_file_is_gone_does_not_keep_those_from_learning_for_whom_it_waits() {
    let service = Service::open().await;
    find(&service, weak("login button", 0), &["a.rs"]).await;
    let line = |kind: &str, content| {
        json!({"type": kind, "sessionId": "t", "cwd": "/src/app", "timestamp": "2026-03-01T10:00:00Z",
            "message": {"role": kind, "content": [content]}})
    };
    let file = json!({"file_path": "/src/app/a.rs"});
    let used = line("assistant", json!({"type": "tool_use", "id": "u", "name": "Read", "input": file}));
    let answer = line("user", json!({"type": "tool_result", "tool_use_id": "u", "content": "text"}));
    let source = "/v1/transcripts?agent=claude-code&source=t";
    service.post_text(source, "application/x-ndjson", format!("{used}\n{answer}")).await.expect(200);
    let mut connection = service.connection().await;
    let mut other = connection.begin().await.expect("begins");
    other.execute("select from touched_files for update").await.expect("touches the file");
    let file = json!({"root": "/src/app", "path": "a.rs"});
    let reported = service.post("/v1/associations/gone", &file);
    let learned = async {
        service.blocked(1).await;
        other.execute("select from association_feeds for update nowait").await.expect("nobody holds it");
        other.commit().await.expect("ends");
    };
    let (gone, ()) = tokio::join!(reported, learned);
    assert_eq!(gone.expect(200), json!({"gone": 1}));
}

#[tokio::test]
async fn a_report_about_an_association_is_repeated_if_it_loses_a_race() {
    let service = Service::open().await;
    find(&service, weak("login button", 0), &["a.rs"]).await;
    let id = associations(&service, "login button").await[0]["id"].clone();
    let feedback = format!("/v1/associations/{}/feedback", id.as_str().expect("an id"));
    for (path, body) in [
        (feedback.as_str(), json!({"verdict": "useful"})),
        ("/v1/associations/gone", json!({"root": "/src/app", "path": "a.rs"})),
    ] {
        let mut connection = service.connection().await;
        // So that it is the report that finds the deadlock, and loses.
        connection.execute("set deadlock_timeout = '1min'").await.expect("set");
        let mut other = connection.begin().await.expect("begins");
        other.execute("select from associations for update").await.expect("locks");
        let crossed = async {
            // The report holds the feed once it waits for the association.
            service.blocked(1).await;
            other.execute("select from association_feeds for update").await.expect("the report gives way");
            other.commit().await.expect("ends");
        };
        let (answer, ()) = tokio::join!(service.post(path, &body), crossed);
        answer.expect(200);
    }
}
