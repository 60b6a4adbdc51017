//! Which rows an export holds: deduplication, splits, order, times and filters.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use uuid::Uuid;

use super::{CORRECTIONS, TRAINING, pieces, rows, solved};
use crate::support::{Answer, Service, column, encoded, failed, passed, with};

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
        (format!("{CORRECTIONS}?"), vec![5, 4, 3, 2, 6], vec![5, 2]),
        (format!("{CORRECTIONS}?pairing=final&"), vec![5, 4, 3, 2, 6, 6], vec![5, 2]),
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

/// The texts of rows in the columns that have some.
fn texts(rows: &[Value], columns: &[&str]) -> BTreeSet<String> {
    let of_row = |row: &Value| {
        columns.iter().map(|column| row[*column].to_string().to_lowercase()).collect::<Vec<_>>()
    };
    rows.iter().flat_map(of_row).collect()
}

const PARTS: [&str; 3] = ["train", "validation", "test"];

#[tokio::test]
async fn neither_an_intent_nor_a_program_stands_in_two_parts() {
    let service = Service::open().await;
    // Paraphrases of 20 programs, intents with several programs, and one wrong program that half of all logs have.
    let logs: Vec<_> = (0..120_u128)
        .map(|number| {
            let wrong =
                if number.is_multiple_of(2) { "(submit)".to_owned() } else { format!("(wrong {number})") };
            let (intent, program) = match number {
                0..60 => (format!("intent {number}"), format!("(program  {})", number % 20)),
                _ => (format!("Intent of group {}", number % 15), format!("(other {number})")),
            };
            solved(number, &intent, &[failed(1, &wrong, "e"), passed(2, &program)])
        })
        .collect();
    service.accept(&logs).await;
    let training = (format!("{TRAINING}?format=raw"), ["user_intent", "valid_dsl"].to_vec());
    let corrections = ["fix", "next", "final"].map(|pairing| {
        let path = format!("{CORRECTIONS}?format=raw&pairing={pairing}");
        (path, ["user_intent", "fixed_dsl", "bad_dsl"].to_vec())
    });
    for (path, columns) in [training].into_iter().chain(corrections) {
        let all = rows(&service, &path).await;
        assert_eq!(all.len(), 120);
        for (seed, holdout) in [(2, 0.1), (1, 0.4), (0, 0.8)] {
            let mut parts = Vec::new();
            let mut dropped = 0;
            for name in PARTS {
                let path = format!("{path}&split={name}&holdout={holdout}&seed={seed}");
                let answer = service.get(&path).await;
                let told =
                    answer.header("gleaner-dropped").map(|count| count.parse::<usize>().expect("a number"));
                assert_eq!(told.is_some(), name != "train", "{path}");
                dropped += told.unwrap_or(0);
                assert_eq!(service.get(&path).await.text(), answer.text(), "the same bytes: {path}");
                parts.push(answer.rows());
            }
            assert_eq!(parts.iter().map(Vec::len).sum::<usize>() + dropped, 120, "{path} {holdout}");
            for (one, other) in [(0, 1), (0, 2), (1, 2)] {
                let (one, other) = (texts(&parts[one], &columns), texts(&parts[other], &columns));
                assert!(one.is_disjoint(&other), "{path} {holdout}: {:?}", &one & &other);
            }
            assert!(!parts[0].is_empty() && !parts[1].is_empty(), "{path} {holdout}");
        }
        for (name, expected) in [("train", 0), ("train&split_by=session", 0)] {
            let path = format!("{path}&split={name}&holdout=1");
            assert_eq!(rows(&service, &path).await.len(), expected);
        }
        let plain = rows(&service, &format!("{path}&split=validation")).await;
        let spelled = format!("{path}&split=validation&holdout=0.1&seed=0&split_by=auto");
        assert_eq!(plain, rows(&service, &spelled).await);
    }
}

#[tokio::test]
async fn a_split_follows_split_by() {
    let service = Service::open().await;
    let log = |number: u128| {
        let log = solved(
            number,
            &format!("intent {}", number % 10),
            &[passed(1, &format!("(program {})", number % 7))],
        );
        with(log, &json!({"session_id": format!("session {}", number % 5)}))
    };
    service.accept(&(0..70).map(log).collect::<Vec<_>>()).await;
    for (by, column) in
        [("intent", "/user_intent"), ("program", "/valid_dsl"), ("session", "/metadata/session_id")]
    {
        let mut parts = Vec::new();
        for name in PARTS {
            let path = format!(
                "{TRAINING}?format=raw&include=metadata&split={name}&holdout=0.6&split_by={by}&seed=3"
            );
            let answer = service.get(&path).await;
            assert_eq!(answer.header("gleaner-dropped"), None);
            let values = answer.rows();
            let values = values.iter().map(|row| row.pointer(column).expect("a value").to_string());
            parts.push(values.collect::<Vec<_>>());
        }
        assert_eq!(parts.iter().map(Vec::len).sum::<usize>(), 70, "{by}");
        let parts: Vec<BTreeSet<_>> = parts.into_iter().map(BTreeSet::from_iter).collect();
        assert!(
            parts[0].is_disjoint(&parts[1])
                && parts[0].is_disjoint(&parts[2])
                && parts[1].is_disjoint(&parts[2]),
            "{by}"
        );
    }
}

#[tokio::test]
async fn a_record_stays_in_its_part_whatever_comes_later() {
    let service = Service::open().await;
    let log = |number: u128| {
        solved(number, &format!("intent {}", number % 30), &[passed(1, &format!("(p {})", number % 23))])
    };
    service.accept(&(0..100).map(log).collect::<Vec<_>>()).await;
    let path = format!("{TRAINING}?format=raw&split=validation&holdout=0.7");
    let answer = service.get(&path).await;
    let as_of = answer.header("gleaner-as-of").expect("a time").to_owned();
    service.accept(&(100..200).map(log).collect::<Vec<_>>()).await;
    let later = service.get(&path).await;
    assert_ne!(later.text(), answer.text());
    assert_eq!(service.get(&format!("{path}&as_of={}", encoded(&as_of))).await.text(), answer.text());
}

#[tokio::test]
async fn a_corrected_program_and_an_erased_log_are_known_to_the_split_too() {
    let service = Service::open().await;
    service
        .accept(
            &(0..40)
                .map(|number| {
                    solved(number, &format!("intent {number}"), &[passed(1, &format!("(p {number})"))])
                })
                .collect::<Vec<_>>(),
        )
        .await;
    let path = |part: &str| format!("{TRAINING}?format=raw&include=metadata&split={part}&holdout=0.5");
    let [train, validation] =
        [rows(&service, &path("train")).await, rows(&service, &path("validation")).await];
    // A reviewer gives a log of the training part the program of one that is held out.
    let corrected = train[0]["metadata"]["generation_id"].as_str().expect("an id");
    let review = json!({"rating": "poor", "corrected_dsl": validation[0]["valid_dsl"]});
    service.put(&format!("/v1/generations/{corrected}/review"), &review).await.expect(200);
    let answer = service.get(&path("validation")).await;
    assert_eq!((answer.rows(), answer.header("gleaner-dropped")), (validation[1..].to_vec(), Some("1")));
    service.delete(&format!("/v1/generations/{corrected}")).await.expect(204);
    let answer = service.get(&path("validation")).await;
    assert_eq!((answer.rows(), answer.header("gleaner-dropped")), (validation, Some("0")));
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

#[tokio::test]
async fn answers_have_a_length_and_a_number_of_records_that_may_teach_them() {
    let service = Service::open().await;
    let log = |number: u128| {
        let program = if number.is_multiple_of(2) {
            "submit".to_owned()
        } else {
            format!("(p {})", "x".repeat(number as usize))
        };
        solved(number, &format!("intent {number}"), &[failed(1, "a", "e"), passed(2, &program)])
    };
    service.accept(&(0..10).map(log).collect::<Vec<_>>()).await;
    for path in [format!("{TRAINING}?format=raw"), format!("{CORRECTIONS}?format=raw")] {
        for (query, expected) in [
            ("", (0..10).collect()),
            ("&max_per_answer=2", vec![0, 1, 2, 3, 5, 7, 9]),
            ("&max_per_answer=1&min_chars=6", vec![0, 3, 5, 7, 9]),
            ("&min_chars=7&max_chars=9", vec![3, 5]),
        ] {
            let rows = rows(&service, &format!("{path}{query}")).await;
            let expected: Vec<_> = expected.iter().map(|number: &i32| format!("intent {number}")).collect();
            assert_eq!(column(&rows, "user_intent"), expected, "{path}{query}");
        }
    }
    let of_two = rows(
        &service,
        &format!("{TRAINING}?format=raw&max_per_answer=2&dedupe=exact&min_chars=6&max_chars=6"),
    )
    .await;
    assert_eq!(column(&of_two, "user_intent"), ["intent 0", "intent 2"]);
    let response = json!({"raw_response": "a long answer around it"});
    service
        .accept(&[solved(
            11,
            "intent 11",
            &[with(failed(1, "a", "e"), &response), with(passed(2, "b"), &response)],
        )])
        .await;
    for path in [TRAINING, CORRECTIONS] {
        for (bound, expected) in [("min_chars=23", 1), ("max_chars=22", 0)] {
            let path = format!("{path}?format=openai&completion=raw&{bound}");
            assert_eq!(rows(&service, &path).await.len(), expected, "{path}");
        }
    }
    service
        .get(&format!("{TRAINING}?max_per_answer=0&max_chars=0"))
        .await
        .refused(422, &["/max_chars", "/max_per_answer"]);
    service.get(&format!("{TRAINING}?max_per_answer=101")).await.refused(422, &["/max_per_answer"]);
    service.get(&format!("{TRAINING}?min_chars=-1")).await.refused(422, &["/min_chars"]);
    let rows = rows(&service, &format!("{TRAINING}?format=raw&domain_name=fund,cbu&limit=3")).await;
    assert_eq!(rows.len(), 3);
}

#[tokio::test]
async fn only_records_that_are_exported_count_among_those_with_the_same_answer() {
    let service = Service::open().await;
    let chain = |wrong: &str, right: &str| [failed(1, wrong, "e"), passed(2, right)];
    let elsewhere = json!({"domain_name": "bond"});
    service
        .accept(&[
            solved(1, "poor", &chain("a", "(ls)")),
            with(solved(2, "elsewhere", &chain("a", "(ls)")), &elsewhere),
            solved(3, "third", &chain("a", "(ls)")),
            solved(4, "fourth", &chain("a", "(ls)")),
            solved(5, "corrected", &chain("(cd)", "(pwd)")),
            solved(6, "last", &chain("a", "(cd)")),
        ])
        .await;
    let review = async |number: u128, review: Value| {
        let path = format!("/v1/generations/{}/review", Uuid::from_u128(number));
        service.put(&path, &review).await.expect(200);
    };
    let expect = async |query: &str, expected: &[&str]| {
        let path = format!("{TRAINING}?format=raw&max_per_answer=1{query}");
        assert_eq!(column(&rows(&service, &path).await, "user_intent"), expected, "{query}");
    };
    expect("", &["poor", "corrected", "last"]).await;
    review(1, json!({"rating": "poor"})).await;
    review(5, json!({"rating": "poor", "corrected_dsl": "(cd)"})).await;
    expect("", &["elsewhere", "corrected"]).await;
    expect("&domain_name=cbu", &["third", "corrected"]).await;
    expect("&order=newest", &["corrected", "elsewhere"]).await;
    review(5, json!({"rating": "good"})).await;
    expect("", &["elsewhere", "corrected", "last"]).await;
}
