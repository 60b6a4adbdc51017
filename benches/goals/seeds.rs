//! The SELECT statements of seed 001 on its view, as printed there and therefore without a project.

use std::time::Instant;

use futures_util::TryStreamExt as _;
use sqlx::AssertSqlSafe;

use crate::Plan;
use crate::data::{Class, Maker};
use crate::machine::Machine;
use crate::rounds::median;
use crate::table::Line;

/// A statement of the seed.
struct Statement {
    name: &'static str,
    sql: String,
    /// The maximum time in milliseconds, if the statement selects only some rows.
    goal: Option<f64>,
}

fn statements() -> Vec<Statement> {
    let statement = |name, goal, sql: &str| Statement { name, sql: sql.to_owned(), goal };
    let limited = Some(200.0);
    let training = |domain: &str| {
        format!(
            r#"SELECT user_intent, final_valid_dsl as valid_dsl
            FROM "ob-poc".dsl_generation_log
            WHERE success = true
              AND final_valid_dsl IS NOT NULL
              AND ({domain}::text IS NULL OR domain_name = {domain})
            ORDER BY created_at DESC
            LIMIT 1000"#
        )
    };
    let intent = Maker::new(5).intent(Class::Medium);
    let similar = format!(
        r#"SELECT user_intent, final_valid_dsl as valid_dsl
            FROM "ob-poc".dsl_generation_log
            WHERE success = true
              AND domain_name = 'domain-3'
              AND user_intent % '{intent}'
            ORDER BY similarity(user_intent, '{intent}') DESC
            LIMIT 5"#
    );
    vec![
        statement(
            "the newest ten",
            limited,
            r#"SELECT log_id, user_intent, success, total_attempts,
                   jsonb_array_length(iterations) as logged_attempts
            FROM "ob-poc".dsl_generation_log
            ORDER BY created_at DESC LIMIT 10"#,
        ),
        statement("1000 training pairs", limited, &training("NULL")),
        statement("1000 training pairs of a domain", limited, &training("'domain-3'")),
        statement(
            "500 correction pairs",
            limited,
            r#"WITH corrections AS (
                SELECT log_id, user_intent, iterations, total_attempts
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
            LIMIT 500"#,
        ),
        statement("five similar examples of a domain", limited, &similar),
        statement(
            "figures of templates",
            None,
            r#"SELECT
                iterations->0->>'prompt_template' as template_name,
                COUNT(*) as total_uses,
                SUM(CASE WHEN total_attempts = 1 AND success THEN 1 ELSE 0 END) as first_try_success,
                AVG(total_attempts)::float as avg_attempts,
                AVG(total_latency_ms)::float as avg_latency_ms
            FROM "ob-poc".dsl_generation_log
            WHERE iterations->0->>'prompt_template' IS NOT NULL
            GROUP BY iterations->0->>'prompt_template'
            ORDER BY total_uses DESC"#,
        ),
        statement(
            "all training pairs",
            None,
            r#"SELECT user_intent, final_valid_dsl
            FROM "ob-poc".dsl_generation_log
            WHERE success = true AND final_valid_dsl IS NOT NULL"#,
        ),
        statement(
            "all correction pairs",
            None,
            r#"SELECT
                user_intent,
                iterations->0->>'extracted_dsl' as bad_dsl,
                iterations->0->'lint_result'->'errors'->0 as error,
                final_valid_dsl
            FROM "ob-poc".dsl_generation_log
            WHERE success = true AND total_attempts > 1"#,
        ),
        statement(
            "logs whose iterations contain something",
            None,
            r#"SELECT log_id FROM "ob-poc".dsl_generation_log
            WHERE iterations @> '[{"prompt_template": "cbu_create"}]'"#,
        ),
    ]
}

pub(crate) async fn run(machine: &Machine, plan: &Plan) -> Vec<Line> {
    let mut connection = machine.connect().await;
    let mut lines = Vec::new();
    for Statement { name, sql, goal } in statements() {
        let mut took = Vec::new();
        for _ in 0..plan.rounds {
            let begun = Instant::now();
            let mut rows = sqlx::raw_sql(AssertSqlSafe(sql.clone())).fetch(&mut connection);
            while rows.try_next().await.expect("an answer").is_some() {}
            took.push(begun.elapsed().as_secs_f64() * 1e3);
        }
        let took = median(took);
        let line = Line::new(format!("seed 001 among {}: {name}", plan.scale), format!("{took:.1} ms"));
        lines.push(match goal {
            Some(goal) => line.goal(&format!("< {goal} ms"), took < goal),
            None => line,
        });
    }
    lines
}
