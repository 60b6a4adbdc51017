//! Records that are like older ones: left out on request, the same ones whenever and in whatever pieces.

use serde_json::{Value, json};
use uuid::Uuid;

use super::{CORRECTIONS, TRAINING, pieces, solved};
use crate::support::{Answer, Service, column, encoded, failed, passed, with};

const LONG: &str = "Create a hedge fund with John as director and Mary as secretary in Luxembourg";

fn log(number: u128, intent: &str, program: &str) -> Value {
    solved(number, intent, &[failed(1, "(x)", "e"), passed(2, program)])
}

fn program(number: u32) -> String {
    format!(
        "(cbu.create :name \"Hedge Fund\" :director \"John\" :secretary \"Mary\" :place \"LU\" :number {number})"
    )
}

async fn intents(service: &Service, path: &str) -> Vec<Value> {
    column(&service.get(path).await.rows(), "user_intent")
}

#[tokio::test]
async fn of_similar_records_the_oldest_is_exported() {
    let service = Service::open().await;
    let other = format!("{LONG} please");
    service
        .accept(&[
            log(1, LONG, &program(1)),
            log(2, &other, &program(1)),
            log(3, "List all funds", "(fund.list)"),
            with(log(4, &format!("{LONG} now"), &program(1)), &json!({"domain_name": "bond"})),
            log(5, "List all funds", "(fund.list :all true :in \"Luxembourg\" :since 2020)"),
        ])
        .await;
    let now = format!("{LONG} now");
    let expected = [json!(LONG), json!("List all funds"), json!("List all funds")];
    for path in [TRAINING, CORRECTIONS] {
        let path = format!("{path}?format=raw&dedupe=near");
        assert_eq!(intents(&service, &path).await, expected, "{path}");
        // Only what is in the export, too, keeps a row out of it.
        assert_eq!(intents(&service, &format!("{path}&domain_name=bond")).await, [json!(now)]);
        assert_eq!(intents(&service, &format!("{path}&near_threshold=1")).await.len(), 5);
        let answer = service.get(&path).await;
        let taken: Vec<_> = pieces(&service, &path, &[1, 2]).await.iter().flat_map(Answer::rows).collect();
        assert_eq!(taken, answer.rows());
    }
    service.get(&format!("{TRAINING}?near_threshold=0.9")).await.refused(422, &["/dedupe"]);
    service
        .get(&format!("{TRAINING}?dedupe=near&near_threshold=0.4"))
        .await
        .refused(422, &["/near_threshold"]);
    service.get("/v1/exports/rankings?dedupe=near").await.refused(422, &["/dedupe"]);
}

#[tokio::test]
async fn similarity_does_not_depend_on_later_records_or_on_concurrent_exports() {
    let service = Service::open().await;
    // More than a page of records, in twenty clusters, and more equals than are compared with later ones.
    let event = |number: u128| {
        let words: Vec<_> = (0..20).map(|word| format!("w{}", (number % 20) * 100 + word)).collect();
        let more = if number.is_multiple_of(3) { "again" } else { "once" };
        log(number, &format!("{} {more}", words.join(" ")), &format!("({})", words.join(" ")))
    };
    service.accept(&(0..700).map(event).collect::<Vec<_>>()).await;
    let path = format!("{TRAINING}?format=raw&dedupe=near");
    let another = service.another();
    let (one, two) = tokio::join!(service.get(&path), another.get(&path));
    assert_eq!(one.rows().len(), 20);
    let as_of = encoded(one.header("gleaner-as-of").expect("a time"));
    service.accept(&(700..900).map(event).collect::<Vec<_>>()).await;
    for answer in [two, service.get(&path).await, service.get(&format!("{path}&as_of={as_of}")).await] {
        assert_eq!(answer.text(), one.text());
    }
    // Once the oldest of a cluster is erased, nothing is left out because of it.
    service.delete(&format!("/v1/generations/{}", Uuid::from_u128(0))).await.gone();
    let left = service.get(&path).await.rows();
    assert!(left.len() <= 20 + 2, "{}", left.len());
    assert!(left.iter().any(|row| row["user_intent"].as_str().is_some_and(|text| text.starts_with("w0 "))));
}

#[tokio::test]
async fn of_very_many_similar_records_one_is_exported_whatever_the_conditions() {
    let service = Service::open().await;
    let event = |number: u128| {
        let domain = if number < 100 { "a" } else { "b" };
        with(log(number, &format!("{LONG} and all of it"), &program(1)), &json!({"domain_name": domain}))
    };
    service.accept(&(0..100).map(event).collect::<Vec<_>>()).await;
    let path = format!("{TRAINING}?format=raw&dedupe=near");
    assert_eq!(intents(&service, &path).await.len(), 1);
    service.accept(&(100..800).map(event).collect::<Vec<_>>()).await;
    for condition in ["", "&domain_name=a", "&domain_name=b"] {
        assert_eq!(intents(&service, &format!("{path}{condition}")).await.len(), 1, "{condition}");
    }
    let kept = "select count(*) from near_texts";
    let kept: i64 = sqlx::query_scalar(kept).fetch_one(service.pool()).await.expect("a count");
    assert!(kept <= 20, "{kept}");
    for number in 0..100 {
        service.delete(&format!("/v1/generations/{}", Uuid::from_u128(number))).await.gone();
    }
    assert_eq!(intents(&service, &path).await.len(), 1);
}

#[tokio::test]
async fn equal_rows_are_left_out_even_if_a_filter_leaves_out_all_records_known_as_similar() {
    let service = Service::open().await;
    let log = |number: u128| {
        let log = solved(number, "Create a fund", &[passed(1, "(fund.create)")]);
        with(log, &json!({"domain_name": format!("d{}", number % 20)}))
    };
    service.accept(&(1..=40).map(log).collect::<Vec<_>>()).await;
    let path = format!("{TRAINING}?format=raw&dedupe=near&domain_name=d10");
    assert_eq!(service.get(&path).await.rows().len(), 1);
}

#[tokio::test]
async fn of_very_many_records_of_one_pattern_only_some_are_compared_with_all_later_ones() {
    let service = Service::open().await;
    let event = |number: u128| {
        let own: Vec<_> = (0..7).map(|word| format!("own{number}x{word}")).collect();
        log(number, &format!("{LONG} and all of it {}", own.join(" ")), &program(1))
    };
    service.accept(&(0..2_000).map(event).collect::<Vec<_>>()).await;
    let path = format!("{TRAINING}?format=raw&dedupe=near&near_threshold=0.9");
    let before = service.get(&path).await.rows().len();
    assert!(before > 1_900, "they are not that similar: {before}");
    let kept = "select count(*) from near_texts where cardinality(bands) > 5";
    let kept: i64 = sqlx::query_scalar(kept).fetch_one(service.pool()).await.expect("a count");
    assert!(kept < 1_200, "{kept}");
    // Copies of any of them are still found.
    let again = |number: u128| {
        let intent = event(number)["user_intent"].as_str().expect("a text").to_owned();
        log(5_000 + number, &format!("please {intent}"), &program(1))
    };
    service.accept(&(0..2_000).step_by(20).map(again).collect::<Vec<_>>()).await;
    let found = before + 100 - service.get(&path).await.rows().len();
    assert!(found >= 95, "{found} of 100");
}
