//! Lists of logs: filters, times, pages, and a log that was deleted.

use serde_json::{Value, json};
use uuid::Uuid;

use super::{append, intent, solved, start};
use crate::support::{Service, column, failed, passed, with};

#[tokio::test]
async fn a_list_holds_what_each_filter_asks_for() {
    let service = Service::open().await;
    let template = |name: &str| json!({"iterations": [{"prompt_template": "x"}, {"prompt_template": name}]});
    for (text, more) in [
        ("Open Fund", json!({"session_id": "s 1", "model_used": "m", "cbu_id": "c 1", "instance_id": "i/1"})),
        ("50% of a_b", template("t/1")),
        ("50 of axb", with(template("u"), &json!({"success": false}))),
        ("GRÜNE Anleihe", json!({"success": true, "final_valid_dsl": "(a)", "domain_name": "bond"})),
    ] {
        start(&service, with(intent(text), &more)).await;
    }
    let poor = start(&service, with(intent("poor"), &json!({"success": false}))).await;
    service.put(&format!("{poor}/review"), &json!({"rating": "poor"})).await.expect(200);
    for (query, expected) in [
        ("", vec!["poor", "GRÜNE Anleihe", "50 of axb", "50% of a_b", "Open Fund"]),
        ("domain_name=bond", vec!["GRÜNE Anleihe"]),
        ("success=true", vec!["GRÜNE Anleihe"]),
        ("success=false", vec!["poor", "50 of axb"]),
        ("open=true", vec!["50% of a_b", "Open Fund"]),
        ("open=false", vec!["poor", "GRÜNE Anleihe", "50 of axb"]),
        ("model_used=m", vec!["Open Fund"]),
        ("session_id=s%201", vec!["Open Fund"]),
        ("session_id=s+1", vec!["Open Fund"]),
        ("cbu_id=c+1", vec!["Open Fund"]),
        ("cbu_id=c", vec![]),
        ("instance_id=i%2F1", vec!["Open Fund"]),
        ("instance_id=i%2F1&cbu_id=c+2", vec![]),
        ("prompt_template=t%2F1", vec!["50% of a_b"]),
        ("prompt_template=x", vec!["50 of axb", "50% of a_b"]),
        ("prompt_template=x&success=false", vec!["50 of axb"]),
        ("rating=poor", vec!["poor"]),
        ("rating=good", vec![]),
        ("q=fund", vec!["Open Fund"]),
        ("q=gr%C3%BCne", vec!["GRÜNE Anleihe"]),
        ("q=50%25", vec!["50% of a_b"]),
        ("q=a_b", vec!["50% of a_b"]),
        ("q=%5C", vec![]),
        ("q=", vec!["poor", "GRÜNE Anleihe", "50 of axb", "50% of a_b", "Open Fund"]),
    ] {
        let page = service.get(&format!("/v1/generations?{query}")).await.expect(200);
        let data = page["data"].as_array().expect("data");
        assert_eq!(column(data, "user_intent"), expected, "{query}");
        assert_eq!(page["next_cursor"], Value::Null);
        assert!(data.iter().all(|log| log.get("iterations").is_none()));
    }
}

#[tokio::test]
async fn a_filter_that_makes_no_sense_is_refused() {
    let service = Service::open().await;
    for (query, pointer) in [
        ("colour=red", "/colour"),
        ("success=maybe", "/success"),
        ("rating=great", "/rating"),
        ("limit=0", "/limit"),
        ("limit=501", "/limit"),
        ("since=yesterday", "/since"),
    ] {
        let refused = service.get(&format!("/v1/generations?{query}")).await;
        refused.refused(422, &[pointer]);
    }
}

#[tokio::test]
async fn since_is_inclusive_and_until_is_not() {
    let service = Service::open().await;
    for second in 0..4 {
        let at = format!("2025-01-15T10:30:0{second}Z");
        start(&service, with(intent(&second.to_string()), &json!({"created_at": at}))).await;
    }
    for (query, expected) in [
        ("since=2025-01-15T10:30:01Z&until=2025-01-15T10:30:03Z", vec!["2", "1"]),
        ("since=1736937001&until=1736937003.0", vec!["2", "1"]),
        ("until=2025-01-15T12:30:01%2B02:00", vec!["0"]),
        ("since=2025-01-15T10:30:03.000001Z", vec![]),
        ("since=2025-01-15T10:30:01Z&until=2025-01-15T10:30:01Z", vec![]),
    ] {
        let logs = service.all(&format!("/v1/generations?{query}&limit=1")).await;
        assert_eq!(column(&logs, "user_intent"), expected, "{query}");
    }
}

#[tokio::test]
async fn paging_shows_every_log_once_though_times_are_equal_and_others_are_added_meanwhile() {
    let service = Service::open().await;
    let at = |time: &str| with(intent("old & new"), &json!({"created_at": time}));
    for time in
        ["2020-01-01T00:00:00Z"; 7].into_iter().chain(["0001-01-01T00:00:00Z", "1969-12-31T23:59:59.999999Z"])
    {
        start(&service, at(time)).await;
    }
    for _ in 0..3 {
        start(&service, intent("old & new")).await;
    }
    let whole = service.get("/v1/generations?limit=500&q=old+%26+new").await.expect(200);
    let expected = whole["data"].as_array().expect("data").clone();
    let places = expected.iter().map(|log| {
        let part = |name: &str| log[name].as_str().expect("a text").to_owned();
        (part("created_at"), part("id"))
    });
    assert!(places.rev().is_sorted(), "{expected:?}");
    assert_eq!(expected.len(), 12);
    for limit in [1, 3, 11, 12] {
        let paged = service.all(&format!("/v1/generations?limit={limit}&q=old+%26+new")).await;
        assert_eq!(paged, expected, "{limit}");
    }

    let first = service.get("/v1/generations?limit=5").await;
    let next = first.next().expect("more");
    let mut seen = first.expect(200)["data"].as_array().expect("data").clone();
    start(&service, intent("new")).await;
    let older = start(&service, at("0001-01-01T00:00:00Z")).await;
    seen.extend(service.all(&next).await);
    let added = service.get(&older).await.expect(200)["id"].clone();
    seen.retain(|log| log["id"] != added);
    assert_eq!(column(&seen, "id"), column(&expected, "id"));
}

#[tokio::test]
async fn where_few_logs_have_nearly_all_attempts_those_of_one_are_still_found_by_its_id() {
    let service = Service::open().await;
    let attempts: Vec<_> = (1..=2_500).map(|number| failed(number, "(a)", &"e".repeat(300))).collect();
    for number in 1..5_u128 {
        let log = json!({"event": "generation", "id": Uuid::from_u128(number), "user_intent": "i", "domain_name": "d", "iterations": attempts});
        service.accept(&[log]).await;
    }
    sqlx::query("analyze attempts").execute(service.pool()).await.expect("statistics");
    // Which log it is, is not known when the statement is planned.
    let plan = "explain (format json) select from attempts
        where project = 'default' and generation_id = (select id from generations limit 1)";
    let plan: Value = sqlx::query_scalar(plan).fetch_one(service.pool()).await.expect("a plan");
    let expected = &plan[0]["Plan"]["Plan Rows"];
    assert!(expected.as_u64().is_some_and(|rows| rows < 100), "{plan:#}");
}

#[tokio::test]
async fn a_deleted_log_is_gone_from_everywhere() {
    let service = Service::open().await;
    let id = Uuid::new_v4();
    let body = with(
        intent("Create a fund"),
        &json!({"id": id, "session_id": "s", "success": true, "metadata": {"k": "needle-metadata"},
            "iterations": [failed(1, "(needle-bad)", "e"), passed(2, "(needle-good)")]}),
    );
    let log = start(&service, body.clone()).await;
    let kept = start(&service, solved("Keep this", "(kept)")).await;
    assert!(service.dump().await.contains("needle"));
    let deleted = service.delete(&log).await;
    assert_eq!((deleted.status.as_u16(), deleted.text()), (204, String::new()));
    service.get(&log).await.refused(404, &[]);
    service.delete(&log).await.refused(404, &[]);
    append(&service, &log, &passed(3, "(c)")).await.refused(404, &[]);
    let dump = service.dump().await;
    assert!(!dump.contains("needle") && dump.contains("(kept)"));
    // The audit says that a record was erased, and which.
    assert!(!service.dump_without_audit().await.contains(&id.to_string()));
    assert!(service.get("/v1/exports/correction-pairs").await.rows().is_empty());
    service.get(&kept).await.expect(200);
    start(&service, body).await;
}
