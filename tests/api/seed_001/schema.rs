//! Part 1: the table `"ob-poc".dsl_generation_log`, here a view, and the registry of prompt templates.

use serde_json::{Value, json};

use super::{id, lines, log, logs};
use crate::support::{Service, failed, passed, with};

#[tokio::test]
async fn the_view_has_the_columns_of_the_seeds_table_with_its_types_and_three_more() {
    let service = Service::open().await;
    let columns = "select column_name, data_type from information_schema.columns
        where table_schema = 'ob-poc' and table_name = 'dsl_generation_log' order by ordinal_position";
    let expected = [
        "log_id|uuid",
        "instance_id|uuid",
        "user_intent|text",
        "final_valid_dsl|text",
        "iterations|jsonb",
        "domain_name|text",
        "session_id|uuid",
        "cbu_id|uuid",
        "model_used|text",
        "total_attempts|integer",
        "success|boolean",
        "total_latency_ms|integer",
        "total_input_tokens|integer",
        "total_output_tokens|integer",
        "created_at|timestamp with time zone",
        "completed_at|timestamp with time zone",
        "rating|text",
        "corrected_dsl|text",
        "project|text",
    ];
    assert_eq!(lines(&service, columns).await, expected);
}

/// The two iterations that the seed prints, with the fields of its struct that the printed ones leave out.
fn printed_iterations() -> Value {
    json!([
        {
            "attempt": 1,
            "timestamp": "2025-01-15T10:30:00Z",
            "prompt_template": "cbu_create_v2",
            "prompt_text": "Given the vocabulary...",
            "raw_response": "I'll create a CBU...",
            "extracted_dsl": "(cbu.create :name ...)",
            "parse_result": {"success": true, "error": null},
            "lint_result": {"valid": false, "errors": ["Unknown verb: cbu.créate"], "warnings": []},
            "compile_result": {"success": false, "error": "Unknown verb: cbu.créate", "step_count": 0}
        },
        {
            "attempt": 2,
            "timestamp": "2025-01-15T10:30:05Z",
            "prompt_template": "cbu_create_v2",
            "prompt_text": "The previous DSL had errors...",
            "raw_response": "Let me fix that...",
            "extracted_dsl": "(cbu.create :name ...)",
            "parse_result": {"success": true, "error": null},
            "lint_result": {"valid": true, "errors": [], "warnings": []},
            "compile_result": {"success": true, "error": null, "step_count": 3}
        }
    ])
}

#[tokio::test]
async fn the_printed_iterations_are_taken_as_printed_and_come_back_as_printed() {
    let service = Service::open().await;
    let log =
        json!({"id": id(1), "user_intent": "Create hedge fund with John as director", "domain_name": "cbu"});
    service.post("/v1/generations", &log).await.expect(201);
    for attempt in printed_iterations().as_array().expect("iterations") {
        service.post(&format!("/v1/generations/{}/attempts", id(1)), attempt).await.expect(201);
    }
    let found =
        lines(&service, "set timezone = 'UTC'; select iterations from \"ob-poc\".dsl_generation_log").await;
    let mut found: Value = serde_json::from_str(&found[0]).expect("JSON");
    let more = ["prompt_template_version", "latency_ms", "input_tokens", "output_tokens"];
    for attempt in found.as_array_mut().expect("iterations") {
        let attempt = attempt.as_object_mut().expect("an object");
        for name in more {
            assert_eq!(attempt.remove(name), Some(Value::Null), "{name}");
        }
        let time = attempt["timestamp"].as_str().expect("a time").replace("+00:00", "Z");
        attempt.insert("timestamp".to_owned(), time.into());
    }
    assert_eq!(found, printed_iterations());
}

#[tokio::test]
async fn iterations_are_an_empty_array_by_default_and_success_is_false_until_it_is_true() {
    let service = Service::open().await;
    service.accept(&[log(1, "Create hedge fund", &json!({}))]).await;
    let sql =
        "SELECT iterations, success, final_valid_dsl IS NULL, completed_at IS NULL, total_latency_ms IS NULL
        FROM \"ob-poc\".dsl_generation_log";
    assert_eq!(lines(&service, sql).await, ["[]|f|t|t|t"]);
}

#[tokio::test]
async fn totals_are_sums_of_all_attempts_and_never_too_large_for_the_seeds_type() {
    let service = logs().await;
    let big = json!({"latency_ms": i32::MAX, "input_tokens": i32::MAX, "output_tokens": 1});
    service.accept(&[log(5, "big", &json!({"iterations": [big, big]}))]).await;
    let sql = "SELECT total_attempts, total_latency_ms, total_input_tokens, total_output_tokens
        FROM \"ob-poc\".dsl_generation_log ORDER BY created_at";
    let expected = ["2|200|20|2", "1|100|10|1", "1|300|10|1", "0|||", "2|2147483647|2147483647|2"];
    assert_eq!(lines(&service, sql).await, expected);
}

#[tokio::test]
async fn ids_join_uuid_columns_and_texts_that_are_no_uuids_are_null() {
    let service = Service::open().await;
    let uuid = "0f8fad5b-d9cb-469f-a165-70867728950e";
    for (number, given) in (1..).zip([
        uuid,
        "0F8FAD5B-D9CB-469F-A165-70867728950E",
        "0f8fad5bd9cb469fa16570867728950e",
        "my-session",
        "0f8fad5b-d9cb-469f-a165-70867728950",
        "0f8fad5b-d9cb-469f-a165-70867728950e\n",
        "0f8fad5b--d9cb-469f-a165-70867728950e",
        "０f8fad5b-d9cb-469f-a165-70867728950e",
        "{0f8fad5b-d9cb-469f-a165-70867728950e",
    ]) {
        let ids = json!({"session_id": given, "cbu_id": given, "instance_id": given});
        service.accept(&[log(number, "Create", &ids)]).await;
    }
    let sql = format!(
        "create temporary table dsl_instances (instance_id uuid primary key); insert into dsl_instances values ('{uuid}');
        SELECT log_id, session_id = instance_id, cbu_id = instance_id
        FROM \"ob-poc\".dsl_generation_log JOIN dsl_instances USING (instance_id) ORDER BY created_at"
    );
    let joined: Vec<_> = (1..=3).map(|number| format!("{}|t|t", id(number))).collect();
    assert_eq!(lines(&service, &sql).await, joined);
    let nulls = "SELECT count(*) FROM \"ob-poc\".dsl_generation_log
        WHERE session_id IS NULL AND cbu_id IS NULL AND instance_id IS NULL";
    assert_eq!(lines(&service, nulls).await, ["6"]);
}

#[tokio::test]
async fn what_a_reviewer_found_poor_is_not_trained_on_and_a_corrected_program_is() {
    let service = logs().await;
    for (number, review) in [
        (1, json!({"rating": "poor", "corrected_dsl": "(cbu.create :right)"})),
        (2, json!({"rating": "poor"})),
        (3, json!({"rating": "good", "corrected_dsl": "(never)"})),
    ] {
        service.put(&format!("/v1/generations/{}/review", id(number)), &review).await.expect(200);
    }
    let sql = "SELECT success, final_valid_dsl, rating, corrected_dsl FROM \"ob-poc\".dsl_generation_log
        ORDER BY created_at";
    let expected = ["t|(cbu.create :right)|poor|(cbu.create :right)", "f||poor|", "f||good|(never)", "f|||"];
    assert_eq!(lines(&service, sql).await, expected);
}

#[tokio::test]
async fn nobody_writes_through_the_view_and_is_told_where_logs_are_written() {
    let service = logs().await;
    let before = service.dump().await;
    for statement in [
        "INSERT INTO \"ob-poc\".dsl_generation_log
            (log_id, user_intent, domain_name, session_id, cbu_id, model_used, created_at)
            VALUES (gen_random_uuid(), 'Create', 'cbu', null, null, 'm', NOW())",
        "UPDATE \"ob-poc\".dsl_generation_log SET success = true, completed_at = NOW()",
        "DELETE FROM \"ob-poc\".dsl_generation_log",
        "INSERT INTO dsl_generation_log (user_intent) VALUES ('Create')",
    ] {
        let refused = service.sql(&format!("{statement};")).await.expect_err(statement);
        assert!(refused.contains("the view dsl_generation_log is read-only"), "{refused}");
    }
    service.sql("TRUNCATE \"ob-poc\".dsl_generation_log;").await.expect_err("a view");
    assert_eq!(service.dump().await, before);
}

#[tokio::test]
async fn a_table_of_that_name_that_is_there_already_is_left_alone() {
    let service = Service::open().await;
    let migration = std::fs::read_to_string("migrations/0002_generations.sql").expect("a migration");
    let schema = &migration[migration.rfind("do $$").expect("the schema is made last")..];
    let sql = format!(
        "drop view \"ob-poc\".dsl_generation_log; create table \"ob-poc\".dsl_generation_log (log_id uuid);
        {schema}
        select relkind from pg_class where oid = '\"ob-poc\".dsl_generation_log'::regclass;"
    );
    assert_eq!(lines(&service, &sql).await, ["r"]);
    let role = format!("gleaner_reader_{}", uuid::Uuid::new_v4().simple());
    let sql = format!(
        "drop schema \"ob-poc\" cascade; create role {role}; set role {role};
        {schema}
        reset role; drop role {role}; select to_regnamespace('\"ob-poc\"') is null;"
    );
    assert_eq!(lines(&service, &sql).await, ["t"]);
}

#[tokio::test]
async fn the_newest_ten_are_read_and_no_other_log() {
    let service = Service::open().await;
    let fill = "
        insert into generations (project, id, user_intent, domain_name, metadata, created_at, request_hash)
        select 'default', gen_random_uuid(), 'Create', 'cbu', '{}', now() - n * interval '1 second', ''
        from generate_series(1, 5000) n;
        insert into attempts (project, generation_id, attempt, id, timestamp, request_hash)
        select project, id, 1, id, created_at, '' from generations;
        vacuum analyze generations; vacuum analyze attempts;";
    for statement in fill.split_inclusive(';') {
        service.sql(statement).await.expect(statement);
    }
    let sql = "explain (analyze, costs off, timing off, summary off)
        SELECT log_id, user_intent, success, total_attempts,
               jsonb_array_length(iterations) as logged_attempts
        FROM \"ob-poc\".dsl_generation_log
        ORDER BY created_at DESC LIMIT 10;";
    let plan = lines(&service, sql).await;
    assert!(plan.iter().any(|line| line.contains("generations_newest")), "{plan:#?}");
    assert!(plan.iter().all(|line| !line.contains("Sort") || line.contains("attempt")), "{plan:#?}");
    let training =
        "explain (costs off) SELECT user_intent, final_valid_dsl FROM \"ob-poc\".dsl_generation_log
        WHERE success = true AND final_valid_dsl IS NOT NULL;";
    let plan = lines(&service, training).await;
    assert!(plan.iter().all(|line| !line.contains("attempts")), "no attempt is read: {plan:#?}");
}

#[tokio::test]
async fn iterations_are_asked_what_they_contain() {
    let service = logs().await;
    for (contained, expected) in [
        (r#"[{"prompt_template": "cbu_create_v2"}]"#, vec![1, 3]),
        (r#"[{"lint_result": {"valid": false}}]"#, vec![1]),
        (r#"[{"lint_result": {"errors": ["No name"]}}, {"compile_result": {"success": true}}]"#, vec![1]),
        (r#"[{"prompt_template": "none"}]"#, vec![]),
    ] {
        let sql = format!(
            "SELECT log_id FROM \"ob-poc\".dsl_generation_log WHERE iterations @> '{contained}' ORDER BY created_at"
        );
        let expected: Vec<_> = expected.into_iter().map(|number| id(number).to_string()).collect();
        assert_eq!(lines(&service, &sql).await, expected, "{contained}");
    }
}

#[tokio::test]
async fn prompt_templates_are_registered_by_version_with_domain_and_description_until_deprecated() {
    let service = Service::open().await;
    let template = json!({"template_text": "Given {{vocabulary}}, write {{intent}}", "domain_name": "cbu",
        "description": "First draft"});
    let path = "/v1/prompt-templates/cbu_create_v2";
    let registered = service.put(path, &template).await.expect(201);
    let expected = with(
        template,
        &json!({"template_id": "cbu_create_v2", "version": 1, "created_at": registered["created_at"],
            "deprecated_at": null}),
    );
    assert_eq!(registered, expected);
    let second = json!({"template_text": "Write {{intent}}", "domain_name": "cbu"});
    assert_eq!(service.put(path, &second).await.expect(201)["version"], 2);
    service.post(&format!("{path}/deprecate"), &json!({})).await.expect(200);
    assert!(service.get(path).await.expect(200)["deprecated_at"].is_string());
}

#[tokio::test]
async fn logs_are_found_by_success_domain_time_and_instance() {
    let service = logs().await;
    service.patch(&format!("/v1/generations/{}", id(2)), &json!({"instance_id": id(7)})).await.expect(200);
    let uuid = id(7);
    for (condition, expected) in [
        ("success = true".to_owned(), vec![1, 2]),
        ("domain_name = 'entity'".to_owned(), vec![3]),
        ("created_at > '2025-01-15T10:30:02Z'".to_owned(), vec![3, 4]),
        (format!("instance_id = '{uuid}'"), vec![2]),
    ] {
        let sql =
            format!("SELECT log_id FROM \"ob-poc\".dsl_generation_log WHERE {condition} ORDER BY created_at");
        let expected: Vec<_> = expected.into_iter().map(|number| id(number).to_string()).collect();
        assert_eq!(lines(&service, &sql).await, expected, "{condition}");
    }
    let listed = service.get(&format!("/v1/generations?instance_id={uuid}")).await.expect(200);
    assert_eq!(listed["data"][0]["id"], json!(id(2)));
    assert_eq!(listed["data"].as_array().map(Vec::len), Some(1));
}

#[tokio::test]
async fn a_log_that_never_succeeded_has_no_program() {
    let service = Service::open().await;
    let chain = [failed(1, "(a)", "e"), passed(2, "(b)")];
    service.accept(&[log(1, "Create", &json!({"success": false, "iterations": chain}))]).await;
    let sql =
        "SELECT success, final_valid_dsl IS NULL, completed_at IS NULL FROM \"ob-poc\".dsl_generation_log";
    assert_eq!(lines(&service, sql).await, ["f|t|f"]);
}
