//! The OpenAPI document: what it says about the whole service. Each endpoint documents itself.

use utoipa::openapi::path::{ParameterBuilder, ParameterIn};
use utoipa::openapi::schema::Type;
use utoipa::openapi::security::SecurityRequirement;
use utoipa::openapi::{ObjectBuilder, Ref, RefOr, Schema};
use utoipa::{OpenApi, ToSchema as _};

use crate::auth::keyring::PROJECT;
use crate::error::{self, Refusals};
use crate::exports::snapshots::request::{self, NewSnapshot};
use crate::memories::code;
use crate::memories::suggestion::AnsweredQuery;
use crate::messages::AttemptAnswer;

/// The document without its endpoints, which [`router`](crate::router) adds.
#[derive(OpenApi)]
#[openapi(
    info(title = "Gleaner", description = "Records what coding agents do and serves what can be learned from it.\n\n\
        A 2xx status means that the data is committed. Errors are RFC 9457 problem documents that name the invalid field."),
    servers((url = "/", description = "The server that serves this document")),
    components(schemas(error::Problem, AttemptAnswer, AnsweredQuery, code::Counts)),
    security((), ("key" = [])),
    modifiers(&KeyScheme, &Shared),
    tags(
        (name = "generations", description = "Intents, the attempts to turn them into programs, and the outcomes"),
        (name = "suggestions", description = "Lists of suggestions, what users viewed, and what they submitted"),
        (name = "searches", description = "Searches with weak results, the files that agents read instead, and what is learned from them"),
        (name = "messages", description = "Messages to models: what fits into the context, what was sent, and what was answered"),
        (name = "memories", description = "Memories, the queries of conversations, and suggestions of relevant memories"),
        (name = "exports", description = "Data sets for training"),
        (name = "gateway", description = "Requests of the providers' official clients, which are forwarded and recorded as sends"),
        (name = "batch", description = "Many events in one request"),
        (name = "analytics", description = "Statistics about all domains"),
        (name = "projects", description = "Projects and their settings"),
        (name = "keys", description = "API keys of a project, and the audit log"),
        (name = "sessions", description = "The records of an agent session, listed and erased together"),
        (name = "erasure", description = "Erasing records by age and by id"),
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
                "The project that the request is about. Only a key with the scope `operator`, or a client of a server without \
                 keys, may name one. The default is `default`. Any other key belongs to one project.",
            ))
            .schema(Some(ObjectBuilder::new().schema_type(Type::String)));
        components.parameters.insert(PROJECT_PARAMETER.to_owned(), project.build().into());
    }
}

/// What is left to be said once every endpoint has brought its part: whatever is about a project takes the header that names
/// it, and refusals that only a body, or only a key, can bring about are not said of operations that take none.
pub fn complete(document: &mut utoipa::openapi::OpenApi) {
    let schemas = &mut document.components.get_or_insert_default().schemas;
    if let Some(RefOr::T(Schema::Object(snapshot))) = schemas.get_mut(&*NewSnapshot::name()) {
        request::complete(snapshot);
    }
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
