//! Projects: a key sees only its own, and settings that are not in force are refused.

use axum::http::Method;
use serde_json::json;
use uuid::Uuid;

use super::{LOGS, call, log, make};
use crate::support::{Service, column, scrub, with};

/// A service with a log in project `a`; the operator's key, and keys of `a` and `b` with every other scope.
async fn two_projects() -> (Service, [String; 3]) {
    let (service, operator) = Service::closed().await;
    for project in ["a", "b"] {
        let path = format!("/v1/projects/{project}");
        call(&service, &operator, Method::PUT, &path, Some(json!({}))).await.expect(201);
    }
    let all = json!(["write", "read", "admin"]);
    let (a, _) = make(&service, &operator, json!({"project": "a", "scopes": all})).await;
    let (b, _) = make(&service, &operator, json!({"project": "b", "scopes": all})).await;
    let id = json!({"id": LOG, "session_id": "s", "success": true, "final_valid_dsl": "(a)"});
    call(&service, &a, Method::POST, LOGS, Some(with(log(), &id))).await.expect(201);
    (service, [operator, a, b])
}

const LOG: Uuid = Uuid::from_u128(1);

#[tokio::test]
async fn a_key_of_one_project_cannot_see_or_touch_another() {
    let (service, [operator, a, b]) = two_projects().await;
    let path = format!("{LOGS}/{LOG}");
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
}

#[tokio::test]
async fn a_key_of_one_project_manages_neither_keys_nor_settings_of_another() {
    let (service, [_, a, b]) = two_projects().await;
    let keys = async |key: &str| {
        let listed = call(&service, key, Method::GET, "/v1/keys", None).await.expect(200);
        column(listed["data"].as_array().expect("data"), "id")
    };
    assert_eq!(keys(&a).await.len(), 1);
    let of_b = format!("/v1/keys/{}", keys(&b).await[0].as_str().expect("an id"));
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
}

#[tokio::test]
async fn a_key_of_one_project_names_no_other_and_the_operators_key_names_any() {
    let (service, [operator, a, _]) = two_projects().await;
    for (key, project, status, count) in [
        (&a, "a", 200, Some(1)),
        (&a, "b", 403, None),
        (&a, "default", 403, None),
        (&a, "none", 403, None),
        (&operator, "a", 200, Some(1)),
        (&operator, "b", 200, Some(0)),
        (&operator, "none", 404, None),
    ] {
        let bearer = format!("Bearer {key}");
        let headers = [("authorization", bearer.as_str()), ("gleaner-project", project)];
        let answer = service.call(Method::GET, LOGS, &headers, None).await;
        assert_eq!(answer.status, status, "{project}");
        assert_eq!(answer.json()["data"].as_array().map(Vec::len), count, "{project}");
    }
}

#[tokio::test]
async fn a_setting_that_is_not_in_force_is_refused_and_not_stored() {
    let service = Service::open().await;
    let path = "/v1/projects/p";
    let defaults = json!({"project": "p", "capture": "full", "redact": {"builtin": ["secrets"], "custom": [], "tag": false},
        "retention_days": null, "quotas": {"requests_per_second": null, "bytes_per_day": null, "rows": null}, "searches": {}, "messages": {}, "memories": {}, "created_at": "time"});
    let made = service.put(path, &json!({})).await;
    assert_eq!(made.header("location"), Some(path));
    assert_eq!(scrub(&made.expect(201)), defaults);
    for (settings, pointers) in [
        (json!({"capture": "some"}), vec!["/capture"]),
        (json!({"capture": 1}), vec!["/capture"]),
        (json!({"capture": {"generations": "some"}}), vec!["/capture/generations"]),
        (json!({"capture": {"weather": "off"}}), vec!["/capture/weather"]),
        (json!({"redact": {"builtin": ["email"]}}), vec!["/redact/builtin/0"]),
        (json!({"redact": "email"}), vec!["/redact"]),
        (json!({"retention_days": {"generations": 0}}), vec!["/retention_days/generations"]),
        (json!({"retention_days": {"generations": 36_501}}), vec!["/retention_days/generations"]),
        (json!({"retention_days": {"weather": 30}}), vec!["/retention_days/weather"]),
        (json!({"retention_days": 30}), vec!["/retention_days"]),
        (
            json!({"quotas": {"requests_per_second": 0, "rows": 0}}),
            vec!["/quotas/requests_per_second", "/quotas/rows"],
        ),
        (json!({"quotas": {"colour": 1}}), vec!["/quotas/colour"]),
        (json!({"capture": "off", "redact": []}), vec!["/redact"]),
        (json!({"colour": "red"}), vec!["/colour"]),
    ] {
        service.put(path, &settings).await.refused(422, &pointers);
        assert_eq!(scrub(&service.get(path).await.expect(200)), defaults, "{settings}");
    }
    for settings in [
        json!({"capture": "full", "redact": {}, "retention_days": null}),
        json!({"capture": null, "redact": null}),
    ] {
        assert_eq!(scrub(&service.put(path, &settings).await.expect(200)), defaults);
    }
    let kept = json!({"retention_days": {"generations": null}});
    service.put(path, &kept).await.expect(200);
    service.get("/v1/projects/none").await.refused(404, &[]);
}
