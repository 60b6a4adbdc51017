//! The statements that write generation logs. Those for many rows take a column as an array (see
//! [`insert`](mod@insert)).

use std::collections::{HashMap, HashSet};
use std::sync::LazyLock;

use sqlx::PgConnection;
use sqlx::types::Json;
use uuid::Uuid;

use super::{Append, NewReview, Outcome, Start};
use crate::db::insert::{self, Columns as _, columns};
use crate::retrieval::keys;
use crate::types::{FreeForm, Timestamp};

/// A row of a log that begins.
pub(super) struct LogRow<'a> {
    id: Uuid,
    start: &'a Start,
    search_keys: String,
}

impl<'a> LogRow<'a> {
    pub(super) fn new(project: &str, id: Uuid, start: &'a Start) -> Self {
        let keys =
            kept_intent(start).map(|intent| keys::of_document(project, &start.new.domain_name, intent));
        let search_keys = keys::literal(&keys.unwrap_or_default());
        Self { id, start, search_keys }
    }
}

/// Returns the intent, if it is kept. One that is not kept is empty, which no other intent is.
fn kept_intent(start: &Start) -> Option<&str> {
    Some(start.new.user_intent.as_str()).filter(|intent| !intent.is_empty())
}

columns! {
    /// The columns of a log that are known when it begins.
    struct Logs<'a>(LogRow<'a>);
    |row| {
        "id": "uuid" = row.id,
        "user_intent": "text" = kept_intent(row.start),
        "domain_name": "text" = row.start.new.domain_name.as_str(),
        "session_id": "text" = row.start.new.session_id.as_deref(),
        "cbu_id": "text" = row.start.new.cbu_id.as_deref(),
        "instance_id": "text" = row.start.new.instance_id.as_deref(),
        "model_used": "text" = row.start.new.model_used.as_deref(),
        "metadata": "jsonb" = FreeForm::or_empty(row.start.new.metadata.as_ref()),
        "created_at": "timestamptz" = row.start.created_at,
        "success": "bool" = row.start.new.success,
        "final_valid_dsl": "text" = row.start.new.final_valid_dsl.as_deref(),
        "request_hash": "bytea" = row.start.hash.as_slice(),
        "outcome_hash": "bytea" = row.start.outcome_hash.as_deref(),
        "search_keys": "text" as "int[]" = row.search_keys.as_str(),
    }
}

/// Inserts logs. Returns the ids of those that did not exist yet.
///
/// Logs are inserted in the order of their ids, so that two writers with the same ids wait for each other
/// instead of forming a deadlock. They are finalized in the order given, a microsecond apart. That is less
/// time than a row takes, so no time of completion is later than the commit.
pub(super) async fn insert_logs(
    connection: &mut PgConnection,
    project: &str,
    logs: &[LogRow<'_>],
) -> sqlx::Result<HashSet<Uuid>> {
    static SQL: LazyLock<String> = LazyLock::new(|| {
        format!(
            "insert into generations (project, {names}, completed_at)
            select $1, {values},
                case when new.success is not null then (select clock_timestamp()) + new.ordinal * interval '1 microsecond' end
            from (select {unnested}, generate_subscripts($2, 1) as ordinal) new
            order by new.id
            on conflict do nothing
            returning id",
            names = insert::names::<Logs>(),
            values = insert::values::<Logs>("new"),
            unnested = insert::unnested::<Logs>(2),
        )
    });
    let parameters = insert::parameters(project, |parameters| Logs::bind_all(logs, parameters))?;
    let created: Vec<Uuid> = sqlx::query_scalar_with(SQL.as_str(), parameters).fetch_all(connection).await?;
    Ok(created.into_iter().collect())
}

/// Returns the hashes of the requests that started these logs.
pub(super) async fn request_hashes(
    connection: &mut PgConnection,
    project: &str,
    ids: &[Uuid],
) -> sqlx::Result<HashMap<Uuid, Vec<u8>>> {
    let sql = "select id, request_hash from generations where project = $1 and id = any($2)";
    let rows: Vec<(Uuid, Vec<u8>)> =
        sqlx::query_as(sql).bind(project).bind(ids).fetch_all(connection).await?;
    Ok(rows.into_iter().collect())
}

/// A row of an attempt to be added to a log.
#[derive(Clone, Copy)]
pub(super) struct AttemptRow<'a> {
    /// The id of the log.
    pub(super) log: Uuid,
    /// The attempt.
    pub(super) append: &'a Append,
    /// The position, from 1, among the attempts that one statement adds to the log and that have no number of
    /// their own.
    pub(super) nth: i32,
}

columns! {
    /// The columns that decide to which log an attempt is added and which number it gets.
    struct AttemptKeys<'a>(AttemptRow<'a>);
    |row| {
        "generation_id": "uuid" = row.log,
        "number": "int" = row.append.number,
        "nth": "int" = row.nth,
    }
}

columns! {
    /// The columns of an attempt besides its log and its number.
    struct Attempts<'a>(AttemptRow<'a>);
    |row| {
        "id": "uuid" = row.append.id,
        "timestamp": "timestamptz" = row.append.timestamp,
        "prompt_template": "text" = row.append.new.prompt_template.as_deref(),
        "prompt_template_version": "int" = row.append.new.prompt_template_version,
        "prompt_text": "text" = row.append.new.prompt_text.as_deref(),
        "raw_response": "text" = row.append.new.raw_response.as_deref(),
        "extracted_dsl": "text" = row.append.new.extracted_dsl.as_deref(),
        "parse_result": "jsonb" = row.append.new.parse_result.as_ref().map(Json),
        "lint_result": "jsonb" = row.append.new.lint_result.as_ref().map(Json),
        "compile_result": "jsonb" = row.append.new.compile_result.as_ref().map(Json),
        "passed": "bool" = row.append.verdict.passed,
        "error_stage": "text" = row.append.verdict.error_stage,
        "error_message": "text" = row.append.verdict.error_message.as_deref(),
        "latency_ms": "int" = row.append.new.latency_ms,
        "input_tokens": "int" = row.append.new.input_tokens,
        "output_tokens": "int" = row.append.new.output_tokens,
        "metadata": "jsonb" = FreeForm::or_empty(row.append.new.metadata.as_ref()),
        "request_hash": "bytea" = row.append.hash.as_slice(),
    }
}

/// Which logs attempts are added to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AppendTo {
    /// Logs that are open. They are locked in the order of their ids.
    Open,
    /// Logs that the same transaction has made, finished or not.
    New,
}

/// Adds attempts to logs. Returns the numbers of those that were added, by log and id. Left out are attempts
/// whose id or number is taken, and attempts to a log that does not exist or is not open.
///
/// The statement does not see an attempt that another server adds while it waits for the log's lock. That
/// attempt has taken the next number, so the new one is left out and can be judged.
pub(super) async fn insert_attempts(
    connection: &mut PgConnection,
    project: &str,
    target: AppendTo,
    attempts: &[AttemptRow<'_>],
) -> sqlx::Result<HashMap<(Uuid, Uuid), i32>> {
    /// The attempts are matched to the locked logs by a bare `in`, which Postgres always hashes. A join might
    /// be planned as a nested loop.
    fn many(logs: &str) -> String {
        format!(
            "with log as materialized ({logs}),
            new as (select {keys}, {unnested}, generate_subscripts($2, 1) as ordinal)
            insert into attempts (project, generation_id, attempt, {names})
            select $1, new.generation_id,
                coalesce(new.number, new.nth + (
                    select coalesce(max(a.attempt), 0) from attempts a
                    where a.project = $1 and a.generation_id = new.generation_id)),
                {values}
            from new
            where (new.generation_id in (select id from log)) is true
            order by new.ordinal
            on conflict do nothing
            returning generation_id, id, attempt",
            keys = insert::unnested::<AttemptKeys>(2),
            unnested = insert::unnested::<Attempts>(5),
            names = insert::names::<Attempts>(),
            values = insert::values::<Attempts>("new"),
        )
    }
    static INTO_OPEN: LazyLock<String> = LazyLock::new(|| {
        many(
            "select g.id from generations g where g.project = $1 and g.id = any($2) and g.completed_at is null
            order by g.id for no key update",
        )
    });
    static INTO_NEW: LazyLock<String> = LazyLock::new(|| many("select distinct unnest($2) as id"));
    /// The statement for a single attempt, the usual case on a server with little to do. It does half the
    /// work of the statement for many.
    static ONE: LazyLock<String> = LazyLock::new(|| {
        format!(
            "insert into attempts (project, generation_id, attempt, {names})
            select $1, g.id,
                coalesce($3, $4 + (
                    select coalesce(max(a.attempt), 0) from attempts a where a.project = $1 and a.generation_id = $2)),
                {value}
            from generations g where g.project = $1 and g.id = $2 and g.completed_at is null for no key update
            on conflict do nothing
            returning generation_id, id, attempt",
            names = insert::names::<Attempts>(),
            value = insert::value::<Attempts>(5),
        )
    });
    let alone =
        if let [attempt] = attempts { Some(attempt).filter(|_| target == AppendTo::Open) } else { None };
    let (sql, parameters) = match alone {
        Some(attempt) => (
            &ONE,
            insert::parameters(project, |parameters| {
                AttemptKeys::bind_one(attempt, parameters)?;
                Attempts::bind_one(attempt, parameters)
            })?,
        ),
        None => (
            if target == AppendTo::Open { &INTO_OPEN } else { &INTO_NEW },
            insert::parameters(project, |parameters| {
                AttemptKeys::bind_all(attempts, parameters)?;
                Attempts::bind_all(attempts, parameters)
            })?,
        ),
    };
    let rows: Vec<(Uuid, Uuid, i32)> =
        sqlx::query_as_with(sql.as_str(), parameters).fetch_all(connection).await?;
    Ok(rows.into_iter().map(|(log, id, number)| ((log, id), number)).collect())
}

/// An attempt that is stored.
pub(super) struct StoredAttempt {
    pub(super) id: Uuid,
    pub(super) number: i32,
    pub(super) request_hash: Vec<u8>,
}

/// Returns the stored attempts, by log, that have the id or the number of one of these.
pub(super) async fn stored_attempts(
    connection: &mut PgConnection,
    project: &str,
    attempts: &[AttemptRow<'_>],
) -> sqlx::Result<HashMap<Uuid, Vec<StoredAttempt>>> {
    const SQL: &str = "
        with sought as materialized (
            select unnest($2::uuid[]) as generation_id, unnest($3::uuid[]) as id, unnest($4::int[]) as number
        )
        select a.generation_id, a.id, a.attempt, a.request_hash from sought
        join attempts a on a.project = $1 and a.generation_id = sought.generation_id and a.id = sought.id
        union
        select a.generation_id, a.id, a.attempt, a.request_hash from sought
        join attempts a on a.project = $1 and a.generation_id = sought.generation_id and a.attempt = sought.number";
    let rows: Vec<(Uuid, Uuid, i32, Vec<u8>)> = sqlx::query_as(SQL)
        .bind(project)
        .bind(attempts.iter().map(|attempt| attempt.log).collect::<Vec<_>>())
        .bind(attempts.iter().map(|attempt| attempt.append.id).collect::<Vec<_>>())
        .bind(attempts.iter().map(|attempt| attempt.append.number).collect::<Vec<_>>())
        .fetch_all(connection)
        .await?;
    let mut stored: HashMap<Uuid, Vec<StoredAttempt>> = HashMap::new();
    for (log, id, number, request_hash) in rows {
        stored.entry(log).or_default().push(StoredAttempt { id, number, request_hash });
    }
    Ok(stored)
}

/// A log that is locked.
pub(super) struct LockedLog {
    /// Whether the log is finalized.
    pub(super) finalized: bool,
    /// The hash of the request that finalized the log.
    pub(super) outcome_hash: Option<Vec<u8>>,
    /// The database's time when the log was locked.
    pub(super) now: Timestamp,
}

/// Locks logs in the order of their ids, so that two transactions that lock the same ones wait for each other
/// instead of forming a deadlock.
pub(super) async fn lock(
    connection: &mut PgConnection,
    project: &str,
    ids: &[Uuid],
) -> sqlx::Result<HashMap<Uuid, LockedLog>> {
    const SQL: &str = "
        select id, completed_at is not null, outcome_hash, clock_timestamp() from generations
        where project = $1 and id = any($2) order by id for no key update";
    let rows: Vec<(Uuid, bool, Option<Vec<u8>>, Timestamp)> =
        sqlx::query_as(SQL).bind(project).bind(ids).fetch_all(connection).await?;
    let log = |(id, finalized, outcome_hash, now)| (id, LockedLog { finalized, outcome_hash, now });
    Ok(rows.into_iter().map(log).collect())
}

/// A row of a log's outcome.
pub(super) struct OutcomeRow<'a> {
    pub(super) id: Uuid,
    pub(super) outcome: &'a Outcome,
    pub(super) hash: &'a [u8],
    pub(super) completed_at: Timestamp,
}

columns! {
    /// The columns that finalizing a log sets.
    struct Outcomes<'a>(OutcomeRow<'a>);
    |row| {
        "id": "uuid" = row.id,
        "success": "bool" = row.outcome.success,
        "final_valid_dsl": "text" = row.outcome.final_valid_dsl.as_deref(),
        "instance_id": "text" = row.outcome.instance_id.as_deref(),
        "error": "text" = row.outcome.error.as_deref(),
        "outcome_hash": "bytea" = row.hash,
        "completed_at": "timestamptz" = row.completed_at,
    }
}

/// Finalizes logs that are locked and open, and stores the correction pairs that they teach. Returns the ids
/// of those finalized. A success without a program needs an attempt that passed.
pub(super) async fn finalize(
    connection: &mut PgConnection,
    project: &str,
    outcomes: &[OutcomeRow<'_>],
) -> sqlx::Result<HashSet<Uuid>> {
    static SQL: LazyLock<String> = LazyLock::new(|| {
        format!(
            "with new as materialized (select {unnested})
            update generations g
            set success = new.success, final_valid_dsl = nullif(coalesce(new.final_valid_dsl, last.program), ''),
                error = new.error, instance_id = coalesce(new.instance_id, g.instance_id),
                outcome_hash = new.outcome_hash, completed_at = new.completed_at
            from new
            left join lateral (
                select a.extracted_dsl as program, a.passed from attempts a
                where a.project = $1 and a.generation_id = new.id and a.passed
                    and new.success and new.final_valid_dsl is null
                order by a.attempt desc limit 1
            ) last on true
            where g.project = $1 and g.id = new.id
                and (not new.success or new.final_valid_dsl is not null or last.passed)
            returning g.id, g.success",
            unnested = insert::unnested::<Outcomes>(2),
        )
    });
    if outcomes.is_empty() {
        return Ok(HashSet::new());
    }
    let parameters = insert::parameters(project, |parameters| Outcomes::bind_all(outcomes, parameters))?;
    let done: Vec<(Uuid, bool)> =
        sqlx::query_as_with(SQL.as_str(), parameters).fetch_all(&mut *connection).await?;
    let succeeded: Vec<_> = done.iter().filter(|(_, success)| *success).map(|(id, _)| *id).collect();
    insert_pairs(connection, project, &succeeded).await?;
    Ok(done.into_iter().map(|(id, _)| id).collect())
}

/// A row of a review.
pub(super) struct ReviewRow<'a> {
    pub(super) id: Uuid,
    pub(super) review: &'a NewReview,
    pub(super) at: Timestamp,
}

columns! {
    /// The columns that reviewing a log sets.
    struct Reviews<'a>(ReviewRow<'a>);
    |row| {
        "id": "uuid" = row.id,
        "rating": "text" = row.review.rating,
        "reviewer": "text" = row.review.reviewer.as_deref(),
        "review_note": "text" = row.review.note.as_deref(),
        "corrected_dsl": "text" = row.review.corrected_dsl.as_deref(),
        "reviewed_at": "timestamptz" = row.at,
    }
}

/// Reviews logs. Returns the ids of those that exist.
pub(super) async fn review(
    connection: &mut PgConnection,
    project: &str,
    reviews: &[ReviewRow<'_>],
) -> sqlx::Result<HashSet<Uuid>> {
    static SQL: LazyLock<String> = LazyLock::new(|| {
        format!(
            "with new as materialized (select {unnested})
            update generations g
            set rating = new.rating, reviewer = new.reviewer, review_note = new.review_note,
                corrected_dsl = new.corrected_dsl, reviewed_at = new.reviewed_at
            from new where g.project = $1 and g.id = new.id
            returning g.id",
            unnested = insert::unnested::<Reviews>(2),
        )
    });
    let parameters = insert::parameters(project, |parameters| Reviews::bind_all(reviews, parameters))?;
    let reviewed: Vec<Uuid> = sqlx::query_scalar_with(SQL.as_str(), parameters).fetch_all(connection).await?;
    Ok(reviewed.into_iter().collect())
}

/// Stores which attempts of these logs teach a correction, by each of the pairing rules. `step` has the
/// attempts with a program. Two equal programs teach nothing.
pub(super) async fn insert_pairs(
    connection: &mut PgConnection,
    project: &str,
    logs: &[Uuid],
) -> sqlx::Result<()> {
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
