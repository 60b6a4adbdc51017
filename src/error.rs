//! The one error type of the service and its shape on the wire: RFC 9457 `application/problem+json`.
//!
//! Handlers return [`Error`]; what surrounds every request turns it into a body ([`Refused::render`]), so that every refusal,
//! also one made by a layer or by the router itself, has the same shape and carries the request's id.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderValue, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use tower_http::request_id::RequestId;
use utoipa::openapi::{ContentBuilder, Ref, RefOr, ResponseBuilder};
use utoipa::{IntoResponses, ToSchema};

/// What a store or handler function gives back.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a request was refused or failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// 400: the request is not what its media type says; the text says where (line, column or byte).
    #[error("{0}")]
    Malformed(String),
    /// 401: no key, or one that is unknown, expired or revoked.
    #[error("{0}")]
    Unauthorized(&'static str),
    /// 403: the key lacks a scope, or the browser or host may not reach an open server.
    #[error("{0}")]
    Forbidden(String),
    /// 404: there is no such thing in this project.
    #[error("no such {0}")]
    NotFound(&'static str),
    /// 409: it exists with another body, or is in a state that does not allow this.
    #[error("{0}")]
    Conflict(String),
    /// 408: the client stopped sending.
    #[error("{0}")]
    TooSlow(&'static str),
    /// 413: more bytes or lines than allowed.
    #[error("{0}")]
    TooLarge(String),
    /// 415: a body of another media type.
    #[error("{0}")]
    UnsupportedMediaType(String),
    /// 422: well-formed, but fields are missing, unknown or out of range.
    #[error("{}", describe(.0))]
    Invalid(Vec<FieldError>),
    /// 503: the database is away or the queue is full; trying again is right.
    #[error("{0}")]
    Unavailable(&'static str),
    /// 500: our fault. The cause is logged and never sent.
    #[error("{0:#}")]
    Internal(anyhow::Error),
}

/// One field that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FieldError {
    /// JSON Pointer (RFC 6901) of the field in the body; of a query or path parameter, a slash and its name.
    pub pointer: String,
    /// What is wrong with it.
    pub detail: String,
}

/// An RFC 9457 problem document.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// Stable reference of the kind of problem, such as `/problems/not-found`.
    pub r#type: String,
    /// The kind in words.
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// What happened this time.
    pub detail: String,
    /// The request's id, as in the `x-request-id` header.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub instance: String,
    /// For bad input, the fields that are wrong.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<FieldError>,
}

impl Error {
    /// A 422 about one field, by its JSON Pointer.
    pub fn invalid(pointer: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::Invalid(vec![FieldError { pointer: pointer.into(), detail: detail.into() }])
    }

    /// The HTTP status it becomes.
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
            Self::Unavailable(_) => StatusCode::SERVICE_UNAVAILABLE,
            Self::Internal(_) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// The problem document, without the request's id.
    #[must_use]
    pub fn problem(&self) -> Problem {
        let detail = match self {
            Self::Internal(_) => {
                "something went wrong here; the log has the cause under this request's id".to_owned()
            }
            other => other.to_string(),
        };
        let errors = match self {
            Self::Invalid(errors) => errors.clone(),
            _ => Vec::new(),
        };
        Problem { errors, ..Problem::of(self.status(), detail) }
    }

    /// Whether the same request may succeed later.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Unavailable(_))
    }
}

impl Problem {
    /// A problem known only by its status, as layers and the router make them.
    fn of(status: StatusCode, detail: String) -> Self {
        let title = status.canonical_reason().unwrap_or("Error");
        let mut slug = String::from("/problems/");
        for c in title.chars() {
            slug.push(if c == ' ' { '-' } else { c.to_ascii_lowercase() });
        }
        Self {
            r#type: slug,
            title: title.to_owned(),
            status: status.as_u16(),
            detail,
            instance: String::new(),
            errors: vec![],
        }
    }
}

fn describe(errors: &[FieldError]) -> String {
    let mut text = String::new();
    for FieldError { pointer, detail } in errors {
        let separator = if text.is_empty() { "" } else { "; " };
        let _ = write!(text, "{separator}{}{}{detail}", pointer, if pointer.is_empty() { "" } else { ": " });
    }
    text
}

/// Statements fail for a few reasons that clients may hear of; the rest is ours.
impl From<sqlx::Error> for Error {
    fn from(error: sqlx::Error) -> Self {
        if is_connection_lost(&error) {
            tracing::warn!(%error, "the database is away");
            return Self::Unavailable("the database cannot be reached; try again");
        }
        Self::Internal(error.into())
    }
}

impl From<anyhow::Error> for Error {
    fn from(error: anyhow::Error) -> Self {
        Self::Internal(error)
    }
}

/// Whether the statement failed because of the connection or the server's state, not because of what it says.
/// `SQLSTATE` classes: 08 connection, 53 resources, 57 operator intervention, 25006 read-only (a standby).
#[must_use]
pub fn is_connection_lost(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Io(_)
        | sqlx::Error::PoolTimedOut
        | sqlx::Error::PoolClosed
        | sqlx::Error::WorkerCrashed
        | sqlx::Error::Protocol(_)
        | sqlx::Error::Tls(_) => true,
        sqlx::Error::Database(error) => {
            error.code().is_some_and(|code| ["08", "53", "57"].contains(&&code[..2]) || code == "25006")
        }
        _ => false,
    }
}

impl IntoResponse for Error {
    fn into_response(self) -> Response {
        if let Self::Internal(cause) = &self {
            tracing::error!(cause = format!("{cause:#}"), "request failed");
        }
        let mut response = self.status().into_response();
        match self {
            Self::Unauthorized(_) => {
                response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            Self::Unavailable(_) => {
                response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
            }
            _ => {}
        }
        response.extensions_mut().insert(self.problem());
        response
    }
}

/// What a refusal says of the request that it refuses.
#[derive(Debug, Clone)]
pub struct Refused {
    method: Method,
    uri: Uri,
    id: Option<HeaderValue>,
}

impl Refused {
    /// Of a request that may yet be refused.
    pub fn of(request: &Request) -> Self {
        let id = request.extensions().get::<RequestId>().map(|id| id.header_value().clone());
        Self { method: request.method().clone(), uri: request.uri().clone(), id }
    }

    /// Writes the body of a refusal: an [`Error`]'s own problem, or one made of the status for what layers and the router
    /// refuse by themselves (404 of an unknown path, 405, a panic). Any other answer stays as it is.
    pub fn render(&self, response: &mut Response) {
        let status = response.status();
        if !(status.is_client_error() || status.is_server_error()) {
            return;
        }
        let mut problem = response.extensions_mut().remove::<Problem>().unwrap_or_else(|| {
            let (method, path) = (&self.method, self.uri.path());
            let detail = match status {
                StatusCode::NOT_FOUND => format!("there is nothing at {path}"),
                StatusCode::METHOD_NOT_ALLOWED => format!("{path} does not answer {method}"),
                _ => status.canonical_reason().unwrap_or("error").to_lowercase(),
            };
            Problem::of(status, detail)
        });
        let id = self.id.as_ref().and_then(|id| id.to_str().ok());
        id.unwrap_or_default().clone_into(&mut problem.instance);
        let body = serde_json::to_vec(&problem).unwrap_or_default();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        headers.remove(header::CONTENT_LENGTH);
        *response.body_mut() = Body::from(body);
    }
}

/// The refusals that an endpoint may answer, for the OpenAPI document: each is described once, under the document's
/// components, and referred to by every operation.
pub struct Refusals;

/// A status with which requests are refused, as the document describes it.
struct Refusal {
    status: StatusCode,
    /// The name of the response among the document's components.
    name: &'static str,
    description: &'static str,
}

impl Refusals {
    const ALL: [Refusal; 11] = {
        use StatusCode as Is;
        const fn refusal(status: StatusCode, name: &'static str, description: &'static str) -> Refusal {
            Refusal { status, name, description }
        }
        [
            refusal(Is::BAD_REQUEST, "Malformed", "Malformed: not the JSON, text or encoding it should be"),
            refusal(Is::UNAUTHORIZED, "Unauthorized", "No key, or one that is unknown, expired or revoked"),
            refusal(
                Is::FORBIDDEN,
                "Forbidden",
                "The key lacks the scope, or the caller may not reach an open server",
            ),
            refusal(Is::NOT_FOUND, "NotFound", "No such thing in this project"),
            refusal(Is::REQUEST_TIMEOUT, "TooSlow", "The client stopped sending"),
            refusal(
                Is::CONFLICT,
                "Conflict",
                "Exists with another body, or is in a state that does not allow this",
            ),
            refusal(Is::PAYLOAD_TOO_LARGE, "TooLarge", "More bytes or lines than allowed"),
            refusal(Is::UNSUPPORTED_MEDIA_TYPE, "UnsupportedMediaType", "A body of another media type"),
            refusal(
                Is::UNPROCESSABLE_ENTITY,
                "Invalid",
                "Well-formed, but fields are missing, unknown or out of range",
            ),
            refusal(
                Is::INTERNAL_SERVER_ERROR,
                "Internal",
                "Our fault; the log has the cause under the request's id",
            ),
            refusal(
                Is::SERVICE_UNAVAILABLE,
                "Unavailable",
                "The database is away or the queue is full; Retry-After says when to try again",
            ),
        ]
    };

    /// The responses that operations refer to, by their names among the document's components.
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
