//! Health, readiness, version, documents and metrics: which of them need a key.

use std::net::SocketAddr;

use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::http::{Request, header};
use serde_json::json;

use super::make;
use crate::support::Service;

#[tokio::test]
async fn metrics_need_a_key_unless_the_caller_is_on_this_machine() {
    let (service, operator) = Service::closed().await;
    let (writer, _) = make(&service, &operator, json!({"scopes": ["write"]})).await;
    let metrics = async |peer: &str, key: Option<&str>| {
        let peer: SocketAddr = peer.parse().expect("an address");
        let mut request = Request::builder()
            .uri("/metrics")
            .header(header::HOST, "gleaner.example")
            .extension(ConnectInfo(peer));
        if let Some(key) = key {
            request = request.header(header::AUTHORIZATION, format!("Bearer {key}"));
        }
        service.send(request.body(Body::empty()).expect("a request")).await
    };
    for (peer, key) in [
        ("127.0.0.1:5000", None),
        ("[::1]:5000", None),
        ("127.0.0.1:5000", Some("wrong")),
        ("203.0.113.5:5000", Some(operator.as_str())),
        ("203.0.113.5:5000", Some(writer.as_str())),
    ] {
        let answer = metrics(peer, key).await;
        assert_eq!(answer.status, 200, "{peer}");
        assert!(answer.header("content-type").is_some_and(|kind| kind.starts_with("text/plain")));
        assert!(answer.text().contains("gleaner_http_request_duration_seconds_count"));
    }
    for (peer, key) in [("203.0.113.5:5000", None), ("203.0.113.5:5000", Some("wrong")), ("10.0.0.1:1", None)]
    {
        metrics(peer, key).await.refused(401, &[]);
    }
}

#[tokio::test]
async fn operations_need_no_key() {
    let (service, _) = Service::closed().await;
    for (path, said) in [
        ("/healthz", json!({"status": "ok"})),
        ("/readyz", json!({"status": "ready"})),
        ("/version", json!({"name": "gleaner", "version": env!("CARGO_PKG_VERSION")})),
    ] {
        assert_eq!(service.get(path).await.expect(200), said);
    }
    let document = service.get("/openapi.json").await.expect(200);
    assert!(document["paths"]["/v1/generations"].is_object());
    assert_eq!(service.get("/openapi.yaml").await.status, 200);
    assert_eq!(service.get("/docs/").await.status, 200);
}
