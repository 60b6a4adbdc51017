//! Keys and their scopes: what each may do, how one is sent, and how one ends.

use axum::http::Method;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::future::join_all;
use serde_json::{Value, json};
use uuid::Uuid;

use super::{LOGS, call, log, make};
use crate::support::{Service, column, eventually, passed, scrub, with};

/// A request of every kind, in an order in which each succeeds, with the scope that it needs.
fn requests() -> Vec<(Method, String, Option<Value>, &'static str)> {
    let id = Uuid::new_v4();
    let start = with(log(), &json!({"id": id}));
    let path = format!("{LOGS}/{id}");
    let template = json!({"template_text": "x", "domain_name": "d"});
    let key = json!({"name": "k", "scopes": ["admin"]});
    vec![
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
    ]
}

#[tokio::test]
async fn a_key_may_do_what_its_scopes_say_and_no_more() {
    let (service, operator) = Service::closed().await;
    let mut keys = Vec::new();
    for scope in ["write", "read", "admin"] {
        keys.push((scope, make(&service, &operator, json!({"scopes": [scope]})).await.0));
    }
    for (method, path, body, needed) in requests() {
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
async fn wrong_keys_keep_connections_from_nobody() {
    let (service, known) = Service::closed().await;
    call(&service, &known, Method::GET, LOGS, None).await.expect(200);
    let held = service.holding("lock table keys in access exclusive mode").await;
    let wrong: Vec<_> = (0..60).map(|number| format!("glnr_wrong{number:045}")).collect();
    let strangers = join_all(wrong.iter().map(|key| call(&service, key, Method::GET, LOGS, None)));
    let others = async {
        service.blocked(1).await;
        let listed = call(&service, &known, Method::GET, LOGS, None).await;
        held.commit().await.expect("released");
        listed.expect(200)
    };
    let (refused, _) = futures_util::join!(strangers, others);
    assert!(refused.iter().all(|answer| answer.status == 401));
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
    eventually("the key has expired", async || {
        call(&service, &brief, Method::GET, LOGS, None).await.status == 401
    })
    .await;

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
        "scopes": ["read", "write"], "created_at": "time", "expires_at": "2999-01-01T00:00:00.000000Z", "revoked_at": null,
        "requests_per_second": null, "last_used_on": null});
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
async fn a_key_names_each_of_its_scopes_once() {
    let (service, operator) = Service::closed().await;
    let make = async |scopes: Value| {
        let body = json!({"name": "k", "scopes": scopes});
        call(&service, &operator, Method::POST, "/v1/keys", Some(body)).await
    };
    make(json!(["read", "write", "read"])).await.refused(422, &["/scopes"]);
    make(json!(vec!["operator"; 20_000])).await.refused(422, &["/scopes"]);
    make(json!(["operator", "admin", "write", "read"])).await.expect(201);
}

#[tokio::test]
async fn keys_are_listed_in_pages() {
    let (service, operator) = Service::closed().await;
    for name in ["second", "third"] {
        make(&service, &operator, json!({"name": name})).await;
    }
    let (mut names, mut cursor) = (Vec::new(), String::new());
    loop {
        let path = format!("/v1/keys?limit=2{cursor}");
        let page = call(&service, &operator, Method::GET, &path, None).await.expect(200);
        names.push(column(page["data"].as_array().expect("data"), "name"));
        let Some(next) = page["next_cursor"].as_str() else { break };
        cursor = format!("&cursor={next}");
    }
    assert_eq!(names, [vec!["third", "second"], vec!["first"]]);
}

#[tokio::test]
async fn nobody_revokes_a_key_that_they_could_not_have_made() {
    let (service, operator) = Service::closed().await;
    let (admin, _) = make(&service, &operator, json!({"scopes": ["admin", "read"]})).await;
    for (scopes, status) in [
        (json!(["operator"]), 403),
        (json!(["write"]), 403),
        (json!(["read"]), 204),
        (json!(["admin", "read"]), 204),
    ] {
        let (_, id) = make(&service, &operator, json!({"scopes": scopes})).await;
        let path = format!("/v1/keys/{id}");
        let answer = call(&service, &admin, Method::DELETE, &path, None).await;
        assert_eq!(answer.status, status, "{scopes}");
        let answer = call(&service, &operator, Method::DELETE, &path, None).await;
        assert_eq!(answer.status, 204, "{scopes}");
    }
}

#[tokio::test]
async fn nobody_gives_a_scope_that_they_do_not_have() {
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

#[tokio::test]
async fn a_key_is_rotated_and_the_old_one_ends_at_once_or_when_it_is_said_to() {
    let (service, operator) = Service::closed().await;
    let works = async |key: &str| call(&service, key, Method::GET, LOGS, None).await.status == 200;
    let rotate = async |key: &str, id: &str, body: Value| {
        call(&service, key, Method::POST, &format!("/v1/keys/{id}/rotate"), Some(body)).await
    };
    let (old, id) =
        make(&service, &operator, json!({"name": "reader", "expires_at": "2999-01-01T00:00:00Z"})).await;
    let made = rotate(&operator, &id, json!({})).await.expect(201);
    let new = made["key"].as_str().expect("a secret").to_owned();
    assert!(new != old && made["id"] != id);
    assert_eq!((&made["name"], &made["scopes"]), (&json!("reader"), &json!(["read"])));
    assert_eq!(made["expires_at"], "2999-01-01T00:00:00.000000Z");
    assert_eq!((works(&old).await, works(&new).await), (false, true));
    rotate(&operator, &id, json!({})).await.refused(409, &[]);

    let id = made["id"].as_str().expect("an id");
    let later = json!({"old_expires_at": "2998-01-01T00:00:00Z", "expires_at": "2999-06-01T00:00:00Z"});
    let next = rotate(&operator, id, later).await.expect(201);
    assert_eq!(next["expires_at"], "2999-06-01T00:00:00.000000Z");
    assert!(works(&new).await && works(next["key"].as_str().expect("a secret")).await);
    let keys = call(&service, &operator, Method::GET, "/v1/keys", None).await.expect(200);
    let ended =
        keys["data"].as_array().expect("data").iter().find(|key| key["id"] == id).expect("the key").clone();
    assert_eq!(
        (&ended["expires_at"], &ended["revoked_at"]),
        (&json!("2998-01-01T00:00:00.000000Z"), &Value::Null)
    );

    let (admin, _) = make(&service, &operator, json!({"scopes": ["admin"]})).await;
    let (writer, id) = make(&service, &operator, json!({"scopes": ["write"]})).await;
    rotate(&admin, &id, json!({})).await.refused(403, &[]);
    rotate(&operator, &Uuid::new_v4().to_string(), json!({})).await.refused(404, &[]);
    assert_ne!(call(&service, &writer, Method::GET, LOGS, None).await.status, 401);
}

#[tokio::test]
async fn a_key_shows_the_day_on_which_it_was_last_used() {
    let (service, operator) = Service::closed().await;
    let (reader, id) = make(&service, &operator, json!({})).await;
    let days = async || {
        service.keyring().write_used().await.expect("writes");
        service.keyring().refresh();
        let listed = call(&service, &operator, Method::GET, "/v1/keys", None).await.expect(200);
        let keys = listed["data"].as_array().expect("data").clone();
        keys.into_iter().find(|key| key["id"] == id).expect("the key")["last_used_on"].clone()
    };
    assert_eq!(days().await, Value::Null);
    call(&service, &reader, Method::GET, LOGS, None).await.expect(200);
    let today = chrono::Utc::now().date_naive().to_string();
    assert_eq!(days().await, today);
    let yesterday = "update keys set last_used_on = current_date - 1";
    sqlx::query(yesterday).execute(service.pool()).await.expect("is set");
    service.keyring().refresh();
    call(&service, &reader, Method::GET, LOGS, None).await.expect(200);
    call(&service, &reader, Method::POST, LOGS, Some(json!({}))).await.refused(403, &[]);
    assert_eq!(days().await, today);
}

#[tokio::test]
async fn a_key_that_may_only_write_makes_no_send_that_shows_pairs() {
    let (service, operator) = Service::closed().await;
    let (writer, _) = make(&service, &operator, json!({"scopes": ["write"]})).await;
    let (both, _) = make(&service, &operator, json!({"scopes": ["write", "read"]})).await;
    let send = |more: Value| with(json!({"mode": "record", "user_text": "q", "model": "m"}), &more);
    let shows = [json!({"visible": {"filter": {}}}), json!({"reask_of": Uuid::nil()})];
    let limits = json!({"context_window": 1000});
    call(&service, &operator, Method::PUT, "/v1/models/m", Some(limits)).await.expect(201);
    for more in shows {
        call(&service, &writer, Method::POST, "/v1/sends", Some(send(more.clone()))).await.refused(403, &[]);
        let line = with(send(more), &json!({"event": "send"}));
        let summary =
            call(&service, &writer, Method::POST, "/v1/events", Some(json!([line]))).await.expect(200);
        assert_eq!(summary["rejected"][0]["status"], 403);
    }
    call(&service, &writer, Method::POST, "/v1/sends", Some(send(json!({})))).await.expect(201);
    let visible = send(json!({"visible": {"filter": {}}}));
    call(&service, &both, Method::POST, "/v1/sends", Some(visible)).await.expect(201);
}

#[tokio::test]
async fn a_request_with_two_keys_is_refused() {
    let (service, operator) = Service::closed().await;
    let key = format!("Bearer {operator}");
    for other in ["Bearer wrong", key.as_str()] {
        let headers = [("authorization", key.as_str()), ("authorization", other)];
        service.call(Method::GET, LOGS, &headers, None).await.refused(401, &[]);
    }
}

#[tokio::test]
async fn a_key_that_may_only_write_is_not_shown_the_template_that_it_deprecates() {
    let (service, operator) = Service::closed().await;
    let (writer, _) = make(&service, &operator, json!({"scopes": ["write"]})).await;
    let template = json!({"template_text": "needle", "domain_name": "d"});
    let path = "/v1/prompt-templates/t";
    call(&service, &operator, Method::PUT, path, Some(template)).await.expect(201);
    let path = format!("{path}/deprecate");
    let answer = call(&service, &writer, Method::POST, &path, None).await;
    assert!(answer.status.is_success() && !answer.text().contains("needle"), "{}", answer.text());
    let shown = call(&service, &operator, Method::POST, &path, None).await.expect(200);
    assert_eq!(shown["template_text"], "needle");
}

#[tokio::test]
async fn a_key_that_may_not_read_is_not_told_which_searches_of_a_turn_have_ended() {
    let (service, operator) = Service::closed().await;
    let (sender, _) = make(&service, &operator, json!({"scopes": ["write"]})).await;
    let (both, _) = make(&service, &operator, json!({"scopes": ["write", "read"]})).await;
    let search = json!({"query": "q", "best_score": 0.1, "agent_session_id": "s"});
    let turn = json!({"agent_session_id": "s"});
    for (key, is_told) in [(sender, false), (both, true)] {
        let started = call(&service, &operator, Method::POST, "/v1/searches", Some(search.clone())).await;
        let id = started.expect(201)["id"].clone();
        let ended = call(&service, &key, Method::POST, "/v1/searches/turn-end", Some(turn.clone())).await;
        let searches = if is_told { json!([{"id": id, "state": "unresolved"}]) } else { json!([]) };
        let expected = json!({"agent_session_id": "s", "searches": searches, "associations_created": 0});
        assert_eq!(ended.expect(200), expected);
        let path = format!("/v1/searches/{}", id.as_str().expect("an id"));
        let stored = call(&service, &operator, Method::GET, &path, None).await.expect(200);
        assert_eq!(stored["state"], "unresolved");
    }
}

#[tokio::test]
async fn a_key_that_may_only_write_is_not_shown_records_whose_ids_can_be_computed() {
    let (service, operator) = Service::closed().await;
    let (writer, _) = make(&service, &operator, json!({"scopes": ["write"]})).await;
    let code =
        json!({"root": "/w", "path": "needle.rs", "chunks": [{"symbol": "f", "content": "fn needle() {}"}]});
    call(&service, &operator, Method::PUT, "/v1/memories/code", Some(code)).await.expect(200);
    let search = json!({"query": "needle", "best_score": 0.1, "root": "/w"});
    let search = call(&service, &operator, Method::POST, "/v1/searches", Some(search)).await.expect(201);
    let path = format!("/v1/searches/{}", search["id"].as_str().expect("an id"));
    let read = json!({"kind": "read", "path": "/w/needle.rs"});
    call(&service, &operator, Method::POST, &format!("{path}/fallbacks"), Some(read)).await.expect(201);
    call(&service, &operator, Method::POST, &format!("{path}/resolve"), Some(json!({}))).await.expect(200);
    let get = async |path| call(&service, &operator, Method::GET, path, None).await.expect(200);
    let memories = get("/v1/memories").await;
    let associations = get("/v1/associations?query=needle").await;
    let of = |list: &Value| list["data"][0]["id"].as_str().expect("an id").to_owned();
    for (method, path, body) in [
        (Method::PATCH, format!("/v1/memories/{}", of(&memories)), json!({})),
        (
            Method::POST,
            format!("/v1/associations/{}/feedback", of(&associations)),
            json!({"verdict": "useful"}),
        ),
    ] {
        let answer = call(&service, &writer, method.clone(), &path, Some(body.clone())).await;
        assert!(answer.status.is_success() && !answer.text().contains("needle"), "{}", answer.text());
        let shown = call(&service, &operator, method, &path, Some(body)).await.expect(200);
        assert!(shown.to_string().contains("needle"), "{shown}");
    }
}

#[tokio::test]
async fn the_settings_of_a_project_are_compiled_once_for_all_requests_until_they_change() {
    let service = Service::open().await;
    let custom = |regex: &str| json!({"redact": {"custom": [{"name": "n", "regex": regex}]}});
    service.put("/v1/projects/default", &custom("a+")).await.expect(200);
    let keyring = service.keyring();
    let read = async || keyring.tenant("default").await.expect("the project");
    let together = futures_util::future::join_all((0..20).map(|_| read())).await;
    assert!(together.iter().all(|tenant| std::sync::Arc::ptr_eq(tenant, &together[0])));
    service.put("/v1/projects/other", &json!({})).await.expect(201);
    assert!(std::sync::Arc::ptr_eq(&read().await, &together[0]), "another project has changed");
    service.put("/v1/projects/default", &custom("b+")).await.expect(200);
    assert!(!std::sync::Arc::ptr_eq(&read().await, &together[0]));
}
