//! The audit: who has changed keys and settings and erased records, and when.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::http::{Method, Request, header};
use serde_json::{Value, json};
use uuid::Uuid;

use super::{LOGS, call, log, make};
use crate::support::server::{folder, gleaner, run};
use crate::support::{Service, column, with};

#[tokio::test]
async fn changes_of_keys_and_settings_and_erasures_are_noted_with_who_and_when() {
    let (service, operator) = Service::closed().await;
    let settings = json!({"capture": "full"});
    call(&service, &operator, Method::PUT, "/v1/projects/default", Some(settings)).await.expect(200);
    let key = json!({
        "name": "ann",
        "scopes": ["admin", "write", "read"],
        "expires_at": "2999-01-01T00:00:00Z",
        "requests_per_second": 50,
    });
    let (ann, id) = make(&service, &operator, key).await;
    let named = |n: u128| {
        with(log(), &json!({"id": Uuid::from_u128(n), "session_id": "secret session", "created_at": 0}))
    };
    for n in 1..4 {
        call(&service, &ann, Method::POST, LOGS, Some(named(n))).await.expect(201);
    }
    let first = format!("{LOGS}/{}", Uuid::from_u128(1));
    call(&service, &ann, Method::DELETE, &first, None).await.gone();
    let second = format!("/v1/records/{}", Uuid::from_u128(2));
    call(&service, &ann, Method::DELETE, &second, None).await.expect(200);
    let third = "/v1/sessions/secret%20session";
    call(&service, &ann, Method::DELETE, third, None).await.expect(200);
    let old = "/v1/records?before=2020-01-01T00:00:00Z&domain=generations";
    call(&service, &ann, Method::DELETE, old, None).await.expect(200);
    let rotated = call(&service, &ann, Method::POST, &format!("/v1/keys/{id}/rotate"), Some(json!({})))
        .await
        .expect(201);
    let new = rotated["id"].as_str().expect("an id");
    call(&service, &operator, Method::DELETE, &format!("/v1/keys/{new}"), None).await.gone();
    // What was refused has not happened.
    call(&service, &operator, Method::DELETE, &first, None).await.refused(404, &[]);

    let listed = call(&service, &operator, Method::GET, "/v1/audit", None).await.expect(200);
    let entries = listed["data"].as_array().expect("data");
    let expected = [
        ("key_revoked", "first"),
        ("key_rotated", "ann"),
        ("records_erased", "ann"),
        ("records_erased", "ann"),
        ("records_erased", "ann"),
        ("records_erased", "ann"),
        ("key_made", "first"),
        ("settings_changed", "first"),
        ("key_made", "open server"),
    ];
    let found: Vec<_> =
        entries.iter().map(|entry| (entry["action"].clone(), entry["actor"].clone())).collect();
    assert_eq!(json!(found), json!(expected));
    assert_eq!(entries[2]["key_id"], id);
    let details = column(entries, "details");
    assert_eq!(details[0], json!({"key": new, "name": "ann"}));
    let rotation = json!({
        "key": new,
        "name": "ann",
        "scopes": ["admin", "write", "read"],
        "expires_at": rotated["expires_at"],
        "requests_per_second": 50,
        "old_key": id,
        "old_expires_at": null,
    });
    assert_eq!(details[1], rotation);
    assert_eq!((&details[2]["by"], &details[2]["erased"]["generations"]), (&json!("age"), &json!(0)));
    assert_eq!((&details[3]["by"], &details[3]["erased"]["generations"]), (&json!("session"), &json!(1)));
    assert_eq!((&details[4]["by"], &details[4]["id"]), (&json!("id"), &json!(Uuid::from_u128(2))));
    let made = json!({
        "key": id,
        "name": "ann",
        "scopes": ["admin", "write", "read"],
        "expires_at": "2999-01-01T00:00:00.000000Z",
        "requests_per_second": 50,
    });
    assert_eq!(details[6], made);
    assert_eq!(details[7]["settings"]["capture"], "full");
    assert_eq!(details[8]["name"], "first");
    assert!(!service.dump().await.contains("secret session"), "what was erased is not in the audit");

    let erased =
        call(&service, &operator, Method::GET, "/v1/audit?action=records_erased&limit=3", None).await;
    let next = erased.next().expect("another page");
    assert_eq!(erased.expect(200)["data"].as_array().map(Vec::len), Some(3));
    let rest = call(&service, &operator, Method::GET, &next, None).await.expect(200);
    assert_eq!(rest["data"].as_array().map(Vec::len), Some(1));
}

#[tokio::test]
async fn the_audit_is_for_administrators_of_the_project() {
    let (service, operator) = Service::closed().await;
    call(&service, &operator, Method::PUT, "/v1/projects/a", Some(json!({}))).await.expect(201);
    let (admin, _) = make(&service, &operator, json!({"project": "a", "scopes": ["admin"]})).await;
    let (reader, _) = make(&service, &operator, json!({"project": "a", "scopes": ["read", "write"]})).await;
    call(&service, &reader, Method::GET, "/v1/audit", None).await.refused(403, &[]);
    let listed = call(&service, &admin, Method::GET, "/v1/audit", None).await.expect(200);
    let actions = column(listed["data"].as_array().expect("data"), "action");
    assert_eq!(actions, ["key_made", "key_made", "project_made"]);
    call(&service, &admin, Method::GET, "/v1/audit?action=other", None).await.refused(422, &["/action"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_command_line_rotates_keys_and_is_noted_too() {
    let service = Service::open().await;
    let folder = folder();
    let keys = |line: &str| {
        let mut command = gleaner(&folder);
        command.arg("keys").args(line.split(' ')).args(["--database-url", &service.url()]);
        String::from_utf8(run(&mut command, 0).stdout).expect("text").trim().to_owned()
    };
    let old = keys("create --name laptop --scope operator");
    let id = keys("list").split(' ').next().expect("an id").to_owned();
    let new = keys(&format!("rotate {id}"));
    let list = keys("list");
    assert!(list.contains("never used") && list.contains("revoked"), "{list}");
    for (key, status) in [(&old, 401), (&new, 200)] {
        assert_eq!(call(&service, key, Method::GET, "/v1/audit", None).await.status, status);
    }
    let listed = call(&service, &new, Method::GET, "/v1/audit", None).await.expect(200);
    let entries: Vec<Value> = listed["data"].as_array().expect("data").clone();
    assert_eq!(column(&entries, "action"), ["key_rotated", "key_made"]);
    assert_eq!(column(&entries, "actor"), ["command line", "command line"]);
}

#[tokio::test]
async fn wrong_keys_are_counted_and_held_up_from_an_address_that_sends_many() {
    let (service, operator) = Service::closed().await;
    let peer: SocketAddr = "203.0.113.5:5000".parse().expect("an address");
    let get = async |key: &str, path: &str| {
        let request = Request::builder()
            .uri(path)
            .header(header::HOST, "localhost")
            .header(header::AUTHORIZATION, format!("Bearer {key}"))
            .extension(ConnectInfo(peer));
        service.send(request.body(Body::empty()).expect("a request")).await
    };
    let count = async || {
        let metrics = get(&operator, "/metrics").await.text();
        let line = metrics.lines().find(|line| line.starts_with("gleaner_authentication_failures_total "));
        line.and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).expect("a count")
    };
    let before = count().await;
    for _ in 0..40 {
        let begun = Instant::now();
        get("glnr_wrong-0123456789", LOGS).await.refused(401, &[]);
        if begun.elapsed() >= Duration::from_secs(1) && count().await >= before + 21.0 {
            get(&operator, LOGS).await.expect(200);
            return;
        }
    }
    panic!("nobody is held up");
}

#[tokio::test]
async fn the_erasure_of_a_memory_and_the_limits_of_a_model_are_noted() {
    let service = Service::open().await;
    let memory = service.create("/v1/memories", json!({"content": "c"})).await;
    let id = memory.as_str();
    service.call(Method::DELETE, &format!("/v1/memories/{id}"), &[], None).await.gone();
    service.put("/v1/models/m", &json!({"context_window": 1000})).await.expect(201);
    let entries = service.get("/v1/audit").await.expect(200);
    let noted = |nth: usize| (&entries["data"][nth]["action"], &entries["data"][nth]["details"]);
    assert_eq!(noted(0).0, "model_changed");
    assert_eq!((&noted(0).1["model"], &noted(0).1["limits"]["context_window"]), (&json!("m"), &json!(1000)));
    assert_eq!((noted(1).0, &noted(1).1["id"]), (&json!("records_erased"), &json!(id)));
}
