//! The statements that add calls to sends, and end sends.

use std::collections::{HashMap, HashSet};
use std::sync::LazyLock;

use sqlx::PgConnection;
use sqlx::types::Json;
use uuid::Uuid;

use crate::db::insert::{self, Columns as _, columns};
use crate::messages::rules::estimate::{Learned, Length, Lesson, MEMORY};
use crate::messages::rules::trimming::Stage;
use crate::messages::{SendError, State};
use crate::types::{FreeForm, Timestamp};

/// A row of a call that has ended.
pub(in crate::messages) struct AttemptRow<'a> {
    pub(in crate::messages) send: Uuid,
    pub(in crate::messages) attempt: i32,
    pub(in crate::messages) line_id: Option<Uuid>,
    pub(in crate::messages) model: &'a str,
    pub(in crate::messages) stage: Stage,
    pub(in crate::messages) trimmed_count: i32,
    pub(in crate::messages) history: i64,
    pub(in crate::messages) total: i64,
    pub(in crate::messages) error: Option<&'a SendError>,
    pub(in crate::messages) overflow: bool,
    pub(in crate::messages) usage: Option<&'a FreeForm>,
    pub(in crate::messages) tokens: i64,
    pub(in crate::messages) latency_ms: Option<i32>,
    pub(in crate::messages) at: Timestamp,
    pub(in crate::messages) hash: &'a [u8],
    /// The number of pairs dropped after the call.
    pub(in crate::messages) trimmed_after: i32,
    /// The tokens of the prompt and of the answer that the provider reported.
    pub(in crate::messages) reported: (Option<i64>, Option<i64>),
}

columns! {
    /// The columns of a call.
    struct Attempts<'a>(AttemptRow<'a>);
    |row| {
        "send_id": "uuid" = row.send,
        "attempt": "int" = row.attempt,
        "line_id": "uuid" = row.line_id,
        "model": "text" = row.model,
        "stage": "text" = row.stage,
        "trimmed_count": "int" = row.trimmed_count,
        "attempt_history_tokens": "bigint" = row.history,
        "attempt_total_tokens": "bigint" = row.total,
        "error": "jsonb" as "json" = row.error.map(Json),
        "overflow": "bool" = row.overflow,
        "usage": "jsonb" as "json" = row.usage.map(Json),
        "tokens": "bigint" = row.tokens,
        "latency_ms": "int" = row.latency_ms,
        "at": "timestamptz" = row.at,
        "request_hash": "bytea" = row.hash,
    }
}

columns! {
    /// What a call changes of its send.
    struct Progress<'a>(AttemptRow<'a>);
    |row| {
        "id": "uuid" = row.send,
        "attempts_used": "int" = row.attempt,
        "stage": "text" = row.stage,
        "trimmed_count": "int" = row.trimmed_after,
        "error": "jsonb" as "json" = row.error.map(Json),
        "error_class": "text" = row.error.map(|error| error.class),
        "overflow_matched": "bool" = row.error.map(|_| row.overflow),
        "usage": "jsonb" as "json" = row.usage.map(Json),
        "input_tokens": "bigint" = row.reported.0,
        "output_tokens": "bigint" = row.reported.1,
    }
}

/// Returns the statement that adds the calls for which a condition on `new` holds, with its columns' parameters from `first`
/// on.
fn insert_attempts_from(first: usize, condition: &str) -> String {
    format!(
        "insert into send_attempts (project, {names})
        select $1, {values} from (select {unnested}) new where {condition}",
        names = insert::names::<Attempts>(),
        values = insert::values::<Attempts>("new"),
        unnested = insert::unnested::<Attempts>(first),
    )
}

/// Adds calls, each to another send.
pub(in crate::messages) async fn insert_attempts(
    connection: &mut PgConnection,
    project: &str,
    attempts: &[AttemptRow<'_>],
) -> sqlx::Result<()> {
    static INSERT: LazyLock<String> = LazyLock::new(|| insert_attempts_from(2, "true"));
    if attempts.is_empty() {
        return Ok(());
    }
    let parameters = insert::parameters(project, |parameters| Attempts::bind_all(attempts, parameters))?;
    sqlx::query_with(INSERT.as_str(), parameters).execute(connection).await?;
    Ok(())
}

/// Updates locked sends with the results of these calls.
pub(in crate::messages) async fn note_attempts(
    connection: &mut PgConnection,
    project: &str,
    attempts: &[AttemptRow<'_>],
) -> sqlx::Result<()> {
    static UPDATE: LazyLock<String> = LazyLock::new(|| {
        format!(
            "with new as materialized (select {unnested})
            update sends s set attempts_used = new.attempts_used, stage = new.stage, trimmed_count = new.trimmed_count,
                error = coalesce(new.error, s.error), error_class = coalesce(new.error_class, s.error_class),
                overflow_matched = coalesce(new.overflow_matched, s.overflow_matched),
                usage = coalesce(new.usage, s.usage), input_tokens = coalesce(new.input_tokens, s.input_tokens),
                output_tokens = coalesce(new.output_tokens, s.output_tokens)
            from new where s.project = $1 and s.id = new.id",
            unnested = insert::unnested::<Progress>(2),
        )
    });
    if attempts.is_empty() {
        return Ok(());
    }
    let parameters = insert::parameters(project, |parameters| Progress::bind_all(attempts, parameters))?;
    sqlx::query_with(UPDATE.as_str(), parameters).execute(connection).await?;
    Ok(())
}

/// A stored call that has the number or the id of a reported one.
#[derive(sqlx::FromRow)]
pub(in crate::messages) struct StoredAttempt {
    #[sqlx(rename = "send_id")]
    pub(in crate::messages) send: Uuid,
    #[sqlx(rename = "attempt")]
    pub(in crate::messages) number: i32,
    pub(in crate::messages) request_hash: Vec<u8>,
}

/// Returns the stored calls with these numbers, or these ids, of sends.
pub(in crate::messages) async fn stored_attempts(
    connection: &mut PgConnection,
    project: &str,
    calls: &[(Uuid, Option<i32>, Option<Uuid>)],
) -> sqlx::Result<HashMap<Uuid, StoredAttempt>> {
    const SQL: &str = "
        with sought as materialized (
            select unnest($2::uuid[]) as send_id, unnest($3::int[]) as attempt, unnest($4::uuid[]) as line_id)
        select a.send_id, a.attempt, a.request_hash from sought
        join send_attempts a on a.project = $1 and a.send_id = sought.send_id
            and (a.attempt = sought.attempt or sought.attempt is null and a.line_id = sought.line_id)";
    let sends: Vec<_> = calls.iter().map(|(send, ..)| *send).collect();
    let numbers: Vec<_> = calls.iter().map(|(_, number, _)| *number).collect();
    let ids: Vec<_> = calls.iter().map(|(.., id)| *id).collect();
    let query = sqlx::query_as(SQL).bind(project).bind(sends).bind(numbers).bind(ids);
    let stored: Vec<StoredAttempt> = query.fetch_all(connection).await?;
    Ok(stored.into_iter().map(|attempt| (attempt.send, attempt)).collect())
}

/// A row of a send that ends.
pub(in crate::messages) struct EndRow<'a> {
    pub(in crate::messages) id: Uuid,
    pub(in crate::messages) pair_id: Uuid,
    pub(in crate::messages) stage: Stage,
    /// The number of calls that were reported before.
    pub(in crate::messages) attempts_before: i32,
    pub(in crate::messages) attempts_used: i32,
    pub(in crate::messages) trimmed_count: i32,
    pub(in crate::messages) overflow: Option<bool>,
    pub(in crate::messages) error: Option<SendError>,
    pub(in crate::messages) assistant_text: Option<&'a str>,
    pub(in crate::messages) tool_calls: Option<&'a serde_json::value::RawValue>,
    pub(in crate::messages) assistant: Length,
    pub(in crate::messages) usage: Option<&'a FreeForm>,
    pub(in crate::messages) reported: (Option<i64>, Option<i64>),
    pub(in crate::messages) finish_reason: Option<&'a str>,
    pub(in crate::messages) is_partial: bool,
    pub(in crate::messages) hash: &'a [u8],
}

columns! {
    /// What the end of a send sets.
    struct Ends<'a>(EndRow<'a>);
    |row| {
        "id": "uuid" = row.id,
        "pair_id": "uuid" = row.pair_id,
        "state": "text" = if row.error.is_some() { State::Error } else { State::Complete },
        "stage": "text" = row.stage,
        "attempts_before": "int" = row.attempts_before,
        "attempts_used": "int" = row.attempts_used,
        "trimmed_count": "int" = row.trimmed_count,
        "overflow_matched": "bool" = row.overflow,
        "error": "jsonb" as "json" = row.error.as_ref().map(Json),
        "error_class": "text" = row.error.as_ref().map(|error| error.class),
        "assistant_text": "text" = row.assistant_text,
        "tool_calls": "jsonb" as "json" = row.tool_calls.map(Json),
        "assistant_chars": "bigint" = row.assistant.chars,
        "assistant_units": "float8" = row.assistant.units,
        "usage": "jsonb" as "json" = row.usage.map(Json),
        "input_tokens": "bigint" = row.reported.0,
        "output_tokens": "bigint" = row.reported.1,
        "finish_reason": "text" = row.finish_reason,
        "is_partial": "bool" = row.is_partial,
        "outcome_hash": "bytea" = row.hash,
    }
}

columns! {
    /// What a send teaches about its model.
    struct Lessons<'a>((Uuid, &'a str, Lesson));
    |row| {
        "send": "uuid" = row.0,
        "model": "text" = row.1,
        "units": "float8" = row.2.units,
        "tokens": "float8" = row.2.tokens,
    }
}

/// What was written when sends ended.
#[derive(Default)]
pub(in crate::messages) struct Ended {
    /// The ids of the sends that have ended now. Others were not as they were taken to be, and nothing was written of them.
    pub(in crate::messages) sends: HashSet<Uuid>,
    /// What is known now of the models of which something was known before. Of others, nothing was noted.
    pub(in crate::messages) learned: HashMap<String, Learned>,
}

/// Ends sends and their pairs; adds the calls that they end with, and what is learned of their models. A send that has ended
/// or was called meanwhile is left as it is. It is a single statement, since an answer of the gateway waits for it.
pub(in crate::messages) async fn end_sends(
    connection: &mut PgConnection,
    project: &str,
    attempts: &[AttemptRow<'_>],
    ends: &[EndRow<'_>],
    lessons: &[(Uuid, &str, Lesson)],
) -> sqlx::Result<Ended> {
    // Exports are ordered by the time of completion, which comes from the database's clock and is different for each send.
    static SQL: LazyLock<String> = LazyLock::new(|| {
        let of_ends = 2 + Attempts::COLUMNS.len();
        format!(
            "with new as materialized (
                select given.*, (select clock_timestamp()) + ordinal * interval '1 microsecond' as completed_at
                from (select {ends}, generate_subscripts(${of_ends}, 1) as ordinal) given
            ),
            ended as (
                update sends s set state = new.state, stage = new.stage, attempts_used = new.attempts_used,
                    trimmed_count = new.trimmed_count,
                    overflow_matched = coalesce(new.overflow_matched, s.overflow_matched),
                    error = coalesce(new.error, s.error), error_class = coalesce(new.error_class, s.error_class),
                    usage = coalesce(new.usage, s.usage), input_tokens = coalesce(new.input_tokens, s.input_tokens),
                    output_tokens = coalesce(new.output_tokens, s.output_tokens), finish_reason = new.finish_reason,
                    outcome_hash = new.outcome_hash, completed_at = new.completed_at, lease_until = null
                from new where s.project = $1 and s.id = new.id and s.state = 'sending'
                    and s.attempts_used = new.attempts_before
                returning s.id
            ),
            calls as ({attempts}),
            answered as (
                update pairs p set lifecycle_state = new.state, error = new.error, assistant_text = new.assistant_text,
                    tool_calls = new.tool_calls, is_partial = new.is_partial, assistant_chars = new.assistant_chars,
                    assistant_units = new.assistant_units,
                    completed_at = case when new.state = 'complete' then new.completed_at end
                from new join ended on ended.id = new.id
                where p.project = $1 and p.id = new.pair_id and p.send_id = new.id
            ),
            {learned}
            select id, null as model, 0::float8 as ratio, 0::float8 as weight from ended
            union all select null, model, ratio, weight from learned",
            ends = insert::unnested::<Ends>(of_ends),
            attempts = insert_attempts_from(2, "new.send_id in (select id from ended)"),
            learned = learn_from(of_ends + Ends::COLUMNS.len(), "given.send in (select id from ended)"),
        )
    });
    let mut ended = Ended::default();
    if ends.is_empty() {
        return Ok(ended);
    }
    let parameters = insert::parameters(project, |parameters| {
        Attempts::bind_all(attempts, parameters)?;
        Ends::bind_all(ends, parameters)?;
        Lessons::bind_all(lessons, parameters)
    })?;
    let rows: Vec<(Option<Uuid>, Option<String>, f64, f64)> =
        sqlx::query_as_with(SQL.as_str(), parameters).fetch_all(connection).await?;
    for (send, model, ratio, weight) in rows {
        ended.sends.extend(send);
        ended.learned.extend(model.map(|model| (model, Learned { ratio, weight })));
    }
    Ok(ended)
}

/// Returns the parts of a `with` statement that note the lessons for which a condition on `given` holds, if something was
/// learned of their models before; the last of them is `learned`. The columns' parameters are from `first` on.
fn learn_from(first: usize, condition: &str) -> String {
    // Models are locked in the order of their names, so that two writers wait for each other.
    format!(
        "lessons as materialized (
            select model, sum(units) as units, sum(tokens) as tokens from (select {lessons}) given
            where {condition} group by model
        ),
        locked as materialized (
            select model from model_ratios where project = $1 and model in (select model from lessons)
            order by model for no key update
        ),
        learned as (
            update model_ratios r set ratio = (r.ratio * r.weight + lessons.tokens) / (r.weight + lessons.units),
                weight = least(r.weight + lessons.units, {MEMORY})
            from lessons join locked on locked.model = lessons.model
            where r.project = $1 and r.model = lessons.model
            returning r.model, r.ratio, r.weight
        )",
        lessons = insert::unnested::<Lessons>(first),
    )
}

/// Notes what was learned of models of which nothing was learned before. Returns what is known of them now.
pub(in crate::messages) async fn begin_learning(
    connection: &mut PgConnection,
    project: &str,
    lessons: &[(Uuid, &str, Lesson)],
) -> sqlx::Result<HashMap<String, Learned>> {
    const BEGIN: &str = "
        insert into model_ratios (project, model, ratio, weight)
        select distinct $1, model, $3::float8, $4::float8 from unnest($2::text[]) model order by model
        on conflict do nothing";
    static SQL: LazyLock<String> =
        LazyLock::new(|| format!("with {} select model, ratio, weight from learned", learn_from(2, "true")));
    let models: Vec<_> = lessons.iter().map(|(_, model, _)| *model).collect();
    let Learned { ratio, weight } = Learned::default();
    sqlx::query(BEGIN).bind(project).bind(models).bind(ratio).bind(weight).execute(&mut *connection).await?;
    let parameters = insert::parameters(project, |parameters| Lessons::bind_all(lessons, parameters))?;
    let rows: Vec<(String, f64, f64)> =
        sqlx::query_as_with(SQL.as_str(), parameters).fetch_all(connection).await?;
    Ok(rows.into_iter().map(|(model, ratio, weight)| (model, Learned { ratio, weight })).collect())
}
