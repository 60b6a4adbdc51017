//! What handlers take from a request: [`Json`], [`Query`], [`Path`] and the raw [`body`], each rejecting with the
//! service's own [`Error`], and each cleaned of the characters that Postgres cannot keep.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, MatchedPath, RawPathParams, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, header};
use axum::response::Response;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeOwned, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use tower_http::timeout::TimeoutError;
use utoipa::IntoParams;
use utoipa::openapi::path::ParameterIn;
use utoipa::openapi::{OpenApi, RefOr};
use uuid::Uuid;

use crate::error::{Error, FieldError, Result};
use crate::value::derived_id;

/// The most bytes of a JSON body, after decompression.
pub const JSON_LIMIT: usize = 2 << 20;
/// The most bytes of an NDJSON body, after decompression.
pub const NDJSON_LIMIT: usize = 64 << 20;
/// How deep arrays and objects may nest: `serde_json`'s own limit, applied to unparsed objects too.
const DEPTH_LIMIT: u32 = 127;

/// A JSON body, parsed and checked.
#[derive(Debug)]
pub struct Json<T>(pub T);

/// The query string, parsed and checked.
#[derive(Debug)]
pub struct Query<T>(pub T);

/// The path's parameters: one value, or a struct with a field a parameter.
#[derive(Debug)]
pub struct Path<T>(pub T);

/// What a parsed value must satisfy beyond its types. Reports every field that does not.
pub trait Check {
    /// Adds what is wrong to `checks`.
    fn check(&self, checks: &mut Checks);
}

/// Collects what is wrong with a request, by JSON Pointer.
#[derive(Debug, Default)]
pub struct Checks {
    prefix: String,
    errors: Vec<FieldError>,
}

impl Checks {
    /// The value itself, if it satisfies its checks.
    pub fn of<T: Check>(value: T) -> Result<T> {
        let mut checks = Self::default();
        value.check(&mut checks);
        checks.finish().map(|()| value)
    }

    /// An error, if anything was reported.
    pub fn finish(self) -> Result<()> {
        if self.errors.is_empty() { Ok(()) } else { Err(Error::Invalid(self.errors)) }
    }

    /// Reports `field` (a pointer's last part) as wrong.
    pub fn fail(&mut self, field: &str, detail: impl Into<String>) {
        self.errors.push(FieldError { pointer: format!("{}/{field}", self.prefix), detail: detail.into() });
    }

    /// Reports `field` unless `holds`.
    pub fn require(&mut self, holds: bool, field: &str, detail: &str) {
        if !holds {
            self.fail(field, detail);
        }
    }

    /// A text that must not be empty, of at most `most` characters.
    pub fn text(&mut self, field: &str, text: &str, most: usize) {
        self.require(!text.is_empty(), field, "must not be empty");
        if text.len() > most && text.chars().count() > most {
            self.fail(field, format!("has more than {most} characters"));
        }
    }

    /// A name, id or other short text of at most 200 characters, if given.
    pub fn name(&mut self, field: &str, text: Option<&str>) {
        if let Some(text) = text {
            self.text(field, text, 200);
        }
    }

    /// A count or duration, if given: not negative.
    pub fn count(&mut self, field: &str, count: Option<i32>) {
        self.require(count.is_none_or(|count| count >= 0), field, "must not be negative");
    }

    /// Checks a nested value; its pointers begin with `field`.
    pub fn nested(&mut self, field: &str, value: &impl Check) {
        let length = self.prefix.len();
        self.prefix.push('/');
        self.prefix.push_str(field);
        value.check(self);
        self.prefix.truncate(length);
    }
}

impl<S: Send + Sync, T: DeserializeOwned + Check> FromRequest<S> for Json<T> {
    type Rejection = Error;

    async fn from_request(request: Request, _: &S) -> Result<Self> {
        expect_media_type(request.headers(), &["application/json"])?;
        let mut body = body(request, JSON_LIMIT).await?;
        parse(&mut body.bytes, &body.replaced).map(Self)
    }
}

/// A whole request body in memory, not yet cleaned.
pub struct Body {
    /// Its bytes, decompressed.
    pub bytes: Vec<u8>,
    /// Counts what cleaning replaces, for the `Gleaner-Replaced` header.
    pub replaced: Replaced,
}

/// Reads a body of at most `limit` bytes.
pub async fn body(request: Request, limit: usize) -> Result<Body> {
    let replaced = request.extensions().get::<Replaced>().cloned().unwrap_or_default();
    let collected = Limited::new(request.into_body(), limit).collect().await.map_err(|error| {
        if error.is::<LengthLimitError>() {
            return Error::TooLarge(format!("the body has more than {limit} bytes"));
        }
        unreadable(&*error)
    })?;
    Ok(Body { bytes: Bytes::into(collected.to_bytes()), replaced })
}

/// The refusal of a body that could not be read to its end.
pub fn unreadable(error: &(dyn std::error::Error + 'static)) -> Error {
    let mut causes = std::iter::successors(Some(error), |error| error.source());
    if causes.any(<dyn std::error::Error>::is::<TimeoutError>) {
        return Error::TooSlow("the rest of the body did not come");
    }
    Error::Malformed(format!("the body could not be read: {error}"))
}

/// Refuses a content type that is none of `allowed`; parameters such as charset are passed over.
pub fn expect_media_type(headers: &HeaderMap, allowed: &[&str]) -> Result<()> {
    let given = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or("");
    let essence = given.split(';').next().unwrap_or("").trim();
    if allowed.iter().any(|allowed| essence.eq_ignore_ascii_case(allowed)) {
        return Ok(());
    }
    Err(Error::UnsupportedMediaType(format!(
        "the content type must be {}, not {given:?}",
        allowed.join(" or ")
    )))
}

/// Cleans, parses and checks one JSON text.
pub fn parse<T: DeserializeOwned + Check>(json: &mut [u8], replaced: &Replaced) -> Result<T> {
    replaced.add(clean_json(json)?);
    let Object(value) = decode(utf8(json)?)?;
    Checks::of(value)
}

/// A value that must be written as an object: left to itself, a struct is also read from an array of its fields.
struct Object<T>(T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Members<T> {
            type Value = Object<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Object<T>, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(Object)
            }
        }
        deserializer.deserialize_map(Members(PhantomData))
    }
}

/// Reads a field that may be null, which is the same as leaving it out.
pub fn null_as_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    deserializer: D,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// JSON text as a string slice; a byte that is not UTF-8 is named by its place.
pub fn utf8(bytes: &[u8]) -> Result<&str> {
    str::from_utf8(bytes)
        .map_err(|error| Error::Malformed(format!("the body is not UTF-8 at byte {}", error.valid_up_to())))
}

/// Parses JSON that is clean already. Only when that fails is it parsed again, slower, to name the field.
pub fn decode<'de, T: Deserialize<'de>>(json: &'de str) -> Result<T> {
    serde_json::from_str(json).map_err(|error| {
        // An enum that is no string is a syntax error to the parser, though the text is good JSON.
        if !error.is_data() && serde_json::from_str::<IgnoredAny>(json).is_err() {
            return Error::Malformed(format!("the body is not JSON: {error}"));
        }
        let mut deserializer = serde_json::Deserializer::from_str(json);
        match serde_path_to_error::deserialize::<_, T>(&mut deserializer) {
            Err(error) => {
                let path = error.path().clone();
                field_error(&path, &error.into_inner().to_string())
            }
            Ok(_) => Error::Malformed(format!("the body is not JSON: {error}")),
        }
    })
}

/// The 422 of a value that does not fit its type; a field that is missing, unknown or there twice is named itself, not the
/// object that it is about.
fn field_error(path: &serde_path_to_error::Path, message: &str) -> Error {
    use serde_path_to_error::Segment;
    let mut pointer = String::new();
    for segment in path {
        match segment {
            Segment::Map { key } | Segment::Enum { variant: key } => pointer.push_str(&pointer_part(key)),
            Segment::Seq { index } => {
                pointer.push('/');
                pointer.push_str(&index.to_string());
            }
            Segment::Unknown => {}
        }
    }
    let message = message.rsplit_once(" at line ").map_or(message, |(message, _)| message);
    let said_of = |kind: &str| Some(message.strip_prefix(kind)?.rsplit_once('`')?.0);
    if let Some(field) = said_of("missing field `").or_else(|| said_of("duplicate field `")) {
        pointer.push_str(&pointer_part(field));
    } else if let Some(said) = message.strip_prefix("unknown field `") {
        let field = said.split_once("`, ").map_or(said, |(field, _)| field);
        let part = pointer_part(field);
        if !pointer.ends_with(&part) {
            pointer.push_str(&part);
        }
    }
    Error::invalid(pointer, message)
}

/// A name as a part of a JSON Pointer.
fn pointer_part(name: &str) -> String {
    format!("/{}", name.replace('~', "~0").replace('/', "~1"))
}

/// Replaces, in place, the escapes in a JSON text that Postgres cannot keep (`\u0000` and lone surrogates) by `\ufffd`,
/// and says how many. Also refuses what would get past an unparsed object: nesting deeper than the parser allows, and
/// numbers no double can hold. A raw NUL byte is no JSON; the parser will say so.
pub fn clean_json(json: &mut [u8]) -> Result<usize> {
    let mut replaced = 0;
    let mut depth = 0_u32;
    let mut at = 0;
    while at < json.len() {
        match json[at] {
            b'"' => at = clean_string(json, at + 1, &mut replaced),
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
                if !can_be_kept(number) {
                    return Err(malformed_at(json, at, "number out of range"));
                }
                at = end;
            }
            _ => at += 1,
        }
    }
    Ok(replaced)
}

/// Whether a number fits both a double and Postgres's `numeric`, which has at most 16 383 digits after the point. What is
/// no number passes; the parser will say so.
fn can_be_kept(number: &str) -> bool {
    const DIGITS: usize = 300;
    const SCALE: i64 = 16_383;
    let (mantissa, exponent) = number.split_once(['e', 'E']).unwrap_or((number, ""));
    if exponent.is_empty() && mantissa.len() <= DIGITS {
        return true;
    }
    let fraction = mantissa.split_once('.').map_or(0, |(_, digits)| digits.len());
    let digits = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) || digits.is_empty() != exponent.is_empty() {
        return true;
    }
    let exponent = if digits.is_empty() { Ok(0) } else { exponent.parse::<i64>() };
    let fits = |exponent: i64| {
        exponent.abs() <= SCALE && i64::try_from(fraction).is_ok_and(|digits| digits - exponent <= SCALE)
    };
    // serde_json rounds otherwise than the standard library, so near the greatest double it has to be asked itself.
    let out_of_range = |error: serde_json::Error| error.to_string().starts_with("number out of range");
    exponent.is_ok_and(fits) && !serde_json::from_str::<f64>(number).is_err_and(out_of_range)
}

/// Cleans the string that begins at `at`; returns the place after its closing quote.
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

/// The UTF-16 unit of the `\uXXXX` escape at `at`, if one stands there.
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
    Error::Malformed(format!("the body is not JSON that can be kept: {what} at line {line} column {column}"))
}

/// Replaces NUL characters, which percent-encoding lets into paths and queries.
fn clean_text(text: &str, replaced: &Replaced) -> String {
    replaced.add(text.matches('\0').count());
    text.replace('\0', "\u{fffd}")
}

impl<S: Send + Sync, T: DeserializeOwned + Check> FromRequestParts<S> for Query<T> {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self> {
        Checks::of(from_pairs(&query_pairs(parts))?).map(Self)
    }
}

/// The query string's names and values, decoded and cleaned. An empty value counts as not given.
pub fn query_pairs(parts: &Parts) -> Vec<(String, String)> {
    let replaced = parts.extensions.get::<Replaced>().cloned().unwrap_or_default();
    form_urlencoded::parse(parts.uri.query().unwrap_or("").as_bytes())
        .filter(|(_, value)| !value.is_empty())
        .map(|(name, value)| (clean_text(&name, &replaced), clean_text(&value, &replaced)))
        .collect()
}

/// Parses names and values as a struct with fields of these names.
pub fn from_pairs<T: DeserializeOwned>(pairs: &[(String, String)]) -> Result<T> {
    let text = form_urlencoded::Serializer::new(String::new()).extend_pairs(pairs).finish();
    let deserializer = serde_urlencoded::Deserializer::new(form_urlencoded::parse(text.as_bytes()));
    serde_path_to_error::deserialize(deserializer).map_err(|error| {
        let path = error.path().clone();
        field_error(&path, &error.into_inner().to_string())
    })
}

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Path<T> {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self> {
        let replaced = parts.extensions.get::<Replaced>().cloned().unwrap_or_default();
        let params = RawPathParams::from_request_parts(parts, state)
            .await
            .map_err(|_| Error::Malformed("the path is not UTF-8 once decoded".to_owned()))?;
        let pairs: Vec<_> =
            params.iter().map(|(name, value)| (name.to_owned(), clean_text(value, &replaced))).collect();
        from_pairs(&pairs).map(Self)
    }
}

/// The request's `Idempotency-Key`, if it has one.
#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Header)]
pub struct IdempotencyKey {
    /// Stands in for ids that the client cannot make.
    #[param(rename = "Idempotency-Key", value_type = Option<String>, required = false)]
    key: Option<HeaderValue>,
}

impl<S: Sync> FromRequestParts<S> for IdempotencyKey {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self> {
        let key = parts.headers.get("idempotency-key").cloned();
        if key.as_ref().is_some_and(|key| key.is_empty() || key.len() > 255) {
            return Err(Error::invalid("/Idempotency-Key", "must have 1 to 255 characters"));
        }
        Ok(Self { key })
    }
}

impl IdempotencyKey {
    /// The id that it stands for: derived from project, route, parent and key.
    #[must_use]
    pub fn id(&self, project: &str, route: &str, parent: Option<Uuid>) -> Option<Uuid> {
        let key = self.key.as_ref()?;
        let parent = parent.unwrap_or_default();
        let parts =
            [b"idempotency-key", project.as_bytes(), route.as_bytes(), parent.as_bytes(), key.as_bytes()];
        Some(derived_id(&parts))
    }
}

/// The path parameter of everything that is found by its id.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
pub struct ById {
    /// The record's id.
    pub id: Uuid,
}

/// The query parameters that each endpoint has, as the OpenAPI document says.
pub struct KnownParameters(HashMap<(Method, String), HashSet<String>>);

impl KnownParameters {
    /// Those of `document`.
    #[must_use]
    pub fn of(document: &OpenApi) -> Self {
        let operations = document.paths.paths.iter().flat_map(|(path, item)| {
            let methods = [
                (Method::GET, &item.get),
                (Method::PUT, &item.put),
                (Method::POST, &item.post),
                (Method::DELETE, &item.delete),
                (Method::PATCH, &item.patch),
            ];
            methods.map(|(method, operation)| ((method, path.clone()), operation))
        });
        let known = operations.filter_map(|(endpoint, operation)| {
            let names =
                operation.as_ref()?.parameters.iter().flatten().filter_map(|parameter| match parameter {
                    RefOr::T(parameter) if parameter.parameter_in == ParameterIn::Query => {
                        Some(parameter.name.clone())
                    }
                    _ => None,
                });
            Some((endpoint, names.collect()))
        });
        Self(known.collect())
    }

    /// Refuses query parameters that the document does not name for an endpoint: what is misspelt must not be passed over.
    pub fn expect(&self, request: &Request) -> Result<()> {
        let Some(query) = request.uri().query() else {
            return Ok(());
        };
        let endpoint = request
            .extensions()
            .get::<MatchedPath>()
            .map(|path| (request.method().clone(), path.as_str().to_owned()));
        let Some(names) = endpoint.and_then(|endpoint| self.0.get(&endpoint)) else {
            return Ok(());
        };
        let given = form_urlencoded::parse(query.as_bytes()).map(|(name, _)| name);
        let unknown = given.filter(|name| !names.contains(name.as_ref()));
        let errors: Vec<_> = unknown
            .map(|name| FieldError {
                pointer: format!("/{name}"),
                detail: "there is no such parameter here".to_owned(),
            })
            .collect();
        if errors.is_empty() { Ok(()) } else { Err(Error::Invalid(errors)) }
    }
}

/// How many characters cleaning has replaced in one request.
#[derive(Debug, Clone, Default)]
pub struct Replaced(Arc<AtomicUsize>);

impl Replaced {
    /// Begins to count for a request.
    pub fn begin(request: &mut Request) -> Self {
        let replaced = Self::default();
        request.extensions_mut().insert(replaced.clone());
        replaced
    }

    /// Counts `n` more.
    pub fn add(&self, n: usize) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    /// Tells the client, in the header `Gleaner-Replaced`, how many characters of its request were replaced.
    pub fn report(&self, response: &mut Response) {
        let count = self.0.load(Ordering::Relaxed);
        if count > 0 {
            metrics::counter!("gleaner_replaced_characters_total").increment(count as u64);
            response.headers_mut().insert("gleaner-replaced", HeaderValue::from(count));
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
    fn a_number_is_kept_that_fits_both_a_double_and_postgres() {
        let long = format!("0.{}1", "0".repeat(16_382));
        for kept in ["0", "-1.5", "1e308", "1e-16383", "1.5E+3", &long, "1e", "1e+", "1.2.3", "--"] {
            assert!(can_be_kept(kept), "{kept}");
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
            assert!(!can_be_kept(refused), "{refused}");
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
