//! How many rows data sets are said to have: counted one by one up to a number of records, and estimated beyond.

use axum::http::Method;
use serde_json::{Value, json};
use sqlx::{Connection as _, Executor as _};

use crate::support::program::Settings;
use crate::support::{Service, settings};

/// Inserts finalized slates of a project as the writer would, every fifth without its text.
async fn insert_slates(service: &Service, project: &str, count: i32) {
    let sql = "
        insert into suggestions (project, id, state, suggestion_count, created_at, completed_at, viewed_indices,
            request_hash, slate_hash)
        select $1, gen_random_uuid(), 'finalized', 1, now(), clock_timestamp(), '{0}', '', case when n % 5 > 0 then
            gen_random_uuid() end
        from generate_series(1, $2) n";
    sqlx::query(sql).bind(project).bind(count).execute(service.pool()).await.expect("slates");
}

/// The entry of the suggestion history in the list of data sets, without its formats.
async fn history(service: &Service, project: &str) -> Value {
    let headers = [("gleaner-project", project)];
    let listed = service.call(Method::GET, "/v1/exports", &headers, None).await.expect(200);
    let mut sets = listed["data"].as_array().expect("data").iter();
    let mut set = sets.find(|set| set["dataset"] == "suggestion-history").expect("the set").clone();
    set.as_object_mut().expect("an object").remove("formats");
    set
}

#[tokio::test]
async fn data_sets_are_counted_exactly_up_to_5_000_records_and_estimated_beyond() {
    let service = Service::open().await;
    insert_slates(&service, "default", 5_000).await;
    let exact = |rows: i32, skipped: i32| {
        json!({"dataset": "suggestion-history", "rows": rows, "rows_estimated": false, "skipped": skipped,
            "skipped_estimated": false})
    };
    assert_eq!(history(&service, "default").await, exact(4_000, 1_000));
    insert_slates(&service, "default", 20_000).await;
    service.project("small").await;
    insert_slates(&service, "small", 100).await;
    assert_eq!(history(&service, "small").await, exact(80, 20));
    // Whether or not the database has looked at the table yet.
    for statement in ["", "analyze suggestions"] {
        sqlx::query(statement).execute(service.pool()).await.expect("statistics");
        let large = history(&service, "default").await;
        assert_eq!([&large["rows_estimated"], &large["skipped_estimated"]], [true, true], "{large}");
        for (field, truth) in [("rows", 20_000), ("skipped", 5_000)] {
            let estimate = large[field].as_i64().expect("a number");
            assert!((estimate - truth).abs() < truth / 4, "{field}: {estimate}");
        }
    }
}

#[tokio::test]
async fn the_data_sets_of_a_project_are_counted_by_one_connection_and_leave_the_others_to_other_projects() {
    let service = Service::with(Settings { connections: 2, ..settings() }).await;
    service.project("other").await;
    let mut holder = service.connection().await;
    let mut held = holder.begin().await.expect("a transaction");
    held.execute("lock table suggestions in access exclusive mode").await.expect("locked");
    let counted = service.get("/v1/exports");
    let others = async {
        service.blocked(1).await;
        let headers = [("gleaner-project", "other")];
        service.call(Method::GET, "/v1/generations", &headers, None).await.expect(200);
        held.rollback().await.expect("released");
    };
    tokio::join!(async { counted.await.expect(200) }, others);
}

#[tokio::test]
async fn whether_a_long_text_is_blank_is_known_from_its_beginning() {
    let service = Service::open().await;
    let mut random = fastrand::Rng::with_seed(1);
    let program: String = std::iter::repeat_with(|| random.alphanumeric()).take(1_000_000).collect();
    let log = json!({"user_intent": "a", "domain_name": "d", "success": true, "final_valid_dsl": program});
    service.create("/v1/generations", log).await;
    let sql =
        "explain (analyze, buffers, format json) select from generations where has_text(final_valid_dsl)";
    let plan: Value = sqlx::query_scalar(sql).fetch_one(service.pool()).await.expect("a plan");
    let plan = &plan[0]["Plan"];
    let read = ["Shared Hit Blocks", "Shared Read Blocks"].map(|name| plan[name].as_u64().expect("a number"));
    // The whole text has more than a hundred pages.
    assert!(plan["Actual Rows"].as_f64() == Some(1.0) && read.iter().sum::<u64>() < 40, "{plan}");
}
