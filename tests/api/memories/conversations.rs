//! Conversations: what is asked in them, and what a memory was worth there.

use axum::http::Method;
use serde_json::json;
use uuid::Uuid;

use super::{ask, notes, suggest};
use crate::support::{Service, assert_whole, with};

#[tokio::test]
async fn a_conversation_shows_what_was_asked_shown_and_judged() {
    let service = Service::open().await;
    let memory = service.create("/v1/memories", json!({"id": Uuid::from_u128(1), "content": "x"})).await;
    let query = json!({"id": Uuid::from_u128(2), "query": "Why 401?", "shown": [Uuid::from_u128(1), Uuid::from_u128(7)],
        "root": "/app/", "at": "2026-03-01T12:00:00Z"});
    let path = "/v1/conversations/team%2Fs%201";
    let made = service.post(&format!("{path}/queries"), &query).await;
    assert_eq!(made.header("location"), Some(path));
    let made = made.expect(201);
    assert_eq!(service.post(&format!("{path}/queries"), &query).await.expect(200), made);
    service
        .post(&format!("{path}/queries"), &with(query.clone(), &json!({"root": null})))
        .await
        .refused(409, &[]);
    service.post("/v1/conversations/other/queries", &query).await.refused(409, &[]);
    let earlier =
        json!({"id": Uuid::from_u128(3), "query": "How do I log in?", "at": "2026-03-01T11:00:00Z"});
    service.post(&format!("{path}/queries"), &earlier).await.expect(201);
    for verdict in ["used", "dismissed", "dismissed"] {
        let feedback = json!({"memory_id": memory, "verdict": verdict});
        let judged = service.post(&format!("{path}/feedback"), &feedback).await.expect(200);
        assert_eq!(judged["verdict"], verdict);
    }
    assert_whole!("a_conversation", service.get(path).await.expect(200));
}

#[tokio::test]
async fn an_idempotency_key_names_one_query_in_each_conversation() {
    let service = Service::open().await;
    let ask = async |session: &str| {
        let path = format!("/v1/conversations/{session}/queries");
        let body = json!({"query": "Why 401?"});
        service.call(Method::POST, &path, &[("idempotency-key", "k")], Some(&body)).await
    };
    let [one, two] = [ask("one").await.expect(201), ask("two").await.expect(201)];
    assert_ne!(one["id"], two["id"]);
    assert_eq!(ask("one").await.expect(200), one);
}

#[tokio::test]
async fn a_conversation_that_nobody_began_is_not_there_and_an_unknown_memory_cannot_be_judged() {
    let service = Service::open().await;
    service.get("/v1/conversations/s").await.refused(404, &[]);
    let feedback = json!({"memory_id": Uuid::from_u128(1), "verdict": "used"});
    service.post("/v1/conversations/s/feedback", &feedback).await.refused(404, &[]);
    service.get("/v1/conversations/s").await.refused(404, &[]);
}

#[tokio::test]
async fn what_no_query_and_no_verdict_can_be_is_refused_by_its_field() {
    let service = Service::open().await;
    for (body, pointers) in [
        (json!({}), vec!["/query"]),
        (json!({"query": ""}), vec!["/query"]),
        (json!({"query": "x", "shown": ["mem_123"]}), vec!["/shown/0"]),
        (json!({"query": "x", "session_id": "s"}), vec!["/session_id"]),
    ] {
        service.post("/v1/conversations/s/queries", &body).await.refused(422, &pointers);
    }
    let long = format!("/v1/conversations/{}/queries", "x".repeat(201));
    service.post(&long, &json!({"query": "x"})).await.refused(422, &["/session_id"]);
    let feedback = json!({"memory_id": Uuid::from_u128(1), "verdict": "good"});
    service.post("/v1/conversations/s/feedback", &feedback).await.refused(422, &["/verdict"]);
}

#[tokio::test]
async fn a_query_with_the_id_of_one_in_another_conversation_is_a_conflict_in_the_same_batch_too() {
    let service = Service::open().await;
    let line = |session: &str| json!({"event": "conversation_query", "session_id": session, "id": Uuid::from_u128(7), "query": "Why 401?"});
    let summary = service.events(&[line("one"), line("two"), line("one")]).await.expect(200);
    assert_eq!(json!([summary["accepted"], summary["duplicates"]]), json!([1, 1]));
    let rejected = &summary["rejected"];
    assert_eq!(
        json!([rejected.as_array().map(Vec::len), rejected[0]["line"], rejected[0]["status"]]),
        json!([1, 2, 409])
    );
    service.get("/v1/conversations/one").await.expect(200);
    service.get("/v1/conversations/two").await.refused(404, &[]);
}

/// The words that are stored with what was suggested.
async fn words(service: &Service) -> String {
    let sql = "select string_agg(a.search_query || a.keywords::text || coalesce(m.reason, ''), '') from memory_suggests a
        left join conversation_memories m on m.suggest_id = a.id";
    let words: String = sqlx::query_scalar(sql).fetch_one(service.pool()).await.expect("what was suggested");
    words.replace("[]", "")
}

#[tokio::test]
async fn an_erased_query_leaves_no_word_in_what_was_suggested_since_and_its_id_stands_for_nothing() {
    let service = Service::open().await;
    notes(&service).await;
    let query = |text: &str| json!({"id": Uuid::from_u128(20), "query": text});
    let path = "/v1/conversations/s/queries";
    service.post(path, &query("Why does AuthMiddleware refuse my JWT?")).await.expect(201);
    ask(&service, "s", "and so?").await;
    let found = suggest(&service, "s", &json!({"confidence_threshold": 0})).await;
    assert!(
        found["suggestions"][0]["reason"].as_str().is_some_and(|reason| reason.contains("AuthMiddleware"))
    );
    service.post(path, &json!({"query": "Which port does staging use?"})).await.expect(201);
    service.delete(&format!("/v1/records/{}", Uuid::from_u128(20))).await.expect(200);
    assert_eq!(words(&service).await, "");
}

#[tokio::test]
async fn a_query_that_is_erased_for_its_age_leaves_no_word_either() {
    let service = Service::open().await;
    notes(&service).await;
    let query = json!({"query": "Why does AuthMiddleware refuse my JWT?", "at": "2025-01-01T00:00:00Z", "suggest": true});
    service.post("/v1/conversations/s/queries", &query).await.expect(201);
    assert!(words(&service).await.contains("AuthMiddleware"));
    let erased = service.delete("/v1/records?before=2026-01-01T00:00:00Z").await.expect(200);
    assert_eq!(erased["erased"]["queries"], 1);
    assert_eq!(words(&service).await, "");
}

#[tokio::test]
async fn a_query_that_is_erased_while_something_is_suggested_for_it_leaves_no_word_either() {
    for (held, is_erased_first) in [
        ("lock table memory_suggests in exclusive mode", false),
        ("lock table conversation_queries in exclusive mode", true),
    ] {
        let service = Service::open().await;
        notes(&service).await;
        let query = json!({"id": Uuid::from_u128(20), "query": "Why does AuthMiddleware refuse my JWT?"});
        service.post("/v1/conversations/s/queries", &query).await.expect(201);
        let held = service.holding(held).await;
        let path = format!("/v1/records/{}", Uuid::from_u128(20));
        let asked = async {
            service.blocked(is_erased_first.into()).await;
            suggest(&service, "s", &json!({"confidence_threshold": 0})).await
        };
        let erased = async {
            service.blocked((!is_erased_first).into()).await;
            service.delete(&path).await
        };
        let released = async {
            service.blocked(2).await;
            held.commit().await.expect("released");
        };
        let (found, erased, ()) = futures_util::join!(asked, erased, released);
        assert_eq!((found["suggestions"].is_array(), &erased.expect(200)["queries"]), (true, &json!(1)));
        assert_eq!(words(&service).await, "", "{is_erased_first}");
    }
}

#[tokio::test]
async fn a_query_with_the_id_of_an_erased_one_is_not_beside_its_verdicts() {
    let service = Service::open().await;
    notes(&service).await;
    let query = |text: &str| json!({"id": Uuid::from_u128(20), "query": text});
    let path = "/v1/conversations/s/queries";
    service.post(path, &query("Why does AuthMiddleware refuse my JWT?")).await.expect(201);
    suggest(&service, "s", &json!({"confidence_threshold": 0})).await;
    let verdict = json!({"memory_id": Uuid::from_u128(1), "verdict": "used"});
    service.post("/v1/conversations/s/feedback", &verdict).await.expect(200);
    let rows = async || service.get("/v1/exports/memory-suggestions?format=raw").await.rows().len();
    assert_eq!(rows().await, 1);
    service.delete(&format!("/v1/records/{}", Uuid::from_u128(20))).await.expect(200);
    service.post(path, &query("What is for lunch?")).await.expect(201);
    assert_eq!(rows().await, 0);
}
