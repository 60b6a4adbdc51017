//! What is kept of memories and queries where a project keeps no text, or none that is secret.

use serde_json::{Value, json};
use uuid::Uuid;

use super::{ask, suggest};
use crate::support::{Service, assert_whole};

/// The shape of a token of GitHub, which nobody has issued.
const TOKEN: &str = "ghp_0dZ8sQx3Wv5Lr7Tn1Ky9Mb2Cf4Hg6Jp8aEuI";

fn memory(text: &str) -> Value {
    json!({"id": Uuid::from_u128(1), "content": text, "tags": [text], "file_path": text, "symbol": text, "root": text,
        "session_id": "s", "metadata": { text: text }})
}

fn query(text: &str) -> Value {
    json!({"id": Uuid::from_u128(2), "query": text, "root": text, "shown": [Uuid::from_u128(1)]})
}

fn change(text: &str) -> Value {
    json!({"content": text, "tags": [text], "file_path": text, "symbol": text, "root": text, "metadata": { text: text }})
}

/// Everything that stores text, with the status of each.
async fn post_all(service: &Service, text: &str, session: &str) -> Vec<u16> {
    let session = format!("/v1/conversations/{session}");
    let verdict = json!({"memory_id": Uuid::from_u128(1), "verdict": "used"});
    let path = format!("/v1/memories/{}", Uuid::from_u128(1));
    let answers = [
        service.post("/v1/memories", &memory(text)).await,
        service.patch(&path, &change(text)).await,
        service.post(&format!("{session}/queries"), &query(text)).await,
        service.post(&format!("{session}/feedback"), &verdict).await,
    ];
    for answer in &answers {
        assert!(!answer.text().contains(text), "{}", answer.text());
    }
    answers.iter().map(|answer| answer.status.as_u16()).collect()
}

#[tokio::test]
async fn without_text_what_happened_is_kept_and_the_text_is_nowhere() {
    let service = Service::open().await;
    service.put("/v1/projects/default", &json!({"capture": "metadata"})).await.expect(200);
    assert_eq!(post_all(&service, "needle", "s").await, [201, 200, 201, 200]);
    assert_eq!(post_all(&service, "needle", "s").await, [200, 200, 200, 200]);
    service.post("/v1/memories", &memory("other")).await.refused(409, &[]);
    service.post("/v1/conversations/s/queries", &query("other")).await.refused(409, &[]);
    assert!(!service.dump().await.contains("needle"));
    let memory = service.get(&format!("/v1/memories/{}", Uuid::from_u128(1))).await.expect(200);
    assert_whole!("a_memory_without_text", memory);
    assert_eq!(service.get("/v1/conversations/s").await.expect(200)["queries"][0]["query"], json!(null));
}

#[tokio::test]
async fn code_whose_text_was_not_kept_is_another_one_once_texts_are_and_a_memory_is_the_same() {
    let service = Service::open().await;
    let capture = async |capture: &str| {
        service.put("/v1/projects/default", &json!({"capture": capture})).await.expect(200);
    };
    let code =
        json!({"root": "/app", "path": "a.rs", "chunks": [{"symbol": "f", "content": "fn needle() {}"}]});
    let put = async || service.put("/v1/memories/code", &code).await.expect(200);
    capture("metadata").await;
    service.post("/v1/memories", &memory("needle")).await.expect(201);
    assert_eq!(put().await, json!({"added": 1, "unchanged": 0, "removed": 0}));
    assert_eq!(put().await, json!({"added": 0, "unchanged": 1, "removed": 0}));
    capture("full").await;
    assert_eq!(service.post("/v1/memories", &memory("needle")).await.expect(200)["content"], json!(null));
    assert_eq!(put().await["unchanged"], 0);
    assert_eq!(service.all("/v1/memories?q=fn+needle").await.len(), 1);
    capture("metadata").await;
    assert_eq!(put().await["unchanged"], 0);
    assert!(!service.dump().await.contains("fn needle"));
}

#[tokio::test]
async fn what_the_pieces_of_a_file_hide_together_is_replaced_in_each_of_them() {
    let service = Service::open().await;
    let secret = |number: usize| format!("q7Zk{number:04}Rw9xLm2P");
    let row = |number: usize| format!("{number},user{number},{}", secret(number));
    let rows = |numbers: std::ops::Range<usize>| numbers.map(row).collect::<Vec<_>>().join("\n");
    let line = |number: usize| format!("{number:A>60}wK7x");
    let key = |lines: std::ops::Range<usize>| lines.map(line).collect::<Vec<_>>().join("\n");
    let kind = "RSA PRIVATE KEY";
    for (path, pieces) in [
        (
            "lines.csv",
            [format!("id,name,api_key\n{}\n", rows(0..20)), format!("{}\n", rows(20..40)), rows(40..60)],
        ),
        ("users.csv", [format!("id,name,api_key\n{}", rows(0..20)), rows(20..40), rows(40..60)]),
        (
            "key.txt",
            [
                format!("Words before.\n-----BEGIN {kind}-----\n{}", key(0..20)),
                key(20..40),
                format!("{}\n-----END {kind}-----\nWords after.", key(40..50)),
            ],
        ),
        (
            "a.yml",
            ["key: value\npassword: >-".to_owned(), format!("  {}\nport: 80", secret(99)), "x: y".to_owned()],
        ),
    ] {
        let chunks: Vec<_> = pieces.iter().map(|content| json!({"content": content})).collect();
        let file = json!({"root": "/app", "path": path, "chunks": chunks});
        service.put("/v1/memories/code", &file).await.expect(200);
    }
    let dump = service.dump().await;
    assert!(!dump.contains("Rw9xLm2P") && !dump.contains("wK7x"));
    // What a piece hides may depend on those before it.
    for (head, counts) in [("ref", [2, 0]), ("ref", [0, 2]), ("api_key", [2, 0]), ("api_key", [0, 2])] {
        let pieces = [format!("id,name,{head}\n{}", rows(0..20)), rows(20..40)];
        let chunks: Vec<_> = pieces.iter().map(|content| json!({"content": content})).collect();
        let file = json!({"root": "/app", "path": "head.csv", "chunks": chunks});
        let put = service.put("/v1/memories/code", &file).await.expect(200);
        assert_eq!([&put["added"], &put["unchanged"]], counts, "{head}");
    }
    assert!(!service.dump().await.contains("Rw9xLm2P"));
    for kept in ["user59,[redacted:secrets]", "Words before.", "Words after.", "port: 80", "x: y"] {
        assert!(dump.contains(kept), "{kept}");
    }
}

#[tokio::test]
async fn what_is_suggested_after_a_project_gives_up_text_is_recorded_without_words() {
    let service = Service::open().await;
    service
        .post("/v1/memories", &json!({"content": "The needle of staging is on port 7443"}))
        .await
        .expect(201);
    ask(&service, "s", "Where is the needle of staging?").await;
    service.put("/v1/projects/default", &json!({"capture": "metadata"})).await.expect(200);
    let found = suggest(&service, "s", &json!({"confidence_threshold": 0})).await;
    assert_eq!(found["total_suggestions"], 1);
    let words = "select a.search_query, a.keywords::text, coalesce(m.reason, '') from memory_suggests a
        join conversation_memories m on m.suggest_id = a.id";
    let recorded: Vec<(String, String, String)> =
        sqlx::query_as(words).fetch_all(service.pool()).await.expect("what was suggested");
    assert_eq!(recorded, [(String::new(), "[]".to_owned(), String::new())]);
}

#[tokio::test]
async fn where_nothing_is_kept_every_answer_is_204() {
    let service = Service::open().await;
    service.put("/v1/projects/default", &json!({"capture": {"memories": "off"}})).await.expect(200);
    assert_eq!(post_all(&service, "needle", "s").await, [204, 204, 204, 204]);
    assert!(!service.dump().await.contains("needle"));
}

#[tokio::test]
async fn a_secret_is_nowhere_in_the_database_not_even_as_the_name_of_a_session() {
    let service = Service::open().await;
    assert_eq!(post_all(&service, TOKEN, TOKEN).await, [201, 200, 201, 200]);
    assert!(!service.dump().await.contains(TOKEN));
    let conversation = service.get(&format!("/v1/conversations/{TOKEN}")).await.expect(200);
    assert_eq!(conversation["queries"][0]["query"], "[redacted:secrets]");
    assert_eq!(post_all(&service, TOKEN, TOKEN).await, [200, 200, 200, 200]);
}
