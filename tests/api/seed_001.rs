//! Every SELECT printed in seed 001, on the view of the same name: only the schema's name is dropped.

use serde_json::{Value, json};
use sqlx::{PgConnection, Row as _};
use uuid::Uuid;

use crate::support::{Service, passed, with};

/// Two logs solved, the first after a failure, one given up and one still open; created in this order.
async fn logs() -> (Service, PgConnection) {
    let service = Service::open().await;
    let call = json!({"prompt_template": "cbu_create_v2", "latency_ms": 100, "input_tokens": 10, "output_tokens": 1});
    let bad = with(
        call.clone(),
        &json!({"attempt": 1, "extracted_dsl": "(cbu.créate)", "parse_result": {"success": true},
            "lint_result": {"valid": false, "errors": ["Unknown verb: cbu.créate", "No name"]}}),
    );
    let good = with(call.clone(), &passed(2, "(cbu.create)"));
    let first_try =
        with(with(call.clone(), &passed(1, "(cbu.list)")), &json!({"prompt_template": "cbu_list"}));
    let given_up = with(call, &json!({"attempt": 1, "extracted_dsl": null, "latency_ms": 300}));
    let log = |number: u128, intent: &str, domain: &str, more: Value| {
        let at = format!("2025-01-15T10:30:0{number}Z");
        let log = json!({"event": "generation", "id": Uuid::from_u128(number), "user_intent": intent,
            "domain_name": domain, "created_at": at});
        with(log, &more)
    };
    service
        .accept(&[
            log(1, "Create hedge fund with John", "cbu", json!({"success": true, "iterations": [bad, good]})),
            log(2, "List the hedge funds", "cbu", json!({"success": true, "iterations": [first_try]})),
            log(3, "Delete everything", "entity", json!({"success": false, "iterations": [given_up]})),
            log(4, "Create hedge fund", "cbu", json!({})),
        ])
        .await;
    let connection = service.connection().await;
    (service, connection)
}

#[tokio::test]
async fn the_verification_query_counts_the_attempts() {
    let (_service, mut connection) = logs().await;
    let rows: Vec<(Uuid, String, bool, i64, i32)> = sqlx::query_as(
        "SELECT log_id, user_intent, success, total_attempts,
                jsonb_array_length(iterations) as logged_attempts
         FROM dsl_generation_log
         ORDER BY created_at DESC LIMIT 10",
    )
    .fetch_all(&mut connection)
    .await
    .expect("runs");
    let row = |number: u128, intent: &str, success: bool, attempts: i32| {
        (Uuid::from_u128(number), intent.to_owned(), success, i64::from(attempts), attempts)
    };
    assert_eq!(
        rows,
        [
            row(4, "Create hedge fund", false, 0),
            row(3, "Delete everything", false, 1),
            row(2, "List the hedge funds", true, 1),
            row(1, "Create hedge fund with John", true, 2),
        ]
    );
}

#[tokio::test]
async fn the_export_scripts_queries_find_training_and_correction_pairs() {
    let (_service, mut connection) = logs().await;
    let mut rows: Vec<(String, String)> = sqlx::query_as(
        "SELECT user_intent, final_valid_dsl
         FROM dsl_generation_log
         WHERE success = true AND final_valid_dsl IS NOT NULL",
    )
    .fetch_all(&mut connection)
    .await
    .expect("runs");
    rows.sort();
    let pair = |intent: &str, program: &str| (intent.to_owned(), program.to_owned());
    assert_eq!(
        rows,
        [pair("Create hedge fund with John", "(cbu.create)"), pair("List the hedge funds", "(cbu.list)")]
    );

    let rows: Vec<(String, String, Value, String)> = sqlx::query_as(
        "SELECT
             user_intent,
             iterations->0->>'extracted_dsl' as bad_dsl,
             iterations->0->'lint_result'->'errors'->0 as error,
             final_valid_dsl
         FROM dsl_generation_log
         WHERE success = true AND total_attempts > 1",
    )
    .fetch_all(&mut connection)
    .await
    .expect("runs");
    assert_eq!(
        rows,
        [(
            "Create hedge fund with John".to_owned(),
            "(cbu.créate)".to_owned(),
            json!("Unknown verb: cbu.créate"),
            "(cbu.create)".to_owned()
        )]
    );
}

#[tokio::test]
async fn the_repositorys_training_pairs_are_the_newest_of_a_domain_or_of_all() {
    let (_service, mut connection) = logs().await;
    for (domain, limit, expected) in [
        (None, 1000, vec!["List the hedge funds", "Create hedge fund with John"]),
        (None, 1, vec!["List the hedge funds"]),
        (Some("cbu"), 1000, vec!["List the hedge funds", "Create hedge fund with John"]),
        (Some("entity"), 1000, vec![]),
    ] {
        let rows = sqlx::query(
            "SELECT user_intent, final_valid_dsl as valid_dsl
             FROM dsl_generation_log
             WHERE success = true
               AND final_valid_dsl IS NOT NULL
               AND ($1::text IS NULL OR domain_name = $1)
             ORDER BY created_at DESC
             LIMIT $2",
        )
        .bind(domain)
        .bind(limit)
        .fetch_all(&mut connection)
        .await
        .expect("runs");
        let intents: Vec<String> = rows.iter().map(|row| row.get("user_intent")).collect();
        assert_eq!(intents, expected, "{domain:?} {limit}");
        assert!(rows.iter().all(|row| row.get::<&str, _>("valid_dsl").starts_with("(cbu.")));
    }
}

#[tokio::test]
async fn the_repositorys_correction_pairs_are_the_first_two_attempts() {
    let (_service, mut connection) = logs().await;
    let rows: Vec<(String, String, String, String)> = sqlx::query_as(
        "WITH corrections AS (
             SELECT
                 log_id,
                 user_intent,
                 iterations,
                 total_attempts
             FROM dsl_generation_log
             WHERE success = true AND total_attempts > 1
         )
         SELECT
             user_intent,
             iterations->0->>'extracted_dsl' as bad_dsl,
             iterations->0->'lint_result'->>'errors' as error_message,
             iterations->1->>'extracted_dsl' as fixed_dsl
         FROM corrections
         WHERE iterations->1->>'extracted_dsl' IS NOT NULL
         LIMIT $1",
    )
    .bind(500)
    .fetch_all(&mut connection)
    .await
    .expect("runs");
    let expected = [
        "Create hedge fund with John",
        "(cbu.créate)",
        r#"["Unknown verb: cbu.créate", "No name"]"#,
        "(cbu.create)",
    ]
    .map(str::to_owned);
    assert_eq!(rows, [expected.into()]);
}

#[tokio::test]
async fn the_repositorys_similar_examples_are_solved_and_of_the_domain() {
    let (_service, mut connection) = logs().await;
    for (domain, limit, expected) in [
        ("cbu", 5, vec!["Create hedge fund with John", "List the hedge funds"]),
        ("cbu", 1, vec!["Create hedge fund with John"]),
        ("entity", 5, vec![]),
    ] {
        let rows = sqlx::query(
            "SELECT user_intent, final_valid_dsl as valid_dsl
             FROM dsl_generation_log
             WHERE success = true
               AND domain_name = $2
               AND user_intent % $1
             ORDER BY similarity(user_intent, $1) DESC
             LIMIT $3",
        )
        .bind("Create the hedge fund")
        .bind(domain)
        .bind(limit)
        .fetch_all(&mut connection)
        .await
        .expect("runs");
        let intents: Vec<String> = rows.iter().map(|row| row.get("user_intent")).collect();
        assert_eq!(intents, expected, "{domain} {limit}");
    }
}

#[tokio::test]
async fn the_repositorys_template_figures_are_those_of_the_first_attempts() {
    let (_service, mut connection) = logs().await;
    let rows: Vec<(String, i64, i64, f64, f64)> = sqlx::query_as(
        "SELECT
             iterations->0->>'prompt_template' as template_name,
             COUNT(*) as total_uses,
             SUM(CASE WHEN total_attempts = 1 AND success THEN 1 ELSE 0 END) as first_try_success,
             AVG(total_attempts)::float as avg_attempts,
             AVG(total_latency_ms)::float as avg_latency_ms
         FROM dsl_generation_log
         WHERE iterations->0->>'prompt_template' IS NOT NULL
         GROUP BY iterations->0->>'prompt_template'
         ORDER BY total_uses DESC",
    )
    .fetch_all(&mut connection)
    .await
    .expect("runs");
    let row = |name: &str, uses: i64, first: i64, attempts: f64, latency: f64| {
        (name.to_owned(), uses, first, attempts, latency)
    };
    assert_eq!(rows, [row("cbu_create_v2", 2, 0, 1.5, 250.0), row("cbu_list", 1, 1, 1.0, 100.0)]);
}

#[tokio::test]
async fn the_view_has_the_columns_of_the_seeds_table_and_the_project() {
    let (_service, mut connection) = logs().await;
    let columns: Vec<String> = sqlx::query_scalar(
        "select column_name::text from information_schema.columns
         where table_name = 'dsl_generation_log' order by ordinal_position",
    )
    .fetch_all(&mut connection)
    .await
    .expect("columns");
    let expected = "project log_id instance_id user_intent final_valid_dsl iterations domain_name session_id cbu_id \
                    model_used total_attempts success total_latency_ms total_input_tokens total_output_tokens created_at \
                    completed_at";
    assert_eq!(columns.join(" "), expected);
}
