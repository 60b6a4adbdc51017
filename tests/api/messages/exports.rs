//! The data set of chats.

use serde_json::json;
use uuid::Uuid;

use crate::support::{Service, assert_text, bodies, column};

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

#[tokio::test]
async fn a_conversation_is_as_long_as_the_calls_that_are_exported() {
    let service = Service::open().await;
    for number in [1, 2] {
        let new = json!({"id": Uuid::from_u128(number), "session_id": "s", "user_text": "u", "assistant_text": "a",
            "created_at": format!("2026-03-0{number}T00:00:00Z")});
        service.post("/v1/pairs", &new).await.expect(201);
    }
    let rows = async || service.get("/v1/exports/conversations?format=raw").await.rows();
    let long = "update pairs set user_text = repeat('u', 9000000)";
    sqlx::raw_sql(long).execute(service.pool()).await.expect("long texts");
    assert!(rows().await.is_empty(), "both together are too long");
    // As the gateway does with two calls that answer the same message.
    let calls = "update pairs set turn = '00000000-0000-0000-0000-000000000001'";
    sqlx::raw_sql(calls).execute(service.pool()).await.expect("calls of one turn");
    let rows = rows().await;
    assert_eq!(rows.iter().map(|row| row["pairs"].as_array().map(Vec::len)).collect::<Vec<_>>(), [Some(1)]);
}

#[tokio::test]
async fn a_conversation_is_left_out_that_is_too_long_as_json() {
    let service = Service::open().await;
    for topic in ["long", "short"] {
        for text in ["first", "second"] {
            let new = json!({"topic_id": topic, "user_text": text, "assistant_text": "a"});
            service.post("/v1/pairs", &new).await.expect(201);
        }
    }
    // A control character has six bytes.
    let long = "update pairs set user_text = repeat(chr(1), 1500000) || 'a' where topic_id = 'long'";
    sqlx::raw_sql(long).execute(service.pool()).await.expect("long texts");
    for format in ["raw", "openai"] {
        let rows = service.get(&format!("/v1/exports/conversations?format={format}")).await.rows();
        assert_eq!(rows.len(), 1, "{format}");
    }
}

#[tokio::test]
async fn the_answer_to_a_message_is_that_of_its_last_call_if_it_calls_no_tool() {
    let service = Service::open().await;
    // The session, the message, the answer, and whether it calls a tool.
    for (number, (session, user, assistant, calls)) in (1..).zip([
        ("a", "What does foo do?", "Let me look at the file.", true),
        ("a", "What does foo do?", " ", true),
        ("a", "Never mind. What is 2+2?", "4", false),
        ("b", "Fix it.", "I will look.", true),
        ("b", "Fix it.", "Almost.", false),
        ("b", "Fix it.", "Fixed.", false),
        ("c", "And this?", "I will see.", false),
        ("c", "And this?", " ", true),
        ("d", "Are you there?", "Yes.", false),
        ("d", "And now?", "I will see.", true),
    ]) {
        let id = Uuid::from_u128(number);
        let new = json!({"id": id, "session_id": session, "user_text": user, "assistant_text": assistant,
            "star": i32::from(number == 5), "created_at": format!("2026-03-{number:02}T00:00:00Z")});
        service.post("/v1/pairs", &new).await.expect(201);
        // As the gateway does.
        let sql = "update pairs set turn = md5(user_text)::uuid, tool_calls = case when $2 then '[{}]'::json end where id = $1";
        sqlx::query(sql).bind(id).bind(calls).execute(service.pool()).await.expect("a call of a turn");
    }
    let said = async |query: &str| {
        let rows = service.get(&format!("/v1/exports/conversations?format=raw{query}")).await.rows();
        let texts =
            |row: &serde_json::Value| column(row["pairs"].as_array().expect("pairs"), "assistant_text");
        rows.iter().map(texts).collect::<Vec<_>>()
    };
    let expected = [["4"], ["Fixed."], ["Yes."]];
    assert_eq!(said("").await, expected);
    assert_eq!(said("&order=newest").await, [["Yes."], ["Fixed."], ["4"]]);
    assert_eq!(said("&dedupe=exact").await, expected);
    assert!(said("&star=1").await.is_empty(), "it is not the last call");
    let mut pages = Vec::new();
    let mut cursor = String::new();
    loop {
        let page = service.get(&format!("/v1/exports/conversations?format=raw&limit=1{cursor}")).await;
        pages.push(page.rows().len());
        let Some(next) = page.header("gleaner-next-cursor") else { break };
        cursor = format!("&cursor={next}");
    }
    assert_eq!(pages, [1, 1, 1]);
    let listed = service.get("/v1/exports").await.expect(200);
    let listed =
        listed["data"].as_array().expect("data").iter().find(|set| set["dataset"] == "conversations");
    assert_eq!(listed.expect("the data set")["rows"], 3);
}
