//! The application of the rules to what clients send.

pub(super) mod json;
mod pieces;

use serde_json::value::RawValue;
use uuid::Uuid;

use self::json::is_json;
use super::replacements::{NAME_TAG, TAG, WITHOUT_NAME, tag};
use super::{LONGEST_NAME, MOST_SPANS, Redactor, Span};
use crate::privacy::hash_key::HashKey;
use crate::types::{FreeForm, OptionalName};

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

impl<'a> Redaction<'a> {
    /// Begins with a project's rules and the key of its hashes.
    pub(in crate::privacy) fn new(redactor: &'a Redactor, key: &'a HashKey) -> Self {
        Self { redactor, key, spans: 0, room: ROOM, owed: 0, levels: 0, counted: None }
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
    /// to be guessed, and a plain hash would confirm the guess.
    pub fn hide(&self, hash: &mut Vec<u8>) {
        if self.counted.is_none() {
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
}

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
