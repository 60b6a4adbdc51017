//! Which attempts of a log teach a correction. It is noted when the log is finalized, since no attempt can
//! be added after that, and again when the log is reviewed.

use sqlx::PgConnection;
use uuid::Uuid;

use crate::types::Timestamp;

/// Stores which attempts of these logs teach a correction, by each of the pairing rules, and what a reviewer's correction
/// teaches. `step` has the attempts with a program. Two programs that differ in white space only teach nothing, and a
/// program that a reviewer found poor is never the one to learn.
pub(super) async fn insert(connection: &mut PgConnection, project: &str, logs: &[Uuid]) -> sqlx::Result<()> {
    const SQL: &str = "
        with log as (
            select g.id, g.completed_at, g.user_intent, g.final_valid_dsl, g.corrected_dsl, g.review_note, g.rating,
                case when g.corrected_dsl is not null then g.corrected_dsl
                    when g.rating is distinct from 'poor' then g.final_valid_dsl end as learned
            from generations g
            where g.project = $1 and g.id = any($2) and g.success and has_text(g.user_intent)
        ),
        step as (
            select g.*, a.attempt, a.extracted_dsl as program, a.passed, a.error_message as error,
                lead(a.attempt) over by_number as next_attempt, lead(a.extracted_dsl) over by_number as next_program,
                lead(a.passed) over by_number as next_passed,
                min(a.attempt) filter (where a.passed) over (partition by g.id) as first_passed
            from log g
            join attempts a on a.project = $1 and a.generation_id = g.id and has_text(a.extracted_dsl)
            window by_number as (partition by g.id order by a.attempt)
        ),
        pair as (
            select distinct on (bad.id) 'fix' as kind, bad.id, bad.completed_at, bad.attempt as bad_attempt,
                case when bad.corrected_dsl is null then fixed.attempt end as fixed_attempt, bad.user_intent,
                bad.program as bad, bad.error,
                case when bad.learned is not null then coalesce(bad.corrected_dsl, fixed.program) end as fixed
            from step bad
            join step fixed on fixed.id = bad.id and fixed.attempt = bad.first_passed
            where bad.passed = false and bad.error is not null and bad.attempt < bad.first_passed
            order by bad.id, bad.attempt desc
        )
        insert into correction_pairs
            (project, kind, is_review, completed_at, generation_id, bad_attempt, fixed_attempt, row_hash)
        select $1, kind, is_review, completed_at, id, bad_attempt, fixed_attempt,
            md5(row(user_intent, bad, error, fixed)::text)::uuid
        from (
            select false as is_review, pair.* from pair
            union all
            select false, 'next', id, completed_at, attempt, case when not replaced then next_attempt end, user_intent, program,
                error, case when replaced then corrected_dsl else next_program end
            from step
            cross join lateral (select corrected_dsl is not null and next_program = final_valid_dsl as replaced) next
            where passed = false and next_attempt is not null and (learned is not null or next_passed is not true)
            union all
            select false, 'final', id, completed_at, attempt, null, user_intent, program, error, learned
            from step where passed = false
            union all
            select true, rule, id, completed_at,
                coalesce((select max(a.attempt) from attempts a where a.project = $1 and a.generation_id = log.id and a.passed), 0),
                null, user_intent, final_valid_dsl, review_note, corrected_dsl
            from log, unnest(array['fix', 'next', 'final']) rule
        ) taught
        where has_text(fixed) and has_text(bad) and without_space(bad) <> without_space(fixed)
        union all
        select $1, 'steps', false, completed_at, id, 0, null,
            md5(row(user_intent, array_agg(program order by attempt), array_agg(passed order by attempt))::text)::uuid
        from step where passed is not null and rating is distinct from 'poor' and corrected_dsl is null
        group by id, completed_at, user_intent
        having bool_or(not passed)";
    if !logs.is_empty() {
        sqlx::query(SQL).bind(project).bind(logs).execute(connection).await?;
    }
    Ok(())
}

/// Works the pairs of reviewed logs out again.
pub(super) async fn renew(connection: &mut PgConnection, project: &str, logs: &[Uuid]) -> sqlx::Result<()> {
    // A log that is in a group of a split already is there with its new program too.
    const CORRECTIONS: &str = "
        insert into split_texts (project, record, hash, completed_at, split_group, taught)
        select distinct t.project, t.record, split_hash('program', g.corrected_dsl), t.completed_at, t.split_group, true
        from generations g
        join split_texts t on t.project = $1 and t.record = g.id
        where g.project = $1 and g.id = any($2) and g.corrected_dsl is not null
        on conflict do nothing";
    const FINALIZED: &str = "select id, completed_at from generations
        where project = $1 and id = any($2) and completed_at is not null";
    let finalized: Vec<(Uuid, Option<Timestamp>)> =
        sqlx::query_as(FINALIZED).bind(project).bind(logs).fetch_all(&mut *connection).await?;
    let (ids, times): (Vec<_>, Vec<_>) = finalized.into_iter().unzip();
    delete(connection, project, &ids, &times).await?;
    insert(connection, project, &ids).await?;
    sqlx::query(CORRECTIONS).bind(project).bind(&ids).execute(connection).await?;
    Ok(())
}

/// Erases the pairs of logs, which were finalized at these times.
pub(super) async fn delete(
    connection: &mut PgConnection,
    project: &str,
    logs: &[Uuid],
    completed_at: &[Option<Timestamp>],
) -> sqlx::Result<()> {
    const SQL: &str = "
        delete from correction_pairs p using unnest($2::uuid[], $3::timestamptz[]) as log (id, completed_at)
        where p.project = $1 and p.kind in ('fix', 'next', 'final', 'steps')
            and p.completed_at = log.completed_at and p.generation_id = log.id";
    sqlx::query(SQL).bind(project).bind(logs).bind(completed_at).execute(connection).await?;
    Ok(())
}
