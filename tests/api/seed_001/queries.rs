//! Parts 2.2, 4 and 5: the SELECTs as printed, and what the service gives for each of them.

use serde_json::{Value, json};

use super::{id, lines, log, logs};
use crate::support::{Service, column, encoded, failed, passed};

#[tokio::test]
async fn training_pairs_are_the_newest_of_a_domain_or_of_all() {
    let service = logs().await;
    for (domain, limit, expected) in [
        ("NULL", 1000, vec!["List the hedge funds|(cbu.list)", "Create hedge fund with John|(cbu.create)"]),
        ("NULL", 1, vec!["List the hedge funds|(cbu.list)"]),
        ("'cbu'", 1000, vec!["List the hedge funds|(cbu.list)", "Create hedge fund with John|(cbu.create)"]),
        ("'entity'", 1000, vec![]),
    ] {
        let sql = format!(
            r#"PREPARE export_training_pairs AS
            SELECT user_intent, final_valid_dsl as valid_dsl
            FROM "ob-poc".dsl_generation_log
            WHERE success = true
              AND final_valid_dsl IS NOT NULL
              AND ($1::text IS NULL OR domain_name = $1)
            ORDER BY created_at DESC
            LIMIT $2;
            EXECUTE export_training_pairs({domain}, {limit});"#
        );
        assert_eq!(lines(&service, &sql).await, expected, "{domain} {limit}");
    }
    let rows = service.get("/v1/exports/training-pairs?format=raw&order=newest&limit=1000").await.rows();
    assert_eq!(column(&rows, "user_intent"), ["List the hedge funds", "Create hedge fund with John"]);
}

#[tokio::test]
async fn correction_pairs_are_the_first_two_attempts() {
    let service = logs().await;
    let sql = r#"PREPARE export_correction_pairs AS
            WITH corrections AS (
                SELECT
                    log_id,
                    user_intent,
                    iterations,
                    total_attempts
                FROM "ob-poc".dsl_generation_log
                WHERE success = true AND total_attempts > 1
            )
            SELECT
                user_intent,
                iterations->0->>'extracted_dsl' as bad_dsl,
                iterations->0->'lint_result'->>'errors' as error_message,
                iterations->1->>'extracted_dsl' as fixed_dsl
            FROM corrections
            WHERE iterations->1->>'extracted_dsl' IS NOT NULL
            LIMIT $1;
            EXECUTE export_correction_pairs(500);"#;
    let expected =
        r#"Create hedge fund with John|(cbu.créate)|["Unknown verb: cbu.créate", "No name"]|(cbu.create)"#;
    assert_eq!(lines(&service, sql).await, [expected]);
    let rows = service.get("/v1/exports/correction-pairs?format=raw").await.rows();
    let told =
        json!([rows[0]["user_intent"], rows[0]["bad_dsl"], rows[0]["error_message"], rows[0]["fixed_dsl"]]);
    let pair = json!([
        "Create hedge fund with John",
        "(cbu.créate)",
        "Unknown verb: cbu.créate\nNo name",
        "(cbu.create)"
    ]);
    assert_eq!((rows.len(), told), (1, pair));
}

#[tokio::test]
async fn similar_examples_are_solved_and_of_the_domain() {
    let service = logs().await;
    let intent = "Create the hedge fund";
    for (domain, limit, expected) in [
        ("cbu", 5, vec!["Create hedge fund with John", "List the hedge funds"]),
        ("cbu", 1, vec!["Create hedge fund with John"]),
        ("entity", 5, vec![]),
    ] {
        let sql = format!(
            r#"PREPARE find_similar_examples AS
            SELECT user_intent, final_valid_dsl as valid_dsl
            FROM "ob-poc".dsl_generation_log
            WHERE success = true
              AND domain_name = $2
              AND user_intent % $1
            ORDER BY similarity(user_intent, $1) DESC
            LIMIT $3;
            EXECUTE find_similar_examples('{intent}', '{domain}', {limit});"#
        );
        let found: Vec<_> = lines(&service, &sql).await;
        let intents: Vec<_> = found.iter().filter_map(|line| line.split('|').next()).collect();
        assert_eq!(intents, expected, "{domain} {limit}");
        let path = "/v1/generations/similar?min_similarity=0";
        let path = format!("{path}&intent={}&domain_name={domain}&limit={limit}", encoded(intent));
        let served = service.get(&path).await.expect(200);
        assert_eq!(column(served["data"].as_array().expect("data"), "user_intent"), expected);
    }
}

#[tokio::test]
async fn a_long_intent_is_similar_too_though_it_does_not_fit_the_index_over_the_short_ones() {
    let service = logs().await;
    let long: Vec<_> =
        (0..20_000_u32).map(|number| format!("{:x}", number.wrapping_mul(2_654_435_761))).collect();
    let long = long.join(" ");
    service
        .accept(&[log(9, &long, &json!({"success": true, "iterations": [passed(1, "(cbu.import)")]}))])
        .await;
    let statement = |intent: &str| {
        format!(
            r#"SELECT final_valid_dsl FROM "ob-poc".dsl_generation_log
            WHERE success = true AND domain_name = 'cbu' AND user_intent % '{intent}'
            ORDER BY similarity(user_intent, '{intent}') DESC LIMIT 5"#
        )
    };
    assert_eq!(lines(&service, &statement(&long)).await, ["(cbu.import)"]);
    let listed = service.get("/v1/generations?q=0%209e3779b1%203c6ef362").await.expect(200);
    assert_eq!(column(listed["data"].as_array().expect("data"), "user_intent"), [long]);

    // So few logs would be read without that index.
    let alone = "begin; drop index generations_domain; set enable_seqscan = off; set enable_indexscan = off";
    let plan = format!("{alone}; explain {}; rollback", statement("Create hedge fund"));
    let plan = lines(&service, &plan).await.join("\n");
    for index in ["generations_intent", "generations_long"] {
        assert!(plan.contains(&format!("Bitmap Index Scan on {index}")), "{plan}");
    }
}

#[tokio::test]
async fn among_many_logs_of_a_domain_the_similar_ones_are_found_by_their_intents() {
    let service = Service::open().await;
    let many: Vec<_> = (0..3_000_u32)
        .map(|number| {
            let intent =
                format!("{:x} {:x}", number.wrapping_mul(2_654_435_761), number.wrapping_mul(40_503));
            json!({"event": "generation", "domain_name": "cbu", "user_intent": intent})
        })
        .collect();
    service.accept(&many).await;
    let statement = r#"analyze generations; explain SELECT user_intent, final_valid_dsl as valid_dsl
        FROM "ob-poc".dsl_generation_log
        WHERE success = true AND domain_name = 'cbu' AND user_intent % '9e3779b1 9e37'
        ORDER BY similarity(user_intent, '9e3779b1 9e37') DESC LIMIT 5"#;
    let plan = lines(&service, statement).await.join("\n");
    assert!(plan.contains("Bitmap Index Scan on generations_intent"), "{plan}");
}

#[tokio::test]
async fn templates_have_figures_of_the_logs_whose_first_attempt_used_them() {
    let service = logs().await;
    let sql = r#"SELECT
                iterations->0->>'prompt_template' as template_name,
                COUNT(*) as total_uses,
                SUM(CASE WHEN total_attempts = 1 AND success THEN 1 ELSE 0 END) as first_try_success,
                AVG(total_attempts)::float as avg_attempts,
                AVG(total_latency_ms)::float as avg_latency_ms
            FROM "ob-poc".dsl_generation_log
            WHERE iterations->0->>'prompt_template' IS NOT NULL
            GROUP BY iterations->0->>'prompt_template'
            ORDER BY total_uses DESC"#;
    assert_eq!(lines(&service, sql).await, ["cbu_create_v2|2|0|1.5|250", "cbu_list|1|1|1|100"]);
    let figures = service.get("/v1/analytics/prompts").await.expect(200);
    let told = figures["data"].as_array().expect("data").iter().map(|of| {
        json!([
            of["prompt_template"],
            of["total_uses"],
            of["first_try_success"],
            of["avg_attempts"],
            of["avg_latency_ms"]
        ])
    });
    assert_eq!(
        told.collect::<Value>(),
        json!([["cbu_create_v2", 2, 0, 1.5, 250.0], ["cbu_list", 1, 1, 1.0, 100.0]])
    );
}

#[tokio::test]
async fn the_script_for_training_pairs_writes_what_the_export_has() {
    let service = logs().await;
    let sql = r#"SELECT user_intent, final_valid_dsl
    FROM "ob-poc".dsl_generation_log
    WHERE success = true AND final_valid_dsl IS NOT NULL"#;
    let mut records: Vec<_> = lines(&service, sql)
        .await
        .iter()
        .map(|line| {
            let (intent, dsl) = line.split_once('|').expect("two columns");
            json!({"messages": [{"role": "user", "content": intent}, {"role": "assistant", "content": dsl}]})
        })
        .collect();
    let mut exported = service.get("/v1/exports/training-pairs.jsonl").await.rows();
    records.sort_by_key(Value::to_string);
    exported.sort_by_key(Value::to_string);
    assert_eq!(records, exported);
    assert_eq!(records.len(), 2);
}

#[tokio::test]
async fn the_script_for_correction_pairs_writes_what_the_export_has() {
    let service = Service::open().await;
    let chain = json!([failed(1, "(cbu.créate)", "Unknown verb: cbu.créate"), passed(2, "(cbu.create)")]);
    let solved = json!({"success": true, "final_valid_dsl": "(cbu.create :final)", "iterations": chain});
    service
        .accept(&[log(1, "Create hedge fund", &solved), log(2, "List", &json!({"iterations": chain}))])
        .await;
    let sql = r#"SELECT
        user_intent,
        iterations->0->>'extracted_dsl' as bad_dsl,
        iterations->0->'lint_result'->'errors'->0 as error,
        final_valid_dsl
    FROM "ob-poc".dsl_generation_log
    WHERE success = true AND total_attempts > 1"#;
    let found = lines(&service, sql).await;
    let [_, bad, error, good] = found[0].split('|').collect::<Vec<_>>()[..] else { panic!("{found:?}") };
    let error: String = serde_json::from_str(error).expect("a text");
    let record = json!({"messages": [
        {"role": "user", "content": format!("Fix this DSL:\n{bad}\n\nError: {error}")},
        {"role": "assistant", "content": good},
    ]});
    let exported =
        service.get("/v1/exports/correction-pairs.jsonl?format=fix-prompt&pairing=final").await.rows();
    assert_eq!(exported, [record]);
}

#[tokio::test]
async fn the_verification_query_counts_the_attempts_of_the_newest_ten() {
    let service = logs().await;
    let sql = r#"SELECT log_id, user_intent, success, total_attempts,
          jsonb_array_length(iterations) as logged_attempts
   FROM "ob-poc".dsl_generation_log
   ORDER BY created_at DESC LIMIT 10;"#;
    let expected = [
        format!("{}|Create hedge fund|f|0|0", id(4)),
        format!("{}|Delete everything|f|1|1", id(3)),
        format!("{}|List the hedge funds|t|1|1", id(2)),
        format!("{}|Create hedge fund with John|t|2|2", id(1)),
    ];
    assert_eq!(lines(&service, sql).await, expected);
}

#[tokio::test]
async fn the_extension_for_similarity_is_there_and_making_it_once_more_is_harmless() {
    let service = Service::open().await;
    let sql =
        "CREATE EXTENSION IF NOT EXISTS pg_trgm; SELECT extname FROM pg_extension WHERE extname = 'pg_trgm'";
    assert_eq!(lines(&service, sql).await, ["pg_trgm"]);
}
