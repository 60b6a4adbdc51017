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
use crate::generations::{self, NewAttempt, NewGeneration, NewReview, Outcome};
use crate::searches::{self, NewFallback, NewSearch, Resolve};
use crate::value::derived_id;
use std::collections::HashMap;
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
    /// Lines that were refused, and why.
    pub rejected: Vec<Rejected>,
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
/// Each line (or member of a JSON array) is an object with `event` naming its kind (`generation`, `attempt`,
/// `generation_outcome`, `review`; `search`, `fallback`, `search_outcome`), the fields of that kind's own endpoint, and
/// the id that its path would hold (`generation_id`, `search_id`). Later lines may refer to earlier ones; events of one record take effect in line order. At most
/// 20 000 lines and 64 MiB.
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
            members.iter().enumerate().map(|(index, member)| (index + 1, read_line(member.get(), None))),
        );
    } else {
        for (index, line) in body.bytes.split_mut(|&byte| byte == b'\n').enumerate() {
            if line.trim_ascii().is_empty() {
                continue;
            }
            let event = clean_json(line).and_then(|count| {
                body.replaced.add(count);
                read_line(utf8(line)?, None)
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

/// Makes ids for the lines of an import that have none: the same line, at the same place among its equals, gets the same
/// id every time.
#[derive(Debug, Default)]
pub struct LineIds(HashMap<[u8; 16], u32>);

impl LineIds {
    /// The id of the next line, which reads so.
    pub fn next(&mut self, project: &str, line: &[u8]) -> Uuid {
        let seen = self.0.entry(derived_id(&[line]).into_bytes()).or_default();
        *seen += 1;
        derived_id(&[b"line", project.as_bytes(), line, &seen.to_be_bytes()])
    }
}

/// Reads one clean line as an event. `id` is for one that has none of its own.
pub fn read_line(line: &str, id: Option<Uuid>) -> Result<Event> {
    #[derive(Deserialize)]
    struct Named {
        event: Option<String>,
    }
    let Named { event } = extract::decode(line)?;
    let generation = |event| Ok(Event::Generation(event));
    let search = |event| Ok(Event::Search(event));
    match event.as_deref() {
        Some("generation") => {
            generation(generations::Event::start(record::<NewGeneration>(line, "generation")?, id))
        }
        Some("attempt") => {
            let (log, body) = child::<NewAttempt>(line, "generation")?;
            generation(generations::Event::append(log, body, id))
        }
        Some("generation_outcome") => {
            let (log, body) = child::<Outcome>(line, "generation")?;
            generation(generations::Event::finalize(log, body))
        }
        Some("review") => {
            let (log, body) = child::<NewReview>(line, "generation")?;
            generation(generations::Event::review(log, body))
        }
        Some("search") => {
            search(searches::Event::start(record::<NewSearch>(line, "search")?, id, Vec::new()))
        }
        Some("fallback") => {
            let (of, body) = child::<NewFallback>(line, "search")?;
            search(searches::Event::append(of, body, id))
        }
        Some("search_outcome") => {
            let (of, body) = child::<Resolve>(line, "search")?;
            search(searches::Event::finalize(of, &body))
        }
        Some(other) => Err(Error::invalid("/event", format!("{other:?} is not the name of an event"))),
        None => Err(Error::invalid("/event", "must name what happened")),
    }
}

/// A line that makes a record of this kind.
fn record<T: DeserializeOwned + Check>(line: &str, kind: &str) -> Result<T> {
    let Line { parent, body } = extract::decode::<Line<T>>(line)?;
    match parent {
        None => Checks::of(body),
        Some((member, _)) => Err(Error::invalid(format!("/{member}"), format!("a {kind} is named by id"))),
    }
}

/// A line about a record of this kind, which the line names.
fn child<T: DeserializeOwned + Check>(line: &str, kind: &str) -> Result<(Uuid, T)> {
    let Line { parent, body } = extract::decode::<Line<T>>(line)?;
    let named = format!("{kind}_id");
    match parent {
        Some((member, Some(parent))) if member == named => Ok((parent, Checks::of(body)?)),
        Some((member, _)) if member != named => {
            Err(Error::invalid(format!("/{member}"), format!("this is about a {kind}")))
        }
        _ => Err(Error::invalid(format!("/{named}"), format!("must name the {kind}"))),
    }
}

/// The members that name a line's record.
const PARENTS: [&str; 2] = ["generation_id", "search_id"];

/// A line: what names its kind and its record, and otherwise the body of the kind's own endpoint.
struct Line<T> {
    /// The member that names its record, and the record.
    parent: Option<(&'static str, Option<Uuid>)>,
    body: T,
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Line<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members<T>(std::marker::PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Members<T> {
            type Value = Line<T>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Line<T>, A::Error> {
                let mut parent = None;
                let body = T::deserialize(MapAccessDeserializer::new(Body { map, parent: &mut parent }))?;
                Ok(Line { parent, body })
            }
        }
        deserializer.deserialize_map(Members(std::marker::PhantomData))
    }
}

/// The members of a line without those that are about the line itself.
struct Body<'a, A> {
    map: A,
    parent: &'a mut Option<(&'static str, Option<Uuid>)>,
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
            match &*key {
                "event" => {
                    self.map.next_value::<serde::de::IgnoredAny>()?;
                }
                name => {
                    if let Some(member) = PARENTS.iter().find(|member| **member == name) {
                        *self.parent = Some((member, self.map.next_value()?));
                        continue;
                    }
                    let key = serde::de::value::CowStrDeserializer::new(key);
                    return seed.deserialize(key).map(Some);
                }
            }
        }
    }

    fn next_value_seed<V: serde::de::DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, A::Error> {
        self.map.next_value_seed(seed)
    }
}
