//! Views of a slate: their order, their names, and a slate that is empty.

use axum::http::Method;
use serde_json::json;
use uuid::Uuid;

use super::{SLATES, finalized, posted};
use crate::support::{Service, column};

#[tokio::test]
async fn views_end_in_the_order_of_their_times_once_each() {
    let service = Service::open().await;
    let address = posted(&service, &["a", "b", "c"], json!({"fetch_end_ts": 1_704_067_200.0})).await;
    let views = format!("{address}/views");
    let at = |seconds: i64| 1_704_067_200 + seconds;
    for (body, status) in [
        (json!({"direction": "prev", "at": at(3)}), 201),
        (json!({"views": [{"index": 2, "at": at(2)}, {"direction": "next", "at": at(1)}]}), 201),
        (json!({"direction": "prev", "at": at(3)}), 200),
        (json!({"views": [{"index": 2, "at": at(2)}, {"index": 0, "at": at(4)}]}), 201),
        (json!({"views": [{"direction": "next", "at": at(1)}, {"index": 0, "at": at(4)}]}), 200),
        (json!({"id": Uuid::from_u128(1), "index": 0, "at": at(5)}), 201),
        (json!({"id": Uuid::from_u128(1), "index": 0, "at": at(5)}), 200),
        (json!({"id": Uuid::from_u128(1), "index": 1, "at": at(5)}), 409),
    ] {
        let answer = service.post(&views, &body).await;
        assert_eq!(answer.status, status, "{body}: {}", answer.text());
    }
    let record = service.get(&address).await.expect(200);
    assert_eq!(record["viewed_indices"], json!([0, 1, 2, 1, 0, 0]));
    assert_eq!(record["cycle_count"], 5);
    let seen = record["views"].as_array().expect("views");
    assert_eq!(json!(column(seen, "dwell_ms")), json!([1000.0, 1000.0, 1000.0, 1000.0, 1000.0, null]));
    let listed = &service.all(SLATES).await[0];
    assert_eq!((&listed["viewed_indices"], &listed["cycle_count"]), (&record["viewed_indices"], &json!(5)));
    finalized(&service, &address, "a").await;
    let late = service.post(&views, &json!({"index": 1, "at": at(9)})).await.refused(409, &[]);
    assert!(late["detail"].as_str().expect("detail").ends_with("is finalized; nothing can be added"));
    service.post(&views, &json!({"direction": "prev", "at": at(3)})).await.expect(200);
}

#[tokio::test]
async fn views_without_name_or_time_all_count_and_an_idempotency_key_names_them() {
    let service = Service::open().await;
    let address = posted(&service, &["a", "b"], json!({})).await;
    let views = format!("{address}/views");
    let next = json!({"direction": "next"});
    for _ in 0..2 {
        service.post(&views, &next).await.expect(201);
    }
    let key = [("idempotency-key", "k")];
    assert_eq!(service.call(Method::POST, &views, &key, Some(&next)).await.status, 201);
    assert_eq!(service.call(Method::POST, &views, &key, Some(&next)).await.status, 200);
    let other = json!({"direction": "prev"});
    assert_eq!(service.call(Method::POST, &views, &key, Some(&other)).await.status, 409);
    assert_eq!(service.get(&address).await.expect(200)["viewed_indices"], json!([0, 1, 0, 1]));
}

#[tokio::test]
async fn each_record_of_a_page_or_a_batch_has_its_own_views() {
    let service = Service::open().await;
    let ids = [1, 2, 3].map(Uuid::from_u128);
    for id in ids {
        posted(&service, &["a", "b", "c"], json!({"id": id})).await;
    }
    let view = |id, index| json!({"event": "view", "suggestion_id": id, "index": index});
    service.accept(&[view(ids[2], 2), view(ids[0], 1), view(ids[2], 1)]).await;
    let viewed = async || json!(column(&service.all(SLATES).await, "viewed_indices"));
    let expected = json!([[0, 2, 1], [0], [0, 1]]);
    assert_eq!(viewed().await, expected);
    let outcome = |id| json!({"event": "suggestion_outcome", "suggestion_id": id, "actual_input": "x"});
    service.accept(&ids.map(outcome)).await;
    assert_eq!(viewed().await, expected);
}

#[tokio::test]
async fn of_an_empty_slate_nothing_is_viewed() {
    let service = Service::open().await;
    let address = posted(&service, &[], json!({})).await;
    let viewed = service.post(&format!("{address}/views"), &json!({"direction": "next"})).await.expect(201);
    assert_eq!((&viewed["viewed_indices"], &viewed["cycle_count"]), (&json!([]), &json!(0)));
    let record = finalized(&service, &address, "ls").await;
    assert_eq!(
        json!([
            record["viewed_indices"],
            record["cycle_count"],
            record["displayed_index_at_submit"],
            record["match_type"]
        ]),
        json!([[], 0, -1, "none"])
    );
}

#[tokio::test]
async fn a_record_has_at_most_a_thousand_views() {
    let service = Service::open().await;
    let id = Uuid::from_u128(1);
    let address = posted(&service, &["a", "b"], json!({"id": id})).await;
    let views = format!("{address}/views");
    let next = json!({"direction": "next"});
    service.post(&views, &json!({"views": vec![&next; 1_001]})).await.refused(422, &["/views"]);
    service.post(&views, &json!({"views": vec![&next; 999]})).await.expect(201);
    service.post(&views, &json!({"views": [next, next]})).await.refused(409, &[]);
    let event = json!({"event": "view", "suggestion_id": id, "direction": "next"});
    let summary = service.events(&[event.clone(), event]).await.expect(200);
    let rejected = column(summary["rejected"].as_array().expect("a list"), "status");
    assert_eq!((&summary["accepted"], rejected), (&json!(1), vec![json!(409)]));
    let typed = json!({"inputs": [{"text": "ls"}]});
    service.post(&format!("{address}/partial-inputs"), &typed).await.expect(201);
    assert_eq!(finalized(&service, &address, "ls").await["cycle_count"], 1_000);
}

#[tokio::test]
async fn the_views_of_a_record_are_known_however_many_another_one_has() {
    const VIEWS: &str = "
        insert into suggestion_activity (project, suggestion_id, id, kind, direction, received_at)
        select 'default', $1, md5(number::text)::uuid, 'view', 1, now() from generate_series(1, 100000) as number";
    let service = Service::open().await;
    let ids = [1, 2].map(Uuid::from_u128);
    for id in ids {
        posted(&service, &["a", "b"], json!({"id": id})).await;
    }
    sqlx::query(VIEWS).bind(ids[0]).execute(service.pool()).await.expect("inserts");
    let address = format!("{SLATES}/{}", ids[1]);
    service.post(&format!("{address}/views"), &json!({"index": 1})).await.expect(201);
    assert_eq!(service.all(SLATES).await[0]["viewed_indices"], json!([0, 1]));
    let outcome = |id| json!({"event": "suggestion_outcome", "suggestion_id": id, "actual_input": "b"});
    service.accept(&ids.map(outcome)).await;
    assert_eq!(service.get(&address).await.expect(200)["viewed_indices"], json!([0, 1]));
}

#[tokio::test]
async fn a_record_has_at_most_ten_thousand_partial_inputs_besides_its_views() {
    let service = Service::open().await;
    let address = posted(&service, &["a", "b"], json!({})).await;
    let inputs = format!("{address}/partial-inputs");
    let typed = |count: usize| json!({"inputs": vec![json!({"text": "a"}); count]});
    service.post(&inputs, &typed(10_001)).await.refused(422, &["/inputs"]);
    service.post(&inputs, &typed(9_999)).await.expect(201);
    let detail = service.post(&inputs, &typed(2)).await.refused(409, &[])["detail"].clone();
    assert!(detail.as_str().expect("a text").ends_with("would have more than 10000 inputs"), "{detail}");
    service.post(&inputs, &typed(1)).await.expect(201);
    service.post(&inputs, &typed(1)).await.refused(409, &[]);
    service.post(&format!("{address}/views"), &json!({"direction": "next"})).await.expect(201);
    finalized(&service, &address, ":q").await;
}
