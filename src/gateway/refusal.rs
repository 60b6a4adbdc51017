//! The gateway's own errors in the shape of a provider's errors, so that the provider's official client shows what is
//! wrong.

use std::collections::BTreeMap;

use axum::body::Body;
use axum::http::{HeaderValue, header};
use axum::response::Response;
use serde_json::json;
use utoipa::openapi::{self, ContentBuilder, Ref, RefOr, ResponseBuilder};
use utoipa::{IntoResponses, PartialSchema as _};

use crate::error::{Problem, Refused};
use crate::providers::Kind;
use crate::types::FreeForm;

/// Returns the kind of provider whose API a path belongs to, if it is a path of the gateway.
#[must_use]
pub fn api_of(path: &str) -> Option<Kind> {
    let below = |prefix: &str| path.strip_prefix(prefix).is_some_and(|rest| rest.starts_with('/'));
    if below("/openai") {
        Some(Kind::Openai)
    } else if below("/anthropic") {
        Some(Kind::Anthropic)
    } else {
        None
    }
}

/// Writes the body of an error. A response of the provider stays as it is.
pub fn render(kind: Kind, refused: &Refused, response: &mut Response) {
    let Some(problem) = refused.problem(response) else { return };
    let body = match kind {
        Kind::Openai => json!({"error": {
            "message": problem.detail,
            "type": openai_type(problem.status),
            "param": null,
            "code": openai_code(&problem),
        }}),
        Kind::Anthropic => json!({
            "type": "error",
            "error": {"type": anthropic_type(problem.status), "message": problem.detail},
            "request_id": problem.instance,
        }),
    };
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response.headers_mut().remove(header::CONTENT_LENGTH);
    *response.body_mut() = Body::from(body.to_string());
}

fn openai_type(status: u16) -> &'static str {
    match status {
        401 => "authentication_error",
        403 => "permission_error",
        429 => "rate_limit_error",
        500.. => "server_error",
        _ => "invalid_request_error",
    }
}

fn openai_code(problem: &Problem) -> &str {
    match problem.status {
        401 => "invalid_api_key",
        _ => problem.r#type.rsplit('/').next().unwrap_or_default(),
    }
}

fn anthropic_type(status: u16) -> &'static str {
    match status {
        401 => "authentication_error",
        403 => "permission_error",
        404 => "not_found_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        500.. => "api_error",
        _ => "invalid_request_error",
    }
}

/// The errors of providers and of the gateway, for the OpenAPI document, in which they are described like
/// [`Refusals`](crate::error::Refusals).
pub(super) struct Errors;

impl Errors {
    /// The statuses, names and descriptions of the responses.
    const ALL: [(&str, &str, &str); 2] = [
        (
            "4XX",
            "Rejected",
            "The provider or the gateway rejects the request; the body is like the provider's errors",
        ),
        ("5XX", "Failed", "The provider or the gateway fails; the body is like the provider's errors"),
    ];

    /// Returns the responses that operations refer to, with their names among the document's components.
    pub(super) fn components() -> impl Iterator<Item = (String, RefOr<openapi::Response>)> {
        Self::ALL.into_iter().map(|(_, name, description)| {
            let error = ContentBuilder::new().schema(Some(FreeForm::schema())).build();
            let response = ResponseBuilder::new().description(description);
            (name.to_owned(), response.content("application/json", error).build().into())
        })
    }
}

impl IntoResponses for Errors {
    fn responses() -> BTreeMap<String, RefOr<openapi::Response>> {
        let refer = |(status, name, _): (&str, &str, &str)| {
            (status.to_owned(), RefOr::Ref(Ref::from_response_name(name)))
        };
        Self::ALL.into_iter().map(refer).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_paths_of_the_gateway_are_a_providers() {
        assert_eq!(api_of("/openai/v1/x"), Some(Kind::Openai));
        assert_eq!(api_of("/anthropic/"), Some(Kind::Anthropic));
        for path in ["/openai", "/openaix/v1", "/v1/sends", "/"] {
            assert_eq!(api_of(path), None, "{path}");
        }
    }
}
