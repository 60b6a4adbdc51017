//! The database goes away: before the provider is asked, and after.

use std::sync::Arc;

use gleaner::projects::FRESH;
use serde_json::json;

use super::{CHAT, begun, call, chat, sent};
use crate::support::provider::{self, Asked};
use crate::support::{Line, Service};

/// A server that reaches the database of `whole` by a line that can be cut.
async fn service() -> (Service, Service, Line, Arc<Asked>) {
    let whole = Service::open().await;
    let line = Line::to(&whole.options).await;
    let (settings, asked) = provider::settings_with_providers().await;
    (Service::reached_by(line.options.clone(), settings), whole, line, asked)
}

#[tokio::test]
async fn without_the_database_the_provider_is_not_asked() {
    let (service, whole, line, asked) = service().await;
    call(&service, CHAT, &[], &chat("m", &["x"])).await.expect(200);
    line.cut(true);
    let refused = call(&service, CHAT, &[], &chat("m", &["x"])).await;
    assert!(refused.header("retry-after").is_some());
    assert_eq!(refused.expect(503)["error"]["type"], "server_error");
    assert_eq!(asked.calls(), 1);
    line.cut(false);
    crate::support::eventually("it is back", async || {
        call(&service, CHAT, &[], &chat("m", &["y"])).await.status == 200
    })
    .await;
    assert_eq!(sent(&whole).await["pair"]["user_text"], "y");
}

#[tokio::test]
async fn a_project_may_want_its_requests_to_pass_without_a_record_and_they_are_counted() {
    let (service, whole, line, asked) = service().await;
    let settings = json!({"messages": {"gateway_without_database": true}});
    service.put("/v1/projects/default", &settings).await.expect(200);
    call(&service, CHAT, &[], &chat("m", &["kept"])).await.expect(200);
    let count = async || {
        let metrics = service.get("/metrics").await.text();
        let count = metrics.lines().find_map(|line| line.strip_prefix("gleaner_gateway_unrecorded_total "));
        count.expect("the counter").parse::<u64>().expect("a number")
    };
    let before = count().await;
    line.cut(true);
    for stream in [false, true] {
        let body = crate::support::with(chat("m", &["lost"]), &json!({"stream": stream}));
        let answer = call(&service, CHAT, &[], &body).await;
        assert_eq!((answer.status.as_u16(), answer.header("gleaner-recorded")), (200, Some("no")));
    }
    assert_eq!(asked.calls(), 3);
    // Other tests may count meanwhile.
    assert!(count().await >= before + 2);
    assert_eq!(sent(&whole).await["pair"]["user_text"], "kept");
}

#[tokio::test]
async fn an_answer_that_was_paid_for_is_given_although_it_could_not_be_kept() {
    let (service, whole, line, asked) = service().await;
    let task = begun(&service, &asked, CHAT, &chat("slow", &["x"])).await;
    line.cut(true);
    asked.go_on.notify_one();
    let response = task.await.expect("an answer");
    assert_eq!(
        (response.status().as_u16(), &response.headers()["gleaner-recorded"]),
        (200, &"no".parse().expect("a value"))
    );
    assert_eq!(sent(&whole).await["state"], "sending");
}

#[tokio::test]
async fn what_passes_under_settings_that_cannot_be_read_is_not_recorded() {
    let (service, asked) = provider::service().await;
    let settings = json!({"messages": {"gateway_without_database": true}});
    service.put("/v1/projects/default", &settings).await.expect(200);
    call(&service, CHAT, &[], &chat("m", &["kept"])).await.expect(200);
    let mut connection = service.connection().await;
    sqlx::raw_sql("begin; lock table keys").execute(&mut connection).await.expect("a lock");
    // What the server remembers is too old then.
    tokio::time::sleep(FRESH).await;
    let answer = call(&service, CHAT, &[], &chat("m", &["passed"])).await;
    assert_eq!((answer.status.as_u16(), answer.header("gleaner-recorded")), (200, Some("no")));
    sqlx::raw_sql("rollback").execute(&mut connection).await.expect("the lock is given back");
    assert_eq!((asked.calls(), service.all("/v1/sends").await.len()), (2, 1));
}
