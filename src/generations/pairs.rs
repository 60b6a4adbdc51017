//! Which attempts of a log teach a correction. It is noted when the log is finalized, since no attempt can be added after that.

use sqlx::PgConnection;
use uuid::Uuid;

/// Stores which attempts of these logs teach a correction, by each of the pairing rules. `step` has the
/// attempts with a program. Two equal programs teach nothing.
pub(super) async fn insert(connection: &mut PgConnection, project: &str, logs: &[Uuid]) -> sqlx::Result<()> {
    const SQL: &str = "
        with step as (
            select g.id as log, g.completed_at, g.user_intent, g.final_valid_dsl, a.attempt, a.extracted_dsl as program,
                a.passed, a.error_message as error,
                lead(a.attempt) over by_number as next_attempt, lead(a.extracted_dsl) over by_number as next_program,
                min(a.attempt) filter (where a.passed) over (partition by g.id) as first_passed
            from generations g
            join attempts a on a.project = $1 and a.generation_id = g.id and a.extracted_dsl <> ''
            where g.project = $1 and g.id = any($2) and g.success and g.user_intent is not null
            window by_number as (partition by g.id order by a.attempt)
        ),
        pair as (
            select distinct on (bad.log) 'fix' as kind, bad.log, bad.completed_at, bad.attempt as bad_attempt,
                fixed.attempt as fixed_attempt, bad.user_intent, bad.program as bad, bad.error, fixed.program as fixed
            from step bad
            join step fixed on fixed.log = bad.log and fixed.attempt = bad.first_passed
            where bad.passed = false and bad.error is not null and bad.attempt < bad.first_passed
            order by bad.log, bad.attempt desc
        )
        insert into correction_pairs (project, kind, completed_at, generation_id, bad_attempt, fixed_attempt, row_hash)
        select $1, kind, completed_at, log, bad_attempt, fixed_attempt,
            md5(row(user_intent, bad, error, fixed)::text)::uuid
        from (
            select * from pair
            union all
            select 'next', log, completed_at, attempt, next_attempt, user_intent, program, error, next_program
            from step where passed = false and next_attempt is not null
            union all
            select 'final', log, completed_at, attempt, null, user_intent, program, error, final_valid_dsl
            from step where passed = false
        ) taught
        where bad <> fixed
        union all
        select $1, 'steps', completed_at, log, 0, null,
            md5(row(user_intent, array_agg(program order by attempt), array_agg(passed order by attempt))::text)::uuid
        from step where passed is not null
        group by log, completed_at, user_intent
        having bool_or(not passed)";
    if !logs.is_empty() {
        sqlx::query(SQL).bind(project).bind(logs).execute(connection).await?;
    }
    Ok(())
}
