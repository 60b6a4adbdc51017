//! Events of message pairs and sends, as the writer takes them: validated, with their ids, times, lengths and hashes.

mod own;

use std::sync::OnceLock;

use chrono::TimeDelta;
use serde_json::value::RawValue;
use sqlx::PgExecutor;
use uuid::Uuid;

use super::begun::Begun;
use super::candidates::{self, Candidate};
use super::failure::{Failure, forget, understood};
use super::passed::Passed;
use super::requests::AskedMode;
use super::rules::estimate::Length;
use super::send::Mode;
use super::usage::{Tokens, numbers_of, tokens_of};
use super::visible::PairFilter;
use super::{NewAttempt, NewPair, NewSend, Outcome, Pair, PairChange, Send};
use crate::db::made::Made;
use crate::error::{Error, Result};
use crate::http::line::{Line, Record};
use crate::privacy::redact::{Redaction, Texts as _};
use crate::types::{FreeForm, Timestamp, request_hash};

/// The time after which a send with `mode: record` counts as interrupted.
const PATIENCE: TimeDelta = TimeDelta::hours(1);

/// The duration of the lease of a send that a server performs. The server renews the lease.
const LEASE: TimeDelta = TimeDelta::minutes(1);

/// Something that happens to a message pair or a send. It is validated, and has its id and times.
#[derive(Debug)]
pub struct Event {
    /// The id of the pair or the send.
    pub id: Uuid,
    /// What happens.
    pub action: Action,
    /// Whether the event must take effect after all earlier events of its batch, because a send may refer to any
    /// pair.
    pub in_order: bool,
}

/// The kinds of events, as batches and metrics name them. A change of a pair is no kind of line.
pub const KINDS: [&str; 5] = ["pair", "send", "send_attempt", "send_outcome", "pair_change"];

/// What happens to a message pair or a send.
#[derive(Debug)]
pub enum Action {
    /// A pair is made.
    Pair(Box<StartPair>),
    /// A send is made, and its pair.
    Send(Box<StartSend>),
    /// A call of a send has ended.
    Attempt(Box<Append>),
    /// A send ends.
    End(Box<End>),
    /// A pair is changed.
    Edit(Box<Edit>),
}

/// The beginning of a pair.
#[derive(Debug)]
pub struct StartPair {
    /// The client's request.
    pub new: NewPair,
    /// Whether the texts are kept.
    pub keeps_text: bool,
    /// When the pair was created.
    pub created_at: Timestamp,
    /// The length of what the user said.
    pub user: Length,
    /// The length of the answer.
    pub assistant: Length,
    /// The hash of the request, which distinguishes a repeated request from a conflicting one.
    pub hash: Vec<u8>,
}

/// A change of a pair.
#[derive(Debug)]
pub struct Edit {
    /// The client's request.
    pub change: PairChange,
    /// Whether the texts are kept.
    pub keeps_text: bool,
    /// The length of what the user said, if that is changed.
    pub user: Option<Length>,
    /// The length of the answer, if that is changed.
    pub assistant: Option<Length>,
}

/// The beginning of a send.
#[derive(Debug)]
pub struct StartSend {
    /// The client's request. Its pairs are in `given`.
    pub new: NewSend,
    /// Who calls the provider.
    pub mode: Mode,
    /// The id of the pair that the send makes.
    pub pair_id: Uuid,
    /// Whether the texts are kept.
    pub keeps_text: bool,
    /// The pairs in the request.
    pub given: Option<Vec<Candidate>>,
    /// The pairs that the filter of visible pairs has found. Empty until they were [looked up](Event::look_up).
    pub found: OnceLock<Vec<Uuid>>,
    /// The length of the new message. None if it is that of the pair in `reask_of`.
    pub user: Option<Length>,
    /// The length of the system message.
    pub system: Length,
    /// A hash of the system message, which identifies calls with the same one.
    pub system_hash: Option<Vec<u8>>,
    /// When the send was made.
    pub created_at: Timestamp,
    /// The time after which the send counts as interrupted.
    pub lease: TimeDelta,
    /// Further contents of a request to the gateway. None for other sends.
    pub passed: Option<Passed>,
    /// The hash of the request, which distinguishes a repeated request from a conflicting one.
    pub hash: Vec<u8>,
}

/// A call of a send.
#[derive(Debug)]
pub struct Append {
    /// The client's request.
    pub new: NewAttempt,
    /// The id by which the call is known when it is reported again without a number.
    pub line_id: Option<Uuid>,
    /// The error that the call ended with, and what it means.
    pub failure: Option<Failure>,
    /// The tokens that the provider reported.
    pub tokens: Tokens,
    /// The length of the answer, if it is known. Quotas go by it where no tokens were reported.
    pub answer: Length,
    /// When the call ended.
    pub at: Timestamp,
    /// The hash of the request, which distinguishes a repeated request from a conflicting one.
    pub hash: Vec<u8>,
}

/// The end of a send.
#[derive(Debug)]
pub struct End {
    /// What the model answered, if it did and the text is stored.
    pub assistant_text: Option<String>,
    /// The tools that the answer calls.
    pub tool_calls: Option<Box<RawValue>>,
    /// The length of the answer.
    pub assistant: Length,
    /// The error that the send ended with, and what it means. None if the model answered.
    pub failure: Option<Failure>,
    /// Whether the send was cancelled. Cancelling again is then no conflict.
    pub cancelled: bool,
    /// The usage that the provider reported.
    pub usage: Option<FreeForm>,
    /// The tokens that the provider reported.
    pub tokens: Tokens,
    /// Why the model stopped.
    pub finish_reason: Option<String>,
    /// The latency of the last call in milliseconds, if that call was not reported before.
    pub latency_ms: Option<i32>,
    /// What the writer knows of the send, if this server has just begun it.
    pub begun: Begun,
    /// The hash of the request, which distinguishes a repeated request from a conflicting one.
    pub hash: Vec<u8>,
}

impl Event {
    fn new(id: Uuid, action: Action) -> Self {
        Self { id, action, in_order: false }
    }

    /// Makes the event that creates a pair. `id` is used if the request has no id of its own. Without either, a new
    /// id is made.
    #[must_use]
    pub fn pair(new: NewPair, id: Option<Uuid>) -> Self {
        let start = StartPair {
            keeps_text: true,
            created_at: new.created_at.unwrap_or_else(Timestamp::now),
            user: Length::of(&new.user_text),
            assistant: new.assistant_text.as_deref().map_or_else(Length::default, Length::of),
            hash: request_hash(&new),
            new,
        };
        Self::new(start.new.id.or(id).unwrap_or_else(Uuid::now_v7), Action::Pair(Box::new(start)))
    }

    /// Makes the event that changes a pair.
    #[must_use]
    pub fn edit(pair: Uuid, change: PairChange) -> Self {
        let edit = Edit {
            keeps_text: true,
            user: change.user_text.as_deref().map(Length::of),
            assistant: change.assistant_text.as_deref().map(Length::of),
            change,
        };
        Self::new(pair, Action::Edit(Box::new(edit)))
    }

    /// Makes the event that creates a send. `id` is used as in [`Event::pair`].
    #[must_use]
    pub fn send(mut new: NewSend, id: Option<Uuid>) -> Self {
        let hash = request_hash(&new);
        let given = new.pairs.take().map(|pairs| pairs.into_iter().map(Candidate::given).collect());
        let start = StartSend {
            mode: match new.mode {
                AskedMode::Record => Mode::Record,
                AskedMode::Execute => Mode::Execute,
            },
            pair_id: new.pair_id.unwrap_or_else(Uuid::now_v7),
            keeps_text: true,
            given,
            found: OnceLock::new(),
            user: new.user_text.as_deref().map(Length::of),
            system: new.system.as_deref().map_or_else(Length::default, Length::of),
            system_hash: new.system.as_ref().map(request_hash),
            created_at: Timestamp::now(),
            lease: match new.mode {
                AskedMode::Record => PATIENCE,
                AskedMode::Execute => LEASE,
            },
            passed: None,
            hash,
            new,
        };
        Self::new(start.new.id.or(id).unwrap_or_else(Uuid::now_v7), Action::Send(Box::new(start)))
    }

    /// Makes the event that records a request to the gateway. The settings in `new` say how many turns may be
    /// dropped.
    #[must_use]
    pub fn passed(id: Uuid, new: NewSend, passed: Passed) -> Self {
        let event = Self::send(new, Some(id));
        let Action::Send(start) = event.action else { return event };
        let start = StartSend {
            mode: Mode::Gateway,
            lease: LEASE,
            system: passed.overhead,
            passed: Some(passed),
            ..*start
        };
        Self::new(id, Action::Send(Box::new(start)))
    }

    /// Makes the event that records the result of a call.
    #[must_use]
    pub fn attempt(send: Uuid, new: NewAttempt, line_id: Option<Uuid>) -> Self {
        let append = Append {
            line_id,
            failure: new.error.as_ref().map(|error| understood(error, None)),
            tokens: new.usage.as_ref().map_or_else(Tokens::default, tokens_of),
            answer: Length::default(),
            // A time to come would take a part of a quota until it has passed.
            at: new.at.map_or_else(Timestamp::now, |at| at.min(Timestamp::now())),
            hash: request_hash(&new),
            new,
        };
        Self::new(send, Action::Attempt(Box::new(append)))
    }

    /// Makes the event that a send ends.
    #[must_use]
    pub fn end(send: Uuid, outcome: Outcome) -> Self {
        let hash = request_hash(&outcome);
        let end = End {
            assistant: outcome.assistant_text.as_deref().map_or_else(Length::default, Length::of),
            tool_calls: None,
            failure: outcome.error.as_ref().map(|error| understood(error, None)),
            cancelled: false,
            tokens: outcome.usage.as_ref().map_or_else(Tokens::default, tokens_of),
            usage: outcome.usage,
            assistant_text: outcome.assistant_text,
            finish_reason: outcome.finish_reason.into(),
            latency_ms: None,
            begun: Begun::default(),
            hash,
        };
        Self::new(send, Action::End(Box::new(end)))
    }

    /// Returns whether the event makes a send that has to do with stored pairs.
    #[must_use]
    pub fn shows_pairs(&self) -> bool {
        matches!(&self.action, Action::Send(start) if start.new.shows_pairs())
    }

    /// Returns the beginning of a send whose visible pairs a filter finds, with that filter.
    fn filtered(&self) -> Option<(&StartSend, &PairFilter)> {
        let Action::Send(start) = &self.action else { return None };
        Some((start, start.new.visible.as_ref()?.filter.as_ref()?))
    }

    /// Returns whether the event has to be [looked up](Event::look_up) before it is written.
    #[must_use]
    pub fn looks_up(&self) -> bool {
        self.filtered().is_some()
    }

    /// Finds the visible pairs that match the filter of a send. That may take long, so the writer is only told which they are.
    /// Returns how many bytes their ids have.
    pub async fn look_up(&self, db: impl PgExecutor<'_>, project: &str) -> Result<usize> {
        if let Some((start, filter)) = self.filtered() {
            let found = candidates::found(db, project, filter, start.new.reask_of).await?;
            return Ok(size_of_val(start.found.get_or_init(|| found).as_slice()));
        }
        Ok(0)
    }

    /// Returns the record that the event makes, if it makes one. The pair of a send replaces the one that it asks again.
    #[must_use]
    pub fn made(&self) -> Option<Made> {
        match &self.action {
            Action::Pair(start) => Some(Made::one("pairs", self.id, start.new.id)),
            Action::Send(start) => {
                let mut made = Made::one("sends", self.id, start.new.id);
                made.found.extend(start.new.reask_of.map(|pair| (("pairs", "id"), pair)));
                Some(made)
            }
            Action::Attempt(_) | Action::End(_) | Action::Edit(_) => None,
        }
    }

    /// Returns the event's kind, one of [`KINDS`].
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match &self.action {
            Action::Pair(_) => "pair",
            Action::Send(_) => "send",
            Action::Attempt(_) => "send_attempt",
            Action::End(_) => "send_outcome",
            Action::Edit(_) => "pair_change",
        }
    }

    /// Applies the project's redaction rules to every text. Lengths, and the hashes that recognize a repeated
    /// request, are those of the original text.
    pub fn redact(&mut self, redaction: &mut Redaction<'_>) {
        match &mut self.action {
            Action::Pair(start) => {
                start.new.texts(redaction);
                redaction.hide(&mut start.hash);
            }
            Action::Edit(edit) => edit.change.texts(redaction),
            Action::Send(start) => {
                start.new.texts(redaction);
                start.given.texts(redaction);
                start.system_hash.iter_mut().for_each(|hash| redaction.hide(hash));
                start.passed.iter_mut().for_each(|passed| passed.redact(redaction));
                redaction.hide(&mut start.hash);
            }
            Action::Attempt(append) => {
                append.new.texts(redaction);
                append.failure.iter_mut().for_each(|failure| failure.0.texts(redaction));
                redaction.hide(&mut append.hash);
            }
            Action::End(end) => {
                end.assistant_text.texts(redaction);
                end.tool_calls.texts(redaction);
                end.usage.texts(redaction);
                end.finish_reason.texts(redaction);
                end.failure.iter_mut().for_each(|failure| failure.0.texts(redaction));
                redaction.hide(&mut end.hash);
            }
        }
    }

    /// Removes every text. Figures, lengths, kinds of errors, names and times stay.
    pub fn reduce(&mut self) {
        match &mut self.action {
            Action::Pair(start) => {
                start.keeps_text = false;
                start.new.user_text.clear();
                start.new.assistant_text.iter_mut().for_each(String::clear);
            }
            Action::Edit(edit) => {
                edit.keeps_text = false;
                edit.change.user_text.iter_mut().for_each(String::clear);
                edit.change.assistant_text.iter_mut().for_each(String::clear);
            }
            Action::Send(start) => {
                start.keeps_text = false;
                start.new.user_text.iter_mut().for_each(String::clear);
                start.new.system.iter_mut().for_each(String::clear);
                start.given.iter_mut().flatten().for_each(Candidate::forget);
                start.passed.iter_mut().for_each(|passed| passed.messages.clear());
            }
            Action::Attempt(append) => {
                append.new.error = None;
                append.new.usage = append.new.usage.as_ref().map(numbers_of);
                forget(&mut append.failure);
            }
            Action::End(end) => {
                end.assistant_text = None;
                end.tool_calls = None;
                end.usage = end.usage.as_ref().map(numbers_of);
                forget(&mut end.failure);
            }
        }
    }
}

impl Record for Send {
    type Id = Uuid;

    const MEMBER: &'static str = "send_id";
    const NAME: &'static str = "send";
}

impl Record for Pair {
    type Id = Uuid;

    const MEMBER: &'static str = "pair";
    const NAME: &'static str = "pair";
}

/// Reads a line of a batch if its kind is one of this domain's. Returns none for another domain's kind.
pub fn read(kind: Option<&str>, line: &Line<'_>) -> Option<Result<Event>> {
    let event = match kind? {
        "pair" => line.start::<_, Pair>().map(|new| Event::pair(new, line.id)),
        "send" => line.start::<NewSend, Send>().and_then(|new| match new.mode {
            AskedMode::Record => Ok(Event::send(new, line.id)),
            AskedMode::Execute => Err(Error::invalid("/mode", "must be record in a batch")),
        }),
        "send_attempt" => line.child::<_, Send>().map(|(send, new)| Event::attempt(send, new, line.id)),
        "send_outcome" => line.change::<_, Send>().map(|(send, outcome)| Event::end(send, outcome)),
        _ => return None,
    };
    Some(event.map(|event| Event { in_order: true, ..event }))
}
