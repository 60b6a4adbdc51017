//! Cleaning of input: what Postgres cannot store (NUL characters, lone surrogates, numbers out of range) is
//! replaced or refused before anything is parsed.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::extract::Request;
use axum::http::{Extensions, HeaderValue};
use axum::response::Response;

use crate::error::{Error, Result};
use crate::types::value;

/// How deep arrays and objects may nest. It is `serde_json`'s own limit, applied to objects that stay
/// unparsed too.
const DEPTH_LIMIT: u32 = 127;

/// Replaces, in place, the escapes in a JSON text that Postgres cannot store (`\u0000` and lone surrogates)
/// by `\ufffd`, and returns how many there were. Also refuses what nobody would notice in an object that
/// stays unparsed: nesting deeper than the parser allows, numbers beyond the range of a double, and numbers that are much
/// longer without their exponents, as Postgres writes them. So is a name of a member that is so long that no error should
/// repeat it. A member with a name that is `serde_json`'s own is refused, because a
/// value would be made of the text in it. A raw NUL byte is left to the parser, which refuses it.
pub fn clean_json(json: &mut [u8]) -> Result<usize> {
    let most_zeros = SCALE as usize + MOST_ZEROS * json.len().min(MOST_BYTES_WITH_ZEROS);
    clean(json, most_zeros)
}

/// Cleans a JSON text as [`clean_json`] does whose parts are cleaned again, and may have as many zeros each as a text.
pub fn clean_parts(json: &mut [u8]) -> Result<usize> {
    clean(json, usize::MAX)
}

fn clean(json: &mut [u8], most_zeros: usize) -> Result<usize> {
    let mut replaced = 0;
    let mut depth = 0_u32;
    let mut zeros = 0;
    let mut at = 0;
    while at < json.len() {
        match json[at] {
            b'"' => {
                let begun = at;
                at = clean_string(json, at + 1, &mut replaced);
                if at - begun > LONGEST_NAME && is_name(json, at) {
                    let reason = format!("the name of a member has more than {LONGEST_NAME} bytes");
                    return Err(malformed_at(json, begun, &reason));
                }
                if is_private(json, begun, at) {
                    return Err(malformed_at(json, begun, &format!("the name {PRIVATE:?} is reserved")));
                }
            }
            b'{' | b'[' => {
                depth += 1;
                if depth > DEPTH_LIMIT {
                    return Err(malformed_at(json, at, "nesting is deeper than 127 levels"));
                }
                at += 1;
            }
            b'}' | b']' => {
                depth = depth.saturating_sub(1);
                at += 1;
            }
            b'-' | b'0'..=b'9' => {
                let end = json[at..]
                    .iter()
                    .position(|byte| !matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E'))
                    .map_or(json.len(), |length| at + length);
                let number = str::from_utf8(&json[at..end]).unwrap_or_default();
                let Some(more) = zeros_of(number) else {
                    return Err(malformed_at(json, at, "number out of range"));
                };
                zeros += more;
                if zeros > most_zeros {
                    return Err(malformed_at(json, at, "numbers are too long without their exponents"));
                }
                at = end;
            }
            _ => at += 1,
        }
    }
    Ok(replaced)
}

/// The maximum number of bytes of the name of a member, with its quotation marks.
const LONGEST_NAME: usize = 2 << 20;

/// Returns whether the string that ends at `end` is the name of a member.
fn is_name(json: &[u8], end: usize) -> bool {
    json[end..].trim_ascii_start().starts_with(b":")
}

/// The name that tells `serde_json` that a member is not one, but JSON text in place of the object around it. That text may nest
/// as deeply as the one it is in.
const PRIVATE: &str = "$serde_json::private::RawValue";

/// Returns whether the string from `begun` to `end` is the name of a member, and [`PRIVATE`].
fn is_private(json: &[u8], begun: usize, end: usize) -> bool {
    let string = &json[begun..end];
    let may_be = ["\"$", "\"\\u0024"].iter().any(|head| string.starts_with(head.as_bytes()));
    may_be && is_name(json, end) && serde_json::from_slice::<String>(string).is_ok_and(|name| name == PRIVATE)
}

/// The maximum number of values in a JSON text that is parsed as a whole, whatever it contains. That is more than a
/// model can read, and takes at most some 80 MB of memory.
pub const MOST_VALUES: usize = 250_000;

/// Rejects a JSON text with more values than [`MOST_VALUES`]. A client's own objects are kept as text, but they are
/// parsed to be hashed and redacted.
pub fn expect_few_values(json: &[u8]) -> Result<()> {
    // A value takes a byte at least.
    if json.len() > MOST_VALUES && value::count(json) > MOST_VALUES {
        return Err(too_many_values());
    }
    Ok(())
}

/// Returns the error about a text with more than [`MOST_VALUES`].
pub(super) fn too_many_values() -> Error {
    Error::TooLarge(format!("the body has more than {MOST_VALUES} JSON values"))
}

/// The maximum number of digits after the point that Postgres's `numeric` has.
const SCALE: u32 = 16_383;

/// The maximum number of zeros that the exponents in a JSON text stand for, for each of so many of its first bytes and beyond
/// [`SCALE`]. The smallest doubles with all their digits need thirteen. A database gives all of them back.
const MOST_ZEROS: usize = 16;
const MOST_BYTES_WITH_ZEROS: usize = 256 << 10;

/// Returns how many zeros the exponent of a number stands for, or none if the number does not fit both a double and
/// Postgres's `numeric`. Text that is not a number passes, because the parser refuses it.
fn zeros_of(number: &str) -> Option<usize> {
    const DIGITS: usize = 300;
    let (mantissa, exponent) = number.split_once(['e', 'E']).unwrap_or((number, ""));
    if exponent.is_empty() && mantissa.len() <= DIGITS {
        return Some(0);
    }
    let fraction = mantissa.split_once('.').map_or(0, |(_, digits)| digits.len());
    let digits = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) || digits.is_empty() != exponent.is_empty() {
        return Some(0);
    }
    let exponent = if digits.is_empty() { 0 } else { exponent.parse::<i64>().ok()? };
    let scale = i64::from(SCALE);
    let fits =
        exponent.abs() <= scale && i64::try_from(fraction).is_ok_and(|digits| digits - exponent <= scale);
    // `serde_json` rounds differently from the standard library, so it decides on numbers near the greatest
    // double.
    let out_of_range = |error: serde_json::Error| error.to_string().starts_with("number out of range");
    let fits = fits && !serde_json::from_str::<f64>(number).is_err_and(out_of_range);
    usize::try_from(exponent.unsigned_abs()).ok().filter(|_| fits)
}

/// Cleans the string whose content begins at `at`. Returns the position after its closing quote.
fn clean_string(json: &mut [u8], mut at: usize, replaced: &mut usize) -> usize {
    while let Some(plain) = json.get(at..).and_then(|rest| memchr::memchr2(b'"', b'\\', rest)) {
        at += plain;
        if json[at] == b'"' {
            return at + 1;
        }
        match escaped_unit(json, at) {
            Some(0xD800..=0xDBFF) if matches!(escaped_unit(json, at + 6), Some(0xDC00..=0xDFFF)) => {
                at += 12;
            }
            Some(0 | 0xD800..=0xDFFF) => {
                json[at + 2..at + 6].copy_from_slice(b"fffd");
                *replaced += 1;
                at += 6;
            }
            Some(_) => at += 6,
            None => at += 2,
        }
    }
    json.len()
}

/// Returns the UTF-16 code unit of the `\uXXXX` escape at `at`, if there is one.
fn escaped_unit(json: &[u8], at: usize) -> Option<u16> {
    let escape = json.get(at..at + 6)?;
    let digits = escape.strip_prefix(b"\\u")?;
    if !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    u16::from_str_radix(str::from_utf8(digits).ok()?, 16).ok()
}

fn malformed_at(json: &[u8], at: usize, what: &str) -> Error {
    let before = &json[..at];
    let line = before.iter().filter(|&&byte| byte == b'\n').count() + 1;
    let column = at - before.iter().rposition(|&byte| byte == b'\n').map_or(0, |newline| newline + 1) + 1;
    Error::Malformed(format!(
        "the body is not JSON that can be stored: {what} at line {line} column {column}"
    ))
}

/// Replaces NUL characters, which paths and query strings can contain as `%00`.
pub(super) fn clean_text(text: &str, replaced: &Replaced) -> String {
    replaced.add(text.matches('\0').count());
    text.replace('\0', "\u{fffd}")
}

/// Counts what was changed in the texts of one request: the characters that cleaning has replaced, and the spans
/// that were redacted. Clones share the counts.
#[derive(Debug, Clone, Default)]
pub struct Replaced(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    characters: AtomicUsize,
    redacted: AtomicUsize,
}

impl Replaced {
    /// Attaches a count of zero to the request, for the extractors to add to.
    pub fn begin(request: &mut Request) -> Self {
        let replaced = Self::default();
        request.extensions_mut().insert(replaced.clone());
        replaced
    }

    /// Returns the counts of the request.
    #[must_use]
    pub fn of(extensions: &Extensions) -> Self {
        extensions.get().cloned().unwrap_or_default()
    }

    /// Adds `n` characters to the count.
    pub fn add(&self, n: usize) {
        self.0.characters.fetch_add(n, Ordering::Relaxed);
    }

    /// Adds `n` redacted spans to the count.
    pub fn add_redacted(&self, n: u32) {
        self.0.redacted.fetch_add(n as usize, Ordering::Relaxed);
    }

    /// Tells the client how many characters of its request were replaced, in the header `Gleaner-Replaced`, and how
    /// many spans were redacted, in `Gleaner-Redacted`.
    pub fn report(&self, response: &mut Response) {
        let count = self.0.characters.load(Ordering::Relaxed);
        if count > 0 {
            metrics::counter!("gleaner_replaced_characters_total").increment(count as u64);
            response.headers_mut().insert("gleaner-replaced", HeaderValue::from(count));
        }
        let redacted = self.0.redacted.load(Ordering::Relaxed);
        if redacted > 0 {
            response.headers_mut().insert("gleaner-redacted", HeaderValue::from(redacted));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    fn cleaned(json: &str) -> (String, usize) {
        let mut bytes = json.as_bytes().to_vec();
        let count = clean_json(&mut bytes).expect("cleans");
        (String::from_utf8(bytes).expect("still UTF-8"), count)
    }

    #[test]
    fn only_nul_and_lone_surrogates_are_replaced() {
        for (given, expected, count) in [
            (r#""a\\u0000b""#, r#""a\\u0000b""#, 0),
            (r#""a\\\\u0000b""#, r#""a\\\\u0000b""#, 0),
            (r#""\\\u0000""#, r#""\\\ufffd""#, 1),
            (r#""\ud83d\ude00""#, r#""\ud83d\ude00""#, 0),
            (r#""\ud83d""#, r#""\ufffd""#, 1),
            (r#""\ude00\ud83d""#, r#""\ufffd\ufffd""#, 2),
            (r#""\ud83d\ud83d\ude00""#, r#""\ufffd\ud83d\ude00""#, 1),
            (r#"{"\u0000": "\u00e9\n"}"#, r#"{"\ufffd": "\u00e9\n"}"#, 1),
        ] {
            assert_eq!(cleaned(given), (expected.to_owned(), count), "{given}");
        }
    }

    #[test]
    fn nesting_and_numbers_that_cannot_be_kept_are_refused_with_their_place() {
        let deep = format!("{{\n\"a\": {}{}}}", "[".repeat(200), "]".repeat(200));
        let error = clean_json(&mut deep.into_bytes()).expect_err("too deep").to_string();
        assert!(error.ends_with("nesting is deeper than 127 levels at line 2 column 132"), "{error}");
        let error = clean_json(&mut br#"{"a": [1, -1e400]}"#.to_vec()).expect_err("too large").to_string();
        assert!(error.ends_with("number out of range at line 1 column 11"), "{error}");
        assert_eq!(clean_json(&mut br#"{"a": "1e400 [[["}"#.to_vec()).expect("in a string"), 0);
    }

    #[test]
    fn the_private_name_of_the_parser_is_refused_as_the_name_of_a_member_only() {
        for (json, is_refused) in [
            (r#"{"$serde_json::private::RawValue": 1}"#, true),
            (r#"{"a": [{"b": 1, "\u0024serde_json\u003a:private::RawValue" : "1"}]}"#, true),
            (r#"{"a": "$serde_json::private::RawValue", "b": 1}"#, false),
            (r#"{"$serde_json::private::RawValues": 1, "$": "$", "\u0024": 1}"#, false),
        ] {
            assert_eq!(clean_json(&mut json.as_bytes().to_vec()).is_err(), is_refused, "{json}");
        }
    }

    #[test]
    fn the_name_of_a_member_has_a_limit_and_other_strings_have_none() {
        let long = "a".repeat(LONGEST_NAME);
        let error = clean_json(&mut format!("{{\"{long}\" : 1}}").into_bytes()).expect_err("a name");
        assert!(error.to_string().ends_with("more than 2097152 bytes at line 1 column 2"), "{error}");
        let others = format!("{{\"{}\": [\"{long}\"]}}", &long[2..]);
        assert_eq!(clean_json(&mut others.into_bytes()).expect("short names"), 0);
    }

    #[test]
    fn a_number_is_kept_that_fits_both_a_double_and_postgres() {
        let long = format!("0.{}1", "0".repeat(16_382));
        for kept in ["0", "-1.5", "1e308", "1e-16383", "1.5E+3", &long, "1e", "1e+", "1.2.3", "--"] {
            assert!(zeros_of(kept).is_some(), "{kept}");
        }
        let longer = format!("{long}0");
        let great = "9".repeat(400);
        for refused in [
            "1e309",
            "-1e400",
            "1e-16384",
            "1.5e-16383",
            "0e16384",
            "1e99999999999999999999",
            &longer,
            &great,
        ] {
            assert_eq!(zeros_of(refused), None, "{refused}");
        }
    }

    #[test]
    fn numbers_may_not_be_much_longer_without_their_exponents() {
        let numbers =
            |number: &str, count: usize| format!("[{}]", vec![number; count].join(",")).into_bytes();
        for (number, count) in [("1e-16383", 1), ("2.2250738585072014e-308", 10_000), ("1.5e-05", 10_000)] {
            assert_eq!(clean_json(&mut numbers(number, count)).expect(number), 0);
        }
        for (number, count) in [("1e-16383", 2), ("1e308", 1_000), ("2.2250738585072014e-308", 20_000)] {
            let error = clean_json(&mut numbers(number, count)).expect_err(number).to_string();
            assert!(error.contains("too long without their exponents at line 1 column"), "{error}");
        }
    }

    proptest! {
        #[test]
        fn cleaning_keeps_valid_json_as_it_is(texts in proptest::collection::vec(any::<String>(), 0..5)) {
            let texts: Vec<_> = texts.into_iter().map(|text| text.replace('\0', "")).collect();
            let json = Value::from(texts).to_string();
            prop_assert_eq!(cleaned(&json), (json.clone(), 0));
        }

        #[test]
        fn cleaning_any_bytes_keeps_their_length_and_is_done_once(mut bytes in "[\\\\u0dD8fE\"{}\\[\\]0-9]{0,64}".prop_map(String::into_bytes)) {
            let length = bytes.len();
            if clean_json(&mut bytes).is_ok() {
                prop_assert_eq!(bytes.len(), length);
                prop_assert_eq!(clean_json(&mut bytes).expect("again"), 0);
            }
        }
    }
}
