//! JSON of others as values: how many there are in a text, and what they are.
//!
//! `serde_json` parses an object whose first member has a certain private name as if the text in that member stood in its
//! place, however deeply objects are nested in such texts. So whoever writes JSON could make it say something else, or need more
//! stack than there is. Here each member is what it is.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// Makes a value of JSON, unless it has more values than are `left`.
pub struct Few<'a> {
    /// How many values there may still be.
    pub left: &'a mut usize,
    /// The name of the members of objects that are left out, and not counted.
    pub without: Option<&'static str>,
}

/// The maximum number of values in a text that is JSON, within what a client has sent. Nobody has counted them, and each may take
/// hundreds of bytes. A prompt of 2 MiB has some thousands.
const MOST_INNER: usize = 20_000;

/// Parses a JSON text that somebody else has written, and whose values were counted where it came in.
pub fn parse(json: &str) -> serde_json::Result<Value> {
    parse_few(json, usize::MAX)
}

/// Parses a text of somebody else if it is JSON without very many values.
pub fn parse_inner(text: &str) -> serde_json::Result<Value> {
    parse_few(text, MOST_INNER)
}

fn parse_few(json: &str, mut left: usize) -> serde_json::Result<Value> {
    let mut parser = serde_json::Deserializer::from_str(json);
    let value = Few { left: &mut left, without: None }.deserialize(&mut parser)?;
    parser.end().map(|()| value)
}

/// Returns the number of values in a JSON text, or a few more. It counts brackets and commas.
#[must_use]
pub fn count(json: &[u8]) -> usize {
    let (mut values, mut at) = (1, 0);
    while let Some(byte) = json.get(at) {
        at = match byte {
            b'"' => end_of_string(json, at + 1),
            _ => at + 1,
        };
        values += usize::from(matches!(byte, b',' | b'[' | b'{'));
    }
    values
}

/// Returns how deep arrays and objects nest in a JSON text.
pub fn depth(json: &[u8]) -> usize {
    let (mut depth, mut most, mut at) = (0_usize, 0, 0);
    while let Some(byte) = json.get(at) {
        at += 1;
        match byte {
            b'"' => at = end_of_string(json, at),
            b'[' | b'{' => {
                depth += 1;
                most = most.max(depth);
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    most
}

/// Returns the position after the closing quote of the string whose content begins at `at`.
fn end_of_string(json: &[u8], mut at: usize) -> usize {
    while let Some(plain) = json.get(at..).and_then(|rest| memchr::memchr2(b'"', b'\\', rest)) {
        at += plain;
        if json[at] == b'"' {
            return at + 1;
        }
        at += 2;
    }
    json.len()
}

impl Few<'_> {
    /// Returns what makes a value inside this one, with the same count.
    fn next(&mut self) -> Few<'_> {
        Few { left: self.left, without: self.without }
    }
}

impl<'de> DeserializeSeed<'de> for Few<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Value, D::Error> {
        *self.left = self.left.checked_sub(1).ok_or_else(|| D::Error::custom("too many values"))?;
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Few<'_> {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("any value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut items: A) -> Result<Value, A::Error> {
        let mut read = Vec::new();
        while let Some(item) = items.next_element_seed(self.next())? {
            read.push(item);
        }
        Ok(read.into())
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut members: A) -> Result<Value, A::Error> {
        let mut read = Map::new();
        while let Some(name) = members.next_key::<String>()? {
            if Some(name.as_str()) == self.without {
                members.next_value::<IgnoredAny>()?;
            } else {
                read.insert(name, members.next_value_seed(self.next())?);
            }
        }
        Ok(read.into())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(json: &str, mut left: usize) -> Option<Value> {
        let mut parser = serde_json::Deserializer::from_str(json);
        Few { left: &mut left, without: Some("x") }.deserialize(&mut parser).ok()
    }

    #[test]
    fn a_value_is_as_it_was_written_but_for_the_members_that_are_left_out_unless_it_has_too_many() {
        let text = r#"{"a": [null, true, -1, 18446744073709551615, 1.5, "\u00e9"], "x": [1, {"x": 2}], "b": {"x": 3}}"#;
        let expected = json!({"a": [null, true, -1, u64::MAX, 1.5, "é"], "b": {}});
        assert_eq!(read(text, 9), Some(expected));
        assert_eq!(read(text, 8), None);
    }

    #[test]
    fn a_member_with_a_private_name_of_the_parser_is_a_member_like_others() {
        let member = |json: &str| format!(r#"{{"$serde_json::private::RawValue": {}}}"#, Value::from(json));
        let value = parse(&member("[1]")).expect("JSON");
        assert_eq!(value, json!({"$serde_json::private::RawValue": "[1]"}));
        assert_eq!(
            serde_json::from_str::<Value>(&member("[1]")).ok(),
            Some(json!([1])),
            "it is still private"
        );
        parse("1 2").expect_err("there is more");
    }

    #[test]
    fn brackets_in_strings_nest_nothing() {
        for (json, expected) in [("1", 0), (r#"[{"a": "[[["}, [[]]]"#, 3), (r#"["\"[", []"#, 2), ("[[", 2)] {
            assert_eq!(depth(json.as_bytes()), expected, "{json}");
        }
    }

    #[test]
    fn a_text_within_what_came_in_has_few_values() {
        let numbers = |count: usize| format!("[{}0]", "0,".repeat(count - 1));
        parse_inner(&numbers(MOST_INNER - 1)).expect("JSON");
        parse_inner(&numbers(MOST_INNER)).expect_err("the array is one, too");
        parse(&numbers(MOST_INNER)).expect("JSON");
    }
}
