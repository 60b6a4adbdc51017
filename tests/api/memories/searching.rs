//! Searching memories for a text.

use serde_json::{Value, json};
use uuid::Uuid;

use super::{notes, suggest};
use crate::support::{Service, column, encoded};

#[tokio::test]
async fn a_search_finds_by_stems_parts_of_identifiers_and_what_was_mistyped() {
    let service = Service::open().await;
    notes(&service).await;
    let first = async |query: &str| {
        let found = service
            .get(&format!("/v1/memories/search?limit=1&query={}", crate::support::encoded(query)))
            .await;
        found.expect(200)["data"][0]["memory_id"].clone()
    };
    for (query, number) in [
        ("databases of staging", 2),
        ("invoice rounding", 3),
        ("verify jwt", 4),
        ("verifyJwt", 4),
        ("auth middleware", 1),
        ("src/auth.py", 4),
    ] {
        assert_eq!(first(query).await, json!(Uuid::from_u128(number)), "{query}");
    }
    assert_eq!(first("zebra").await, Value::Null);
}

#[tokio::test]
async fn a_search_keeps_to_its_filters_and_the_best_score_comes_first() {
    let service = Service::open().await;
    notes(&service).await;
    let find = async |more: &str| {
        let found = service.get(&format!("/v1/memories/search?query=JWT+clock+{more}")).await.expect(200);
        found["data"].as_array().expect("data").clone()
    };
    let scores: Vec<_> =
        column(&find("").await, "score").iter().map(|score| score.as_f64().expect("a number")).collect();
    assert!(scores.len() == 2 && scores.is_sorted_by(|a, b| a >= b), "{scores:?}");
    assert_eq!(column(&find("&source_type=code").await, "source_type"), ["code"]);
    assert_eq!(column(&find("&tag=auth").await, "memory_id"), [json!(Uuid::from_u128(1))]);
    assert_eq!(find("&min_score=1").await.len(), 0);
    assert_eq!(find("&limit=1").await.len(), 1);
    service.get("/v1/memories/search").await.refused(422, &["/query"]);
    service.get("/v1/memories/search?query=x&limit=51").await.refused(422, &["/limit"]);
    service.get("/v1/memories/search?query=x&min_score=2").await.refused(422, &["/min_score"]);
}

#[tokio::test]
async fn a_search_in_a_conversation_is_one_of_its_queries_and_what_it_showed_does_not_come_again() {
    let service = Service::open().await;
    notes(&service).await;
    let path = "/v1/memories/search?query=AuthMiddleware&session_id=s";
    let found = service.get(path).await.expect(200);
    let shown = column(found["data"].as_array().expect("data"), "memory_id");
    assert_eq!(
        shown,
        [json!(Uuid::from_u128(1)), json!(Uuid::from_u128(4))],
        "src/auth.py is of the same word"
    );
    let conversation = service.get("/v1/conversations/s").await.expect(200);
    assert_eq!(conversation["queries"][0]["query"], "AuthMiddleware");
    assert_eq!(conversation["shown"], json!(shown));
    assert_eq!(suggest(&service, "s", &json!({"confidence_threshold": 0})).await["suggestions"], json!([]));
}

#[tokio::test]
async fn a_search_compares_its_folder_and_tag_as_they_are_stored() {
    let service = Service::open().await;
    service.put("/v1/projects/default", &json!({"redact": {"builtin": ["home-paths"]}})).await.expect(200);
    let root = "/home/ann/app";
    let memory = json!({"content": "The staging database is on port 5433.", "root": root, "tags": [root]});
    service.post("/v1/memories", &memory).await.expect(201);
    let search = format!("/v1/memories/search?query=staging&root={root}&tag={root}", root = encoded(root));
    let found = service.get(&search).await.expect(200);
    assert_eq!(found["data"][0]["factors"]["context_match"], 1.0, "{found}");
}

#[tokio::test]
async fn a_changed_memory_is_found_by_what_it_says_now() {
    let service = Service::open().await;
    notes(&service).await;
    let path = format!("/v1/memories/{}", Uuid::from_u128(2));
    service.patch(&path, &json!({"content": "Production runs on zebra"})).await.expect(200);
    let count = async |query: &str| {
        let found = service.get(&format!("/v1/memories/search?query={query}")).await.expect(200);
        found["data"].as_array().expect("data").len()
    };
    assert_eq!([count("staging").await, count("zebra").await], [0, 1]);
}
