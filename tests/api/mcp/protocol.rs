//! The protocol: what a server says of itself, which tools it lists, and whom it answers.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use axum::body::Body;
use axum::http::{Method, StatusCode};
use serde_json::{Value, json};

use super::post;
use crate::support::program::Settings;
use crate::support::server::{Server, folder};
use crate::support::{Service, assert_whole, eventually, request, settings};

fn message(method: &str, params: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
}

/// A message of 2026-07-28, which has with it what older versions agreed on before.
async fn modern(service: &Service, method: &str, more: &[(&str, &str)]) -> Value {
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
    });
    let mut request = request(Method::POST, "/mcp")
        .header("content-type", "application/json")
        .header("accept", "application/json, text/event-stream")
        .header("mcp-protocol-version", "2026-07-28")
        .header("mcp-method", method);
    for (name, value) in more {
        request = request.header(*name, *value);
    }
    let message = message(method, &json!({"_meta": meta}));
    let answer = service.send(request.body(Body::from(message.to_string())).expect("a request")).await;
    answer.expect(200)["result"].clone()
}

#[tokio::test]
async fn a_client_of_any_version_gets_the_name_of_the_server_and_instructions() {
    let service = Service::open().await;
    for version in ["2025-06-18", "2025-11-25"] {
        let params = json!({"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
        let answer =
            post(&service, &message("initialize", &params), &[("mcp-protocol-version", version)]).await;
        assert_eq!(answer.header("content-type"), Some("application/json"));
        let result = answer.expect(200)["result"].clone();
        assert_eq!(result["protocolVersion"], version);
        assert_eq!(result["serverInfo"]["name"], "gleaner");
        assert_eq!(result["capabilities"], json!({"tools": {}}));
        let instructions = result["instructions"].as_str().expect("instructions");
        assert!(
            instructions.contains("suggest_memories") && instructions.contains("store_memory"),
            "{instructions}"
        );
    }
    let discovered = modern(&service, "server/discover", &[]).await;
    let versions: Vec<_> = discovered["supportedVersions"].as_array().expect("versions").iter().collect();
    for version in ["2025-06-18", "2025-11-25", "2026-07-28"] {
        assert!(versions.contains(&&json!(version)), "{discovered}");
    }
    assert!(discovered["instructions"].is_string());
}

#[tokio::test]
async fn the_tools_are_listed_in_the_same_order_with_schemas_that_every_client_accepts() {
    let service = Service::open().await;
    let list = post(&service, &message("tools/list", &json!({})), &[]).await.expect(200)["result"].clone();
    assert_whole!("tools", list);
    let again = modern(&service, "tools/list", &[]).await;
    assert_eq!(again["tools"], list["tools"]);
    assert!(again["ttlMs"].is_number() && again["cacheScope"].is_string(), "{again}");
    for tool in list["tools"].as_array().expect("tools") {
        let schema = &tool["inputSchema"];
        assert_eq!(
            (&schema["type"], &schema["additionalProperties"]),
            (&json!("object"), &json!(false)),
            "{tool}"
        );
        look(schema, tool["name"].as_str().expect("a name"));
    }
}

/// Looks for what some client or provider refuses: references, unions, null, open objects that have properties.
fn look(schema: &Value, place: &str) {
    let members = schema.as_object().unwrap_or_else(|| panic!("{place} is no object: {schema}"));
    for name in ["$ref", "oneOf", "anyOf", "allOf", "$defs", "nullable"] {
        assert!(!members.contains_key(name), "{place} has {name}");
    }
    assert!(schema["type"].is_string(), "{place} has no single type: {schema}");
    if let Some(properties) = members.get("properties").and_then(Value::as_object) {
        assert_eq!(schema["additionalProperties"], false, "{place}");
        for (name, property) in properties {
            look(property, &format!("{place}/{name}"));
        }
        for required in schema["required"].as_array().into_iter().flatten() {
            assert!(properties.contains_key(required.as_str().expect("a name")), "{place}: {required}");
        }
    }
    if let Some(items) = members.get("items") {
        look(items, &format!("{place}/items"));
    }
}

#[tokio::test]
async fn only_callers_with_a_key_and_no_pages_of_other_sites_are_answered() {
    let (service, key) = Service::closed().await;
    let list = message("tools/list", &json!({}));
    post(&service, &list, &[]).await.refused(401, &[]);
    post(&service, &list, &[("authorization", "Bearer glnr_wrong")]).await.refused(401, &[]);
    let bearer = format!("Bearer {key}");
    let known = ("authorization", bearer.as_str());
    post(&service, &list, &[known]).await.expect(200);
    post(&service, &list, &[known, ("origin", "https://evil.example")]).await.refused(403, &[]);
    post(&service, &list, &[known, ("sec-fetch-site", "cross-site")]).await.refused(403, &[]);
    post(&service, &list, &[known, ("origin", "http://localhost:8080")]).await.expect(200);
    // A host that is not this machine's own is answered where there are keys, as behind a proxy or in a network of containers.
    let away = request(Method::POST, "/mcp").header("content-type", "application/json");
    let mut away = away.header("accept", "application/json, text/event-stream").header(known.0, known.1);
    away.headers_mut().expect("headers").insert("host", "gleaner:8080".parse().expect("a host"));
    service.send(away.body(Body::from(list.to_string())).expect("a request")).await.expect(200);
    post(&service, &list, &[known, ("gleaner-project", "nowhere")]).await.refused(404, &[]);
}

#[tokio::test]
async fn an_invalid_or_oversized_message_is_refused() {
    let service = Service::open().await;
    for method in [Method::GET, Method::DELETE] {
        let request = request(method, "/mcp").header("accept", "text/event-stream");
        let answer = service.send(request.body(Body::empty()).expect("a request")).await;
        assert_eq!(answer.status, 405, "{}", answer.text());
    }
    let answer = post(&service, &message("no/such", &json!({})), &[]).await;
    assert_eq!(answer.json()["error"]["code"], -32601, "{}", answer.text());
    let unknown = message("tools/call", &json!({"name": "rm", "arguments": {}}));
    let answer = post(&service, &unknown, &[]).await.json();
    assert_eq!(answer["error"]["code"], -32602, "{answer}");
    let large = message(
        "tools/call",
        &json!({"name": "store_memory", "arguments": {"content": "x".repeat(3 << 20)}}),
    );
    post(&service, &large, &[]).await.refused(413, &[]);
    let numbers = json!({"name": "store_memory", "arguments": {"content": "x", "tags": vec![1; 20_000]}});
    let problem = post(&service, &message("tools/call", &numbers), &[]).await.refused(413, &[]);
    assert_eq!(problem["detail"], "the message has more than 20000 JSON values");
    let hidden = json!({"$serde_json::private::RawValue": "{\"name\": \"memory_stats\"}"});
    let problem = post(&service, &message("tools/call", &hidden), &[]).await.refused(400, &[]);
    assert!(problem["detail"].as_str().expect("a text").contains("is reserved at line 1"), "{problem}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_that_a_client_writes_is_logged() {
    let folder = folder();
    let (server, log) = Server::start_logged(&folder);
    eventually("the server is ready", async || server.get("/readyz").await.0 == StatusCode::OK).await;
    for (method, params) in [("tools/call", json!({"name": "xyzzy"})), ("xyzzy", json!({}))] {
        let message = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        let body = message.to_string();
        let head = format!(
            "POST /mcp HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nConnection: close\r\n\
            Accept: application/json, text/event-stream\r\nContent-Length: {}\r\n\r\n",
            server.address,
            body.len()
        );
        let mut stream = TcpStream::connect(&server.address).expect("connects");
        stream.write_all((head + &body).as_bytes()).expect("sends");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        assert!(answer.contains("\"error\""), "{answer}");
    }
    server.stop();
    let log = fs::read_to_string(log).expect("a log");
    assert!(log.contains("listening") && !log.contains("xyzzy"), "{log}");
}

#[tokio::test]
async fn a_tool_can_be_called_where_the_address_names_the_host_as_in_http_2() {
    let service = Service::open().await;
    let message = message("tools/call", &json!({"name": "search_memories", "arguments": {"query": "login"}}));
    let request = axum::http::Request::post("http://localhost:8080/mcp")
        .header("content-type", "application/json")
        .header("accept", "application/json, text/event-stream")
        .header("mcp-protocol-version", "2025-11-25");
    let answer = service.send(request.body(Body::from(message.to_string())).expect("a request")).await;
    assert_eq!(answer.expect(200)["result"]["structuredContent"]["data"], json!([]));
}

#[tokio::test]
async fn the_body_of_a_message_takes_the_memory_of_its_own_project() {
    let service = Service::with(Settings { body_memory: 1, ..settings() }).await;
    service.put("/v1/projects/greedy", &json!({})).await.expect(201);
    let post = |project: &str, body: Body| {
        let request = axum::http::Request::post("/mcp")
            .header("host", "localhost")
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream")
            .header("mcp-protocol-version", "2025-11-25")
            .header("gleaner-project", project);
        service.send(request.body(body).expect("a request"))
    };
    // Nearly all the memory that a project may take, and the rest of the body never comes.
    let (arrived, has_arrived) = tokio::sync::oneshot::channel();
    let slow = futures_util::stream::unfold((0, Some(arrived)), async |(pieces, arrived)| {
        if pieces == 0 {
            let piece = axum::body::Bytes::from(vec![b' '; 240 << 10]);
            return Some((Ok::<_, std::io::Error>(piece), (1, arrived)));
        }
        arrived.expect("it is asked once").send(()).expect("somebody waits for it");
        std::future::pending().await
    });
    let greedy = post("greedy", Body::from_stream(slow));
    let modest = async {
        has_arrived.await.expect("it is read");
        let body = message("ping", &json!({})).to_string() + &" ".repeat(40 << 10);
        post("default", Body::from(body)).await
    };
    tokio::select! {
        _ = greedy => panic!("the rest of the body does not come"),
        answer = modest => assert_eq!(answer.expect(200)["result"], json!({})),
    }
}
