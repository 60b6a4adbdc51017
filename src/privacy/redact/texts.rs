//! The application of the rules to what clients send.

use std::iter::Peekable;
use std::ops::Range;
use std::rc::Rc;

use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use uuid::Uuid;

use super::replacements::{NAME_TAG, TAG, WITHOUT_NAME, tag};
use super::value_ends::ending;
use super::{LONGEST_NAME, MOST_SPANS, Redactor, Span, merge};
use crate::http::clean::clean_json;
use crate::privacy::hash_key::HashKey;
use crate::types::{FreeForm, OptionalName, value};

/// A value with texts that clients have written.
///
/// A body implements it with [`texts!`](crate::texts), which names its fields. A field that is not named is written
/// as it came. A test sends a secret in every field of every operation and searches the database for it.
pub trait Texts {
    /// Shows all texts to `redaction`, which may change them.
    fn texts(&mut self, redaction: &mut Redaction<'_>);
}

/// A name that puts records together: of an agent session, a topic, or a server.
pub trait GroupName {
    /// Applies the rules to the name. Whatever its project has chosen, equal spans are replaced by equal texts and different
    /// ones by different texts, so that records are still found by the name, and no others are.
    fn group_name(&mut self, redaction: &mut Redaction<'_>);
}

/// Implements [`Texts`] for structs, by the fields that have texts. Those that are a [`GroupName`] are after them.
#[macro_export]
macro_rules! texts {
    ($($body:ty: $($field:ident),+ $(| $($name:ident),+)?;)+) => {
        $(impl $crate::privacy::redact::Texts for $body {
            fn texts(&mut self, redaction: &mut $crate::privacy::redact::Redaction<'_>) {
                $($crate::privacy::redact::Texts::texts(&mut self.$field, redaction);)+
                $($($crate::privacy::redact::GroupName::group_name(&mut self.$name, redaction);)+)?
            }
        })+
    };
}

/// The rules of a project, applied to one event.
pub struct Redaction<'a> {
    redactor: &'a Redactor,
    key: &'a HashKey,
    spans: u32,
    /// By how many bytes the event may still become longer.
    room: usize,
    /// By how many bytes it has become longer for texts that have yet to be shown.
    owed: usize,
    /// How many texts that are JSON are around the one that is being read.
    levels: usize,
    /// Whether only what is not text is kept of the event.
    is_reduced: bool,
    /// How long the texts are that were shown so far, if that is only counted, by the [`effort`] that each takes.
    counted: Option<usize>,
}

/// Returns how many bytes of plain text take as much time as a text. One that is JSON in JSON is read at each level, and has more
/// backslashes with each.
pub(super) fn effort(text: &str) -> usize {
    text.len() + 16 * memchr::memchr_iter(b'\\', text.as_bytes()).count()
}

/// By how many bytes replacements may make an event longer, besides half of its texts. The request holds memory for twice what
/// it sent, and a name may be a hundred times as long as the character that it replaces.
const ROOM: usize = 1 << 10;

/// How many texts that are JSON may be in each other, each a string of the one around it. All of them are in memory at once. With
/// the usual escapes, the quotes in so many have hundreds of backslashes.
const MOST_LEVELS: usize = 8;

/// The maximum number of bytes of a text in another one that is JSON, if both are to be read as JSON.
pub(super) const LONGEST_INNER: usize = 1 << 20;

/// The maximum number of bytes of pieces of a text that are read together.
const MOST_TOGETHER: usize = 2 << 20;

impl<'a> Redaction<'a> {
    /// Begins with a project's rules and the key of its hashes.
    pub(in crate::privacy) fn new(redactor: &'a Redactor, key: &'a HashKey) -> Self {
        Self { redactor, key, spans: 0, room: ROOM, owed: 0, levels: 0, is_reduced: false, counted: None }
    }

    /// Makes the rules those for an event of which only what is not text is kept.
    pub(in crate::privacy) fn of_reduced(self) -> Self {
        Self { is_reduced: true, ..self }
    }

    /// Begins with rules that change nothing, to learn how much effort the texts take.
    pub(in crate::privacy) fn counting(redactor: &'a Redactor, key: &'a HashKey) -> Self {
        Self { counted: Some(0), ..Self::new(redactor, key) }
    }

    /// Returns how much effort the texts take that were only counted, as a number of bytes.
    pub(in crate::privacy) fn counted(&self) -> usize {
        self.counted.unwrap_or_default()
    }

    /// Returns the number of spans that were replaced so far.
    #[must_use]
    pub fn spans(&self) -> u32 {
        self.spans
    }

    /// Replaces the hash of a request with a keyed one. The request may have contained a secret that is short enough
    /// to be guessed, and a plain hash would confirm the guess. The hash of a request whose texts are kept is another one
    /// than if they are not, so that neither is taken for a repetition of the other.
    pub fn hide(&self, hash: &mut Vec<u8>) {
        if self.counted.is_none() {
            if self.is_reduced {
                hash.extend(b"reduced");
            }
            *hash = self.key.hash(hash).to_vec();
        }
    }

    /// Replaces an id that was derived from a text with a keyed one, for the same reason.
    pub fn hide_id(&self, id: &mut Uuid) {
        if self.counted.is_none() {
            *id = self.key.id(*id);
        }
    }

    /// Returns a text without its private spans, or none if it has none. A text that is JSON stays JSON.
    fn redacted(&mut self, text: &str) -> Option<String> {
        if self.counted.is_none() && is_json(text) {
            return self.json(text);
        }
        let room = text.len() / 2;
        let paid = room.min(self.owed);
        self.owed -= paid;
        self.room += room - paid;
        self.redacted_from(text, 0, self.redactor.tags.as_ref())
    }

    /// Returns a text from `start` on without its private spans, or none if it has none.
    fn redacted_from(&mut self, text: &str, start: usize, tags: Option<&HashKey>) -> Option<String> {
        if let Some(bytes) = &mut self.counted {
            *bytes += effort(text);
            return None;
        }
        let spans = self.redactor.spans(text, start, self.left());
        self.replaced(text, start, &spans, tags)
    }

    /// Applies the built-in rules to the pieces of a longer text, in order, as if it were not divided: a key may be in several of them,
    /// and the head of a table in another one than its rows. The pieces are texts of their own besides. Returns of each whether it was
    /// changed.
    pub fn together(&mut self, mut pieces: &mut [&mut String]) -> Vec<bool> {
        let total = pieces.len();
        let mut changed = Vec::with_capacity(total);
        while !pieces.is_empty() {
            let mut bytes = 0;
            let few = pieces.iter().take_while(|piece| {
                bytes += piece.len() + 1;
                bytes <= MOST_TOGETHER
            });
            let (few, others) = pieces.split_at_mut(few.count().max(1));
            if few.len() > 1 {
                self.joined(few, &mut changed);
            }
            changed.resize(total - others.len(), false);
            pieces = others;
        }
        changed
    }

    fn joined(&mut self, pieces: &mut [&mut String], changed: &mut Vec<bool>) {
        let mut whole = String::new();
        let mut starts = Vec::with_capacity(pieces.len());
        for piece in &*pieces {
            if !whole.is_empty() && !whole.ends_with('\n') {
                whole.push('\n');
            }
            starts.push(whole.len());
            whole.push_str(piece);
        }
        if let Some(bytes) = &mut self.counted {
            *bytes += effort(&whole);
            return;
        }
        if !self.redactor.may_match(&whole) {
            return;
        }
        let mut spans = self.redactor.of_builtin(&whole);
        spans.retain(|span| !self.redactor.is_replaced(&whole, span));
        merge(&mut spans);
        // Each piece makes room for what is replaced in it when it is shown by itself.
        let room = whole.len() / 2;
        self.room += room;
        for (piece, start) in pieces.iter_mut().zip(starts) {
            let end = start + piece.len();
            let first = spans.partition_point(|span| span.end <= start);
            let inside = spans[first..].iter().take_while(|span| span.start < end).map(|span| Span {
                start: span.start.max(start) - start,
                end: span.end.min(end) - start,
                ..*span
            });
            let inside: Vec<_> = inside.collect();
            let new = self.replaced(piece, 0, &inside, self.redactor.tags.as_ref());
            changed.push(new.is_some());
            if let Some(new) = new {
                **piece = new;
            }
        }
        self.owed += room.saturating_sub(self.room);
        self.room = self.room.saturating_sub(room);
    }

    /// Returns the name of a group without its private spans, or none if it has none. It is short, so that it is read to its
    /// end whatever else is in the event.
    fn redacted_name(&mut self, name: &str) -> Option<String> {
        if let Some(bytes) = &mut self.counted {
            *bytes += name.len();
            return None;
        }
        let spans = self.redactor.spans_of_name(name);
        self.count(&spans);
        let whole = Span { start: 0, end: name.len(), rule: spans.first()?.rule };
        let replace = |spans: &[Span]| {
            let mut room = usize::MAX;
            self.redactor.replace(name, 0, spans, Some((self.key, NAME_TAG)), &mut room)
        };
        replace(&spans).filter(|new| new.len() <= LONGEST_NAME).or_else(|| replace(&[whole]))
    }

    /// Returns the name of a member without its private spans, or none if it has none. Names that were different stay different, so
    /// that each keeps its value. One for which there is no room is replaced as a whole.
    fn redacted_member(&mut self, name: &str) -> Option<String> {
        let spans = self.redactor.spans(name, 0, self.left());
        self.count(&spans);
        let mut room = usize::MAX;
        let new = self.redactor.replace(name, 0, &spans, Some((self.key, TAG)), &mut room)?;
        match self.room.checked_sub(usize::MAX - room) {
            Some(left) => {
                self.room = left;
                Some(new)
            }
            None => Some(WITHOUT_NAME.to_owned() + &tag(self.key, name, TAG)),
        }
    }

    /// Returns the number of spans that may still be replaced one by one.
    fn left(&self) -> usize {
        MOST_SPANS.saturating_sub(self.spans as usize)
    }

    /// Replaces spans of a text from `start` on. Returns none if there are none.
    fn replaced(
        &mut self,
        text: &str,
        start: usize,
        spans: &[Span],
        tags: Option<&HashKey>,
    ) -> Option<String> {
        let is_over = self.left() == 0;
        self.count(spans);
        if is_over && !spans.is_empty() {
            return Some(WITHOUT_NAME.to_owned());
        }
        self.redactor.replace(text, start, spans, tags.map(|key| (key, TAG)), &mut self.room)
    }

    /// Counts spans that are replaced.
    fn count(&mut self, spans: &[Span]) {
        for span in spans {
            self.spans += 1;
            let rule = self.redactor.name(span.rule);
            // Clients choose the names of custom rules, and the labels of a metric are never forgotten.
            let rule = super::BUILTIN.into_iter().find(|name| *name == rule).unwrap_or(super::CUSTOM);
            metrics::counter!("gleaner_redacted_spans_total", "rule" => rule).increment(1);
        }
    }

    /// Applies the rules to the strings of a JSON text. Everything else stays as it was written, such as numbers, and
    /// members that have the same name. A member's name counts as the text before its value, so that
    /// `{"password": "…"}` is treated like `password: …`. The name may also be another string, as in
    /// `{"name": "password", "value": "…"}`, so that the rules are applied to the whole text first. Returns none if nothing
    /// is replaced.
    fn json(&mut self, json: &str) -> Option<String> {
        if let Some(bytes) = &mut self.counted {
            *bytes += effort(json);
            return None;
        }
        // Escapes hide what the rules look for.
        let has_escapes = [r"\u", r"\/"].iter().any(|escape| json.contains(escape));
        if !has_escapes && !self.redactor.may_match(json) {
            return None;
        }
        if self.levels == 0 {
            self.room += json.len() / 2;
        }
        let before = self.spans;
        let mut of_whole = self.redactor.of_builtin(json);
        of_whole.retain(|span| !self.redactor.is_replaced(json, span));
        of_whole.sort_unstable();
        let full = of_whole.iter().find(|span| span.is_whole(json)).copied();
        let mut of_whole = of_whole.into_iter().peekable();
        let (mut redacted, mut end, mut at) = (String::new(), 0, 0);
        // The name before the value that comes next, and before each array and object that has begun.
        let (mut name, mut outer) = (None, Vec::new());
        while let Some(next) = json[at..].find(['"', '{', '[', '}', ']']) {
            at += next;
            match json.as_bytes()[at] {
                b'{' | b'[' => outer.push(name.clone()),
                b'}' | b']' => name = outer.pop().flatten(),
                _ => {
                    let string = &json[at..at + length(&json[at..])];
                    let after = at + string.len();
                    let is_name = json[after..].trim_ascii_start().starts_with(':');
                    let inside = inside(&mut of_whole, json, at, after);
                    if let Some((text, inside)) = meaning_with(string, inside) {
                        // Names that were different stay different, so that each keeps its value.
                        let new = if is_name {
                            self.redacted_member(&text)
                        } else if let Some(span) = full.filter(|_| !text.is_empty()) {
                            self.count(&[span]);
                            Some(WITHOUT_NAME.to_owned())
                        } else {
                            self.value(&text, name.as_deref(), inside)
                        };
                        if let Some(new) = new {
                            redacted.push_str(&json[end..at]);
                            redacted.extend(serde_json::to_string(&new));
                            end = after;
                        }
                        if is_name {
                            name = Some(Rc::from(format!("{}: ", ending(&text, NAME))));
                        }
                    }
                    at = after;
                    continue;
                }
            }
            at += 1;
        }
        redacted.push_str(&json[end..]);
        (self.spans > before).then_some(redacted)
    }

    /// Applies the rules to a string of a JSON text, by itself and with the name before it. `spans` were found already.
    fn value(&mut self, text: &str, name: Option<&str>, mut spans: Vec<Span>) -> Option<String> {
        let tags = self.redactor.tags.as_ref();
        let may_be_json = self.levels == 0 || self.levels < MOST_LEVELS && text.len() <= LONGEST_INNER;
        if may_be_json && is_json(text) {
            self.levels += 1;
            let redacted = self.json(text);
            self.levels -= 1;
            let Some(name) = name else { return redacted };
            let line = [name, redacted.as_deref().unwrap_or(text)].concat();
            return self.redacted_from(&line, name.len(), tags).or(redacted);
        }
        spans.extend(self.redactor.spans(text, 0, self.left()));
        if let Some(name) = name {
            let of_line = self.redactor.spans(&[name, text].concat(), name.len(), self.left());
            spans.extend(of_line.into_iter().map(|Span { start, end, rule }| Span {
                start: start.saturating_sub(name.len()),
                end: end - name.len(),
                rule,
            }));
        }
        merge(&mut spans);
        self.replaced(text, 0, &spans, tags)
    }
}

/// Takes the spans of a JSON text that begin before the end of one of its strings, whose quotes are at `start` and before
/// `end`. Returns those of what is between the quotes, by their places in the string, in their order and apart from each
/// other. None begins or ends inside an escape.
fn inside(
    spans: &mut Peekable<impl Iterator<Item = Span>>,
    json: &str,
    start: usize,
    end: usize,
) -> Vec<Span> {
    let mut inside = Vec::new();
    while let Some(span) = spans.next_if(|span| span.start < end) {
        if start < span.start && span.end < end {
            let string = &json[start..end];
            let [begin, end] = [span.start, span.end].map(|at| at - start);
            let begin = escape_around(string, begin).map_or(begin, |escape| escape.end);
            let end = escape_around(string, end).map_or(end, |escape| escape.start);
            if begin < end {
                inside.push(Span { start: begin, end, ..span });
            }
        }
    }
    merge(&mut inside);
    inside
}

/// Returns the escape of a JSON string inside of which a place is.
fn escape_around(string: &str, at: usize) -> Option<Range<usize>> {
    let is_escape = |start: &usize| {
        let backslashes = string.as_bytes()[..=*start].iter().rev().take_while(|byte| **byte == b'\\');
        backslashes.count() % 2 == 1
    };
    let start = (at.saturating_sub(r"\u0000".len() - 1)..at).rev().find(is_escape)?;
    let length = if string[start + 1..].starts_with('u') { r"\u0000".len() } else { r"\n".len() };
    (at < start + length).then_some(start..start + length)
}

/// How deep arrays and objects may nest in a text that is read as JSON, as in a body. Each takes memory while it is open.
const DEEPEST: usize = 127;

/// Returns whether a text is an object or array in JSON, whose strings have escapes.
fn is_json(text: &str) -> bool {
    text.trim_start().starts_with(['{', '['])
        && serde_json::from_str::<IgnoredAny>(text).is_ok()
        && value::depth(text.as_bytes()) <= DEEPEST
}

/// Returns the text that a JSON string means. Lone surrogates, which JSON may have and texts may not, are replaced.
fn meaning(string: &str) -> Option<String> {
    serde_json::from_str(string).ok().or_else(|| {
        let mut clean = string.as_bytes().to_vec();
        clean_json(&mut clean).ok()?;
        serde_json::from_slice(&clean).ok()
    })
}

/// Returns the text that a JSON string means, with the places in the text of spans of the string.
fn meaning_with(string: &str, mut spans: Vec<Span>) -> Option<(String, Vec<Span>)> {
    if spans.is_empty() {
        return Some((meaning(string)?, spans));
    }
    let part = |part: Range<usize>| meaning(&format!("\"{}\"", &string[part]));
    let (mut text, mut end) = (String::new(), 1);
    for span in &mut spans {
        text.push_str(&part(end..span.start)?);
        let start = text.len();
        text.push_str(&part(span.start..span.end)?);
        end = span.end;
        (span.start, span.end) = (start, text.len());
    }
    text.push_str(&part(end..string.len() - 1)?);
    Some((text, spans))
}

/// Returns the length of the JSON string with which a text begins.
fn length(json: &str) -> usize {
    let mut is_escaped = false;
    let end = json.bytes().skip(1).position(|byte| {
        let ends = byte == b'"' && !is_escaped;
        is_escaped = byte == b'\\' && !is_escaped;
        ends
    });
    end.map_or(json.len(), |end| end + 2)
}

/// The number of bytes of a member's name that count as the text before its value. The name is repeated for each
/// value of an array.
const NAME: usize = 100;

impl Texts for String {
    fn texts(&mut self, redaction: &mut Redaction<'_>) {
        if let Some(redacted) = redaction.redacted(self) {
            *self = redacted;
        }
    }
}

impl<T: Texts> Texts for Option<T> {
    fn texts(&mut self, redaction: &mut Redaction<'_>) {
        if let Some(value) = self {
            value.texts(redaction);
        }
    }
}

impl<T: Texts> Texts for Box<T> {
    fn texts(&mut self, redaction: &mut Redaction<'_>) {
        (**self).texts(redaction);
    }
}

impl<T: Texts> Texts for Vec<T> {
    fn texts(&mut self, redaction: &mut Redaction<'_>) {
        for value in self {
            value.texts(redaction);
        }
    }
}

impl Texts for OptionalName {
    fn texts(&mut self, redaction: &mut Redaction<'_>) {
        if let Some(redacted) = self.as_deref().and_then(|name| redaction.redacted(name)) {
            *self = Some(redacted).into();
        }
    }
}

impl GroupName for String {
    fn group_name(&mut self, redaction: &mut Redaction<'_>) {
        if let Some(redacted) = redaction.redacted_name(self) {
            *self = redacted;
        }
    }
}

impl<T: GroupName> GroupName for Option<T> {
    fn group_name(&mut self, redaction: &mut Redaction<'_>) {
        if let Some(name) = self {
            name.group_name(redaction);
        }
    }
}

impl GroupName for OptionalName {
    fn group_name(&mut self, redaction: &mut Redaction<'_>) {
        let mut name = std::mem::take(self).into();
        Option::<String>::group_name(&mut name, redaction);
        *self = name.into();
    }
}

impl Texts for Box<RawValue> {
    fn texts(&mut self, redaction: &mut Redaction<'_>) {
        if let Some(redacted) = redaction.json(self.get()).and_then(|json| RawValue::from_string(json).ok()) {
            *self = redacted;
        }
    }
}

impl Texts for FreeForm {
    fn texts(&mut self, redaction: &mut Redaction<'_>) {
        if let Some(redacted) =
            redaction.json(self.as_str()).and_then(|json| serde_json::from_str(&json).ok())
        {
            *self = redacted;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn spans_of_a_json_string_are_those_of_the_text_that_it_means(
            units in proptest::collection::vec(prop_oneof![
                Just("a"), Just("é"), Just(r"\n"), Just(r"\\"), Just(r#"\""#), Just(r"\/"), Just(r"\u0041"), Just(r"\u20ac"),
            ], 0..12),
            places in proptest::collection::vec((0_usize..80, 0_usize..80), 0..4),
        ) {
            let json = format!("[\"{}\"]", units.concat());
            let span = |(one, other): (usize, usize)| {
                let [one, other] = [one, other].map(|at| json.floor_char_boundary(at.min(json.len())));
                Span { start: one.min(other), end: one.max(other), rule: 0 }
            };
            let mut spans: Vec<_> = places.into_iter().map(span).collect();
            spans.sort_unstable();
            let (string, end) = (&json[1..json.len() - 1], json.len() - 1);
            let inside = inside(&mut spans.into_iter().peekable(), &json, 1, end);
            let literals: Vec<_> = inside.iter().map(|span| string[span.start..span.end].to_owned()).collect();
            let (text, spans) = meaning_with(string, inside).expect("a string");
            prop_assert_eq!(Some(text.clone()), meaning(string));
            for (span, literal) in spans.into_iter().zip(literals) {
                prop_assert_eq!(Some(text[span.start..span.end].to_owned()), meaning(&format!("\"{literal}\"")));
            }
        }
    }
}
