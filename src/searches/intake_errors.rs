//! Lines and reports of agents that could not be parsed: their number, and descriptions of the last ones that quote
//! no text.

use sqlx::{PgConnection, PgExecutor};
use uuid::Uuid;

use crate::agents::Agent;
use crate::types::Timestamp;

/// The number of errors that are stored for a source, and returned for a project.
pub(super) const KEPT: usize = 20;

/// A line or report that was skipped.
#[derive(Debug, Clone)]
pub(super) struct Fault {
    at: Timestamp,
    text: String,
    /// The hash of the line. It is nil for a hook, because every report counts.
    line: Uuid,
}

impl Fault {
    /// A line of a transcript that is malformed; `number` counts the new lines of the same piece from 1.
    pub(super) fn of_line(agent: &Agent, number: usize, bytes: usize, line: Uuid, at: Timestamp) -> Self {
        let title = agent.title;
        let text =
            format!("new line {number} of a transcript of {title}, of {bytes} bytes, is not a JSON object");
        Self { at, text, line }
    }

    /// The payload of a hook that is not understood.
    pub(super) fn of_hook(agent: &Agent, bytes: usize, at: Timestamp) -> Self {
        let title = agent.title;
        let text = format!(
            "the payload of a hook of {title}, of {bytes} bytes, is not a JSON object that names its event"
        );
        Self { at, text, line: Uuid::nil() }
    }
}

/// Stores what was skipped of a source: the number, and the last ones.
pub(super) async fn note(
    connection: &mut PgConnection,
    project: &str,
    source: Uuid,
    faults: &[Fault],
    count: usize,
) -> sqlx::Result<()> {
    const LOCK: &str = "
        insert into transcripts as t (project, source, received_at) values ($1, $2, $3)
        on conflict (project, source) do update set received_at = excluded.received_at
        returning error_times, error_texts, error_lines";
    const SAVE: &str = "
        update transcripts set bad_lines = bad_lines + $3, error_times = $4, error_texts = $5, error_lines = $6
        where project = $1 and source = $2";
    if count == 0 {
        return Ok(());
    }
    let (times, texts, lines): (Vec<Timestamp>, Vec<String>, Vec<Uuid>) = sqlx::query_as(LOCK)
        .bind(project)
        .bind(source)
        .bind(Timestamp::now())
        .fetch_one(&mut *connection)
        .await?;
    let known = times.into_iter().zip(texts).zip(lines).map(|((at, text), line)| Fault { at, text, line });
    let mut all: Vec<_> = known.chain(faults.iter().cloned()).collect();
    let last = all.split_off(all.len().saturating_sub(KEPT));
    sqlx::query(SAVE)
        .bind(project)
        .bind(source)
        .bind(i64::try_from(count).unwrap_or(i64::MAX))
        .bind(last.iter().map(|fault| fault.at).collect::<Vec<_>>())
        .bind(last.iter().map(|fault| fault.text.as_str()).collect::<Vec<_>>())
        .bind(last.iter().map(|fault| fault.line).collect::<Vec<_>>())
        .execute(connection)
        .await?;
    Ok(())
}

/// Returns the last skipped lines and reports of a project, the latest last.
pub(super) async fn latest(db: impl PgExecutor<'_>, project: &str) -> sqlx::Result<Vec<String>> {
    const SQL: &str = "
        select fault.text from transcripts t
        cross join lateral unnest(t.error_times, t.error_texts) with ordinality as fault (at, text, place)
        where t.project = $1 and t.error_times <> '{}'
        order by fault.at desc, t.source desc, fault.place desc limit $2";
    let most = i64::try_from(KEPT).unwrap_or(i64::MAX);
    let mut texts: Vec<String> = sqlx::query_scalar(SQL).bind(project).bind(most).fetch_all(db).await?;
    texts.reverse();
    Ok(texts)
}
