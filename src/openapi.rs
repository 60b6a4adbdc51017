//! The OpenAPI document: what it says about the whole service. Each endpoint documents itself.

use utoipa::OpenApi;
use utoipa::openapi::security::SecurityRequirement;

use crate::error::{self, Refusals};

/// The document without its endpoints, which [`router`](crate::router) adds.
#[derive(OpenApi)]
#[openapi(
    info(title = "Gleaner", description = "Keeps what coding agents do and gives back what can be learned from it.\n\n\
        A 2xx means committed. Refusals are RFC 9457 problems that name the field."),
    servers((url = "/", description = "The server that serves this document")),
    components(schemas(error::Problem)),
    security((), ("key" = [])),
    modifiers(&KeyScheme, &SharedResponses),
    tags(
        (name = "generations", description = "An intent, the attempts to turn it into a program, how it ended"),
        (name = "suggestions", description = "A slate of suggestions, what was looked at, what was submitted"),
        (name = "searches", description = "Searches that came back weak, what agents then read, and what that teaches"),
        (name = "batch", description = "Many events at once"),
        (name = "exports", description = "Data sets to train on"),
        (name = "analytics", description = "Figures"),
        (name = "projects", description = "Tenants and their settings"),
        (name = "keys", description = "Who may act for a project"),
        (name = "sessions", description = "What was posted under a session's name, and its erasure"),
        (name = "operations", description = "For those who run the service"),
    ),
)]
pub struct Document;

struct KeyScheme;

impl utoipa::Modify for KeyScheme {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityScheme};
        let scheme = SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer));
        document.components.get_or_insert_default().add_security_scheme("key", scheme);
    }
}

struct SharedResponses;

impl utoipa::Modify for SharedResponses {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        let components = document.components.get_or_insert_default();
        let responses = Refusals::components().map(|(name, response)| (name.to_owned(), response.into()));
        components.responses.extend(responses);
    }
}

/// Removes responses that an operation cannot give: refusals of a body where it takes none, and of a key
/// where it needs none.
pub fn complete(document: &mut utoipa::openapi::OpenApi) {
    for item in document.paths.paths.values_mut() {
        let operations = [&mut item.get, &mut item.put, &mut item.post, &mut item.delete, &mut item.patch];
        for operation in operations.into_iter().flatten() {
            let responses = &mut operation.responses.responses;
            if operation.request_body.is_none() {
                responses.retain(|status, _| !["408", "413", "415"].contains(&status.as_str()));
            }
            if operation
                .security
                .as_ref()
                .is_some_and(|security| security == &[SecurityRequirement::default()])
            {
                responses.remove("401");
            }
        }
    }
}
