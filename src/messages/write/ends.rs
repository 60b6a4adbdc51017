//! Ends sends, and learns from their reported usage.

use std::collections::HashSet;

use sqlx::{Connection as _, PgConnection};
use uuid::Uuid;

use super::sends;
use crate::db::receipt::{Receipt, Written};
use crate::error::Error;
use crate::messages::begun::LockedSend;
use crate::messages::event::{Append, End};
use crate::messages::learning::{self, Report};
use crate::messages::rules::finish::is_partial;
use crate::messages::rules::trimming::{Stage, final_kind};
use crate::messages::settings::Rules;
use crate::messages::tables::{self, EndRow};
use crate::messages::{Action, Event, Mode, NewAttempt, SendError, State};
use crate::privacy::kept::Kept;

/// A send with its end and the call that it ends with, if that was not reported before.
type Ending<'a> = (&'a LockedSend, &'a End, Append);

/// Returns the end that an event is.
fn end_of<'a>(event: &'a Kept<&Event>) -> Option<(Uuid, &'a End)> {
    match &event.action {
        Action::End(end) => Some((event.id, end)),
        _ => None,
    }
}

/// Ends sends that this server has recorded for the gateway, in a single statement without a lock. The statement skips a send
/// that was changed since it was recorded, and that send is then ended like all others.
pub(super) async fn end_begun(
    connection: &mut PgConnection,
    project: &str,
    rules: &Rules,
    events: &[Kept<&Event>],
) -> sqlx::Result<Vec<Written>> {
    let endings: Vec<_> = events
        .iter()
        .filter_map(end_of)
        .filter_map(|(_, end)| Some((end.begun.send()?, end, as_append(end))))
        .collect();
    let ended = finish(connection, project, rules, &endings).await?;
    let (mut written, mut others) = (Vec::with_capacity(events.len()), Vec::new());
    for (index, event) in events.iter().enumerate() {
        written.push(Ok(Receipt::created(None)));
        if !ended.contains(&event.id) {
            others.push((index, *event));
        }
    }
    if !others.is_empty() {
        let (indexes, others): (Vec<_>, Vec<_>) = others.into_iter().unzip();
        let mut transaction = connection.begin().await?;
        let late = end(&mut transaction, project, rules, &others).await?;
        transaction.commit().await?;
        for (index, late) in indexes.into_iter().zip(late) {
            written[index] = late;
        }
    }
    Ok(written)
}

/// Ends sends. The call that has given the answer, and the only call of a send, need not be reported before.
pub(super) async fn end(
    connection: &mut PgConnection,
    project: &str,
    rules: &Rules,
    events: &[Kept<&Event>],
) -> sqlx::Result<Vec<Written>> {
    let ends: Vec<_> = events.iter().filter_map(end_of).collect();
    let ids: Vec<_> = ends.iter().map(|(id, _)| *id).collect();
    let sends = tables::lock_sends(connection, project, &ids).await?;
    let mut written: Vec<Written> = Vec::with_capacity(ends.len());
    let mut open = Vec::new();
    for (id, end) in &ends {
        written.push(match sends.get(id) {
            None => Err(Error::NotFound("send")),
            Some(send) if send.state == State::Sending => {
                open.push((send, *end, as_append(end)));
                Ok(Receipt::created(None))
            }
            Some(send) if send.outcome_hash.as_deref() == Some(end.hash.as_slice()) => {
                Ok(Receipt::replayed(None))
            }
            // What was cancelled stays cancelled, whatever the reason given the second time.
            Some(send) if end.cancelled && send.stage == Stage::Cancelled => Ok(Receipt::replayed(None)),
            Some(_) if end.cancelled => Err(Error::Conflict(format!("the send {id} has already ended"))),
            Some(_) => Err(Error::Conflict(format!("the send {id} has already ended with a different body"))),
        });
    }
    finish(connection, project, rules, &open).await?;
    Ok(written)
}

/// Writes how sends have ended, and what they teach. Returns the sends that were as they were taken to be, which is every one
/// that is locked.
async fn finish(
    connection: &mut PgConnection,
    project: &str,
    rules: &Rules,
    endings: &[Ending<'_>],
) -> sqlx::Result<HashSet<Uuid>> {
    let mut rows = Vec::with_capacity(endings.len());
    let mut attempts = Vec::new();
    for (send, end, append) in endings {
        let LockedSend { mut stage, mut attempts_used, mut trimmed_count, .. } = **send;
        let is_answer_of_a_call = end.failure.is_none() && send.stage != Stage::AttemptSuccess;
        let is_call = !end.cancelled && (send.attempts_used == 0 || is_answer_of_a_call);
        if end.latency_ms.is_some() || is_call {
            let row = sends::row(send, append, send.carried());
            (stage, attempts_used, trimmed_count) = (row.stage, row.attempt, row.trimmed_after);
            attempts.push(row);
        }
        rows.push(EndRow {
            id: send.id,
            pair_id: send.pair_id,
            stage: final_stage(end, stage),
            attempts_before: send.attempts_used,
            attempts_used,
            trimmed_count,
            overflow: end.failure.as_ref().map(|(_, meaning)| meaning.overflow),
            error: end.failure.as_ref().map(|(error, _)| final_error(error, stage, send)),
            assistant_text: end.assistant_text.as_deref(),
            tool_calls: end.tool_calls.as_deref(),
            assistant: end.assistant,
            usage: end.usage.as_ref(),
            reported: (end.tokens.input, end.tokens.output),
            finish_reason: end.finish_reason.as_deref(),
            is_partial: end.finish_reason.as_deref().is_some_and(is_partial),
            hash: &end.hash,
        });
    }
    let answered = endings.iter().filter(|(_, end, _)| end.failure.is_none());
    let mut reports: Vec<_> =
        answered.filter_map(|(send, end, _)| Report::of(send, end.tokens.input)).collect();
    let lessons = learning::lessons(&reports);
    let mut ended = tables::end_sends(connection, project, &attempts, &rows, &lessons).await?;
    let mut first = lessons;
    first.retain(|(send, model, _)| ended.sends.contains(send) && !ended.learned.contains_key(*model));
    if !first.is_empty() {
        ended.learned.extend(tables::begin_learning(connection, project, &first).await?);
    }
    for (model, learned) in &ended.learned {
        rules.ratios.note(project, model, *learned);
    }
    reports.retain(|report| ended.sends.contains(&report.send));
    learning::measure_pairs(connection, project, &reports).await?;
    Ok(ended.sends)
}

/// Returns the stage of a send that ends with a call of this stage.
fn final_stage(end: &End, stage: Stage) -> Stage {
    match (&end.failure, stage) {
        _ if end.cancelled => Stage::Cancelled,
        (None, _) => Stage::AttemptSuccess,
        (Some(_), Stage::Initial | Stage::Preflight | Stage::AttemptSuccess) => Stage::OtherError,
        (Some(_), stage) => stage,
    }
}

/// Returns the error that a send ends with. An error that trimming could not resolve has a kind of its own, unless
/// trimming was not requested at the gateway.
fn final_error(error: &SendError, stage: Stage, send: &LockedSend) -> SendError {
    let is_passed_on = send.mode == Mode::Gateway && send.max_trim_attempts == 0;
    let kind = if is_passed_on { error.kind } else { final_kind(stage, error.kind) };
    SendError { kind, class: if kind == error.kind { error.class } else { kind.class() }, ..error.clone() }
}

/// Returns the call that a send ends with, if it was not reported before.
fn as_append(end: &End) -> Append {
    Append {
        line_id: None,
        new: NewAttempt { usage: end.usage.clone(), latency_ms: end.latency_ms, ..NewAttempt::default() },
        failure: end.failure.clone(),
        tokens: end.tokens,
        answer: end.assistant,
        at: crate::types::Timestamp::now(),
        hash: end.hash.clone(),
    }
}
