//! Requests about searches: the same one again, batches, and what is refused.

use axum::http::Method;
use serde_json::{Value, json};
use uuid::Uuid;

use super::{MIDNIGHT, append, paths, read, resolve, start, weak};
use crate::support::{Service, with};

#[tokio::test]
async fn a_search_and_its_fallbacks_sent_again_are_the_same() {
    let service = Service::open().await;
    let id = Uuid::new_v4();
    let body = with(weak("login button", 0), &json!({"id": id}));
    let first = service.post("/v1/searches", &body).await.expect(201);
    assert_eq!(service.post("/v1/searches", &body).await.expect(200), first);
    service.post("/v1/searches", &with(body.clone(), &json!({"query": "other"}))).await.refused(409, &[]);
    let search = format!("/v1/searches/{id}");
    let fallback = append(&service, &search, &read("a.rs", 1)).await.expect(201);
    let named = with(read("b.rs", 2), &json!({"id": Uuid::new_v4()}));
    append(&service, &search, &named).await.expect(201);
    let resolved = resolve(&service, &search, 9).await;
    assert_eq!(append(&service, &search, &read("a.rs", 1)).await.expect(200)["id"], fallback["id"]);
    append(&service, &search, &named).await.expect(200);
    append(&service, &search, &with(named.clone(), &json!({"path": "c.rs"}))).await.refused(409, &[]);
    assert_eq!(resolve(&service, &search, 9).await, resolved);
    assert_eq!(service.post("/v1/searches", &body).await.expect(200)["state"], "resolved");
    let headers = [("idempotency-key", "k")];
    let one = service.call(Method::POST, "/v1/searches", &headers, Some(&weak("q", 0))).await.expect(201);
    let two = service.call(Method::POST, "/v1/searches", &headers, Some(&weak("q", 0))).await.expect(200);
    assert_eq!(one["id"], two["id"]);
    let path = format!("/v1/searches/{}", Uuid::new_v4());
    service.get(&path).await.refused(404, &[]);
    append(&service, &path, &read("a.rs", 1)).await.refused(404, &[]);
    service.post(&format!("{path}/resolve"), &json!({})).await.refused(404, &[]);
}

#[tokio::test]
async fn a_batch_does_what_the_single_requests_do() {
    let service = Service::open().await;
    let id = Uuid::new_v4();
    let events = [
        with(weak("login button", 0), &json!({"event": "search", "id": id})),
        with(read("a.rs", 1), &json!({"event": "fallback", "search_id": id})),
        json!({"event": "search_outcome", "search_id": id, "timestamp": MIDNIGHT + 2}),
        json!({"event": "generation", "user_intent": "Create a fund", "domain_name": "cbu"}),
    ];
    service.accept(&events).await;
    assert_eq!(service.events(&events[..3]).await.expect(200)["duplicates"], 3);
    assert_eq!(paths(&service, "login button").await, ["a.rs"]);
    let wrong = [
        json!({"event": "fallback", "kind": "read", "path": "a.rs"}),
        json!({"event": "fallback", "generation_id": id, "kind": "read", "path": "a.rs"}),
        json!({"event": "search", "search_id": id, "query": "q"}),
        json!({"event": "search", "query": ""}),
        json!({"event": "search_outcome", "search_id": Uuid::new_v4()}),
    ];
    let summary = service.events(&wrong).await.expect(200);
    let pointers = summary["rejected"]
        .as_array()
        .expect("rejected")
        .iter()
        .map(|line| line["errors"][0]["pointer"].clone());
    assert_eq!(
        pointers.collect::<Vec<_>>(),
        [json!("/search_id"), json!("/generation_id"), json!("/search_id"), json!("/query"), Value::Null]
    );
}

#[tokio::test]
async fn an_invalid_search_is_refused_with_its_fields() {
    let service = Service::open().await;
    for (body, pointer) in [
        (json!({}), "/query"),
        (json!({"query": ""}), "/query"),
        (json!({"query": "q".repeat(2_001)}), "/query"),
        (json!({"query": "q", "result_count": -1}), "/result_count"),
        (json!({"query": "q", "results": [{"path": ""}]}), "/results/0/path"),
        (json!({"query": "q", "results": [{"path": "a", "line": 1}]}), "/results/0/line"),
        (json!({"query": "q", "agent_session_id": "x".repeat(201)}), "/agent_session_id"),
        (json!({"query": "q", "timestamp": "soon"}), "/timestamp"),
        (json!({"query": "q", "depth": 1}), "/depth"),
    ] {
        service.post("/v1/searches", &body).await.refused(422, &[pointer]);
    }
    let search = start(&service, weak("q", 0)).await;
    for (body, pointer) in [
        (json!({"path": "a"}), "/kind"),
        (json!({"kind": "read"}), "/path"),
        (json!({"kind": "read", "path": ""}), "/path"),
        (json!({"kind": "read", "path": "a", "pattern": "b"}), "/pattern"),
        (json!({"kind": "grep", "path": "a"}), "/pattern"),
        (json!({"kind": "write", "path": "a"}), "/kind"),
    ] {
        append(&service, &search, &body).await.refused(422, &[pointer]);
    }
    for (path, pointer) in [
        ("/v1/associations", "/query"),
        ("/v1/associations?query=q&limit=101", "/limit"),
        ("/v1/searches/expansions", "/query"),
        ("/v1/associations/changes?cursor=-1", "/cursor"),
        ("/v1/searches?state=open", "/state"),
    ] {
        service.get(path).await.refused(422, &[pointer]);
    }
    for (settings, pointer) in [
        (json!({"session_timeout": 0}), "/searches/session_timeout"),
        (json!({"min_fallback_reads": 0}), "/searches/min_fallback_reads"),
        (json!({"half_life_days": 0}), "/searches/half_life_days"),
        (json!({"tools": [""]}), "/searches/tools/0"),
        (json!({"window": 60}), "/searches/window"),
    ] {
        service.put("/v1/projects/default", &json!({"searches": settings})).await.refused(422, &[pointer]);
    }
}
