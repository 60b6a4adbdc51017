//! What is made of suggestions and verdicts: the data set and the figures.

use serde_json::{Value, json};
use uuid::Uuid;

use super::{ask, notes, suggest};
use crate::support::{Service, assert_whole, column, encoded};

/// A conversation in which one suggestion was used and another dismissed.
async fn judged() -> Service {
    let service = Service::open().await;
    notes(&service).await;
    ask(&service, "s", "How does AuthMiddleware verify a JWT on staging?").await;
    let found = suggest(&service, "s", &json!({"confidence_threshold": 0})).await;
    assert_eq!(found["total_suggestions"], 3, "{found}");
    for (number, verdict) in [(1, "used"), (2, "dismissed"), (3, "used")] {
        let feedback = json!({"memory_id": Uuid::from_u128(number), "verdict": verdict});
        service.post("/v1/conversations/s/feedback", &feedback).await.expect(200);
    }
    service
}

#[tokio::test]
async fn judged_suggestions_are_rows_pairs_and_triplets() {
    let service = judged().await;
    let rows = async |query: &str| {
        let mut rows = service.get(&format!("/v1/exports/memory-suggestions?{query}")).await.rows();
        for row in rows.iter_mut().filter_map(Value::as_object_mut) {
            row.remove("confidence");
        }
        Value::from(rows)
    };
    let asked = "How does AuthMiddleware verify a JWT on staging?";
    let (used, dismissed) = (
        "AuthMiddleware refuses a JWT whose clock is ahead by more than 30 seconds.",
        "The staging database is on port 5433.",
    );
    let row = |suggested: &str, verdict: &str| json!({"query": asked, "suggested": suggested, "source_type": "memory", "verdict": verdict});
    assert_eq!(rows("").await, json!([row(used, "used"), row(dismissed, "dismissed")]));
    assert_eq!(rows("verdict=dismissed").await, json!([row(dismissed, "dismissed")]));
    assert_eq!(rows("source_type=code").await, json!([]));
    assert_eq!(rows("format=pairs").await, json!([{"anchor": asked, "positive": used}]));
    assert_eq!(
        rows("format=triplets").await,
        json!([{"anchor": asked, "positive": used, "negative": dismissed}])
    );
    service.get("/v1/exports/memory-suggestions?format=pairs&verdict=used").await.refused(422, &["/verdict"]);
    let metadata = service.get("/v1/exports/memory-suggestions?include=metadata&limit=1").await.rows();
    assert_eq!(metadata[0]["metadata"]["session_id"], "s");

    // The same query with the same memory in another conversation is an equal row.
    ask(&service, "t", asked).await;
    suggest(&service, "t", &json!({"confidence_threshold": 0})).await;
    let feedback = json!({"memory_id": Uuid::from_u128(1), "verdict": "used"});
    service.post("/v1/conversations/t/feedback", &feedback).await.expect(200);
    assert_eq!(rows("format=pairs").await.as_array().map(Vec::len), Some(2));
    assert_eq!(rows("format=pairs&dedupe=exact").await.as_array().map(Vec::len), Some(1));
}

#[tokio::test]
async fn a_verdict_that_is_sent_again_stays_where_it_was_in_exports() {
    let service = judged().await;
    let path = "/v1/exports/memory-suggestions?format=raw";
    let exported = service.get(path).await;
    let as_of = encoded(exported.header("gleaner-as-of").expect("a time"));
    let judge = async |verdict: &str| {
        let feedback = json!({"memory_id": Uuid::from_u128(1), "verdict": verdict});
        service.post("/v1/conversations/s/feedback", &feedback).await.expect(200);
        service.get(&format!("{path}&as_of={as_of}")).await.rows()
    };
    assert_eq!(judge("used").await, exported.rows());
    assert_eq!(judge("dismissed").await, exported.rows()[1..], "another verdict is a later one");
}

#[tokio::test]
async fn a_triplet_is_equal_to_another_only_with_its_negative_and_stays_as_of_its_time() {
    let service = Service::open().await;
    notes(&service).await;
    let asked = async |session: &str| {
        ask(&service, session, "How does AuthMiddleware verify a JWT on staging?").await;
        let found = suggest(&service, session, &json!({"confidence_threshold": 0})).await;
        column(found["suggestions"].as_array().expect("a list"), "memory_id")
    };
    let judge = async |session: &str, memory: &Value, verdict: &str| {
        let feedback = json!({"memory_id": memory, "verdict": verdict});
        service.post(&format!("/v1/conversations/{session}/feedback"), &feedback).await.expect(200);
    };
    let mut third = Value::Null;
    for session in ["a", "b", "c", "d"] {
        let memories = asked(session).await;
        let [used, dismissed, other] = &memories[..] else { panic!("three: {memories:?}") };
        judge(session, used, "used").await;
        match session {
            "a" => {}
            "c" => {
                judge(session, other, "dismissed").await;
                third = other.clone();
            }
            _ => judge(session, dismissed, "dismissed").await,
        }
    }
    let path = "/v1/exports/memory-suggestions?format=triplets";
    let exported = service.get(path).await;
    let as_of = encoded(exported.header("gleaner-as-of").expect("a time"));
    let rows = exported.rows();
    assert_eq!(rows.len(), 3);
    assert_eq!(service.get(&format!("{path}&dedupe=exact")).await.rows(), rows[..2]);
    judge("b", &third, "dismissed").await;
    assert_eq!(service.get(&format!("{path}&as_of={as_of}")).await.rows(), rows);
    assert_eq!(service.get(path).await.rows().len(), 4);
}

#[tokio::test]
async fn a_verdict_is_not_exported_beside_a_text_that_it_was_not_on() {
    let service = judged().await;
    let exported = async |format: &str| {
        service.get(&format!("/v1/exports/memory-suggestions?format={format}")).await.rows().len()
    };
    assert_eq!([exported("raw").await, exported("triplets").await], [2, 1]);
    let change = async |number: u128, change: Value| {
        service.patch(&format!("/v1/memories/{}", Uuid::from_u128(number)), &change).await.expect(200);
    };
    let same = "AuthMiddleware refuses a JWT whose clock is ahead by more than 30 seconds.";
    change(1, json!({"content": same, "importance": 0.9})).await;
    assert_eq!(exported("triplets").await, 1, "the text is the same");
    change(2, json!({"content": "The staging database is on port 5434."})).await;
    assert_eq!([exported("raw").await, exported("triplets").await], [1, 0]);
    change(1, json!({"content": "AuthMiddleware accepts every JWT."})).await;
    assert_eq!(exported("raw").await, 0);
    // The new text is suggested elsewhere, and judged.
    ask(&service, "t", "How does AuthMiddleware verify a JWT on staging?").await;
    suggest(&service, "t", &json!({"confidence_threshold": 0})).await;
    let feedback = json!({"memory_id": Uuid::from_u128(1), "verdict": "dismissed"});
    service.post("/v1/conversations/t/feedback", &feedback).await.expect(200);
    assert_eq!(exported("raw").await, 1);
    // Code is replaced by other code of the same name, and a memory is made again with the same id.
    let put = async |body: &str| {
        let chunk =
            json!({"symbol": "verify_jwt", "content": format!("fn verify_jwt(token: &str) {{ {body} }}")});
        let file = json!({"root": "/r", "path": "jwt.rs", "chunks": [chunk]});
        service.put("/v1/memories/code", &file).await.expect(200);
    };
    put("decode(token)").await;
    ask(&service, "u", "How does verify_jwt verify a JWT?").await;
    let found = suggest(&service, "u", &json!({"confidence_threshold": 0})).await;
    let suggestions = found["suggestions"].as_array().expect("a list");
    for memory in column(suggestions, "memory_id") {
        let feedback = json!({"memory_id": memory, "verdict": "used"});
        service.post("/v1/conversations/u/feedback", &feedback).await.expect(200);
    }
    let judged = exported("raw").await;
    put("decode(token)").await;
    assert_eq!(exported("raw").await, judged);
    put("launch()").await;
    assert_eq!(exported("raw").await, judged - 1);
    let erased = format!("/v1/memories/{}", Uuid::from_u128(4));
    service.delete(&erased).await.gone();
    let again = json!({"id": Uuid::from_u128(4), "content": "Another text."});
    service.post("/v1/memories", &again).await.expect(201);
    assert_eq!(exported("raw").await, judged - 2);
}

#[tokio::test]
async fn the_figures_say_what_suggestions_were_worth() {
    let service = judged().await;
    let mut figures = service.get("/v1/analytics/memories").await.expect(200);
    assert_eq!(figures["total"]["used_rate"], 0.5);
    let bands = figures["by_confidence"].as_array().expect("bands");
    let sum = |name: &str| bands.iter().map(|band| band[name].as_i64().expect("a count")).sum::<i64>();
    assert_eq!((sum("suggested"), sum("used"), sum("dismissed")), (3, 1, 1));
    assert!(figures["p50_took_ms"].as_f64().expect("a time") > 0.0);
    for name in ["p50_took_ms", "p99_took_ms", "by_confidence", "mean_intent_confidence"] {
        figures[name] = json!("figures");
    }
    for place in ["/total", "/by_intent_type/1", "/by_source_type/0", "/by_source_type/1"] {
        let figures = figures.pointer_mut(place).expect("a place");
        if figures["mean_confidence"].is_number() {
            figures["mean_confidence"] = json!("a figure");
        }
    }
    assert_whole!("figures_of_suggestions", figures);
    let none = service.get("/v1/analytics/memories?until=2020-01-01T00:00:00Z").await.expect(200);
    assert_eq!((&none["requests"], &none["total"]["suggested"]), (&json!(0), &json!(0)));
    service.get("/v1/analytics/memories?since=2&until=1").await.refused(422, &["/since"]);
}

#[tokio::test]
async fn enough_verdicts_correct_the_confidence_of_a_project() {
    let service = Service::open().await;
    notes(&service).await;
    let before = confidence(&service, "before").await;
    // Other memories are suggested sixty times, and hardly any is used.
    let question = "Which port has the staging database?";
    let mut lines = Vec::new();
    for number in 0..60 {
        let session = format!("s{number}");
        ask(&service, &session, question).await;
        suggest(&service, &session, &json!({"confidence_threshold": 0})).await;
        let verdict = if number < 12 { "used" } else { "dismissed" };
        lines.push(json!({"event": "memory_feedback", "session_id": session, "memory_id": Uuid::from_u128(2), "verdict": verdict}));
    }
    service.accept(&lines).await;
    let after = confidence(&service, "after").await;
    assert!(after < before, "{after} {before}");
}

async fn confidence(service: &Service, session: &str) -> f64 {
    ask(service, session, "Why does AuthMiddleware refuse my JWT?").await;
    let found = suggest(service, session, &json!({"confidence_threshold": 0, "peek": true})).await;
    found["suggestions"][0]["confidence"].as_f64().expect("a number")
}
