//! Keys and settings that change while the body of a request arrives.

use axum::body::{Body, Bytes};
use axum::http::Method;
use futures_util::stream;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::{LOGS, call, log, make};
use crate::support::{Answer, Service, request};

/// Sends a body in two pieces, between which something happens.
async fn send(
    service: &Service,
    (key, path): (&str, &str),
    [first, second]: [String; 2],
    happens: impl Future<Output = ()>,
) -> Answer {
    let (arrived, has_arrived) = oneshot::channel();
    let (go_on, goes_on) = oneshot::channel::<()>();
    let pieces = stream::once(async { Bytes::from(first) });
    let last = stream::once(async {
        arrived.send(()).expect("somebody waits for it");
        // A body that is there when it is looked at a second time has not been waited for.
        for _ in 0..3 {
            tokio::task::yield_now().await;
        }
        goes_on.await.expect("it goes on");
        Bytes::from(second)
    });
    let pieces =
        futures_util::StreamExt::map(futures_util::StreamExt::chain(pieces, last), Ok::<_, std::io::Error>);
    let request = request(Method::POST, path)
        .header("authorization", format!("Bearer {key}"))
        .header("content-type", "application/x-ndjson");
    let sent = service.send(request.body(Body::from_stream(pieces)).expect("a request"));
    let meanwhile = async {
        has_arrived.await.expect("it is read");
        happens.await;
        go_on.send(()).expect("the request waits");
    };
    tokio::join!(sent, meanwhile).0
}

fn event() -> [String; 2] {
    let line = json!({"event": "generation", "user_intent": "Add a fund", "domain_name": "cbu"}).to_string();
    [line[..9].to_owned(), line[9..].to_owned()]
}

fn transcript() -> [String; 2] {
    let line = |text: &str| {
        let message = json!({"role": "user", "content": text});
        json!({"type": "user", "sessionId": "s", "cwd": "/src/app", "timestamp": "2026-03-01T10:00:00Z", "message": message})
            .to_string()
            + "\n"
    };
    [line("Where is the queue?"), line("And the pool?")]
}

#[tokio::test]
async fn what_a_key_was_still_sending_when_it_was_revoked_is_not_stored() {
    let (service, operator) = Service::closed().await;
    for (path, body) in
        [("/v1/events", event()), ("/v1/transcripts?agent=claude-code&source=s", transcript())]
    {
        let (key, id) = make(&service, &operator, json!({"scopes": ["write"]})).await;
        send(&service, (&key, path), body.clone(), async {}).await.expect(200);
        let revoked = send(&service, (&key, path), body, async {
            let path = format!("/v1/keys/{id}");
            assert_eq!(call(&service, &operator, Method::DELETE, &path, None).await.status, 204);
        });
        revoked.await.refused(401, &[]);
    }
    let logs = call(&service, &operator, Method::GET, LOGS, None).await.expect(200);
    assert_eq!(logs["data"].as_array().map(Vec::len), Some(1));
}

#[tokio::test]
async fn what_was_being_sent_when_settings_changed_is_sent_again() {
    let (service, operator) = Service::closed().await;
    let put = async |settings: Value| {
        call(&service, &operator, Method::PUT, "/v1/projects/default", Some(settings)).await.expect(200);
    };
    for (path, body) in
        [("/v1/events", event()), ("/v1/transcripts?agent=claude-code&source=s", transcript())]
    {
        put(json!({})).await;
        let changed = send(&service, (&operator, path), body.clone(), put(json!({"capture": "off"}))).await;
        assert_eq!(changed.header("retry-after"), Some("1"), "{path}: {} {}", changed.status, changed.text());
        changed.refused(503, &[]);
        put(json!({})).await;
        send(&service, (&operator, path), body, put(json!({}))).await.expect(200);
    }
    call(&service, &operator, Method::POST, LOGS, Some(log())).await.expect(201);
}
