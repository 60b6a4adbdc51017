//! The statements that write suggestion records, each for many rows: columns come in as arrays through `unnest`.
//! [`moves`] are those about what users do before the submit.

pub(super) mod moves;

use std::collections::{HashMap, HashSet};

use sqlx::PgConnection;
use uuid::Uuid;

use super::conclusion::Label;
use super::event::{Ending, count};
use super::viewing::Look;
use super::{Amendment, Conclusion, MatchType, Start, State};
use crate::privacy::hash_key::HashKey;
use crate::types::{FreeForm, Timestamp};

/// One column of the rows that a statement takes.
fn column<'a, R, T>(rows: &'a [R], value: impl Fn(&'a R) -> T) -> Vec<T> {
    rows.iter().map(value).collect()
}

/// Numbers as Postgres writes an array: `unnest` cannot take arrays of arrays apart.
fn array<T: ToString>(numbers: &[T]) -> String {
    let numbers: Vec<_> = numbers.iter().map(ToString::to_string).collect();
    format!("{{{}}}", numbers.join(","))
}

fn state(state: State) -> &'static str {
    match state {
        State::Pending => "pending",
        State::Finalized => "finalized",
        State::Discarded => "discarded",
    }
}

/// Inserts records; the ids of those that were not there yet. Of one that is discarded only the name is kept. In id order
/// and with times as for generation logs, and for the same reasons.
pub(super) async fn insert(
    connection: &mut PgConnection,
    project: &str,
    starts: &[(Uuid, &Start)],
) -> sqlx::Result<HashSet<Uuid>> {
    const SQL: &str = "
        insert into suggestions (project, id, state, context, llm_request, llm_response, suggestions, suggestion_count,
            suggestion_hashes, actual_input_hash, suggestion_node_version, session_name, server_name, trigger_block_number,
            result_block_number, policy_id, propensities, context_block_count, model, temperature, total_tokens, fetch_start_ts, fetch_end_ts, submit_ts,
            created_at, completed_at, viewed_indices, cycle_count, cycled_back, displayed_index, actual_input, match_type,
            accepted_index, time_to_action_ms, reported, request_hash, outcome_hash, prompt_hash, example_hash, slate_hash)
        select $1, new.id, new.state, new.context::json, new.llm_request::json, new.llm_response::json,
            new.suggestions::json, new.suggestion_count, new.suggestion_hashes, new.actual_input_hash,
            new.suggestion_node_version, new.session_name, new.server_name,
            new.trigger_block_number, new.result_block_number, new.policy_id, new.propensities::float8[],
            new.context_block_count, new.model, new.temperature, new.total_tokens, new.fetch_start_ts, new.fetch_end_ts,
            new.submit_ts, new.created_at,
            case when new.state <> 'pending' then (select clock_timestamp()) + new.place * interval '1 microsecond' end,
            new.viewed_indices::int[], new.cycle_count, new.cycled_back, new.displayed_index, new.actual_input,
            new.match_type, new.accepted_index, new.time_to_action_ms, new.reported::json, new.request_hash,
            new.outcome_hash, new.prompt_hash, new.example_hash, new.slate_hash
        from unnest($2::uuid[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::int[], $9::text[],
            $10::text[], $11::text[], $12::int[], $13::int[], $14::text[], $15::text[], $16::int[], $17::text[],
            $18::float8[], $19::bigint[], $20::float8[], $21::float8[], $22::float8[], $23::timestamptz[], $24::text[],
            $25::int[], $26::bool[], $27::int[], $28::text[], $29::text[], $30::int[], $31::float8[], $32::text[],
            $33::bytea[], $34::bytea[], $35::uuid[], $36::uuid[], $37::uuid[], $38::bytea[], $39::bytea[]) with ordinality
            as new (id, state, context, llm_request, llm_response, suggestions, suggestion_count, suggestion_node_version,
                session_name, server_name, trigger_block_number, result_block_number, policy_id, propensities,
                context_block_count, model, temperature, total_tokens, fetch_start_ts, fetch_end_ts, submit_ts, created_at,
                viewed_indices, cycle_count, cycled_back, displayed_index, actual_input, match_type, accepted_index,
                time_to_action_ms, reported, request_hash, outcome_hash, prompt_hash, example_hash, slate_hash,
                suggestion_hashes, actual_input_hash, place)
        order by new.id
        on conflict do nothing
        returning id, completed_at";
    let created: Vec<(Uuid, Option<Timestamp>)> = sqlx::query_as(SQL)
        .bind(project)
        .bind(column(starts, |(id, _)| *id))
        .bind(column(starts, |(_, start)| state(start.state())))
        .bind(column(starts, |(_, start)| start.keeps_text().then(|| start.new.context.as_str())))
        .bind(column(starts, |(_, start)| object(start.new.llm_request.as_ref(), start.keeps_text())))
        .bind(column(starts, |(_, start)| object(start.new.llm_response.as_ref(), start.keeps_text())))
        .bind(column(starts, |(_, start)| start.keeps_text().then(|| json(&start.new.suggestions))))
        .bind(column(starts, |(_, start)| count(&start.new.suggestions)))
        .bind(column(starts, |(_, start)| start.new.suggestion_node_version.as_deref()))
        .bind(column(starts, |(_, start)| start.new.session_name.as_deref()))
        .bind(column(starts, |(_, start)| start.new.server_name.as_deref()))
        .bind(column(starts, |(_, start)| start.new.trigger_block_number))
        .bind(column(starts, |(_, start)| start.new.result_block_number))
        .bind(column(starts, |(_, start)| start.new.policy_id.as_deref()))
        .bind(column(starts, |(_, start)| start.new.propensities.as_deref().map(array)))
        .bind(column(starts, |(_, start)| start.facts.context_block_count))
        .bind(column(starts, |(_, start)| start.facts.model.as_deref()))
        .bind(column(starts, |(_, start)| start.facts.temperature))
        .bind(column(starts, |(_, start)| start.facts.total_tokens))
        .bind(column(starts, |(_, start)| start.new.fetch_start_ts))
        .bind(column(starts, |(_, start)| start.new.fetch_end_ts))
        .bind(column(starts, |(_, start)| start.new.submit_ts))
        .bind(column(starts, |(_, start)| start.created_at))
        .bind(column(starts, |(_, start)| viewed(start.conclusion.as_ref())))
        .bind(column(starts, |(_, start)| start.conclusion.as_ref().map(|end| end.cycle_count)))
        .bind(column(starts, |(_, start)| start.conclusion.as_ref().map(Conclusion::cycled_back)))
        .bind(column(starts, |(_, start)| start.conclusion.as_ref().map(|end| end.displayed_index)))
        .bind(column(starts, |(_, start)| start.new.actual_input.as_deref().filter(|_| start.keeps_text())))
        .bind(column(starts, |(_, start)| match_type(start.conclusion.as_ref())))
        .bind(column(starts, |(_, start)| start.conclusion.as_ref()?.accepted_index))
        .bind(column(starts, |(_, start)| start.conclusion.as_ref()?.time_to_action_ms))
        .bind(column(starts, |(_, start)| start.reported.as_ref().filter(|_| start.is_kept()).map(json)))
        .bind(column(starts, |(_, start)| start.hash.as_slice()))
        .bind(column(starts, |(_, start)| start.outcome_hash.as_deref()))
        .bind(column(starts, |(_, start)| start.keeps_text().then_some(start.facts.prompt_hash)))
        .bind(column(starts, |(_, start)| start.conclusion.as_ref()?.example_hash))
        .bind(column(starts, |(_, start)| start.conclusion.as_ref()?.slate_hash))
        .bind(column(starts, |(_, start)| start.hashes().map(|hashes| hashes.suggestions.as_slice())))
        .bind(column(starts, |(_, start)| start.hashes()?.input.map(|hash| hash.to_vec())))
        .fetch_all(&mut *connection)
        .await?;
    let ended = starts.iter().filter_map(|(id, start)| Some((*id, start.conclusion.as_ref()?)));
    insert_labels(connection, project, ended, &created).await?;
    Ok(created.into_iter().map(|(id, _)| id).collect())
}

fn json(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).expect("texts and numbers are JSON")
}

fn object(object: Option<&FreeForm>, kept: bool) -> Option<&str> {
    object.filter(|_| kept).map(FreeForm::as_str)
}

fn viewed(conclusion: Option<&Conclusion>) -> Option<String> {
    conclusion.map(|conclusion| array(&conclusion.viewed_indices))
}

fn match_type(conclusion: Option<&Conclusion>) -> Option<&'static str> {
    conclusion?.match_type.map(MatchType::as_str)
}

/// Notes what was chosen and rejected in those records that the statement before has ended, at these times.
async fn insert_labels<'a>(
    connection: &mut PgConnection,
    project: &str,
    conclusions: impl Iterator<Item = (Uuid, &'a Conclusion)>,
    ended: &[(Uuid, Option<Timestamp>)],
) -> sqlx::Result<()> {
    const SQL: &str = "
        insert into preference_labels (project, completed_at, suggestion_id, rejected_index, label_hash, pair_hash)
        select $1, new.* from unnest($2::timestamptz[], $3::uuid[], $4::int[], $5::uuid[], $6::uuid[]) as new";
    let ended: HashMap<_, _> = ended.iter().copied().collect();
    let of = |(id, conclusion): (Uuid, &'a Conclusion)| {
        let at = ended.get(&id).copied().flatten();
        at.into_iter().flat_map(move |at| conclusion.labels.iter().map(move |label| (at, id, label)))
    };
    let labels: Vec<(Timestamp, Uuid, &Label)> = conclusions.flat_map(of).collect();
    if !labels.is_empty() {
        sqlx::query(SQL)
            .bind(project)
            .bind(column(&labels, |(at, ..)| *at))
            .bind(column(&labels, |(_, id, _)| *id))
            .bind(column(&labels, |(.., label)| label.rejected_index))
            .bind(column(&labels, |(.., label)| label.label_hash))
            .bind(column(&labels, |(.., label)| label.pair_hash))
            .execute(connection)
            .await?;
    }
    Ok(())
}

/// A pending record, locked, as far as its end depends on it.
#[derive(Debug, sqlx::FromRow)]
pub(super) struct Pending {
    pub(super) id: Uuid,
    pub(super) suggestion_count: i32,
    #[sqlx(json(nullable))]
    pub(super) suggestions: Option<Vec<String>>,
    pub(super) suggestion_hashes: Option<Vec<u8>>,
    pub(super) fetch_end_ts: Option<f64>,
    pub(super) prompt_hash: Option<Uuid>,
    #[sqlx(skip)]
    pub(super) looks: Vec<(Look, Option<Timestamp>)>,
}

/// Locks those of the records that are pending, in id order, and reads what was looked at. A second statement, as the
/// first one does not see what was added while it waited for the locks.
pub(super) async fn lock_pending(
    connection: &mut PgConnection,
    project: &str,
    ids: &[Uuid],
) -> sqlx::Result<HashMap<Uuid, Pending>> {
    let sql = "select id, suggestion_count, suggestions, suggestion_hashes, fetch_end_ts, prompt_hash
               from suggestions
               where project = $1 and id = any($2) and state = 'pending' order by id for no key update";
    let pending: Vec<Pending> =
        sqlx::query_as(sql).bind(project).bind(ids).fetch_all(&mut *connection).await?;
    let mut pending: HashMap<_, _> = pending.into_iter().map(|pending| (pending.id, pending)).collect();
    for (id, look, at) in moves::looks(connection, project, ids).await? {
        if let Some(pending) = pending.get_mut(&id) {
            pending.looks.push((look, at));
        }
    }
    Ok(pending)
}

/// The key of the hashes that stand in for texts.
pub(super) async fn hash_key(connection: &mut PgConnection, project: &str) -> sqlx::Result<HashKey> {
    let sql = "select hash_key from projects where name = $1";
    Ok(HashKey::new(sqlx::query_scalar(sql).bind(project).fetch_one(connection).await?))
}

/// How a record ends, and what follows.
pub(super) type End<'a> = (Ending<'a>, Conclusion);

/// Ends records that are locked and pending. Of one that is discarded, only the name is kept.
pub(super) async fn finalize(
    connection: &mut PgConnection,
    project: &str,
    ends: &[End<'_>],
) -> sqlx::Result<()> {
    const SQL: &str = "
        update suggestions s
        set state = new.state, submit_ts = new.submit_ts,
            result_block_number = coalesce(new.result_block_number, s.result_block_number),
            actual_input = new.actual_input, actual_input_hash = new.actual_input_hash, outcome_hash = new.outcome_hash, viewed_indices = new.viewed_indices::int[],
            cycle_count = new.cycle_count, cycled_back = new.cycled_back, displayed_index = new.displayed_index,
            match_type = new.match_type, accepted_index = new.accepted_index, time_to_action_ms = new.time_to_action_ms,
            example_hash = new.example_hash, slate_hash = new.slate_hash,
            completed_at = (select clock_timestamp()) + new.place * interval '1 microsecond',
            context = case when new.state = 'finalized' then s.context end,
            llm_request = case when new.state = 'finalized' then s.llm_request end,
            llm_response = case when new.state = 'finalized' then s.llm_response end,
            suggestions = case when new.state = 'finalized' then s.suggestions end,
            suggestion_hashes = case when new.state = 'finalized' then s.suggestion_hashes end,
            prompt_hash = case when new.state = 'finalized' then s.prompt_hash end
        from unnest($2::uuid[], $3::text[], $4::float8[], $5::int[], $6::text[], $7::bytea[], $8::text[], $9::int[],
            $10::bool[], $11::int[], $12::text[], $13::int[], $14::float8[], $15::uuid[], $16::uuid[], $17::bytea[]) with ordinality
            as new (id, state, submit_ts, result_block_number, actual_input, outcome_hash, viewed_indices, cycle_count,
                cycled_back, displayed_index, match_type, accepted_index, time_to_action_ms, example_hash, slate_hash,
                actual_input_hash, place)
        where s.project = $1 and s.id = new.id
        returning s.id, s.completed_at";
    let ended: Vec<(Uuid, Option<Timestamp>)> = sqlx::query_as(SQL)
        .bind(project)
        .bind(column(ends, |(ending, _)| ending.id))
        .bind(column(ends, |(_, end)| state(end.state)))
        .bind(column(ends, |(ending, _)| ending.outcome.submit_ts))
        .bind(column(ends, |(ending, _)| ending.outcome.result_block_number))
        .bind(column(ends, |(ending, _)| ending.kept_input()))
        .bind(column(ends, |(ending, _)| ending.hash))
        .bind(column(ends, |(_, end)| viewed(Some(end))))
        .bind(column(ends, |(_, end)| end.cycle_count))
        .bind(column(ends, |(_, end)| end.cycled_back()))
        .bind(column(ends, |(_, end)| end.displayed_index))
        .bind(column(ends, |(_, end)| match_type(Some(end))))
        .bind(column(ends, |(_, end)| end.accepted_index))
        .bind(column(ends, |(_, end)| end.time_to_action_ms))
        .bind(column(ends, |(_, end)| end.example_hash))
        .bind(column(ends, |(_, end)| end.slate_hash))
        .bind(column(ends, |(ending, end)| {
            ending.input_hash.filter(|_| end.state == State::Finalized).map(|hash| hash.to_vec())
        }))
        .fetch_all(&mut *connection)
        .await?;
    let discarded = ends.iter().filter(|(_, end)| end.state == State::Discarded);
    let discarded: Vec<_> = discarded.map(|(ending, _)| ending.id).collect();
    if !discarded.is_empty() {
        let sql = "update suggestion_moves set text = null
                   where project = $1 and suggestion_id = any($2) and kind = 'input'";
        sqlx::query(sql).bind(project).bind(discarded).execute(&mut *connection).await?;
    }
    insert_labels(connection, project, ends.iter().map(|(ending, end)| (ending.id, end)), &ended).await
}

/// Adds to records that are not discarded; the ids of those.
pub(super) async fn amend(
    connection: &mut PgConnection,
    project: &str,
    amendments: &[(Uuid, &Amendment)],
) -> sqlx::Result<HashSet<Uuid>> {
    const SQL: &str = "
        with slate as materialized (
            select s.id from suggestions s where s.project = $1 and s.id = any($2) and s.state <> 'discarded'
            order by s.id for no key update
        )
        update suggestions s set result_block_number = new.result_block_number
        from unnest($2::uuid[], $3::int[]) as new (id, result_block_number)
        where s.project = $1 and s.id = new.id and (new.id in (select id from slate)) is true
        returning s.id";
    let amended: Vec<Uuid> = sqlx::query_scalar(SQL)
        .bind(project)
        .bind(column(amendments, |(id, _)| *id))
        .bind(column(amendments, |(_, amendment)| amendment.result_block_number))
        .fetch_all(connection)
        .await?;
    Ok(amended.into_iter().collect())
}
