//! The statements that write message pairs and sends. Those for many rows take a column as an array (see
//! [`insert`](mod@crate::db::insert)).

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::sync::LazyLock;

use sqlx::PgConnection;
use sqlx::types::Json;
use uuid::Uuid;

use super::event::{StartPair, StartSend};
use super::passed::{Passed, SentMessage};
use super::prediction::Predicted;
use super::rules::estimate::Length;
use super::rules::trimming::Stage;
use super::{GivenPair, Mode, PairState, SendError, State, named};
use crate::db::insert::{self, Columns as _, columns};
use crate::types::{FreeForm, Timestamp};

/// A row of a pair that begins.
pub(super) struct PairRow<'a> {
    pub(super) id: Uuid,
    pub(super) topic_id: Option<&'a str>,
    pub(super) session_id: Option<&'a str>,
    pub(super) model: Option<&'a str>,
    pub(super) user_text: Option<&'a str>,
    pub(super) assistant_text: Option<&'a str>,
    pub(super) user: Length,
    pub(super) assistant: Length,
    pub(super) star: i16,
    pub(super) color_flag: Option<&'a str>,
    pub(super) state: PairState,
    pub(super) tokens: Option<i64>,
    pub(super) turn: Option<Uuid>,
    pub(super) send_id: Option<Uuid>,
    pub(super) created_at: Timestamp,
    pub(super) hash: &'a [u8],
}

impl<'a> PairRow<'a> {
    /// Makes the row of a pair that a client posts.
    pub(super) fn posted(id: Uuid, start: &'a StartPair) -> Self {
        let new = &start.new;
        let kept = |text: &'a str| Some(text).filter(|_| start.keeps_text);
        Self {
            id,
            topic_id: named(new.topic_id.as_deref()),
            session_id: named(new.session_id.as_deref()),
            model: named(new.model.as_deref()),
            user_text: kept(&new.user_text),
            assistant_text: new.assistant_text.as_deref().and_then(kept),
            user: start.user,
            assistant: start.assistant,
            star: new.star.unwrap_or(0),
            color_flag: named(new.color_flag.as_deref()),
            state: if new.assistant_text.is_some() { PairState::Complete } else { PairState::Idle },
            tokens: new.tokens,
            turn: None,
            send_id: None,
            created_at: start.created_at,
            hash: &start.hash,
        }
    }
}

columns! {
    /// The columns of a pair that are known when it begins.
    struct Pairs<'a>(PairRow<'a>);
    |row| {
        "id": "uuid" = row.id,
        "topic_id": "text" = row.topic_id,
        "session_id": "text" = row.session_id,
        "model": "text" = row.model,
        "user_text": "text" = row.user_text,
        "assistant_text": "text" = row.assistant_text,
        "user_chars": "bigint" = row.user.chars,
        "user_units": "float8" = row.user.units,
        "assistant_chars": "bigint" = row.assistant.chars,
        "assistant_units": "float8" = row.assistant.units,
        "star": "smallint" = row.star,
        "color_flag": "text" = row.color_flag,
        "lifecycle_state": "text" = row.state,
        "tokens": "bigint" = row.tokens,
        "tokens_model": "text" = row.tokens.and(row.model),
        "turn": "uuid" = row.turn,
        "send_id": "uuid" = row.send_id,
        "created_at": "timestamptz" = row.created_at,
        "request_hash": "bytea" = row.hash,
    }
}

/// Inserts pairs. Returns the ids of those that did not exist yet. They are inserted in the order of their ids, and
/// completed in the order given, a microsecond apart.
pub(super) async fn insert_pairs(
    connection: &mut PgConnection,
    project: &str,
    pairs: &[PairRow<'_>],
) -> sqlx::Result<HashSet<Uuid>> {
    static SQL: LazyLock<String> = LazyLock::new(|| {
        format!(
            "insert into pairs (project, {names}, completed_at)
            select $1, {values},
                case when new.lifecycle_state = 'complete' then
                    (select clock_timestamp()) + new.ordinal * interval '1 microsecond' end
            from (select {unnested}, generate_subscripts($2, 1) as ordinal) new
            order by new.id
            on conflict do nothing
            returning id",
            names = insert::names::<Pairs>(),
            values = insert::values::<Pairs>("new"),
            unnested = insert::unnested::<Pairs>(2),
        )
    });
    if pairs.is_empty() {
        return Ok(HashSet::new());
    }
    let parameters = insert::parameters(project, |parameters| Pairs::bind_all(pairs, parameters))?;
    let created: Vec<Uuid> = sqlx::query_scalar_with(SQL.as_str(), parameters).fetch_all(connection).await?;
    Ok(created.into_iter().collect())
}

/// A record that exists already.
pub(super) enum Table {
    Pairs,
    Sends,
}

/// Returns the hashes of the requests that made these records.
pub(super) async fn request_hashes(
    connection: &mut PgConnection,
    project: &str,
    table: Table,
    ids: &[Uuid],
) -> sqlx::Result<HashMap<Uuid, Vec<u8>>> {
    let sql = match table {
        Table::Pairs => "select id, request_hash from pairs where project = $1 and id = any($2)",
        Table::Sends => "select id, request_hash from sends where project = $1 and id = any($2)",
    };
    let rows: Vec<(Uuid, Vec<u8>)> =
        sqlx::query_as(sql).bind(project).bind(ids).fetch_all(connection).await?;
    Ok(rows.into_iter().collect())
}

/// A row of a send that begins.
pub(super) struct SendRow<'a> {
    pub(super) id: Uuid,
    pub(super) start: &'a StartSend,
    pub(super) model: &'a str,
    pub(super) topic_id: Option<&'a str>,
    pub(super) predicted: &'a Predicted,
}

impl SendRow<'_> {
    fn selected<T>(&self, of: impl Fn(usize) -> T) -> impl Iterator<Item = T> {
        (self.predicted.boundary()..self.predicted.pairs.len()).map(of)
    }

    fn passed(&self) -> Option<&Passed> {
        self.start.passed.as_ref()
    }

    /// The stored pairs among those that the user saw.
    fn visible(&self) -> impl Iterator<Item = Uuid> {
        let is_stored = self.passed().is_none();
        self.predicted.pairs.iter().map(|pair| pair.key).filter(move |key| is_stored && !key.is_nil())
    }

    fn given(&self) -> Option<Json<Vec<&GivenPair>>> {
        self.start.given.as_ref()?;
        Some(Json(self.predicted.included().iter().filter_map(|pair| pair.given.as_ref()).collect()))
    }

    fn stage(&self) -> Stage {
        if self.predicted.preflight > 0 { Stage::Preflight } else { Stage::Initial }
    }
}

/// Returns a Postgres array of plain values, as text.
fn array<T: std::fmt::Display>(values: impl Iterator<Item = T>) -> String {
    let mut text = String::from("{");
    for (index, value) in values.enumerate() {
        let _ = write!(text, "{}{value}", if index == 0 { "" } else { "," });
    }
    text.push('}');
    text
}

/// Returns a name as it stands in a Postgres array.
fn quoted(name: Option<&str>) -> String {
    name.map_or_else(
        || "null".to_owned(),
        |name| format!("\"{}\"", name.replace('\\', "\\\\").replace('"', "\\\"")),
    )
}

columns! {
    /// The columns of a send that are known when it begins.
    struct Sends<'a>(SendRow<'a>);
    |row| {
        "id": "uuid" = row.id,
        "pair_id": "uuid" = row.start.pair_id,
        "mode": "text" = row.start.mode,
        "stage": "text" = row.stage(),
        "model": "text" = row.model,
        "topic_id": "text" = row.topic_id,
        "session_id": "text" = named(row.start.new.session_id.as_deref()),
        "system": "text" = row.start.new.system.as_deref().filter(|_| row.start.keeps_text),
        "system_hash": "bytea" = row.start.system_hash.as_deref(),
        "system_tokens": "bigint" = row.predicted.budget.system,
        "max_context": "bigint" = row.passed().is_none().then_some(row.predicted.budget.max_context),
        "user_request_allowance": "bigint" = row.predicted.budget.allowance,
        "max_trim_attempts": "int" = row.predicted.max_trims,
        "chars_per_token": "float8" = row.predicted.chars_per_token,
        "ratio": "float8" = row.predicted.ratio(),
        "visible_count": "int" = i32::try_from(row.predicted.pairs.len()).unwrap_or(i32::MAX),
        "visible_ids": "text" as "uuid[]" = array(row.visible()),
        "selected_ids": "text" as "uuid[]" = array(row.selected(|index| row.predicted.pairs[index].key)),
        "selected_revisions": "text" as "int[]" = array(row.selected(|index| row.predicted.pairs[index].revision)),
        "selected_tokens": "text" as "bigint[]" = array(row.selected(|index| row.predicted.sizes[index])),
        "selected_models": "text" as "text[]" = array(row.selected(|index| quoted(row.predicted.pairs[index].model.as_deref()))),
        "measured": "text" as "bool[]" = array(row.selected(|index| row.predicted.measured[index])),
        "given_pairs": "jsonb" as "json" = row.given(),
        "predicted_history": "bigint" = row.predicted.prediction.history,
        "aut": "bigint" = row.predicted.aut,
        "preflight_count": "int" = i32::try_from(row.predicted.preflight).unwrap_or(i32::MAX),
        "quota": "jsonb" as "json" = (!row.predicted.quota.is_empty()).then_some(Json(&row.predicted.quota)),
        "reask_of": "uuid" = row.start.new.reask_of,
        "history": "uuid" = row.passed().and_then(|passed| Some(passed.messages.last()?.id)),
        "generation_id": "uuid" = row.passed().and_then(|passed| passed.generation_id),
        "lease_until": "timestamptz" = row.start.created_at.plus(row.start.lease),
        "created_at": "timestamptz" = row.start.created_at,
        "request_hash": "bytea" = row.start.hash.as_slice(),
    }
}

/// Inserts sends. Returns the ids of those that did not exist yet.
pub(super) async fn insert_sends(
    connection: &mut PgConnection,
    project: &str,
    sends: &[SendRow<'_>],
) -> sqlx::Result<HashSet<Uuid>> {
    static SQL: LazyLock<String> = LazyLock::new(|| {
        format!(
            "insert into sends (project, {names}, state, trimmed_count)
            select $1, {values}, 'sending', new.preflight_count
            from (select {unnested}) new
            order by new.id
            on conflict do nothing
            returning id",
            names = insert::names::<Sends>(),
            values = insert::values::<Sends>("new"),
            unnested = insert::unnested::<Sends>(2),
        )
    });
    if sends.is_empty() {
        return Ok(HashSet::new());
    }
    let parameters = insert::parameters(project, |parameters| Sends::bind_all(sends, parameters))?;
    let created: Vec<Uuid> = sqlx::query_scalar_with(SQL.as_str(), parameters).fetch_all(connection).await?;
    Ok(created.into_iter().collect())
}

/// A row of a message that went through the gateway.
pub(super) struct MessageRow<'a> {
    pub(super) session: Option<&'a str>,
    pub(super) sent: &'a SentMessage,
}

columns! {
    /// The columns of a message that went through the gateway.
    struct Messages<'a>(MessageRow<'a>);
    |row| {
        "id": "uuid" = row.sent.id,
        "parent": "uuid" = row.sent.parent,
        "turn": "uuid" = row.sent.turn,
        "session": "text" = row.session,
        "message": "text" as "json" = row.sent.message.get(),
    }
}

/// How many bytes of messages are sent to the database without asking which of them it has.
const FEW: usize = 16 << 10;

/// Keeps messages that went through the gateway, those that are not kept yet.
pub(super) async fn insert_messages(
    connection: &mut PgConnection,
    project: &str,
    mut messages: Vec<MessageRow<'_>>,
) -> sqlx::Result<()> {
    static SQL: LazyLock<String> = LazyLock::new(|| {
        format!(
            "insert into sent_messages (project, {names}) select $1, {values} from (select {unnested}) new
            order by new.id
            on conflict do nothing",
            names = insert::names::<Messages>(),
            values = insert::values::<Messages>("new"),
            unnested = insert::unnested::<Messages>(2),
        )
    });
    const KNOWN: &str = "select id from sent_messages where project = $1 and id = any($2)";
    let bytes: usize = messages.iter().map(|row| row.sent.message.get().len()).sum();
    if bytes > FEW {
        let ids: Vec<_> = messages.iter().map(|row| row.sent.id).collect();
        let known: Vec<Uuid> =
            sqlx::query_scalar(KNOWN).bind(project).bind(ids).fetch_all(&mut *connection).await?;
        let known: HashSet<_> = known.into_iter().collect();
        messages.retain(|row| !known.contains(&row.sent.id));
    }
    if messages.is_empty() {
        return Ok(());
    }
    let parameters = insert::parameters(project, |parameters| Messages::bind_all(&messages, parameters))?;
    sqlx::query_with(SQL.as_str(), parameters).execute(connection).await?;
    Ok(())
}

/// A pair that is to be asked again, or changed.
#[derive(sqlx::FromRow)]
pub(super) struct Reasked {
    pub(super) id: Uuid,
    pub(super) state: PairState,
    pub(super) user_text: Option<String>,
    pub(super) user_chars: i64,
    pub(super) user_units: f64,
    pub(super) topic_id: Option<String>,
    pub(super) model: Option<String>,
}

impl Reasked {
    /// Returns the length of what the user said.
    pub(super) fn length(&self) -> Length {
        Length { chars: self.user_chars, units: self.user_units }
    }
}

/// Locks a pair.
pub(super) async fn lock_pair(
    connection: &mut PgConnection,
    project: &str,
    id: Uuid,
) -> sqlx::Result<Option<Reasked>> {
    const SQL: &str = "
        select id, lifecycle_state as state, user_text, user_chars, user_units, topic_id, model from pairs
        where project = $1 and id = $2 for update";
    sqlx::query_as(SQL).bind(project).bind(id).fetch_optional(connection).await
}

/// Erases pairs with their earlier texts.
pub(super) async fn delete_pairs(
    connection: &mut PgConnection,
    project: &str,
    ids: &[Uuid],
) -> sqlx::Result<u64> {
    // Of pairs that the gateway made, also the copies that later requests have carried.
    const COPIES: &str = "
        with recursive turn as materialized (
            select turn as id from pairs where project = $1 and id = any($2) and turn is not null
        ), copy as (
            select m.id, m.turn from turn join sent_messages m on m.project = $1 and m.id = turn.id
            union
            select m.id, m.turn from copy join sent_messages m
            on m.project = $1 and m.parent = copy.id and m.turn = copy.turn
        )
        update sent_messages m set message = null from copy where m.project = $1 and m.id = copy.id";
    sqlx::query(COPIES).bind(project).bind(ids).execute(&mut *connection).await?;
    let sql = "delete from pairs where project = $1 and id = any($2)";
    let erased = sqlx::query(sql).bind(project).bind(ids).execute(&mut *connection).await?.rows_affected();
    let sql = "delete from pair_revisions where project = $1 and pair_id = any($2)";
    sqlx::query(sql).bind(project).bind(ids).execute(connection).await?;
    Ok(erased)
}

/// A send that is locked.
#[derive(sqlx::FromRow)]
pub(super) struct LockedSend {
    pub(super) id: Uuid,
    pub(super) state: State,
    pub(super) stage: Stage,
    pub(super) mode: Mode,
    pub(super) model: String,
    pub(super) pair_id: Uuid,
    pub(super) system_tokens: i64,
    pub(super) max_trim_attempts: i32,
    pub(super) ratio: Option<f64>,
    pub(super) selected_ids: Vec<Uuid>,
    pub(super) selected_tokens: Vec<i64>,
    pub(super) measured: Vec<bool>,
    #[sqlx(json(nullable))]
    pub(super) given_pairs: Option<Vec<GivenPair>>,
    pub(super) aut: i64,
    pub(super) input_tokens: Option<i64>,
    pub(super) preflight_count: i32,
    pub(super) trimmed_count: i32,
    pub(super) attempts_used: i32,
    pub(super) outcome_hash: Option<Vec<u8>>,
    pub(super) now: Timestamp,
}

/// Locks sends in the order of their ids, so that two transactions that lock the same ones wait for each other instead
/// of forming a deadlock.
pub(super) async fn lock_sends(
    connection: &mut PgConnection,
    project: &str,
    ids: &[Uuid],
) -> sqlx::Result<HashMap<Uuid, LockedSend>> {
    const SQL: &str = "
        select id, state, stage, mode, model, pair_id, system_tokens, max_trim_attempts, ratio, selected_ids,
            selected_tokens, measured, given_pairs, aut, input_tokens, preflight_count, trimmed_count, attempts_used,
            outcome_hash, clock_timestamp() as now
        from sends where project = $1 and id = any($2) order by id for no key update";
    let rows: Vec<LockedSend> = sqlx::query_as(SQL).bind(project).bind(ids).fetch_all(connection).await?;
    Ok(rows.into_iter().map(|row| (row.id, row)).collect())
}

/// A row of a call that has ended.
pub(super) struct AttemptRow<'a> {
    pub(super) send: Uuid,
    pub(super) attempt: i32,
    pub(super) model: &'a str,
    pub(super) stage: Stage,
    pub(super) trimmed_count: i32,
    pub(super) history: i64,
    pub(super) total: i64,
    pub(super) error: Option<&'a SendError>,
    pub(super) overflow: bool,
    pub(super) usage: Option<&'a FreeForm>,
    pub(super) tokens: i64,
    pub(super) latency_ms: Option<i32>,
    pub(super) at: Timestamp,
    pub(super) hash: &'a [u8],
    /// How many pairs are dropped after the call.
    pub(super) trimmed_after: i32,
    /// The tokens of the prompt and of the answer that the provider reported.
    pub(super) reported: (Option<i64>, Option<i64>),
}

columns! {
    /// The columns of a call.
    struct Attempts<'a>(AttemptRow<'a>);
    |row| {
        "send_id": "uuid" = row.send,
        "attempt": "int" = row.attempt,
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

/// Adds calls, each to another send.
pub(super) async fn insert_attempts(
    connection: &mut PgConnection,
    project: &str,
    attempts: &[AttemptRow<'_>],
) -> sqlx::Result<()> {
    static INSERT: LazyLock<String> = LazyLock::new(|| {
        format!(
            "insert into send_attempts (project, {names}) select $1, {values} from (select {unnested}) new",
            names = insert::names::<Attempts>(),
            values = insert::values::<Attempts>("new"),
            unnested = insert::unnested::<Attempts>(2),
        )
    });
    if attempts.is_empty() {
        return Ok(());
    }
    let parameters = insert::parameters(project, |parameters| Attempts::bind_all(attempts, parameters))?;
    sqlx::query_with(INSERT.as_str(), parameters).execute(connection).await?;
    Ok(())
}

/// Notes with sends, which are locked, what these calls change of them.
pub(super) async fn note_attempts(
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

/// Returns the hashes of the requests that reported these calls, by send and number.
pub(super) async fn attempt_hashes(
    connection: &mut PgConnection,
    project: &str,
    calls: &[(Uuid, i32)],
) -> sqlx::Result<HashMap<(Uuid, i32), Vec<u8>>> {
    const SQL: &str = "
        with sought as materialized (select unnest($2::uuid[]) as send_id, unnest($3::int[]) as attempt)
        select a.send_id, a.attempt, a.request_hash from sought
        join send_attempts a on a.project = $1 and a.send_id = sought.send_id and a.attempt = sought.attempt";
    let (sends, numbers): (Vec<_>, Vec<_>) = calls.iter().copied().unzip();
    let rows: Vec<(Uuid, i32, Vec<u8>)> =
        sqlx::query_as(SQL).bind(project).bind(sends).bind(numbers).fetch_all(connection).await?;
    Ok(rows.into_iter().map(|(send, number, hash)| ((send, number), hash)).collect())
}

/// A row of a send that ends.
pub(super) struct EndRow<'a> {
    pub(super) id: Uuid,
    pub(super) pair_id: Uuid,
    pub(super) stage: Stage,
    pub(super) attempts_used: i32,
    pub(super) trimmed_count: i32,
    pub(super) overflow: Option<bool>,
    pub(super) error: Option<SendError>,
    pub(super) assistant_text: Option<&'a str>,
    pub(super) tool_calls: Option<&'a serde_json::value::RawValue>,
    pub(super) assistant: Length,
    pub(super) usage: Option<&'a FreeForm>,
    pub(super) reported: (Option<i64>, Option<i64>),
    pub(super) finish_reason: Option<&'a str>,
    pub(super) hash: &'a [u8],
    pub(super) completed_at: Timestamp,
}

columns! {
    /// What the end of a send sets.
    struct Ends<'a>(EndRow<'a>);
    |row| {
        "id": "uuid" = row.id,
        "pair_id": "uuid" = row.pair_id,
        "state": "text" = if row.error.is_some() { State::Error } else { State::Complete },
        "stage": "text" = row.stage,
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
        "outcome_hash": "bytea" = row.hash,
        "completed_at": "timestamptz" = row.completed_at,
    }
}

/// Ends sends that are locked, and their pairs with them.
pub(super) async fn end_sends(
    connection: &mut PgConnection,
    project: &str,
    ends: &[EndRow<'_>],
) -> sqlx::Result<()> {
    static SENDS: LazyLock<String> = LazyLock::new(|| {
        format!(
            "with new as materialized (select {unnested})
            update sends s set state = new.state, stage = new.stage, attempts_used = new.attempts_used,
                trimmed_count = new.trimmed_count, overflow_matched = coalesce(new.overflow_matched, s.overflow_matched),
                error = coalesce(new.error, s.error),
                error_class = coalesce(new.error_class, s.error_class), usage = coalesce(new.usage, s.usage),
                input_tokens = coalesce(new.input_tokens, s.input_tokens),
                output_tokens = coalesce(new.output_tokens, s.output_tokens), finish_reason = new.finish_reason,
                outcome_hash = new.outcome_hash, completed_at = new.completed_at, lease_until = null
            from new where s.project = $1 and s.id = new.id",
            unnested = insert::unnested::<Ends>(2),
        )
    });
    static PAIRS: LazyLock<String> = LazyLock::new(|| {
        format!(
            "with new as materialized (select {unnested})
            update pairs p set lifecycle_state = new.state, error = new.error, assistant_text = new.assistant_text,
                tool_calls = new.tool_calls, assistant_chars = new.assistant_chars,
                assistant_units = new.assistant_units,
                completed_at = case when new.state = 'complete' then new.completed_at end
            from new where p.project = $1 and p.id = new.pair_id and p.send_id = new.id",
            unnested = insert::unnested::<Ends>(2),
        )
    });
    if ends.is_empty() {
        return Ok(());
    }
    for sql in [&SENDS, &PAIRS] {
        let parameters = insert::parameters(project, |parameters| Ends::bind_all(ends, parameters))?;
        sqlx::query_with(sql.as_str(), parameters).execute(&mut *connection).await?;
    }
    Ok(())
}

/// Changes a pair that is locked. Its texts are put aside first, if they change, for the sends that have sent them.
pub(super) async fn edit_pair(
    connection: &mut PgConnection,
    project: &str,
    id: Uuid,
    edit: &super::event::Edit,
) -> sqlx::Result<()> {
    const PUT_ASIDE: &str = "
        insert into pair_revisions (project, pair_id, revision, user_text, assistant_text)
        select project, id, revision, user_text, assistant_text from pairs where project = $1 and id = $2";
    const EDIT: &str = "
        update pairs set
            user_text = case when $3 then $4 else user_text end,
            user_chars = coalesce($5, user_chars), user_units = coalesce($6, user_units),
            assistant_text = case when $7 then $8 else assistant_text end,
            assistant_chars = coalesce($9, assistant_chars), assistant_units = coalesce($10, assistant_units),
            tool_calls = case when $7 then null else tool_calls end,
            lifecycle_state = case when $7 then 'complete' else lifecycle_state end,
            error = case when $7 then null else error end,
            completed_at = case when $7 then coalesce(completed_at, clock_timestamp()) else completed_at end,
            tokens = case when $3 or $7 then null else tokens end,
            revision = case when $3 or $7 then revision + 1 else revision end,
            topic_id = case when $11::text is null then topic_id else nullif($11, '') end,
            model = case when $12::text is null then model else nullif($12, '') end,
            star = coalesce($13, star),
            color_flag = case when $14::text is null then color_flag else nullif($14, '') end
        where project = $1 and id = $2";
    let change = &edit.change;
    let (user, assistant) = (edit.user, edit.assistant);
    if user.is_some() || assistant.is_some() {
        sqlx::query(PUT_ASIDE).bind(project).bind(id).execute(&mut *connection).await?;
    }
    let kept = |text: &Option<String>| text.clone().filter(|_| edit.keeps_text);
    sqlx::query(EDIT)
        .bind(project)
        .bind(id)
        .bind(user.is_some())
        .bind(kept(&change.user_text))
        .bind(user.map(|length| length.chars))
        .bind(user.map(|length| length.units))
        .bind(assistant.is_some())
        .bind(kept(&change.assistant_text))
        .bind(assistant.map(|length| length.chars))
        .bind(assistant.map(|length| length.units))
        .bind(change.topic_id.as_deref())
        .bind(change.model.as_deref())
        .bind(change.star)
        .bind(change.color_flag.as_deref())
        .execute(connection)
        .await?;
    Ok(())
}
