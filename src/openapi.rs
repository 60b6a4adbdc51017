//! The OpenAPI document: what it says about the whole service. Each endpoint documents itself.

use utoipa::OpenApi;
use utoipa::openapi::path::{ParameterBuilder, ParameterIn};
use utoipa::openapi::schema::Type;
use utoipa::openapi::security::SecurityRequirement;
use utoipa::openapi::{ObjectBuilder, Ref, RefOr};

use crate::auth::keyring::PROJECT;
use crate::error::{self, Refusals};
use crate::memories::suggestion::AnsweredQuery;
use crate::messages::AttemptAnswer;

/// The document without its endpoints, which [`router`](crate::router) adds.
#[derive(OpenApi)]
#[openapi(
    info(title = "Gleaner", description = "Keeps what coding agents do and gives back what can be learned from it.\n\n\
        A 2xx means committed. Refusals are RFC 9457 problems that name the field."),
    servers((url = "/", description = "The server that serves this document")),
    components(schemas(error::Problem, AttemptAnswer, AnsweredQuery)),
    security((), ("key" = [])),
    modifiers(&KeyScheme, &Shared),
    tags(
        (name = "generations", description = "An intent, the attempts to turn it into a program, and how it ended"),
        (name = "suggestions", description = "A list of suggestions, what the user looked at, and what they submitted"),
        (name = "searches", description = "Searches that came back weak, what agents read then, and what can be learned from that"),
        (name = "messages", description = "Messages to models: what fits, what was sent, and what came back"),
        (name = "gateway", description = "Requests as providers' own clients send them, passed on and kept as sends"),
        (name = "exports", description = "Data sets to train on"),
        (name = "memories", description = "What is worth knowing again, what is asked in conversations, and what fits it"),
        (name = "batch", description = "Many events in one request"),
        (name = "analytics", description = "Figures about all of this"),
        (name = "projects", description = "Tenants, and the settings of each"),
        (name = "keys", description = "Who may act for a project"),
        (name = "sessions", description = "What was posted under the name of a session, listed and erased together"),
        (name = "erasure", description = "Records erased by age and by id"),
        (name = "operations", description = "Health, readiness, version and metrics"),
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
                "The project that the request is about. A key with the scope `operator` may name one, and so may everybody \
                 on a server that has no key yet; the default is `default`. Any other key belongs to one project.",
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
