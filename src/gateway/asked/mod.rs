//! Parses a request as far as its record needs it: the model, the messages, and their positions in the body. All
//! other members are left to the provider.

mod message;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::ops::Range;

use axum::body::Bytes;
use serde::Deserialize;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use uuid::Uuid;

use self::message::{
    has_media, is_human, is_media, is_of_system, is_of_user, lines, own_text, said_beside_result,
};
use crate::agents::{is_asked_by_agent, is_told_by_agent};
use crate::error::{Error, Result};
use crate::http::clean::clean_json;
use crate::messages::passed::{Passed, SentMessage};
use crate::messages::rules::estimate::Length;
use crate::providers::answer::{Api, text};
use crate::types::value;

/// A parsed request.
#[derive(Debug)]
pub(super) struct Asked {
    /// The model, as the client names it.
    pub(super) model: String,
    /// The session that the body names. Claude Code sends it there.
    pub(super) session: Option<String>,
    /// The last human message. It is empty if an agent asks for itself.
    pub(super) user_text: String,
    /// The system message, if it is not part of the list of messages.
    pub(super) system: Option<String>,
    /// The number of answers that are asked for.
    pub(super) choices: u64,
    /// The conversation.
    pub(super) passed: Passed,
    model_at: Range<usize>,
    /// The position of the list of messages.
    list_at: Range<usize>,
    /// The position of each message, and the number of the turn with which it can be dropped.
    messages_at: Vec<(Range<usize>, Option<usize>)>,
    /// The message after the last human one in which the person has said something beside the result of a tool.
    spoken: Option<Uuid>,
    /// Whether a system message says that an agent asks for itself.
    is_agents_own: bool,
}

/// The members of a body that are read.
#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct Body<'a> {
    #[serde(borrow)]
    model: Option<&'a RawValue>,
    #[serde(borrow)]
    messages: Option<&'a RawValue>,
    #[serde(borrow)]
    input: Option<&'a RawValue>,
    system: Option<Value>,
    instructions: Option<Value>,
    #[serde(borrow)]
    tools: Option<&'a RawValue>,
    metadata: Option<Value>,
    previous_response_id: Option<Value>,
    conversation: Option<Value>,
    prompt: Option<Value>,
    n: Option<Value>,
}

impl Body<'_> {
    /// Returns a name of what the provider remembers of the conversation and puts before the messages, or an empty text. A
    /// conversation grows under the same name, so that each request has a name of its own.
    fn remembered(&self) -> String {
        match (&self.previous_response_id, &self.conversation) {
            (Some(response), _) => response.to_string(),
            (None, Some(_)) => Uuid::now_v7().to_string(),
            (None, None) => String::new(),
        }
    }
}

/// The maximum number of characters of the name of a model, as in other requests.
const LONGEST_NAME: usize = 200;

/// Returns the name of a model.
fn name_of(model: &RawValue) -> Result<String> {
    let name: String =
        serde_json::from_str(model.get()).map_err(|_| Error::invalid("/model", "must be a text"))?;
    if name.chars().count() > LONGEST_NAME {
        return Err(Error::invalid("/model", format!("has more than {LONGEST_NAME} characters")));
    }
    Ok(name)
}

/// The position of a part of a text.
fn place(whole: &str, part: &str) -> Range<usize> {
    let start = part.as_ptr().addr() - whole.as_ptr().addr();
    start..start + part.len()
}

impl Asked {
    /// Parses a body, whose text has been cleaned. `session` is the session that the headers name.
    pub(super) fn read(api: Api, body: &str, session: Option<&str>) -> Result<Self> {
        let not_json =
            |error: serde_json::Error| Error::Malformed(format!("the body cannot be read: {error}"));
        let read: Body<'_> = serde_json::from_str(body).map_err(not_json)?;
        let model = read.model.ok_or_else(|| Error::invalid("/model", "must be given"))?;
        let list = if api == Api::Responses { read.input } else { read.messages };
        let remembered = read.remembered();
        let own = read.metadata.as_ref().and_then(|metadata| session_of(&metadata["user_id"]));
        let mut asked = Self {
            model: name_of(model)?,
            user_text: String::new(),
            choices: read.n.and_then(|n| n.as_u64()).unwrap_or(1),
            system: read.system.or(read.instructions).map(|system| text(&system).into_owned()),
            passed: Passed {
                has_more: !remembered.is_empty() || read.prompt.is_some_and(|prompt| prompt.is_object()),
                ..Passed::default()
            },
            model_at: place(body, model.get()),
            list_at: list.map_or(0..0, |list| place(body, list.get())),
            messages_at: Vec::new(),
            spoken: None,
            is_agents_own: false,
            session: own,
        };
        asked.is_agents_own = asked.system.as_deref().is_some_and(is_told_by_agent);
        for part in asked.system.as_deref().into_iter().chain(read.tools.map(RawValue::get)) {
            asked.passed.overhead = asked.passed.overhead.and(Length::of(part));
        }
        let Some(list) = list else { return Ok(asked) };
        let session = session.map(str::to_owned).or_else(|| asked.session.clone());
        if list.get().starts_with('"') {
            // In the Responses API, a plain text is the human message.
            let said: Value = serde_json::from_str(list.get()).map_err(not_json)?;
            let message = json!({"role": "user", "content": said});
            let raw = to_raw_value(&message).map_err(not_json)?;
            asked.push(message, raw, session.as_deref(), &remembered, None);
        } else {
            let items: Vec<&RawValue> = serde_json::from_str(list.get()).map_err(not_json)?;
            let newest = items.len().saturating_sub(1);
            for (nth, raw) in items.into_iter().enumerate() {
                let message = value::parse(raw.get()).map_err(not_json)?;
                asked.is_agents_own |=
                    nth == newest && is_of_user(&message) && is_asked_by_agent(&text(&message["content"]));
                let at = Some(place(body, raw.get()));
                asked.push(message, raw.to_owned(), session.as_deref(), &remembered, at);
            }
        }
        // The last turn is the new message; the others can be dropped.
        if let Some((turn, length)) = asked.passed.turns.pop() {
            asked.passed.turn = Some(turn);
            asked.passed.user = length;
        }
        asked.passed.turn = asked.spoken.or(asked.passed.turn);
        if asked.is_agents_own || is_asked_by_agent(&asked.user_text) {
            // Nobody has said anything new, and the answer is not one to what was said before. Copies are still found.
            asked.user_text.clear();
            asked.passed.turn = None;
        }
        let newest = asked.passed.turns.len();
        for (_, turn) in &mut asked.messages_at {
            *turn = turn.filter(|turn| *turn < newest);
        }
        Ok(asked)
    }

    fn push(
        &mut self,
        message: Value,
        raw: Box<RawValue>,
        session: Option<&str>,
        remembered: &str,
        at: Option<Range<usize>>,
    ) {
        self.passed.has_more |= has_media(&message);
        let length = Length::of_lines(&lines(&message));
        let begins = is_human(&message);
        let said = if begins { Some(own_text(&message["content"])) } else { said_beside_result(&message) };
        let said = said.map(Cow::into_owned);
        let stays = is_of_system(&message) && !begins;
        self.is_agents_own |= stays && is_told_by_agent(&own_text(&message["content"]));
        let shows = message["content"].as_array().is_some_and(|parts| parts.iter().any(is_media));
        let follows = self.passed.messages.last().is_some_and(|last| Some(last.content) == self.passed.said);
        let mut sent = SentMessage::new(session, self.passed.messages.last(), remembered, message, raw);
        if let Some(said) = said {
            sent.say(session, &said);
            self.user_text = said;
            self.passed.said = Some(sent.content);
            // A person may send a picture, and then what they say of it.
            self.passed.has_media = shows || follows && self.passed.has_media;
            // What is said beside the result of a tool is dropped with the call of the tool, and not before it.
            self.spoken = (!begins).then_some(sent.id);
            if begins {
                self.passed.turns.push((sent.id, Length::default()));
            }
        }
        match self.passed.turns.last_mut() {
            Some((_, turn)) if !stays => *turn = turn.and(length),
            _ => self.passed.overhead = self.passed.overhead.and(length),
        }
        if let Some(at) = at {
            self.messages_at.push((at, self.passed.turns.len().checked_sub(1).filter(|_| !stays)));
        }
        self.passed.messages.push(sent);
    }

    /// Returns how many bytes the longest message has, or the system message.
    pub(super) fn longest(&self) -> usize {
        let messages = self.passed.messages.iter().map(|sent| sent.message.get().len());
        messages.chain(self.system.as_deref().map(str::len)).max().unwrap_or_default()
    }

    /// Returns the body to forward: with the provider's own name of the model, and without the oldest turns.
    pub(super) fn request(&self, body: &Bytes, model: &str, dropped: usize) -> Bytes {
        let mut changes: Vec<(Range<usize>, Cow<'_, [u8]>)> = Vec::new();
        if model != self.model {
            changes.push((self.model_at.clone(), Value::from(model).to_string().into_bytes().into()));
        }
        if dropped > 0 {
            let left = self.messages_at.iter().filter(|(_, turn)| turn.is_none_or(|turn| turn >= dropped));
            let left: Vec<_> = left.map(|(at, _)| &body[at.clone()]).collect();
            let list = [b"[".as_slice(), &left.join(&b','), b"]"].concat();
            changes.push((self.list_at.clone(), list.into()));
        }
        if changes.is_empty() {
            return body.clone();
        }
        changes.sort_by_key(|(at, _)| at.start);
        let (mut written, mut from) = (Vec::with_capacity(body.len()), 0);
        for (at, new) in changes {
            written.extend_from_slice(&body[from..at.start]);
            written.extend_from_slice(&new);
            from = at.end;
        }
        written.extend_from_slice(&body[from..]);
        written.into()
    }

    /// Returns the messages that are left after so many turns were dropped, as JSON. Characters that Postgres cannot store
    /// are replaced.
    pub(super) fn prompt(&self, body: &Bytes, dropped: usize) -> String {
        let system = self.system.as_deref().filter(|text| !text.trim().is_empty());
        let system = system.map(|text| json!({"role": "system", "content": text}).to_string());
        let said = Some(&self.list_at).filter(|at| body.get(at.start) == Some(&b'"'));
        let left = self.messages_at.iter().filter(|(_, turn)| turn.is_none_or(|turn| turn >= dropped));
        let plain = |part| [&b""[..], part, b""];
        let parts = system.iter().map(|system| plain(system.as_bytes()));
        let parts =
            parts.chain(said.map(|at| [&br#"{"role":"user","content":"#[..], &body[at.clone()], b"}"]));
        let parts = parts.chain(left.map(|(at, _)| plain(&body[at.clone()])));
        let mut prompt = Vec::with_capacity(body.len());
        prompt.push(b'[');
        for (nth, parts) in parts.enumerate() {
            if nth > 0 {
                prompt.push(b',');
            }
            for part in parts {
                prompt.extend_from_slice(part);
            }
        }
        prompt.push(b']');
        // What was parsed can be cleaned, because it was before.
        let _ = clean_json(&mut prompt);
        String::from_utf8(prompt)
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
    }
}

/// Returns the session in the `user_id` of Claude Code: the JSON of an object, or a text that ends with it.
fn session_of(user_id: &Value) -> Option<String> {
    let user_id = user_id.as_str()?;
    let object = value::parse_inner(user_id).ok();
    let session = match object.as_ref().and_then(|object| object["session_id"].as_str()) {
        Some(session) => session,
        None => user_id.rsplit_once("_session_")?.1,
    };
    (1..=200).contains(&session.len()).then(|| session.to_owned())
}
