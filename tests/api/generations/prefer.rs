//! The header `Prefer`: answers without the record, for all kinds of records.

use axum::http::Method;
use serde_json::{Value, json};
use uuid::Uuid;

use super::intent;
use crate::support::{Service, passed, with};

#[tokio::test]
async fn the_record_is_left_out_of_the_answer_where_the_client_prefers_so() {
    let service = Service::open().await;
    let minimal = async |path: &str, body: &Value| {
        let headers = [("prefer", "respond-async, return=minimal")];
        service.call(Method::POST, path, &headers, Some(body)).await
    };
    let name = |place: u128| Uuid::from_u128(place).to_string();
    let (log, slate, search) = (name(1), name(2), name(3));
    let search_body = json!({"id": search, "query": "q", "best_score": 0.4});
    let (log, slate, search) = (
        format!("/v1/generations/{log}"),
        format!("/v1/suggestions/{slate}"),
        format!("/v1/searches/{search}"),
    );
    let made = [
        ("/v1/generations".to_owned(), with(intent("i"), &json!({"id": name(1)})), &log),
        (format!("{log}/attempts"), passed(1, "(a)"), &log),
        (
            "/v1/suggestions".to_owned(),
            json!({"id": name(2), "context": {}, "suggestions": ["a", "b"]}),
            &slate,
        ),
        (format!("{slate}/views"), json!({"id": name(4), "index": 1}), &slate),
        ("/v1/searches".to_owned(), search_body, &search),
        (format!("{search}/fallbacks"), json!({"id": name(5), "kind": "read", "path": "a.rs"}), &search),
    ];
    for (path, body, address) in &made {
        let answer = minimal(path, body).await;
        assert_eq!(answer.header("location"), Some(address.as_str()), "{path}");
        assert_eq!(answer.header("preference-applied"), Some("return=minimal"), "{path}");
        assert_eq!((answer.status.as_u16(), answer.text()), (201, String::new()), "{path}");
        let again = minimal(path, body).await;
        assert_eq!(
            (again.status.as_u16(), again.header("location"), again.text()),
            (200, None, String::new()),
            "{path}"
        );
    }
    let ended = [
        (format!("{log}/finalize"), json!({"success": true})),
        (format!("{slate}/finalize"), json!({"actual_input": "a"})),
        (format!("{search}/resolve"), json!({})),
    ];
    for (path, body) in &ended {
        let answer = minimal(path, body).await;
        assert_eq!((answer.status.as_u16(), answer.text()), (200, String::new()), "{path}");
    }
    assert_eq!(service.get(&log).await.expect(200)["success"], true);
    assert_eq!(service.get(&slate).await.expect(200)["match_type"], "exact");
    assert_eq!(service.get(&search).await.expect(200)["state"], "resolved");
}

#[tokio::test]
async fn a_preference_is_read_in_every_spelling_and_changes_neither_verdict_nor_what_is_kept() {
    let service = Service::open().await;
    let post = async |path: &str, preference: &str, body: &Value| {
        service.call(Method::POST, path, &[("prefer", preference)], Some(body)).await
    };
    for preference in
        ["return=minimal", "Return = Minimal", "return=\"minimal\"; x=1", "wait=5, return=minimal"]
    {
        let answer = post("/v1/generations", preference, &intent("i")).await;
        assert_eq!((answer.status.as_u16(), answer.text()), (201, String::new()), "{preference}");
    }
    post("/v1/generations", "return=minimal", &json!({"domain_name": "d"}))
        .await
        .refused(422, &["/user_intent"]);
    let unknown = format!("/v1/generations/{}/attempts", Uuid::nil());
    post(&unknown, "return=minimal", &passed(1, "(a)")).await.refused(404, &[]);
    let discarded = json!({"context": {}, "suggestions": ["a"], "actual_input": ":q"});
    let answer = post("/v1/suggestions", "return=minimal", &discarded).await;
    assert_eq!((answer.status.as_u16(), answer.header("location")), (200, None));
    service.put("/v1/projects/default", &json!({"capture": "off"})).await.expect(200);
    let answer = post("/v1/generations", "return=minimal", &intent("i")).await;
    assert_eq!((answer.status.as_u16(), answer.header("preference-applied")), (204, None));
}

#[tokio::test]
async fn the_record_is_in_the_answer_where_the_client_prefers_it_or_something_unknown() {
    let service = Service::open().await;
    for preference in ["return=representation", "return=minimalist", "wait=5; return=minimal", "return", ""] {
        let answer = service
            .call(Method::POST, "/v1/generations", &[("prefer", preference)], Some(&intent("i")))
            .await;
        assert_eq!(answer.header("preference-applied"), None, "{preference}");
        assert_eq!(answer.expect(201)["user_intent"], "i", "{preference}");
    }
}
