//! `POST /v1/events`: many events of any kind, one a line. A bad line never loses a good one.

use axum::extract::{Request, State};
use axum::http::header;
use serde::de::{DeserializeOwned, Deserializer, MapAccess, Visitor, value::MapAccessDeserializer};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use crate::app::App;
use crate::auth::{Caller, Write};
use crate::db::writer::{Event, Writer};
use crate::error::{Error, FieldError, Refusals, Result};
use crate::extract::{self, Check, Checks, NDJSON_LIMIT, clean_json, expect_media_type, utf8};
use crate::generations::{self, NewAttempt, NewGeneration, NewReview};
use crate::projects::Capture;
use crate::searches::{self, NewFallback, NewSearch, Resolve};
use crate::suggestions::{
    self, Amendment, HistoryLine, Names, NewPartialInputs, NewSuggestion, NewViews, is_history_line,
};
use crate::value::derived_id;
use std::collections::HashMap;
use std::marker::PhantomData;
use std::sync::Arc;

/// The most events a batch may hold.
pub const MOST_LINES: usize = 20_000;

/// The path of batches.
pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(post))
}

/// What became of a batch. Every line that is not blank is counted once.
#[derive(Debug, Default, Serialize, ToSchema)]
pub struct Summary {
    /// Events that are now committed.
    pub accepted: usize,
    /// Events that had been sent before.
    pub duplicates: usize,
    /// Events of which the project keeps nothing.
    #[serde(skip_serializing_if = "is_zero")]
    pub skipped: usize,
    /// Lines that were refused, and why.
    pub rejected: Vec<Rejected>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_zero(count: &usize) -> bool {
    *count == 0
}

/// A line that was refused.
#[derive(Debug, Serialize, ToSchema)]
pub struct Rejected {
    /// Its number, from 1; blank lines count.
    pub line: usize,
    /// The status that the event's own endpoint would have answered.
    pub status: u16,
    /// What is wrong.
    pub detail: String,
    /// The fields that are wrong.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<FieldError>,
}

impl Rejected {
    fn new(line: usize, error: &Error) -> Self {
        let problem = error.problem();
        Self { line, status: problem.status, detail: problem.detail, errors: problem.errors }
    }
}

/// Takes many events at once.
///
/// Each line (or member of a JSON array) is an object with `event` naming its kind, the fields of that kind's own endpoint,
/// and the id that its path would hold: `generation`, `attempt`, `generation_outcome` and `review` (`generation_id`);
/// `suggestion`, `view`, `partial_inputs`, `suggestion_outcome` and `suggestion_amendment` (`suggestion_id`); `search`,
/// `fallback` and `search_outcome` (`search_id`). A line of the seed's `suggestion_history.jsonl` needs no `event`. Later
/// lines may refer to earlier ones; events of one record take effect in line order. At most 20 000 lines and 64 MiB.
#[utoipa::path(post, path = "/v1/events", tag = "batch",
    request_body(content(("application/x-ndjson"), ("application/jsonl"), (Vec<serde_json::Value> = "application/json"))),
    responses((status = 200, description = "What became of the lines", body = Summary), Refusals))]
async fn post(
    State(app): State<App>,
    caller: Caller<Write>,
    request: Request,
) -> Result<axum::Json<Summary>> {
    expect_media_type(request.headers(), &["application/x-ndjson", "application/jsonl", "application/json"])?;
    let is_array =
        request.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).is_some_and(
            |value| {
                value.trim_start().to_ascii_lowercase().starts_with("application/json")
                    && !value.contains("jsonl")
            },
        );
    let mut body = extract::body(request, NDJSON_LIMIT).await?;
    let mut lines = Vec::new();
    if is_array {
        body.replaced.add(clean_json(&mut body.bytes)?);
        let members: Vec<&RawValue> = extract::decode(utf8(&body.bytes)?)?;
        lines.extend(
            members
                .iter()
                .enumerate()
                .map(|(index, member)| (index + 1, read_line(&caller.project, member.get(), None))),
        );
    } else {
        for (index, line) in body.bytes.split_mut(|&byte| byte == b'\n').enumerate() {
            if line.trim_ascii().is_empty() {
                continue;
            }
            let event = clean_json(line).and_then(|count| {
                body.replaced.add(count);
                read_line(&caller.project, utf8(line)?, None)
            });
            lines.push((index + 1, event));
        }
    }
    if lines.len() > MOST_LINES {
        return Err(Error::TooLarge(format!(
            "a batch has at most {MOST_LINES} events; this one has {}",
            lines.len()
        )));
    }
    drop(body.bytes);
    write(&app.writer, &caller.project, lines).await.map(axum::Json)
}

/// Writes the lines that could be read. Fails as a whole only where none was written because the database or the queue
/// did not take them: then sending all again is right.
pub async fn write(
    writer: &Writer,
    project: &Arc<str>,
    lines: Vec<(usize, Result<Event>)>,
) -> Result<Summary> {
    let mut summary = Summary::default();
    let mut numbers = Vec::with_capacity(lines.len());
    let mut events = Vec::with_capacity(lines.len());
    for (number, line) in lines {
        match line {
            Ok(event) => {
                numbers.push(number);
                events.push(event);
            }
            Err(error) => summary.rejected.push(Rejected::new(number, &error)),
        }
    }
    let written = writer.write_all(project, events).await;
    if !written.is_empty() && written.iter().all(|written| written.as_ref().is_err_and(Error::is_transient)) {
        return Err(written.into_iter().find_map(Result::err).unwrap_or(Error::Unavailable("try again")));
    }
    for (number, written) in numbers.into_iter().zip(written) {
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
    Ok(summary)
}

/// The id of a line that has none of its own, and is the `nth` that reads so.
#[must_use]
pub fn line_id(project: &str, line: &[u8], nth: u32) -> Uuid {
    derived_id(&[b"line", project.as_bytes(), line, &nth.to_be_bytes()])
}

/// Makes ids for the lines of an import that have none: the same line, at the same place among its equals, gets the same
/// id every time.
#[derive(Debug, Default)]
pub struct LineIds(HashMap<[u8; 16], u32>);

impl LineIds {
    /// The id of the next line, which reads so.
    pub fn next(&mut self, project: &str, line: &[u8]) -> Uuid {
        let seen = self.0.entry(derived_id(&[line]).into_bytes()).or_default();
        *seen += 1;
        line_id(project, line, *seen)
    }
}

/// Reads one clean line as an event. `id` is for one that has none of its own.
pub fn read_line(project: &str, line: &str, id: Option<Uuid>) -> Result<Event> {
    #[derive(Deserialize)]
    struct Named {
        event: Option<String>,
    }
    let Named { event } = extract::decode(line)?;
    let generation = |event| Ok(Event::Generation(event));
    let suggestion = |event| Ok(Event::Suggestion(event));
    let search = |event| Ok(Event::Search(event));
    match event.as_deref() {
        Some("generation") => generation(generations::Event::start(start::<NewGeneration, Log>(line)?, id)),
        Some("attempt") => {
            let (log, body) = child::<NewAttempt, Log>(line)?;
            generation(generations::Event::append(log, body, id))
        }
        Some("generation_outcome") => {
            let (log, body) = child::<generations::Outcome, Log>(line)?;
            generation(generations::Event::finalize(log, body))
        }
        Some("review") => {
            let (log, body) = child::<NewReview, Log>(line)?;
            generation(generations::Event::review(log, body))
        }
        None | Some("suggestion") if is_history_line(line) => {
            let id = id.unwrap_or_else(|| line_id(project, line.trim_ascii().as_bytes(), 1));
            suggestion(suggestions::Event::line(start::<HistoryLine, Slate>(line)?, id))
        }
        Some("suggestion") => suggestion(suggestions::Event::start(start::<NewSuggestion, Slate>(line)?, id)),
        Some("view") => {
            let (slate, body) = child::<NewViews, Slate>(line)?;
            suggestion(suggestions::Event::view(slate, body, Names::of_line(id)))
        }
        Some("partial_inputs") => {
            let (slate, body) = child::<NewPartialInputs, Slate>(line)?;
            suggestion(suggestions::Event::partial_inputs(slate, body, Names::of_line(id)))
        }
        Some("suggestion_outcome") => {
            let (slate, body) = child::<suggestions::Outcome, Slate>(line)?;
            suggestion(suggestions::Event::finalize(slate, body))
        }
        Some("suggestion_amendment") => {
            let (slate, body) = child::<Amendment, Slate>(line)?;
            suggestion(suggestions::Event::amend(slate, body))
        }
        Some("search") => {
            let new = start::<NewSearch, Search>(line)?;
            search(searches::Event::start(new, id, Vec::new()))
        }
        Some("fallback") => {
            let (of, body) = child::<NewFallback, Search>(line)?;
            search(searches::Event::append(of, body, id))
        }
        Some("search_outcome") => {
            let (of, body) = child::<Resolve, Search>(line)?;
            search(searches::Event::finalize(of, &body))
        }
        Some(other) => Err(Error::invalid("/event", format!("{other:?} is not the name of an event"))),
        None => Err(Error::invalid("/event", "must name what happened")),
    }
}

/// The records that lines are about: each kind of record is named by a member of its own.
trait Record {
    /// The member.
    const MEMBER: &'static str;
    /// What it names.
    const NAME: &'static str;
}

/// A generation log.
struct Log;

impl Record for Log {
    const MEMBER: &'static str = "generation_id";
    const NAME: &'static str = "generation";
}

/// A suggestion record.
struct Slate;

impl Record for Slate {
    const MEMBER: &'static str = "suggestion_id";
    const NAME: &'static str = "suggestion";
}

/// A search.
struct Search;

impl Record for Search {
    const MEMBER: &'static str = "search_id";
    const NAME: &'static str = "search";
}

/// A line about a record that the line names.
fn child<T: DeserializeOwned + Check, R: Record>(line: &str) -> Result<(Uuid, T)> {
    let Line { record, body, .. } = extract::decode::<Line<T, R>>(line)?;
    let missing = || Error::invalid(format!("/{}", R::MEMBER), format!("must name the {}", R::NAME));
    Ok((record.ok_or_else(missing)?, Checks::of(body)?))
}

/// A line with which a record begins.
fn start<T: DeserializeOwned + Check, R: Record>(line: &str) -> Result<T> {
    let Line { record, body, .. } = extract::decode::<Line<T, R>>(line)?;
    match record {
        None => Checks::of(body),
        Some(_) => Err(Error::invalid(format!("/{}", R::MEMBER), format!("a {} is named by id", R::NAME))),
    }
}

/// A line: what names its kind and its record, and otherwise the body of the kind's own endpoint.
struct Line<T, R> {
    record: Option<Uuid>,
    body: T,
    kind: PhantomData<R>,
}

impl<'de, T: Deserialize<'de>, R: Record> Deserialize<'de> for Line<T, R> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members<T, R>(PhantomData<(T, R)>);
        impl<'de, T: Deserialize<'de>, R: Record> Visitor<'de> for Members<T, R> {
            type Value = Line<T, R>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Line<T, R>, A::Error> {
                let mut record = None;
                let members = Body { map, member: R::MEMBER, record: &mut record };
                let body = T::deserialize(MapAccessDeserializer::new(members))?;
                Ok(Line { record, body, kind: PhantomData })
            }
        }
        deserializer.deserialize_map(Members(PhantomData))
    }
}

/// The members of a line without those that are about the line itself.
struct Body<'a, A> {
    map: A,
    /// The member that names the record.
    member: &'static str,
    record: &'a mut Option<Uuid>,
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Body<'_, A> {
    type Error = A::Error;

    fn next_key_seed<K: serde::de::DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, A::Error> {
        loop {
            let Some(key) = self.map.next_key::<std::borrow::Cow<'de, str>>()? else {
                return Ok(None);
            };
            if key == "event" {
                self.map.next_value::<serde::de::IgnoredAny>()?;
            } else if key == self.member {
                *self.record = self.map.next_value()?;
            } else {
                let key = serde::de::value::CowStrDeserializer::new(key);
                return seed.deserialize(key).map(Some);
            }
        }
    }

    fn next_value_seed<V: serde::de::DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, A::Error> {
        self.map.next_value_seed(seed)
    }
}
