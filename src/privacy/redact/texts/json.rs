//! Texts that are JSON, whose strings are read as what they mean, each with the name of its member.

use std::iter::Peekable;
use std::ops::Range;
use std::rc::Rc;

use serde::de::IgnoredAny;

use super::{Redaction, effort};
use crate::http::clean::clean_json;
use crate::privacy::redact::replacements::WITHOUT_NAME;
use crate::privacy::redact::value_ends::ending;
use crate::privacy::redact::{Span, merge};
use crate::types::value;

/// How many texts that are JSON may be in each other, each a string of the one around it. All of them are in memory at once. With
/// the usual escapes, the quotes in so many have hundreds of backslashes.
const MOST_LEVELS: usize = 8;

/// The maximum number of bytes of a text in another one that is JSON, if both are to be read as JSON.
pub(in crate::privacy::redact) const LONGEST_INNER: usize = 1 << 20;

/// How deep arrays and objects may nest in a text that is read as JSON, as in a body. Each takes memory while it is open.
const DEEPEST: usize = 127;

/// The number of bytes of a member's name that count as the text before its value. The name is repeated for each
/// value of an array.
const NAME: usize = 100;

impl Redaction<'_> {
    /// Applies the rules to the strings of a JSON text. Everything else stays as it was written, such as numbers, and
    /// members that have the same name. A member's name counts as the text before its value, so that
    /// `{"password": "…"}` is treated like `password: …`. The name may also be another string, as in
    /// `{"name": "password", "value": "…"}`, so that the rules are applied to the whole text first. Returns none if nothing
    /// is replaced.
    pub(super) fn json(&mut self, json: &str) -> Option<String> {
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

/// Returns whether a text is an object or array in JSON, whose strings have escapes.
pub(super) fn is_json(text: &str) -> bool {
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
