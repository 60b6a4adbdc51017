//! Memories: stored, listed, changed, erased.

use serde_json::json;
use uuid::Uuid;

use crate::support::{Service, assert_whole, column, encoded, with};

#[tokio::test]
async fn a_memory_comes_back_whole_and_the_same_again_is_no_second_one() {
    let service = Service::open().await;
    let new = json!({"id": Uuid::from_u128(1), "content": "Staging is on port 5433.", "source_type": "memory",
        "importance": 0.75, "tags": ["db", "staging"], "file_path": "deploy/staging.toml", "symbol": "port",
        "root": "/home/jane/app/", "session_id": "s", "metadata": {"by": "jane"}, "created_at": "2026-03-01T12:00:00Z"});
    let made = service.post("/v1/memories", &new).await;
    assert_eq!(made.header("location"), Some("/v1/memories/00000000-0000-0000-0000-000000000001"));
    let made = made.expect(201);
    assert_whole!("a_memory", made);
    assert_eq!(service.post("/v1/memories", &new).await.expect(200), made);
    assert_eq!(service.get("/v1/memories/00000000-0000-0000-0000-000000000001").await.expect(200), made);
    service.post("/v1/memories", &with(new, &json!({"importance": 0.5}))).await.refused(409, &[]);
    let plain = service.post("/v1/memories", &json!({"content": "x"})).await.expect(201);
    assert_eq!(
        (&plain["source_type"], &plain["importance"], &plain["tags"]),
        (&json!("memory"), &json!(0.5), &json!([]))
    );
}

#[tokio::test]
async fn memories_are_listed_by_what_they_have() {
    let service = Service::open().await;
    for (number, kind, tag, root, path) in [
        (1, "memory", "a", "/app", "src/a.rs"),
        (2, "code", "a", "/app", "src/b.rs"),
        (3, "code", "b", "/lib", "src/a.rs"),
    ] {
        let new = json!({"content": format!("Text 100% {number}_"), "source_type": kind, "tags": [tag], "root": root, "file_path": path,
            "metadata": {"number": number}, "created_at": format!("2026-03-0{number}T00:00:00Z")});
        service.post("/v1/memories", &new).await.expect(201);
    }
    let numbers = async |query: &str| {
        let memories = service.all(&format!("/v1/memories?{query}")).await;
        memories.iter().map(|memory| memory["metadata"]["number"].to_string()).collect::<String>()
    };
    assert_eq!(numbers("limit=1").await, "321");
    assert_eq!(numbers("source_type=code").await, "32");
    assert_eq!(numbers("tag=a").await, "21");
    assert_eq!(numbers("root=/app/&file_path=src/b.rs").await, "2");
    assert_eq!(numbers("q=TEXT+100%25+1_").await, "1");
    assert_eq!(numbers("q=1__").await, "", "an underscore is no wildcard");
    assert_eq!(numbers("since=2026-03-02T00:00:00Z").await, "32");
    service.get("/v1/memories?source_type=file").await.refused(422, &["/source_type"]);
}

#[tokio::test]
async fn a_change_leaves_what_it_does_not_name() {
    let service = Service::open().await;
    let new = json!({"content": "before", "tags": ["a"], "symbol": "f", "metadata": {"k": 1}});
    let id = service.create("/v1/memories", new).await;
    let path = format!("/v1/memories/{id}");
    let changed = service.patch(&path, &json!({"content": "after", "tags": []})).await.expect(200);
    assert_eq!((&changed["content"], &changed["tags"]), (&json!("after"), &json!([])));
    assert_eq!((&changed["symbol"], &changed["metadata"]), (&json!("f"), &json!({"k": 1})));
    let changed = service.patch(&path, &json!({"importance": 1, "metadata": {}})).await.expect(200);
    assert_eq!((&changed["importance"], &changed["metadata"]), (&json!(1.0), &json!({})));
    assert_eq!(service.get(&path).await.expect(200), changed);
    let unknown = format!("/v1/memories/{}", Uuid::from_u128(9));
    service.patch(&unknown, &json!({"importance": 1})).await.refused(404, &[]);
}

#[tokio::test]
async fn filters_find_memories_by_names_that_are_redacted() {
    let service = Service::open().await;
    service.put("/v1/projects/default", &json!({"redact": {"builtin": ["emails"]}})).await.expect(200);
    let name = "ann@example.org";
    let memory = json!({"content": "x", "tags": [name], "root": name, "file_path": name, "session_id": name});
    service.post("/v1/memories", &memory).await.expect(201);
    for filter in ["tag", "root", "file_path"] {
        let path = format!("/v1/memories?{filter}={}", encoded(name));
        assert_eq!(service.all(&path).await.len(), 1, "{filter}");
    }
}

#[tokio::test]
async fn an_erased_memory_is_gone() {
    let service = Service::open().await;
    let id = service.create("/v1/memories", json!({"content": "needle"})).await;
    let path = format!("/v1/memories/{id}");
    assert_eq!(service.delete(&path).await.status, 204);
    assert!(!service.dump().await.contains("needle"));
    service.get(&path).await.refused(404, &[]);
    service.delete(&path).await.refused(404, &[]);
}

#[tokio::test]
async fn what_no_memory_can_be_is_refused_by_its_field() {
    let service = Service::open().await;
    for (body, pointers) in [
        (json!({}), vec!["/content"]),
        (json!({"content": "", "importance": 1.1}), vec!["/content", "/importance"]),
        (json!({"content": "x", "source_type": "file"}), vec!["/source_type"]),
        (json!({"content": "x", "tags": ["a", ""]}), vec!["/tags/1"]),
        (json!({"content": "x", "scope": "y"}), vec!["/scope"]),
        (json!({"content": "x", "metadata": []}), vec!["/metadata"]),
    ] {
        service.post("/v1/memories", &body).await.refused(422, &pointers);
    }
}

#[tokio::test]
async fn lines_of_a_batch_store_memories_ask_and_judge() {
    let service = Service::open().await;
    let memory = json!({"event": "memory", "id": Uuid::from_u128(1), "content": "x"});
    let query =
        json!({"event": "conversation_query", "session_id": "s", "id": Uuid::from_u128(2), "query": "q"});
    let verdict = json!({"event": "memory_feedback", "session_id": "s", "memory_id": Uuid::from_u128(1), "verdict": "used"});
    let lines = [memory, query, verdict.clone()];
    service.accept(&lines).await;
    // A verdict has no name: sending it again says the same once more.
    let again = service.events(&lines).await.expect(200);
    assert_eq!(again, json!({"accepted": 1, "duplicates": 2, "rejected": []}));
    let refused = service
        .events(&[
            with(verdict.clone(), &json!({"session_id": null})),
            with(verdict.clone(), &json!({"session_id": "x".repeat(201)})),
            with(verdict, &json!({"memory_id": Uuid::from_u128(9)})),
            json!({"event": "memory", "memory_id": Uuid::from_u128(1), "content": "x"}),
            json!({"event": "conversation_query", "session_id": "other", "id": Uuid::from_u128(2), "query": "q"}),
        ])
        .await
        .expect(200);
    let rejected = refused["rejected"].as_array().expect("lines");
    assert_eq!(json!(column(rejected, "status")), json!([422, 422, 404, 422, 409]));
    let pointers: Vec<_> = rejected.iter().map(|line| line["errors"][0]["pointer"].clone()).collect();
    assert_eq!(json!(pointers), json!(["/session_id", "/session_id", null, "/memory_id", null]));
}
