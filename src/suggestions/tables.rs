//! The statements that write suggestion records. Those for many rows take a column as an array (see
//! [`insert`](mod@insert)).

mod activity;

use std::collections::{HashMap, HashSet};
use std::sync::LazyLock;

use futures_util::stream::BoxStream;
use sqlx::PgConnection;
use sqlx::types::Json;
use uuid::Uuid;

use super::event::{Ending, count};
use super::rules::outcome::{Conclusion, Label};
use super::{Amendment, MatchType, Start, State};
use crate::db::insert::{self, Columns as _, columns};
use crate::privacy::hash_key::{HASH, HashKey};
use crate::types::{FreeForm, Timestamp};

pub(super) use activity::{
    Append, Counts, Looked, append, each_looks, highest, stored_activities, stored_counts,
};

/// Writes numbers as a Postgres array in text, because an array of arrays would have to be rectangular.
fn array<T: ToString>(numbers: &[T]) -> String {
    let numbers: Vec<_> = numbers.iter().map(ToString::to_string).collect();
    format!("{{{}}}", numbers.join(","))
}

fn json(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).expect("texts and numbers are JSON")
}

/// A row of a record that begins.
pub(super) struct StartRow<'a> {
    pub(super) id: Uuid,
    pub(super) start: &'a Start,
}

impl<'a> StartRow<'a> {
    /// Returns one of the record's texts, if texts are kept.
    fn text<T>(&self, text: impl FnOnce(&'a Start) -> Option<T>) -> Option<T> {
        text(self.start).filter(|_| self.start.keeps_text())
    }

    /// Returns a part of the outcome, if the record has ended.
    fn end<T>(&self, part: impl FnOnce(&'a Conclusion) -> T) -> Option<T> {
        self.start.conclusion.as_ref().map(part)
    }
}

columns! {
    /// The columns of a record that begins. Of a discarded record only the id is kept.
    struct Starts<'a>(StartRow<'a>);
    |row| {
        "id": "uuid" = row.id,
        "state": "text" = row.start.state(),
        "context": "text" as "json" = row.text(|start| Some(start.new.context.as_str())),
        "llm_request": "text" as "json" = row.text(|start| start.new.llm_request.as_ref().map(FreeForm::as_str)),
        "llm_response": "text" as "json" = row.text(|start| start.new.llm_response.as_ref().map(FreeForm::as_str)),
        "failed": "bool" = row.start.facts.failed && row.start.is_kept(),
        "error": "text" = row.text(|start| start.new.failure()),
        "suggestions": "text" as "json" = row.text(|start| Some(json(&start.new.suggestions))),
        "suggestion_count": "int" = count(&row.start.new.suggestions),
        "suggestion_node_version": "text" = row.start.new.suggestion_node_version.as_deref(),
        "session_name": "text" = row.start.new.session_name.as_deref(),
        "server_name": "text" = row.start.new.server_name.as_deref(),
        "trigger_block_number": "int" = row.start.new.trigger_block_number,
        "result_block_number": "int" = row.start.new.result_block_number,
        "policy_id": "text" = row.start.new.policy_id.as_deref(),
        "propensities": "text" as "float8[]" = row.start.new.propensities.as_deref().map(array),
        "context_block_count": "int" = row.start.facts.context_block_count,
        "model": "text" = row.start.facts.model.as_deref(),
        "temperature": "float8" = row.start.facts.temperature,
        "total_tokens": "bigint" = row.start.facts.tokens.total,
        "prompt_tokens": "bigint" = row.start.facts.tokens.prompt,
        "completion_tokens": "bigint" = row.start.facts.tokens.completion,
        "fetch_start_ts": "float8" = row.start.new.fetch_start_ts,
        "fetch_end_ts": "float8" = row.start.new.fetch_end_ts,
        "submit_ts": "float8" = row.start.new.submit_ts,
        "created_at": "timestamptz" = row.start.created_at,
        "viewed_indices": "text" as "int[]" = row.end(|end| array(&end.viewed_indices)),
        "cycle_count": "int" = row.end(|end| end.cycle_count),
        "cycled_back": "bool" = row.end(Conclusion::cycled_back),
        "displayed_index": "int" = row.end(|end| end.displayed_index),
        "actual_input": "text" = row.text(|start| start.new.actual_input.as_deref()),
        "match_type": "text" = row.end(|end| end.match_type.map(MatchType::as_str)).flatten(),
        "accepted_index": "int" = row.end(|end| end.accepted_index).flatten(),
        "time_to_action_ms": "float8" = row.end(|end| end.time_to_action_ms).flatten(),
        "reported": "text" as "json" = row.start.reported.as_ref().filter(|_| row.start.is_kept()).map(json),
        "request_hash": "bytea" = row.start.hash.as_slice(),
        "outcome_hash": "bytea" = row.start.outcome_hash.as_deref(),
        "request_is_readable": "bool" =
            row.text(|start| Some(start.facts.request_is_readable)).unwrap_or_default(),
        "prompt_hash": "uuid" = row.text(|start| Some(start.facts.prompt_hash)),
        "context_hash": "uuid" = row.text(|start| Some(start.facts.context_hash)),
        "example_hash": "uuid" = row.end(|end| end.example_hash).flatten(),
        "slate_hash": "uuid" = row.end(|end| end.slate_hash).flatten(),
        "suggestion_hashes": "bytea" = row.start.hashes().map(|hashes| hashes.suggestions.as_slice()),
        "actual_input_hash": "bytea" = row.start.hashes().and_then(|hashes| hashes.input.as_ref().map(<[u8; HASH]>::as_slice)),
    }
}

/// Inserts records. Returns the ids of those that did not exist yet. Records are inserted in the order of
/// their ids, which prevents deadlocks, and finalized a microsecond apart, so that exports can be ordered by
/// that time.
pub(super) async fn insert(
    connection: &mut PgConnection,
    project: &str,
    starts: &[StartRow<'_>],
) -> sqlx::Result<HashSet<Uuid>> {
    static SQL: LazyLock<String> = LazyLock::new(|| {
        format!(
            "insert into suggestions (project, {names}, completed_at)
            select $1, {values},
                case when new.state <> 'pending' then (select clock_timestamp()) + new.ordinal * interval '1 microsecond' end
            from (select {unnested}, generate_subscripts($2, 1) as ordinal) new
            order by new.id
            on conflict do nothing
            returning id, completed_at",
            names = insert::names::<Starts>(),
            values = insert::values::<Starts>("new"),
            unnested = insert::unnested::<Starts>(2),
        )
    });
    let parameters = insert::parameters(project, |parameters| Starts::bind_all(starts, parameters))?;
    let created: Vec<(Uuid, Option<Timestamp>)> =
        sqlx::query_as_with(SQL.as_str(), parameters).fetch_all(&mut *connection).await?;
    let completed: HashMap<_, _> = created.iter().filter_map(|&(id, at)| Some((id, at?))).collect();
    let labels = starts.iter().filter_map(|row| {
        let conclusion = row.start.conclusion.as_ref()?;
        Some(label_rows(row.id, *completed.get(&row.id)?, conclusion))
    });
    insert_labels(connection, project, &labels.flatten().collect::<Vec<_>>()).await?;
    Ok(created.into_iter().map(|(id, _)| id).collect())
}

/// A row of a text that was chosen or rejected.
struct LabelRow<'a> {
    suggestion_id: Uuid,
    completed_at: Timestamp,
    label: &'a Label,
}

fn label_rows(suggestion_id: Uuid, completed_at: Timestamp, conclusion: &Conclusion) -> Vec<LabelRow<'_>> {
    conclusion.labels.iter().map(|label| LabelRow { suggestion_id, completed_at, label }).collect()
}

columns! {
    /// The columns of a text that was chosen or rejected.
    struct Labels<'a>(LabelRow<'a>);
    |row| {
        "completed_at": "timestamptz" = row.completed_at,
        "suggestion_id": "uuid" = row.suggestion_id,
        "rejected_index": "int" = row.label.rejected_index,
        "label_hash": "uuid" = row.label.label_hash,
        "pair_hash": "uuid" = row.label.pair_hash,
    }
}

/// Stores which texts were chosen and rejected in records that this transaction has finalized.
async fn insert_labels(
    connection: &mut PgConnection,
    project: &str,
    labels: &[LabelRow<'_>],
) -> sqlx::Result<()> {
    static SQL: LazyLock<String> = LazyLock::new(|| {
        format!(
            "insert into preference_labels (project, {names}) select $1, {unnested}",
            names = insert::names::<Labels>(),
            unnested = insert::unnested::<Labels>(2),
        )
    });
    if !labels.is_empty() {
        let parameters = insert::parameters(project, |parameters| Labels::bind_all(labels, parameters))?;
        sqlx::query_with(SQL.as_str(), parameters).execute(connection).await?;
    }
    Ok(())
}

/// A locked record, with what later events depend on.
#[derive(Debug, sqlx::FromRow)]
pub(super) struct Locked {
    pub(super) id: Uuid,
    pub(super) state: State,
    pub(super) suggestion_count: i32,
    /// Whether the suggestions are kept as texts.
    pub(super) has_texts: bool,
    pub(super) suggestion_hashes: Option<Vec<u8>>,
    pub(super) fetch_end_ts: Option<f64>,
    pub(super) prompt_hash: Option<Uuid>,
    pub(super) context_hash: Option<Uuid>,
    pub(super) outcome_hash: Option<Vec<u8>>,
    /// The database's time when the record was locked.
    pub(super) now: Timestamp,
}

/// Locks records in the order of their ids, so that two transactions that lock the same ones wait for each
/// other instead of forming a deadlock.
pub(super) async fn lock(
    connection: &mut PgConnection,
    project: &str,
    ids: &[Uuid],
) -> sqlx::Result<HashMap<Uuid, Locked>> {
    const SQL: &str = "
        select id, state, suggestion_count, suggestions is not null as has_texts, suggestion_hashes,
            fetch_end_ts, prompt_hash, context_hash, outcome_hash, clock_timestamp() as now
        from suggestions where project = $1 and id = any($2) order by id for no key update";
    let rows: Vec<Locked> = sqlx::query_as(SQL).bind(project).bind(ids).fetch_all(connection).await?;
    Ok(rows.into_iter().map(|locked| (locked.id, locked)).collect())
}

/// Returns the suggestions of pending records that are kept as texts, one record after another, because together they may take
/// much memory.
pub(super) fn slates<'a>(
    connection: &'a mut PgConnection,
    project: &'a str,
    ids: &'a [Uuid],
) -> BoxStream<'a, sqlx::Result<(Uuid, Json<Vec<String>>)>> {
    const SQL: &str = "
        select id, suggestions from suggestions
        where project = $1 and id = any($2) and state = 'pending' and suggestions is not null";
    sqlx::query_as(SQL).bind(project).bind(ids).fetch(connection)
}

/// Returns the project's key for the hashes that replace texts.
pub(super) async fn hash_key(connection: &mut PgConnection, project: &str) -> sqlx::Result<HashKey> {
    let sql = "select hash_key from projects where name = $1";
    Ok(HashKey::new(sqlx::query_scalar(sql).bind(project).fetch_one(connection).await?))
}

/// A row of a pending record's outcome.
pub(super) struct EndRow<'a> {
    pub(super) ending: Ending<'a>,
    pub(super) end: Conclusion,
    pub(super) completed_at: Timestamp,
}

impl EndRow<'_> {
    /// Returns the hash of the text submitted, if the record is kept without text.
    fn input_hash(&self) -> Option<&[u8]> {
        let hash = self.ending.input_hash.as_ref().filter(|_| self.end.state == State::Finalized);
        hash.map(<[u8; HASH]>::as_slice)
    }
}

columns! {
    /// The columns that finalizing a record sets.
    struct Ends<'a>(EndRow<'a>);
    |row| {
        "id": "uuid" = row.ending.id,
        "state": "text" = row.end.state,
        "submit_ts": "float8" = row.ending.outcome.submit_ts,
        "result_block_number": "int" = row.ending.outcome.result_block_number,
        "actual_input": "text" = row.ending.kept_input(),
        "outcome_hash": "bytea" = row.ending.hash,
        "viewed_indices": "text" as "int[]" = array(&row.end.viewed_indices),
        "cycle_count": "int" = row.end.cycle_count,
        "cycled_back": "bool" = row.end.cycled_back(),
        "displayed_index": "int" = row.end.displayed_index,
        "match_type": "text" = row.end.match_type.map(MatchType::as_str),
        "accepted_index": "int" = row.end.accepted_index,
        "time_to_action_ms": "float8" = row.end.time_to_action_ms,
        "example_hash": "uuid" = row.end.example_hash,
        "slate_hash": "uuid" = row.end.slate_hash,
        "actual_input_hash": "bytea" = row.input_hash(),
        "completed_at": "timestamptz" = row.completed_at,
    }
}

/// Finalizes or discards records that are locked and pending. Of a discarded record only the id is kept.
pub(super) async fn finalize(
    connection: &mut PgConnection,
    project: &str,
    ends: &[EndRow<'_>],
) -> sqlx::Result<()> {
    static SQL: LazyLock<String> = LazyLock::new(|| {
        format!(
            "with new as materialized (select {unnested})
            update suggestions s
            set state = new.state, submit_ts = new.submit_ts,
                result_block_number = coalesce(new.result_block_number, s.result_block_number),
                actual_input = new.actual_input, actual_input_hash = new.actual_input_hash,
                outcome_hash = new.outcome_hash, viewed_indices = new.viewed_indices, cycle_count = new.cycle_count,
                cycled_back = new.cycled_back, displayed_index = new.displayed_index, match_type = new.match_type,
                accepted_index = new.accepted_index, time_to_action_ms = new.time_to_action_ms,
                example_hash = new.example_hash, slate_hash = new.slate_hash, completed_at = new.completed_at,
                context = case when new.state = 'finalized' then s.context end,
                llm_request = case when new.state = 'finalized' then s.llm_request end,
                llm_response = case when new.state = 'finalized' then s.llm_response end,
                failed = s.failed and new.state = 'finalized',
                error = case when new.state = 'finalized' then s.error end,
                suggestions = case when new.state = 'finalized' then s.suggestions end,
                suggestion_hashes = case when new.state = 'finalized' then s.suggestion_hashes end,
                request_is_readable = s.request_is_readable and new.state = 'finalized',
                prompt_hash = case when new.state = 'finalized' then s.prompt_hash end,
                context_hash = case when new.state = 'finalized' then s.context_hash end
            from new where s.project = $1 and s.id = new.id",
            unnested = insert::unnested::<Ends>(2),
        )
    });
    let parameters = insert::parameters(project, |parameters| Ends::bind_all(ends, parameters))?;
    sqlx::query_with(SQL.as_str(), parameters).execute(&mut *connection).await?;
    let discarded = ends.iter().filter(|row| row.end.state == State::Discarded);
    let discarded: Vec<_> = discarded.map(|row| row.ending.id).collect();
    if !discarded.is_empty() {
        let sql = "update suggestion_activity set text = null
                   where project = $1 and suggestion_id = any($2) and kind = 'input'";
        sqlx::query(sql).bind(project).bind(discarded).execute(&mut *connection).await?;
    }
    let labels: Vec<_> =
        ends.iter().flat_map(|row| label_rows(row.ending.id, row.completed_at, &row.end)).collect();
    insert_labels(connection, project, &labels).await
}

/// Amends records that are not discarded. Returns their ids.
pub(super) async fn amend(
    connection: &mut PgConnection,
    project: &str,
    amendments: &[(Uuid, &Amendment)],
) -> sqlx::Result<HashSet<Uuid>> {
    const SQL: &str = "
        with slate as materialized (
            select s.id from suggestions s where s.project = $1 and s.id = any($2) and s.state <> 'discarded'
            order by s.id for no key update
        ),
        new as materialized (select unnest($2::uuid[]) as id, unnest($3::int[]) as result_block_number)
        update suggestions s set result_block_number = new.result_block_number
        from new where s.project = $1 and s.id = new.id and (new.id in (select id from slate)) is true
        returning s.id";
    let amended: Vec<Uuid> = sqlx::query_scalar(SQL)
        .bind(project)
        .bind(amendments.iter().map(|(id, _)| *id).collect::<Vec<_>>())
        .bind(amendments.iter().map(|(_, amendment)| amendment.result_block_number).collect::<Vec<_>>())
        .fetch_all(connection)
        .await?;
    Ok(amended.into_iter().collect())
}
