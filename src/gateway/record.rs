//! The record of a forwarded request: a send, and an attempt of a generation log.

use std::sync::Arc;
use std::time::Instant;

use chrono::TimeDelta;
use serde_json::json;
use uuid::Uuid;

use super::passage::Passage;
use super::routes::PATIENCE;
use crate::domain::{self, Domain};
use crate::error::{Error, Result};
use crate::generations;
use crate::http::memory::Memory;
use crate::messages::begun::Begun;
use crate::messages::failure::{self, Failure};
use crate::messages::settings::SendSettings;
use crate::messages::store;
use crate::messages::{AskedMode, CancelReason, Event, NewSend, tokens_of};
use crate::privacy::capture::Capture;
use crate::projects::Tenant;
use crate::providers::Provider;
use crate::providers::answer::Answer;
use crate::recurring;
use crate::state::App;
use crate::types::{FreeForm, Timestamp};

/// The error of a database for which a request does not wait any longer.
const LATE: Error = Error::Unavailable("the database does not answer");

/// The maximum number of bytes of a text that is recorded. Who reads it has the whole text before its memory is counted.
const LONGEST: usize = 8 << 20;

/// The error of a request that has a longer one.
const TOO_LONG: Error = Error::Unavailable("a message or the system message has more than 8 MiB");

/// The record of a request.
pub(super) struct Record {
    app: App,
    tenant: Arc<Tenant>,
    /// The id of the send.
    id: Uuid,
    memory: Memory,
    keeps: Keeps,
    /// The generation log in which the answer becomes an attempt, and the attempt's number if the client gives one.
    attempt: Option<(Uuid, Option<i32>)>,
    begun: Begun,
    /// The key with which the provider is called.
    provider_key: Option<String>,
}

/// Whether the request is recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Keeps {
    /// The request is recorded as the project's settings say.
    Wanted,
    /// The request is not recorded, because of the project's settings.
    Nothing,
    /// The request is not recorded, because the database is unavailable or a message is too long.
    Unrecorded,
}

impl Record {
    /// Records a new request, of which up to `max_trims` turns may be dropped. If that fails, the request is rejected
    /// before the provider is called, unless the project's settings allow unrecorded requests.
    pub(super) async fn begin(passage: &mut Passage, provider: &Provider, max_trims: usize) -> Result<Self> {
        let Passage { app, tenant, is_remembered, id, options, memory, asked, .. } = passage;
        let keeps = |domain| tenant.policy.capture(domain) != Capture::Off;
        let generation = options.generation.filter(|_| keeps(Domain::Generations));
        let mut record = Self {
            app: app.clone(),
            tenant: Arc::clone(tenant),
            id: *id,
            memory: memory.clone(),
            keeps: if keeps(Domain::Messages) || generation.is_some() {
                Keeps::Wanted
            } else {
                Keeps::Nothing
            },
            attempt: generation.map(|generation| (generation, options.attempt)),
            begun: Begun::default(),
            provider_key: provider.key(options.provider_key.as_ref()).map(str::to_owned),
        };
        if record.keeps == Keeps::Nothing {
            return Ok(record);
        }
        let keeps_texts = tenant.policy.capture(Domain::Messages) == Capture::Full;
        let reason = if *is_remembered {
            Some(LATE)
        } else {
            Some(TOO_LONG).filter(|_| keeps_texts && asked.longest() > LONGEST)
        };
        if let Some(reason) = reason {
            record.keeps = Keeps::Unrecorded;
            unrecorded(&reason);
            return Ok(record);
        }
        let new = NewSend {
            mode: AskedMode::Record,
            id: None,
            pair_id: None,
            user_text: Some(std::mem::take(&mut asked.user_text)),
            model: Some(asked.model.clone()).into(),
            topic_id: options.topic.clone().into(),
            session_id: options.session.clone().or_else(|| asked.session.clone()).into(),
            visible: None,
            pairs: None,
            system: asked.system.clone(),
            settings: Some(SendSettings {
                max_trim_attempts: i32::try_from(max_trims).ok(),
                ..SendSettings::default()
            }),
            reask_of: None,
            stream: None,
        };
        let mut passed = std::mem::take(&mut asked.passed);
        passed.generation_id = generation;
        passed.begun = record.begun.clone();
        let begun = async {
            if let Some((generation, number)) = record.attempt {
                let (db, project) = (&record.app.db, &record.tenant.name);
                let room = generations::store::expect_room(db, project, generation, number);
                record.app.longest_statement.while_heard(room).await??;
            }
            record.write(vec![Event::passed(record.id, new, passed).into()]).await
        };
        if !record.tenant.messages.passes_without_database() {
            begun.await?;
            return Ok(record);
        }
        let begun = tokio::time::timeout(PATIENCE, begun).await.unwrap_or(Err(LATE));
        match begun {
            Err(error) if error.is_transient() => {
                unrecorded(&error);
                record.keeps = Keeps::Unrecorded;
            }
            begun => begun?,
        }
        Ok(record)
    }

    /// Returns whether everything that should be recorded of the request has been recorded so far.
    pub(super) fn is_recorded(&self) -> bool {
        self.keeps != Keeps::Unrecorded
    }

    /// Records that a call failed and another one follows.
    pub(super) async fn called(&self, failure: Failure, started: Instant) -> bool {
        let failure = failure::without_key(failure, self.provider_key.as_deref());
        self.keep(vec![Event::called(self.id, failure, elapsed(started)).into()]).await
    }

    /// Records that the last call failed. Returns whether that succeeded.
    pub(super) async fn failed(&self, failure: Failure, started: Instant) -> bool {
        let failure = failure::without_key(failure, self.provider_key.as_deref());
        self.keep(vec![Event::failed(self.id, failure, elapsed(started)).since(&self.begun).into()]).await
    }

    /// Records that the send was cancelled.
    pub(super) async fn cancelled(&self, reason: CancelReason) -> bool {
        self.keep(vec![Event::cancel(self.id, reason).since(&self.begun).into()]).await
    }

    /// Records the answer, and an attempt with `prompt` as its prompt. Returns whether that succeeded.
    pub(super) async fn answered(
        &self,
        answer: &Answer,
        started: Instant,
        prompt: impl FnOnce() -> String,
    ) -> bool {
        let latency_ms = elapsed(started);
        let answered = Event::answered(self.id, answer, latency_ms).since(&self.begun);
        let mut events = vec![domain::Event::from(answered)];
        if let Some((generation, number)) = self.attempt {
            let usage = answer.usage.as_ref().and_then(|usage| FreeForm::of(usage).ok());
            let tokens = usage.as_ref().map(tokens_of).unwrap_or_default();
            let small = |tokens: Option<i64>| tokens.and_then(|tokens| i32::try_from(tokens).ok());
            let calls = || answer.tool_calls().map(|calls| calls.to_string());
            let said = Some(answer.text.clone()).filter(|text| !text.trim().is_empty()).or_else(calls);
            let new = generations::NewAttempt {
                attempt: number,
                timestamp: Timestamp::now().plus(TimeDelta::milliseconds(-i64::from(latency_ms))),
                prompt_text: Some(prompt()).filter(|prompt| prompt.len() <= LONGEST),
                raw_response: said.map(|text| text.replace('\0', "\u{fffd}")),
                latency_ms: Some(latency_ms),
                input_tokens: small(tokens.input),
                output_tokens: small(tokens.output),
                metadata: FreeForm::of(&json!({"send_id": self.id})).ok(),
                ..generations::NewAttempt::default()
            };
            events.push(generations::Event::append(generation, new, None).into());
        }
        self.keep(events).await
    }

    /// Writes the outcome of the request. Returns whether that succeeded. It is not a failure if the send was
    /// cancelled or erased meanwhile.
    async fn keep(&self, events: Vec<domain::Event>) -> bool {
        match self.keeps {
            Keeps::Nothing => return true,
            Keeps::Unrecorded => return false,
            Keeps::Wanted => {}
        }
        match self.write(events).await {
            Ok(()) => true,
            Err(error) => {
                unrecorded(&error);
                false
            }
        }
    }

    async fn write(&self, events: Vec<domain::Event>) -> Result<()> {
        let written = self.app.writer.write_all(&self.tenant, events, &self.memory).await;
        for (nth, written) in written.into_iter().enumerate() {
            match written {
                Err(Error::NotFound(_)) if nth == 0 => {}
                Err(Error::Conflict(_)) if nth == 0 && self.is_cancelled().await? => {}
                written => drop(written?),
            }
        }
        Ok(())
    }

    async fn is_cancelled(&self) -> Result<bool> {
        store::is_cancelled(&self.app.db, &self.tenant.name, self.id).await
    }
}

/// Counts the requests that were forwarded without a record.
fn unrecorded(error: &Error) {
    recurring::warn("a request is forwarded by the gateway without a record", error);
    metrics::counter!("gleaner_gateway_unrecorded_total").increment(1);
}

fn elapsed(started: Instant) -> i32 {
    i32::try_from(started.elapsed().as_millis()).unwrap_or(i32::MAX)
}
