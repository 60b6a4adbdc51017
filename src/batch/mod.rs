//! `POST /v1/events`: many events of any kind, one on each line. A bad line does not affect the others.

mod unread;

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::auth::keys::Scope;
use crate::auth::{Caller, Write};
use crate::domain::Event;
use crate::error::{Error, FieldError, Refusals, Result};
use crate::http::clean::MOST_VALUES;
use crate::http::json::{self, expect_media_type};
use crate::http::line::{File, LINES};
use crate::http::memory::Memory;
use crate::http::{NDJSON_LIMIT, Replaced};
use crate::privacy::capture::Capture;
use crate::projects::Tenant;
use crate::sharing::{Kind, apart};
use crate::state::App;
use crate::types::value;
use crate::writer::Writer;

use self::unread::{MOST_LINES, Unread};

/// The number of bytes below which a line does not have so many values that as many lines as are written together have more
/// than [`MOST_VALUES`].
const SHORT: usize = 1_000;

/// Half of the number of bytes that a line takes until the batch is answered: its place in the body, its number, and that it was
/// rejected. Memory is held for twice as many.
const LINE: usize = 100;

/// The example of a batch in the OpenAPI document. It makes the records that other endpoints' examples erase.
const EXAMPLE: &str = concat!(
    r#"{"event": "generation", "id": "01946984-36a0-7b2e-8f41-c07d9e35a6b2", "user_intent": "Create a fund with Jane as director", "domain_name": "cbu", "session_id": "other-session"}"#,
    "\n",
    r#"{"event": "attempt", "generation_id": "01946984-36a0-7b2e-8f41-c07d9e35a6b2", "attempt": 1, "prompt_template": "cbu_create", "prompt_template_version": 2, "extracted_dsl": "(cbu.create :kind \"fund\" :director \"Jane\")", "parse_result": {"success": true}}"#,
    "\n",
    r#"{"event": "generation_outcome", "generation_id": "01946984-36a0-7b2e-8f41-c07d9e35a6b2", "success": true}"#,
    "\n",
    r#"{"event": "suggestion", "id": "01946984-36a0-7b2e-8f41-c07d9e35a6b2", "context": {"cwd": "/home/jane"}, "suggestions": ["make", "make test"], "suggestion_node_version": "v1.1", "session_name": "other-session", "actual_input": "make test"}"#,
    "\n",
    r#"{"event": "pair", "id": "01946984-36a0-7b2e-8f41-c07d9e35a6b2", "user_text": "How do I list files?", "assistant_text": "With `ls`."}"#,
    "\n",
    r#"{"event": "memory", "id": "01946984-36a0-7b2e-8f41-c07d9e35a6b2", "content": "The staging database is on port 5433."}"#,
    "\n",
    r#"{"event": "conversation_query", "session_id": "other-session", "id": "01946984-36a0-7b2e-8f41-c07d9e35a6b2", "query": "Which port does staging use?"}"#,
    "\n",
    r#"{"event": "memory_feedback", "session_id": "other-session", "memory_id": "01946984-36a0-7b2e-8f41-c07d9e35a6b2", "verdict": "used"}"#,
    "\n",
    r#"{"event": "send", "id": "01946984-36a0-7b2e-8f41-c07d9e35a6b2", "mode": "record", "model": "gpt-4o-mini", "user_text": "And hidden ones?", "visible": {"ids": ["01946984-36a0-7b2e-8f41-c07d9e35a6b2"]}}"#,
    "\n",
);

/// Returns the endpoint of batches.
pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(post_events))
}

/// The outcome of a batch. Every line that is not blank is counted once.
#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
#[schema(as = BatchSummary)]
pub struct Summary {
    /// The number of events that are now committed.
    pub accepted: usize,
    /// The number of events that had been sent before.
    pub duplicates: usize,
    /// The number of events that were not stored because of the project's `capture` setting.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub skipped: usize,
    /// The rejected lines, with the reasons.
    pub rejected: Vec<Rejected>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_zero(count: &usize) -> bool {
    *count == 0
}

/// A rejected line of a batch.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = RejectedLine)]
pub struct Rejected {
    /// The line's number, from 1. Blank lines count.
    pub line: usize,
    /// The status that the event's own endpoint would have returned.
    pub status: u16,
    /// What is wrong with the line.
    pub detail: String,
    /// The invalid fields.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<FieldError>,
}

impl Rejected {
    fn new(line: usize, error: &Error) -> Self {
        let problem = error.problem();
        Self { line, status: problem.status, detail: problem.detail, errors: problem.errors }
    }

    /// Returns about how many bytes it takes.
    fn size(&self) -> usize {
        let of_errors = self
            .errors
            .iter()
            .map(|error| size_of::<FieldError>() + error.pointer.len() + error.detail.len());
        size_of::<Self>() + self.detail.len() + of_errors.sum::<usize>()
    }
}

/// Stores many events in one request.
///
/// Each line (or element of a JSON array) is an object. Its member `event` names the kind of event. Its other members
/// are those that the kind's own endpoint takes, and the id that the endpoint's path would contain. The kinds are
/// `generation`, `attempt`, `generation_outcome`, `generation_amendment` and `review` (which refer to
/// `generation_id`); `suggestion`, `view`, `partial_inputs`, `suggestion_outcome` and `suggestion_amendment`
/// (`suggestion_id`); `search`, `fallback` and `search_outcome` (`search_id`); `pair`, `send` (with `mode: record`),
/// `send_attempt` and `send_outcome` (`send_id`); `memory` and `memory_code`; `conversation_query` and `memory_feedback`
/// (`session_id`). A line of a `suggestion_history.jsonl` needs no `event`. A line without an id of its own may have
/// a `line_id`, which is any UUID and makes it safe to send the line again. Later lines may refer to earlier ones,
/// and events of one record take effect in line order. A batch has at most 20,000 lines and 64 MiB. The attempts of its finished
/// logs and the pieces of its files are at most 200,000 together: the line with more, and those after it, are rejected. Each attempt
/// and each piece, and the rest of a line, has at most 8 MiB, and a line that finalizes, amends or reviews a record has 2 MiB. A
/// line of a send with `visible` or `reask_of` needs the scope `read`, too.
#[utoipa::path(post, path = "/v1/events", tag = "batch",
    request_body(content(
        (String = "application/x-ndjson", example = json!(EXAMPLE)),
        (String = "application/jsonl"),
        (inline(File) = "application/octet-stream"),
        (Vec<serde_json::Value> = "application/json", example = json!([
            {"event": "generation", "id": "01946985-2100-7c4f-a5d2-3e8b7f9016c4", "user_intent": "Create a fund", "domain_name": "cbu"},
            {"event": "generation_outcome", "generation_id": "01946985-2100-7c4f-a5d2-3e8b7f9016c4", "success": false, "error": "given up"},
        ])),
    )),
    responses((status = 200, description = "The outcome of the lines", body = Summary), Refusals))]
async fn post_events(
    State(app): State<App>,
    caller: Caller<Write>,
    request: Request,
) -> Result<axum::Json<Summary>> {
    expect_media_type(request.headers(), &[LINES, &["application/json"]].concat())?;
    let is_array =
        request.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).is_some_and(
            |value| {
                value.trim_start().to_ascii_lowercase().starts_with("application/json")
                    && !value.contains("jsonl")
            },
        );
    let memory = Memory::of(request.extensions());
    let replaced = Replaced::of(request.extensions());
    let body = json::body_of_parts(request, NDJSON_LIMIT).await?;
    let separator = if is_array { b',' } else { b'\n' };
    let count = memchr::memchr_iter(separator, &body.bytes).take(MOST_LINES).count() + 1;
    let mut outcome = Outcome { reasons: count * LINE, ..Outcome::default() };
    memory.hold_beside(2 * outcome.reasons).await?;
    // A large batch takes seconds to parse, for which the other requests of this thread would wait.
    let project = Arc::clone(&caller.project);
    let find = if is_array { Unread::array } else { Unread::lines };
    let turn = app.work.turn(&project, Kind::Parse).await;
    let mut unread = apart(&project, {
        let project = Arc::clone(&project);
        move || find(project, body)
    })
    .await?;
    drop(turn);
    while outcome.goes_on(&unread, &memory).await {
        let turn = app.work.turn(&project, Kind::Parse).await;
        let mut lines;
        (unread, lines) = apart(&project, move || {
            let lines = unread.read();
            (unread, lines)
        })
        .await;
        drop(turn);
        for line in lines.iter_mut().filter(|line| line.event.as_ref().is_ok_and(Event::shows_others)) {
            if let Err(error) = caller.expect(Scope::Read) {
                line.event = Err(error);
            }
        }
        outcome.write(&app.writer, &caller.tenant, lines, &memory).await;
    }
    let (summary, redacted) = outcome.summary()?;
    replaced.add_redacted(redacted);
    Ok(axum::Json(summary))
}

/// A line of a batch.
pub struct Line {
    /// Its number in the batch, from 1 on.
    pub number: usize,
    /// About the number of its JSON values.
    pub values: usize,
    /// The event that it is parsed as.
    pub event: Result<Event>,
}

impl Line {
    /// Makes a line of its text and the event that this is parsed as.
    #[must_use]
    pub fn new(number: usize, text: &[u8], event: Result<Event>) -> Self {
        Self { number, values: if text.len() < SHORT { 1 } else { value::count(text) }, event }
    }
}

/// What became of the lines of a batch that were read.
#[derive(Default)]
struct Outcome {
    summary: Summary,
    /// How many spans were redacted.
    redacted: u32,
    /// Whether the database or the queue has accepted or rejected an event.
    is_decided: bool,
    /// Why the database or the queue has refused an event, or why there was no memory to read it. Those after it are refused, too,
    /// which may need it.
    refused: Option<Error>,
    /// How many bytes the reasons take why lines were rejected, besides those that all lines take.
    reasons: usize,
    /// Whether there was no memory for a reason. Then none is asked for again, because each time takes a millisecond.
    is_brief: bool,
}

impl Outcome {
    /// Waits for memory for the lines that are read next, and returns whether there are any. If those before were refused, or there
    /// is no memory, all others are refused, too.
    async fn goes_on(&mut self, unread: &Unread, memory: &Memory) -> bool {
        if self.refused.is_none() {
            match unread.has_more().await {
                Ok(has_more) => return has_more,
                Err(error) => self.refused = Some(error),
            }
        }
        // Otherwise the whole batch is refused.
        if self.is_decided
            && let Some(refused) = self.refused.take()
        {
            for number in unread.rest() {
                self.reject(number, &refused, memory).await;
            }
            self.refused = Some(refused);
        }
        false
    }

    /// Writes lines that follow those before, as many together as have the JSON values that a single line may have, because
    /// Postgres takes a hundred bytes for each until they are written.
    async fn write(&mut self, writer: &Writer, tenant: &Arc<Tenant>, lines: Vec<Line>, memory: &Memory) {
        let mut part = Part::default();
        for Line { number, values, event } in lines {
            match event {
                Ok(event) => {
                    if part.values + values > MOST_VALUES {
                        self.write_part(writer, tenant, std::mem::take(&mut part), memory).await;
                    }
                    part.values += values;
                    part.numbers.push(number);
                    part.events.push(event);
                }
                Err(error) if error.is_transient() => {
                    self.write_part(writer, tenant, std::mem::take(&mut part), memory).await;
                    self.refuse(number, error, memory).await;
                }
                Err(error) => self.reject(number, &error, memory).await,
            }
        }
        self.write_part(writer, tenant, part, memory).await;
    }

    async fn write_part(&mut self, writer: &Writer, tenant: &Arc<Tenant>, part: Part, memory: &Memory) {
        let written = match &self.refused {
            Some(Error::Unavailable(reason)) => {
                part.events.iter().map(|_| Err(Error::Unavailable(reason))).collect()
            }
            _ => writer.write_more(tenant, part.events, memory, self.is_decided).await,
        };
        for (number, written) in part.numbers.into_iter().zip(written) {
            self.is_decided |= !written.as_ref().is_err_and(Error::is_transient);
            match written {
                Ok(receipt) => {
                    self.redacted += receipt.redacted;
                    let count = match receipt.kept {
                        Capture::Off => &mut self.summary.skipped,
                        _ if receipt.replayed => &mut self.summary.duplicates,
                        _ => &mut self.summary.accepted,
                    };
                    *count += 1;
                }
                Err(error) if error.is_transient() => self.refuse(number, error, memory).await,
                Err(error) => {
                    if let Error::Internal(cause) = &error {
                        tracing::error!(
                            cause = format!("{cause:#}"),
                            line = number,
                            "an event could not be written"
                        );
                    }
                    self.reject(number, &error, memory).await;
                }
            }
        }
    }

    /// Notes that a line was not taken for the moment.
    async fn refuse(&mut self, number: usize, error: Error, memory: &Memory) {
        self.reject(number, &error, memory).await;
        if matches!(error, Error::Unavailable(_)) || self.refused.is_none() {
            self.refused = Some(error);
        }
    }

    /// Notes that a line was not taken. From where on there is no memory for the reasons, only the status is said.
    async fn reject(&mut self, number: usize, error: &Error, memory: &Memory) {
        let mut rejected = Rejected::new(number, error);
        self.reasons += rejected.size();
        // Once for the reasons, and once for the response that is made of them.
        self.is_brief = self.is_brief || memory.hold_beside(2 * self.reasons).await.is_err();
        if self.is_brief {
            rejected =
                Rejected { detail: "no memory for the reason".to_owned(), errors: Vec::new(), ..rejected };
        }
        self.summary.rejected.push(rejected);
    }

    /// Returns what became of the lines, and how many spans were redacted. Fails as a whole only if the database or the queue
    /// accepted none of them, in which case the client should send the batch again.
    fn summary(self) -> Result<(Summary, u32)> {
        let Self { mut summary, redacted, is_decided, refused, .. } = self;
        if let Some(refused) = refused.filter(|_| !is_decided) {
            return Err(refused);
        }
        summary.rejected.sort_by_key(|rejected| rejected.line);
        metrics::counter!("gleaner_events_rejected_total").increment(summary.rejected.len() as u64);
        Ok((summary, redacted))
    }
}

/// Events that are written together, and the numbers of their lines.
#[derive(Default)]
struct Part {
    events: Vec<Event>,
    numbers: Vec<usize>,
    /// How many JSON values the lines have.
    values: usize,
}

/// Writes lines that were read without a request. Returns what became of them, and how many spans were redacted.
pub async fn write(
    writer: &Writer,
    tenant: &Arc<Tenant>,
    lines: Vec<Line>,
    memory: &Memory,
) -> Result<(Summary, u32)> {
    let mut outcome = Outcome::default();
    outcome.write(writer, tenant, lines, memory).await;
    outcome.summary()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::memory::Budget;

    #[tokio::test(start_paused = true)]
    async fn a_line_for_whose_reason_there_is_no_memory_is_rejected_by_its_status() {
        let budget = Budget::new(512 << 10);
        let of = |project: &str| Memory::of_project(&budget, &project.into());
        let (memory, other) = (of("own"), of("other"));
        other.hold(100 << 10).await.expect("there is enough");
        let mut outcome = Outcome::default();
        let error = Error::invalid("/user_text", "x".repeat(1_000));
        for line in 1..=200 {
            outcome.reject(line, &error, &memory).await;
        }
        let (summary, _) = outcome.summary().expect("nothing was refused");
        let (said, brief): (Vec<_>, Vec<_>) =
            summary.rejected.iter().partition(|rejected| !rejected.errors.is_empty());
        assert!(said.len() > 20 && brief.len() > 20, "{} and {}", said.len(), brief.len());
        assert!(brief.iter().all(|rejected| rejected.status == 422));
        let numbers: Vec<_> = summary.rejected.iter().map(|rejected| rejected.line).collect();
        assert_eq!(numbers, (1..=200).collect::<Vec<_>>());
    }
}
