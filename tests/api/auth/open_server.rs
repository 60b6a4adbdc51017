//! A server without keys: whom it answers, and the first key that closes it.

use axum::body::Body;
use axum::http::{Method, Request, Version, header};
use serde_json::json;

use super::{LOGS, call, log};
use crate::support::program::{Secret, pool, replace_first_key};
use crate::support::{Answer, Service};

fn from(host: &str) -> axum::http::request::Builder {
    Request::builder().uri(LOGS).header(header::HOST, host)
}

async fn get(service: &Service, request: axum::http::request::Builder) -> Answer {
    service.send(request.body(Body::empty()).expect("a request")).await
}

#[tokio::test]
async fn an_open_server_answers_only_to_this_machines_own_names() {
    let service = Service::open().await;
    for host in
        ["localhost", "localhost:8080", "LocalHost:80", "127.0.0.1", "127.0.0.1:9", "[::1]", "[::1]:65535"]
    {
        get(&service, from(host)).await.expect(200);
    }
    for host in [
        "evil.example",
        "evil.example:8080",
        "localhost.evil.example",
        "127.0.0.1.evil.example:8080",
        "evil.example:localhost",
        "localhost:8080:8080x",
        "10.0.0.1",
        "0.0.0.0",
        "[::2]",
        "",
    ] {
        for path in [LOGS, "/v1/exports/training-pairs", "/metrics", "/docs/", "/unknown"] {
            get(&service, from(host).uri(path)).await.refused(403, &[]);
        }
        let post = from(host).method(Method::POST).header(header::CONTENT_TYPE, "application/json");
        let post = post.body(Body::from(log().to_string())).expect("a request");
        service.send(post).await.refused(403, &[]);
    }
    // HTTP/1.1 wants one host.
    get(&service, Request::builder().uri(LOGS)).await.refused(400, &[]);
    get(&service, from("localhost").header(header::HOST, "localhost")).await.refused(400, &[]);
    // HTTP/2 names it in the address.
    let prior_knowledge =
        |host: &str| Request::builder().version(Version::HTTP_2).uri(format!("http://{host}{LOGS}"));
    get(&service, prior_knowledge("localhost:8080")).await.expect(200);
    get(&service, prior_knowledge("evil.example")).await.refused(403, &[]);
    let stored = service.get(LOGS).await.expect(200);
    assert_eq!(stored["data"], json!([]));
}

#[tokio::test]
async fn an_open_server_refuses_what_browsers_send_for_other_sites() {
    let service = Service::open().await;
    for (name, value) in [
        ("origin", "http://evil.example"),
        ("origin", "https://localhost.evil.example"),
        ("origin", "null"),
        ("origin", "http://evil.example:8080"),
        ("sec-fetch-site", "cross-site"),
        // Another port is another page, which a browser lets post text without asking first.
        ("origin", "http://localhost:3000"),
        ("origin", "http://127.0.0.1:8080"),
        ("sec-fetch-site", "same-site"),
    ] {
        get(&service, from("localhost:8080").header(name, value)).await.refused(403, &[]);
    }
    let both = from("localhost").header("origin", "http://localhost");
    get(&service, both.header("sec-fetch-site", "cross-site")).await.refused(403, &[]);
    for (name, value) in [
        ("origin", "http://localhost:8080"),
        ("origin", "http://LOCALHOST:8080"),
        ("sec-fetch-site", "same-origin"),
        ("sec-fetch-site", "none"),
        ("authorization", "Bearer x"),
    ] {
        get(&service, from("localhost:8080").header(name, value)).await.expect(200);
    }
}

#[tokio::test]
async fn an_open_server_refuses_what_a_proxy_passes_on() {
    let service = Service::open().await;
    for (name, value) in [
        ("forwarded", "for=203.0.113.5"),
        ("via", "1.1 proxy"),
        ("x-forwarded-for", "203.0.113.5"),
        ("x-forwarded-host", "gleaner.example"),
        ("x-real-ip", "203.0.113.5"),
    ] {
        get(&service, from("localhost:8080").header(name, value)).await.refused(403, &[]);
    }
}

#[tokio::test]
async fn the_first_key_closes_the_server_at_once() {
    let service = Service::open().await;
    service.create(LOGS, log()).await;
    let body = json!({"name": "first", "scopes": ["operator"]});
    let made = service.post("/v1/keys", &body).await.expect(201);
    let key = made["key"].as_str().expect("a secret");
    service.get(LOGS).await.refused(401, &[]);
    service.post(LOGS, &log()).await.refused(401, &[]);
    service.post("/v1/keys", &body).await.refused(401, &[]);
    call(&service, key, Method::GET, LOGS, None).await.expect(200);
    // With keys, the name that the server is called by no longer matters.
    let foreign = from("gleaner.example").header("authorization", format!("Bearer {key}"));
    get(&service, foreign.header("origin", "https://app.example")).await.expect(200);

    let path = format!("/v1/keys/{}", made["id"].as_str().expect("an id"));
    assert_eq!(call(&service, key, Method::DELETE, &path, None).await.status, 204);
    service.get(LOGS).await.refused(401, &[]);
    call(&service, key, Method::GET, LOGS, None).await.refused(401, &[]);
}

#[tokio::test]
async fn another_first_key_takes_the_place_of_the_one_before() {
    let service = Service::open().await;
    let db = pool(&service.options, "first key", 1);
    let (old, new) = ("the-first-key-that-was-given-once", "the-first-key-that-is-given-today");
    let start_with = async |key: &str| {
        let secret = Secret::chosen(key).expect("a key");
        let mut connection = db.acquire().await.expect("a connection");
        replace_first_key(&mut connection, &secret).await.expect("is kept").key
    };
    for key in [old, old, new, new] {
        assert_eq!(start_with(key).await.revoked_at, None);
    }
    call(&service, new, Method::GET, LOGS, None).await.expect(200);
    call(&service, old, Method::GET, LOGS, None).await.refused(401, &[]);
    // One that was revoked stays so, and does not take the one in force with it: nobody is locked out.
    assert!(start_with(old).await.revoked_at.is_some());
    assert_eq!(start_with(new).await.revoked_at, None);
}

#[tokio::test]
async fn a_first_key_that_was_rotated_does_not_end_its_successor_when_the_server_starts_again() {
    let service = Service::open().await;
    let db = pool(&service.options, "first key", 1);
    let first = "the-first-key-that-was-given-once";
    let start = async || {
        let secret = Secret::chosen(first).expect("a key");
        let mut connection = db.acquire().await.expect("a connection");
        replace_first_key(&mut connection, &secret).await.expect("is kept")
    };
    let id = start().await.key.id;
    let path = format!("/v1/keys/{id}/rotate");
    let later = json!({"old_expires_at": "2999-01-01T00:00:00Z"});
    let rotated = call(&service, first, Method::POST, &path, Some(later)).await.expect(201);
    let again = start().await;
    assert_eq!((again.is_new, again.replaced.len()), (false, 0));
    let key = rotated["key"].as_str().expect("a key");
    call(&service, key, Method::GET, LOGS, None).await.expect(200);
    call(&service, first, Method::GET, LOGS, None).await.expect(200);
}

#[tokio::test]
async fn requests_under_way_while_the_first_key_is_made_do_not_leave_the_server_open() {
    for _ in 0..5 {
        let service = Service::open().await;
        let body = json!({"name": "first", "scopes": ["operator"]});
        let reads = || futures_util::future::join_all((0..8).map(|_| service.get(LOGS)));
        let (_, made, _) = tokio::join!(reads(), service.post("/v1/keys", &body), reads());
        made.expect(201);
        service.get(LOGS).await.refused(401, &[]);
    }
}
