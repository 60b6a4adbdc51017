//! Exports at the same time, and exports that nobody reads.

use std::collections::HashSet;
use std::pin::pin;
use std::time::Duration;

use axum::body::Body;
use axum::http::{Method, Request};
use axum::response::Response;
use futures_util::StreamExt as _;
use futures_util::future::{Either, join_all, select};
use http_body_util::BodyExt as _;
use serde_json::json;
use tokio::time::timeout;
use tower::ServiceExt as _;
use uuid::Uuid;

use super::files::{built, path};
use super::{CORRECTIONS, TRAINING, rows, solved, splits};
use crate::support::program::{Limits, Settings};
use crate::support::{Service, failed, passed, settings};

#[tokio::test]
async fn exports_asked_for_at_once_wait_for_each_other() {
    let service = Service::open().await;
    service.accept(&[solved(1, "one", &[passed(1, "y")])]).await;
    let answers = join_all((0..20).map(|_| service.get(TRAINING))).await;
    for answer in answers {
        assert_eq!(answer.rows().len(), 1);
    }
}

const ALL: &str = "/v1/exports/training-pairs";

/// Logs that are together more than what lies between the database and a reader, even compressed.
pub(super) async fn many(service: &Service) {
    let mut random = fastrand::Rng::with_seed(1);
    let events: Vec<_> = (0..2_000)
        .map(|number| {
            let program: String = std::iter::repeat_with(|| random.alphanumeric()).take(2_000).collect();
            json!({"event": "generation", "user_intent": format!("i{number}"), "domain_name": "d", "success": true,
                "final_valid_dsl": program})
        })
        .collect();
    service.accept(&events).await;
}

/// The answer to a request whose body nobody reads.
pub(super) async fn unread(service: &Service, path: &str, headers: &[(&str, &str)]) -> Response {
    let mut request = Request::get(path).header("host", "localhost");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(Body::empty()).expect("a request");
    let response = service.router.clone().oneshot(request).await.expect("an answer");
    assert_eq!(response.status(), 200);
    response
}

#[tokio::test]
async fn one_export_more_than_allowed_at_once_is_a_503_until_a_reader_goes_away() {
    let service = Service::open().await;
    many(&service).await;
    let held =
        [unread(&service, ALL, &[]).await, unread(&service, ALL, &[("accept-encoding", "gzip")]).await];
    let refused = service.get("/v1/exports/training-pairs").await;
    assert!(refused.header("retry-after").is_some());
    let problem = refused.expect(503);
    assert_eq!(problem["detail"], "the maximum number of exports is in progress; try again");
    drop(held);
    assert_eq!(rows(&service, "/v1/exports/training-pairs").await.len(), 2_000);
}

#[tokio::test]
async fn exports_that_wait_for_others_to_end_keep_nobody_from_reading() {
    let service = Service::open().await;
    many(&service).await;
    let _held = [unread(&service, ALL, &[]).await, unread(&service, ALL, &[]).await];
    let waiting = join_all((0..8).map(|_| service.get("/v1/exports/training-pairs")));
    let listed = service.get("/v1/generations?limit=1");
    let Either::Right((listed, _)) = select(pin!(waiting), pin!(listed)).await else {
        panic!("the exports were refused first");
    };
    listed.expect(200);
}

#[tokio::test]
async fn readers_of_one_project_leave_places_for_those_of_another() {
    let service = Service::open().await;
    service.put("/v1/projects/other", &json!({})).await.expect(201);
    many(&service).await;
    let _held = [unread(&service, ALL, &[]).await, unread(&service, ALL, &[]).await];
    let other = service.call(Method::GET, TRAINING, &[("gleaner-project", "other")], None).await;
    assert_eq!(other.rows().len(), 0);
}

#[tokio::test]
async fn an_export_that_takes_too_long_is_broken_off_and_gives_its_place_free() {
    let exports = Limits { most_exports: 1, longest_export: 1, ..Limits::default() };
    let service = Service::with(Settings { exports, ..settings() }).await;
    many(&service).await;
    let slow = unread(&service, ALL, &[]).await;
    // Gets the only place once the slow one has lost it.
    assert_eq!(rows(&service, "/v1/exports/training-pairs?limit=5").await.len(), 5);
    slow.into_body().collect().await.expect_err("it must not look whole");
}

#[tokio::test]
async fn a_page_that_waits_for_its_reader_ends_and_the_next_one_continues_there() {
    const BEGUN: &str = "
        select extract(epoch from query_start)::text from pg_stat_activity
        where application_name = 'gleaner-export' and state = 'active' and datname = current_database()";
    let exports = Limits { longest_page: Duration::ZERO, ..settings().exports };
    let service = Service::with(Settings { exports, ..settings() }).await;
    many(&service).await;
    let mut slow = unread(&service, ALL, &[]).await.into_body().into_data_stream();
    let (mut read, mut statements) = (Vec::new(), HashSet::new());
    while let Some(chunk) = slow.next().await {
        read.extend(chunk.expect("it is not broken off"));
        let begun: Option<String> =
            sqlx::query_scalar(BEGUN).fetch_optional(service.pool()).await.expect("an answer");
        statements.extend(begun);
    }
    assert!(statements.len() > 1, "all rows are of one statement");
    assert_eq!(String::from_utf8(read).expect("text"), service.get(ALL).await.text());
}

#[tokio::test]
async fn an_export_or_a_profile_whose_rows_take_too_long_to_count_is_a_503_and_its_statement_ends() {
    const SLOW: &str = "
        create or replace function split_hash(kind text, content text) returns bigint language plpgsql as $$
            begin perform pg_advisory_xact_lock_shared(1); return 1; end $$";
    let exports = Limits { longest_export: 1, ..Limits::default() };
    let service = Service::with(Settings { exports, ..settings() }).await;
    service.accept(&(0..20).map(splits::log).collect::<Vec<_>>()).await;
    let [split, profile] =
        ["", "/profile"].map(|path| format!("{TRAINING}{path}?split=validation&holdout=0.5"));
    service.get(&split).await.rows();
    sqlx::raw_sql(SLOW).execute(service.pool()).await.expect("a slow function");
    let mut holder = service.connection().await;
    sqlx::query("select pg_advisory_lock(1)").execute(&mut holder).await.expect("a lock");
    for path in [split, profile] {
        let refused =
            timeout(Duration::from_secs(30), service.get(&path)).await.expect("an answer").expect(503);
        assert_eq!(refused["detail"], "the rows could not be counted in time; ask for fewer rows");
        service.blocked(0).await;
    }
}

#[tokio::test]
async fn one_download_more_than_allowed_at_once_is_a_503_and_one_of_a_deleted_snapshot_breaks_off() {
    let service = Service::open().await;
    many(&service).await;
    let new = json!({"dataset": "training-pairs", "file": "jsonl"});
    let snapshot = built(&service, &new).await;
    let path = path(&snapshot);
    let mut held = Vec::new();
    for _ in 0..16 {
        held.push(unread(&service, path, &[]).await);
    }
    let refused = service.get(path).await;
    assert!(refused.header("retry-after").is_some());
    assert_eq!(refused.expect(503)["detail"], "the maximum number of downloads is in progress; try again");
    let bodiless = service.call(Method::HEAD, path, &[], None).await;
    assert_eq!(bodiless.status, 200, "what has no body needs no place");
    let last = held.pop().expect("an answer");
    drop(held);
    assert_eq!(service.get(path).await.rows().len(), 2_000);
    service.delete(&format!("/v1/snapshots/{}", snapshot["id"].as_str().expect("an id"))).await.expect(204);
    last.into_body().collect().await.expect_err("the rest of the file is gone");
}

#[tokio::test]
async fn a_conversation_or_the_steps_of_a_log_that_would_be_a_very_long_row_are_left_out() {
    let service = Service::open().await;
    let text = "x ".repeat(1 << 20);
    let pair = |topic: &str, text: &str| json!({"event": "pair", "user_text": text, "assistant_text": "a", "topic_id": topic, "model": "m"});
    let long = (0..9).map(|_| pair("long", &text));
    let others = (0..2).map(|_| pair("short", "q"));
    service.accept(&long.chain(others).collect::<Vec<_>>()).await;
    let rows = service.get("/v1/exports/conversations").await.rows();
    let turns: Vec<_> = rows.iter().map(|row| row["messages"].as_array().map_or(0, Vec::len)).collect();
    assert_eq!(turns, [4]);

    let attempts: Vec<_> = (1..=9)
        .map(|number| failed(number, &format!("({number}) {text}"), "no"))
        .chain([passed(10, "(ok)")])
        .collect();
    service
        .accept(&[
            solved(1, "long", &attempts),
            solved(2, "short", &[failed(1, "(a)", "no"), passed(2, "(b)")]),
        ])
        .await;
    let steps = service.get("/v1/exports/correction-pairs?format=trl-stepwise").await.rows();
    assert_eq!(steps.len(), 1);
    let pairs = service.get("/v1/exports/correction-pairs").await.rows();
    assert_eq!(pairs.len(), 2);
}

/// Of many rows, those of records whose ids have a small hash are read. Clients choose the ids.
#[tokio::test]
async fn a_profile_reads_twice_its_usual_number_of_rows_at_most_however_many_a_record_in_its_sample_has() {
    let service = Service::open().await;
    // The hash of this id is small.
    service.accept(&[solved(5, "intent", &[passed(1, "(right)")])]).await;
    let review = json!({"rating": "poor", "corrected_dsl": "(corrected)"});
    service.put(&format!("/v1/generations/{}/review", Uuid::from_u128(5)), &review).await.expect(200);
    let pairs = "insert into correction_pairs (project, kind, is_review, completed_at, generation_id, bad_attempt, row_hash)
        select 'default', 'final', true, completed_at, id, number, gen_random_uuid()
        from generations, generate_series(2, 110000) number";
    sqlx::query(pairs).execute(service.pool()).await.expect("pairs");
    let profile = service.get(&format!("{CORRECTIONS}/profile?pairing=final")).await.expect(200);
    assert_eq!([&profile["rows"], &profile["profiled"]], [110_000, 100_000]);
    assert_eq!(profile["sampled"], true);
}
