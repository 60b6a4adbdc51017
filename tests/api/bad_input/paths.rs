//! Unknown paths, wrong methods and `HEAD`.

use axum::http::Method;
use serde_json::json;
use uuid::Uuid;

use super::{LOGS, open_log};
use crate::support::Service;

#[tokio::test]
async fn a_path_says_which_methods_it_answers() {
    let service = Service::open().await;
    let id = Uuid::new_v4();
    for (method, path, allowed) in [
        (Method::DELETE, LOGS.to_owned(), "GET,HEAD,POST"),
        (Method::PUT, LOGS.to_owned(), "GET,HEAD,POST"),
        (Method::OPTIONS, LOGS.to_owned(), "GET,HEAD,POST"),
        (Method::PUT, format!("{LOGS}/{id}"), "DELETE,GET,HEAD,PATCH"),
        (Method::GET, format!("{LOGS}/{id}/attempts"), "POST"),
        (Method::HEAD, format!("{LOGS}/{id}/finalize"), "POST"),
        (Method::POST, format!("{LOGS}/similar"), "GET,HEAD"),
        (Method::GET, "/v1/events".to_owned(), "POST"),
        (Method::POST, "/v1/exports/training-pairs".to_owned(), "GET,HEAD"),
        (Method::POST, "/healthz".to_owned(), "GET,HEAD"),
    ] {
        let answer = service.call(method.clone(), &path, &[], None).await;
        assert_eq!(answer.status, 405, "{method} {path}");
        let mut allow: Vec<_> = answer.header("allow").expect("Allow").split(',').map(str::trim).collect();
        allow.sort_unstable();
        assert_eq!(allow.join(","), allowed, "{method} {path}");
        assert_eq!(answer.header("content-type"), Some("application/problem+json"));
        if method != Method::HEAD {
            answer.refused(405, &[]);
        }
    }
}

#[tokio::test]
async fn an_unknown_path_is_a_problem_too() {
    let service = Service::open().await;
    for path in [
        "/none",
        "/v1",
        "/v1/",
        "/v1/generation",
        "/v1/generations/",
        "/v2/generations",
        "/v1/exports/a/b",
        "/v1//generations",
    ] {
        for method in [Method::GET, Method::POST, Method::DELETE] {
            let answer = service.call(method, path, &[("x-request-id", "r-1")], Some(&json!({}))).await;
            assert_eq!(answer.header("x-request-id"), Some("r-1"));
            let problem = answer.refused(404, &[]);
            assert_eq!(
                problem,
                json!({"type": "/problems/not-found", "title": "Not Found", "status": 404,
                    "detail": format!("there is nothing at {path}"), "instance": "r-1"})
            );
        }
    }
}

#[tokio::test]
async fn an_id_of_a_request_that_is_too_long_or_has_a_secret_is_replaced() {
    let service = Service::open().await;
    let secret = format!("ghp_{}", "a1B2c3D4e5F6".repeat(3));
    for (id, kept) in [("r".repeat(200), true), ("r".repeat(201), false), (secret, false)] {
        let answer = service.call(Method::GET, "/healthz", &[("x-request-id", &id)], None).await;
        let returned = answer.header("x-request-id").expect("an id");
        assert_eq!(returned == id, kept, "{id}");
        assert!(kept || returned.len() == 36, "{returned}");
    }
}

#[tokio::test]
async fn head_answers_as_get_does_but_without_a_body() {
    let service = Service::open().await;
    let log = open_log(&service).await;
    for path in
        [LOGS, &log, "/healthz", "/readyz", "/version", "/openapi.yaml", "/openapi.json", "/v1/exports"]
    {
        let get = service.get(path).await;
        let head = service.call(Method::HEAD, path, &[], None).await;
        assert_eq!((get.status.as_u16(), head.status.as_u16()), (200, 200), "{path}");
        assert_eq!(head.header("content-type"), get.header("content-type"), "{path}");
        assert!(head.body.is_empty() && !get.body.is_empty());
    }
    let missing = service.call(Method::HEAD, &format!("{LOGS}/{}", Uuid::new_v4()), &[], None).await;
    assert_eq!(missing.status, 404);
}
