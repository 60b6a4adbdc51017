//! Retention: what expires, when, with what, and what stays.

use serde_json::{Value, json};
use uuid::Uuid;

use axum::http::Method;
use chrono::TimeDelta;

use super::{Pieces, expire_after, one_of_each, rows, service};
use crate::support::program::Timestamp;
use crate::support::{Service, column, request, with};

const ALL: [&str; 5] = ["generations", "suggestions", "searches", "messages", "memories"];

async fn keep_for(service: &Service, days: Value) {
    service.put("/v1/projects/default", &json!({"retention_days": days})).await.expect(200);
}

#[tokio::test]
async fn a_record_expires_so_many_days_after_it_was_finalized_or_else_created() {
    let service = service().await;
    let log = |n: u128, created_at: &str, success: Value| {
        json!({"event": "generation", "id": Uuid::from_u128(n), "user_intent": "x", "domain_name": "cbu",
            "created_at": created_at, "success": success})
    };
    let far = "2990-01-01T00:00:00Z";
    service
        .accept(&[
            log(1, "2020-01-01T00:00:00Z", json!(false)),
            log(2, "2020-01-01T00:00:00Z", Value::Null),
            log(3, far, json!(false)),
            log(4, far, Value::Null),
        ])
        .await;
    let left = async || {
        let mut ids = column(&service.all("/v1/generations").await, "id");
        ids.sort_by_key(ToString::to_string);
        ids
    };
    let ids = |numbers: &[u128]| numbers.iter().map(|n| json!(Uuid::from_u128(*n))).collect::<Vec<_>>();
    expire_after(&service, 3_000).await;
    assert_eq!(left().await, ids(&[1, 2, 3, 4]), "nobody has asked for retention");
    keep_for(&service, json!({"generations": 30, "suggestions": null})).await;
    expire_after(&service, 29).await;
    assert_eq!(left().await, ids(&[1, 3, 4]));
    expire_after(&service, 31).await;
    assert_eq!(left().await, ids(&[4]));
}

/// Two projects with so many memories each, of which all expire.
async fn two_projects(first: (&str, usize), second: (&str, usize)) -> Service {
    let service = service().await;
    for (project, memories) in [first, second] {
        service.project(project).await;
        let path = format!("/v1/projects/{project}");
        service.put(&path, &json!({"retention_days": {"memories": 1}})).await.expect(200);
        let events: Vec<_> =
            (0..memories).map(|number| json!({"event": "memory", "content": format!("{number}")})).collect();
        let lines: Vec<_> = events.iter().map(Value::to_string).collect();
        let request = request(Method::POST, "/v1/events").header("gleaner-project", project);
        let request = request.header("content-type", "application/x-ndjson").body(lines.join("\n").into());
        service.send(request.expect("a request")).await.expect(200);
    }
    service
}

/// The number of memories that a project has.
async fn memories(service: &Service, project: &str) -> i64 {
    let sql = "select count(*) from memories where project = $1";
    sqlx::query_scalar(sql).bind(project).fetch_one(service.pool()).await.expect("a count")
}

fn in_two_days() -> Timestamp {
    Timestamp::now().plus(TimeDelta::days(2)).expect("a time")
}

#[tokio::test]
async fn projects_take_turns_at_what_expires() {
    let service = two_projects(("a-large-one", 1_100), ("small", 1)).await;
    let mut pieces = Pieces::at(&service, in_two_days());
    let mut taken = 0;
    while memories(&service, "small").await > 0 {
        assert!(pieces.take().await, "it has expired");
        taken += 1;
    }
    assert!(memories(&service, "a-large-one").await > 0, "after {taken} pieces");
    while pieces.take().await {}
    assert_eq!(memories(&service, "a-large-one").await, 0);
}

#[tokio::test]
async fn what_expires_slowly_delays_mostly_its_own_project() {
    const SLOW: &str = "
        create function wait() returns trigger language plpgsql as $$ begin perform pg_sleep(4); return old; end $$;
        create trigger slow before delete on memories for each row when (old.project = 'a-slow-one' and old.content = '0')
            execute function wait()";
    let service = two_projects(("a-slow-one", 300), ("quick", 1_000)).await;
    sqlx::raw_sql(SLOW).execute(service.pool()).await.expect("a trigger");
    let mut pieces = Pieces::at(&service, in_two_days());
    while memories(&service, "quick").await > 0 {
        assert!(pieces.take().await, "it has expired");
    }
    assert_eq!(memories(&service, "a-slow-one").await, 200, "one batch");
}

#[tokio::test]
async fn what_expires_of_a_project_does_not_wait_for_the_many_expired_records_of_another() {
    let service = two_projects(("many", 5_000), ("few", 1)).await;
    let begun = in_two_days();
    let mut pieces = Pieces::at(&service, begun);
    while memories(&service, "few").await > 0 {
        assert!(pieces.take().await, "it has expired");
    }
    let another = json!({"content": "another"});
    let few = [("gleaner-project", "few")];
    service.call(Method::POST, "/v1/memories", &few, Some(&another)).await.expect(201);
    pieces.now = begun.plus(TimeDelta::minutes(1)).expect("a time");
    while memories(&service, "few").await > 0 {
        assert!(pieces.take().await, "it has expired");
    }
    assert!(memories(&service, "many").await > 0);
}

#[tokio::test]
async fn a_pass_that_takes_longer_than_the_pause_before_the_next_one_reaches_every_project() {
    let service = two_projects(("first", 1), ("last", 1)).await;
    let mut pieces = Pieces::at(&service, in_two_days());
    // Each piece takes a minute.
    for _ in 0..3 * ALL.len() {
        pieces.take().await;
        pieces.now = pieces.now.plus(TimeDelta::minutes(1)).expect("a time");
    }
    assert_eq!((memories(&service, "first").await, memories(&service, "last").await), (0, 0));
}

#[tokio::test]
async fn many_expired_records_are_erased_to_the_last_also_in_passes_that_take_long() {
    let service = two_projects(("many", 1_100), ("few", 1)).await;
    let mut pieces = Pieces::at(&service, in_two_days());
    // Each piece takes a minute.
    for _ in 0..1_000 {
        pieces.take().await;
        pieces.now = pieces.now.plus(TimeDelta::minutes(1)).expect("a time");
        if memories(&service, "many").await == 0 {
            return;
        }
    }
    panic!("{} of 1100 are left", memories(&service, "many").await);
}

#[tokio::test]
async fn everything_that_belongs_to_a_record_expires_with_it_and_only_what_was_learned_stays() {
    let service = service().await;
    service.put("/v1/models/m", &json!({"context_window": 1_000_000})).await.expect(201);
    service.accept(&one_of_each(100, "s")).await;
    let line = json!({"type": "user", "sessionId": "t", "timestamp": "2026-03-01T10:00:00Z",
        "message": {"role": "user", "content": "find it"}});
    let path = "/v1/transcripts?agent=claude-code&source=t";
    service.post_text(path, "application/x-ndjson", line.to_string()).await.expect(200);
    let learned = service.get("/v1/associations?query=login+button").await.expect(200);
    assert_eq!(learned["data"][0]["path"], "login.rs");
    let other = json!({"content": "The needle is in the haystack"});
    service.create("/v1/memories", other).await;
    let found =
        service.post("/v1/conversations/s/suggest", &json!({"confidence_threshold": 0})).await.expect(200);
    assert_eq!(found["total_suggestions"], 1);

    keep_for(&service, ALL.map(|domain| (domain, 10)).into_iter().collect::<Value>()).await;
    expire_after(&service, 9).await;
    assert!(service.dump().await.contains("needle"));
    expire_after(&service, 11).await;
    let stay = [
        "_sqlx_migrations",
        "association_changes",
        "association_feeds",
        "association_queries",
        "associations",
        "audit",
    ];
    let tables: Vec<_> = rows(&service).await.into_iter().map(|(table, _)| table).collect();
    let configured = ["model_ratios", "models", "projects"];
    let others: Vec<_> =
        tables.iter().filter(|table| ![&stay[..], &configured].concat().contains(&table.as_str())).collect();
    assert!(others.is_empty(), "{others:?}");
    assert!(!service.dump().await.contains("needle"));

    let kept = service.get("/v1/associations?query=login+button").await.expect(200);
    let weight = |answer: &Value| answer["data"][0]["weight"].as_f64().expect("a weight");
    assert!((weight(&kept) / weight(&learned) - 1.0).abs() < 1e-4, "{kept}");
    assert_eq!(kept["data"][0]["evidence"], 1);
}

#[tokio::test]
async fn erasing_a_session_takes_away_what_it_taught_and_not_what_expired_searches_taught() {
    let service = service().await;
    let search = async |session: &str, at: i64| {
        let search = json!({"query": "login button", "best_score": 0.1, "result_count": 0, "agent_session_id": session,
            "timestamp": at});
        let id = service.create("/v1/searches", search).await;
        let path = format!("/v1/searches/{id}");
        let read = json!({"kind": "read", "path": "login.rs", "timestamp": at + 1});
        service.post(&format!("{path}/fallbacks"), &read).await.expect(201);
        service.post(&format!("{path}/resolve"), &json!({"timestamp": at + 2})).await.expect(200);
    };
    let found = async || {
        let found = service.get("/v1/associations?query=login+button").await.expect(200);
        let weights = column(found["data"].as_array().expect("data"), "weight");
        let evidence = column(found["data"].as_array().expect("data"), "evidence");
        (weights.first().and_then(Value::as_f64), evidence)
    };
    let same = |a: Option<f64>, b: Option<f64>| match (a, b) {
        (Some(a), Some(b)) => assert!((a / b - 1.0).abs() < 1e-4, "{a} {b}"),
        (a, b) => assert_eq!(a, b),
    };
    let day = 86_400;
    let now = chrono::Utc::now().timestamp();
    search("old", now - 20 * day).await;
    let (first, _) = found().await;
    search("older", now - 40 * day).await;
    let (both, evidence) = found().await;
    assert_eq!(evidence, [2]);
    keep_for(&service, json!({"searches": 10})).await;
    expire_after(&service, 11).await;
    assert_eq!(service.all("/v1/searches").await.len(), 0);
    same(found().await.0, both);

    search("new", now - day).await;
    let (all, evidence) = found().await;
    assert!(all > both && evidence == [3]);
    service.delete("/v1/sessions/new").await.expect(200);
    let (left, evidence) = found().await;
    same(left, both);
    assert_eq!(evidence, [2]);
    assert!(first < both);
}

#[tokio::test]
async fn what_one_project_is_writing_delays_the_retention_of_no_other() {
    let service = service().await;
    service.project("busy").await;
    let busy = [("gleaner-project", "busy")];
    let search =
        json!({"query": "login button", "best_score": 0.1, "result_count": 0, "agent_session_id": "s"});
    for headers in [&busy[..], &[]] {
        let answer = service.call(Method::POST, "/v1/searches", headers, Some(&search)).await;
        let path = answer.header("location").expect("a place").to_owned();
        service.call(Method::POST, &format!("{path}/resolve"), headers, Some(&json!({}))).await.expect(200);
    }
    let keep = json!({"retention_days": {"searches": 1}});
    service.call(Method::PUT, "/v1/projects/busy", &busy, Some(&keep)).await.expect(200);
    keep_for(&service, json!({"searches": 1})).await;
    let transcript = service.holding("select from agent_threads where project = 'busy' for update").await;
    expire_after(&service, 3).await;
    let count = async |headers: &[(&str, &str)]| {
        let found = service.call(Method::GET, "/v1/searches", headers, None).await.expect(200);
        found["data"].as_array().map(Vec::len)
    };
    assert_eq!((count(&[]).await, count(&busy).await), (Some(0), Some(1)));
    transcript.commit().await.expect("ends");
    expire_after(&service, 3).await;
    assert_eq!(count(&busy).await, Some(0));
}

#[tokio::test]
async fn what_is_under_way_does_not_expire() {
    let service = service().await;
    service.put("/v1/models/m", &json!({"context_window": 1_000})).await.expect(201);
    let send =
        json!({"event": "send", "id": Uuid::from_u128(1), "mode": "record", "user_text": "x", "model": "m"});
    let search = json!({"event": "search", "id": Uuid::from_u128(2), "query": "login button", "best_score": 0.1,
        "result_count": 0, "agent_session_id": "s"});
    service.accept(&[send, search]).await;
    keep_for(&service, json!({"searches": 1, "messages": 1})).await;
    expire_after(&service, 3).await;
    for (list, count) in [("/v1/sends", 1), ("/v1/pairs", 1), ("/v1/searches", 1)] {
        assert_eq!(service.all(list).await.len(), count, "{list}");
    }
}

#[tokio::test]
async fn memories_and_what_was_asked_suggested_and_judged_expire_each_by_its_own_age() {
    let service = service().await;
    let far = "2990-01-01T00:00:00Z";
    let memory = |n: u128, at: &str| json!({"event": "memory", "id": Uuid::from_u128(n), "content": format!("note {n}"), "created_at": at});
    let asked = |n: u128, at: &str| json!({"event": "conversation_query", "id": Uuid::from_u128(n), "session_id": "s", "query": "note", "at": at});
    let judged = |n: u128| json!({"event": "memory_feedback", "session_id": "s", "memory_id": Uuid::from_u128(n), "verdict": "used"});
    let old = "2020-01-01T00:00:00Z";
    service
        .accept(&[memory(1, old), memory(2, far), asked(3, old), asked(4, far), judged(1), judged(2)])
        .await;
    service.post("/v1/conversations/s/suggest", &json!({"id": Uuid::from_u128(5)})).await.expect(200);
    let left = async || {
        let tables = rows(&service).await.into_iter();
        tables
            .filter(|(table, _)| table.contains("memor") || table.contains("conversation"))
            .collect::<Vec<_>>()
    };
    let counts = |memories, queries, judged, suggests| {
        let all = [
            ("conversation_memories", judged),
            ("conversation_queries", queries),
            ("memories", memories),
            ("memory_suggests", suggests),
        ];
        all.into_iter()
            .filter(|(_, count)| *count > 0)
            .map(|(table, count)| (table.to_owned(), count))
            .collect::<Vec<_>>()
    };
    expire_after(&service, 3_000).await;
    assert_eq!(left().await, counts(2, 2, 2, 1), "nobody has asked for retention");
    keep_for(&service, json!({"memories": 30})).await;
    expire_after(&service, 29).await;
    assert_eq!(left().await, counts(1, 1, 2, 1), "verdicts and suggestions are of today");
    expire_after(&service, 31).await;
    assert_eq!(left().await, counts(1, 1, 0, 0));
    assert_eq!(column(&service.all("/v1/memories").await, "id"), [json!(Uuid::from_u128(2))]);
}

#[tokio::test]
async fn pieces_of_files_do_not_expire_and_are_erased_by_the_age_of_their_files_if_somebody_asks() {
    let service = service().await;
    let piece = json!({"content": "fn a() {}", "created_at": "2020-01-01T00:00:00Z"});
    let file = json!({"root": "/src/app", "path": "a.rs", "chunks": [piece]});
    service.put("/v1/memories/code", &file).await.expect(200);
    // A piece that came by itself is a memory like others.
    service.post("/v1/memories", &with(piece, &json!({"source_type": "code"}))).await.expect(201);
    keep_for(&service, json!({"memories": 30})).await;
    expire_after(&service, 3_000).await;
    assert_eq!(column(&service.all("/v1/memories").await, "file_path"), ["a.rs"]);
    let erased = service.delete("/v1/records?before=2021-01-01T00:00:00Z&domain=memories").await.expect(200);
    assert_eq!(erased["erased"]["memories"], 1, "{erased}");
}
