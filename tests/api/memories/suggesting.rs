//! Suggestions: what comes, what does not, and what is remembered of it.

use axum::http::Method;
use serde_json::{Value, json};
use sqlx::{Connection as _, Executor as _};
use uuid::Uuid;

use super::{ask, notes, suggest};
use crate::support::{Service, assert_whole, column};

#[tokio::test]
async fn what_a_conversation_is_about_is_suggested_with_a_reason_and_once_only() {
    let service = Service::open().await;
    notes(&service).await;
    ask(&service, "s", "Why does AuthMiddleware refuse my JWT?").await;
    let found = suggest(&service, "s", &json!({"confidence_threshold": 0, "id": Uuid::from_u128(50)})).await;
    let best = &found["suggestions"][0];
    assert_eq!(best["memory_id"], json!(Uuid::from_u128(1)));
    let reason = best["reason"].as_str().expect("a reason");
    assert!(
        reason.starts_with(
            "It mentions `AuthMiddleware`, `refuse` and `JWT`, which the last question is about, and was stored "
        ),
        "{reason}"
    );
    let ids = |answer: &Value| column(answer["suggestions"].as_array().expect("a list"), "memory_id");
    let confidences: Vec<_> = column(found["suggestions"].as_array().expect("a list"), "confidence")
        .iter()
        .map(|value| value.as_f64().expect("a number"))
        .collect();
    assert!(confidences.is_sorted_by(|a, b| a >= b), "{confidences:?}");
    assert_eq!(found["total_suggestions"], ids(&found).len());
    assert_eq!(found["suggest_id"], json!(Uuid::from_u128(50)));

    // The same request has the same answer; another one has none of these again.
    let again = suggest(&service, "s", &json!({"confidence_threshold": 0, "id": Uuid::from_u128(50)})).await;
    assert_eq!(again, found);
    let other = json!({"confidence_threshold": 0.5, "id": Uuid::from_u128(50)});
    service.post("/v1/conversations/s/suggest", &other).await.refused(409, &[]);
    let next = suggest(&service, "s", &json!({"confidence_threshold": 0})).await;
    assert!(ids(&next).iter().all(|id| !ids(&found).contains(id)), "{next}");
    // In another conversation it comes again.
    ask(&service, "t", "Why does AuthMiddleware refuse my JWT?").await;
    let there = suggest(&service, "t", &json!({"confidence_threshold": 0})).await;
    assert_eq!(there["suggestions"][0]["memory_id"], json!(Uuid::from_u128(1)));
}

#[tokio::test]
async fn an_unknown_conversation_and_one_without_words_have_no_suggestions() {
    let service = Service::open().await;
    notes(&service).await;
    let nothing = json!({"suggestions": [], "total_suggestions": 0, "confidence_threshold": 0.85, "suggest_id": null,
        "detected_intent": {"intent_type": "unknown", "keywords": [], "confidence": 0.0, "search_query": ""}});
    assert_eq!(suggest(&service, "s", &json!({})).await, nothing);
    service.get("/v1/conversations/s").await.refused(404, &[]);
    ask(&service, "s", "and so?").await;
    let found = suggest(&service, "s", &json!({"confidence_threshold": 0})).await;
    assert_eq!((&found["suggestions"], &found["detected_intent"]["keywords"]), (&json!([]), &json!([])));
}

#[tokio::test]
async fn a_verdict_is_about_what_a_memory_says_and_not_about_what_it_is_changed_to() {
    let service = Service::open().await;
    notes(&service).await;
    ask(&service, "s", "Why does AuthMiddleware refuse my JWT?").await;
    let confidence = async || {
        let found = suggest(&service, "s", &json!({"confidence_threshold": 0, "peek": true})).await;
        let first = &found["suggestions"][0];
        assert_eq!(first["memory_id"], json!(Uuid::from_u128(1)));
        first["confidence"].as_f64().expect("a number")
    };
    let before = confidence().await;
    for session in ["a", "b", "c"] {
        let verdict = json!({"memory_id": Uuid::from_u128(1), "verdict": "dismissed"});
        service.post(&format!("/v1/conversations/{session}/feedback"), &verdict).await.expect(200);
    }
    assert!(confidence().await < before);
    let path = format!("/v1/memories/{}", Uuid::from_u128(1));
    let content = service.get(&path).await.expect(200)["content"].clone();
    for content in [json!("It is about something else."), content] {
        service.patch(&path, &json!({"content": content})).await.expect(200);
    }
    assert!((confidence().await - before).abs() < 1e-3);
}

#[tokio::test]
async fn what_was_shown_or_dismissed_does_not_come_in_that_conversation() {
    let service = Service::open().await;
    notes(&service).await;
    let query = json!({"query": "Why does AuthMiddleware refuse my JWT?", "shown": [Uuid::from_u128(1)]});
    service.post("/v1/conversations/s/queries", &query).await.expect(201);
    let dismissed = json!({"memory_id": Uuid::from_u128(2), "verdict": "dismissed"});
    service.post("/v1/conversations/s/feedback", &dismissed).await.expect(200);
    let found = suggest(&service, "s", &json!({"confidence_threshold": 0})).await;
    let ids = column(found["suggestions"].as_array().expect("a list"), "memory_id");
    assert!(
        !ids.contains(&json!(Uuid::from_u128(1))) && !ids.contains(&json!(Uuid::from_u128(2))),
        "{ids:?}"
    );
}

#[tokio::test]
async fn a_verdict_weighs_in_other_conversations() {
    let service = Service::open().await;
    notes(&service).await;
    let confidence = async |session: &str| {
        ask(&service, session, "Why does AuthMiddleware refuse my JWT?").await;
        let found = suggest(&service, session, &json!({"confidence_threshold": 0, "peek": true})).await;
        let found = found["suggestions"].as_array().expect("a list").clone();
        let it =
            found.into_iter().find(|it| it["memory_id"] == json!(Uuid::from_u128(1))).expect("it is found");
        it["confidence"].as_f64().expect("a number")
    };
    let before = confidence("a").await;
    assert!((confidence("b").await - before).abs() < 1e-9, "who only looks changes nothing");
    let judge = async |verdict: &str| {
        let verdict = json!({"memory_id": Uuid::from_u128(1), "verdict": verdict});
        service.post("/v1/conversations/b/feedback", &verdict).await.expect(200);
    };
    judge("dismissed").await;
    assert!(confidence("c").await < before);
    judge("used").await;
    assert!(confidence("d").await > before);
}

#[tokio::test]
async fn code_comes_as_far_as_it_is_wanted_and_later_memories_not_at_all() {
    let service = Service::open().await;
    notes(&service).await;
    ask(&service, "s", "How is a JWT verified, verify_jwt?").await;
    let kinds = async |body: Value| {
        let found = service.post("/v1/conversations/s/suggest", &body).await.expect(200);
        let mut kinds = column(found["suggestions"].as_array().expect("a list"), "source_type");
        kinds.sort_by_key(Value::to_string);
        kinds.dedup();
        json!(kinds)
    };
    let look = |more: Value| crate::support::with(json!({"confidence_threshold": 0, "peek": true}), &more);
    assert_eq!(kinds(look(json!({}))).await, json!(["code", "memory"]));
    assert_eq!(kinds(look(json!({"include_code": false}))).await, json!(["memory"]));
    assert_eq!(kinds(look(json!({"balance": 1}))).await, json!(["code"]));
    assert_eq!(kinds(look(json!({"balance": 0}))).await, json!(["memory"]));
    assert_eq!(kinds(look(json!({"max_suggestions": 1, "balance": 0.999}))).await, json!(["code"]));
    assert_eq!(kinds(look(json!({"at": "2020-01-01T00:00:00Z"}))).await, json!([]));
}

#[tokio::test]
async fn the_settings_of_a_project_hold_where_a_request_says_nothing() {
    let service = Service::open().await;
    notes(&service).await;
    ask(&service, "s", "Why does AuthMiddleware refuse my JWT?").await;
    let set = async |memories: Value| {
        service.put("/v1/projects/default", &json!({"memories": memories})).await.expect(200);
    };
    let look = json!({"peek": true});
    set(json!({"suggestion_confidence_threshold": 0, "suggestion_max_results": 1})).await;
    let found = suggest(&service, "s", &look).await;
    assert_eq!((&found["total_suggestions"], &found["confidence_threshold"]), (&json!(1), &json!(0.0)));
    set(json!({"proactive_suggestions_enabled": false, "suggestion_confidence_threshold": 0})).await;
    assert_eq!(suggest(&service, "s", &json!({})).await["total_suggestions"], 0);
    for (memories, pointer) in [
        (json!({"suggestion_max_results": 51}), "/memories/suggestion_max_results"),
        (json!({"suggestion_confidence_threshold": 1.5}), "/memories/suggestion_confidence_threshold"),
        (json!({"suggestion_context_window": 0}), "/memories/suggestion_context_window"),
        (json!({"suggestions": true}), "/memories/suggestions"),
    ] {
        service.put("/v1/projects/default", &json!({"memories": memories})).await.refused(422, &[pointer]);
    }
}

#[tokio::test]
async fn the_folder_at_hand_is_preferred_and_no_wall() {
    let service = Service::open().await;
    for (number, root) in [(1, "/a"), (2, "/b")] {
        let note = json!({"id": Uuid::from_u128(number), "content": "The cache expires after an hour", "root": root});
        service.post("/v1/memories", &note).await.expect(201);
    }
    for (root, first) in [("/a/", 1), ("/b", 2)] {
        let session = root.trim_matches('/');
        let query = json!({"query": "When does the cache expire?", "root": root});
        service.post(&format!("/v1/conversations/{session}/queries"), &query).await.expect(201);
        let found = suggest(&service, session, &json!({"confidence_threshold": 0})).await;
        assert_eq!(found["suggestions"][0]["memory_id"], json!(Uuid::from_u128(first)));
        assert_eq!(found["total_suggestions"], 2);
    }
}

#[tokio::test]
async fn a_query_can_be_answered_at_once_and_a_conversation_shows_what_was_suggested() {
    let service = Service::open().await;
    notes(&service).await;
    service
        .put(
            "/v1/projects/default",
            &json!({"memories": {"suggestion_confidence_threshold": 0, "suggestion_max_results": 1}}),
        )
        .await
        .expect(200);
    let query = json!({"id": Uuid::from_u128(60), "query": "Why does AuthMiddleware refuse my JWT?", "suggest": true});
    let answer = service.post("/v1/conversations/s/queries", &query).await.expect(201);
    assert_eq!(answer["suggestions"][0]["memory_id"], json!(Uuid::from_u128(1)));
    assert_eq!(service.post("/v1/conversations/s/queries", &query).await.expect(200), answer);
    let verdict = json!({"memory_id": Uuid::from_u128(1), "verdict": "used"});
    service.post("/v1/conversations/s/feedback", &verdict).await.expect(200);
    let mut conversation = service.get("/v1/conversations/s").await.expect(200);
    for figure in ["confidence", "score", "factors"] {
        conversation["suggested"][0][figure] = json!("a figure");
    }
    assert_whole!("a_conversation_with_suggestions", conversation);
    // An erased memory leaves its figures, and no word.
    service.delete(&format!("/v1/memories/{}", Uuid::from_u128(1))).await;
    assert!(!service.dump().await.contains("mentions `AuthMiddleware`"));
    let after = service.get("/v1/conversations/s").await.expect(200);
    assert_eq!(after["suggested"][0]["reason"], json!(null));
    ask(&service, "t", "Why does AuthMiddleware refuse my JWT?").await;
    let found = suggest(&service, "t", &json!({})).await;
    assert_ne!(found["suggestions"][0]["memory_id"], json!(Uuid::from_u128(1)));
}

#[tokio::test]
async fn a_memory_that_is_erased_while_it_is_suggested_leaves_no_word() {
    const LATE: &str = "
        create function wait() returns trigger language plpgsql as $$ begin
            perform pg_advisory_xact_lock(1);
            return new;
        end $$;
        create trigger late before insert on memory_suggests for each row execute function wait()";
    let service = Service::open().await;
    notes(&service).await;
    ask(&service, "s", "Why does AuthMiddleware refuse my JWT?").await;
    let mut connection = service.connection().await;
    sqlx::raw_sql(LATE).execute(&mut connection).await.expect("a trigger");
    let mut holder = connection.begin().await.expect("begins");
    holder.execute("select pg_advisory_xact_lock(1)").await.expect("locks");
    let erasure = async {
        service.blocked(1).await;
        service.delete(&format!("/v1/memories/{}", Uuid::from_u128(1))).await.gone();
        holder.commit().await.expect("released");
    };
    let body = json!({"confidence_threshold": 0, "max_suggestions": 1});
    tokio::join!(suggest(&service, "s", &body), erasure);
    assert!(!service.dump().await.contains("mentions `AuthMiddleware`"));
}

#[tokio::test]
async fn two_answers_at_the_same_time_suggest_nothing_twice() {
    let service = Service::open().await;
    notes(&service).await;
    ask(&service, "s", "AuthMiddleware JWT staging database invoices").await;
    let body = json!({"confidence_threshold": 0, "max_suggestions": 50});
    let answers = futures_util::future::join_all((0..6).map(|_| suggest(&service, "s", &body))).await;
    let mut ids: Vec<_> = answers
        .iter()
        .flat_map(|answer| column(answer["suggestions"].as_array().expect("a list"), "memory_id"))
        .map(|id| id.to_string())
        .collect();
    let all = ids.len();
    ids.sort();
    ids.dedup();
    assert!(all > 0 && all == ids.len(), "{answers:#?}");
}

#[tokio::test]
async fn who_may_read_may_ask_and_a_query_with_suggestions_needs_both() {
    let (service, operator) = Service::closed().await;
    let bearer = |key: &str| format!("Bearer {key}");
    let key = async |scopes: Value| {
        let new = json!({"name": "k", "scopes": scopes});
        let made = service
            .call(Method::POST, "/v1/keys", &[("authorization", &bearer(&operator))], Some(&new))
            .await;
        bearer(made.expect(201)["key"].as_str().expect("a secret"))
    };
    let (reader, writer) = (key(json!(["read"])).await, key(json!(["write"])).await);
    let post = async |path: &str, key: &str, body: Value| {
        service.call(Method::POST, path, &[("authorization", key)], Some(&body)).await.status.as_u16()
    };
    assert_eq!(post("/v1/conversations/s/suggest", &reader, json!({})).await, 200);
    assert_eq!(post("/v1/conversations/s/suggest", &writer, json!({})).await, 403);
    assert_eq!(post("/v1/conversations/s/queries", &writer, json!({"query": "x"})).await, 201);
    assert_eq!(
        post("/v1/conversations/s/queries", &writer, json!({"query": "x", "suggest": true})).await,
        403
    );
    assert_eq!(post("/v1/conversations/s/queries", &reader, json!({"query": "x"})).await, 403);
}

#[tokio::test]
async fn a_key_that_may_only_read_leaves_nothing_behind_and_gets_the_same_again() {
    let service = Service::open().await;
    notes(&service).await;
    ask(&service, "s", "Why does AuthMiddleware refuse my JWT?").await;
    let operator = format!("Bearer {}", service.first_key().await);
    let new = json!({"name": "k", "scopes": ["read"]});
    let made = service.call(Method::POST, "/v1/keys", &[("authorization", &operator)], Some(&new)).await;
    let reader = format!("Bearer {}", made.expect(201)["key"].as_str().expect("a secret"));
    let get = async |path: &str| service.call(Method::GET, path, &[("authorization", &reader)], None).await;
    let post = async |key: &str, body: Value| {
        let path = "/v1/conversations/s/suggest";
        service.call(Method::POST, path, &[("authorization", key)], Some(&body)).await.expect(200)
    };
    let before = get("/v1/conversations/s").await.expect(200);

    let id = Uuid::from_u128(50);
    let body = json!({"confidence_threshold": 0, "id": id, "at": "2100-01-01T00:00:00Z"});
    let suggested = post(&reader, body.clone()).await;
    assert_eq!(suggested["suggest_id"], Value::Null);
    assert_eq!(suggested["suggestions"][0]["memory_id"], json!(Uuid::from_u128(1)));
    assert_eq!(post(&reader, body.clone()).await["suggestions"], suggested["suggestions"]);
    let found = get("/v1/memories/search?query=staging+database&session_id=s").await.expect(200);
    assert_eq!(found["data"][0]["memory_id"], json!(Uuid::from_u128(2)));
    assert_eq!(get("/v1/conversations/s").await.expect(200), before);

    // Who may write has the same suggestions, and they count as shown then.
    let recorded = post(&operator, body.clone()).await;
    assert_eq!((&recorded["suggest_id"], &recorded["suggestions"]), (&json!(id), &suggested["suggestions"]));
    assert_eq!(post(&reader, body).await["suggestions"], json!([]), "all of them were shown");
}
