//! The statements that add attempts to logs, and find those that are there.

use std::collections::{HashMap, HashSet};
use std::sync::LazyLock;

use sqlx::PgConnection;
use sqlx::types::Json;
use uuid::Uuid;

use super::{Append, MOST_ATTEMPTS};
use crate::db::insert::{self, Columns as _, columns};
use crate::types::FreeForm;

/// Returns the condition that a log has its most attempts.
fn is_full(log: &str) -> String {
    let last = MOST_ATTEMPTS - 1;
    let of_log = format!("from attempts a where a.project = $1 and a.generation_id = {log}");
    // The greatest number tells of nearly all logs that they have fewer.
    format!(
        "(case when (select max(a.attempt) {of_log}) > {last} then exists (select {of_log} offset {last}) else false end)"
    )
}

/// A row of an attempt to be added to a log.
#[derive(Clone, Copy)]
pub(super) struct AttemptRow<'a> {
    /// The id of the log.
    pub(super) log: Uuid,
    /// The attempt.
    pub(super) append: &'a Append,
}

columns! {
    /// The columns that decide to which log an attempt is added and which number it gets.
    struct AttemptKeys<'a>(AttemptRow<'a>);
    |row| {
        "generation_id": "uuid" = row.log,
        "number": "int" = row.append.number,
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
/// whose id or number is taken, and attempts to a log that does not exist, is not open or is full. Attempts without a number get the
/// next ones, in their order; one that is left out takes none.
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
                coalesce(new.number, (
                    select coalesce(max(a.attempt), 0) from attempts a
                    where a.project = $1 and a.generation_id = new.generation_id)
                    + row_number() over (partition by new.generation_id, new.number is null order by new.ordinal)),
                {values}
            from new
            where (new.generation_id in (select id from log)) is true and (new.number is not null or (
                select a.id from attempts a
                where a.project = $1 and a.generation_id = new.generation_id and a.id = new.id) is null)
            order by new.ordinal
            on conflict do nothing
            returning generation_id, id, attempt",
            keys = insert::unnested::<AttemptKeys>(2),
            unnested = insert::unnested::<Attempts>(4),
            names = insert::names::<Attempts>(),
            values = insert::values::<Attempts>("new"),
        )
    }
    static INTO_OPEN: LazyLock<String> = LazyLock::new(|| {
        let is_full = is_full("g.id");
        many(&format!(
            "select g.id from generations g
            where g.project = $1 and g.id = any($2) and g.completed_at is null and not {is_full}
            order by g.id for no key update"
        ))
    });
    static INTO_NEW: LazyLock<String> = LazyLock::new(|| many("select distinct unnest($2) as id"));
    /// The statement for a single attempt, the usual case on a server with little to do. It does half the
    /// work of the statement for many.
    static ONE: LazyLock<String> = LazyLock::new(|| {
        format!(
            "insert into attempts (project, generation_id, attempt, {names})
            select $1, g.id,
                coalesce($3, (
                    select coalesce(max(a.attempt), 0) + 1 from attempts a where a.project = $1 and a.generation_id = $2)),
                {value}
            from generations g where g.project = $1 and g.id = $2 and g.completed_at is null and not {is_full}
            for no key update
            on conflict do nothing
            returning generation_id, id, attempt",
            is_full = is_full("$2"),
            names = insert::names::<Attempts>(),
            value = insert::value::<Attempts>(4),
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

/// Returns which of these logs have their most attempts.
pub(super) async fn full(
    connection: &mut PgConnection,
    project: &str,
    logs: &[Uuid],
) -> sqlx::Result<HashSet<Uuid>> {
    static SQL: LazyLock<String> = LazyLock::new(|| {
        let is_full = is_full("log.id");
        format!("select log.id from (select distinct unnest($2) as id) log where {is_full}")
    });
    let full: Vec<Uuid> =
        sqlx::query_scalar(SQL.as_str()).bind(project).bind(logs).fetch_all(connection).await?;
    Ok(full.into_iter().collect())
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
