//! What the statements of an export read where much repeats itself: not much more than there is, however often.

use serde_json::json;

use super::pages::{export, plan, widest};
use super::solved;
use crate::support::program::DATASETS;
use crate::support::{Service, passed, with};

/// The most rows that a step of a page has in the plan, for an export with these parameters.
async fn most(service: &Service, name: &str, parameters: &[(&str, &str)]) -> f64 {
    let entry = DATASETS.iter().find(|entry| entry.description.name == name).expect("a data set");
    let export = export(service, entry, parameters).await;
    widest(&plan(service, &mut export.next_page("").expect("a statement")).await)
}

#[tokio::test]
async fn an_intent_of_very_many_logs_is_looked_for_in_the_other_parts_of_a_split_once_a_group() {
    const LOGS: u32 = 1_500;
    let service = Service::open().await;
    let log = |number: u32| solved(number.into(), "run the tests", &[passed(1, &format!("(test {number})"))]);
    service.accept(&(0..LOGS).map(log).collect::<Vec<_>>()).await;
    for part in ["validation", "test"] {
        let most = most(&service, "training-pairs", &[("split", part), ("holdout", "1")]).await;
        assert!(most <= f64::from(2 * LOGS), "{part}: {most}");
    }
}

#[tokio::test]
async fn a_pair_is_found_to_be_the_last_of_a_very_long_conversation_by_those_after_it() {
    const PAIRS: u32 = 2_000;
    let service = Service::open().await;
    let pair = |number: u32| {
        json!({"event": "pair", "topic_id": "t", "user_text": format!("u{number}"), "assistant_text": "a",
            "star": if number < PAIRS / 2 { 2 } else { 0 }})
    };
    service.accept(&(0..PAIRS).map(pair).collect::<Vec<_>>()).await;
    for star in ["0", "2", "3"] {
        let most = most(&service, "conversations", &[("star", star)]).await;
        assert!(most <= f64::from(3 * PAIRS), "{star}: {most}");
    }
    let rows = async |star: u32| {
        let rows = service.get(&format!("/v1/exports/conversations?format=raw&star={star}")).await.rows();
        rows.iter().map(|row| row["pairs"].as_array().map_or(0, Vec::len)).collect::<Vec<_>>()
    };
    assert_eq!([rows(0).await, rows(2).await, rows(3).await], [vec![1_000], vec![1_000], vec![]]);
}

#[tokio::test]
async fn the_oldest_of_equal_rows_is_found_beside_very_many_that_a_filter_leaves_out() {
    const LOGS: u32 = 1_500;
    let service = Service::open().await;
    let log = |number: u32| {
        let domain = if number < LOGS - 300 { "old" } else { "new" };
        with(solved(number.into(), "list", &[passed(1, "(list)")]), &json!({"domain_name": domain}))
    };
    service.accept(&(0..LOGS).map(log).collect::<Vec<_>>()).await;
    let parameters = [("dedupe", "exact"), ("domain_name", "new")];
    let most = most(&service, "training-pairs", &parameters).await;
    assert!(most <= f64::from(3 * LOGS), "{most}");
    let rows = service.get("/v1/exports/training-pairs?dedupe=exact&domain_name=new").await.rows();
    assert_eq!(rows.len(), 1);
}
