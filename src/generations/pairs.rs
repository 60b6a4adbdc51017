//! Which attempts of a log teach a correction. It is noted when the log is finalized, since no attempt can
//! be added after that, and again when the log is reviewed.

use sqlx::PgConnection;
use uuid::Uuid;

use super::exports::TEXTS;
use crate::exports::progress;

/// Stores which attempts of these logs teach a correction, by each of the pairing rules, and what a reviewer's correction
/// teaches. `step` has the attempts with a program. Two programs that differ in white space only teach nothing, and a
/// program that a reviewer found poor is never the one to learn. Programs may be long, so each is hashed once, and the
/// hashes are compared. The attempts of logs are not joined with each other, because without statistics Postgres would compare
/// each with each. Of a log with very many attempts, the last thousand teach, and those of them after which there are less than
/// 8 MiB of programs, because others wait while the pairs are written. The steps of a log are a row if all of them teach, and have at
/// most 8 MiB as JSON.
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
        attempt as materialized (
            select g.*, a.attempt, a.passed, a.error_message as error, octet_length(to_json(a.extracted_dsl)::text) as bytes,
                md5(a.extracted_dsl) as program, bare_hash(a.extracted_dsl) as bare
            from taught g
            cross join lateral (
                select a.attempt, a.passed, a.error_message, a.extracted_dsl,
                    sum(octet_length(a.extracted_dsl)) over (order by a.attempt desc) - octet_length(a.extracted_dsl) as bytes_after
                from attempts a
                where a.project = $1 and a.generation_id = g.id and a.extracted_dsl is not null
                order by a.attempt desc limit 1000
            ) a
            where case when a.bytes_after < 8388608 then has_text(a.extracted_dsl) end
        ),
        step as (
            select attempt.*,
                lead(attempt) over by_number as next_attempt, lead(program) over by_number as next_program,
                lead(bare) over by_number as next_bare, lead(passed) over by_number as next_passed,
                min(attempt) filter (where passed) over (partition by id) as first_passed,
                first_value(program) over by_outcome as passed_program, first_value(bare) over by_outcome as passed_bare
            from attempt
            window by_number as (partition by id order by attempt),
                by_outcome as (partition by id order by passed desc nulls last, attempt)
        ),
        reviewed as (
            select taught.*, coalesce(found.attempt, 0) as attempt
            from taught
            left join (
                select id, max(attempt) as attempt from attempt where passed and bare = final_bare group by id
            ) found on found.id = taught.id
            where corrected is not null
        ),
        pair as (
            select distinct on (id) 'fix' as kind, null::boolean as fixed_is_final, id, completed_at, attempt as bad_attempt,
                case when corrected is null then first_passed end as fixed_attempt, intent, program as bad, bare as bad_bare, error,
                case when learned is not null then coalesce(corrected, passed_program) end as fixed,
                case when learned is not null then
                    case when corrected is null then passed_bare else corrected_bare end end as fixed_bare
            from step
            where passed = false and error is not null and attempt < first_passed
            order by id, attempt desc
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
            select true, rule, null, id, completed_at, attempt, null, intent, final, final_bare, review_note, corrected, corrected_bare
            from reviewed
            cross join unnest(array['fix', 'next', 'final']) rule
        ) pairs
        where bad_bare <> fixed_bare
        union all
        select $1, 'steps', false, completed_at, id, 0, null, null,
            md5(intent || string_agg(program || passed::text, ',' order by attempt))::uuid
        from step where passed is not null and rating is distinct from 'poor' and corrected is null
        group by id, completed_at, intent
        having bool_or(not passed) and sum(bytes) <= 8388608
            and not exists (select from attempts a where a.project = $1 and a.generation_id = step.id
                and a.attempt < min(step.attempt) and a.passed is not null and a.extracted_dsl <> '')";
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
