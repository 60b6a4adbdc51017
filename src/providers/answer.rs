//! Parses the answers of providers, whole or streamed, in the format of each API.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use axum::body::Bytes;
use serde::de::{DeserializeSeed as _, IgnoredAny};
use serde_json::{Map, Value, json};

use super::Kind;
use crate::http::clean::{MOST_VALUES, clean_json};
use crate::messages::failure::{self, ERROR_BODY, Failure};
use crate::privacy::cut::beginning;
use crate::sharing::apart;
use crate::types::value::{self, Few};

/// An API of a provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Api {
    /// Chat Completions of `OpenAI`, which most other providers offer too.
    ChatCompletions,
    /// Responses of `OpenAI`.
    Responses,
    /// Messages of Anthropic.
    Messages,
}

impl Api {
    /// Whose API it is.
    #[must_use]
    pub fn kind(self) -> Kind {
        match self {
            Self::ChatCompletions | Self::Responses => Kind::Openai,
            Self::Messages => Kind::Anthropic,
        }
    }

    /// The path of the API below a provider's address.
    #[must_use]
    pub fn path(self) -> &'static str {
        match self {
            Self::ChatCompletions => "chat/completions",
            Self::Responses => "responses",
            Self::Messages => "messages",
        }
    }
}

/// The number of bytes of an answer that is read as a whole for which memory is held before its first piece is read: as many as
/// the client of HTTP reads at once. A piece of this size is in its connection while the one before it waits for memory.
pub const ARRIVING: usize = 400 << 10;

/// Returns for how many bytes of an answer memory is held before any of them is read.
#[must_use]
pub fn arriving(answer: &reqwest::Response) -> usize {
    let length = answer.content_length().and_then(|length| usize::try_from(length).ok());
    length.unwrap_or(ARRIVING).min(ARRIVING)
}

/// The maximum size in bytes of an answer that is not streamed and is recorded.
pub const MOST_ANSWER: usize = 32 << 20;
/// The maximum size in bytes of the text and the tool calls of an answer that are recorded, which is more than any model
/// writes, and as much as a client may report as an answer.
const MOST_TEXT: usize = 2 << 20;
/// The number of bytes that a tool call is assumed to take besides its texts.
const CALL: usize = 100;
/// The maximum number of members of a usage.
const MOST_USAGE: usize = 100;
/// The maximum size in bytes of a member of a usage, with its name.
const LONGEST_USAGE: usize = 1_000;
/// The maximum size in bytes of the reason why a model stopped.
const LONGEST_REASON: usize = 200;
/// The maximum number of answers of a stream that are told apart.
const MOST_CHOICES: u64 = 1_000;
/// The size in bytes from which a whole answer is read on a thread of its own, so that other requests do not wait.
const LARGE: usize = 256 << 10;

/// An answer, as far as it has come.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// The text.
    pub text: String,
    /// The tools that the answer calls, in their order, as `OpenAI` writes them: by the index that the provider gives them, and
    /// among those to which it gives the same, by their order.
    calls: BTreeMap<(u64, u64), Call>,
    /// The usage that the provider reported.
    pub usage: Option<Map<String, Value>>,
    /// Why the model stopped.
    pub finish_reason: Option<String>,
    /// Whether the answer has come to its end.
    pub is_whole: bool,
    /// Whether text or tool calls of the answer were left out, because there was no memory for them.
    pub is_cut: bool,
    /// The error that the provider reported in the middle of the answer.
    pub error: Option<String>,
    /// Whether each of the answers that the client has asked for has come to its end, in a stream of chunks.
    choices: BTreeMap<u64, bool>,
    /// How many of them there are to be.
    asked: usize,
    /// The number of bytes of the text and the tool calls.
    size: usize,
    /// The maximum of `size`. The answer keeps no more text and no more tool calls then.
    most: usize,
}

impl Default for Answer {
    fn default() -> Self {
        Self {
            text: String::new(),
            calls: BTreeMap::new(),
            usage: None,
            finish_reason: None,
            is_whole: false,
            is_cut: false,
            error: None,
            choices: BTreeMap::new(),
            asked: 1,
            size: 0,
            most: MOST_TEXT,
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq)]
struct Call {
    id: String,
    name: String,
    arguments: String,
}

impl Call {
    /// Returns whether a piece with this id and this name begins another call, although it has the same index. Some providers
    /// send each call whole and with the same index, and not all of them give it an id.
    fn is_followed_by(&self, id: &str, name: &str) -> bool {
        if self.id.is_empty() && id.is_empty() {
            !name.is_empty() && serde_json::from_str::<IgnoredAny>(&self.arguments).is_ok()
        } else {
            !self.id.is_empty() && !id.is_empty() && self.id != id
        }
    }
}

impl Answer {
    /// Begins a stream with so many answers, as the client has asked for.
    #[must_use]
    pub fn of(asked: u64) -> Self {
        let asked = usize::try_from(asked.clamp(1, MOST_CHOICES)).unwrap_or(1);
        Self { asked, ..Self::default() }
    }

    /// Reads the whole answer to a request of a project, or why there is none to record.
    pub async fn whole(project: &Arc<str>, api: Api, body: Bytes) -> Result<Self, Failure> {
        let read = {
            let body = body.clone();
            move || Self::read(api, &body).ok_or_else(|| value::count(&body) > MOST_VALUES)
        };
        let read = if body.len() < LARGE { read() } else { apart(project, read).await };
        match read {
            Ok(answer) => answer.failure().map_or(Ok(answer), Err),
            Err(true) => Err(failure::no_memory()),
            Err(false) => Err(failure::said(&String::from_utf8_lossy(&body))),
        }
    }

    /// Reads a whole answer. Returns none if the body is no answer of this API.
    #[must_use]
    pub fn read(api: Api, body: &[u8]) -> Option<Self> {
        let body = parse(api, body)?;
        let mut answer = Self { is_whole: true, ..Self::default() };
        match api {
            Api::ChatCompletions => {
                let choice = body["choices"].get(0)?;
                let message = &choice["message"];
                answer.add(&said(message));
                for (index, call) in (0..).zip(message["tool_calls"].as_array().into_iter().flatten()) {
                    answer.call(
                        index,
                        &call["id"],
                        &call["function"]["name"],
                        &call["function"]["arguments"],
                    );
                }
                answer.finish_reason = reason(&choice["finish_reason"]);
            }
            Api::Responses => {
                answer.output(&body);
                answer.finish_reason = reason(&body["status"]);
                match body["status"].as_str() {
                    Some("failed") => answer.fail(&body),
                    Some("cancelled" | "queued" | "in_progress") => answer.is_whole = false,
                    _ => drop(body["output"].as_array()?),
                }
            }
            Api::Messages => {
                for (index, block) in (0..).zip(body["content"].as_array()?) {
                    answer.block(index, block);
                }
                answer.finish_reason = reason(&body["stop_reason"]);
            }
        }
        answer.usage(&body["usage"]);
        Some(answer)
    }

    /// Returns whether a streamed answer has come to its end, or to an error.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.is_whole || self.error.is_some()
    }

    /// Returns why what was read is not the whole answer of the provider, if it is not.
    #[must_use]
    pub fn failure(&self) -> Option<Failure> {
        match &self.error {
            Some(error) => Some(failure::said(error)),
            None if self.is_cut => Some(failure::no_memory()),
            None if self.is_whole => None,
            None => Some(failure::cut_stream()),
        }
    }

    /// Returns the number of bytes of the text and the tool calls so far.
    #[must_use]
    pub fn size(&self) -> usize {
        self.size
    }

    /// Keeps no more text and no more tool calls than there are so far. The end of the answer is still found.
    pub fn close(&mut self) {
        self.most = self.size;
    }

    /// Takes the data of a streamed event. Returns the text that it adds.
    pub fn event(&mut self, api: Api, data: &str) -> Option<String> {
        if data == "[DONE]" {
            self.is_whole = true;
            return None;
        }
        let event = parse(api, data.as_bytes())?;
        if event["error"].is_object() || event["type"] == "error" {
            self.error = Some(beginning(data, ERROR_BODY).to_owned());
            return None;
        }
        let before = self.text.len();
        match api {
            Api::ChatCompletions => self.chunk(&event),
            Api::Responses => self.response_event(&event),
            Api::Messages => self.message_event(&event),
        }
        // The end of a response repeats the whole text, in which its parts are separate lines.
        let is_repeated = before > 0 && self.is_whole && api == Api::Responses;
        let added = self.text.get(before..).filter(|added| !added.is_empty() && !is_repeated);
        added.map(str::to_owned)
    }

    /// Returns the tools that the answer calls, as `OpenAI` writes them, if it calls any.
    #[must_use]
    pub fn tool_calls(&self) -> Option<Value> {
        let calls = self.calls.values().map(|Call { id, name, arguments }| {
            json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}})
        });
        let calls: Vec<_> = calls.collect();
        (!calls.is_empty()).then_some(Value::Array(calls))
    }

    /// Appends to the text up to the maximum size that is recorded.
    fn add(&mut self, text: &str) {
        self.text.push_str(text);
        let most = self.text.len() - text.len() + self.most.saturating_sub(self.size);
        self.size += text.len();
        if self.text.len() > most {
            // A text that comes in pieces may be cut in the middle of a word, too.
            self.text.truncate(beginning(&self.text, most).len());
            self.size = self.most;
            self.is_cut = true;
        }
    }

    fn chunk(&mut self, event: &Value) {
        self.usage(&event["usage"]);
        for choice in event["choices"].as_array().into_iter().flatten() {
            self.choice(choice);
        }
    }

    /// Takes what a chunk adds to one of the answers that a client has asked for. The first one is recorded. The stream has
    /// come to its end when all of them have, also those that have not begun yet.
    fn choice(&mut self, choice: &Value) {
        let index = choice["index"].as_u64().unwrap_or_default().min(MOST_CHOICES);
        let reason = reason(&choice["finish_reason"]);
        *self.choices.entry(index).or_default() |= reason.is_some();
        self.is_whole = self.choices.len() >= self.asked && self.choices.values().all(|has_ended| *has_ended);
        if index > 0 {
            return;
        }
        self.add(&said(&choice["delta"]));
        for call in choice["delta"]["tool_calls"].as_array().into_iter().flatten() {
            let index = call["index"].as_u64().unwrap_or_default();
            self.call(index, &call["id"], &call["function"]["name"], &call["function"]["arguments"]);
        }
        self.finish_reason = reason.or_else(|| self.finish_reason.take());
    }

    fn message_event(&mut self, event: &Value) {
        let index = event["index"].as_u64().unwrap_or_default();
        match event["type"].as_str().unwrap_or_default() {
            "message_start" => self.usage(&event["message"]["usage"]),
            "content_block_start" => self.block(index, &event["content_block"]),
            "content_block_delta" => {
                let delta = &event["delta"];
                self.add(delta["text"].as_str().unwrap_or_default());
                // What the provider's own tools are given comes in the same way.
                if delta["type"] == "input_json_delta" && self.calls.contains_key(&(index, 0)) {
                    self.call(index, &Value::Null, &Value::Null, &delta["partial_json"]);
                }
            }
            "message_delta" => {
                self.usage(&event["usage"]);
                self.finish_reason =
                    reason(&event["delta"]["stop_reason"]).or_else(|| self.finish_reason.take());
            }
            "message_stop" => self.is_whole = true,
            _ => {}
        }
    }

    fn response_event(&mut self, event: &Value) {
        match event["type"].as_str().unwrap_or_default() {
            "response.output_text.delta" | "response.refusal.delta" => {
                self.add(event["delta"].as_str().unwrap_or_default());
            }
            "response.completed" | "response.incomplete" => {
                let response = &event["response"];
                let streamed = std::mem::take(&mut self.text);
                self.size -= streamed.len();
                self.output(response);
                if self.text.len() < streamed.len() {
                    self.size += streamed.len() - self.text.len();
                    self.text = streamed;
                }
                self.usage(&response["usage"]);
                self.finish_reason = reason(&response["status"]);
                self.is_whole = true;
            }
            "response.failed" => self.fail(&event["response"]),
            _ => {}
        }
    }

    /// Takes the error of a response that has failed.
    fn fail(&mut self, response: &Value) {
        self.error = Some(beginning(&response["error"].to_string(), ERROR_BODY).to_owned());
    }

    /// Reads the items of a response's output. An item with the id of a call is one that the client has to answer. The others
    /// are calls of the provider's own tools.
    fn output(&mut self, response: &Value) {
        for (index, item) in (0..).zip(response["output"].as_array().into_iter().flatten()) {
            let kind = item["type"].as_str().unwrap_or_default();
            if kind == "message" {
                self.add(&text(&item["content"]));
            } else if is_call(kind) || kind.ends_with("_call") && item["call_id"].is_string() {
                let name = if item["name"].is_string() { &item["name"] } else { &item["type"] };
                let given = ["arguments", "input", "action", "operation"].map(|member| &item[member]);
                let given = given.into_iter().find(|given| !given.is_null()).unwrap_or(&Value::Null);
                self.call(index, &item["call_id"], name, given);
            }
        }
    }

    /// Reads a content block of Anthropic's.
    fn block(&mut self, index: u64, block: &Value) {
        match block["type"].as_str().unwrap_or_default() {
            "text" => self.add(block["text"].as_str().unwrap_or_default()),
            "tool_use" => {
                let whole = block["input"].as_object().is_some_and(|input| !input.is_empty());
                let given = if whole { &block["input"] } else { &Value::Null };
                self.call(index, &block["id"], &block["name"], given);
            }
            _ => {}
        }
    }

    /// Takes a call of a tool, or a further piece of the newest call with this index.
    fn call(&mut self, index: u64, id: &Value, called: &Value, arguments: &Value) {
        let [id, called] = [id, called].map(|part| part.as_str().unwrap_or_default());
        let arguments = match arguments {
            Value::String(arguments) => Cow::from(arguments),
            Value::Null => "".into(),
            arguments => arguments.to_string().into(),
        };
        let newest = self.calls.range((index, 0)..=(index, u64::MAX)).next_back();
        let nth = newest.map_or(0, |(&(_, nth), call)| nth + u64::from(call.is_followed_by(id, called)));
        if !self.calls.contains_key(&(index, nth)) {
            if self.size + CALL > self.most {
                self.is_cut = true;
                return;
            }
            self.size += CALL;
        }
        let call = self.calls.entry((index, nth)).or_default();
        // Some providers repeat the id and the name with each piece.
        let id = if call.id == id { "" } else { id };
        let called = if call.name == called { "" } else { called };
        for (part, added) in [(&mut call.id, id), (&mut call.name, called), (&mut call.arguments, &arguments)]
        {
            let fitting = fitting(&mut self.size, self.most, added);
            self.is_cut |= fitting.len() < added.len();
            part.push_str(fitting);
        }
    }

    fn usage(&mut self, usage: &Value) {
        if let Some(usage) = usage.as_object() {
            let known = self.usage.get_or_insert_default();
            for (name, value) in usage.iter().filter(|(name, value)| is_usage(name, value)) {
                if known.len() < MOST_USAGE || known.contains_key(name) {
                    known.insert(name.clone(), value.clone());
                }
            }
        }
    }
}

/// Returns the part of a text for which there is room in an answer of this size, and adds it to the size.
fn fitting<'a>(size: &mut usize, most: usize, text: &'a str) -> &'a str {
    let fitting = beginning(text, most.saturating_sub(*size));
    *size = if fitting.len() < text.len() { most } else { *size + text.len() };
    fitting
}

/// Returns whether a value can be a member of a usage, which is any but null that is small.
fn is_usage(name: &str, value: &Value) -> bool {
    !value.is_null() && name.len() + value.to_string().len() < LONGEST_USAGE
}

/// Returns whether an item of this type is a call of a tool of the client.
fn is_call(kind: &str) -> bool {
    ["function_call", "custom_tool_call"].contains(&kind)
}

/// Parses JSON of a provider, unless it has more values than any answer. Characters that Postgres cannot store are replaced.
fn parse(api: Api, json: &[u8]) -> Option<Value> {
    let mut clean = json.to_vec();
    clean_json(&mut clean).ok()?;
    let mut left = MOST_VALUES;
    // Twenty probabilities for each token are many times more than all else, and nobody reads them here.
    let without = (api.kind() == Kind::Openai).then_some("logprobs");
    let mut parser = serde_json::Deserializer::from_slice(&clean);
    let value = Few { left: &mut left, without }.deserialize(&mut parser).ok()?;
    parser.end().ok().map(|()| value)
}

/// Returns the text of a message's content, which is a text or an array of parts, of which some say that the model refuses.
#[must_use]
pub fn text(content: &Value) -> Cow<'_, str> {
    match content {
        Value::String(text) => text.into(),
        Value::Array(parts) => {
            let texts =
                parts.iter().filter_map(|part| part["text"].as_str().or_else(|| part["refusal"].as_str()));
            joined(&texts.collect::<Vec<_>>())
        }
        _ => "".into(),
    }
}

/// Returns texts as the lines of one. A single text is not copied.
#[must_use]
pub fn joined<'a>(texts: &[&'a str]) -> Cow<'a, str> {
    if let [text] = texts { (*text).into() } else { texts.join("\n").into() }
}

/// Returns the text of a chat's message or of a piece of it: its content, or else the model's refusal to answer.
fn said(message: &Value) -> Cow<'_, str> {
    let said = text(&message["content"]);
    if said.is_empty() { text(&message["refusal"]) } else { said }
}

/// Returns a reason why a model stopped, or its beginning. Some providers send an empty one until the model stops.
fn reason(value: &Value) -> Option<String> {
    value.as_str().filter(|name| !name.is_empty()).map(|name| beginning(name, LONGEST_REASON).to_owned())
}

#[cfg(test)]
mod tests;
