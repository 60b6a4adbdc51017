//! Learns from reported usage: the ratio of a model, and the real sizes of pairs.

use sqlx::PgConnection;
use uuid::Uuid;

use super::Mode;
use super::begun::LockedSend;
use super::rules::estimate::Lesson;

/// A send that a model has answered.
pub(super) struct Report {
    /// The send's id.
    pub(super) send: Uuid,
    model: String,
    ratio: Option<f64>,
    measured: i64,
    estimated: i64,
    /// The tokens of the prompt as the provider counted them.
    reported: i64,
    /// Whether the send was made of stored pairs, which it may measure.
    has_pairs: bool,
}

impl Report {
    /// Takes a send with its reported number of tokens. Returns none if no usable number was reported.
    pub(super) fn of(send: &LockedSend, reported: Option<i64>) -> Option<Self> {
        let reported = reported.or(send.input_tokens).filter(|tokens| *tokens > 0)?;
        Some(Self {
            send: send.id,
            model: send.model.clone(),
            ratio: send.ratio,
            measured: send.measured_tokens,
            estimated: send.estimated_tokens + send.aut + send.system_tokens,
            reported,
            has_pairs: send.mode != Mode::Gateway,
        })
    }
}

/// Returns what these reports say of their models, with the sends that they are about.
pub(super) fn lessons(reports: &[Report]) -> Vec<(Uuid, &str, Lesson)> {
    let lesson =
        |report: &Report| Lesson::of(report.ratio?, report.estimated, report.reported - report.measured);
    reports.iter().filter_map(|report| Some((report.send, report.model.as_str(), lesson(report)?))).collect()
}

/// Measures pairs. If a send contains the messages of an earlier send and the pair that the earlier one created, the
/// growth of the reported prompt is the size of that pair, corrected by the estimates of the two new messages.
pub(super) async fn measure_pairs(
    connection: &mut PgConnection,
    project: &str,
    reports: &[Report],
) -> sqlx::Result<()> {
    const SQL: &str = "
        update pairs p set tokens = b.input_tokens - a.input_tokens - b.aut + a.aut, tokens_model = b.model
        from sends b, sends a
        where p.project = $1 and b.project = $1 and a.project = $1 and b.id = any($2)
            and b.given_pairs is null and a.given_pairs is null
            and b.trimmed_count < cardinality(b.selected_ids)
            and p.id = b.selected_ids[cardinality(b.selected_ids)]
            and p.revision = b.selected_revisions[cardinality(b.selected_ids)]
            and a.id = p.send_id and a.state = 'complete' and a.model = b.model
            and a.system_hash is not distinct from b.system_hash
            and a.input_tokens is not null and b.input_tokens - a.input_tokens - b.aut + a.aut > 0
            and a.selected_ids[a.trimmed_count + 1:] || p.id = b.selected_ids[b.trimmed_count + 1:]
            and a.selected_revisions[a.trimmed_count + 1:] || p.revision = b.selected_revisions[b.trimmed_count + 1:]
            and (p.tokens is null or p.tokens_model is distinct from b.model)";
    let sends: Vec<_> = reports.iter().filter(|report| report.has_pairs).map(|report| report.send).collect();
    if !sends.is_empty() {
        sqlx::query(SQL).bind(project).bind(sends).execute(connection).await?;
    }
    Ok(())
}
