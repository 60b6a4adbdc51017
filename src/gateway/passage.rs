//! Forwards one request and its answer. The request is recorded before the provider is called, and the outcome before
//! the client has received the whole answer.

use std::sync::Arc;
use std::time::Instant;

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use tokio::sync::oneshot;
use uuid::Uuid;

use super::asked::Asked;
use super::headers::{Options, returned};
use super::record::Record;
use super::stream::Passing;
use crate::error::{Error, PassedOn, Result, Special};
use crate::http::clean::MOST_VALUES;
use crate::http::memory::Memory;
use crate::messages::CancelReason;
use crate::messages::failure::{self, Failure};
use crate::messages::in_flight::Flight;
use crate::messages::rules::trimming::{self, Next, Trimming};
use crate::messages::settings::SendSettings;
use crate::projects::Tenant;
use crate::providers::Provider;
use crate::providers::answer::{Answer, Api, MOST_ANSWER, arriving};
use crate::sharing::Place;
use crate::state::App;
use crate::types::value;

/// The error for a model that no provider offers.
pub(super) const NO_PROVIDER: Error = Error::NotFound("model in the providers file");

/// A request that is being forwarded.
pub(super) struct Passage {
    pub(super) app: App,
    pub(super) tenant: Arc<Tenant>,
    /// Whether the settings of the project are those from before, because the database does not answer. Nothing is recorded
    /// then.
    pub(super) is_remembered: bool,
    /// The id of the send.
    pub(super) id: Uuid,
    pub(super) api: Api,
    /// The path below the provider's address, with the query.
    pub(super) path: String,
    /// The headers that are forwarded.
    pub(super) forwarded: HeaderMap,
    pub(super) options: Options,
    pub(super) body: Bytes,
    pub(super) asked: Asked,
    /// The request's share of the memory for bodies.
    pub(super) memory: Memory,
    /// The request's place among those of its project that wait for providers.
    pub(super) _place: Place,
}

/// Where the client waits for the head of the answer.
type Client = oneshot::Sender<Result<Response>>;

/// The outcome of a call.
enum Called {
    /// An answer that is forwarded as it arrives, with the part that has already arrived.
    Stream(reqwest::Response, Bytes),
    /// A whole answer, or an error of the provider.
    Whole(StatusCode, HeaderMap, Bytes),
    /// No answer, with the error for the client.
    None(Failure, Error),
    /// Nothing, because the send was cancelled.
    Cancelled(CancelReason),
}

impl Passage {
    /// Forwards the request and records the outcome.
    pub(super) async fn run(mut self, mut client: Client) {
        let providers = Arc::clone(&self.app.providers);
        let named = self.asked.model.clone();
        let Some((provider, model)) = providers.find(Some(self.api.kind()), &named) else {
            let _ = client.send(Err(NO_PROVIDER));
            return;
        };
        // The lease of the send is renewed for as long as this is held.
        let mut flight = self.app.in_flight.begin(&self.tenant.name, self.id);
        let mut trimming = self.trimming();
        let record = match Record::begin(&mut self, provider, trimming.max_trims).await {
            Ok(record) => record,
            Err(error) => {
                let _ = client.send(Err(error));
                return;
            }
        };
        loop {
            let body = self.asked.request(&self.body, model, trimming.trimmed);
            let started = Instant::now();
            let called = tokio::select! {
                biased;
                reason = flight.cancelled() => Called::Cancelled(reason),
                () = client.closed() => Called::Cancelled(CancelReason::ClientGone),
                called = self.call(provider, body) => called,
            };
            let prompt = || self.asked.prompt(&self.body, trimming.trimmed);
            let answer = match called {
                Called::Stream(response, begun) => {
                    let passed = Passed { response, begun, client, flight: &mut flight };
                    return self.stream(passed, &record, started, prompt).await;
                }
                Called::Whole(status, headers, bytes) => {
                    let is_kept = match self.read(status, &headers, &bytes).await {
                        Ok(answer) => record.answered(&answer, started, prompt).await,
                        Err(failure) => {
                            let meaning =
                                trimming::Failure { class: failure.1.class, overflow: failure.1.overflow };
                            if trimming.attempt(Some(meaning)).1 == Next::Retry {
                                record.called(*failure, started).await;
                                continue;
                            }
                            record.failed(*failure, started).await
                        }
                    };
                    Ok(reply(status, &headers, is_kept, Body::from(bytes)))
                }
                Called::None(failure, error) => {
                    record.failed(failure, started).await;
                    Err(error)
                }
                Called::Cancelled(reason) => {
                    record.cancelled(reason).await;
                    Err(Error::Malformed("the send was cancelled".to_owned()))
                }
            };
            // Nobody may wait for it any more.
            let _ = client.send(answer);
            return;
        }
    }

    /// The initial state of trimming. Nothing is ever dropped unless the client asks for it.
    fn trimming(&self) -> Trimming {
        let settings = self.tenant.messages.settings.with(&SendSettings::default());
        let max_trims = usize::try_from(settings.max_trim_attempts).unwrap_or_default();
        Trimming {
            predicted: self.asked.passed.turns.len(),
            preflight: 0,
            trimmed: 0,
            attempts_used: 0,
            max_trims: if self.options.trims { max_trims } else { 0 },
        }
    }

    /// Calls the provider. An answer that is not streamed is read whole.
    async fn call(&self, provider: &Provider, body: Bytes) -> Called {
        let key = self.options.provider_key.as_ref();
        let sent = self.app.providers.post(provider, &self.path, &self.forwarded, key, body).await;
        let lost = |error: reqwest::Error| Called::None(failure::unreachable(&error), bad_gateway(&error));
        let mut response = match sent {
            Ok(response) => response,
            Err(error) => return lost(error),
        };
        if leads_elsewhere(response.status()) {
            return Called::None(failure::reported(response.status().as_u16(), &[], None), led_elsewhere());
        }
        if is_stream(response.status(), response.headers()) {
            return Called::Stream(response, Bytes::new());
        }
        // What a provider says of an error is short, and read in any case.
        let arriving = if response.status().is_success() { arriving(&response) } else { 0 };
        let own = self.body.len() + arriving;
        if arriving > 0 && self.memory.hold(own).await.is_err() {
            return Called::Stream(response, Bytes::new());
        }
        match collect(&mut response, &self.memory, own).await {
            Ok((said, true)) if !response.status().is_success() => {
                Called::Whole(response.status(), response.headers().clone(), provider.without_key(said))
            }
            Ok((bytes, true)) => {
                let values = value::count(&bytes).min(MOST_VALUES);
                match self.memory.hold_values(own + bytes.len(), values).await {
                    Ok(()) => Called::Whole(response.status(), response.headers().clone(), bytes),
                    Err(_) => Called::Stream(response, bytes),
                }
            }
            // Such an answer is forwarded as it arrives, and not recorded.
            Ok((begun, false)) => Called::Stream(response, begun),
            Err(error) => lost(error),
        }
    }

    /// Reads a whole answer.
    async fn read(
        &self,
        status: StatusCode,
        headers: &HeaderMap,
        bytes: &Bytes,
    ) -> Result<Answer, Box<Failure>> {
        if !status.is_success() {
            return Err(failure::reported(status.as_u16(), bytes, failure::wait(headers)).into());
        }
        Ok(Answer::whole(&self.tenant.name, self.api, bytes.clone()).await?)
    }

    /// Forwards an answer as it arrives. Its end is held until the record is committed. If the provider's stream is
    /// interrupted, the client's is too, so that it never looks complete.
    async fn stream(
        &self,
        passed: Passed<'_>,
        record: &Record,
        started: Instant,
        prompt: impl FnOnce() -> String,
    ) {
        let Passed { mut response, begun, client, flight } = passed;
        let (status, headers) = (response.status(), response.headers().clone());
        let unread = unread(status, &headers, &begun);
        let answer = Answer::of(self.asked.choices);
        let (mut passing, body) =
            Passing::new(self.api, answer, unread, self.memory.clone(), self.body.len());
        let _ = client.send(Ok(reply(status, &headers, record.is_recorded(), body)));
        let outcome = tokio::select! {
            biased;
            reason = flight.cancelled() => Err(reason),
            outcome = passing.pass(&mut response, begun) => outcome,
        };
        // The rest of the answer need not be paid for.
        drop(response);
        match outcome {
            Err(reason) => {
                record.cancelled(reason).await;
                passing.finish(false).await;
            }
            Ok(is_whole) => {
                match passing.answered() {
                    Ok(answer) => record.answered(answer, started, prompt).await,
                    Err(failure) => record.failed(*failure, started).await,
                };
                passing.finish(is_whole).await;
            }
        }
    }
}

/// An answer that is about to be forwarded as it arrives.
struct Passed<'a> {
    response: reqwest::Response,
    /// The part that has already arrived.
    begun: Bytes,
    client: Client,
    flight: &'a mut Flight,
}

/// Reads an answer as far as there is memory for it, besides that for the request's `own` body. Returns what has come, and
/// whether that is all of it.
pub(super) async fn collect(
    answer: &mut reqwest::Response,
    memory: &Memory,
    own: usize,
) -> reqwest::Result<(Bytes, bool)> {
    // Pieces are copied, because each may be a few bytes of a large buffer.
    let mut bytes = Vec::new();
    while let Some(piece) = answer.chunk().await? {
        bytes.extend_from_slice(&piece);
        if bytes.len() > MOST_ANSWER || memory.hold(own + bytes.len()).await.is_err() {
            return Ok((bytes.into(), false));
        }
    }
    Ok((bytes.into(), true))
}

/// Makes the response of a provider's answer.
fn reply(status: StatusCode, headers: &HeaderMap, is_recorded: bool, body: Body) -> Response {
    let mut response = (status, returned(headers), body).into_response();
    if !is_recorded {
        response.headers_mut().insert("gleaner-recorded", HeaderValue::from_static("no"));
    }
    response.extensions_mut().insert(PassedOn);
    response
}

fn is_stream(status: StatusCode, headers: &HeaderMap) -> bool {
    let media_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    status.is_success() && media_type.is_some_and(|value| value.starts_with("text/event-stream"))
}

/// Returns why an answer that is forwarded as it arrives is not read, unless it is a stream of events: its status, or that it is
/// too long. `begun` is the part that has already arrived.
fn unread(status: StatusCode, headers: &HeaderMap, begun: &Bytes) -> Option<Failure> {
    if is_stream(status, headers) {
        return None;
    }
    if status.is_success() {
        return Some(failure::no_memory());
    }
    let body = begun.get(..failure::MOST_READ).unwrap_or(begun);
    Some(failure::reported(status.as_u16(), body, failure::wait(headers)))
}

/// Returns the error for the client if the provider has not answered.
pub(super) fn bad_gateway(error: &reqwest::Error) -> Error {
    let (failure, _) = failure::unreachable(error);
    let status = if error.is_timeout() { StatusCode::GATEWAY_TIMEOUT } else { StatusCode::BAD_GATEWAY };
    upstream(status, failure.message.unwrap_or_default())
}

/// Returns whether an answer redirects to another address or switches to another protocol.
pub(super) fn leads_elsewhere(status: StatusCode) -> bool {
    status.is_redirection() || status.is_informational()
}

/// Returns the error for the client if the provider answers in this way. Following a redirect would send the client's
/// keys elsewhere, and nobody speaks another protocol here.
pub(super) fn led_elsewhere() -> Error {
    upstream(
        StatusCode::BAD_GATEWAY,
        "the provider answered with a redirect or a change of protocol, which is not followed".to_owned(),
    )
}

fn upstream(status: StatusCode, detail: String) -> Error {
    Error::Special(Box::new(Special {
        status: status.as_u16(),
        kind: "provider",
        title: "Provider",
        detail,
        errors: Vec::new(),
        members: serde_json::Map::new(),
        retry_after_s: None,
        headers: Vec::new(),
    }))
}
