//! The application of the rules to what clients send.

use serde_json::Value;
use serde_json::value::RawValue;
use uuid::Uuid;

use super::Redactor;
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

/// Implements [`Texts`] for structs, by the fields that have texts.
#[macro_export]
macro_rules! texts {
    ($($body:ty: $($field:ident),+;)+) => {
        $(impl $crate::privacy::redact::Texts for $body {
            fn texts(&mut self, redaction: &mut $crate::privacy::redact::Redaction<'_>) {
                $($crate::privacy::redact::Texts::texts(&mut self.$field, redaction);)+
            }
        })+
    };
}

/// The rules of a project, applied to one event.
pub struct Redaction<'a> {
    redactor: &'a Redactor,
    key: &'a HashKey,
    spans: u32,
}

impl<'a> Redaction<'a> {
    /// Begins with a project's rules and the key of its hashes.
    pub(in crate::privacy) fn new(redactor: &'a Redactor, key: &'a HashKey) -> Self {
        Self { redactor, key, spans: 0 }
    }

    /// Returns the number of spans that were replaced so far.
    #[must_use]
    pub fn spans(&self) -> u32 {
        self.spans
    }

    /// Replaces the hash of a request with a keyed one. The request may have contained a secret that is short enough
    /// to be guessed, and a plain hash would confirm the guess.
    pub fn hide(&self, hash: &mut Vec<u8>) {
        *hash = self.key.hash(hash).to_vec();
    }

    /// Replaces an id that was derived from a text with a keyed one, for the same reason.
    pub fn hide_id(&self, id: &mut Uuid) {
        *id = self.key.id(*id);
    }

    fn redacted(&mut self, text: &str) -> Option<String> {
        self.redactor.redact(text, |rule| {
            self.spans += 1;
            // Clients choose the names of custom rules, and the labels of a metric are never forgotten.
            let rule = super::BUILTIN.into_iter().find(|name| *name == rule).unwrap_or(super::CUSTOM);
            metrics::counter!("gleaner_redacted_spans_total", "rule" => rule).increment(1);
        })
    }

    /// Applies the rules to the strings of a JSON value. A member's name counts as the text before its value, so that
    /// `{"password": "…"}` is treated like `password: …`.
    fn json(&mut self, value: &mut Value, name: Option<&str>) -> bool {
        match value {
            Value::String(text) => {
                let before = self.spans;
                let redacted = self.redacted(text).or_else(|| {
                    let name = format!("{}: ", end_of(name?));
                    let line = self.redacted(&format!("{name}{text}"))?;
                    line.strip_prefix(&name).map(str::to_owned)
                });
                if let Some(redacted) = redacted {
                    *text = redacted;
                }
                self.spans > before
            }
            Value::Array(values) => {
                let before = self.spans;
                for value in values {
                    self.json(value, name);
                }
                self.spans > before
            }
            Value::Object(members) => {
                let before = self.spans;
                let redact = |(name, mut value): (String, Value)| {
                    self.json(&mut value, Some(&name));
                    (self.redacted(&name).unwrap_or(name), value)
                };
                *members = std::mem::take(members).into_iter().map(redact).collect();
                self.spans > before
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => false,
        }
    }
}

/// The number of bytes of a member's name that count as the text before its value. The name is repeated for each
/// value of an array.
const NAME: usize = 100;

/// Returns the end of a name.
fn end_of(name: &str) -> &str {
    &name[name.ceil_char_boundary(name.len().saturating_sub(NAME))..]
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

impl Texts for Box<RawValue> {
    fn texts(&mut self, redaction: &mut Redaction<'_>) {
        if !redaction.redactor.may_match(self.get()) {
            return;
        }
        let Ok(mut value) = serde_json::from_str(self.get()) else { return };
        if redaction.json(&mut value, None)
            && let Ok(redacted) = serde_json::value::to_raw_value(&value)
        {
            *self = redacted;
        }
    }
}

impl Texts for FreeForm {
    fn texts(&mut self, redaction: &mut Redaction<'_>) {
        if !redaction.redactor.may_match(self.as_str()) {
            return;
        }
        let Ok(mut value) = serde_json::from_str(self.as_str()) else { return };
        if redaction.json(&mut value, None)
            && let Ok(redacted) = serde_json::from_value(value)
        {
            *self = redacted;
        }
    }
}
