//! JSON of which little is read: members stay as they are written until they are known to matter, and a member of an
//! unexpected type counts as missing.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer as _, IgnoredAny, SeqAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

/// A text that is not an object of JSON: it is not JSON, was cut off, or is another value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a JSON object")]
pub struct NotAnObject;

/// A member as it is written.
pub(super) type Raw<'a> = Option<&'a RawValue>;

/// Reads an object.
pub(super) fn object<'a, T: Deserialize<'a> + Default>(text: &'a str) -> Result<T, NotAnObject> {
    let text = text.trim_ascii();
    if !text.starts_with('{') {
        return Err(NotAnObject);
    }
    // An object may still not be a `T`, such as when it repeats a member. Then it is one that says nothing.
    serde_json::from_str(text)
        .or_else(|_| serde_json::from_str::<IgnoredAny>(text).map(|_| T::default()).map_err(|_| NotAnObject))
}

/// A member if it is an object.
pub(super) fn member<'a, T: Deserialize<'a> + Default>(raw: Raw<'a>) -> Option<T> {
    object(raw?.get()).ok()
}

/// How many elements of an array are looked at: a message has some dozens of parts.
const MOST_ELEMENTS: usize = 10_000;

/// A member's elements if it is an array, as many of them as are looked at.
pub(super) fn elements(raw: Raw<'_>) -> Option<Vec<&RawValue>> {
    struct First;
    impl<'de> Visitor<'de> for First {
        type Value = Vec<&'de RawValue>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an array")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut array: A) -> Result<Self::Value, A::Error> {
            let mut elements = Vec::new();
            while elements.len() < MOST_ELEMENTS
                && let Some(element) = array.next_element()?
            {
                elements.push(element);
            }
            while array.next_element::<IgnoredAny>()?.is_some() {}
            Ok(elements)
        }
    }
    serde_json::Deserializer::from_str(raw?.get()).deserialize_seq(First).ok()
}

/// A member if it is a string.
pub(super) fn text(raw: Raw<'_>) -> Option<Cow<'_, str>> {
    let written = raw?.get();
    let inner = written.strip_prefix('"')?.strip_suffix('"')?;
    if inner.contains('\\') {
        return serde_json::from_str(written).ok().map(Cow::Owned);
    }
    Some(Cow::Borrowed(inner))
}

/// A member if it is a string with something in it.
pub(super) fn name(raw: Raw<'_>) -> Option<String> {
    text(raw).filter(|text| !text.is_empty()).map(Cow::into_owned)
}

/// The texts in a member, a line each: the member itself if it is a string, the texts of content blocks, and else whatever strings
/// are in it. What has no spaces for long is no text but encoded bytes.
pub(super) fn texts(raw: Raw<'_>) -> String {
    let mut texts = Vec::new();
    match raw.map(RawValue::get) {
        Some(written) if written.starts_with('"') => texts.extend(text(raw).map(Cow::into_owned)),
        Some(written) if written.len() <= MOST_VALUE && written.starts_with(['{', '[']) => {
            if let Ok(value) = serde_json::from_str(written) {
                collect_texts(value, &mut texts);
            }
        }
        _ => {}
    }
    texts.retain(|text| text.get(..LONG_WORD).is_none_or(|head| head.contains(char::is_whitespace)));
    texts.join("\n")
}

/// The most bytes of an object or array whose texts are looked for: parsed, it takes several times as much memory.
const MOST_VALUE: usize = 1 << 20;
/// How many bytes without a space are no text.
const LONG_WORD: usize = 1_024;

fn collect_texts(value: Value, texts: &mut Vec<String>) {
    match value {
        Value::String(text) => texts.push(text),
        Value::Array(values) => values.into_iter().for_each(|value| collect_texts(value, texts)),
        Value::Object(members) => members.into_iter().for_each(|(_, value)| collect_texts(value, texts)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Whether a member is `true`.
pub(super) fn is_true(raw: Raw<'_>) -> bool {
    raw.is_some_and(|raw| raw.get() == "true")
}
