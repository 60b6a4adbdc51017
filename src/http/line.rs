//! Lines of a batch. Each names the kind of its event, and otherwise holds the body that the kind's own
//! endpoint takes.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::marker::PhantomData;

use axum::http::{HeaderMap, header};
use serde::Deserialize;
use serde::de::value::{CowStrDeserializer, MapAccessDeserializer};
use serde::de::{DeserializeOwned, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{KnownFormat, ObjectBuilder, Schema, SchemaFormat, Type};
use utoipa::{PartialSchema, ToSchema};
use uuid::Uuid;

use super::check::{Check, Checks};
use super::clean::expect_few_values;
use super::json;
use crate::error::{Error, Result};

/// The media types that a body of lines may have. `application/octet-stream` is for clients that do not know
/// what a file contains.
pub const LINES: &[&str] = &["application/x-ndjson", "application/jsonl", "application/octet-stream"];

/// The maximum number of bytes of each part of a line that is written for itself, and of the rest of the line.
pub const LONGEST_PART: usize = 8 << 20;

/// The members of a line whose elements are written for themselves: the attempts of a log, and the pieces of a file.
const PARTS: [&str; 2] = ["iterations", "chunks"];

/// Chooses the media type of a response of lines. That is JSONL or plain text (which browsers display) if the
/// client accepts it, and otherwise NDJSON.
#[must_use]
pub fn accepted(headers: &HeaderMap) -> &'static str {
    let accept = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or("");
    let others = ["application/jsonl", "text/plain"];
    others.into_iter().find(|media_type| accept.contains(media_type)).unwrap_or("application/x-ndjson")
}

/// The schema of a file of lines in the OpenAPI document, which describes it as bytes.
pub struct File;

impl PartialSchema for File {
    fn schema() -> RefOr<Schema> {
        let format = SchemaFormat::KnownFormat(KnownFormat::Binary);
        ObjectBuilder::new().schema_type(Type::String).format(Some(format)).into()
    }
}

impl ToSchema for File {}

/// A kind of record that lines refer to.
pub trait Record {
    /// What names the record: its id, or the name that clients give it.
    type Id: DeserializeOwned;

    /// The member of a line that names the record, such as `generation_id`.
    const MEMBER: &'static str;
    /// The record's name in error messages.
    const NAME: &'static str;
}

/// A line of a batch that is clean, but not yet parsed as the event it holds.
#[derive(Debug)]
pub struct Line<'a> {
    /// The project that the line belongs to.
    pub project: &'a str,
    /// The line's JSON text.
    pub text: &'a str,
    /// The line's member `event`, which names the kind of event.
    pub kind: Option<String>,
    /// The id for an event that has none of its own.
    pub id: Option<Uuid>,
}

impl<'a> Line<'a> {
    /// Reads the kind of a line. Fails if the line is not JSON.
    pub fn new(project: &'a str, text: &'a str, id: Option<Uuid>) -> Result<Self> {
        #[derive(Deserialize)]
        struct Named {
            event: Option<String>,
            line_id: Option<Uuid>,
        }
        if text.trim_ascii_start().starts_with('[') {
            let reason =
                "a line is one event, a JSON object; an array of events is sent whole, as application/json";
            return Err(Error::invalid("", reason));
        }
        if json::is_long_string(text) {
            return Err(Error::invalid("", "must be an object, not a string"));
        }
        expect_few_values(text.as_bytes())?;
        expect_short_parts(text)?;
        let Named { event, line_id } = json::decode(text)?;
        Ok(Self { project, text, kind: event, id: line_id.or(id) })
    }

    /// Parses an event on an existing record. Returns the id of that record, which the line must name, and
    /// the body.
    pub fn child<T: DeserializeOwned + Check, R: Record>(&self) -> Result<(R::Id, T)> {
        let Parsed { record, body, .. } = json::decode::<Parsed<T, R>>(self.text)?;
        let missing = || Error::invalid(format!("/{}", R::MEMBER), format!("must name the {}", R::NAME));
        Ok((record.ok_or_else(missing)?, Checks::of(body)?))
    }

    /// Parses an event whose texts are stored in the row of an existing record, as [`Line::child`] does. It may be as long as a body
    /// of its own endpoint, because the record is read as a whole, whatever was added to it.
    pub fn change<T: DeserializeOwned + Check, R: Record>(&self) -> Result<(R::Id, T)> {
        if self.text.len() > json::JSON_LIMIT {
            return Err(Error::TooLarge(format!(
                "a line that changes a {} has at most {} bytes",
                R::NAME,
                json::JSON_LIMIT
            )));
        }
        self.child::<T, R>()
    }

    /// Parses an event that makes a record, which the line must name by `id` only.
    pub fn start<T: DeserializeOwned + Check, R: Record>(&self) -> Result<T> {
        let Parsed { record, body, .. } = json::decode::<Parsed<T, R>>(self.text)?;
        match record {
            None => Checks::of(body),
            Some(_) => {
                Err(Error::invalid(format!("/{}", R::MEMBER), format!("the {} is named by id", R::NAME)))
            }
        }
    }
}

/// Fails with the members of a line that are too long for a row. What is written as one row is also read as one, and
/// databases and their clients make several copies of it.
fn expect_short_parts(line: &str) -> Result<()> {
    if line.len() <= LONGEST_PART {
        return Ok(());
    }
    let (mut parts, mut rest) = (Vec::new(), Vec::new());
    for (name, member) in json::decode::<BTreeMap<String, &RawValue>>(line)? {
        let has_parts = PARTS.contains(&name.as_str()) && member.get().starts_with('[');
        let elements = has_parts.then(|| serde_json::from_str(member.get()).ok()).flatten();
        match elements {
            Some::<Vec<&RawValue>>(elements) => {
                let pointer =
                    |(index, part): (usize, &RawValue)| (format!("{name}/{index}"), part.get().len());
                parts.extend(elements.into_iter().enumerate().map(pointer));
            }
            None => rest.push((name, member.get().len())),
        }
    }
    let mut checks = Checks::default();
    for (pointer, _) in parts.iter().filter(|(_, bytes)| *bytes > LONGEST_PART) {
        checks.fail(pointer, format!("has more than {LONGEST_PART} bytes"));
    }
    if rest.iter().map(|(_, bytes)| bytes).sum::<usize>() > LONGEST_PART
        && let Some((longest, _)) = rest.iter().max_by_key(|(_, bytes)| bytes)
    {
        checks.fail(
            longest,
            format!("is too long: without its parts, a line has at most {LONGEST_PART} bytes"),
        );
    }
    checks.finish()
}

/// A line's two parts: the id of the record it refers to, and the body of the kind's own endpoint.
struct Parsed<T, R: Record> {
    record: Option<R::Id>,
    body: T,
    kind: PhantomData<R>,
}

impl<'de, T: Deserialize<'de>, R: Record> Deserialize<'de> for Parsed<T, R> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members<T, R>(PhantomData<(T, R)>);
        impl<'de, T: Deserialize<'de>, R: Record> Visitor<'de> for Members<T, R> {
            type Value = Parsed<T, R>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Parsed<T, R>, A::Error> {
                let mut record = None;
                let members = Body { map, member: R::MEMBER, record: &mut record };
                let body = T::deserialize(MapAccessDeserializer::new(members))?;
                Ok(Parsed { record, body, kind: PhantomData })
            }
        }
        deserializer.deserialize_map(Members(PhantomData))
    }
}

/// The members of a line without `event`, `line_id` and the reference to a record, which are not part of the body.
struct Body<'a, A, I> {
    map: A,
    /// The member that refers to a record, such as `generation_id`.
    member: &'static str,
    record: &'a mut Option<I>,
}

impl<'de, A: MapAccess<'de>, I: DeserializeOwned> MapAccess<'de> for Body<'_, A, I> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, A::Error> {
        loop {
            let Some(key) = self.map.next_key::<Cow<'de, str>>()? else {
                return Ok(None);
            };
            if key == "event" || key == "line_id" {
                self.map.next_value::<IgnoredAny>()?;
            } else if key == self.member {
                *self.record = self.map.next_value()?;
            } else {
                let key = CowStrDeserializer::new(key);
                return seed.deserialize(key).map(Some);
            }
        }
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, A::Error> {
        self.map.next_value_seed(seed)
    }
}
