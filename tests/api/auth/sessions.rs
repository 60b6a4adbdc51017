//! Sessions: their list, and erasing everything that was recorded under a name.

use axum::http::Method;
use serde_json::{Value, json};
use uuid::Uuid;

use super::{LOGS, log};
use crate::support::{Service, column, failed, with};

#[tokio::test]
async fn sessions_are_listed_with_counts_and_times() {
    let service = Service::open().await;
    for (session, at) in
        [("a/b", "2025-01-01"), ("c", "2025-01-03"), ("a/b", "2025-01-02"), ("d", "2025-01-03")]
    {
        let more = json!({"session_id": session, "created_at": format!("{at}T00:00:00Z")});
        service.create(LOGS, with(log(), &more)).await;
    }
    service.create(LOGS, log()).await;
    let session = |name: &str, count: i32, first: &str, last: &str| {
        json!({"session": name, "server": null, "generations": count, "suggestions": 0, "searches": 0, "messages": 0, "memories": 0, "first_at": format!("{first}T00:00:00.000000Z"),
            "last_at": format!("{last}T00:00:00.000000Z")})
    };
    let expected = [
        session("d", 1, "2025-01-03", "2025-01-03"),
        session("c", 1, "2025-01-03", "2025-01-03"),
        session("a/b", 2, "2025-01-01", "2025-01-02"),
    ];
    for limit in [1, 2, 3, 500] {
        assert_eq!(service.all(&format!("/v1/sessions?limit={limit}")).await, expected);
    }
    let since = service.all("/v1/sessions?since=2025-01-03T00:00:00Z").await;
    assert_eq!(since, expected[..2]);
}

#[tokio::test]
async fn one_name_on_two_servers_is_two_sessions() {
    let service = Service::open().await;
    let slate = |n: u128, server: Option<&str>| {
        json!({"event": "suggestion", "id": Uuid::from_u128(n), "context": {}, "suggestions": ["a"], "session_name": "s",
            "server_name": server, "created_at": n, "actual_input": "a"})
    };
    let log = with(log(), &json!({"event": "generation", "session_id": "s", "created_at": 0}));
    let events = [
        slate(1, Some("east")),
        slate(2, Some("west")),
        slate(2_000, Some("west")),
        slate(4, None),
        slate(5, Some("")),
        log,
    ];
    service.accept(&events).await;
    let sessions = async |query: &str| {
        let sessions = service.all(&format!("/v1/sessions{query}")).await;
        let row =
            |own: &Value| json!([own["session"], own["server"], own["suggestions"], own["generations"]]);
        sessions.iter().map(row).collect::<Value>()
    };
    let (west, none, east) =
        (json!(["s", "west", 2, 0]), json!(["s", null, 2, 1]), json!(["s", "east", 1, 0]));
    for query in ["", "?limit=1", "?limit=2"] {
        assert_eq!(sessions(query).await, json!([west, none, east]), "{query}");
    }
    assert_eq!(sessions("?server=west").await, json!([west]));
    assert_eq!(sessions("?server=north").await, json!([]));
    // An empty name would mean every server, which nobody wants by mistake.
    service.get("/v1/sessions?server=").await.refused(422, &["/server"]);
    service.delete("/v1/sessions/s?server=").await.refused(422, &["/server"]);

    let erased = |suggestions: i32, generations: i32| json!({"suggestions": suggestions, "generations": generations, "attempts": 0, "searches": 0, "pairs": 0, "sends": 0, "memories": 0, "queries": 0});
    assert_eq!(service.delete("/v1/sessions/s?server=north").await.expect(200), erased(0, 0));
    assert_eq!(service.delete("/v1/sessions/s?server=west").await.expect(200), erased(2, 0));
    assert_eq!(sessions("").await, json!([none, east]));
    assert_eq!(service.delete("/v1/sessions/s").await.expect(200), erased(3, 1));
    assert_eq!(sessions("").await, json!([]));
}

#[tokio::test]
async fn erasing_a_session_erases_everything_recorded_under_its_name() {
    let service = Service::open().await;
    service.project("other").await;
    let full = |session: &str, word: &str| {
        let attempt = |number: i32| {
            json!({"attempt": number, "prompt_text": word, "raw_response": word, "metadata": {"k": word},
                "extracted_dsl": format!("({word} {number})"), "prompt_template": word,
                "lint_result": {"valid": number == 2, "errors": [word], "warnings": [word]}})
        };
        with(
            log(),
            &json!({"user_intent": word, "session_id": session, "cbu_id": word, "instance_id": word,
                "model_used": word, "metadata": {"k": word}, "success": true, "iterations": [attempt(1), attempt(2)]}),
        )
    };
    let session = "team/ann's session";
    let reviewed = service.create(LOGS, full(session, "needle")).await;
    let review = json!({"rating": "good", "reviewer": "needle", "note": "needle", "corrected_dsl": "needle"});
    service.put(&format!("{LOGS}/{reviewed}/review"), &review).await.expect(200);
    let open = json!({"user_intent": "needle", "session_id": session, "iterations": [failed(1, "needle", "needle")]});
    service.create(LOGS, with(log(), &open)).await;
    service.create(LOGS, full("another", "kept")).await;
    let elsewhere = [("gleaner-project", "other")];
    service.call(Method::POST, LOGS, &elsewhere, Some(&full(session, "theirs"))).await.expect(201);
    let slate = json!({"event": "suggestion", "id": Uuid::from_u128(5), "context": {"k": "needle"},
        "suggestions": ["needle", "x"], "session_name": session});
    let typed = json!({"event": "partial_inputs", "suggestion_id": Uuid::from_u128(5), "inputs": [{"text": "needle"}]});
    let outcome =
        json!({"event": "suggestion_outcome", "suggestion_id": Uuid::from_u128(5), "actual_input": "x"});
    service.accept(&[slate, typed, outcome]).await;
    let pair =
        json!({"event": "pair", "id": Uuid::from_u128(6), "user_text": "needle", "session_id": session});
    let send = json!({"event": "send", "id": Uuid::from_u128(7), "mode": "record", "user_text": "needle", "session_id": session,
        "model": "m", "system": "needle", "visible": {"ids": [Uuid::from_u128(6)]}});
    let answer = json!({"event": "send_outcome", "send_id": Uuid::from_u128(7), "assistant_text": "needle"});
    service.put("/v1/models/m", &json!({"context_window": 1_000})).await.expect(201);
    service.accept(&[pair, send, answer]).await;
    let memory = json!({"event": "memory", "id": Uuid::from_u128(8), "content": "needle", "session_id": session,
        "tags": ["needle"], "file_path": "needle", "symbol": "needle", "metadata": {"k": "needle"}});
    let query =
        json!({"event": "conversation_query", "session_id": session, "query": "needle", "root": "/needle"});
    let verdict = json!({"event": "memory_feedback", "session_id": session, "memory_id": Uuid::from_u128(8), "verdict": "used"});
    service.accept(&[memory, query, verdict]).await;
    let edit = json!({"user_text": "needle again"});
    let edited = format!("/v1/pairs/{}", Uuid::from_u128(6));
    service.call(Method::PATCH, &edited, &[], Some(&edit)).await.expect(200);
    assert_eq!(service.get("/v1/exports/preference-pairs").await.rows().len(), 1);
    assert!(service.dump().await.contains("needle"));

    let path = "/v1/sessions/team%2Fann's%20session";
    let erased = service.delete(path).await.expect(200);
    assert_eq!(
        erased,
        json!({"generations": 2, "attempts": 3, "suggestions": 1, "searches": 0, "pairs": 2, "sends": 1, "memories": 1, "queries": 1})
    );
    let dump = service.dump().await;
    for gone in ["needle", &reviewed] {
        assert!(!dump.contains(gone), "{gone}");
    }
    assert!(dump.contains("kept") && dump.contains("theirs"));
    let again = service.delete(path).await.expect(200);
    assert_eq!(
        again,
        json!({"generations": 0, "attempts": 0, "suggestions": 0, "searches": 0, "pairs": 0, "sends": 0, "memories": 0, "queries": 0})
    );
    assert_eq!(service.get("/v1/exports/preference-pairs").await.rows().len(), 0);
    let kept = service.get("/v1/exports/correction-pairs").await.rows();
    assert_eq!(kept.len(), 1);
    let sessions = service.all("/v1/sessions").await;
    assert_eq!(column(&sessions, "session"), ["another"]);
}
