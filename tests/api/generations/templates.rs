//! Prompt templates: versions, deprecation and their list.

use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::support::{Service, column, encoded, scrub};

#[tokio::test]
async fn every_version_of_a_prompt_template_is_kept() {
    let service = Service::open().await;
    let name = "a/b c?d%é#1";
    let path = format!("/v1/prompt-templates/{}", encoded(name));
    let body = |text: &str| json!({"template_text": text, "domain_name": "cbu", "description": "d"});
    let made = service.put(&path, &body("one")).await;
    let location = made.header("location").expect("a location").to_owned();
    assert_eq!(location, format!("{path}?version=1"));
    let first = made.expect(201);
    let expected = json!({"template_id": name, "version": 1, "template_text": "one", "domain_name": "cbu",
        "description": "d", "created_at": "time", "deprecated_at": null});
    assert_eq!(scrub(&first), expected);
    assert_eq!(service.put(&path, &body("one")).await.expect(200), first);
    let second = service.put(&path, &body("two")).await.expect(201);
    assert_eq!(second["version"], 2);
    let third = service.put(&path, &body("one")).await.expect(201);
    assert_eq!(third["version"], 3);
    let fourth = service.put(&path, &json!({"template_text": "one", "domain_name": "cbu"})).await.expect(201);
    assert_eq!((&fourth["version"], &fourth["description"]), (&json!(4), &Value::Null));
    assert_eq!(service.get(&path).await.expect(200), fourth);
    assert_eq!(service.get(&location).await.expect(200), first);
    for version in ["0", "5"] {
        service.get(&format!("{path}?version={version}")).await.refused(404, &[]);
    }
    service.get(&format!("{path}?version=new")).await.refused(422, &["/version"]);
    service.get("/v1/prompt-templates/unknown").await.refused(404, &[]);
    service
        .put(&format!("/v1/prompt-templates/{}", "x".repeat(201)), &body("one"))
        .await
        .refused(422, &["/template_id"]);
    service
        .put("/v1/prompt-templates/x", &json!({"template_text": "", "domain_name": "", "colour": 1}))
        .await
        .refused(422, &["/colour"]);
    service
        .put("/v1/prompt-templates/x", &json!({"template_text": "", "domain_name": ""}))
        .await
        .refused(422, &["/template_text", "/domain_name"]);
}

#[tokio::test]
async fn many_who_change_a_template_at_once_make_a_version_each() {
    let service = Service::open().await;
    let answers = join_all((0..12).map(|writer| {
        let service = &service;
        async move {
            let body = json!({"template_text": format!("text {writer}"), "domain_name": "cbu"});
            service.put("/v1/prompt-templates/t", &body).await.expect(201)
        }
    }))
    .await;
    let mut versions: Vec<_> = column(&answers, "version").iter().filter_map(Value::as_i64).collect();
    versions.sort_unstable();
    assert_eq!(versions, (1..=12).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_deprecated_template_is_listed_as_such_until_a_new_version_is_made() {
    let service = Service::open().await;
    for (name, domain) in [("one", "cbu"), ("two", "bond"), ("three", "cbu"), ("one", "kyc")] {
        let body = json!({"template_text": name, "domain_name": domain});
        service.put(&format!("/v1/prompt-templates/{name}"), &body).await.expect(201);
    }
    let gone = service.post("/v1/prompt-templates/one/deprecate", &json!({})).await.expect(200);
    assert_eq!(gone["version"], 2);
    assert!(gone["deprecated_at"].is_string());
    let again = service.post("/v1/prompt-templates/one/deprecate", &json!({})).await.expect(200);
    assert_eq!(again, gone);
    let old = service.get("/v1/prompt-templates/one?version=1").await.expect(200);
    assert_eq!(old["deprecated_at"], gone["deprecated_at"]);
    for (query, expected) in [
        ("", vec!["one", "three", "two"]),
        ("deprecated=true", vec!["one"]),
        ("deprecated=false", vec!["three", "two"]),
        ("domain_name=cbu", vec!["three"]),
        ("domain_name=kyc&deprecated=true", vec!["one"]),
    ] {
        let found = service.all(&format!("/v1/prompt-templates?limit=1&{query}")).await;
        assert_eq!(column(&found, "template_id"), expected, "{query}");
    }
    let body = json!({"template_text": "one", "domain_name": "kyc"});
    let back = service.put("/v1/prompt-templates/one", &body).await.expect(201);
    assert_eq!((&back["version"], &back["deprecated_at"]), (&json!(3), &Value::Null));
    service.post("/v1/prompt-templates/none/deprecate", &json!({})).await.refused(404, &[]);
}
