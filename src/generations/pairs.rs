//! Which attempts of a log teach a correction. It is noted when the log is finalized, since no attempt can
//! be added after that, and again when the log is reviewed.

use sqlx::PgConnection;
use uuid::Uuid;

use super::exports::TEXTS;
use crate::exports::progress;

/// Stores which attempts of these logs teach a correction, by each of the pairing rules, and what a reviewer's correction
/// teaches. `step` has the attempts with a program. Two programs that differ in white space only teach nothing, and a
/// program that a reviewer found poor is never the one to learn. Programs may be long, so each is hashed once, and the
/// hashes are compared. The steps of a log whose programs have more than 16 MiB as JSON are no row, which would be as
/// long.
pub(super) async fn insert(connection: &mut PgConnection, project: &str, logs: &[Uuid]) -> sqlx::Result<()> {
    const SQL: &str = "
        with log as (
            select g.id, g.completed_at, md5(g.user_intent) as intent, g.review_note, g.rating,
                md5(g.final_valid_dsl) as final, bare_hash(g.final_valid_dsl) as final_bare,
                md5(g.corrected_dsl) as corrected, bare_hash(g.corrected_dsl) as corrected_bare
            from generations g
            where g.project = $1 and g.id = any($2) and g.success and has_text(g.user_intent)
        ),
        taught as (
            select log.*,
                case when corrected is not null then corrected when rating is distinct from 'poor' then final end as learned,
                case when corrected is not null then corrected_bare
                    when rating is distinct from 'poor' then final_bare end as learned_bare
            from log
        ),
        attempt as (
            select a.generation_id, a.attempt, a.passed, a.error_message as error, octet_length(to_json(a.extracted_dsl)::text) as bytes,
                md5(a.extracted_dsl) as program, bare_hash(a.extracted_dsl) as bare
            from log g
            join attempts a on a.project = $1 and a.generation_id = g.id and has_text(a.extracted_dsl)
        ),
        step as (
            select g.*, a.attempt, a.passed, a.error, a.bytes, a.program, a.bare,
                lead(a.attempt) over by_number as next_attempt, lead(a.program) over by_number as next_program,
                lead(a.bare) over by_number as next_bare, lead(a.passed) over by_number as next_passed,
                min(a.attempt) filter (where a.passed) over (partition by g.id) as first_passed
            from taught g
            join attempt a on a.generation_id = g.id
            window by_number as (partition by g.id order by a.attempt)
        ),
        reviewed as (
            select t.id, max(a.attempt) as attempt
            from taught t
            join attempt a on a.generation_id = t.id and a.passed and a.bare = t.final_bare
            where t.corrected is not null
            group by t.id
        ),
        pair as (
            select distinct on (bad.id) 'fix' as kind, null::boolean as fixed_is_final, bad.id, bad.completed_at, bad.attempt as bad_attempt,
                case when bad.corrected is null then fixed.attempt end as fixed_attempt, bad.intent,
                bad.program as bad, bad.bare as bad_bare, bad.error,
                case when bad.learned is not null then coalesce(bad.corrected, fixed.program) end as fixed,
                case when bad.learned is not null then
                    case when bad.corrected is null then fixed.bare else bad.corrected_bare end end as fixed_bare
            from step bad
            join step fixed on fixed.id = bad.id and fixed.attempt = bad.first_passed
            where bad.passed = false and bad.error is not null and bad.attempt < bad.first_passed
            order by bad.id, bad.attempt desc
        )
        insert into correction_pairs
            (project, kind, is_review, completed_at, generation_id, bad_attempt, fixed_attempt, fixed_is_final, row_hash)
        select $1, kind, is_review, completed_at, id, bad_attempt, fixed_attempt, fixed_is_final,
            md5(row(intent, bad, fixed)::text)::uuid
        from (
            select false as is_review, pair.* from pair
            union all
            select false, 'next', is_final, id, completed_at, attempt, case when not replaced then next_attempt end, intent, program, bare,
                error, case when replaced then corrected else next_program end,
                case when replaced then corrected_bare else next_bare end
            from step
            cross join lateral (select next_bare = final_bare as is_final) next
            cross join lateral (select corrected is not null and is_final as replaced) with_correction
            where passed = false and next_attempt is not null
                and (learned is not null or next_passed is not true and is_final is not true)
            union all
            select false, 'final', null, id, completed_at, attempt, null, intent, program, bare, error, learned, learned_bare
            from step where passed = false
            union all
            select true, rule, null, id, completed_at, coalesce(reviewed.attempt, 0),
                null, intent, final, final_bare, review_note, corrected, corrected_bare
            from taught
            left join reviewed using (id)
            cross join unnest(array['fix', 'next', 'final']) rule
        ) pairs
        where bad_bare <> fixed_bare
        union all
        select $1, 'steps', false, completed_at, id, 0, null, null,
            md5(intent || string_agg(program || passed::text, ',' order by attempt))::uuid
        from step where passed is not null and rating is distinct from 'poor' and corrected is null
        group by id, completed_at, intent
        having bool_or(not passed) and sum(bytes) <= 16777216";
    if !logs.is_empty() {
        sqlx::query(SQL).bind(project).bind(logs).execute(connection).await?;
    }
    Ok(())
}

/// Works the pairs of reviewed logs out again.
pub(super) async fn renew(connection: &mut PgConnection, project: &str, logs: &[Uuid]) -> sqlx::Result<()> {
    // A log that is in a group of a split already is there with its new program too.
    const CORRECTIONS: &str = "
        insert into split_texts (project, domain, record, hash, completed_at, split_group)
        select distinct t.project, t.domain, t.record, split_hash('program', g.corrected_dsl), t.completed_at, t.split_group
        from generations g
        join split_texts t on t.project = $1 and t.domain = $3 and t.record = g.id
        where g.project = $1 and g.id = any($2) and g.corrected_dsl is not null
        on conflict do nothing";
    delete(connection, project, logs).await?;
    insert(connection, project, logs).await?;
    // A page of a split that is in progress may have read the log without its correction.
    progress::lock(connection, project, TEXTS.domain).await?;
    sqlx::query(CORRECTIONS).bind(project).bind(logs).bind(TEXTS.domain).execute(connection).await?;
    Ok(())
}

/// Erases the pairs of logs.
pub(super) async fn delete(connection: &mut PgConnection, project: &str, logs: &[Uuid]) -> sqlx::Result<()> {
    const SQL: &str = "delete from correction_pairs where project = $1 and generation_id = any($2)";
    sqlx::query(SQL).bind(project).bind(logs).execute(connection).await?;
    Ok(())
}
