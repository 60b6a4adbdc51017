//! Ends sends, and learns from their reported usage.

use chrono::TimeDelta;
use sqlx::PgConnection;

use super::sends;
use crate::db::receipt::{Receipt, Written};
use crate::error::Error;
use crate::messages::event::{Append, End};
use crate::messages::learning::{self, Report};
use crate::messages::rules::trimming::{Stage, final_kind};
use crate::messages::tables::{self, EndRow, LockedSend};
use crate::messages::{Action, Event, Mode, NewAttempt, SendError, State};
use crate::privacy::kept::Kept;

/// Ends sends. A send of which no call was reported counts as one call.
pub(super) async fn end(
    connection: &mut PgConnection,
    project: &str,
    events: &[Kept<&Event>],
) -> sqlx::Result<Vec<Written>> {
    let ends: Vec<_> = events
        .iter()
        .filter_map(|event| match &event.action {
            Action::End(end) => Some((event.id, &**end)),
            _ => None,
        })
        .collect();
    let ids: Vec<_> = ends.iter().map(|(id, _)| *id).collect();
    let sends = tables::lock_sends(connection, project, &ids).await?;
    let mut written: Vec<Written> = Vec::with_capacity(ends.len());
    let mut open: Vec<(&LockedSend, &End, Append)> = Vec::new();
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
    let mut rows = Vec::with_capacity(open.len());
    let mut attempts = Vec::new();
    for ((send, end, append), later) in open.iter().zip(0..) {
        let LockedSend { mut stage, mut attempts_used, mut trimmed_count, .. } = **send;
        if end.latency_ms.is_some() || send.attempts_used == 0 && !end.cancelled {
            match sends::row(send, append) {
                Ok(row) => {
                    (stage, attempts_used, trimmed_count) = (row.stage, row.attempt, row.trimmed_after);
                    attempts.push(row);
                }
                Err(error) => return Err(sqlx::Error::AnyDriverError(error.to_string().into())),
            }
        }
        rows.push(EndRow {
            id: send.id,
            pair_id: send.pair_id,
            stage: final_stage(end, stage),
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
            hash: &end.hash,
            // Exports are ordered by this time, which comes from the database's clock and is different for each send
            // of a batch.
            completed_at: send.now.plus(TimeDelta::microseconds(later)).unwrap_or(send.now),
        });
    }
    let answered = open.iter().filter(|(_, end, _)| end.failure.is_none());
    let reports: Vec<_> = answered.filter_map(|(send, end, _)| Report::of(send, end.tokens.input)).collect();
    let mut lessons = learning::lessons(&reports);
    let known = tables::end_sends(connection, project, &attempts, &rows, &lessons).await?;
    lessons.retain(|(model, _)| !known.contains(*model));
    if !lessons.is_empty() {
        tables::begin_learning(connection, project, &lessons).await?;
    }
    learning::measure_pairs(connection, project, &reports).await?;
    Ok(written)
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
        new: NewAttempt { usage: end.usage.clone(), latency_ms: end.latency_ms, ..NewAttempt::default() },
        failure: end.failure.clone(),
        tokens: end.tokens,
        at: crate::types::Timestamp::now(),
        hash: end.hash.clone(),
    }
}
