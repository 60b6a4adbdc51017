//! The events of a send that the server performs or forwards itself.

use serde_json::value::RawValue;
use uuid::Uuid;

use super::{Action, Append, End, Event};
use crate::messages::begun::Begun;
use crate::messages::failure::{self, Failure};
use crate::messages::rules::estimate::Length;
use crate::messages::{CancelReason, NewAttempt, Tokens, tokens_of};
use crate::providers::answer::Answer;
use crate::types::{FreeForm, Timestamp};

impl Event {
    /// Makes the event that one of our calls failed and another one follows.
    #[must_use]
    pub fn called(send: Uuid, failure: Failure, latency_ms: i32) -> Self {
        let append = Append {
            line_id: None,
            new: NewAttempt { latency_ms: Some(latency_ms), ..NewAttempt::default() },
            failure: Some(failure),
            tokens: Tokens::default(),
            answer: Length::default(),
            at: Timestamp::now(),
            hash: b"called".to_vec(),
        };
        Self::new(send, Action::Attempt(Box::new(append)))
    }

    /// Makes the event that ends one of our sends with an answer.
    #[must_use]
    pub fn answered(send: Uuid, answer: &Answer, latency_ms: i32) -> Self {
        let usage = answer.usage.as_ref().and_then(|usage| FreeForm::of(usage).ok());
        let tool_calls = answer.tool_calls().and_then(|calls| RawValue::from_string(calls.to_string()).ok());
        let calls = tool_calls.as_ref().map_or_else(Length::default, |calls| Length::of(calls.get()));
        let end = End {
            assistant: Length::of(&answer.text).and(calls),
            assistant_text: Some(answer.text.replace('\0', "\u{fffd}")),
            tool_calls,
            failure: None,
            cancelled: false,
            tokens: usage.as_ref().map_or_else(Tokens::default, tokens_of),
            usage,
            finish_reason: answer.finish_reason.clone(),
            latency_ms: Some(latency_ms),
            begun: Begun::default(),
            hash: b"answered".to_vec(),
        };
        Self::new(send, Action::End(Box::new(end)))
    }

    /// Makes the event that ends one of our sends with a failure.
    #[must_use]
    pub fn failed(send: Uuid, failure: Failure, latency_ms: i32) -> Self {
        let end =
            End { latency_ms: Some(latency_ms), hash: b"failed".to_vec(), ..End::without_answer(failure) };
        Self::new(send, Action::End(Box::new(end)))
    }

    /// Makes the event that cancels a send.
    #[must_use]
    pub fn cancel(send: Uuid, reason: CancelReason) -> Self {
        let failure = failure::cancelled(reason);
        let end = End { cancelled: true, hash: b"cancelled".to_vec(), ..End::without_answer(failure) };
        Self::new(send, Action::End(Box::new(end)))
    }

    /// Hands the end of a send what the writer knows since the send's beginning.
    #[must_use]
    pub fn since(mut self, begun: &Begun) -> Self {
        if let Action::End(end) = &mut self.action {
            end.begun = begun.clone();
        }
        self
    }
}

impl End {
    fn without_answer(failure: Failure) -> Self {
        Self {
            assistant_text: None,
            tool_calls: None,
            assistant: Length::default(),
            failure: Some(failure),
            cancelled: false,
            usage: None,
            tokens: Tokens::default(),
            finish_reason: None,
            latency_ms: None,
            begun: Begun::default(),
            hash: Vec::new(),
        }
    }
}
