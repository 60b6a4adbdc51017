//! The one error type of the service and its shape on the wire: RFC 9457 `application/problem+json`.
//!
//! Handlers return [`Error`]. The middleware around every request writes the body ([`Refused::render`]), so
//! every refusal has the same shape and carries the request's id, even one made by a layer or by the router
//! itself.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderValue, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use tower_http::request_id::RequestId;
use utoipa::openapi::{ContentBuilder, Ref, RefOr, ResponseBuilder};
use utoipa::{IntoResponses, ToSchema};

use crate::db::retry;
use crate::outage::Outage;
use crate::recurring;

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

/// An invalid field of a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FieldError {
    /// The field's JSON Pointer (RFC 6901) in the body. For a query or path parameter, it is a slash and the
    /// parameter's name.
    pub pointer: String,
    /// What is wrong with the field.
    pub detail: String,
}

/// An RFC 9457 problem document.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// A stable reference that identifies the kind of problem, such as `/problems/not-found`.
    pub r#type: String,
    /// The kind of problem as text.
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// What went wrong with this request.
    pub detail: String,
    /// The request's id, the same as in the `x-request-id` header.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub instance: String,
    /// The invalid fields, if the input was invalid.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<FieldError>,
    /// What else problems of this type say.
    #[serde(flatten)]
    #[schema(ignore)]
    pub members: serde_json::Map<String, serde_json::Value>,
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

impl FieldError {
    /// Returns the error with what it repeats of the input cut short.
    fn brief(&self) -> Self {
        Self { pointer: cut(&self.pointer).into_owned(), detail: brief(&self.detail) }
    }
}

/// The maximum number of invalid fields that one problem names.
pub const MOST_ERRORS: usize = 100;
/// The maximum number of characters of the client's input that a problem repeats in one place.
const MOST_QUOTED: usize = 200;
/// The maximum number of characters of a message.
const MOST_SAID: usize = 1_000;

/// Cuts a text that a client has sent to its first 200 characters.
fn cut(text: &str) -> Cow<'_, str> {
    shorten(text, MOST_QUOTED)
}

fn shorten(text: &str, most: usize) -> Cow<'_, str> {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", &text[..end]).into(),
        None => text.into(),
    }
}

/// Cuts what a message quotes of the input, so that a refusal stays small however large the request was.
fn brief(message: &str) -> String {
    if message.len() <= MOST_QUOTED {
        return message.to_owned();
    }
    let mut brief = String::new();
    let mut rest = message;
    while let Some(start) = rest.find(['`', '"']).filter(|_| brief.len() < MOST_SAID) {
        let (before, quoted) = rest.split_at(start);
        let end = quoted[1..].find(&quoted[..1]).map_or(quoted.len() - 1, |length| length + 1);
        brief.push_str(before);
        brief.push_str(&quoted[..1]);
        brief.push_str(&cut(&quoted[1..end]));
        rest = &quoted[end..];
        // The closing mark belongs to the quotation, and does not open another one.
        if !rest.is_empty() {
            brief.push_str(&rest[..1]);
            rest = &rest[1..];
        }
    }
    brief.push_str(rest);
    shorten(&brief, MOST_SAID).into_owned()
}

impl Problem {
    /// Makes a problem of a status alone, for refusals by layers and the router.
    fn of(status: StatusCode, detail: String) -> Self {
        Self {
            r#type: format!("/problems/{}", kind(status)),
            title: status.canonical_reason().unwrap_or("Error").to_owned(),
            status: status.as_u16(),
            detail,
            instance: String::new(),
            errors: vec![],
            members: serde_json::Map::new(),
        }
    }
}

/// Returns the name of a status in the types of problems, such as `not-found`.
fn kind(status: StatusCode) -> String {
    status.canonical_reason().unwrap_or("Error").to_ascii_lowercase().replace(' ', "-")
}

/// Returns the status of the problems of a kind, such as `not-found`, and what they mean. Returns none if no
/// problem is of this kind.
#[must_use]
pub fn explain(name: &str) -> Option<(StatusCode, &'static str)> {
    let others = [(StatusCode::METHOD_NOT_ALLOWED, "The path exists but does not support this method")];
    let known = Refusals::ALL.into_iter().map(|refusal| (refusal.status, refusal.description));
    known.chain(others).find(|(status, _)| kind(*status) == name)
}

fn describe(errors: &[FieldError]) -> String {
    let mut text = String::new();
    for FieldError { pointer, detail } in errors {
        let separator = if text.is_empty() { "" } else { "; " };
        let _ = write!(text, "{separator}{}{}{detail}", pointer, if pointer.is_empty() { "" } else { ": " });
    }
    text
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

/// Marks a response of a provider. Its body is forwarded unchanged, whatever the status.
#[derive(Debug, Clone, Copy)]
pub struct PassedOn;

/// The parts of a request that its refusal mentions.
#[derive(Debug, Clone)]
pub struct Refused {
    method: Method,
    uri: Uri,
    id: Option<HeaderValue>,
}

impl Refused {
    /// Remembers what a refusal of `request` will mention, because the handler consumes the request.
    pub fn of(request: &Request) -> Self {
        let id = request.extensions().get::<RequestId>().map(|id| id.header_value().clone());
        Self { method: request.method().clone(), uri: request.uri().clone(), id }
    }

    /// Takes the problem that a refusal is about: that of an [`Error`], or one made of the status when a layer or the router
    /// refused (404 of an unknown path, 405, a panic). A response with any other status has none, nor has one that is
    /// [`PassedOn`].
    #[must_use]
    pub fn problem(&self, response: &mut Response) -> Option<Problem> {
        let status = response.status();
        let refuses = status.is_client_error() || status.is_server_error();
        if !refuses || response.extensions().get::<PassedOn>().is_some() {
            return None;
        }
        let mut problem = response.extensions_mut().remove::<Problem>().unwrap_or_else(|| {
            let (method, path) = (cut(self.method.as_str()), cut(self.uri.path()));
            let detail = match status {
                StatusCode::NOT_FOUND => format!("there is nothing at {path}"),
                StatusCode::METHOD_NOT_ALLOWED => format!("{path} does not support {method}"),
                _ => status.canonical_reason().unwrap_or("error").to_lowercase(),
            };
            Problem::of(status, detail)
        });
        let id = self.id.as_ref().and_then(|id| id.to_str().ok());
        id.unwrap_or_default().clone_into(&mut problem.instance);
        Some(problem)
    }

    /// Writes the body of a refusal. Any other response stays as it is.
    pub fn render(&self, response: &mut Response) {
        let Some(problem) = self.problem(response) else { return };
        let mut body = serde_json::to_vec(&problem).unwrap_or_default();
        body.push(b'\n');
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        headers.remove(header::CONTENT_LENGTH);
        *response.body_mut() = Body::from(body);
    }
}

/// The refusals that an endpoint can answer with, for the OpenAPI document. Each is described once, among the
/// document's components, and every operation refers to it.
pub struct Refusals;

/// A status with which requests are refused, as the OpenAPI document describes it.
struct Refusal {
    status: StatusCode,
    /// The response's name among the document's components.
    name: &'static str,
    description: &'static str,
}

impl Refusals {
    const ALL: [Refusal; 12] = {
        use StatusCode as Is;
        const fn refusal(status: StatusCode, name: &'static str, description: &'static str) -> Refusal {
            Refusal { status, name, description }
        }
        [
            refusal(
                Is::BAD_REQUEST,
                "Malformed",
                "The request is not well-formed, or not valid JSON, text or encoding",
            ),
            refusal(
                Is::UNAUTHORIZED,
                "Unauthorized",
                "The request has no key, or one that is unknown, expired or revoked",
            ),
            refusal(
                Is::FORBIDDEN,
                "Forbidden",
                "The key lacks the scope, or the caller may not reach an open server",
            ),
            refusal(Is::NOT_FOUND, "NotFound", "The record, file or setting does not exist in this project"),
            refusal(Is::REQUEST_TIMEOUT, "TooSlow", "The client stopped sending"),
            refusal(
                Is::CONFLICT,
                "Conflict",
                "The record exists with a different body, or its state does not allow the request",
            ),
            refusal(Is::PAYLOAD_TOO_LARGE, "TooLarge", "The body has more bytes or lines than allowed"),
            refusal(
                Is::UNSUPPORTED_MEDIA_TYPE,
                "UnsupportedMediaType",
                "The body has a media type that this endpoint does not accept",
            ),
            refusal(Is::UNPROCESSABLE_ENTITY, "Invalid", "Fields are missing, unknown or out of range"),
            refusal(
                Is::TOO_MANY_REQUESTS,
                "TooManyRequests",
                "A rate limit or quota is exceeded; Retry-After says when to try again",
            ),
            refusal(
                Is::INTERNAL_SERVER_ERROR,
                "Internal",
                "An internal error occurred; the server's log has the cause under the request's id",
            ),
            refusal(
                Is::SERVICE_UNAVAILABLE,
                "Unavailable",
                "The database cannot be reached, or the queue is full; Retry-After says when to try again",
            ),
        ]
    };

    /// Returns the responses that operations refer to, with their names among the document's components.
    pub fn components() -> impl Iterator<Item = (&'static str, utoipa::openapi::Response)> {
        Self::ALL.into_iter().map(|Refusal { name, description, .. }| {
            let problem = ContentBuilder::new().schema(Some(Ref::from_schema_name("Problem"))).build();
            let response = ResponseBuilder::new().description(description);
            (name, response.content("application/problem+json", problem).build())
        })
    }
}

impl IntoResponses for Refusals {
    fn responses() -> BTreeMap<String, RefOr<utoipa::openapi::Response>> {
        let refer = |refusal: Refusal| {
            (refusal.status.as_str().to_owned(), RefOr::Ref(Ref::from_response_name(refusal.name)))
        };
        Self::ALL.into_iter().map(refer).collect()
    }
}
