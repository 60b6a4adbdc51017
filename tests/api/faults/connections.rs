//! Connections to the database that end while nobody uses them, or of which nobody is told that they have ended.

use std::time::Duration;

use axum::http::Method;
use serde_json::json;
use sqlx::{Connection as _, Executor as _};
use uuid::Uuid;

use crate::support::program::{Limits, LongestStatement, Refilling, Rounds as _, Settings};
use crate::support::{Line, Service, eventually, settings};

#[tokio::test]
async fn a_writer_whose_connection_has_ended_fails_no_more_than_once() {
    const END: &str = "
        select count(pg_terminate_backend(pid)) from pg_stat_activity
        where application_name like 'gleaner-writer%' and datname = current_database()";
    let service = Service::open().await;
    service.project("another").await;
    let event = json!({"user_intent": "Create a fund", "domain_name": "cbu"});
    let post = async |project| {
        let headers = [("gleaner-project", project)];
        service.call(Method::POST, "/v1/generations", &headers, Some(&event)).await
    };
    post("default").await.expect(201);
    let ended: i64 = sqlx::query_scalar(END).fetch_one(service.pool()).await.expect("a count");
    assert!(ended > 0);
    // The first statement for another project is the one that names the connection.
    let first = post("another").await;
    assert!([201, 503].contains(&first.status.as_u16()), "{}", first.text());
    post("another").await.expect(201);
}

#[tokio::test]
async fn a_write_whose_connection_dies_without_a_word_is_given_up_and_one_that_postgres_works_on_is_not() {
    let whole = Service::open().await;
    let line = Line::to(&whole.options).await;
    let silence = Duration::from_secs(2);
    let service = Service::reached_by(line.options.clone(), Settings { silence, ..settings() });
    let event =
        json!({"event": "generation", "id": Uuid::from_u128(1), "user_intent": "i", "domain_name": "d"});
    let mut other = whole.connection().await;
    let mut transaction = other.begin().await.expect("a transaction");
    transaction.execute("lock table generations in exclusive mode").await.expect("a lock");
    let lost = async {
        whole.blocked(1).await;
        line.lose("gleaner-writer");
        transaction.commit().await.expect("released");
    };
    let events = [event];
    let (answer, ()) = futures_util::join!(service.events(&events), lost);
    assert_eq!(answer.expect(503)["detail"], "the database cannot be reached; try again");
    // The lost connection has begun to write the event, and Postgres waits ten seconds for it to go on.
    assert_eq!(service.events(&events).await.expect(200)["accepted"], 1);
    eventually("the server is ready", async || service.get("/readyz").await.status == 200).await;
}

#[tokio::test]
async fn a_read_whose_connection_dies_without_a_word_is_given_up_and_its_connection_closed() {
    let whole = Service::open().await;
    let line = Line::to(&whole.options).await;
    let longest_statement = LongestStatement(Duration::from_secs(2));
    let alone = Settings { longest_statement, upkeep: false, ..settings() };
    let service = Service::reached_by(line.options.clone(), alone);
    let in_use = || service.pool().size() as usize - service.pool().num_idle();
    let held = whole.holding("lock table suggestions in access exclusive mode").await;
    let lost = async {
        whole.blocked(1).await;
        // The library tests each connection that is given back, without an end if it is lost meanwhile.
        eventually("no other connection is in use", async || in_use() == 1).await;
        line.lose("gleaner");
        held.commit().await.expect("released");
    };
    let (answer, ()) = futures_util::join!(service.get("/v1/suggestions"), lost);
    assert_eq!(answer.expect(503)["detail"], "the database cannot be reached; try again");
    eventually("its connection is closed", async || in_use() == 0).await;
    eventually("others are used", async || service.get("/v1/suggestions").await.status == 200).await;
}

#[tokio::test]
async fn a_profile_whose_connection_dies_without_a_word_gives_its_place_back() {
    let whole = Service::open().await;
    let line = Line::to(&whole.options).await;
    let exports = Limits { most_exports: 1, longest_export: 2, ..settings().exports };
    let service = Service::reached_by(line.options.clone(), Settings { exports, ..settings() });
    let held = whole.holding("lock table generations in access exclusive mode").await;
    let profile = "/v1/exports/training-pairs/profile";
    let lost = async {
        whole.blocked(1).await;
        line.lose("gleaner-export");
        held.commit().await.expect("released");
    };
    let (answer, ()) = futures_util::join!(service.get(profile), lost);
    answer.expect(503);
    eventually("its place is free", async || service.get(profile).await.status == 200).await;
}

#[tokio::test]
async fn a_statement_that_takes_too_long_is_ended_and_can_be_sent_again() {
    let whole = Service::open().await;
    let longest_statement = LongestStatement(Duration::from_secs(1));
    let service = Service::reached_by(whole.options.clone(), Settings { longest_statement, ..settings() });
    let held = whole.holding("lock table suggestions in access exclusive mode").await;
    let answer = service.get("/v1/suggestions").await;
    assert_eq!(answer.expect(503)["detail"], "the database cannot be reached; try again");
    held.commit().await.expect("released");
    service.get("/v1/suggestions").await.expect(200);
}

#[tokio::test]
async fn what_no_answer_shows_of_long_records_is_not_read_to_its_end() {
    const TEXT: usize = 1_900_000;
    let whole = Service::open().await;
    let line = Line::to(&whole.options).await;
    let service = Service::reached_by(line.options.clone(), Settings { upkeep: false, ..settings() });
    let in_use = || service.pool().size() as usize - service.pool().num_idle();
    let text = "x".repeat(TEXT);
    let log = Uuid::from_u128(1);
    let begun = json!({"event": "generation", "id": log, "user_intent": "i", "domain_name": "d"});
    service.events(&[begun]).await.expect(200);
    for number in 1..=60 {
        let attempt =
            json!({"event": "attempt", "generation_id": log, "attempt": number, "prompt_text": text});
        let pair = json!({"event": "pair", "user_text": text, "assistant_text": "a"});
        service.events(&[attempt, pair]).await.expect(200);
    }
    let page = async || {
        let before = line.sent();
        let listed = service.get("/v1/pairs?limit=500").await.expect(200);
        eventually("the connection is given back", async || in_use() == 0).await;
        (listed["data"].as_array().map(Vec::len), listed["next_cursor"].is_string(), line.sent() - before)
    };
    let (count, has_next, sent) = page().await;
    assert_eq!((count, has_next), (Some(8), true));
    assert!(sent < 30 * TEXT, "{sent} bytes were sent for a page of 8 of 60 records");

    let before = line.sent();
    service.get(&format!("/v1/generations/{log}")).await.expect(413);
    eventually("the connection is given back", async || in_use() == 0).await;
    let sent = line.sent() - before;
    assert!(sent < 40 * TEXT, "{sent} bytes were sent for 17 of 60 attempts");
    assert_eq!(page().await.0, Some(8), "the connections can be used again");
}

#[tokio::test]
async fn a_pool_without_a_free_connection_gets_one_although_nobody_asks() {
    let service = Service::open().await;
    let pool = service.pool_of_one();
    let mut refilling = Refilling(vec![pool.clone()]);
    refilling.round().await.expect("it does not fail");
    eventually("the connection is there", async || pool.num_idle() == 1).await;
    pool.close().await;
    refilling.round().await.expect("nor does it fail without a database");
}
