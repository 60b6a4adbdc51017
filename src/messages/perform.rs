//! Performs a send: calls the provider, and drops the oldest pair when the provider reports that the context is too
//! long.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use axum::body::Bytes;
use axum::http::HeaderMap;
use serde::Serialize;
use tokio::sync::mpsc;
use uuid::Uuid;

use super::failure::{self, Failure, MOST_READ, no_memory, own, unreachable, wait, with_meaning};
use super::in_flight::Flight;
use super::payload::{Message, Texts, messages};
use super::prediction::Predicted;
use super::rules::errors::Kind;
use super::rules::trimming::{Failure as Failed, Next, Stage, Trimming};
use super::store::Plan;
use super::{CancelReason, Event, SendError};
use crate::error::{Error, Result};
use crate::http::clean::MOST_VALUES;
use crate::http::memory::Memory;
use crate::http::pace::Pace;
use crate::projects::Tenant;
use crate::providers::answer::{Answer, Api, MOST_ANSWER, arriving};
use crate::providers::sse::{Events, Pieces};
use crate::providers::{Kind as ProviderKind, Providers};
use crate::state::App;
use crate::types::{FreeForm, value};

/// The maximum number of tokens that an answer of Anthropic's may have, whose API asks for a limit.
const MOST_OUTPUT: u32 = 8_192;

/// The number of reports of progress that may wait for a slow client.
const WAITING: usize = 64;

/// The progress of a send.
#[derive(Debug)]
pub enum Progress {
    /// A call begins.
    Attempt {
        /// Its number.
        attempt: usize,
        /// What the send is at.
        stage: Stage,
        /// The size of the request.
        attempt_total_tokens: i64,
    },
    /// More of the answer has come.
    Delta(String),
    /// A pair was dropped.
    Trimmed {
        /// The pair.
        id: String,
        /// How many are dropped by now.
        trimmed_count: usize,
        /// The counter that people see.
        counter: String,
    },
}

impl Progress {
    /// Returns about how many bytes a client reads of it.
    fn size(&self) -> usize {
        const EVENT: usize = 100;
        EVENT + if let Self::Delta(text) = self { text.len() } else { 0 }
    }
}

/// The client that is told the progress of a send. It must read at a minimum pace, because a send keeps a place from
/// others.
#[derive(Debug)]
pub struct Listener {
    out: mpsc::Sender<Progress>,
    pace: Pace,
}

impl Listener {
    /// Makes a listener, and the receiver of what it is told.
    #[must_use]
    pub fn new() -> (Self, mpsc::Receiver<Progress>) {
        let (out, told) = mpsc::channel(WAITING);
        (Self { out, pace: Pace::default() }, told)
    }

    /// Tells the progress. Returns whether the client still listens.
    async fn tell(&mut self, progress: Progress) -> bool {
        self.pace.note(progress.size());
        self.pace.wait(&self.out, progress).await
    }
}

/// Everything that is needed to perform a send.
#[derive(Debug)]
pub struct Script {
    /// The send.
    pub id: Uuid,
    /// The model.
    pub model: String,
    system: Option<String>,
    user: Option<String>,
    pairs: Vec<Said>,
    sizes: Vec<i64>,
    aut: i64,
    visible: usize,
    trimming: Trimming,
    /// Whether what happens is kept.
    keeps: bool,
}

/// A pair by its id, with what the user said and the model answered, unless that was erased.
type Said = (String, Option<(String, Option<String>)>);

/// How a send has ended.
#[derive(Debug, Clone)]
pub struct Performed {
    /// What the model answered.
    pub text: Option<String>,
    /// Why there is no answer.
    pub error: Option<SendError>,
    /// The usage that the provider reported.
    pub usage: Option<FreeForm>,
    /// How far trimming has come.
    pub trimming: Trimming,
}

impl Script {
    /// Takes a recorded send. `user` is the new message, even if no text is stored.
    #[must_use]
    pub fn of(plan: Plan, system: Option<String>, user: Option<String>) -> Self {
        let Plan { row, texts } = plan;
        let pairs =
            row.keys(0).into_iter().map(|key| (key.0.to_string(), texts.get(&key).cloned())).collect();
        Self {
            trimming: row.trimming(),
            visible: row.visible(),
            id: row.id,
            system: system.or(row.system),
            user: user.or(row.user_text),
            model: row.model,
            pairs,
            sizes: row.selected_tokens,
            aut: row.aut,
            keeps: true,
        }
    }

    /// Takes a send that is not recorded.
    #[must_use]
    pub fn unkept(
        id: Uuid,
        predicted: &Predicted,
        texts: &Texts,
        system: Option<String>,
        user: Option<String>,
    ) -> Self {
        let pairs = predicted.included();
        Self {
            id,
            model: predicted.model.clone().unwrap_or_default(),
            system,
            user,
            pairs: pairs
                .iter()
                .map(|pair| (pair.id.clone(), texts.get(&(pair.key, pair.revision)).cloned()))
                .collect(),
            sizes: predicted.sizes[predicted.boundary()..].to_vec(),
            aut: predicted.aut,
            visible: predicted.pairs.len(),
            trimming: Trimming {
                predicted: pairs.len(),
                preflight: predicted.preflight,
                trimmed: predicted.preflight,
                attempts_used: 0,
                max_trims: usize::try_from(predicted.max_trims).unwrap_or_default(),
            },
            keeps: false,
        }
    }

    fn messages(&self) -> Vec<Message<'_>> {
        let left = self.pairs.iter().skip(self.trimming.trimmed).filter_map(|(_, texts)| texts.as_ref());
        let left = left.map(|(user, answer)| (user.as_str(), answer.as_deref()));
        messages(self.system.as_deref(), left, self.user.as_deref())
    }

    fn total(&self) -> i64 {
        self.sizes.iter().skip(self.trimming.trimmed).sum::<i64>() + self.aut
    }

    /// Performs the send and records the result. It continues until the send has ended, unless it is erased
    /// or the database is unavailable. The request holds `memory` for the answers of the provider, too.
    pub async fn perform(
        mut self,
        app: &App,
        tenant: &Arc<Tenant>,
        flight: &mut Flight,
        mut listener: Option<Listener>,
        memory: &Memory,
    ) -> Result<Performed> {
        loop {
            let stage = if self.trimming.attempts_used > 0 { Stage::OverflowRetry } else { Stage::Initial };
            let begins = Progress::Attempt {
                attempt: self.trimming.attempts_used + 1,
                stage,
                attempt_total_tokens: self.total(),
            };
            let listens = tell(listener.as_mut(), begins).await;
            let started = Instant::now();
            let call = async {
                if listens {
                    self.call(&app.providers, listener.as_mut(), (&tenant.name, memory)).await
                } else {
                    None
                }
            };
            let called = tokio::select! {
                biased;
                reason = flight.cancelled() => Err(reason),
                called = call => called.ok_or(CancelReason::ClientGone),
            };
            let latency_ms = i32::try_from(started.elapsed().as_millis()).unwrap_or(i32::MAX);
            match called {
                Err(reason) => {
                    let (error, _) = failure::cancelled(reason);
                    self.write(app, tenant, Event::cancel(self.id, reason), memory).await?;
                    return Ok(self.failed(error));
                }
                Ok(Ok(answer)) => {
                    self.trimming.attempt(None);
                    let usage = answer.usage.as_ref().and_then(|usage| FreeForm::of(usage).ok());
                    let answered = Event::answered(self.id, &answer, latency_ms);
                    self.write(app, tenant, answered, memory).await?;
                    return Ok(Performed {
                        text: Some(answer.text),
                        error: None,
                        usage,
                        trimming: self.trimming,
                    });
                }
                Ok(Err(failure)) => {
                    let meaning = Failed { class: failure.1.class, overflow: failure.1.overflow };
                    let (_, next) = self.trimming.attempt(Some(meaning));
                    if next == Next::Retry {
                        let called = Event::called(self.id, failure, latency_ms);
                        self.write(app, tenant, called, memory).await?;
                        let dropped = self.trimming.trimmed;
                        let trimmed = Progress::Trimmed {
                            id: self.pairs[dropped - 1].0.clone(),
                            trimmed_count: dropped,
                            counter: self.trimming.counter(self.visible),
                        };
                        tell(listener.as_mut(), trimmed).await;
                        continue;
                    }
                    let failed = Event::failed(self.id, failure.clone(), latency_ms);
                    self.write(app, tenant, failed, memory).await?;
                    return Ok(self.failed(failure.0));
                }
            }
        }
    }

    fn failed(&self, error: SendError) -> Performed {
        Performed { text: None, error: Some(error), usage: None, trimming: self.trimming }
    }

    /// Writes an event. It is not a failure if somebody else has ended the send meanwhile, but one if it was erased.
    async fn write(&self, app: &App, tenant: &Arc<Tenant>, event: Event, memory: &Memory) -> Result<()> {
        if !self.keeps {
            return Ok(());
        }
        match app.writer.write(tenant, event, memory).await {
            Ok(_) | Err(Error::Conflict(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Calls the provider. Returns none if nobody waits for the answer anymore.
    async fn call(
        &self,
        providers: &Providers,
        listener: Option<&mut Listener>,
        (project, memory): (&Arc<str>, &Memory),
    ) -> Option<Result<Answer, Failure>> {
        let Some((provider, model)) = providers.find(None, &self.model) else {
            let message = format!("no provider has the model {:?}", self.model);
            return Some(Err(with_meaning(own(Kind::ModelNotFound, &message))));
        };
        let messages = self.messages();
        let body = Body::of(provider.kind, model, &messages, listener.is_some());
        let room = Room { project, memory, own: body.length() };
        if let Err(failure) = room.hold(0).await {
            return Some(Err(failure));
        }
        let body = body.written(room.own);
        let sent = providers.post(provider, provider.api().path(), &HeaderMap::new(), None, body).await;
        let called = match sent {
            Ok(response) => read(provider.api(), response, room, listener).await?,
            Err(error) => Err(unreachable(&error)),
        };
        Some(called.map_err(|failure| failure::without_key(failure, provider.key(None))))
    }
}

/// The memory that a request of a project holds for an answer, besides that for the body of its call.
struct Room<'a> {
    project: &'a Arc<str>,
    memory: &'a Memory,
    /// The number of bytes of that body.
    own: usize,
}

impl Room<'_> {
    /// Holds memory for so many bytes of an answer.
    async fn hold(&self, bytes: usize) -> Result<(), Failure> {
        let held = self.memory.hold(self.own + bytes).await;
        held.map_err(|_| no_memory())
    }

    /// Holds memory for an answer that is parsed as a whole.
    async fn hold_values(&self, bytes: usize, values: usize) -> Result<(), Failure> {
        let held = self.memory.hold_values(self.own + bytes, values).await;
        held.map_err(|_| no_memory())
    }
}

/// Reports progress. Returns whether somebody may still listen.
async fn tell(listener: Option<&mut Listener>, progress: Progress) -> bool {
    match listener {
        Some(listener) => listener.tell(progress).await,
        None => true,
    }
}

/// Reads a response. Returns none if nobody waits for the answer anymore.
async fn read(
    api: Api,
    response: reqwest::Response,
    room: Room<'_>,
    listener: Option<&mut Listener>,
) -> Option<Result<Answer, Failure>> {
    if !response.status().is_success() {
        return Some(Err(refused(response).await));
    }
    let content_type = response.headers().get("content-type").and_then(|value| value.to_str().ok());
    if content_type.is_some_and(|value| value.starts_with("text/event-stream")) {
        return stream(api, response, room, listener).await;
    }
    let bytes = match whole(response, &room).await {
        Ok(bytes) => Bytes::from(bytes),
        Err(failure) => return Some(Err(failure)),
    };
    Some(Answer::whole(room.project, api, bytes).await)
}

/// Reads a whole answer. What is longer than any answer is cut, and no answer then.
async fn whole(mut response: reqwest::Response, room: &Room<'_>) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    let arriving = arriving(&response);
    room.hold(arriving).await?;
    while bytes.len() < MOST_ANSWER
        && let Some(chunk) = response.chunk().await.map_err(|error| unreachable(&error))?
    {
        room.hold(arriving + bytes.len() + chunk.len()).await?;
        bytes.extend_from_slice(&chunk);
    }
    bytes.truncate(MOST_ANSWER);
    room.hold_values(arriving + bytes.len(), value::count(&bytes).min(MOST_VALUES)).await?;
    Ok(bytes)
}

/// Reads a streamed answer.
async fn stream(
    api: Api,
    mut response: reqwest::Response,
    room: Room<'_>,
    mut listener: Option<&mut Listener>,
) -> Option<Result<Answer, Failure>> {
    let (mut events, mut answer, mut pieces) =
        (Events::default(), Answer::default(), Pieces::of(&mut response));
    loop {
        let (data, ended) = match pieces.next(answer.has_ended()).await {
            Ok(Some(chunk)) => (events.push(&chunk), false),
            Ok(None) => (events.finish().into_iter().collect(), true),
            Err(_) => (Vec::new(), true),
        };
        for data in data {
            if let Some(delta) = answer.event(api, &data)
                && !tell(listener.as_deref_mut(), Progress::Delta(delta)).await
            {
                return None;
            }
        }
        if ended || answer.error.is_some() {
            return Some(answer.failure().map_or(Ok(answer), Err));
        }
        if let Err(failure) = room.hold(events.size() + answer.size()).await {
            return Some(Err(failure));
        }
    }
}

/// The body of a call.
#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    system: Option<&'a str>,
    messages: Vec<Message<'a>>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    stream: bool,
}

impl<'a> Body<'a> {
    fn of(kind: ProviderKind, model: &'a str, messages: &[Message<'a>], stream: bool) -> Self {
        let messages = messages.iter().copied();
        match kind {
            ProviderKind::Openai => {
                Self { model, max_tokens: None, system: None, messages: messages.collect(), stream }
            }
            ProviderKind::Anthropic => {
                let (system, messages) = messages.partition::<Vec<_>, _>(|message| message.role == "system");
                let system = system.first().map(|system| system.content);
                Self { model, max_tokens: Some(MOST_OUTPUT), system, messages, stream }
            }
        }
    }

    /// Returns how many bytes it has as JSON.
    fn length(&self) -> usize {
        let mut length = Length(0);
        serde_json::to_writer(&mut length, self).expect(WRITES);
        length.0
    }

    /// Returns its JSON, which has so many bytes.
    fn written(&self, length: usize) -> Bytes {
        let mut json = Vec::with_capacity(length);
        serde_json::to_writer(&mut json, self).expect(WRITES);
        json.into()
    }
}

/// Texts can be written as JSON, and memory takes whatever is written.
const WRITES: &str = "texts are written to memory";

/// Counts what is written.
struct Length(usize);

impl io::Write for Length {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns the failure that a provider's response describes.
async fn refused(mut response: reqwest::Response) -> Failure {
    let status = response.status().as_u16();
    let wait = wait(response.headers());
    let mut body = Vec::new();
    while body.len() < MOST_READ
        && let Ok(Some(chunk)) = response.chunk().await
    {
        body.extend_from_slice(&chunk);
    }
    failure::reported(status, &body, wait)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::providers::sse::tests::kept_open;

    #[tokio::test(start_paused = true)]
    async fn a_client_that_does_not_read_the_progress_no_longer_listens_after_a_minute() {
        let (mut listener, mut told) = Listener::new();
        let begun = tokio::time::Instant::now();
        let mut count = 0;
        while listener.tell(Progress::Delta("x".to_owned())).await {
            count += 1;
        }
        assert_eq!((count, begun.elapsed().as_secs()), (WAITING, 60));
        told.recv().await.expect("what waited");
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_is_there_five_seconds_after_its_end_although_the_provider_keeps_the_stream_open() {
        let memory = Memory::unbounded();
        let room = Room { project: &"default".into(), memory: &memory, own: 0 };
        let begun = tokio::time::Instant::now();
        let response = kept_open(
            "data: {\"choices\": [{\"delta\": {\"content\": \"Hi\"}, \"finish_reason\": \"stop\"}]}\n\n",
        );
        let answer = stream(Api::ChatCompletions, response, room, None);
        let answer = tokio::time::timeout(Duration::from_mins(1), answer).await.expect("an end");
        assert_eq!(answer.expect("a listener").expect("an answer").text, "Hi");
        assert_eq!(begun.elapsed().as_secs(), 5);
    }
}
