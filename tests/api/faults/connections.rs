//! Connections that the database ends while nobody uses them.

use axum::http::Method;
use serde_json::json;

use crate::support::Service;

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
