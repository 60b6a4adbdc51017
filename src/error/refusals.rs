//! The refusals of the OpenAPI document, and what the pages of their types say.

use std::collections::BTreeMap;

use axum::http::StatusCode;
use utoipa::IntoResponses;
use utoipa::openapi::{ContentBuilder, Ref, RefOr, ResponseBuilder};

use super::problem::kind;

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

/// Returns the status of the problems of a kind, such as `not-found`, and what they mean. Returns none if no
/// problem is of this kind.
#[must_use]
pub fn explain(name: &str) -> Option<(StatusCode, &'static str)> {
    let others = [(StatusCode::METHOD_NOT_ALLOWED, "The path exists but does not support this method")];
    let known = Refusals::ALL.into_iter().map(|refusal| (refusal.status, refusal.description));
    known.chain(others).find(|(status, _)| kind(*status) == name)
}
