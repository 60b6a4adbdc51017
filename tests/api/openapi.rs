//! The OpenAPI document.

use std::path::Path;

use crate::support::Service;
use crate::support::program::openapi;

#[test]
fn openapi_yaml_is_what_the_code_says() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("openapi.yaml");
    let stored = std::fs::read_to_string(file).expect("openapi.yaml is there");
    let current = openapi().to_yaml().expect("plain values");
    assert!(stored == current, "run: cargo run -- openapi > openapi.yaml");
}

#[tokio::test]
async fn the_document_and_its_page_are_served_without_anything_from_elsewhere() {
    let service = Service::open().await;
    let yaml = service.get("/openapi.yaml").await;
    assert_eq!((yaml.status.as_u16(), yaml.header("content-type")), (200, Some("application/yaml")));
    let json = service.get("/openapi.json").await.expect(200);
    assert_eq!(json["openapi"], "3.1.0");
    assert!(json["paths"]["/v1/generations"]["post"].is_object());
    for (body, field) in [("NewGeneration", "id"), ("NewAttempt", "id"), ("NewAttempt", "attempt")] {
        let schema = &json["components"]["schemas"][body];
        assert!(schema["properties"][field].is_object(), "{body} has no {field}");
    }
    let page = service.get("/docs/").await;
    assert_eq!(page.status, 200);
    let text = page.text();
    assert!(text.contains("<title>Gleaner</title>"), "{text}");
    let elsewhere = text.split(['"', '\'']).find(|text| text.starts_with("http") || text.starts_with("//"));
    assert_eq!(elsewhere, None);
    let script = service.get("/docs/swagger-initializer.js").await;
    assert!(script.text().contains("/openapi.json"), "{}", script.text());
}
