//! Health, readiness, version, documents and metrics: which of them need a key.

use std::net::SocketAddr;

use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::http::{Request, header};
use futures_util::future::join_all;
use serde_json::json;
use sqlx::AssertSqlSafe;

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
async fn metrics_need_a_key_from_those_who_come_through_a_proxy_on_this_machine() {
    let (service, _) = Service::closed().await;
    for name in ["forwarded", "x-forwarded-for", "x-real-ip", "via"] {
        let peer: SocketAddr = "127.0.0.1:5000".parse().expect("an address");
        let request = Request::builder()
            .uri("/metrics")
            .header(header::HOST, "gleaner.example")
            .header(name, "203.0.113.5")
            .extension(ConnectInfo(peer));
        service.send(request.body(Body::empty()).expect("a request")).await.refused(401, &[]);
    }
}

#[tokio::test]
async fn methods_that_http_does_not_define_share_one_metric() {
    let service = Service::open().await;
    for number in 0..50 {
        let request = Request::builder()
            .method(format!("MADE-UP-{number}").as_bytes())
            .uri("/v1/generations")
            .header(header::HOST, "localhost");
        service.send(request.body(Body::empty()).expect("a request")).await.refused(405, &[]);
    }
    let metrics = service.get("/metrics").await.text();
    assert!(metrics.contains("method=\"other\"") && !metrics.contains("MADE-UP"));
}

#[tokio::test]
async fn a_server_whose_database_takes_no_writes_is_not_ready() {
    let service = Service::open().await;
    service.get("/readyz").await.expect(200);
    let name: String = sqlx::query_scalar("select current_database()::text")
        .fetch_one(service.pool())
        .await
        .expect("a name");
    let read_only = format!("alter database {name} set default_transaction_read_only = on");
    sqlx::query(AssertSqlSafe(read_only)).execute(service.pool()).await.expect("is set");
    // Connections learn of it when they are made.
    let other = service.another();
    let problem = other.get("/readyz").await.expect(503);
    assert_eq!(problem["detail"], "the database is read-only");
}

#[tokio::test]
async fn those_who_ask_whether_the_server_is_ready_share_one_look_and_keep_connections_from_nobody() {
    let service = Service::open().await;
    let held = service.holding("lock table _sqlx_migrations in access exclusive mode").await;
    let probes = join_all((0..60).map(|_| service.get("/readyz")));
    let others = async {
        service.blocked(1).await;
        service.get("/v1/generations").await.expect(200);
        service.blocked(1).await;
        held.commit().await.expect("released");
    };
    let (answers, ()) = futures_util::join!(probes, others);
    // Whoever has waited for two seconds, on a machine that is busy, is told that the server is not ready.
    assert!(answers.iter().all(|answer| [200, 503].contains(&answer.status.as_u16())));
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

#[tokio::test]
async fn the_root_says_what_this_is_and_every_type_of_problem_is_explained() {
    let service = Service::open().await;
    let root = service.get("/").await.expect(200);
    assert_eq!((&root["name"], &root["documentation"]), (&json!("gleaner"), &json!("/docs/")));
    for path in [&root["documentation"], &root["openapi"]] {
        assert_eq!(service.get(path.as_str().expect("a path")).await.status, 200, "{path}");
    }
    for (path, status) in [("/nowhere", 404), ("/v1/generations?limit=x", 422), ("/v1/generations/none", 422)]
    {
        let problem = service.get(path).await.json();
        let explained = service.get(problem["type"].as_str().expect("a type")).await.expect(200);
        assert_eq!((&explained["type"], &explained["status"]), (&problem["type"], &json!(status)));
        assert!(explained["meaning"].as_str().is_some_and(|meaning| !meaning.is_empty()), "{explained}");
    }
    assert_eq!(service.delete("/healthz").await.json()["type"], "/problems/method-not-allowed");
    assert_eq!(service.get("/problems/method-not-allowed").await.expect(200)["status"], 405);
    service.get("/problems/none").await.refused(404, &[]);
}

#[tokio::test]
async fn json_ends_with_a_newline_and_says_its_length() {
    let service = Service::open().await;
    for path in ["/", "/healthz", "/v1/generations", "/v1/exports", "/nowhere", "/openapi.json"] {
        let answer = service.get(path).await;
        assert!(answer.text().ends_with("}\n"), "{path}");
        let head = service.call(axum::http::Method::HEAD, path, &[], None).await;
        assert_eq!(head.status, answer.status, "{path}");
        if let (Some(head), Some(get)) = (head.header("content-length"), answer.header("content-length")) {
            assert_eq!(head, get, "{path}");
        }
    }
    assert_eq!(service.get("/v1/exports/training-pairs").await.text(), "", "rows are not JSON but lines");
    let large = "x".repeat(40_000);
    let answer = service.events(&[json!({"event": "generation", "user_intent": large})]).await;
    assert_eq!(answer.header("content-length"), Some(answer.text().len().to_string().as_str()));
}

#[tokio::test]
async fn metrics_are_there_from_the_start_and_count_events_by_kind_and_outcome() {
    let service = Service::open().await;
    let value = async |series: &str| {
        let answer = service.get("/metrics").await;
        let text = answer.text();
        let line = text.lines().find_map(|line| line.strip_prefix(series)).map(str::trim).map(str::to_owned);
        line.unwrap_or_else(|| panic!("{series} is not there: {text}")).parse::<f64>().expect("a number")
    };
    for counter in [
        "commit_retries",
        "events_rejected",
        "replaced_characters",
        "export_bytes",
        "hooks_failed",
        "sends_interrupted",
        "gateway_unrecorded",
    ] {
        assert!(value(&format!("gleaner_{counter}_total ")).await >= 0.0);
    }
    for rule in ["secrets", "emails", "ips", "home-paths", "custom"] {
        assert!(value(&format!("gleaner_redacted_spans_total{{rule=\"{rule}\"}} ")).await >= 0.0);
    }
    let version = concat!("gleaner_build_info{version=\"", env!("CARGO_PKG_VERSION"), "\"} ");
    assert!((value(version).await - 1.0).abs() < f64::EPSILON);
    assert!(value("process_resident_memory_bytes ").await > 1e6);
    assert!(value("process_open_fds ").await > 0.0);
    assert!(value("gleaner_database_size_bytes ").await > 1e6);

    // The recorder is that of the whole test process, where other tests count too.
    let outcomes = async || {
        let mut counts = Vec::new();
        for outcome in ["accepted", "duplicate", "rejected"] {
            counts.push(
                value(&format!("gleaner_events_total{{kind=\"review\",outcome=\"{outcome}\"}} ")).await,
            );
        }
        counts
    };
    let before = outcomes().await;
    let id = service.create("/v1/generations", json!({"user_intent": "i", "domain_name": "d"})).await;
    let review = json!({"rating": "good"});
    service.put(&format!("/v1/generations/{id}/review"), &review).await;
    service.post(&format!("/v1/generations/{id}/finalize"), &json!({"success": false})).await.expect(200);
    service.put(&format!("/v1/generations/{id}/review"), &review).await.expect(200);
    let after = outcomes().await;
    assert!(after[0] >= before[0] + 1.0, "{before:?} {after:?}");
    assert!(after.iter().sum::<f64>() >= before.iter().sum::<f64>() + 2.0, "{before:?} {after:?}");
}
