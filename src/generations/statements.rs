//! The statements that write generation logs, each for many rows: columns come in as arrays through `unnest`.

use std::collections::{HashMap, HashSet};

use sqlx::PgConnection;
use sqlx::types::Json;
use uuid::Uuid;

use super::{Append, Outcome, Start};
use crate::retrieval::keys;

/// Whether the intent is kept: one that is not is empty, as no other is.
fn is_kept(start: &Start) -> bool {
    !start.new.user_intent.is_empty()
}

/// One column of the rows that a statement takes.
fn column<'a, S, T>(rows: &[(Uuid, &'a S)], value: impl Fn(&'a S) -> T) -> Vec<T> {
    rows.iter().map(|(_, row)| value(row)).collect()
}

/// Inserts logs with their iterations; the ids of those that were not there yet.
///
/// In id order, so that two writers with the same ids wait for each other instead of forming a deadlock; but finalized in
/// the order given, a microsecond apart, which is less than a row takes, so no time lies ahead of the commit.
pub(super) async fn insert_logs(
    connection: &mut PgConnection,
    project: &str,
    starts: &[(Uuid, &Start)],
) -> sqlx::Result<HashSet<Uuid>> {
    const SQL: &str = "
        insert into generations (project, id, user_intent, domain_name, session_id, cbu_id, instance_id, model_used,
            metadata, created_at, success, final_valid_dsl, request_hash, outcome_hash, search_keys, completed_at)
        select $1, new.id, new.user_intent, new.domain_name, new.session_id, new.cbu_id, new.instance_id, new.model_used,
            new.metadata, new.created_at, new.success, new.final_valid_dsl, new.request_hash, new.outcome_hash,
            ($15::int[])[new.keys_start + 1 : new.keys_end],
            case when new.success is not null then (select clock_timestamp()) + new.place * interval '1 microsecond' end
        from unnest($2::uuid[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::jsonb[],
            $10::timestamptz[], $11::bool[], $12::text[], $13::bytea[], $14::bytea[], $16::int[], $17::int[])
            with ordinality
            as new (id, user_intent, domain_name, session_id, cbu_id, instance_id, model_used, metadata, created_at,
                success, final_valid_dsl, request_hash, outcome_hash, keys_start, keys_end, place)
        order by new.id
        on conflict do nothing
        returning id";
    // An array of arrays would have to be rectangular: the keys of all logs come as one, with where each log's end.
    let mut keys = Vec::new();
    let (mut key_starts, mut key_ends) = (Vec::new(), Vec::new());
    for (_, start) in starts {
        key_starts.push(i32::try_from(keys.len()).unwrap_or(i32::MAX));
        if is_kept(start) {
            keys.extend(keys::of_document(project, &start.new.domain_name, &start.new.user_intent));
        }
        key_ends.push(i32::try_from(keys.len()).unwrap_or(i32::MAX));
    }
    let created: HashSet<Uuid> = sqlx::query_scalar(SQL)
        .bind(project)
        .bind(starts.iter().map(|(id, _)| *id).collect::<Vec<_>>())
        .bind(column(starts, |start| is_kept(start).then_some(start.new.user_intent.as_str())))
        .bind(column(starts, |start| start.new.domain_name.as_str()))
        .bind(column(starts, |start| start.new.session_id.as_deref()))
        .bind(column(starts, |start| start.new.cbu_id.as_deref()))
        .bind(column(starts, |start| start.new.instance_id.as_deref()))
        .bind(column(starts, |start| start.new.model_used.as_deref()))
        .bind(column(starts, |start| start.new.metadata.clone().unwrap_or_default()))
        .bind(column(starts, |start| start.created_at))
        .bind(column(starts, |start| start.new.success))
        .bind(column(starts, |start| start.new.final_valid_dsl.as_deref()))
        .bind(column(starts, |start| start.hash.as_slice()))
        .bind(column(starts, |start| start.outcome_hash.as_deref()))
        .bind(keys)
        .bind(key_starts)
        .bind(key_ends)
        .fetch_all(&mut *connection)
        .await?
        .into_iter()
        .collect();
    let created_starts = || starts.iter().filter(|(id, _)| created.contains(id));
    let attempts: Vec<_> = created_starts()
        .flat_map(|(id, start)| start.attempts.iter().map(|attempt| (*id, attempt)))
        .collect();
    if !attempts.is_empty() {
        let inserted = insert_attempts(connection, APPEND_TO_NEW, project, &attempts).await?;
        debug_assert_eq!(inserted.len(), attempts.len(), "a new log has no attempts yet");
        let failed_before: Vec<_> = created_starts()
            .filter(|(_, start)| start.attempts.iter().any(|attempt| attempt.verdict.passed == Some(false)))
            .map(|(id, _)| *id)
            .collect();
        insert_pairs(connection, project, &failed_before).await?;
    }
    Ok(created)
}

/// The statement that adds attempts to the logs that a query selects.
///
/// Whether an attempt is there is asked in a scalar subquery: `exists` may be planned as a hash of the whole table. Whether
/// its log is locked is asked by a bare `in`, which is hashed: a join may be planned to compare each with each.
/// An attempt that another server adds while the statement waits for a log's lock is not seen by it, but has taken the
/// number that it would give: the conflict leaves the row to be judged.
macro_rules! insert_attempts_to {
    ($logs:literal) => {
        concat!(
            "with log as materialized (", $logs, "),",
            "new as (
                select unnest($2::uuid[]) as generation_id, unnest($3::uuid[]) as id, unnest($4::bool[]) as id_given,
                    unnest($5::int[]) as attempt, unnest($6::timestamptz[]) as timestamp,
                    unnest($7::text[]) as prompt_template, unnest($8::int[]) as prompt_template_version,
                    unnest($9::text[]) as prompt_text, unnest($10::text[]) as raw_response,
                    unnest($11::text[]) as extracted_dsl, unnest($12::jsonb[]) as parse_result,
                    unnest($13::jsonb[]) as lint_result, unnest($14::jsonb[]) as compile_result,
                    unnest($15::bool[]) as passed, unnest($16::text[]) as error_stage,
                    unnest($17::text[]) as error_message, unnest($18::int[]) as latency_ms,
                    unnest($19::int[]) as input_tokens, unnest($20::int[]) as output_tokens,
                    unnest($21::jsonb[]) as metadata, unnest($22::bytea[]) as request_hash,
                    generate_subscripts($2, 1) as place
            )
            insert into attempts (project, generation_id, id, attempt, timestamp, prompt_template, prompt_template_version,
                prompt_text, raw_response, extracted_dsl, parse_result, lint_result, compile_result, passed, error_stage,
                error_message, latency_ms, input_tokens, output_tokens, metadata, request_hash)
            select $1, new.generation_id, new.id,
                coalesce(new.attempt, last.attempt + 1),
                new.timestamp, new.prompt_template, new.prompt_template_version, new.prompt_text, new.raw_response,
                new.extracted_dsl, new.parse_result, new.lint_result, new.compile_result, new.passed, new.error_stage,
                new.error_message, new.latency_ms, new.input_tokens, new.output_tokens, new.metadata, new.request_hash
            from new
            cross join lateral (
                select coalesce(max(a.attempt), 0) as attempt from attempts a
                where a.project = $1 and a.generation_id = new.generation_id and new.attempt is null
            ) last
            where (new.generation_id in (select id from log)) is true and (not new.id_given or (
                select true from attempts a where a.project = $1 and a.generation_id = new.generation_id and a.id = new.id
                limit 1) is null)
            order by new.place
            on conflict do nothing
            returning generation_id, id, attempt"
        )
    };
}

/// Adds to open logs; they are locked, in id order.
pub(super) const APPEND: &str = insert_attempts_to!(
    "select g.id from generations g
    where g.project = $1 and g.id = any($2) and g.completed_at is null
    order by g.id for no key update"
);
/// Adds to logs that the same transaction has made.
const APPEND_TO_NEW: &str = insert_attempts_to!("select distinct unnest($2) as id");

/// Locks logs before a statement that must see all that others have added to them.
pub(super) const LOCK: &str =
    "select from generations where project = $1 and id = any($2) order by id for no key update";

/// Runs one of these statements; the numbers, by log and id, of the attempts that were added.
pub(super) async fn insert_attempts(
    connection: &mut PgConnection,
    sql: &'static str,
    project: &str,
    appends: &[(Uuid, &Append)],
) -> sqlx::Result<HashMap<(Uuid, Uuid), i32>> {
    let rows: Vec<(Uuid, Uuid, i32)> = sqlx::query_as(sql)
        .bind(project)
        .bind(appends.iter().map(|(id, _)| *id).collect::<Vec<_>>())
        .bind(column(appends, |append| append.id))
        .bind(column(appends, |append| append.id_given))
        .bind(column(appends, |append| append.number))
        .bind(column(appends, |append| append.timestamp))
        .bind(column(appends, |append| append.new.prompt_template.as_deref()))
        .bind(column(appends, |append| append.new.prompt_template_version))
        .bind(column(appends, |append| append.new.prompt_text.as_deref()))
        .bind(column(appends, |append| append.new.raw_response.as_deref()))
        .bind(column(appends, |append| append.new.extracted_dsl.as_deref()))
        .bind(column(appends, |append| append.new.parse_result.as_ref().map(Json)))
        .bind(column(appends, |append| append.new.lint_result.as_ref().map(Json)))
        .bind(column(appends, |append| append.new.compile_result.as_ref().map(Json)))
        .bind(column(appends, |append| append.verdict.passed))
        .bind(column(appends, |append| append.verdict.error_stage))
        .bind(column(appends, |append| append.verdict.error_message.as_deref()))
        .bind(column(appends, |append| append.new.latency_ms))
        .bind(column(appends, |append| append.new.input_tokens))
        .bind(column(appends, |append| append.new.output_tokens))
        .bind(column(appends, |append| append.new.metadata.clone().unwrap_or_default()))
        .bind(column(appends, |append| append.hash.as_slice()))
        .fetch_all(connection)
        .await?;
    Ok(rows.into_iter().map(|(log, id, number)| ((log, id), number)).collect())
}

/// Finalizes open logs, and notes what corrections they teach; the ids of those that were open and could be.
pub(super) async fn finalize(
    connection: &mut PgConnection,
    project: &str,
    outcomes: &[(Uuid, &Outcome, &[u8])],
) -> sqlx::Result<HashSet<Uuid>> {
    const SQL: &str = "
        with log as materialized (
            select g.id from generations g
            where g.project = $1 and g.id = any($2) and g.completed_at is null
            order by g.id for no key update
        ),
        new as (
            select * from unnest($2::uuid[], $3::bool[], $4::text[], $5::text[], $6::text[], $7::bytea[]) with ordinality
                as new (id, success, final_valid_dsl, instance_id, error, outcome_hash, place)
        )
        update generations g
        set success = new.success, final_valid_dsl = nullif(coalesce(new.final_valid_dsl, last.program), ''), error = new.error,
            instance_id = coalesce(new.instance_id, g.instance_id), outcome_hash = new.outcome_hash,
            completed_at = (select clock_timestamp()) + new.place * interval '1 microsecond'
        from new
        left join lateral (
            select a.extracted_dsl as program, a.passed from attempts a
            where a.project = $1 and a.generation_id = new.id and a.passed
                and new.success and new.final_valid_dsl is null
            order by a.attempt desc limit 1
        ) last on true
        where g.project = $1 and g.id = new.id and (new.id in (select id from log)) is true
            and (not new.success or new.final_valid_dsl is not null or last.passed)
        returning g.id, g.success";
    let done: Vec<(Uuid, bool)> = sqlx::query_as(SQL)
        .bind(project)
        .bind(outcomes.iter().map(|(id, ..)| *id).collect::<Vec<_>>())
        .bind(outcomes.iter().map(|(_, outcome, _)| outcome.success).collect::<Vec<_>>())
        .bind(outcomes.iter().map(|(_, outcome, _)| outcome.final_valid_dsl.as_deref()).collect::<Vec<_>>())
        .bind(outcomes.iter().map(|(_, outcome, _)| outcome.instance_id.as_deref()).collect::<Vec<_>>())
        .bind(outcomes.iter().map(|(_, outcome, _)| outcome.error.as_deref()).collect::<Vec<_>>())
        .bind(outcomes.iter().map(|(.., hash)| *hash).collect::<Vec<_>>())
        .fetch_all(&mut *connection)
        .await?;
    let succeeded: Vec<_> = done.iter().filter(|(_, success)| *success).map(|(id, _)| *id).collect();
    insert_pairs(connection, project, &succeeded).await?;
    Ok(done.into_iter().map(|(id, _)| id).collect())
}

/// Notes which attempts of these logs teach a correction, by each of the pairing rules. `steps` are the attempts that
/// have a program; a pair of equal programs teaches nothing.
async fn insert_pairs(connection: &mut PgConnection, project: &str, logs: &[Uuid]) -> sqlx::Result<()> {
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
