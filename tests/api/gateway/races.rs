//! Requests of a conversation that come while others of it are erased.

use serde_json::Value;
use sqlx::{Connection as _, Executor as _};

use super::{CHAT, call, chat, sent};
use crate::support::Service;
use crate::support::provider;

/// Sends this conversation. Returns the address of the send.
async fn said(service: &Service, conversation: &Value) -> String {
    call(service, CHAT, &[], conversation).await.expect(200);
    format!("/v1/sends/{}", sent(service).await["id"].as_str().expect("an id"))
}

#[tokio::test]
async fn sends_of_a_conversation_that_are_erased_at_once_leave_none_of_its_messages() {
    let (service, _) = provider::service().await;
    let other = service.another();
    let first = said(&service, &chat("m", &["one"])).await;
    let second = said(&service, &chat("m", &["one", "answer", "two"])).await;
    let mut connection = service.connection().await;
    let mut holder = connection.begin().await.expect("begins");
    // An erasure is noted when it has deleted everything.
    holder.execute("lock table audit in share mode").await.expect("locks");
    let release = async {
        service.blocked(2).await;
        holder.commit().await.expect("ends");
    };
    let (one, another, ()) = tokio::join!(service.delete(&first), other.delete(&second), release);
    one.gone();
    another.gone();
    let left: i64 = sqlx::query_scalar("select count(*) from sent_messages")
        .fetch_one(service.pool())
        .await
        .expect("a count");
    assert_eq!(left, 0);
}
