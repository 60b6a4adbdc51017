//! JSON bodies: [`Json`] reads, cleans, parses and checks one. [`body`], [`decode`] and the other functions
//! are its steps, for endpoints whose body is not a single JSON object.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{FromRequest, Request};
use axum::http::{Extensions, HeaderMap, header};
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Deserializer};
use tokio::time::{Instant, timeout_at};
use tower_http::timeout::TimeoutError;

use super::check::{Check, Checks};
use super::clean::{Replaced, clean_json, expect_few_values};
use super::memory::Memory;
use super::pieces::Pieces;
use super::strict::{MOST_ELEMENTS, Strict};
use super::words;
use crate::error::{Error, Result};
use crate::sharing::Pauses;
use crate::types::value;

/// Checks again whether the sender of a request may still send it, when a body that was waited for has come.
#[derive(Clone)]
pub struct Recheck(Arc<dyn Fn() -> BoxFuture<'static, Result<()>> + Send + Sync>);

impl Recheck {
    /// Makes a check that begins when its future does.
    pub fn new<F: Future<Output = Result<()>> + Send + 'static>(
        check: impl Fn() -> F + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(move || Box::pin(check())))
    }

    /// Runs the check of a request, if it has one.
    pub async fn run(extensions: &Extensions) -> Result<()> {
        match extensions.get() {
            Some(Self(check)) => check().await,
            None => Ok(()),
        }
    }
}

/// The largest JSON body in bytes, after decompression.
pub const JSON_LIMIT: usize = 2 << 20;
/// The largest NDJSON body in bytes, after decompression.
pub const NDJSON_LIMIT: usize = 64 << 20;

/// A JSON object from the request's body, parsed and checked.
#[derive(Debug)]
pub struct Json<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned + Check + Send> FromRequest<S> for Json<T> {
    type Rejection = Error;

    async fn from_request(request: Request, _: &S) -> Result<Self> {
        expect_media_type(request.headers(), &["application/json"])?;
        body(request, JSON_LIMIT).await?.parse().await.map(Self)
    }
}

/// A request's whole body in memory, not yet cleaned.
pub struct Body {
    /// The body's bytes, decompressed.
    pub bytes: Vec<u8>,
    /// Counts what cleaning replaces, for the `Gleaner-Replaced` header.
    pub replaced: Replaced,
    /// The request's share of the memory for bodies.
    pub memory: Memory,
}

/// The number of bytes of memory that an element of an array is assumed to take when it is parsed.
const ELEMENT: usize = 512;

impl Body {
    /// Cleans, parses and checks the body, which is one JSON text.
    pub async fn parse<T: DeserializeOwned + Check>(mut self) -> Result<T> {
        self.memory.begin_turn(self.bytes.len()).await;
        self.replaced.add(clean_json(&mut self.bytes)?);
        expect_few_values(&self.bytes)?;
        // Clients' own objects are parsed again to be hashed.
        self.memory.hold_values(self.bytes.len(), value::count(&self.bytes)).await?;
        let (value, elements) = decode_counted(utf8(&self.bytes)?)?;
        let value = Checks::of(value)?;
        self.memory.hold(self.bytes.len() + elements * ELEMENT).await?;
        Ok(value)
    }
}

/// Reads a body of at most `limit` bytes, and holds memory for it and what is made of it. A longer one is a 413, and one for which
/// there is no memory a 503. A request that waits for its body leaves its project's place to others meanwhile, and is refused if
/// its sender may no longer send it.
pub async fn body(request: Request, limit: usize) -> Result<Body> {
    copies(request, limit, 2).await
}

/// Reads a body as [`body`] does, and holds memory for the body only, because small parts of it are parsed at a time.
pub async fn body_of_parts(request: Request, limit: usize) -> Result<Body> {
    copies(request, limit, 1).await
}

/// Reads the body of a request, and holds memory for so many copies of it.
async fn copies(request: Request, limit: usize, copies: usize) -> Result<Body> {
    let replaced = request.extensions().get::<Replaced>().cloned().unwrap_or_default();
    let memory = Memory::of(request.extensions());
    let mut pieces = Pieces::default();
    let (head, body) = request.into_parts();
    let mut body = Limited::new(body, limit);
    let begun = Instant::now();
    let mut waited = false;
    let mut pauses = Pauses::begin();
    loop {
        pauses.pause().await;
        let mut next = body.frame().now_or_never();
        if next.is_none() {
            // A body that is unpacked pauses for others, and continues at once.
            tokio::task::yield_now().await;
            next = body.frame().now_or_never();
        }
        let frame = if let Some(frame) = next {
            frame
        } else {
            memory.leave();
            waited = true;
            // A packed body may arrive without end and never contain anything.
            timeout_at(begun + most_time(pieces.len()), body.frame()).await.map_err(|_| too_slow())?
        };
        let Some(frame) = frame else { break };
        let frame = frame.map_err(|error| {
            if error.is::<LengthLimitError>() {
                return Error::TooLarge(format!("the body has more than {limit} bytes"));
            }
            unreadable(&*error)
        })?;
        let Ok(data) = frame.into_data() else { continue };
        expect_pace(begun, pieces.len())?;
        pieces.add(&data, &memory, copies).await?;
    }
    if waited {
        Recheck::run(&head.extensions).await?;
        memory.enter_again().await?;
    }
    Ok(Body { bytes: pieces.join(), replaced, memory })
}

/// How long a body may take, however short it is.
const GRACE: Duration = Duration::from_mins(1);
/// How many bytes of a body have to come in a second, beyond that.
const PACE: usize = 64 << 10;

/// Refuses a body that takes much longer than so many bytes have to: it takes memory that others wait for.
pub fn expect_pace(begun: Instant, bytes: usize) -> Result<()> {
    if begun.elapsed() > most_time(bytes) { Err(too_slow()) } else { Ok(()) }
}

fn most_time(bytes: usize) -> Duration {
    GRACE + Duration::from_secs((bytes / PACE) as u64)
}

fn too_slow() -> Error {
    Error::TooSlow("the body arrives too slowly")
}

/// Returns the refusal of a body that could not be read to its end.
pub fn unreadable(error: &(dyn std::error::Error + 'static)) -> Error {
    let causes = || std::iter::successors(Some(error), |error| error.source());
    if causes().any(<dyn std::error::Error>::is::<TimeoutError>) {
        return Error::TooSlow("the rest of the body did not arrive");
    }
    // There was no memory to unpack it.
    if let Some(Error::Unavailable(detail)) = causes().find_map(|cause| cause.downcast_ref()) {
        return Error::Unavailable(detail);
    }
    Error::Malformed(format!("the body could not be read: {error}"))
}

/// Answers 415 to a content type that is not among `allowed`. Parameters such as `charset` are ignored.
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

/// Reads a field where null means the same as leaving the field out.
pub fn null_as_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    deserializer: D,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// Returns JSON text as a string slice. Bytes that are not UTF-8 are a 400 that gives the position of the
/// first.
pub fn utf8(bytes: &[u8]) -> Result<&str> {
    str::from_utf8(bytes).map_err(|error| {
        let kind = MAGIC.iter().find(|(magic, _)| bytes.starts_with(magic)).map(|(_, kind)| *kind);
        let guess = kind.map(|kind| format!("; it looks like {kind}")).unwrap_or_default();
        Error::Malformed(format!("the body is not UTF-8 at byte {}{guess}", error.valid_up_to()))
    })
}

/// What is often sent in place of JSON, by its first bytes.
const MAGIC: [(&[u8], &str); 5] = [
    (b"\x1f\x8b", "gzip, which the header Content-Encoding must say"),
    (b"\x28\xb5\x2f\xfd", "zstd, which the header Content-Encoding must say"),
    (b"PK\x03\x04", "a ZIP file, which must be unpacked first"),
    (b"\xff\xfe", "UTF-16, which must be converted first"),
    (b"\xfe\xff", "UTF-16, which must be converted first"),
];

/// Returns whether a JSON text is a long string. An error about one in place of an array or object would repeat it.
pub fn is_long_string(json: &str) -> bool {
    const LONG: usize = 64 << 10;
    json.len() > LONG && json.trim_ascii_start().starts_with('"')
}

/// Parses clean JSON. Only when that fails is it parsed again, more slowly: first to tell whether it is JSON at all, whatever
/// was wrong with a value before, and then to name the wrong field.
pub fn decode<'de, T: Deserialize<'de>>(json: &'de str) -> Result<T> {
    decode_counted(json).map(|(value, _)| value)
}

/// Parses clean JSON like [`decode`]. Returns also the number of elements in its arrays.
fn decode_counted<'de, T: Deserialize<'de>>(json: &'de str) -> Result<(T, usize)> {
    let left = Cell::new(Some(MOST_ELEMENTS));
    let mut deserializer = serde_json::Deserializer::from_str(json);
    let parsed = T::deserialize(Strict::new(&mut deserializer, &left));
    let parsed = parsed.and_then(|value| deserializer.end().map(|()| value));
    let Some(still_left) = left.get() else {
        return Err(Error::TooLarge(format!(
            "the arrays of the body have more than {MOST_ELEMENTS} elements together"
        )));
    };
    let value = parsed.map_err(|error| {
        if json.starts_with('\u{feff}') {
            let reason =
                "the text begins with a byte order mark (BOM), which is not JSON; send UTF-8 without one";
            return Error::Malformed(reason.to_owned());
        }
        let malformed = |error| Error::Malformed(format!("the body is not JSON: {error}"));
        // An error that repeats a value can be six times as long as that, so there is only one at a time.
        let syntax = Some(error).filter(|error| !error.is_data());
        if let Err(error) = serde_json::from_str::<IgnoredAny>(json) {
            return malformed(syntax.unwrap_or(error));
        }
        let mut deserializer = serde_json::Deserializer::from_str(json);
        left.set(Some(MOST_ELEMENTS));
        match serde_path_to_error::deserialize::<_, T>(Strict::new(&mut deserializer, &left)) {
            Err(error) => {
                let path = error.path().clone();
                field_error(&path, &without_place(&error.into_inner()))
            }
            Ok(_) => Error::Malformed("the body cannot be read".to_owned()),
        }
    })?;
    Ok((value, MOST_ELEMENTS - still_left))
}

/// Returns what an error says without its line and column, which the pointer replaces.
fn without_place(error: &serde_json::Error) -> String {
    let mut message = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    if message.ends_with(&place) {
        message.truncate(message.len() - place.len());
    }
    message
}

/// Returns the 422 of a value that does not fit its type. The pointer names a missing, unknown or repeated
/// field itself, not the object around it.
pub(super) fn field_error(path: &serde_path_to_error::Path, message: &str) -> Error {
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
    Error::invalid(pointer, words::plain(message))
}

/// Escapes a name as a part of a JSON Pointer (RFC 6901, section 3).
fn pointer_part(name: &str) -> String {
    format!("/{}", name.replace('~', "~0").replace('/', "~1"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_body_that_never_pauses_but_comes_a_byte_at_a_time_is_not_waited_for() {
        let drip = futures_util::stream::unfold((), |()| async {
            tokio::time::sleep(Duration::from_secs(20)).await;
            Some((Ok::<_, std::io::Error>(axum::body::Bytes::from_static(b" ")), ()))
        });
        let begun = Instant::now();
        let request = Request::new(axum::body::Body::from_stream(drip));
        let refused = body(request, JSON_LIMIT).await.map(|body| body.bytes).expect_err("it is too slow");
        assert!(matches!(refused, Error::TooSlow(_)), "{refused}");
        assert_eq!(begun.elapsed(), GRACE);
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_of_which_nothing_comes_is_not_waited_for_either() {
        let nothing = futures_util::stream::pending::<Result<axum::body::Bytes, std::io::Error>>();
        let begun = Instant::now();
        let request = Request::new(axum::body::Body::from_stream(nothing));
        let refused = body(request, JSON_LIMIT).await.map(|body| body.bytes).expect_err("it is too slow");
        assert!(matches!(refused, Error::TooSlow(_)), "{refused}");
        assert_eq!(begun.elapsed(), GRACE);
    }

    #[tokio::test(start_paused = true)]
    async fn a_long_body_may_take_longer() {
        let begun = Instant::now();
        tokio::time::advance(Duration::from_secs(61)).await;
        assert!(expect_pace(begun, 10).is_err() && expect_pace(begun, PACE).is_ok());
    }
}
