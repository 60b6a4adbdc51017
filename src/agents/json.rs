//! JSON of which few members are needed. Members stay unparsed until they are needed, and a member of an unexpected
//! type counts as missing.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

use super::entry::MOST_TEXT;
use crate::types::value;

/// A text that is not a JSON object: it is invalid, was cut off, or is another value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a JSON object")]
pub struct NotAnObject;

/// An unparsed member.
pub(super) type Raw<'a> = Option<&'a RawValue>;

/// Reads an object.
pub(super) fn object<'a, T: Deserialize<'a> + Default>(text: &'a str) -> Result<T, NotAnObject> {
    let text = text.trim_ascii();
    if !text.starts_with('{') {
        return Err(NotAnObject);
    }
    // An object that is not a `T`, for example because a member is repeated, counts as an empty one.
    serde_json::from_str(text)
        .or_else(|_| serde_json::from_str::<IgnoredAny>(text).map(|_| T::default()).map_err(|_| NotAnObject))
}

/// Returns a member if it is an object.
pub(super) fn member<'a, T: Deserialize<'a> + Default>(raw: Raw<'a>) -> Option<T> {
    object(raw?.get()).ok()
}

/// The maximum number of elements of an array that are used. A message has a few dozen parts.
const MOST_ELEMENTS: usize = 1_000;

/// Returns the elements of a member if it is an array, up to the maximum.
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
    // An error about a long string would repeat it.
    let array = raw?.get();
    if !array.starts_with('[') {
        return None;
    }
    serde_json::Deserializer::from_str(array).deserialize_seq(First).ok()
}

/// Returns the members of a member if it is an object, up to a maximum.
pub(super) fn members(raw: Raw<'_>, most: usize) -> Option<Vec<(String, &RawValue)>> {
    struct First(usize);
    impl<'de> Visitor<'de> for First {
        type Value = Vec<(String, &'de RawValue)>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Self::Value, A::Error> {
            let mut members = Vec::new();
            while members.len() < self.0
                && let Some((name, value)) = object.next_entry::<String, _>()?
            {
                members.push((storable(name), value));
            }
            while object.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
            Ok(members)
        }
    }
    let object = raw?.get();
    if !object.starts_with('{') {
        return None;
    }
    serde_json::Deserializer::from_str(object).deserialize_map(First(most)).ok()
}

/// Returns a member if it is a string.
pub(super) fn text(raw: Raw<'_>) -> Option<Cow<'_, str>> {
    let written = raw?.get();
    let inner = written.strip_prefix('"')?.strip_suffix('"')?;
    if inner.contains('\\') {
        return serde_json::from_str(written).ok().map(storable).map(Cow::Owned);
    }
    Some(Cow::Borrowed(inner))
}

/// Returns the beginning of a member if it is a string: at least `most` bytes of it as it is written, or all of it. A long
/// string takes several times its memory when it is read.
pub(super) fn beginning(raw: Raw<'_>, most: usize) -> Option<Cow<'_, str>> {
    /// The number of bytes of the longest escape, of a pair of surrogates.
    const LONGEST_ESCAPE: usize = 12;
    let written = raw?.get();
    if written.len() <= most + LONGEST_ESCAPE || !written.starts_with('"') {
        return text(raw);
    }
    // Wherever the string is cut, no more than an escape has to be left out or added.
    let mut cuts = (most..most + LONGEST_ESCAPE).filter(|end| written.is_char_boundary(*end));
    cuts.find_map(|end| serde_json::from_str(&format!("{}\"", &written[..end])).ok())
        .map(storable)
        .map(Cow::Owned)
}

/// Replaces the zero characters of a text, which Postgres does not store. Those of a line are replaced before it is read,
/// but not those of JSON in its texts.
pub(super) fn storable(text: String) -> String {
    if text.contains('\0') { text.replace('\0', "\u{fffd}") } else { text }
}

/// Returns a member if it is a string that is not empty. Of one that is too long for a name or a path, it is the beginning.
pub(super) fn name(raw: Raw<'_>) -> Option<String> {
    beginning(raw, MOST_WRITTEN).filter(|text| !text.is_empty()).map(Cow::into_owned)
}

/// Returns the texts in a member, one per line: the member itself if it is a string, the texts of content blocks, or
/// else all strings in it. Long runs without spaces are encoded bytes, and are left out. Of a long string, it is the beginning.
pub(super) fn texts(raw: Raw<'_>) -> String {
    let mut texts = Vec::new();
    match raw.map(RawValue::get) {
        Some(written) if written.starts_with('"') => {
            texts.extend(beginning(raw, MOST_WRITTEN).map(Cow::into_owned));
        }
        Some(written) if written.len() <= MOST_VALUE && written.starts_with(['{', '[']) => {
            if let Ok(value) = value::parse_inner(written) {
                collect_texts(value, &mut texts);
            }
        }
        _ => {}
    }
    texts.retain(|text| text.get(..LONG_WORD).is_none_or(|head| head.contains(char::is_whitespace)));
    texts.join("\n")
}

/// The number of bytes of a string that are read, as it is written. An escape has up to six times as many bytes as its
/// character.
const MOST_WRITTEN: usize = 6 * MOST_TEXT;
/// The maximum number of bytes of an object or array whose texts are read. Parsing it takes several times as much
/// memory.
const MOST_VALUE: usize = 1 << 20;
/// The number of bytes without a space from which a run is not text.
const LONG_WORD: usize = 1_024;

fn collect_texts(value: Value, texts: &mut Vec<String>) {
    match value {
        Value::String(text) => texts.push(text),
        Value::Array(values) => values.into_iter().for_each(|value| collect_texts(value, texts)),
        Value::Object(members) => members.into_iter().for_each(|(_, value)| collect_texts(value, texts)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Returns whether a member is `true`.
pub(super) fn is_true(raw: Raw<'_>) -> bool {
    raw.is_some_and(|raw| raw.get() == "true")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::value::to_raw_value;

    use super::*;

    proptest! {
        #[test]
        fn the_beginning_of_a_string_is_one_of_its_text(said in any::<String>(), escaped in any::<bool>(), most in 1..40_usize) {
            let code = |unit: u16| format!("\\u{unit:04x}");
            let escapes = format!("\"{}\"", said.encode_utf16().map(code).collect::<String>());
            let written = if escaped { RawValue::from_string(escapes) } else { to_raw_value(&said) };
            let written = written.expect("a string");
            let beginning = beginning(Some(&written), most).expect("a text");
            let said = storable(said);
            prop_assert!(said.starts_with(&*beginning));
            prop_assert!(*beginning == said || 6 * beginning.len() + 1 >= most);
        }
    }
}
