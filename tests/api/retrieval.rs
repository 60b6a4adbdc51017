//! Retrieval while documents come in: similar examples are right whatever was known of their project before.

use serde_json::{Value, json};

use crate::support::{Service, column, encoded};

const DOMAINS: [&str; 2] = ["shell", "queries"];

/// A batch of logs that all share their common words. Each intent has one rare word, which begins with the batch's number.
fn batch(number: usize, domain: &str) -> Vec<Value> {
    let log = |n: usize| {
        let intent = format!("show me the list of all the files in the folder b{number}n{n}");
        json!({"event": "generation", "user_intent": intent, "domain_name": domain, "success": true,
            "final_valid_dsl": format!("(list {number} {n})")})
    };
    (0..1_000).map(log).collect()
}

/// The best example for a paraphrase of a log's intent.
async fn best(service: &Service, number: usize, n: usize, domain: &str) -> Value {
    let intent = encoded(&format!("the folder b{number}n{n}: what files are in it"));
    let path = format!("/v1/generations/similar?intent={intent}{domain}&limit=1");
    let found = service.get(&path).await.expect(200);
    column(found["data"].as_array().expect("examples"), "valid_dsl").into_iter().next().unwrap_or_default()
}

#[tokio::test]
async fn what_was_loaded_last_is_found_though_its_project_was_sampled_when_it_was_small() {
    let service = Service::open().await;
    for domain in DOMAINS {
        service.accept(&batch(0, domain)[..30]).await;
    }
    let scopes = ["", "&domain_name=shell", "&domain_name=queries"];
    for scope in scopes {
        assert_eq!(best(&service, 0, 7, scope).await, "(list 0 7)", "{scope}");
    }
    for number in 1..=4 {
        for domain in DOMAINS {
            service.accept(&batch(number, domain)).await;
        }
    }
    for scope in scopes {
        assert_eq!(best(&service, 4, 998, scope).await, "(list 4 998)", "{scope}");
    }
}

#[tokio::test]
async fn every_batch_is_found_as_soon_as_it_is_accepted_while_the_next_one_comes_in() {
    let service = Service::open().await;
    service.accept(&batch(0, "shell")[..10]).await;
    assert_eq!(best(&service, 0, 7, "").await, "(list 0 7)");
    service.accept(&batch(1, "shell")).await;
    for number in 1..=5 {
        let ask = async {
            for scope in ["", "&domain_name=shell"] {
                for n in [0, 500, 999] {
                    let expected = format!("(list {number} {n})");
                    assert_eq!(best(&service, number, n, scope).await, expected.as_str(), "{scope}");
                }
            }
        };
        let next = batch(number + 1, "shell");
        futures_util::join!(service.accept(&next), ask);
    }
}
