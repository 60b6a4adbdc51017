//! Exports that begin with the newest records.

use serde_json::{Value, json};
use uuid::Uuid;

use super::{CORRECTIONS, TRAINING, pieces, rows, solved};
use crate::support::{Answer, Service, column, failed, passed};

/// Nine logs, some of which make several rows, as many slates, and a few searches and conversations.
async fn service() -> Service {
    let service = Service::open().await;
    let logs = (1..=9_u128).map(|id| {
        let failures = i32::try_from(id % 3).expect("small");
        let program = |number: i32| format!("(program {})", number % 4);
        let mut chain: Vec<_> = (1..=failures).map(|number| failed(number, &program(number), "e")).collect();
        chain.push(passed(9, "(right)"));
        solved(id, &format!("intent {}", id % 4), &chain)
    });
    let slates = (1..=9_u128).map(|id| {
        let texts = ["a", "b", "c"].map(|text| format!("{text} {id}"));
        json!({"event": "suggestion", "id": Uuid::from_u128(id), "context": {"n": id}, "suggestions": texts,
            "viewed_indices": [0, 1, 2], "actual_input": texts[1]})
    });
    let searches = (1..=4_u128).flat_map(|id| {
        let search = Uuid::from_u128(id);
        let results = json!([{"path": "x.rs", "score": 0.1}, {"path": "y.rs", "score": 0.1}]);
        [
            json!({"event": "search", "id": search, "query": format!("query {id}"), "best_score": 0.1, "result_count": 2,
                "results": results, "agent_session_id": format!("s {id}"), "timestamp": 1_767_225_600}),
            json!({"event": "fallback", "search_id": search, "kind": "read", "path": format!("{id}.rs"),
                "timestamp": 1_767_225_601}),
            json!({"event": "search_outcome", "search_id": search, "timestamp": 1_767_225_602}),
        ]
    });
    let pairs = (1..=12_u128).map(|id| {
        json!({"event": "pair", "id": Uuid::from_u128(id), "topic_id": format!("topic {id}"), "user_text": format!("hello {id}"),
            "assistant_text": format!("hello {id}")})
    });
    let events: Vec<_> = logs.chain(slates).chain(searches).chain(pairs).collect();
    service.accept(&events).await;
    judge_memories(&service).await;
    service
}

/// Has a memory suggested, and used, in each of twelve conversations.
async fn judge_memories(service: &Service) {
    let memories = (0..12_u128).map(|number| {
        let content = format!("Invoices of region {number} are rounded to the cent.");
        json!({"event": "memory", "id": Uuid::from_u128(900 + number), "content": content})
    });
    service.accept(&memories.collect::<Vec<_>>()).await;
    for number in 0..12_u128 {
        let path = format!("/v1/conversations/c{number}");
        let query = json!({"query": format!("How are invoices of region {number} rounded?")});
        service.post(&format!("{path}/queries"), &query).await.expect(201);
        let threshold = json!({"confidence_threshold": 0});
        let suggested = service.post(&format!("{path}/suggest"), &threshold).await.expect(200);
        let found = &suggested["suggestions"][0]["memory_id"];
        let verdict = json!({"memory_id": found, "verdict": "used"});
        service.post(&format!("{path}/feedback"), &verdict).await.expect(200);
    }
}

#[tokio::test]
async fn newest_first_is_oldest_first_turned_round_in_every_data_set() {
    let service = service().await;
    let list = service.get("/v1/exports").await.expect(200);
    for name in column(list["data"].as_array().expect("data"), "dataset") {
        let path = format!("/v1/exports/{}", name.as_str().expect("a name"));
        for query in ["format=raw", "format=raw&dedupe=exact", "format=raw&split=train&holdout=0.3"] {
            let mut expected = rows(&service, &format!("{path}?{query}")).await;
            assert_eq!(rows(&service, &format!("{path}?{query}&order=oldest")).await, expected);
            expected.reverse();
            assert!(expected.len() > 1, "{path} {query}");
            let newest = format!("{path}?{query}&order=newest");
            assert_eq!(rows(&service, &newest).await, expected, "{query}");
            for limits in [vec![1], vec![2, 1], vec![1000]] {
                let pieces = pieces(&service, &newest, &limits).await;
                let together: Vec<_> = pieces.iter().flat_map(Answer::rows).collect();
                assert_eq!(together, expected, "{path} {query} {limits:?}");
            }
        }
    }
}

#[tokio::test]
async fn a_log_is_cut_in_two_in_neither_order() {
    let service = service().await;
    for order in ["oldest", "newest"] {
        let path = format!("{CORRECTIONS}?format=raw&pairing=next&order={order}");
        for piece in pieces(&service, &path, &[1]).await {
            let logs = column(&piece.rows(), "generation_id");
            assert!(!logs.is_empty() && logs.iter().all(|log| *log == logs[0]), "{order} {logs:?}");
        }
    }
}

#[tokio::test]
async fn the_newest_export_goes_back_in_time_and_what_came_meanwhile_is_not_in_it() {
    let service = service().await;
    let path = format!("{TRAINING}?format=raw&order=newest");
    let whole = service.get(&path).await;
    let first = service.get(&format!("{path}&limit=2")).await;
    assert_eq!(first.rows(), whole.rows()[..2]);
    let (as_of, cursor) = (first.header("gleaner-as-of"), first.header("gleaner-next-cursor"));
    let (as_of, cursor) = (as_of.expect("a time").to_owned(), cursor.expect("more").to_owned());
    service.accept(&[solved(99, "latest", &[passed(1, "(latest)")])]).await;
    let rest = service.get(&format!("{path}&cursor={cursor}")).await;
    assert_eq!(rest.header("gleaner-as-of"), Some(as_of.as_str()));
    assert_eq!(first.text() + &rest.text(), whole.text());
    let again = service.get(&format!("{path}&as_of={as_of}")).await;
    assert_eq!(again.text(), whole.text());
    let latest = rows(&service, &format!("{path}&limit=1")).await;
    assert_eq!(latest, [json!({"user_intent": "latest", "valid_dsl": "(latest)"})]);
}

#[tokio::test]
async fn a_cursor_belongs_to_its_order() {
    let service = service().await;
    for (order, other) in [("&order=newest", ""), ("&order=newest", "&order=oldest"), ("", "&order=newest")] {
        let piece = service.get(&format!("{TRAINING}?limit=1{order}")).await;
        let cursor = piece.header("gleaner-next-cursor").expect("more");
        service.get(&format!("{TRAINING}?cursor={cursor}{other}")).await.refused(422, &["/cursor"]);
    }
    for order in ["", "latest", "Newest"] {
        service.get(&format!("{TRAINING}?order={order}")).await.refused(422, &["/order"]);
    }
}

#[tokio::test]
async fn of_equal_rows_the_oldest_is_kept_in_either_order() {
    let service = Service::open().await;
    let chain = [passed(1, "(a)")];
    service.accept(&[solved(1, "same", &chain), solved(2, "other", &chain), solved(3, "same", &chain)]).await;
    let ids = |rows: Vec<Value>| -> Vec<Value> {
        rows.iter().map(|row| row["metadata"]["generation_id"].clone()).collect()
    };
    let path = format!("{TRAINING}?include=metadata&dedupe=exact&order=newest");
    assert_eq!(ids(rows(&service, &path).await), [json!(Uuid::from_u128(2)), json!(Uuid::from_u128(1))]);
}
