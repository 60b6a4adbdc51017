//! Decontamination: an export without the rows whose question or answer is in a snapshot.

use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use uuid::Uuid;

use super::files::{SNAPSHOTS, built, logs, path};
use super::limits::{many, unread};
use super::{CORRECTIONS, TRAINING, solved};
use crate::support::{Service, encoded, failed, passed};

#[tokio::test]
async fn no_row_has_a_question_or_an_answer_of_the_snapshot_that_is_excluded() {
    let service = Service::open().await;
    service.accept(&logs(30)).await;
    let tested = json!({"dataset": "correction-pairs", "split": "test", "holdout": 0.6, "file": "jsonl", "format": "raw"});
    let snapshot = built(&service, &tested).await;
    let tested: Vec<Value> = service
        .get(path(&snapshot))
        .await
        .text()
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    assert!(!tested.is_empty() && tested.len() < 30, "{}", tested.len());
    // The intent of a row that is tested on, and the program of another, in another spelling.
    let intent = tested[0]["user_intent"].as_str().expect("an intent").to_uppercase();
    let program = tested[1]["fixed_dsl"].as_str().expect("a program").replace(' ', "  ");
    service
        .accept(&[
            solved(101, &intent, &[failed(1, "(a)", "e"), passed(2, "(new)")]),
            solved(102, "another intent", &[failed(1, "(b)", "e"), passed(2, &program)]),
        ])
        .await;
    let id = snapshot["id"].as_str().expect("an id");
    for path in [TRAINING, CORRECTIONS] {
        let all = service.get(&format!("{path}?format=raw")).await.rows();
        let left = service.get(&format!("{path}?format=raw&exclude={id}")).await;
        assert_eq!(left.rows().len(), all.len() - tested.len() - 2, "{path}");
        let stands = |row: &Value| tested.iter().any(|other| other["user_intent"] == row["user_intent"]);
        assert!(!left.rows().iter().any(stands));
        let as_of = encoded(left.header("gleaner-as-of").expect("a time"));
        assert_eq!(
            service.get(&format!("{path}?format=raw&exclude={id}&as_of={as_of}")).await.text(),
            left.text()
        );
    }
    let without = built(&service, &json!({"dataset": "training-pairs", "exclude": id})).await;
    assert_eq!(without["rows"], 30 - tested.len());
    service.get(&format!("{TRAINING}?exclude={}", Uuid::nil())).await.refused(422, &["/exclude"]);
    service.get(&format!("/v1/exports/rankings?exclude={id}")).await.refused(422, &["/exclude"]);
    let rankings = built(&service, &json!({"dataset": "rankings", "format": "raw"})).await;
    let path = format!("{TRAINING}?exclude={}", rankings["id"].as_str().expect("an id"));
    service.get(&path).await.refused(422, &["/exclude"]);
}

#[tokio::test]
async fn a_text_is_excluded_in_every_spelling_and_a_text_with_another_letter_is_not() {
    let service = Service::open().await;
    let characters: Vec<char> = ('\u{1}'..'\u{80}').chain("É߀«“\u{a0}ЯΣ日".chars()).collect();
    let log = |number: usize, intent: &str| {
        solved(number as u128, intent, &[passed(1, &format!("(program {number})"))])
    };
    let intents = || {
        characters
            .iter()
            .enumerate()
            .map(|(number, character)| (number, format!("Take {number} {character} of 'it'")))
    };
    service.accept(&intents().map(|(number, intent)| log(number, &intent)).collect::<Vec<_>>()).await;
    let new = json!({"dataset": "training-pairs", "file": "jsonl", "format": "raw"});
    let snapshot = built(&service, &new).await;
    let again = intents().map(|(number, intent)| {
        log(1_000 + number, &format!("\t{}\n", intent.to_lowercase().replace(' ', "\" ")))
    });
    let others = intents().map(|(number, intent)| log(2_000 + number, &format!("{intent} now")));
    service.accept(&again.chain(others).collect::<Vec<_>>()).await;
    let id = snapshot["id"].as_str().expect("an id");
    let left = service.get(&format!("{TRAINING}?format=raw&exclude={id}")).await.rows();
    let left: Vec<_> =
        left.iter().map(|row| row["user_intent"].as_str().expect("an intent").to_owned()).collect();
    assert_eq!(left, intents().map(|(_, intent)| format!("{intent} now")).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_snapshot_has_the_hashes_that_the_database_computes_of_texts_of_every_length() {
    let service = Service::open().await;
    let log = |number: usize| {
        let intent: String = ('!'..='~').cycle().skip(number).take(number).collect();
        solved(number as u128, &intent, &[passed(1, &format!("(Program of\t{intent})"))])
    };
    service.accept(&(1..=60).map(log).collect::<Vec<_>>()).await;
    built(&service, &json!({"dataset": "training-pairs"})).await;
    let sql = "select array(select distinct unnest(texts) from snapshot_contents order by 1), array(
            select split_hash('intent', user_intent) from generations
            union select split_hash('program', final_valid_dsl) from generations order by 1)";
    let (stored, computed): (Vec<i64>, Vec<i64>) =
        sqlx::query_as(sql).fetch_one(service.pool()).await.expect("hashes");
    assert_eq!(stored, computed);
    assert!(stored.len() > 100, "{}", stored.len());
}

/// While a page is read, the database is asked for hashes each time that a megabyte of texts waits for them.
#[tokio::test]
async fn long_texts_that_are_not_ascii_are_excluded_too() {
    let service = Service::open().await;
    let log = |number: u128, intent: u128| {
        let program = format!("(\u{e4} {number} {})", "\u{65e5}".repeat(80_000));
        solved(number, &format!("intent {intent}"), &[passed(1, &program)])
    };
    for number in 1..=12 {
        service.accept(&[log(number, number)]).await;
    }
    let snapshot =
        built(&service, &json!({"dataset": "training-pairs", "file": "jsonl", "format": "raw"})).await;
    assert_eq!(snapshot["rows"], 12);
    let id = snapshot["id"].as_str().expect("an id");
    let same_programs = (1..=12).map(|number| {
        let mut again = log(number, 100 + number);
        again["id"] = json!(Uuid::from_u128(100 + number));
        again
    });
    for again in same_programs {
        service.accept(&[again]).await;
    }
    service.accept(&[solved(300, "another", &[passed(1, "(\u{e4} other)")])]).await;
    let left = service.get(&format!("{TRAINING}?format=raw&exclude={id}")).await.rows();
    assert_eq!(left, [json!({"user_intent": "another", "valid_dsl": "(\u{e4} other)"})]);
}

#[tokio::test]
async fn an_export_breaks_off_if_the_snapshot_that_it_excludes_is_deleted() {
    let service = Service::open().await;
    service.accept(&logs(1)).await;
    let snapshot = built(&service, &json!({"dataset": "training-pairs"})).await;
    let id = snapshot["id"].as_str().expect("an id");
    many(&service).await;
    let export = unread(&service, &format!("{TRAINING}?exclude={id}"), &[]).await;
    service.delete(&format!("{SNAPSHOTS}/{id}")).await.gone();
    export.into_body().collect().await.expect_err("it must not look whole");
}
