//! Exports in pieces, and exports taken again as of an earlier time.

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::Value;

use super::{CORRECTIONS, TRAINING, pieces, rows, solved};
use crate::support::{Answer, Service, column, encoded, failed, passed};

#[tokio::test]
async fn pieces_are_together_the_whole_and_cut_no_log_in_two() {
    let service = Service::open().await;
    let mut number = 0;
    let logs: Vec<_> = (0..23_u128)
        .map(|id| {
            let mut program = || {
                number += 1;
                format!("(program {})", number % 7)
            };
            let failures = i32::try_from(id % 4).expect("small");
            let mut chain: Vec<_> = (1..=failures).map(|attempt| failed(attempt, &program(), "e")).collect();
            chain.push(passed(9, &program()));
            solved(id, &format!("intent {id}"), &chain)
        })
        .collect();
    service.accept(&logs).await;
    for query in [
        "pairing=next&format=raw",
        "pairing=final&format=raw",
        "pairing=fix&format=raw",
        "pairing=next&format=raw&dedupe=exact",
        "pairing=next&format=raw&split=train&holdout=0.3",
    ] {
        let path = format!("{CORRECTIONS}?{query}");
        let whole = service.get(&path).await;
        assert_eq!(whole.header("gleaner-next-cursor"), None);
        let logs_of = |answer: &Answer| -> BTreeSet<String> {
            let ids = column(&answer.rows(), "generation_id");
            ids.iter().map(Value::to_string).collect()
        };
        assert!(logs_of(&whole).len() > 5, "{query}");
        for limits in [vec![1], vec![2], vec![3, 1, 5], vec![7, 2], vec![22, 1], vec![23], vec![1000]] {
            let pieces = pieces(&service, &path, &limits).await;
            let together: String = pieces.iter().map(Answer::text).collect();
            assert_eq!(together, whole.text(), "{query} {limits:?}");
            let mut seen = BTreeSet::new();
            for (place, piece) in pieces.iter().enumerate() {
                let logs = logs_of(piece);
                assert!(logs.is_disjoint(&seen), "a log is cut in two: {query} {limits:?}");
                let limit = limits[place % limits.len()];
                assert!(logs.len() == limit || place + 1 == pieces.len() && logs.len() < limit);
                assert!(!logs.is_empty(), "an empty piece: {query} {limits:?}");
                seen.extend(logs);
            }
        }
    }
    let path = format!("{TRAINING}?format=openai");
    let together: String = pieces(&service, &path, &[4, 1, 9]).await.iter().map(Answer::text).collect();
    assert_eq!(together, service.get(&path).await.text());
}

#[tokio::test]
async fn a_cursor_belongs_to_its_data_set_and_filters() {
    let service = Service::open().await;
    let logs: Vec<_> =
        (1..=3).map(|id| solved(id, "intent", &[failed(1, "x", "e"), passed(2, "y")])).collect();
    service.accept(&logs).await;
    let first = service.get(&format!("{TRAINING}?domain_name=cbu&limit=1&format=raw")).await;
    let cursor = first.header("gleaner-next-cursor").expect("there is more").to_owned();
    for path in [
        format!("{TRAINING}?cursor={cursor}"),
        format!("{TRAINING}?domain_name=bond&cursor={cursor}"),
        format!("{TRAINING}?domain_name=cbu&split=train&cursor={cursor}"),
        format!("{CORRECTIONS}?domain_name=cbu&cursor={cursor}"),
        format!("{TRAINING}?domain_name=cbu&cursor=x{cursor}"),
        format!("{TRAINING}?domain_name=cbu&cursor=made-up"),
        format!("/v1/generations?domain_name=cbu&cursor={cursor}"),
    ] {
        service.get(&path).await.refused(422, &["/cursor"]);
    }
    let list = service.get("/v1/generations?domain_name=cbu&limit=1").await.expect(200);
    let foreign = list["next_cursor"].as_str().expect("there is more");
    service.get(&format!("{TRAINING}?domain_name=cbu&cursor={foreign}")).await.refused(422, &["/cursor"]);
    let rest = format!("{TRAINING}?domain_name=cbu&format=raw&cursor={cursor}");
    assert_eq!(rows(&service, &rest).await.len(), 2);
    service.get(&format!("{rest}&as_of=2020-01-01T00:00:00Z")).await.refused(422, &["/as_of"]);
}

#[tokio::test]
async fn a_forged_cursor_is_refused_and_counts_nothing_beyond_its_range() {
    let service = Service::open().await;
    let logs: Vec<_> = (1..=3).map(|id| solved(id, "intent", &[passed(1, "y")])).collect();
    service.accept(&logs).await;
    let first = service.get(&format!("{TRAINING}?limit=1")).await;
    let cursor = first.header("gleaner-next-cursor").expect("there is more");
    let bytes = URL_SAFE_NO_PAD.decode(cursor).expect("base 64");
    // A version, a scope and a time, then the record, the state and the number of records taken as text.
    let (head, text) = bytes.split_at(1 + 8 + 8);
    let text = String::from_utf8(text.to_vec()).expect("text");
    let parts: Vec<_> = text.split(' ').collect();
    let [record, as_of, "1"] = parts.as_slice() else { panic!("{text}") };
    let forged = |text: String| URL_SAFE_NO_PAD.encode([head, text.as_bytes()].concat());
    let edge = i64::MAX;
    for text in [
        format!("{record} {as_of} {edge}"),
        format!("{record} {as_of} {}", edge - 1),
        format!("{record} {as_of} 0"),
        format!("{record} {as_of} -1"),
        format!("{record} {as_of} {}", i64::MIN),
        format!("{record} {edge} 1"),
        format!("{record} 4102444800000000 1"),
        format!("{record} {} 1", i64::MIN),
        format!("x {as_of} 1"),
        format!("{record} {as_of}"),
        format!("{record} {as_of} 1 1"),
    ] {
        for rest in ["", "&limit=1", &format!("&limit={edge}")] {
            let path = format!("{TRAINING}?cursor={}{rest}", forged(text.clone()));
            service.get(&path).await.refused(422, &["/cursor"]);
        }
    }
    let times = [i64::MAX, i64::MIN].map(|time| {
        let head = [&bytes[..9], &time.to_be_bytes()].concat();
        URL_SAFE_NO_PAD.encode([head.as_slice(), text.as_bytes()].concat())
    });
    for cursor in times {
        service.get(&format!("{TRAINING}?cursor={cursor}")).await.refused(422, &["/cursor"]);
    }
    for taken in [1_i64, 1 << 53] {
        let cursor = forged(format!("{record} {as_of} {taken}"));
        for rest in ["", &format!("&limit={edge}")] {
            let path = format!("{TRAINING}?format=raw&cursor={cursor}{rest}");
            assert_eq!(rows(&service, &path).await.len(), 2, "{taken} {rest}");
        }
    }
}

#[tokio::test]
async fn an_export_taken_again_as_of_then_is_the_same_bytes() {
    let log = |id: u128| solved(id, &format!("intent {id}"), &[failed(1, "x", "e"), passed(2, "y")]);
    for path in [format!("{TRAINING}?"), format!("{CORRECTIONS}?format=raw&")] {
        let service = Service::open().await;
        let logs: Vec<_> = (1..=5).map(log).collect();
        service.accept(&logs).await;
        let first = service.get(&path).await;
        assert_eq!(first.rows().len(), 5);
        let as_of = first.header("gleaner-as-of").expect("a time").to_owned();
        let piece = service.get(&format!("{path}limit=2")).await;
        let cursor = piece.header("gleaner-next-cursor").expect("more").to_owned();
        service.accept(&[log(6)]).await;
        let again = service.get(&format!("{path}as_of={as_of}")).await;
        assert_eq!(again.text(), first.text());
        assert_eq!(again.header("gleaner-as-of"), Some(as_of.as_str()));
        let rest = service.get(&format!("{path}cursor={cursor}")).await;
        assert_eq!(piece.text() + &rest.text(), first.text());
        assert_eq!(rest.header("gleaner-as-of"), piece.header("gleaner-as-of"), "the cursor keeps the state");
        let now = service.get(&path).await;
        assert!(now.text().starts_with(&first.text()) && now.text().len() > first.text().len());
        service.get(&format!("{path}as_of=2999-01-01T00:00:00Z")).await.refused(422, &["/as_of"]);
        let before = service.get(&format!("{path}as_of=2020-01-01T00:00:00Z")).await;
        assert_eq!(before.text(), "");
    }
}

#[tokio::test]
async fn an_export_as_of_a_moment_that_is_near_begins_then() {
    let service = Service::open().await;
    let log = |id: u128| solved(id, &format!("intent {id}"), &[passed(1, "y")]);
    service.accept(&[log(1)]).await;
    let clock = "select to_char((clock_timestamp() + interval '1 second') at time zone 'utc', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"')";
    let soon: String = sqlx::query_scalar(clock).fetch_one(service.pool()).await.expect("a time");
    let path = format!("{TRAINING}?split=train&holdout=0&as_of={}", encoded(&soon));
    let meanwhile = [log(2)];
    let (answer, ()) = tokio::join!(service.get(&path), service.accept(&meanwhile));
    assert_eq!(answer.rows().len(), 2);
}

#[tokio::test]
async fn an_export_does_not_begin_while_a_writers_transactions_cannot_be_seen() {
    use sqlx::{ConnectOptions as _, Executor as _};

    let service = Service::open().await;
    let options = service.options.clone().application_name("gleaner-writer");
    let mut hidden = options.connect().await.expect("connects");
    // Of other roles, too, Postgres tells no more than the names of their connections.
    hidden.execute("set track_activities = off").await.expect("is set");
    let path = format!("{TRAINING}?split=train");
    let refused = service.get(&path).await.expect(503);
    let detail = refused["detail"].as_str().expect("a sentence");
    assert!(detail.starts_with("the writes in progress cannot be seen"), "{detail}");
    hidden.execute("set track_activities = on").await.expect("is set");
    assert_eq!(service.get(&path).await.status, 200);
}
