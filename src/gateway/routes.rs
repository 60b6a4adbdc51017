//! The endpoints of the gateway, with the paths that the official clients of providers use.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::HeaderMap;
use axum::response::{IntoResponse as _, Response};
use tokio::sync::oneshot;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use super::asked::Asked;
use super::headers::{Options, forwarded, name_key, returned};
use super::passage::{self, Passage};
use super::refusal::Errors;
use crate::auth::{Caller, Write};
use crate::error::{Error, PassedOn, Result};
use crate::http::clean::clean_json;
use crate::http::json;
use crate::http::memory::Memory;
use crate::projects::Tenant;
use crate::providers::answer::{ARRIVING, Api};
use crate::providers::{Kind, Provider};
use crate::sharing::{Place, apart, while_wanted};
use crate::state::App;
use crate::types::{FreeForm, value};

/// The largest body in bytes, after decompression.
const LIMIT: usize = 32 << 20;
/// The size in bytes from which a body is parsed on a thread of its own, so that other requests do not wait.
const LARGE: usize = 256 << 10;

/// How long a request that may be forwarded unrecorded waits for the database.
pub(super) const PATIENCE: Duration = Duration::from_secs(1);

/// Returns the endpoints of the gateway.
pub(crate) fn routes() -> OpenApiRouter<App> {
    let mut router = OpenApiRouter::new()
        .routes(routes!(create_chat_completion))
        .routes(routes!(create_response))
        .routes(routes!(list_openai_models))
        .routes(routes!(create_message))
        .routes(routes!(count_message_tokens))
        .routes(routes!(list_anthropic_models));
    let components = router.get_openapi_mut().components.get_or_insert_default();
    components.responses.extend(Errors::components());
    router
}

/// The body of a request for a model. All of its members are forwarded to the provider.
#[derive(ToSchema)]
#[expect(dead_code, reason = "it only describes what is forwarded as it was written")]
struct ProviderRequest {
    /// The name of the model, as in the providers file.
    #[schema(example = "my-model")]
    model: String,
}

/// Forwards a request to `OpenAI`'s Chat Completions API and records it as a send.
///
/// The gateway forwards the body unchanged to the provider that offers the model, and returns the provider's response
/// unchanged, streamed or not. The response is sent, or if it is streamed ends, after the record is committed. The
/// gateway's own errors have the shape of the provider's errors.
#[utoipa::path(post, path = "/openai/v1/chat/completions", tag = "gateway", params(Options),
    request_body(content = ProviderRequest, example = json!({
        "model": "my-model", "messages": [{"role": "user", "content": "How do I list files?"}]})),
    responses((status = 200, description = "The provider's response", content((FreeForm = "application/json"), (String = "text/event-stream"))), Errors))]
async fn create_chat_completion(State(app): State<App>, request: Request) -> Response {
    pass(app, Api::ChatCompletions, request).await
}

/// Forwards a request to `OpenAI`'s Responses API and records it as a send.
///
/// The gateway handles the request like one to `/openai/v1/chat/completions`.
#[utoipa::path(post, path = "/openai/v1/responses", tag = "gateway", params(Options),
    request_body(content = ProviderRequest, example = json!({"model": "my-model", "input": "How do I list files?"})),
    responses((status = 200, description = "The provider's response", content((FreeForm = "application/json"), (String = "text/event-stream"))), Errors))]
async fn create_response(State(app): State<App>, request: Request) -> Response {
    pass(app, Api::Responses, request).await
}

/// Forwards a request to Anthropic's Messages API and records it as a send.
///
/// The gateway handles the request like one to `/openai/v1/chat/completions`. The Gleaner key may also be sent in the
/// header `x-api-key`.
#[utoipa::path(post, path = "/anthropic/v1/messages", tag = "gateway", params(Options),
    request_body(content = ProviderRequest, example = json!({
        "model": "my-claude", "max_tokens": 512, "messages": [{"role": "user", "content": "How do I list files?"}]})),
    responses((status = 200, description = "The provider's response", content((FreeForm = "application/json"), (String = "text/event-stream"))), Errors))]
async fn create_message(State(app): State<App>, request: Request) -> Response {
    pass(app, Api::Messages, request).await
}

/// Forwards a token-counting request to the provider. Nothing is recorded.
#[utoipa::path(post, path = "/anthropic/v1/messages/count_tokens", tag = "gateway",
    request_body(content = ProviderRequest, example = json!({
        "model": "my-claude", "messages": [{"role": "user", "content": "How do I list files?"}]})),
    responses((status = 200, description = "The provider's response", body = FreeForm), Errors))]
async fn count_message_tokens(State(app): State<App>, request: Request) -> Response {
    respond(async {
        let (call, body) = read(&app, Kind::Anthropic, request).await?;
        let (bytes, asked) =
            understood(&call.caller.project, Api::Messages, body, None, &call.memory).await?;
        let named = asked.model.clone();
        let found = app.providers.find(Some(Kind::Anthropic), &named);
        let (provider, model) = found.ok_or(passage::NO_PROVIDER)?;
        let body = asked.request(&bytes, model, 0);
        drop((bytes, asked));
        let path = call.path("messages/count_tokens");
        let key = call.options.provider_key.as_ref();
        let answer = app.providers.post(provider, &path, &call.forwarded, key, body);
        while_wanted(passed_on(provider, answer, &call.memory)).await
    })
    .await
}

/// Lists the models of the first provider in the providers file that has `OpenAI`'s API.
#[utoipa::path(get, path = "/openai/v1/models", tag = "gateway",
    responses((status = 200, description = "The provider's response", body = FreeForm), Errors))]
async fn list_openai_models(State(app): State<App>, request: Request) -> Response {
    list_models(app, Kind::Openai, request).await
}

/// Lists the models of the first provider in the providers file that has Anthropic's API.
#[utoipa::path(get, path = "/anthropic/v1/models", tag = "gateway",
    responses((status = 200, description = "The provider's response", body = FreeForm), Errors))]
async fn list_anthropic_models(State(app): State<App>, request: Request) -> Response {
    list_models(app, Kind::Anthropic, request).await
}

async fn list_models(app: App, kind: Kind, request: Request) -> Response {
    respond(async {
        let (call, _) = read(&app, kind, request).await?;
        let provider = app.providers.of_kind(kind).ok_or(passage::NO_PROVIDER)?;
        let key = call.options.provider_key.as_ref();
        let path = call.path("models");
        let answer = app.providers.get(provider, &path, &call.forwarded, key);
        while_wanted(passed_on(provider, answer, &call.memory)).await
    })
    .await
}

/// A request to the gateway without its body.
struct Call {
    caller: Caller<Write>,
    /// Whether the caller is known only from before, because the database does not answer.
    is_remembered: bool,
    options: Options,
    /// The headers that are forwarded to the provider.
    forwarded: HeaderMap,
    query: Option<String>,
    memory: Memory,
    place: Place,
}

impl Call {
    /// Returns the path below the provider's address, with the query that the client sent.
    fn path(&self, path: &str) -> String {
        self.query.as_ref().map_or_else(|| path.to_owned(), |query| format!("{path}?{query}"))
    }
}

/// Reads a request and checks that its caller may write. While the database is unavailable, only recent callers are
/// known.
async fn read(app: &App, kind: Kind, request: Request) -> Result<(Call, Vec<u8>)> {
    let memory = Memory::of(request.extensions());
    let (mut parts, body) = request.into_parts();
    name_key(kind, &mut parts.headers);
    // A project that allows unrecorded requests is remembered, so that they do not wait long for the database.
    let passes = |tenant: &Tenant| tenant.messages.passes_without_database();
    let (caller, is_remembered) = Caller::within(PATIENCE, &app.keyring, &mut parts, passes).await?;
    let options = Options::of(&parts.headers)?;
    let (forwarded, query) = (forwarded(&parts.headers), parts.uri.query().map(str::to_owned));
    let body = json::body(Request::from_parts(parts, body), LIMIT).await?;
    // Who sends a body slowly keeps no place from others meanwhile.
    let place = app.place_at_providers(&caller.project)?;
    Ok((Call { caller, is_remembered, options, forwarded, query, memory, place }, body.bytes))
}

/// Parses a body as far as its record needs it. Characters that Postgres cannot store are replaced in the parsed
/// copy, which has the same length as the original.
async fn understood(
    project: &Arc<str>,
    api: Api,
    mut body: Vec<u8>,
    session: Option<String>,
    memory: &Memory,
) -> Result<(axum::body::Bytes, Asked)> {
    let size = body.len();
    let (body, clean, values) = parsed(project, size, move || {
        // Only escapes are replaced, so that most bodies need no copy.
        let clean = if memchr::memmem::find(&body, br"\u").is_some() {
            let mut clean = body.clone();
            (clean_json(&mut clean)? > 0).then_some(clean)
        } else {
            clean_json(&mut body)?;
            None
        };
        let values = value::count(clean.as_ref().unwrap_or(&body));
        Ok((body, clean, values))
    })
    .await?;
    // Besides the body and what is forwarded, there are the new message and all messages, which the statement that writes them
    // has once more. A message is read as a value, too, and written as the text that is hashed.
    memory.hold_values(3 * size, values).await?;
    parsed(project, size, move || {
        let asked = Asked::read(api, json::utf8(clean.as_ref().unwrap_or(&body))?, session.as_deref())?;
        Ok((body.into(), asked))
    })
    .await
}

/// Runs a step of parsing, on a thread of its own if the body is large.
async fn parsed<T: Send + 'static>(
    project: &Arc<str>,
    size: usize,
    step: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    if size < LARGE { step() } else { apart(project, step).await }
}

/// Forwards a request on a task of its own, so that the outcome is recorded even if the client disconnects.
async fn pass(app: App, api: Api, request: Request) -> Response {
    respond(async {
        let (call, body) = read(&app, api.kind(), request).await?;
        let (body, asked) =
            understood(&call.caller.project, api, body, call.options.session.clone(), &call.memory).await?;
        let path = call.path(api.path());
        let (client, answer) = oneshot::channel();
        let passage = Passage {
            app,
            tenant: call.caller.tenant,
            is_remembered: call.is_remembered,
            id: Uuid::now_v7(),
            api,
            path,
            forwarded: call.forwarded,
            options: call.options,
            body,
            asked,
            memory: call.memory,
            _place: call.place,
        };
        tokio::spawn(passage.run(client));
        while_wanted(answer)
            .await
            .map_err(|_| anyhow::anyhow!("a request through the gateway was interrupted"))?
    })
    .await
}

async fn respond(answer: impl Future<Output = Result<Response>>) -> Response {
    answer.await.unwrap_or_else(Error::into_response)
}

/// Returns a provider's response without recording anything. Only the provider's key is replaced in an error. The response is read
/// as a whole, so that the provider does not wait for the client.
async fn passed_on(
    provider: &Provider,
    answer: impl Future<Output = reqwest::Result<reqwest::Response>>,
    memory: &Memory,
) -> Result<Response> {
    memory.hold(ARRIVING).await?;
    let lost = |error| passage::bad_gateway(&error);
    let mut answer = answer.await.map_err(lost)?;
    if passage::leads_elsewhere(answer.status()) {
        return Err(passage::led_elsewhere());
    }
    let (body, is_whole) = passage::collect(&mut answer, memory, ARRIVING).await.map_err(lost)?;
    if !is_whole {
        return Err(Error::Unavailable("there is no memory for the provider's answer; try again"));
    }
    let (status, headers) = (answer.status(), returned(answer.headers()));
    let body = if status.is_success() { body } else { provider.without_key(body) };
    let mut response = (status, headers, body).into_response();
    response.extensions_mut().insert(PassedOn);
    Ok(response)
}
