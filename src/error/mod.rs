//! The one error type of the service and its shape on the wire: RFC 9457 `application/problem+json`.
//!
//! Handlers return [`Error`]. The middleware around every request writes the body ([`Refused::render`]), so
//! every refusal has the same shape and carries the request's id, even one made by a layer or by the router
//! itself.

mod problem;
mod refusals;
mod refused;

use std::time::Duration;

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

use self::problem::{brief, describe};
use crate::db::retry;
use crate::outage::Outage;
use crate::recurring;

pub use self::problem::{FieldError, MOST_ERRORS, Problem, cut};
pub use self::refusals::{Refusals, explain};
pub use self::refused::{PassedOn, Refused};

/// The result of a store or handler function.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a request was refused or failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// 400: the body, path or query string is not well-formed; the text gives the line, column or byte.
    #[error("{0}")]
    Malformed(String),
    /// 401: the request has no key, or one that is unknown, expired or revoked.
    #[error("{0}")]
    Unauthorized(&'static str),
    /// 403: the key lacks a scope, or this browser or host may not use a server that has no keys yet.
    #[error("{0}")]
    Forbidden(String),
    /// 404: the named thing does not exist in this project.
    #[error("no such {0}")]
    NotFound(&'static str),
    /// 409: the record exists with another body, or is in a state that does not allow the request.
    #[error("{0}")]
    Conflict(String),
    /// 408: the client stopped sending its request.
    #[error("{0}")]
    TooSlow(&'static str),
    /// 413: the body has more bytes or lines than allowed.
    #[error("{0}")]
    TooLarge(String),
    /// 415: the body has a media type that this endpoint does not take.
    #[error("{0}")]
    UnsupportedMediaType(String),
    /// 422: the request is well-formed, but fields are missing, unknown or out of range.
    #[error("{}", describe(.0))]
    Invalid(Vec<FieldError>),
    /// A refusal that says more than the others: with a type and members of its own (RFC 9457, section 3.2).
    #[error("{}", .0.detail)]
    Special(Box<Special>),
    /// 503: the database cannot be reached, or the write queue is full; the client should try again.
    #[error("{0}")]
    Unavailable(&'static str),
    /// 503: the server has started to listen and waits for what the text says.
    #[error("{0}")]
    Starting(String),
    /// 500: the service itself is at fault. The cause is logged and never sent to the client.
    #[error("{0:#}")]
    Internal(anyhow::Error),
}

/// A refusal with a type and members of its own.
#[derive(Debug, Clone)]
pub struct Special {
    /// The HTTP status.
    pub status: u16,
    /// The last part of the problem's type.
    pub kind: &'static str,
    /// The kind of problem as text.
    pub title: &'static str,
    /// What went wrong with this request.
    pub detail: String,
    /// The invalid fields.
    pub errors: Vec<FieldError>,
    /// What else there is to say, by the names of the members.
    pub members: serde_json::Map<String, serde_json::Value>,
    /// After how many seconds the request may be tried again.
    pub retry_after_s: Option<i64>,
    /// What else the response's headers say, by their names in lower case.
    pub headers: Vec<(&'static str, String)>,
}

impl Error {
    /// Makes the response to a request that exceeds a rate or quota. Its headers follow the tenth draft of the IETF's
    /// HTTPAPI group on rate limits.
    pub fn exceeded(
        policy: &'static str,
        quota: u64,
        window: Duration,
        wait: Duration,
        detail: String,
    ) -> Self {
        let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
        Self::Special(Box::new(Special {
            status: 429,
            kind: "too-many-requests",
            title: "Too Many Requests",
            detail,
            errors: Vec::new(),
            members: serde_json::Map::new(),
            retry_after_s: Some(i64::try_from(seconds).unwrap_or(i64::MAX)),
            headers: vec![
                ("ratelimit-policy", format!("\"{policy}\";q={quota};w={}", window.as_secs())),
                ("ratelimit", format!("\"{policy}\";r=0;t={seconds}")),
            ],
        }))
    }

    /// Makes a 422 about one field, which `pointer` names as a JSON Pointer (RFC 6901).
    pub fn invalid(pointer: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::Invalid(vec![FieldError { pointer: pointer.into(), detail: detail.into() }])
    }

    /// Returns the HTTP status of this error.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        match self {
            Self::Malformed(_) => StatusCode::BAD_REQUEST,
            Self::Unauthorized(_) => StatusCode::UNAUTHORIZED,
            Self::Forbidden(_) => StatusCode::FORBIDDEN,
            Self::NotFound(_) => StatusCode::NOT_FOUND,
            Self::Conflict(_) => StatusCode::CONFLICT,
            Self::TooSlow(_) => StatusCode::REQUEST_TIMEOUT,
            Self::TooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::UnsupportedMediaType(_) => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::Invalid(_) => StatusCode::UNPROCESSABLE_ENTITY,
            Self::Special(special) => {
                StatusCode::from_u16(special.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
            }
            Self::Unavailable(_) | Self::Starting(_) => StatusCode::SERVICE_UNAVAILABLE,
            Self::Internal(_) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// Returns the problem document of this error, without the request's id.
    #[must_use]
    pub fn problem(&self) -> Problem {
        if let Self::Special(special) = self {
            return Problem {
                r#type: format!("/problems/{}", special.kind),
                title: special.title.to_owned(),
                errors: special.errors.clone(),
                members: special.members.clone(),
                ..Problem::of(self.status(), special.detail.clone())
            };
        }
        let (detail, errors) = match self {
            Self::Internal(_) => {
                let detail =
                    "an internal error occurred; the server's log has the cause under this request's id";
                (detail.to_owned(), Vec::new())
            }
            Self::Invalid(errors) => {
                let errors: Vec<_> = errors.iter().take(MOST_ERRORS).map(FieldError::brief).collect();
                (describe(&errors), errors)
            }
            other => (brief(&other.to_string()), Vec::new()),
        };
        Problem { errors, ..Problem::of(self.status(), detail) }
    }

    /// Returns whether the same request may succeed later.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Unavailable(_) | Self::Starting(_))
    }

    /// Returns whether a transaction failed only because it lost a race against another one.
    #[must_use]
    pub fn is_lost_race(&self) -> bool {
        matches!(self, Self::Unavailable(reason) if *reason == retry::LOST)
    }
}

/// An outage of the database becomes a 503, which clients may retry, and so does a lost race against another
/// transaction. Every other failure of a statement is a fault of the service.
impl From<sqlx::Error> for Error {
    fn from(error: sqlx::Error) -> Self {
        if let Some(outage) = Outage::of(&error) {
            recurring::warn(outage.refusal(), &error);
            return Self::Unavailable(outage.refusal());
        }
        if retry::lost_a_race(&error) {
            return Self::Unavailable(retry::LOST);
        }
        Self::Internal(error.into())
    }
}

impl From<anyhow::Error> for Error {
    fn from(error: anyhow::Error) -> Self {
        Self::Internal(error)
    }
}

impl IntoResponse for Error {
    fn into_response(self) -> Response {
        match &self {
            Self::Internal(cause) => tracing::error!(cause = format!("{cause:#}"), "request failed"),
            // An outage is told of with its cause, where it is found.
            Self::Unavailable(reason) if !Outage::ALL.iter().any(|outage| outage.refusal() == *reason) => {
                recurring::warn(reason, "requests are refused");
            }
            _ => {}
        }
        let mut response = self.status().into_response();
        match self {
            Self::Unauthorized(_) => {
                response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            Self::Unavailable(_) | Self::Starting(_) => {
                response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
            }
            Self::Special(ref special) => {
                if let Some(seconds) = special.retry_after_s {
                    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
                }
                for (name, value) in &special.headers {
                    if let Ok(value) = HeaderValue::from_str(value) {
                        response.headers_mut().insert(*name, value);
                    }
                }
            }
            _ => {}
        }
        response.extensions_mut().insert(self.problem());
        response
    }
}
