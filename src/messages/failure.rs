//! The failure of a call, from the provider's response, its headers, or an error on our side.

use axum::http::HeaderMap;
use chrono::Utc;

use super::rules::errors::{self, Kind, Meaning, Said};
use super::rules::waits;
use super::{CancelReason, Reported, SendError, named};
use crate::privacy::cut::beginning;

/// The maximum size of the part of a provider's error that is stored.
pub const ERROR_BODY: usize = 64 << 10;

/// The number of bytes of a provider's error that are read, which are more than are stored, so that no word is stored in part.
pub const MOST_READ: usize = 2 * ERROR_BODY;

/// The size in bytes from which the key of a provider is taken for a secret. A shorter one could be part of any word.
const SHORTEST_KEY: usize = 8;

/// An error as it is stored, with its meaning.
pub type Failure = (SendError, Meaning);

/// Removes the provider's text from an error.
pub(super) fn forget(failure: &mut Option<Failure>) {
    if let Some((error, meaning)) = failure {
        error.message = None;
        error.label = errors::label(error.class, "");
        meaning.label.clone_from(&error.label);
    }
}

/// Returns an error as it is stored, with its meaning. `retry_after` comes from the headers of the response.
pub fn understood(reported: &Reported, retry_after: Option<i64>) -> Failure {
    let code = named(reported.code.as_deref());
    let meaning =
        errors::classify(&Said { status: reported.status, code, message: &reported.message }, retry_after);
    let error = SendError {
        class: meaning.class,
        kind: meaning.kind,
        message: Some(reported.message.clone()),
        label: meaning.label.clone(),
        retry_after_s: meaning.retry_after_s,
        reason: None,
    };
    (error, meaning)
}

/// Makes an error that no provider reported.
pub fn own(kind: Kind, message: &str) -> SendError {
    let class = kind.class();
    SendError {
        class,
        kind,
        message: Some(message.to_owned()),
        label: errors::label(class, message),
        retry_after_s: None,
        reason: None,
    }
}

/// Returns the failure of a call without a response.
pub fn unreachable(error: &reqwest::Error) -> Failure {
    let causes = std::iter::successors(std::error::Error::source(error), |cause| cause.source());
    let cause = causes.last().map_or_else(|| error.to_string(), ToString::to_string);
    let (kind, what) = if error.is_timeout() {
        (Kind::Timeout, "The provider did not answer in time")
    } else {
        (Kind::Connection, "The provider could not be reached, or closed the connection")
    };
    with_meaning(own(
        kind,
        &format!("{what}: {}", cause.replace(error.url().map_or("\0", reqwest::Url::as_str), "")),
    ))
}

/// Returns the waiting time in the headers of a response.
pub fn wait(headers: &HeaderMap) -> Option<i64> {
    waits::in_headers(|name| headers.get(name)?.to_str().ok(), Utc::now())
}

/// Returns the failure that a response with this status and body describes.
pub fn reported(status: u16, body: &[u8], wait: Option<i64>) -> Failure {
    let body = String::from_utf8_lossy(&body[..body.len().min(MOST_READ)]);
    let message = beginning(&body, ERROR_BODY).replace('\0', "\u{fffd}");
    understood(&Reported { status: Some(status), ..Reported::said(message) }, wait)
}

/// Returns the failure that a text in place of an answer describes.
pub fn said(text: &str) -> Failure {
    understood(&Reported::said(beginning(text, ERROR_BODY).replace('\0', "\u{fffd}")), None)
}

/// Returns a failure without the key with which the provider was called, which it may repeat in its error.
pub fn without_key((mut error, mut meaning): Failure, key: Option<&str>) -> Failure {
    if let Some(message) = error.message.as_mut()
        && let Some(without) = redacted(message, key)
    {
        *message = without;
        error.label = errors::label(error.class, message);
        meaning.label.clone_from(&error.label);
    }
    (error, meaning)
}

/// Returns a text without a provider's key, if it is in the text.
#[must_use]
pub fn redacted(text: &str, key: Option<&str>) -> Option<String> {
    let key = key.filter(|key| key.len() >= SHORTEST_KEY && text.contains(key))?;
    Some(text.replace(key, "[redacted:key]"))
}

/// Returns one of our own errors as a failure.
pub fn with_meaning(error: SendError) -> Failure {
    let meaning = Meaning {
        class: error.class,
        kind: error.kind,
        overflow: false,
        limit_tokens: None,
        retry_after_s: None,
        label: error.label.clone(),
    };
    (error, meaning)
}

/// Returns the failure of a call whose answer is longer than the memory for it.
pub fn no_memory() -> Failure {
    with_meaning(own(Kind::Overloaded, "The answer is longer than 2 MiB, or there is no memory left for it."))
}

/// Returns the failure of a send for which the database or memory is too busy.
pub fn too_busy() -> Failure {
    with_meaning(own(Kind::Overloaded, "Gleaner could not read what the send needs."))
}

/// Returns the failure of a send that needs more than one request may have.
pub fn too_large() -> Failure {
    with_meaning(own(Kind::RequestTooLarge, "What the send needs is too large."))
}

/// Returns the failure of a stream that ended before the answer did.
pub fn cut_stream() -> Failure {
    with_meaning(own(Kind::CutStream, "The answer was interrupted."))
}

/// Returns the failure of a send that was cancelled.
pub(super) fn cancelled(reason: CancelReason) -> Failure {
    let error = own(Kind::Cancelled, "The send was cancelled.");
    with_meaning(SendError { reason: Some(reason), ..error })
}
