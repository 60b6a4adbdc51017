//! Projects: a key sees only its own, and settings that are not in force are refused.

use axum::http::Method;
use serde_json::json;

use super::{LOGS, call, log, make};
use crate::support::{Service, scrub, with};

#[tokio::test]
async fn a_key_of_one_project_cannot_see_or_touch_another() {
    let (service, operator) = Service::closed().await;
    for project in ["a", "b"] {
        let path = format!("/v1/projects/{project}");
        call(&service, &operator, Method::PUT, &path, Some(json!({}))).await.expect(201);
    }
    let all = json!(["write", "read", "admin"]);
    let (a, _) = make(&service, &operator, json!({"project": "a", "scopes": all})).await;
    let (b, b_id) = make(&service, &operator, json!({"project": "b", "scopes": all})).await;
    let log = with(log(), &json!({"session_id": "s", "success": true, "final_valid_dsl": "(a)"}));
    let made = call(&service, &a, Method::POST, LOGS, Some(log)).await.expect(201);
    let path = format!("{LOGS}/{}", made["id"].as_str().expect("an id"));
    call(&service, &a, Method::GET, &path, None).await.expect(200);
    call(&service, &b, Method::GET, &path, None).await.refused(404, &[]);
    call(&service, &b, Method::DELETE, &path, None).await.refused(404, &[]);
    for list in [LOGS, "/v1/sessions", "/v1/generations/similar?intent=Create+a+fund"] {
        for (key, count) in [(&a, 1), (&b, 0), (&operator, 0)] {
            let found = call(&service, key, Method::GET, list, None).await.expect(200);
            assert_eq!(found["data"].as_array().map(Vec::len), Some(count), "{list}");
        }
    }
    for (key, count) in [(&a, 1), (&b, 0)] {
        let rows = call(&service, key, Method::GET, "/v1/exports/training-pairs", None).await.rows();
        assert_eq!(rows.len(), count);
    }
    let listed = call(&service, &a, Method::GET, "/v1/keys", None).await.expect(200);
    assert_eq!(listed["data"].as_array().map(Vec::len), Some(1));
    let of_b = format!("/v1/keys/{b_id}");
    call(&service, &a, Method::DELETE, &of_b, None).await.refused(404, &[]);
    for (method, path, body) in [
        (Method::GET, "/v1/projects/b", None),
        (Method::PUT, "/v1/projects/b", Some(json!({}))),
        (Method::PUT, "/v1/projects/new", Some(json!({}))),
        (Method::POST, "/v1/keys", Some(json!({"name": "k", "scopes": ["read"], "project": "b"}))),
        (Method::POST, "/v1/keys", Some(json!({"name": "k", "scopes": ["operator"]}))),
    ] {
        call(&service, &a, method, path, body).await.refused(403, &[]);
    }
    let headers = |key: &str| format!("Bearer {key}");
    for (key, project, status) in [(&a, "a", 200), (&a, "b", 403), (&a, "default", 403), (&a, "none", 403)] {
        let bearer = headers(key);
        let headers = [("authorization", bearer.as_str()), ("gleaner-project", project)];
        let answer = service.call(Method::GET, LOGS, &headers, None).await;
        assert_eq!(answer.status, status, "{project}");
    }
    for (project, status, count) in [("a", 200, Some(1)), ("b", 200, Some(0)), ("none", 404, None)] {
        let bearer = headers(&operator);
        let headers = [("authorization", bearer.as_str()), ("gleaner-project", project)];
        let answer = service.call(Method::GET, LOGS, &headers, None).await;
        assert_eq!(answer.status, status, "{project}");
        assert_eq!(answer.json()["data"].as_array().map(Vec::len), count);
    }
}

#[tokio::test]
async fn a_setting_that_is_not_in_force_is_refused_and_not_stored() {
    let service = Service::open().await;
    let path = "/v1/projects/p";
    let defaults = json!({"project": "p", "capture": "full", "redact": [], "retention_days": null, "searches": {},
        "created_at": "time"});
    let made = service.put(path, &json!({})).await;
    assert_eq!(made.header("location"), Some(path));
    assert_eq!(scrub(&made.expect(201)), defaults);
    for (settings, pointers) in [
        (json!({"capture": "some"}), vec!["/capture"]),
        (json!({"capture": 1}), vec!["/capture"]),
        (json!({"capture": {"generations": "some"}}), vec!["/capture/generations"]),
        (json!({"capture": {"weather": "off"}}), vec!["/capture/weather"]),
        (json!({"redact": ["email"]}), vec!["/redact"]),
        (json!({"redact": "email"}), vec!["/redact"]),
        (json!({"retention_days": {"generations": 30}}), vec!["/retention_days"]),
        (json!({"retention_days": 30}), vec!["/retention_days"]),
        (json!({"capture": "off", "redact": ["email"]}), vec!["/redact"]),
        (json!({"colour": "red"}), vec!["/colour"]),
    ] {
        service.put(path, &settings).await.refused(422, &pointers);
        assert_eq!(scrub(&service.get(path).await.expect(200)), defaults, "{settings}");
    }
    for settings in [
        json!({"capture": "full", "redact": [], "retention_days": null}),
        json!({"capture": null, "redact": null}),
    ] {
        assert_eq!(scrub(&service.put(path, &settings).await.expect(200)), defaults);
    }
    let kept = json!({"retention_days": {"generations": null}});
    service.put(path, &kept).await.expect(200);
    service.get("/v1/projects/none").await.refused(404, &[]);
}
