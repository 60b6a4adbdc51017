//! The OpenAPI document: what it says of the whole service. Each endpoint brings its own part along.

use utoipa::OpenApi;

use crate::error;

/// The document without its endpoints, which [`router`](crate::router) adds.
#[derive(OpenApi)]
#[openapi(
    info(title = "Gleaner", description = "Keeps what coding agents do and gives back what can be learned from it.\n\n\
        A 2xx means committed. Refusals are RFC 9457 problems that name the field."),
    components(schemas(error::Problem)),
    security((), ("key" = [])),
    modifiers(&KeyScheme),
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
