//! Cursors, limits and times of lists that make no sense, and records of another project.

use axum::http::Method;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use uuid::Uuid;

use super::{LOGS, log};
use crate::support::{Service, passed, with};

#[tokio::test]
async fn a_record_of_another_project_is_not_found_and_its_id_may_be_used_again() {
    let service = Service::open().await;
    service.project("other").await;
    let id = Uuid::new_v4();
    let path = format!("{LOGS}/{id}");
    let call = async |method: Method, path: &str, project: &str, body: Option<Value>| {
        service.call(method, path, &[("gleaner-project", project)], body.as_ref()).await
    };
    service.create(LOGS, with(log("ours"), &json!({"id": id, "session_id": "s"}))).await;
    let attempts = format!("{path}/attempts");
    for (method, path, body) in [
        (Method::GET, path.clone(), None),
        (Method::DELETE, path.clone(), None),
        (Method::POST, attempts.clone(), Some(passed(1, "(a)"))),
        (Method::POST, format!("{path}/finalize"), Some(json!({"success": false}))),
        (Method::PUT, format!("{path}/review"), Some(json!({"rating": "good"}))),
    ] {
        call(method, &path, "other", body).await.refused(404, &[]);
    }
    let attempt = with(passed(1, "(a)"), &json!({"event": "attempt", "generation_id": id}));
    let summary = call(Method::POST, "/v1/events", "other", Some(json!([attempt]))).await.expect(200);
    assert_eq!(
        summary,
        json!({"accepted": 0, "duplicates": 0, "rejected": [{"line": 1, "status": 404, "detail": "no such generation"}]})
    );
    let erased = call(Method::DELETE, "/v1/sessions/s", "other", None).await.expect(200);
    assert_eq!(erased["generations"], 0);

    let theirs = with(log("theirs"), &json!({"id": id, "success": true, "final_valid_dsl": "(b)"}));
    call(Method::POST, LOGS, "other", Some(theirs)).await.expect(201);
    call(Method::POST, &attempts, "default", Some(passed(1, "(a)"))).await.expect(201);
    for (project, intent, attempts) in [("default", "ours", 1), ("other", "theirs", 0)] {
        let log = call(Method::GET, &path, project, None).await.expect(200);
        assert_eq!((&log["user_intent"], &log["total_attempts"]), (&json!(intent), &json!(attempts)));
        let list = call(Method::GET, LOGS, project, None).await.expect(200);
        assert_eq!(list["data"].as_array().map(Vec::len), Some(1));
    }
    let exported = call(Method::GET, "/v1/exports/training-pairs", "default", None).await.rows();
    assert!(exported.is_empty());
    let similar =
        call(Method::GET, "/v1/generations/similar?intent=theirs", "default", None).await.expect(200);
    assert_eq!(similar, json!({"data": []}));
    assert_eq!(call(Method::DELETE, &path, "other", None).await.status, 204);
    call(Method::GET, &path, "default", None).await.expect(200);
    call(Method::GET, LOGS, "none", None).await.refused(404, &[]);
    call(Method::GET, LOGS, "ö", None).await.refused(400, &[]);
}

#[tokio::test]
async fn a_cursor_made_up_or_of_another_list_or_other_filters_is_refused() {
    let service = Service::open().await;
    for number in 0..4 {
        let body = json!({"session_id": number.to_string()});
        service.create(LOGS, with(log("Create"), &body)).await;
        let body = json!({"template_text": "x", "domain_name": "d"});
        service.put(&format!("/v1/prompt-templates/{number}"), &body).await.expect(201);
    }
    let cursor = async |path: &str| {
        let page = service.get(path).await.expect(200);
        page["next_cursor"].as_str().expect("more").to_owned()
    };
    let of_logs = cursor("/v1/generations?limit=1").await;
    let of_domain = cursor("/v1/generations?limit=1&domain_name=cbu").await;
    let of_templates = cursor("/v1/prompt-templates?limit=1").await;
    let of_sessions = cursor("/v1/sessions?limit=1").await;
    let nil = "A".repeat(70);
    for (path, cursors) in [
        ("/v1/generations?", vec![&of_domain, &of_templates, &of_sessions, &nil]),
        ("/v1/generations?domain_name=cbu&", vec![&of_logs]),
        ("/v1/generations?domain_name=cbu&open=true&", vec![&of_domain]),
        ("/v1/generations?since=2020-01-01T00:00:00Z&", vec![&of_logs]),
        ("/v1/prompt-templates?", vec![&of_logs, &of_sessions]),
        ("/v1/sessions?", vec![&of_logs, &of_templates]),
    ] {
        for cursor in cursors {
            let answer = service.get(&format!("{path}cursor={cursor}")).await;
            answer.refused(422, &["/cursor"]);
        }
        for made_up in ["x", "made%20up", "%F0%9F%98%80", "AQ", "====", "AAAAAAAAAAAAAAAAAAAAAAAAAAAA"] {
            let answer = service.get(&format!("{path}cursor={made_up}")).await;
            answer.refused(422, &["/cursor"]);
        }
    }
    // An id in a spelling that Postgres does not read, or a time beyond all times.
    let forged = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = URL_SAFE_NO_PAD.decode(&of_logs).expect("base64");
        change(&mut bytes);
        URL_SAFE_NO_PAD.encode(bytes)
    };
    let id = |spelling: &str| {
        forged(&|bytes| {
            bytes.truncate(17);
            bytes.extend(spelling.bytes());
        })
    };
    for cursor in [
        id("urn:uuid:0197a6e4-2b1c-7c3e-9f00-5d6a1b2c3d4e"),
        id("{0197a6e4-2b1c-7c3e-9f00-5d6a1b2c3d4e}"),
        id("0197a6e42b1c7c3e9f005d6a1b2c3d4e"),
        id(""),
        forged(&|bytes| bytes[9..17].copy_from_slice(&i64::MAX.to_be_bytes())),
        forged(&|bytes| bytes[9..17].copy_from_slice(&i64::MIN.to_be_bytes())),
    ] {
        service.get(&format!("/v1/generations?cursor={cursor}")).await.refused(422, &["/cursor"]);
    }
    // Another page size is no other filter.
    let rest = service.get(&format!("/v1/generations?limit=500&cursor={of_logs}")).await.expect(200);
    assert_eq!(rest["data"].as_array().map(Vec::len), Some(3));
}

#[tokio::test]
async fn a_list_refuses_limits_and_times_that_make_no_sense() {
    let service = Service::open().await;
    for list in ["/v1/generations", "/v1/prompt-templates", "/v1/sessions"] {
        for (query, pointers) in [
            ("limit=0", vec!["/limit"]),
            ("limit=-1", vec!["/limit"]),
            ("limit=501", vec!["/limit"]),
            ("limit=100000", vec!["/limit"]),
            ("limit=99999999999999999999", vec!["/limit"]),
            ("limit=ten", vec!["/limit"]),
            ("since=2025-01-02T00:00:00Z&until=2025-01-01T00:00:00Z", vec!["/since"]),
            ("limit=0&since=2&until=1", vec!["/limit", "/since"]),
            ("since=never", vec!["/since"]),
            ("until=1e400", vec!["/until"]),
            ("limit=&until=&cursor=", vec!["/limit", "/until"]),
            ("colour=red", vec!["/colour"]),
        ] {
            service.get(&format!("{list}?{query}")).await.refused(422, &pointers);
        }
        for query in ["limit=1", "limit=500", "since=5&until=5", "cursor="] {
            service.get(&format!("{list}?{query}")).await.expect(200);
        }
    }
}

#[tokio::test]
async fn a_text_that_records_are_searched_for_has_at_most_200_characters() {
    let service = Service::open().await;
    let (most, more) = ("é".repeat(200), "é".repeat(201));
    for list in [LOGS, "/v1/pairs", "/v1/memories"] {
        let path = |text: &str| format!("{list}?q={}", text.replace('é', "%C3%A9"));
        service.get(&path(&most)).await.expect(200);
        service.get(&path(&more)).await.refused(422, &["/q"]);
    }
    let predict = async |filter: Value| {
        let asked = json!({"user_text": "x", "model_limit": 400, "visible": {"filter": filter}});
        service.post("/v1/context/predict", &asked).await
    };
    predict(json!({"q": most, "not": {"q": most}})).await.expect(200);
    predict(json!({"q": more})).await.refused(422, &["/visible/filter/q"]);
    predict(json!({"not": {"not": {"q": more}}})).await.refused(422, &["/visible/filter/not/not/q"]);
}
