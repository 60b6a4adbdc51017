//! What becomes known of a log later: where its program was persisted, what it is about, and the client's own data.

use serde_json::{Value, json};
use uuid::Uuid;

use super::{finalize, intent, solved, start};
use crate::support::{Service, column, passed, with};

#[tokio::test]
async fn what_is_given_replaces_the_logs_own_and_the_rest_stays() {
    let service = Service::open().await;
    let begun = json!({"session_id": "s", "cbu_id": "before", "metadata": {"a": 1, "b": 2}});
    let log = start(&service, with(intent("Create a fund"), &begun)).await;
    let mut expected = service.get(&log).await.expect(200);
    for amendment in [
        json!({"instance_id": "i"}),
        json!({"cbu_id": "c", "metadata": null}),
        json!({"cbu_id": "e", "instance_id": ""}),
        json!({"metadata": {"b": 3}}),
        json!({"instance_id": "j", "cbu_id": "d", "metadata": {}}),
    ] {
        for (name, value) in
            amendment.as_object().expect("an object").iter().filter(|(_, it)| !it.is_null() && *it != "")
        {
            expected[name] = value.clone();
        }
        assert_eq!(service.patch(&log, &amendment).await.expect(200), expected, "{amendment}");
        assert_eq!(service.patch(&log, &amendment).await.expect(200), expected, "{amendment} again");
    }
    assert_eq!(service.get(&log).await.expect(200), expected);
    let minimal = [("prefer", "return=minimal")];
    let body = json!({"instance_id": "k"});
    let answer = service.call(axum::http::Method::PATCH, &log, &minimal, Some(&body)).await;
    assert_eq!((answer.status.as_u16(), answer.text().as_str()), (200, ""));
    assert_eq!(service.get(&log).await.expect(200)["instance_id"], "k");
}

#[tokio::test]
async fn a_finalized_log_is_amended_and_requests_from_before_are_still_replays() {
    let service = Service::open().await;
    let id = Uuid::from_u128(1);
    let begun = with(intent("Create a fund"), &json!({"id": id, "instance_id": "at the start"}));
    let log = start(&service, begun.clone()).await;
    service.post(&format!("{log}/attempts"), &passed(1, "(a)")).await.expect(201);
    let outcome = json!({"success": true, "instance_id": "at the end"});
    finalize(&service, &log, &outcome).await.expect(200);
    let amended = service.patch(&log, &json!({"instance_id": "later", "cbu_id": "c"})).await.expect(200);
    assert_eq!(
        (&amended["instance_id"], &amended["cbu_id"], &amended["success"]),
        (&json!("later"), &json!("c"), &json!(true))
    );
    assert_eq!(finalize(&service, &log, &outcome).await.expect(200), amended);
    assert_eq!(service.post("/v1/generations", &begun).await.expect(200), amended);
    let exported = service.get("/v1/exports/training-pairs?include=metadata").await.rows();
    assert_eq!(exported[0]["metadata"]["instance_id"], "later");
}

#[tokio::test]
async fn an_amendment_that_cannot_be_is_refused_by_its_fields() {
    let service = Service::open().await;
    let log = start(&service, intent("Create a fund")).await;
    for (body, pointers) in [
        (json!({}), vec!["/instance_id"]),
        (json!({"instance_id": null, "cbu_id": null, "metadata": null}), vec!["/instance_id"]),
        (json!({"instance_id": "", "cbu_id": ""}), vec!["/instance_id"]),
        (json!({"instance_id": "x".repeat(201)}), vec!["/instance_id"]),
        (json!({"cbu_id": "x".repeat(201)}), vec!["/cbu_id"]),
        (json!({"metadata": []}), vec!["/metadata"]),
        (json!({"cbu_id": 5}), vec!["/cbu_id"]),
        (json!({"instance_id": "i", "success": true}), vec!["/success"]),
        (json!({"session_id": "s"}), vec!["/session_id"]),
    ] {
        service.patch(&log, &body).await.refused(422, &pointers);
    }
    let unknown = format!("/v1/generations/{}", Uuid::from_u128(9));
    service.patch(&unknown, &json!({"cbu_id": "c"})).await.refused(404, &[]);
    service.patch("/v1/generations/x", &json!({"cbu_id": "c"})).await.refused(422, &["/id"]);
}

#[tokio::test]
async fn amendments_in_a_batch_take_effect_in_the_order_of_their_lines() {
    let service = Service::open().await;
    let (one, other) = (Uuid::from_u128(1), Uuid::from_u128(2));
    let begin = |id: Uuid| with(solved("Create a fund", "(a)"), &json!({"event": "generation", "id": id}));
    let amend =
        |id: Uuid, more: Value| with(json!({"event": "generation_amendment", "generation_id": id}), &more);
    let summary = service
        .events(&[
            amend(other, json!({"instance_id": "too early"})),
            begin(one),
            amend(one, json!({"instance_id": "first", "cbu_id": "c"})),
            begin(other),
            amend(other, json!({"metadata": {"k": 1}})),
            amend(one, json!({"instance_id": "second"})),
            amend(one, json!({})),
        ])
        .await
        .expect(200);
    assert_eq!((&summary["accepted"], &summary["duplicates"]), (&json!(5), &json!(0)));
    let rejected = summary["rejected"].as_array().expect("lines");
    assert_eq!(
        (column(rejected, "line"), column(rejected, "status")),
        (vec![json!(1), json!(7)], vec![json!(404), json!(422)])
    );
    let log = service.get(&format!("/v1/generations/{one}")).await.expect(200);
    assert_eq!((&log["instance_id"], &log["cbu_id"]), (&json!("second"), &json!("c")));
    let log = service.get(&format!("/v1/generations/{other}")).await.expect(200);
    assert_eq!((&log["instance_id"], &log["metadata"]), (&Value::Null, &json!({"k": 1})));
}
