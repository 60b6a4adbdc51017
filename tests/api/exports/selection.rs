//! Which rows an export holds: deduplication, splits, order, times and filters.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use uuid::Uuid;

use super::{CORRECTIONS, TRAINING, pieces, rows, solved};
use crate::support::{Answer, Service, column, failed, passed, with};

#[tokio::test]
async fn of_equal_rows_the_oldest_is_kept() {
    let service = Service::open().await;
    let ids = |rows: Vec<Value>| -> Vec<u128> {
        let id = |row: &Value| {
            let id = row["metadata"]["generation_id"].as_str().expect("an id");
            Uuid::parse_str(id).expect("an id").as_u128()
        };
        rows.iter().map(id).collect()
    };
    // Finalized in this order, which is not that of their ids.
    for (id, intent, chain) in [
        (5, "one", vec![failed(1, "x", "e"), passed(2, "a")]),
        (4, "one", vec![failed(1, "x", "e"), passed(2, "a")]),
        (3, "one", vec![failed(1, "x", "other"), passed(2, "a")]),
        (2, "two", vec![failed(1, "x", "e"), passed(2, "a")]),
        (1, "one", vec![passed(1, "b")]),
        (6, "one", vec![failed(4, "x", "e"), failed(6, "x", "e"), passed(7, "a")]),
    ] {
        service.accept(&[solved(id, intent, &chain)]).await;
    }
    for (path, all, exact) in [
        (format!("{TRAINING}?"), vec![5, 4, 3, 2, 1, 6], vec![5, 2, 1]),
        (format!("{CORRECTIONS}?"), vec![5, 4, 3, 2, 6], vec![5, 3, 2]),
        (format!("{CORRECTIONS}?pairing=final&"), vec![5, 4, 3, 2, 6, 6], vec![5, 3, 2]),
        (format!("{CORRECTIONS}?format=trl-stepwise&"), vec![5, 4, 3, 2, 6], vec![5, 2, 6]),
    ] {
        for (dedupe, expected) in [("", all.clone()), ("&dedupe=none", all), ("&dedupe=exact", exact)] {
            let rows = rows(&service, &format!("{path}include=metadata{dedupe}")).await;
            assert_eq!(ids(rows), expected, "{path} {dedupe}");
        }
    }
    // The oldest of those that the other parameters leave.
    let review = json!({"rating": "good"});
    service.put(&format!("/v1/generations/{}/review", Uuid::from_u128(4)), &review).await.expect(200);
    let path = format!("{TRAINING}?include=metadata&dedupe=exact&min_rating=good");
    assert_eq!(ids(rows(&service, &path).await), [4]);
    let path = format!("{TRAINING}?include=metadata&dedupe=exact");
    let pieces = pieces(&service, &path, &[1]).await;
    let found: Vec<_> = pieces.iter().flat_map(Answer::rows).collect();
    assert_eq!(ids(found), [5, 2, 1]);
}

#[tokio::test]
async fn a_split_parts_the_programs_the_same_way_each_time() {
    let service = Service::open().await;
    let logs: Vec<_> = (0..80)
        .map(|number: u128| {
            let program = format!("(program {})", number % 20);
            solved(number, &format!("intent {number}"), &[failed(1, "(bad)", "e"), passed(2, &program)])
        })
        .collect();
    service.accept(&logs).await;
    let texts = |rows: &[Value]| -> BTreeSet<String> { rows.iter().map(Value::to_string).collect() };
    let programs = |rows: &[Value], name: &str| -> BTreeSet<String> {
        column(rows, name).iter().map(Value::to_string).collect()
    };
    let mut validations = BTreeSet::new();
    for (path, program) in
        [(format!("{TRAINING}?format=raw"), "valid_dsl"), (format!("{CORRECTIONS}?format=raw"), "fixed_dsl")]
    {
        let whole = rows(&service, &path).await;
        assert_eq!(whole.len(), 80);
        for seed in 0..3 {
            let part = |name: &str| format!("{path}&split={name}&holdout=0.4&seed={seed}");
            let train = rows(&service, &part("train")).await;
            let validation = rows(&service, &part("validation")).await;
            assert_eq!(rows(&service, &part("validation")).await, validation);
            assert_eq!(train.len() + validation.len(), 80);
            let together: BTreeSet<_> = &texts(&train) | &texts(&validation);
            assert_eq!(together, texts(&whole));
            let (train, validation) = (programs(&train, program), programs(&validation, program));
            assert!(train.is_disjoint(&validation));
            assert!((2..=14).contains(&validation.len()), "{}", validation.len());
            validations.insert(validation);
        }
        for (holdout, expected) in [("0", 0), ("1", 80)] {
            let path = format!("{path}&split=validation&holdout={holdout}");
            assert_eq!(rows(&service, &path).await.len(), expected);
        }
        let plain = rows(&service, &format!("{path}&split=validation")).await;
        let spelled = format!("{path}&split=validation&holdout=0.1&seed=0");
        assert_eq!(plain, rows(&service, &spelled).await);
    }
    // Three seeds, and the same parts in both data sets.
    assert_eq!(validations.len(), 3);
}

#[tokio::test]
async fn records_come_in_the_order_they_were_finalized_and_since_is_about_their_creation() {
    let service = Service::open().await;
    for (id, at) in [(3, "2025-01-03"), (1, "2025-01-01"), (2, "2025-01-02")] {
        let at = json!({"created_at": format!("{at}T00:00:00Z")});
        let log = with(solved(id, &format!("intent {id}"), &[passed(1, "y")]), &at);
        service.accept(&[log]).await;
    }
    for (query, expected) in [
        ("", vec!["intent 3", "intent 1", "intent 2"]),
        ("&since=2025-01-02T00:00:00Z", vec!["intent 3", "intent 2"]),
        ("&until=2025-01-02T00:00:00Z", vec!["intent 1"]),
        ("&since=2025-01-02T00:00:00Z&until=2025-01-03T00:00:00Z", vec!["intent 2"]),
    ] {
        let rows = rows(&service, &format!("{TRAINING}?format=raw{query}")).await;
        assert_eq!(column(&rows, "user_intent"), expected, "{query}");
    }
}

#[tokio::test]
async fn filters_are_about_the_log() {
    let service = Service::open().await;
    let chain = [failed(1, "x", "e"), passed(2, "y")];
    let more = json!({"domain_name": "bond", "model_used": "m"});
    service.accept(&[solved(1, "one", &chain), with(solved(2, "two", &chain), &more)]).await;
    for path in [format!("{TRAINING}?format=raw"), format!("{CORRECTIONS}?format=raw")] {
        for (query, expected) in [
            ("", vec!["one", "two"]),
            ("&domain_name=bond", vec!["two"]),
            ("&domain_name=bon", vec![]),
            ("&model_used=m", vec!["two"]),
            ("&model_used=m&domain_name=cbu", vec![]),
        ] {
            let rows = rows(&service, &format!("{path}{query}")).await;
            assert_eq!(column(&rows, "user_intent"), expected, "{path}{query}");
        }
    }
}
