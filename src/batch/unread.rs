//! The reading of a batch, some lines at a time: events take many times as much memory as their text.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use serde_json::value::RawValue;
use tokio::runtime::Handle;

use super::Line;
use crate::domain::{self, Event};
use crate::error::{Error, Result};
use crate::http::clean::MOST_VALUES;
use crate::http::json::{self, Body};
use crate::http::memory::VALUE;
use crate::http::{clean_json, utf8};
use crate::types::value;

/// The maximum number of events that one batch may hold.
const MOST_LINES: usize = 20_000;
/// The maximum number of attempts of its finished logs and pieces of its files that a batch may have together.
const MOST_PARTS: usize = 200_000;
/// The maximum number of wrong fields that are named of a batch, besides one of each line.
const MOST_FIELDS: usize = 10_000;
/// The number of bytes of memory that the lines take which are read together, unless a single one takes more.
const PIECE: usize = 4 << 20;
/// The number of bytes of memory that an event is assumed to take besides its values.
const EVENT: usize = 1_400;

/// The lines of a batch that have not been read yet.
pub(super) struct Unread {
    project: Arc<str>,
    body: Body,
    /// The number of each line, from 1 on, and where in the body it is.
    lines: VecDeque<(usize, Range<usize>)>,
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
        body.replaced.add(clean_json(&mut body.bytes)?);
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
        Ok(Self { project, body, lines, parts: 0, fields: 0 })
    }

    /// Returns whether all lines have been read.
    pub(super) fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// Reads the next lines. It may wait for memory, so it needs a thread of its own. Lines for which there is none are refused.
    pub(super) fn read(&mut self) -> Vec<Line> {
        let (mut bytes, mut values) = (0, Vec::new());
        for (_, place) in &self.lines {
            let line = &self.body.bytes[place.clone()];
            let count = value::count(line).min(MOST_VALUES);
            let more = line.len() + EVENT + count * VALUE;
            if bytes + more > PIECE && !values.is_empty() {
                break;
            }
            bytes += more;
            values.push(count);
        }
        let refused = self.hold(bytes).err();
        let places: Vec<_> = self.lines.drain(..values.len()).collect();
        let line = |((number, place), values)| {
            let event = match &refused {
                Some(Error::Unavailable(reason)) => Err(Error::Unavailable(reason)),
                _ => self.event(place, &mut bytes),
            };
            Line { number, values, event }
        };
        places.into_iter().zip(values).map(line).collect()
    }

    /// Holds memory for the body and so many bytes beside it. Memory is held for twice as many.
    fn hold(&self, bytes: usize) -> Result<()> {
        Handle::current().block_on(self.body.memory.hold(self.body.bytes.len().midpoint(bytes)))
    }

    /// Reads the event in a line, and adds what it takes besides its values to the bytes that are held.
    fn event(&mut self, place: Range<usize>, bytes: &mut usize) -> Result<Event> {
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
            *bytes += repeated;
            self.hold(*bytes)?;
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
