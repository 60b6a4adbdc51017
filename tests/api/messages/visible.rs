//! Filters of visible pairs: what they find, and that nobody waits for them who has not asked.

use axum::http::Method;
use futures_util::future::join_all;
use serde_json::json;
use sqlx::{Connection as _, Executor as _};
use uuid::Uuid;

use super::{recorded, service};
use crate::support::column;

#[tokio::test]
async fn a_filter_that_takes_long_keeps_no_writer_from_others() {
    const WAITING: &str = "
        select count(*) from pg_stat_activity
        where datname = current_database() and wait_event_type = 'Lock' and application_name like 'gleaner-writer%'";
    let service = service().await;
    let projects = ["default", "second", "third"].map(|project| [("gleaner-project", project)]);
    for headers in &projects[1..] {
        service.project(headers[0].1).await;
        let limits = json!({"context_window": 400});
        service.call(Method::PUT, "/v1/models/m", headers, Some(&limits)).await.expect(201);
    }
    let mut other = service.connection().await;
    let mut transaction = other.begin().await.expect("a transaction");
    transaction.execute("lock table pairs in access exclusive mode").await.expect("a lock");
    let send = recorded("new", &json!({"filter": {"q": "needle"}}));
    let sends = join_all(
        projects.iter().map(|headers| service.call(Method::POST, "/v1/sends", headers, Some(&send))),
    );
    let others = async {
        service.blocked(3).await;
        let waiting: i64 = sqlx::query_scalar(WAITING).fetch_one(service.pool()).await.expect("a count");
        assert_eq!(waiting, 0, "writers wait");
        let log = json!({"user_intent": "Create a fund", "domain_name": "cbu"});
        service.post("/v1/generations", &log).await.expect(201);
        transaction.commit().await.expect("released");
    };
    let (sends, ()) = futures_util::join!(sends, others);
    for send in sends {
        assert_eq!(send.expect(201)["counter"], "0 / 0");
    }
}

#[tokio::test]
async fn a_filter_in_a_batch_finds_what_the_lines_before_it_have_made() {
    let service = service().await;
    let id = Uuid::from_u128;
    let send = |send: u128, pair: u128, text: &str| {
        json!({"event": "send", "id": id(send), "pair_id": id(pair), "mode": "record", "model": "m", "user_text": text,
            "visible": {"filter": {}}})
    };
    service
        .accept(&[
            json!({"event": "pair", "id": id(1), "user_text": "u1", "assistant_text": "a1"}),
            send(11, 2, "u2"),
            json!({"event": "send_outcome", "send_id": id(11), "assistant_text": "a2"}),
            send(12, 3, "u3"),
            send(13, 4, "u4"),
        ])
        .await;
    for (send, texts) in [
        (11, &["u1", "a1", "u2"][..]),
        (12, &["u1", "a1", "u2", "a2", "u3"]),
        (13, &["u1", "a1", "u2", "a2", "u4"]),
    ] {
        let send = service.get(&format!("/v1/sends/{}", id(send))).await.expect(200);
        assert_eq!(column(send["messages"].as_array().expect("messages"), "content"), texts);
    }
}
