//! The OpenAPI document: what it says about the whole service. Each endpoint documents itself.

use utoipa::OpenApi;
use utoipa::openapi::path::{ParameterBuilder, ParameterIn};
use utoipa::openapi::schema::Type;
use utoipa::openapi::security::SecurityRequirement;
use utoipa::openapi::{ObjectBuilder, Ref, RefOr};

use crate::auth::keyring::PROJECT;
use crate::error::{self, Refusals};
use crate::messages::AttemptAnswer;

/// The document without its endpoints, which [`router`](crate::router) adds.
#[derive(OpenApi)]
#[openapi(
    info(title = "Gleaner", description = "Keeps what coding agents do and gives back what can be learned from it.\n\n\
        A 2xx means committed. Refusals are RFC 9457 problems that name the field."),
    servers((url = "/", description = "The server that serves this document")),
    components(schemas(error::Problem, AttemptAnswer)),
    security((), ("key" = [])),
    modifiers(&KeyScheme, &Shared),
    tags(
        (name = "generations", description = "An intent, the attempts to turn it into a program, how it ended"),
        (name = "exports", description = "Data sets to train on"),
        (name = "suggestions", description = "A slate of suggestions, what was looked at, what was submitted"),
        (name = "searches", description = "Searches that came back weak, what agents then read, and what that teaches"),
        (name = "messages", description = "Message pairs, the sends that made them, and the models they went to"),
        (name = "gateway", description = "Requests as the official clients of providers send them, passed on and kept as sends"),
        (name = "batch", description = "Many events at once"),
        (name = "analytics", description = "Figures"),
        (name = "projects", description = "Tenants and their settings"),
        (name = "keys", description = "Who may act for a project"),
        (name = "sessions", description = "What was posted under a session's name, and its erasure"),
        (name = "erasure", description = "Erasing records by age and by id"),
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

/// What operations refer to instead of each saying it once more.
struct Shared;

/// The name of the parameter [`PROJECT`] among the document's components.
const PROJECT_PARAMETER: &str = "Project";

impl utoipa::Modify for Shared {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        let components = document.components.get_or_insert_default();
        let responses = Refusals::components().map(|(name, response)| (name.to_owned(), response.into()));
        components.responses.extend(responses);
        let project = ParameterBuilder::new()
            .name(PROJECT)
            .parameter_in(ParameterIn::Header)
            .description(Some(
                "The project that the request is about: for a key with the scope `operator`, and on a server that is open \
                 as it has no key yet; `default` if not given. Any other key has a project of its own.",
            ))
            .schema(Some(ObjectBuilder::new().schema_type(Type::String)));
        components.parameters.insert(PROJECT_PARAMETER.to_owned(), project.build().into());
    }
}

/// What is left to be said once every endpoint has brought its part: whatever is about a project takes the header that names
/// it, and refusals that only a body, or only a key, can bring about are not said of operations that take none.
pub fn complete(document: &mut utoipa::openapi::OpenApi) {
    for (path, item) in &mut document.paths.paths {
        let operations = [&mut item.get, &mut item.put, &mut item.post, &mut item.delete, &mut item.patch];
        for operation in operations.into_iter().flatten() {
            if path.starts_with("/v1/") {
                let project = Ref::new(format!("#/components/parameters/{PROJECT_PARAMETER}"));
                operation.parameters.get_or_insert_default().push(RefOr::Ref(project));
            }
            let responses = &mut operation.responses.responses;
            if operation.request_body.is_none() {
                responses.retain(|status, _| !["408", "413", "415"].contains(&status.as_str()));
            }
            if operation.security.as_deref() == Some(&[SecurityRequirement::default()]) {
                responses.remove("401");
            }
        }
    }
}
