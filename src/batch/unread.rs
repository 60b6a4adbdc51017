//! The reading of a batch, some lines at a time: events take many times as much memory as their text.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use serde_json::value::RawValue;
use tokio::runtime::Handle;

use super::Line;
use crate::domain::{self, Event};
use crate::error::{Error, Result};
use crate::http::clean::{MOST_VALUES, clean_parts};
use crate::http::json::{self, Body};
use crate::http::memory::VALUE;
use crate::http::{clean_json, utf8};
use crate::types::value;

/// The maximum number of events that one batch may hold.
pub(super) const MOST_LINES: usize = 20_000;
/// The maximum number of attempts of its finished logs and pieces of its files that a batch may have together.
const MOST_PARTS: usize = 200_000;
/// The maximum number of wrong fields that are named of a batch, besides one of each line.
const MOST_FIELDS: usize = 10_000;
/// The number of bytes of memory that the lines take which are read together, unless a single one takes more.
const PIECE: usize = 4 << 20;
/// The numbers of bytes of memory that an event, an object in it and any other value are assumed to take besides their texts.
const EVENT: usize = 1_400;
const OBJECT: usize = 1_000;
const OTHER_VALUE: usize = 64;

/// The lines that are read next.
#[derive(Default)]
struct Next {
    /// The number of JSON values of each line.
    values: Vec<usize>,
    /// The number of bytes of memory that they take.
    bytes: usize,
}

/// The lines of a batch that have not been read yet.
pub(super) struct Unread {
    project: Arc<str>,
    body: Body,
    /// The number of each line, from 1 on, and where in the body it is.
    lines: VecDeque<(usize, Range<usize>)>,
    next: Next,
    /// How many parts and wrong fields the lines had that were read.
    parts: usize,
    fields: usize,
}

impl Unread {
    /// Finds the lines of a body that are not blank. Fails if there are more than allowed.
    pub(super) fn lines(project: Arc<str>, body: Body) -> Result<Self> {
        let mut start = 0;
        let lines = body.bytes.split(|byte| *byte == b'\n').enumerate().map(|(index, line)| {
            let place = start..start + line.len();
            start = place.end + 1;
            (index + 1, place)
        });
        let lines = lines.filter(|(_, place)| !body.bytes[place.clone()].trim_ascii().is_empty());
        let lines = lines.take(MOST_LINES + 1).collect();
        Self::new(project, body, lines)
    }

    /// Finds the members of a body that is a JSON array. Fails if there are more than allowed.
    pub(super) fn array(project: Arc<str>, mut body: Body) -> Result<Self> {
        body.replaced.add(clean_parts(&mut body.bytes)?);
        let text = utf8(&body.bytes)?;
        if json::is_long_string(text) {
            return Err(Error::invalid("", "must be an array, not a string"));
        }
        let members: Vec<&RawValue> = json::decode(text).map_err(|error| match error {
            Error::TooLarge(_) => too_many(),
            other => other,
        })?;
        let place = |member: &RawValue| {
            let start = member.get().as_ptr().addr() - text.as_ptr().addr();
            start..start + member.get().len()
        };
        let lines = (1..).zip(members.into_iter().map(place)).collect();
        Self::new(project, body, lines)
    }

    fn new(project: Arc<str>, body: Body, lines: VecDeque<(usize, Range<usize>)>) -> Result<Self> {
        if lines.len() > MOST_LINES {
            return Err(too_many());
        }
        let next = Next::default();
        let mut unread = Self { project, body, lines, next, parts: 0, fields: 0 };
        unread.prepare();
        Ok(unread)
    }

    /// Finds out how many lines are read next. Of what is parsed only to be hashed, there is one line at a time.
    fn prepare(&mut self) {
        let (mut next, mut kept, mut hashed) = (Next::default(), 0, 0);
        for (_, place) in &self.lines {
            let line = &self.body.bytes[place.clone()];
            let values = value::count(line).min(MOST_VALUES);
            let objects = memchr::memchr_iter(b'{', line).count().min(values);
            kept += line.len() + EVENT + objects * OBJECT + values * OTHER_VALUE;
            hashed = hashed.max(values * VALUE);
            if kept + hashed > PIECE && !next.values.is_empty() {
                // Otherwise a batch would wait for a little more each time, behind those that wait for much.
                next.bytes = next.bytes.max(PIECE);
                break;
            }
            next.bytes = kept + hashed;
            next.values.push(values);
        }
        self.next = next;
    }

    /// Waits for memory for the next lines. Returns whether there are any.
    pub(super) async fn has_more(&self) -> Result<bool> {
        if self.lines.is_empty() {
            return Ok(false);
        }
        self.body.memory.hold(self.held()).await?;
        Ok(true)
    }

    /// Returns for how many bytes memory is held for the body and the next lines. It is held for twice as many.
    fn held(&self) -> usize {
        self.body.bytes.len().midpoint(self.next.bytes)
    }

    /// Returns the numbers of the lines that have not been read.
    pub(super) fn rest(&self) -> impl Iterator<Item = usize> {
        self.lines.iter().map(|(number, _)| *number)
    }

    /// Reads the next lines, which needs a thread of its own.
    pub(super) fn read(&mut self) -> Vec<Line> {
        let values = std::mem::take(&mut self.next.values);
        let places: Vec<_> = self.lines.drain(..values.len()).collect();
        let line = |((number, place), values)| Line { number, values, event: self.event(place) };
        let lines = places.into_iter().zip(values).map(line).collect();
        self.prepare();
        lines
    }

    /// Reads the event in a line, and holds memory for what it repeats.
    fn event(&mut self, place: Range<usize>) -> Result<Event> {
        let line = &mut self.body.bytes[place];
        let event = clean_json(line).and_then(|count| {
            self.body.replaced.add(count);
            domain::read(&self.project, utf8(line)?, None)
        });
        self.parts += event.as_ref().map_or(0, Event::parts);
        if self.parts > MOST_PARTS {
            return Err(Error::TooLarge(format!(
                "a batch has at most {MOST_PARTS} attempts and pieces, and this one has more"
            )));
        }
        let event = event.map_err(|error| self.brief(error))?;
        let repeated = event.repeated();
        if repeated > 0 {
            self.next.bytes += repeated;
            Handle::current().block_on(self.body.memory.hold(self.held()))?;
        }
        Ok(event)
    }

    /// Returns an error as it is said of a line. It repeats what is wrong, in which a byte can take six to be shown.
    fn brief(&mut self, error: Error) -> Error {
        let Error::Invalid(mut errors) = error else { return error };
        errors.truncate(MOST_FIELDS.saturating_sub(self.fields).max(1));
        self.fields += errors.len();
        for error in &mut errors {
            *error = error.brief();
        }
        Error::Invalid(errors)
    }
}

fn too_many() -> Error {
    Error::TooLarge(format!("a batch has at most {MOST_LINES} events, and this one has more"))
}
