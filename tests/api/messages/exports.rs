//! The data set of chats.

use serde_json::json;
use uuid::Uuid;

use crate::support::{Service, assert_text, bodies};

#[tokio::test]
async fn a_conversation_is_a_topic_else_a_session_else_a_pair() {
    let service = Service::open().await;
    for (number, place) in [
        (1, json!({"topic_id": "t", "session_id": "s"})),
        (2, json!({"session_id": "s"})),
        (3, json!({})),
        (4, json!({"topic_id": "t", "star": 2, "model": "m"})),
        (5, json!({"session_id": "s", "assistant_text": " "})),
        (6, json!({"session_id": "s", "assistant_text": null})),
        (7, json!({})),
    ] {
        let text = if number == 7 { 3 } else { number };
        let new = json!({"id": Uuid::from_u128(number), "user_text": format!("u{text}"), "assistant_text": format!("a{text}"),
            "created_at": format!("2026-03-0{number}T00:00:00Z")});
        service.post("/v1/pairs", &crate::support::with(new, &place)).await.expect(201);
    }
    let path = "/v1/exports/conversations";
    let queries =
        ["", "system=Be+brief.", "format=raw", "dedupe=exact", "topic_id=t&star=2", "model=m", "limit=2"];
    assert_text!("conversations", bodies(&service, path, &queries).await);
    let first = service.get(&format!("{path}?limit=2")).await;
    let next = first.header("gleaner-next-cursor").expect("more").to_owned();
    assert_eq!(first.rows().len() + service.get(&format!("{path}?cursor={next}")).await.rows().len(), 4);

    // What is said later changes no export of what was there.
    let as_of = service.get(path).await.header("gleaner-as-of").expect("a time").to_owned();
    let later = json!({"topic_id": "t", "user_text": "later", "assistant_text": "later"});
    service.post("/v1/pairs", &later).await.expect(201);
    let then = service.get(&format!("{path}?as_of={as_of}")).await;
    assert!(!then.text().contains("later") && then.text().contains("u4"));
    assert!(service.get(path).await.text().contains("later"));
    service.get(&format!("{path}?star=4")).await.refused(422, &["/star"]);
}
