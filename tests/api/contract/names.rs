//! Names, and references between what is named.

use std::collections::HashSet;

use serde_json::Value;

use super::{Contract, members};
use crate::support::Service;

#[tokio::test]
async fn every_operation_has_an_id_of_its_own_that_says_what_it_does() {
    let service = Service::open().await;
    let contract = Contract::of(&service).await;
    let mut taken = HashSet::new();
    for operation in contract.operations() {
        assert!(taken.insert(operation.id), "{} is the id of two operations", operation.id);
        let is_word = |word: &str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_lowercase());
        assert!(operation.id.contains('_') && operation.id.split('_').all(is_word), "{}", operation.id);
        let summary = operation.value["summary"].as_str().unwrap_or_default();
        assert!(summary.ends_with('.'), "{} is summed up by no sentence: {summary:?}", operation.id);
    }
}

#[tokio::test]
async fn every_schema_has_a_name_in_one_piece_and_is_used() {
    let service = Service::open().await;
    let contract = Contract::of(&service).await;
    let mut used = HashSet::new();
    collect_references(&contract.document, &mut used);
    for (name, _) in members(&contract.document["components"]["schemas"]) {
        assert!(name.bytes().all(|byte| byte.is_ascii_alphanumeric()), "{name}");
        assert!(used.contains(&format!("#/components/schemas/{name}")), "nothing is a {name}");
    }
    for reference in used {
        let target = contract.document.pointer(reference.trim_start_matches('#'));
        assert!(target.is_some(), "{reference} leads nowhere");
    }
}

#[tokio::test]
async fn refusals_are_described_once_and_referred_to() {
    let service = Service::open().await;
    let contract = Contract::of(&service).await;
    for operation in contract.operations() {
        for (status, response) in members(&operation.value["responses"]) {
            let is_refusal = status.starts_with(['4', '5']);
            assert_eq!(response["$ref"].is_string(), is_refusal, "{} {status}", operation.id);
        }
    }
}

/// Every `$ref` in a value.
fn collect_references(value: &Value, found: &mut HashSet<String>) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| collect_references(item, found)),
        Value::Object(object) => {
            found.extend(object.get("$ref").and_then(Value::as_str).map(str::to_owned));
            object.values().for_each(|member| collect_references(member, found));
        }
        _ => {}
    }
}
