//! The pages by which records are put into groups: they are short, because reviews wait for them.

use serde_json::json;
use uuid::Uuid;

use super::splits::{log, path};
use crate::support::Service;

/// How many records each page of groups has.
async fn pages(service: &Service) -> Vec<i64> {
    let sql = "select count(distinct record) from split_texts group by xmin::text order by min(completed_at)";
    sqlx::query_scalar(sql).fetch_all(service.pool()).await.expect("counts")
}

#[tokio::test]
async fn the_first_page_of_groups_has_few_records_because_nobody_knows_how_long_their_texts_are() {
    let service = Service::open().await;
    service.accept(&(0..400).map(log).collect::<Vec<_>>()).await;
    service.get(&path("train")).await.rows();
    let pages = pages(&service).await;
    assert!(pages.len() > 1 && pages[0] == 50 && pages.iter().sum::<i64>() == 400, "{pages:?}");
}

#[tokio::test]
async fn a_page_of_groups_has_few_logs_if_their_programs_are_long() {
    let service = Service::open().await;
    for number in 0..3 {
        service.accept(&[log(number)]).await;
    }
    let long = "update attempts set extracted_dsl = repeat('x', 11 << 20)";
    sqlx::query(long).execute(service.pool()).await.expect("long programs");
    service.get(&path("train")).await.rows();
    assert_eq!(pages(&service).await, [2, 1]);
}

#[tokio::test]
async fn a_page_of_groups_has_few_suggestions_if_their_prompts_are_long() {
    let service = Service::open().await;
    for number in 0..3 {
        let slate = json!({"event": "suggestion", "id": Uuid::from_u128(number), "context": {"n": number},
            "suggestions": ["a", "b"], "actual_input": "b"});
        service.accept(&[slate]).await;
    }
    let long = "update suggestions set context = json_build_object('n', repeat('x', 11 << 20))";
    sqlx::query(long).execute(service.pool()).await.expect("long prompts");
    service.get("/v1/exports/accepted-suggestions?split=train").await.rows();
    assert_eq!(pages(&service).await, [2, 1]);
}
