//! Keys: ours opens the gateway and goes no further, the provider's passes and is not kept.

use std::net::SocketAddr;

use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::http::Method;
use futures_util::future::join_all;
use gleaner::projects::FRESH;
use serde_json::json;

use super::{CHAT, MESSAGES, call, chat};
use crate::support::{provider, request};

#[tokio::test]
async fn a_key_of_ours_may_come_as_each_client_sends_its_own_and_never_reaches_the_provider() {
    let (service, asked) = provider::service().await;
    let any = [("x-api-key", "any"), ("authorization", "Bearer any")];
    call(&service, MESSAGES, &any, &chat("claude", &["x"])).await.expect(200);
    let first = service.first_key().await;
    let bearer = format!("Bearer {first}");
    call(&service, CHAT, &any, &chat("m", &["x"])).await.expect(401);
    for (path, model, key) in [
        (MESSAGES, "claude", ("x-api-key", first.as_str())),
        (MESSAGES, "claude", ("authorization", &bearer)),
        (CHAT, "m", ("authorization", &bearer)),
    ] {
        call(&service, path, &[key, ("anthropic-beta", "b")], &chat(model, &["x"])).await.expect(200);
        let sent = asked.last_headers();
        assert!(sent.values().all(|value| !value.to_str().expect("ASCII").contains("glnr_")), "{sent:?}");
        assert_eq!(sent["anthropic-beta"], "b");
    }
    assert_eq!(asked.last_headers()["authorization"], "Bearer provider-key");
    let read = json!({"name": "reader", "scopes": ["read"]});
    let read =
        service.call(Method::POST, "/v1/keys", &[("authorization", &bearer)], Some(&read)).await.expect(201);
    let read = format!("Bearer {}", read["key"].as_str().expect("a key"));
    let refused = call(&service, CHAT, &[("authorization", &read)], &chat("m", &["x"])).await.expect(403);
    assert_eq!(refused["error"]["message"], "this key lacks the scope write");
}

#[tokio::test]
async fn a_clients_own_key_for_the_provider_passes_and_is_kept_nowhere() {
    let (service, asked) = provider::service().await;
    for (path, model, sent, header, passed) in [
        (CHAT, "m", "own-needle", "authorization", "Bearer own-needle"),
        (CHAT, "m", "Bearer own-needle", "authorization", "Bearer own-needle"),
        (MESSAGES, "claude", "own-needle", "x-api-key", "own-needle"),
        (MESSAGES, "claude", "Bearer own-needle", "authorization", "Bearer own-needle"),
    ] {
        call(&service, path, &[("gleaner-provider-key", sent)], &chat(model, &["x"])).await.expect(200);
        let headers = asked.last_headers();
        assert_eq!(headers[header], passed);
        assert!(!headers.contains_key("gleaner-provider-key"));
    }
    assert!(!service.dump().await.contains("needle"));
}

#[tokio::test]
async fn a_key_that_the_provider_repeats_in_its_error_passes_if_it_is_the_clients_own_and_is_kept_nowhere() {
    let (service, _) = provider::service().await;
    for stream in [false, true] {
        let mut body = chat("telling", &["x"]);
        body["stream"] = stream.into();
        let ours = "[redacted:key]";
        for (header, key, told) in
            [("gleaner-provider-key", "own-needle", "own-needle"), ("gleaner-topic", "provider-key", ours)]
        {
            let refused = call(&service, CHAT, &[(header, key)], &body).await.expect(401);
            let said = format!("Incorrect API key provided: Bearer {told}");
            assert_eq!(refused["error"]["message"], said);
            let send = super::sent(&service).await;
            let kept = "{\"error\":{\"message\":\"Incorrect API key provided: Bearer [redacted:key]\"}}";
            assert_eq!(send["error"]["message"], kept);
            let label = send["error"]["label"].as_str().expect("a label");
            assert!(label.ends_with("[redacted:key]"), "{label}");
        }
    }
    let execute = json!({"mode": "execute", "user_text": "x", "model": "telling"});
    let send = service.post("/v1/sends", &execute).await.expect(201);
    assert_eq!(send["state"], "error");
    let dump = service.dump().await;
    assert!(!dump.contains("needle") && !dump.contains("Bearer provider-key"), "{dump}");
}

#[tokio::test]
async fn a_revoked_key_is_refused_although_its_address_is_answered_late() {
    let (service, asked) = provider::service().await;
    let first = format!("Bearer {}", service.first_key().await);
    let first = [("authorization", first.as_str())];
    let settings = json!({"messages": {"gateway_without_database": true}});
    service.call(Method::PUT, "/v1/projects/default", &first, Some(&settings)).await.expect(200);
    let key = json!({"name": "writer", "scopes": ["write"]});
    let key = service.call(Method::POST, "/v1/keys", &first, Some(&key)).await.expect(201);
    let (id, writer) = (&key["id"], format!("Bearer {}", key["key"].as_str().expect("a key")));
    call(&service, CHAT, &[("authorization", &writer)], &chat("m", &["x"])).await.expect(200);
    let path = format!("/v1/keys/{}", id.as_str().expect("an id"));
    service.another().call(Method::DELETE, &path, &first, None).await.expect(204);
    // What the server remembers is too old then.
    tokio::time::sleep(FRESH).await;
    let peer: SocketAddr = "192.0.2.1:5000".parse().expect("an address");
    let ask = |key: &str| {
        let request = request(Method::POST, CHAT).header("authorization", key);
        let request = request.header("content-type", "application/json").extension(ConnectInfo(peer));
        service.send(request.body(Body::from(chat("m", &["x"]).to_string())).expect("a request"))
    };
    // More failures than an address has without a delay.
    let asked_with = std::iter::repeat_n("Bearer wrong", 22).chain([writer.as_str()]);
    for refused in join_all(asked_with.map(ask)).await {
        assert_eq!(refused.status, 401);
    }
    assert_eq!(asked.calls(), 1);
}
