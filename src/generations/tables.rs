//! The statements that write generation logs; those that write attempts are in `append`. Where there can be many rows, they
//! take a column as an array (see [`insert`](mod@insert)).

use std::collections::{HashMap, HashSet};
use std::sync::LazyLock;

use sqlx::PgConnection;
use sqlx::types::Json;
use uuid::Uuid;

use super::{Amendment, NewReview, Outcome, Start, pairs};
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
            set success = new.success, final_valid_dsl = case when has_text(given.program) then given.program end,
                error = new.error, instance_id = coalesce(new.instance_id, g.instance_id),
                outcome_hash = new.outcome_hash, completed_at = new.completed_at
            from new
            left join lateral (
                select a.extracted_dsl as program, a.passed from attempts a
                where a.project = $1 and a.generation_id = new.id and a.passed
                    and new.success and new.final_valid_dsl is null
                order by a.attempt desc limit 1
            ) last on true
            cross join lateral (select coalesce(new.final_valid_dsl, last.program) as program) given
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
    pairs::insert(connection, project, &succeeded).await?;
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

/// Reviews logs, which are locked in the order of their ids. Returns the ids of those that exist.
pub(super) async fn review(
    connection: &mut PgConnection,
    project: &str,
    reviews: &[ReviewRow<'_>],
) -> sqlx::Result<HashSet<Uuid>> {
    static SQL: LazyLock<String> = LazyLock::new(|| {
        format!(
            "with log as materialized (
                select g.id from generations g where g.project = $1 and g.id = any($2) order by g.id for no key update
            ),
            new as materialized (select {unnested})
            update generations g
            set rating = new.rating, reviewer = new.reviewer, review_note = new.review_note,
                corrected_dsl = new.corrected_dsl, reviewed_at = new.reviewed_at
            from new where g.project = $1 and g.id = new.id and (new.id in (select id from log)) is true
            returning g.id",
            unnested = insert::unnested::<Reviews>(2),
        )
    });
    let parameters = insert::parameters(project, |parameters| Reviews::bind_all(reviews, parameters))?;
    let reviewed: Vec<Uuid> = sqlx::query_scalar_with(SQL.as_str(), parameters).fetch_all(connection).await?;
    Ok(reviewed.into_iter().collect())
}

columns! {
    /// The columns that amending a log sets, where they are not null.
    struct Amendments<'a>((Uuid, &'a Amendment));
    |row| {
        "id": "uuid" = row.0,
        "instance_id": "text" = row.1.instance_id.as_deref(),
        "cbu_id": "text" = row.1.cbu_id.as_deref(),
        "metadata": "jsonb" = row.1.metadata.as_ref().map(Json),
    }
}

/// Amends logs, which are locked in the order of their ids. Returns the ids of those that exist.
pub(super) async fn amend(
    connection: &mut PgConnection,
    project: &str,
    amendments: &[(Uuid, &Amendment)],
) -> sqlx::Result<HashSet<Uuid>> {
    static SQL: LazyLock<String> = LazyLock::new(|| {
        format!(
            "with log as materialized (
                select g.id from generations g where g.project = $1 and g.id = any($2) order by g.id for no key update
            ),
            new as materialized (select {unnested})
            update generations g
            set instance_id = coalesce(new.instance_id, g.instance_id), cbu_id = coalesce(new.cbu_id, g.cbu_id),
                metadata = coalesce(new.metadata, g.metadata)
            from new where g.project = $1 and g.id = new.id and (new.id in (select id from log)) is true
            returning g.id",
            unnested = insert::unnested::<Amendments>(2),
        )
    });
    let parameters = insert::parameters(project, |parameters| Amendments::bind_all(amendments, parameters))?;
    let amended: Vec<Uuid> = sqlx::query_scalar_with(SQL.as_str(), parameters).fetch_all(connection).await?;
    Ok(amended.into_iter().collect())
}
