//! Requests of a conversation that come while others of it are erased.

use std::pin::pin;

use serde_json::{Value, json};
use sqlx::{Connection as _, Executor as _, PgConnection, Postgres, Transaction};

use super::{CHAT, call, chat, sent};
use crate::support::Service;
use crate::support::provider;

/// Sends this conversation. Returns the address of the send.
async fn said(service: &Service, conversation: &Value) -> String {
    call(service, CHAT, &[], conversation).await.expect(200);
    format!("/v1/sends/{}", sent(service).await["id"].as_str().expect("an id"))
}

/// How many messages are stored.
async fn messages(service: &Service) -> i64 {
    let sql = "select count(*) from sent_messages";
    sqlx::query_scalar(sql).fetch_one(service.pool()).await.expect("a count")
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
    assert_eq!(messages(&service).await, 0);
}

/// A conversation after its first message and after the next, which is so long that the database is asked which messages it
/// has.
fn conversation() -> [Value; 2] {
    let mut whole = chat("m", &["", "answer", "two"]);
    // The provider does not count the words of a block.
    whole["messages"][0]["content"] = json!([{"type": "text", "text": "word ".repeat(4 << 10)}]);
    let mut first = whole.clone();
    first["messages"].as_array_mut().expect("messages").truncate(1);
    [first, whole]
}

/// Ends a transaction once the second of two requests waits for a lock, too, or is answered. Returns the answer.
async fn release<T>(
    service: &Service,
    holder: Transaction<'_, Postgres>,
    second: impl Future<Output = T>,
) -> T {
    service.blocked(1).await;
    let mut second = pin!(second);
    let answer = tokio::select! {
        () = service.blocked(2) => None,
        answer = &mut second => Some(answer),
    };
    holder.commit().await.expect("ends");
    match answer {
        Some(answer) => answer,
        None => second.await,
    }
}

#[tokio::test]
async fn a_request_that_comes_while_the_one_before_it_is_erased_is_stored_whole() {
    let (service, _) = provider::service().await;
    let [first, whole] = conversation();
    let first = said(&service, &first).await;
    let mut connection = service.connection().await;
    let mut holder = connection.begin().await.expect("begins");
    holder.execute("lock table audit in share mode").await.expect("locks");
    let second = release(&service, holder, said(&service, &whole));
    let (erased, _) = tokio::join!(service.delete(&first), second);
    erased.gone();
    assert_eq!(sent(&service).await["messages"], whole["messages"]);
}

/// Makes every send wait before it is committed, as long as the transaction goes on.
async fn hold_back_sends(connection: &mut PgConnection) -> Transaction<'_, Postgres> {
    const LATE: &str = "
        create function wait() returns trigger language plpgsql as $$ begin
            perform pg_advisory_xact_lock(1);
            return null;
        end $$;
        create constraint trigger late after insert on sends deferrable initially deferred
            for each row execute function wait()";
    sqlx::raw_sql(LATE).execute(&mut *connection).await.expect("a trigger");
    let mut holder = connection.begin().await.expect("begins");
    holder.execute("select pg_advisory_xact_lock(1)").await.expect("locks");
    holder
}

#[tokio::test]
async fn a_request_that_is_being_stored_keeps_the_messages_of_the_one_before_it_that_is_erased() {
    let (service, _) = provider::service().await;
    let [first, whole] = conversation();
    let first = said(&service, &first).await;
    let mut connection = service.connection().await;
    let holder = hold_back_sends(&mut connection).await;
    let erased = release(&service, holder, service.delete(&first));
    let (_, erased) = tokio::join!(said(&service, &whole), erased);
    erased.gone();
    assert_eq!(sent(&service).await["messages"], whole["messages"]);
}

#[tokio::test]
async fn a_request_that_is_being_stored_while_its_session_is_erased_loses_no_message_but_with_all_others() {
    let (service, _) = provider::service().await;
    let session = [("gleaner-session", "s")];
    let [first, whole] = conversation();
    call(&service, CHAT, &session, &first).await.expect(200);
    let mut connection = service.connection().await;
    let holder = hold_back_sends(&mut connection).await;
    let erased = release(&service, holder, service.delete("/v1/sessions/s"));
    let (answer, erased) = tokio::join!(call(&service, CHAT, &session, &whole), erased);
    answer.expect(200);
    assert_eq!(erased.expect(200)["sends"], 2);
    assert_eq!((service.all("/v1/sends").await.len(), messages(&service).await), (0, 0));
}

#[tokio::test]
async fn a_session_of_more_requests_than_a_batch_is_erased_with_all_its_messages() {
    const MANY: &str = "
        insert into sends
        select (json_populate_record(s, json_build_object('id', md5(number::text)::uuid))).*
        from sends s cross join generate_series(1, 600) as number;
        insert into sent_messages (project, id, parent)
        select m.project, s.id, m.parent from sent_messages m join sends s on s.id <> m.id where m.content is null";
    let (service, _) = provider::service().await;
    let session = [("gleaner-session", "s")];
    call(&service, CHAT, &session, &chat("m", &["one", "needle"])).await.expect(200);
    sqlx::raw_sql(MANY).execute(service.pool()).await.expect("inserts");
    assert_eq!(service.delete("/v1/sessions/s").await.expect(200)["sends"], 601);
    assert_eq!(messages(&service).await, 0);
}
