//! Who may do what: keys and scopes, projects, the open server, sessions and their erasure.

use std::net::SocketAddr;

use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::http::{Method, Request, header};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::support::program::{Secret, pool, replace_first_key};
use crate::support::{Answer, Service, column, failed, passed, scrub, with};

const LOGS: &str = "/v1/generations";

fn log() -> Value {
    json!({"user_intent": "Create a fund", "domain_name": "cbu"})
}

async fn call(service: &Service, key: &str, method: Method, path: &str, body: Option<Value>) -> Answer {
    let bearer = format!("Bearer {key}");
    service.call(method, path, &[("authorization", &bearer)], body.as_ref()).await
}

/// Makes a key; its secret and its id.
async fn make(service: &Service, key: &str, body: Value) -> (String, String) {
    let body = with(json!({"name": "k", "scopes": ["read"]}), &body);
    let made = call(service, key, Method::POST, "/v1/keys", Some(body)).await.expect(201);
    let text = |name: &str| made[name].as_str().expect("a text").to_owned();
    (text("key"), text("id"))
}

#[tokio::test]
async fn a_key_may_do_what_its_scopes_say_and_no_more() {
    let (service, operator) = Service::closed().await;
    let mut keys = Vec::new();
    for scope in ["write", "read", "admin"] {
        keys.push((scope, make(&service, &operator, json!({"scopes": [scope]})).await.0));
    }
    let id = Uuid::new_v4();
    let start = with(log(), &json!({"id": id}));
    let path = format!("{LOGS}/{id}");
    let template = json!({"template_text": "x", "domain_name": "d"});
    let key = json!({"name": "k", "scopes": ["admin"]});
    let cases = [
        (Method::POST, LOGS.to_owned(), Some(start), "write"),
        (Method::POST, format!("{path}/attempts"), Some(passed(1, "(a)")), "write"),
        (Method::POST, format!("{path}/finalize"), Some(json!({"success": true})), "write"),
        (Method::PUT, format!("{path}/review"), Some(json!({"rating": "good"})), "write"),
        (Method::POST, "/v1/events".to_owned(), Some(json!([])), "write"),
        (Method::PUT, "/v1/prompt-templates/t".to_owned(), Some(template), "write"),
        (Method::POST, "/v1/prompt-templates/t/deprecate".to_owned(), Some(json!({})), "write"),
        (Method::GET, LOGS.to_owned(), None, "read"),
        (Method::HEAD, LOGS.to_owned(), None, "read"),
        (Method::GET, path.clone(), None, "read"),
        (Method::GET, format!("{LOGS}/similar?intent=x"), None, "read"),
        (Method::GET, "/v1/prompt-templates".to_owned(), None, "read"),
        (Method::GET, "/v1/prompt-templates/t".to_owned(), None, "read"),
        (Method::GET, "/v1/analytics/prompts".to_owned(), None, "read"),
        (Method::GET, "/v1/exports".to_owned(), None, "read"),
        (Method::GET, "/v1/exports/training-pairs".to_owned(), None, "read"),
        (Method::GET, "/v1/exports/correction-pairs.jsonl".to_owned(), None, "read"),
        (Method::GET, "/v1/sessions".to_owned(), None, "read"),
        (Method::GET, "/v1/projects/default".to_owned(), None, "admin"),
        (Method::PUT, "/v1/projects/default".to_owned(), Some(json!({})), "admin"),
        (Method::POST, "/v1/keys".to_owned(), Some(key), "admin"),
        (Method::GET, "/v1/keys".to_owned(), None, "admin"),
        (Method::DELETE, "/v1/sessions/s".to_owned(), None, "admin"),
        (Method::DELETE, path.clone(), None, "admin"),
    ];
    for (method, path, body, needed) in cases {
        for (scope, key) in keys.iter().filter(|(scope, _)| scope != &needed) {
            let answer = call(&service, key, method.clone(), &path, body.clone()).await;
            assert_eq!(answer.status, 403, "{method} {path} with {scope}");
            if method != Method::HEAD {
                let problem = answer.refused(403, &[]);
                assert_eq!(problem["detail"], format!("this key lacks the scope {needed}"));
            }
        }
        let missing = service.call(method.clone(), &path, &[], body.as_ref()).await;
        assert_eq!(missing.status, 401, "{method} {path}");
        assert_eq!(missing.header("www-authenticate"), Some("Bearer"));
        let (_, key) = keys.iter().find(|(scope, _)| scope == &needed).expect("a key");
        let answer = call(&service, key, method.clone(), &path, body).await;
        assert!(answer.status.is_success(), "{method} {path}: {}", answer.text());
    }
}

#[tokio::test]
async fn a_wrong_key_is_no_key() {
    let (service, operator) = Service::closed().await;
    let mut other_end = operator.clone();
    other_end.pop();
    let basic = |user: &str| format!("Basic {}", STANDARD.encode(user));
    for authorization in [
        String::new(),
        "Bearer".to_owned(),
        "Bearer ".to_owned(),
        "Bearer x".to_owned(),
        format!("Bearer {other_end}"),
        format!("Bearer {operator}x"),
        format!("Bearer {}", &operator[..12]),
        "Bearer ééééééééé".to_owned(),
        format!("Token {operator}"),
        operator.clone(),
        basic(""),
        basic(":"),
        basic(&format!("user:{operator}")),
        basic("glnr_ab\0cdefghijklmnop:"),
        basic("glnr_abcdef\0"),
        format!("Basic {operator}"),
        format!("Basic {}", STANDARD.encode(b"\xff\xfe\xfd\xfc\xff\xfe\xfd\xfc\xff\xfe\xfd\xfc")),
    ] {
        for path in [LOGS, "/v1/keys", "/v1/exports/training-pairs"] {
            let answer = service.call(Method::GET, path, &[("authorization", &authorization)], None).await;
            assert_eq!(answer.header("www-authenticate"), Some("Bearer"), "{authorization:?}");
            answer.refused(401, &[]);
        }
    }
}

#[tokio::test]
async fn a_key_may_also_be_the_user_name_of_basic() {
    let (service, operator) = Service::closed().await;
    for user in [format!("{operator}:"), format!("{operator}:x"), operator.clone()] {
        for scheme in ["Basic", "basic"] {
            let value = format!("{scheme} {}", STANDARD.encode(&user));
            let answer = service.call(Method::GET, LOGS, &[("authorization", &value)], None).await;
            answer.expect(200);
        }
    }
    call(&service, &operator, Method::GET, LOGS, None).await.expect(200);
    let lower = format!("bearer {operator}");
    service.call(Method::GET, LOGS, &[("authorization", &lower)], None).await.expect(200);
}

#[tokio::test]
async fn a_key_that_expired_or_was_revoked_no_longer_works() {
    let (service, operator) = Service::closed().await;
    let (expired, _) = make(&service, &operator, json!({"expires_at": "2020-01-01T00:00:00Z"})).await;
    call(&service, &expired, Method::GET, LOGS, None).await.refused(401, &[]);
    let (lasting, id) = make(&service, &operator, json!({"expires_at": "2999-01-01T00:00:00Z"})).await;
    call(&service, &lasting, Method::GET, LOGS, None).await.expect(200);

    let soon = chrono::Utc::now() + chrono::TimeDelta::milliseconds(300);
    let (brief, _) = make(&service, &operator, json!({"expires_at": soon.to_rfc3339()})).await;
    let before = call(&service, &brief, Method::GET, LOGS, None).await.status;
    assert!(before == 200 || chrono::Utc::now() >= soon);
    let mut now = before;
    while chrono::Utc::now() < soon + chrono::TimeDelta::seconds(5) && now == 200 {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        now = call(&service, &brief, Method::GET, LOGS, None).await.status;
    }
    assert_eq!(now, 401);

    let path = format!("/v1/keys/{id}");
    let revoked = call(&service, &operator, Method::DELETE, &path, None).await;
    assert_eq!((revoked.status.as_u16(), revoked.text()), (204, String::new()));
    call(&service, &lasting, Method::GET, LOGS, None).await.refused(401, &[]);
    assert_eq!(call(&service, &operator, Method::DELETE, &path, None).await.status, 204);
    let unknown = format!("/v1/keys/{}", Uuid::new_v4());
    call(&service, &operator, Method::DELETE, &unknown, None).await.refused(404, &[]);
}

#[tokio::test]
async fn keys_are_listed_without_their_secrets_and_stored_only_as_hashes() {
    let (service, operator) = Service::closed().await;
    let body = json!({"name": "reader", "scopes": ["read", "write"], "expires_at": "2999-01-01T00:00:00Z"});
    let made = call(&service, &operator, Method::POST, "/v1/keys", Some(body)).await.expect(201);
    let secret = made["key"].as_str().expect("a secret");
    assert!(secret.starts_with("glnr_") && secret.len() > 50, "{secret}");
    let row = json!({"id": "id-1", "project": "default", "name": "reader", "prefix": &secret[..12],
        "scopes": ["read", "write"], "created_at": "time", "expires_at": "time", "revoked_at": null});
    assert_eq!(scrub(&made), with(row.clone(), &json!({"key": secret})));
    let listed = call(&service, &operator, Method::GET, "/v1/keys", None).await.expect(200);
    assert_eq!(scrub(&listed["data"][0]), row);
    assert_eq!(column(listed["data"].as_array().expect("data"), "name"), ["reader", "first"]);
    call(&service, secret, Method::GET, LOGS, None).await.expect(200);
    let dump = service.dump().await;
    let hex = |text: &str| text.bytes().fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"));
    for secret in [secret, &operator] {
        assert!(dump.contains(&secret[..12]));
        for part in [secret, &secret[12..], &secret[12..24]] {
            assert!(!dump.contains(part) && !dump.contains(&hex(part)));
        }
    }
}

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
async fn nobody_gives_a_scope_that_he_does_not_have() {
    let (service, operator) = Service::closed().await;
    let (admin, _) = make(&service, &operator, json!({"scopes": ["admin", "read"]})).await;
    for (scopes, status) in [
        (json!(["read"]), 201),
        (json!(["admin", "read"]), 201),
        (json!(["write"]), 403),
        (json!(["read", "operator"]), 403),
    ] {
        let body = json!({"name": "k", "scopes": scopes});
        let answer = call(&service, &admin, Method::POST, "/v1/keys", Some(body)).await;
        assert_eq!(answer.status, status, "{scopes}");
    }
}

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
    get(&service, Request::builder().uri(LOGS)).await.refused(403, &[]);
    let stored = service.get(LOGS).await.expect(200);
    assert_eq!(stored["data"], json!([]));
}

#[tokio::test]
async fn an_open_server_refuses_what_browsers_send_for_other_sites() {
    let (name, value) = ("authorization", "Bearer x");
    let service = Service::open().await;
    for (name, value) in [
        ("origin", "http://evil.example"),
        ("origin", "https://localhost.evil.example"),
        ("origin", "null"),
        ("origin", "http://evil.example:8080"),
        ("sec-fetch-site", "cross-site"),
    ] {
        get(&service, from("localhost:8080").header(name, value)).await.refused(403, &[]);
    }
    let both = from("localhost").header("origin", "http://localhost");
    get(&service, both.header("sec-fetch-site", "cross-site")).await.refused(403, &[]);
    for (name, value) in [
        ("origin", "http://localhost:8080"),
        ("origin", "http://127.0.0.1:3000"),
        ("origin", "http://[::1]:3000"),
        ("sec-fetch-site", "same-origin"),
        ("sec-fetch-site", "none"),
        (name, value),
    ] {
        get(&service, from("localhost:8080").header(name, value)).await.expect(200);
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
        replace_first_key(&db, &secret).await.expect("is kept")
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

#[tokio::test]
async fn sessions_are_listed_with_counts_and_times() {
    let service = Service::open().await;
    for (session, at) in
        [("a/b", "2025-01-01"), ("c", "2025-01-03"), ("a/b", "2025-01-02"), ("d", "2025-01-03")]
    {
        let more = json!({"session_id": session, "created_at": format!("{at}T00:00:00Z")});
        service.create(LOGS, with(log(), &more)).await;
    }
    service.create(LOGS, log()).await;
    let session = |name: &str, count: i32, first: &str, last: &str| {
        json!({"session": name, "generations": count, "suggestions": 0, "searches": 0, "first_at": format!("{first}T00:00:00.000000Z"),
            "last_at": format!("{last}T00:00:00.000000Z")})
    };
    let expected = [
        session("d", 1, "2025-01-03", "2025-01-03"),
        session("c", 1, "2025-01-03", "2025-01-03"),
        session("a/b", 2, "2025-01-01", "2025-01-02"),
    ];
    for limit in [1, 2, 3, 500] {
        assert_eq!(service.all(&format!("/v1/sessions?limit={limit}")).await, expected);
    }
    let since = service.all("/v1/sessions?since=2025-01-03T00:00:00Z").await;
    assert_eq!(since, expected[..2]);
}

#[tokio::test]
async fn erasing_a_session_erases_everything_recorded_under_its_name() {
    let service = Service::open().await;
    service.project("other").await;
    let full = |session: &str, word: &str| {
        let attempt = |number: i32| {
            json!({"attempt": number, "prompt_text": word, "raw_response": word, "metadata": {"k": word},
                "extracted_dsl": format!("({word} {number})"), "prompt_template": word,
                "lint_result": {"valid": number == 2, "errors": [word], "warnings": [word]}})
        };
        with(
            log(),
            &json!({"user_intent": word, "session_id": session, "cbu_id": word, "instance_id": word,
                "model_used": word, "metadata": {"k": word}, "success": true, "iterations": [attempt(1), attempt(2)]}),
        )
    };
    let session = "team/ann's session";
    let reviewed = service.create(LOGS, full(session, "needle")).await;
    let review = json!({"rating": "good", "reviewer": "needle", "note": "needle", "corrected_dsl": "needle"});
    service.put(&format!("{LOGS}/{reviewed}/review"), &review).await.expect(200);
    let open = json!({"user_intent": "needle", "session_id": session, "iterations": [failed(1, "needle", "needle")]});
    service.create(LOGS, with(log(), &open)).await;
    service.create(LOGS, full("another", "kept")).await;
    let elsewhere = [("gleaner-project", "other")];
    service.call(Method::POST, LOGS, &elsewhere, Some(&full(session, "theirs"))).await.expect(201);
    let slate = json!({"event": "suggestion", "id": Uuid::from_u128(5), "context": {"k": "needle"},
        "suggestions": ["needle", "x"], "session_name": session});
    let typed = json!({"event": "partial_inputs", "suggestion_id": Uuid::from_u128(5), "inputs": [{"text": "needle"}]});
    let outcome =
        json!({"event": "suggestion_outcome", "suggestion_id": Uuid::from_u128(5), "actual_input": "x"});
    service.accept(&[slate, typed, outcome]).await;
    assert_eq!(service.get("/v1/exports/preference-pairs").await.rows().len(), 1);
    assert!(service.dump().await.contains("needle"));

    let path = "/v1/sessions/team%2Fann's%20session";
    let erased = service.delete(path).await.expect(200);
    assert_eq!(erased, json!({"generations": 2, "attempts": 3, "suggestions": 1, "searches": 0}));
    let dump = service.dump().await;
    for gone in ["needle", &reviewed] {
        assert!(!dump.contains(gone), "{gone}");
    }
    assert!(dump.contains("kept") && dump.contains("theirs"));
    let again = service.delete(path).await.expect(200);
    assert_eq!(again, json!({"generations": 0, "attempts": 0, "suggestions": 0, "searches": 0}));
    assert_eq!(service.get("/v1/exports/preference-pairs").await.rows().len(), 0);
    let kept = service.get("/v1/exports/correction-pairs").await.rows();
    assert_eq!(kept.len(), 1);
    let sessions = service.all("/v1/sessions").await;
    assert_eq!(column(&sessions, "session"), ["another"]);
}

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
