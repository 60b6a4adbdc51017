//! `POST /v1/events`: many events of any kind, one on each line. A bad line does not affect the others.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::auth::keys::Scope;
use crate::auth::{Caller, Write};
use crate::db::receipt::Written;
use crate::domain::{self, Event};
use crate::error::{Error, FieldError, Refusals, Result};
use crate::http::clean::MOST_VALUES;
use crate::http::json::{self, Body, expect_media_type};
use crate::http::line::{File, LINES};
use crate::http::memory::Memory;
use crate::http::{NDJSON_LIMIT, Replaced, clean_json, utf8};
use crate::privacy::capture::Capture;
use crate::projects::Tenant;
use crate::sharing::{Kind, apart};
use crate::state::App;
use crate::types::value;
use crate::writer::{Writer, refuse_rest};

/// The maximum number of events that one batch may hold.
pub const MOST_LINES: usize = 20_000;
/// The maximum number of attempts of its finished logs and pieces of its files that a batch may have together.
const MOST_PARTS: usize = 200_000;
/// The maximum number of wrong fields that are named of a batch, besides one of each line.
const MOST_FIELDS: usize = 10_000;
/// The number of bytes below which a line does not have so many values that as many lines as are written together have more
/// than [`MOST_VALUES`].
const SHORT: usize = 1_000;
/// The number of bytes from which the values of a line may take much memory.
const LONG: usize = 16 << 10;

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
/// and events of one record take effect in line order. A batch has at most 20,000 lines and 64 MiB, and
/// the attempts of its finished logs and the pieces of its files are at most 200,000 together. Each of these, and the rest of a line, has
/// at most 8 MiB. A line of a send with `visible` or `reask_of` needs the scope `read`, too.
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
    let body = json::body(request, NDJSON_LIMIT).await?;
    let project = Arc::clone(&caller.project);
    let turn = app.work.turn(&project, Kind::Parse).await;
    // A large batch takes seconds to parse, for which the other requests of this thread would wait.
    let of_project = Arc::clone(&project);
    let read = move || if is_array { read_array(&of_project, body) } else { read_lines(&of_project, body) };
    let mut lines = apart(&project, read).await?;
    drop(turn);
    for line in lines.iter_mut().filter(|line| line.event.as_ref().is_ok_and(Event::shows_others)) {
        if let Err(error) = caller.expect(Scope::Read) {
            line.event = Err(error);
        }
    }
    let (summary, redacted) = write(&app.writer, &caller.tenant, lines, &memory).await?;
    replaced.add_redacted(redacted);
    Ok(axum::Json(summary))
}

/// A line of a batch.
pub struct Line {
    /// Its number in the batch, from 1 on.
    pub number: usize,
    /// The number of its JSON values, unless it is too short to have many.
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

/// What was read of a batch so far.
struct Taken {
    memory: Memory,
    bytes: usize,
    lines: usize,
    parts: usize,
    errors: usize,
}

impl Taken {
    fn new(body: &Body) -> Self {
        Self { memory: body.memory.clone(), bytes: body.bytes.len(), lines: 0, parts: 0, errors: 0 }
    }

    /// Holds memory for the values of a text that is about to be parsed, and hashed. It may wait for memory, so it needs a
    /// thread of its own.
    fn expect(&self, text: &[u8]) -> Result<()> {
        if text.len() < LONG {
            return Ok(());
        }
        let hold = self.memory.hold_values(self.bytes, value::count(text).min(MOST_VALUES));
        tokio::runtime::Handle::current().block_on(hold)
    }

    /// Adds an event, and holds memory for it, as before.
    fn add(&mut self, event: &mut Result<Event>) -> Result<()> {
        self.lines += 1;
        if self.lines > MOST_LINES {
            return Err(too_many());
        }
        if let Err(Error::Invalid(errors)) = event {
            errors.truncate(MOST_FIELDS.saturating_sub(self.errors).max(1));
            self.errors += errors.len();
            // An error repeats what is wrong, in which a byte can take six to be shown.
            for error in errors {
                *error = error.brief();
            }
        }
        let (parts, size) = event.as_ref().map_or((0, 0), Event::parts);
        if parts == 0 {
            return Ok(());
        }
        self.parts += parts;
        if self.parts > MOST_PARTS {
            return Err(Error::TooLarge(format!(
                "a batch has at most {MOST_PARTS} attempts and pieces, and this one has more"
            )));
        }
        self.bytes += size;
        let hold = self.memory.hold(self.bytes);
        tokio::runtime::Handle::current().block_on(hold)
    }
}

/// Parses the lines of a batch that are not blank. One line more than allowed ends it, before anything is
/// kept of the rest.
fn read_lines(project: &str, mut body: Body) -> Result<Vec<Line>> {
    let (mut lines, mut taken) = (Vec::new(), Taken::new(&body));
    for (index, line) in body.bytes.split_mut(|&byte| byte == b'\n').enumerate() {
        if line.trim_ascii().is_empty() {
            continue;
        }
        taken.expect(line)?;
        let mut event = clean_json(line).and_then(|count| {
            body.replaced.add(count);
            domain::read(project, utf8(line)?, None)
        });
        taken.add(&mut event)?;
        lines.push(Line::new(index + 1, line, event));
    }
    Ok(lines)
}

/// Parses the members of a batch that is a JSON array.
fn read_array(project: &str, mut body: Body) -> Result<Vec<Line>> {
    body.replaced.add(clean_json(&mut body.bytes)?);
    let text = utf8(&body.bytes)?;
    if json::is_long_string(text) {
        return Err(Error::invalid("", "must be an array, not a string"));
    }
    let members: Vec<&RawValue> = json::decode(text).map_err(|error| match error {
        Error::TooLarge(_) => too_many(),
        other => other,
    })?;
    let mut taken = Taken::new(&body);
    let read = |(number, member): (usize, &RawValue)| {
        taken.expect(member.get().as_bytes())?;
        let mut event = domain::read(project, member.get(), None);
        taken.add(&mut event)?;
        Ok(Line::new(number, member.get().as_bytes(), event))
    };
    (1..).zip(members).map(read).collect()
}

fn too_many() -> Error {
    Error::TooLarge(format!("a batch has at most {MOST_LINES} events, and this one has more"))
}

/// Writes the lines that could be read, as many together as have the JSON values that a single line may have, because Postgres
/// takes a hundred bytes for each until they are written. Returns what became of them, and how many spans were redacted.
/// Fails as a whole only if the database or the queue accepted none of them, in which case the client should send the batch
/// again.
pub async fn write(
    writer: &Writer,
    tenant: &Arc<Tenant>,
    lines: Vec<Line>,
    memory: &Memory,
) -> Result<(Summary, u32)> {
    let mut summary = Summary::default();
    let mut redacted = 0;
    let mut numbers = Vec::with_capacity(lines.len());
    let (mut events, mut written) = (Vec::with_capacity(lines.len()), Vec::with_capacity(lines.len()));
    let mut sum = 0;
    for Line { number, values, event } in lines {
        match event {
            Ok(event) => {
                sum += values;
                if sum > MOST_VALUES && !events.is_empty() {
                    write_part(writer, tenant, std::mem::take(&mut events), memory, &mut written).await;
                    sum = values;
                }
                numbers.push(number);
                events.push(event);
            }
            Err(error) => summary.rejected.push(Rejected::new(number, &error)),
        }
    }
    write_part(writer, tenant, events, memory, &mut written).await;
    if !written.is_empty() && written.iter().all(|written| written.as_ref().is_err_and(Error::is_transient)) {
        return Err(written.into_iter().find_map(Result::err).unwrap_or(Error::Unavailable("try again")));
    }
    for (number, written) in numbers.into_iter().zip(written) {
        redacted += written.as_ref().map_or(0, |receipt| receipt.redacted);
        match written {
            Ok(receipt) if receipt.kept == Capture::Off => summary.skipped += 1,
            Ok(receipt) if receipt.replayed => summary.duplicates += 1,
            Ok(_) => summary.accepted += 1,
            Err(error) => {
                if let Error::Internal(cause) = &error {
                    tracing::error!(
                        cause = format!("{cause:#}"),
                        line = number,
                        "an event could not be written"
                    );
                }
                summary.rejected.push(Rejected::new(number, &error));
            }
        }
    }
    summary.rejected.sort_by_key(|rejected| rejected.line);
    metrics::counter!("gleaner_events_rejected_total").increment(summary.rejected.len() as u64);
    Ok((summary, redacted))
}

/// Writes a part of the lines, unless one before it was refused by the database or the queue.
async fn write_part(
    writer: &Writer,
    tenant: &Arc<Tenant>,
    events: Vec<Event>,
    memory: &Memory,
    written: &mut Vec<Written>,
) {
    let total = written.len() + events.len();
    if !refuse_rest(written, total) {
        written.extend(writer.write_all(tenant, events, memory).await);
    }
}
