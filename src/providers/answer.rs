//! Parses the answers of providers, whole or streamed, in the format of each API.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::body::Bytes;
use serde_json::{Map, Value, json};

use super::Kind;
use crate::http::clean::{MOST_VALUES, clean_json, values};
use crate::messages::failure::{self, ERROR_BODY, Failure};
use crate::privacy::cut::beginning;
use crate::sharing::apart;

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

/// The maximum size in bytes of an answer that is not streamed and is recorded.
pub const MOST_ANSWER: usize = 32 << 20;
/// The maximum size in bytes of the text and the tool calls of an answer that are recorded, which is more than any model
/// writes.
const MOST_TEXT: usize = 8 << 20;
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
    /// The tools that the answer calls, in their order, as `OpenAI` writes them.
    calls: BTreeMap<u64, Call>,
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

impl Answer {
    /// Reads the whole answer to a request of a project, as [`Answer::read`] does.
    pub async fn whole(project: &Arc<str>, api: Api, body: Bytes) -> Option<Self> {
        if body.len() < LARGE {
            Self::read(api, &body)
        } else {
            apart(project, move || Self::read(api, &body)).await
        }
    }

    /// Reads a whole answer. Returns none if the body is no answer of this API.
    #[must_use]
    pub fn read(api: Api, body: &[u8]) -> Option<Self> {
        let body = parse(body)?;
        let mut answer = Self { is_whole: true, ..Self::default() };
        match api {
            Api::ChatCompletions => {
                let choice = body["choices"].get(0)?;
                let message = &choice["message"];
                answer.add(&text(&message["content"]));
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
        let event = parse(data.as_bytes())?;
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
    /// come to its end when all of them have.
    fn choice(&mut self, choice: &Value) {
        let index = choice["index"].as_u64().unwrap_or_default().min(MOST_CHOICES);
        let reason = reason(&choice["finish_reason"]);
        *self.choices.entry(index).or_default() |= reason.is_some();
        self.is_whole = self.choices.values().all(|has_ended| *has_ended);
        if index > 0 {
            return;
        }
        self.add(choice["delta"]["content"].as_str().unwrap_or_default());
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
                if delta["type"] == "input_json_delta" {
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
            "response.output_text.delta" => self.add(event["delta"].as_str().unwrap_or_default()),
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

    /// Reads the items of a response's output.
    fn output(&mut self, response: &Value) {
        for (index, item) in (0..).zip(response["output"].as_array().into_iter().flatten()) {
            match item["type"].as_str().unwrap_or_default() {
                "message" => self.add(&text(&item["content"])),
                "function_call" => self.call(index, &item["call_id"], &item["name"], &item["arguments"]),
                "custom_tool_call" => self.call(index, &item["call_id"], &item["name"], &item["input"]),
                _ => {}
            }
        }
    }

    /// Reads a content block of Anthropic's.
    fn block(&mut self, index: u64, block: &Value) {
        match block["type"].as_str().unwrap_or_default() {
            "text" => self.add(block["text"].as_str().unwrap_or_default()),
            "tool_use" => {
                let whole = block["input"].as_object().is_some_and(|input| !input.is_empty());
                let arguments = if whole { block["input"].to_string().into() } else { Value::Null };
                self.call(index, &block["id"], &block["name"], &arguments);
            }
            _ => {}
        }
    }

    fn call(&mut self, index: u64, id: &Value, called: &Value, arguments: &Value) {
        if !self.calls.contains_key(&index) {
            if self.size + CALL > self.most {
                self.is_cut = true;
                return;
            }
            self.size += CALL;
        }
        let call = self.calls.entry(index).or_default();
        for (part, added) in [(&mut call.id, id), (&mut call.name, called), (&mut call.arguments, arguments)]
        {
            let added = added.as_str().unwrap_or_default();
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

/// Parses JSON of a provider, unless it has more values than any answer. Characters that Postgres cannot store are replaced.
fn parse(json: &[u8]) -> Option<Value> {
    if values(json) > MOST_VALUES {
        return None;
    }
    let mut clean = json.to_vec();
    clean_json(&mut clean).ok()?;
    serde_json::from_slice(&clean).ok()
}

/// Returns the text of a message's content, which is a text or an array of parts.
#[must_use]
pub fn text(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => {
            let texts: Vec<_> = parts.iter().filter_map(|part| part["text"].as_str()).collect();
            texts.join("\n")
        }
        _ => String::new(),
    }
}

/// Returns a reason why a model stopped, or its beginning. Some providers send an empty one until the model stops.
fn reason(value: &Value) -> Option<String> {
    value.as_str().filter(|name| !name.is_empty()).map(|name| beginning(name, LONGEST_REASON).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::rules::errors::Kind as ErrorKind;

    fn streamed(api: Api, events: &[Value]) -> (Answer, String) {
        let mut answer = Answer::default();
        let deltas = events.iter().filter_map(|event| answer.event(api, &event.to_string())).collect();
        // A whole answer has no chunks.
        answer.choices.clear();
        (answer, deltas)
    }

    #[test]
    fn an_answer_is_the_same_whole_and_streamed() {
        let whole = json!({"choices": [{"message": {"content": "Hello", "tool_calls": [
            {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{\"a\":1}"}}]}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 3}});
        let (answer, deltas) = streamed(
            Api::ChatCompletions,
            &[
                json!({"choices": [{"delta": {"content": "Hel"}}]}),
                json!({"choices": [{"delta": {"content": "lo", "tool_calls": [{"index": 0, "id": "c", "function": {"name": "f", "arguments": "{\"a\""}}]}}]}),
                json!({"choices": [{"delta": {"tool_calls": [{"index": 0, "function": {"arguments": ":1}"}}]}, "finish_reason": "stop"}]}),
                json!({"choices": [], "usage": {"prompt_tokens": 3}}),
            ],
        );
        assert_eq!(deltas, "Hello");
        assert_eq!(Some(answer), Answer::read(Api::ChatCompletions, whole.to_string().as_bytes()));

        let whole = json!({"content": [{"type": "text", "text": "Hi"}, {"type": "tool_use", "id": "t", "name": "f", "input": {"a": 1}}],
            "stop_reason": "tool_use", "usage": {"input_tokens": 5, "output_tokens": 7}});
        let (answer, deltas) = streamed(
            Api::Messages,
            &[
                json!({"type": "message_start", "message": {"usage": {"input_tokens": 5, "output_tokens": 1}}}),
                json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
                json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hi"}}),
                json!({"type": "content_block_start", "index": 1, "content_block": {"type": "tool_use", "id": "t", "name": "f", "input": {}}}),
                json!({"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": "{\"a\":1}"}}),
                json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 7}}),
                json!({"type": "message_stop"}),
            ],
        );
        assert_eq!(deltas, "Hi");
        assert_eq!(Some(answer), Answer::read(Api::Messages, whole.to_string().as_bytes()));

        let output = json!([{"type": "message", "content": [{"type": "output_text", "text": "Hey"}]},
            {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}]);
        let whole = json!({"status": "completed", "output": output, "usage": {"input_tokens": 2}});
        let (answer, deltas) = streamed(
            Api::Responses,
            &[
                json!({"type": "response.output_text.delta", "delta": "Hey"}),
                json!({"type": "response.completed", "response": whole}),
            ],
        );
        assert_eq!(deltas, "Hey");
        assert_eq!(Some(answer), Answer::read(Api::Responses, whole.to_string().as_bytes()));
    }

    #[test]
    fn characters_that_cannot_be_stored_are_replaced() {
        let call = r#"{"index": 0, "id": "c\u0000", "function": {"name": "f", "arguments": "\ud800"}}"#;
        let message = format!(r#"{{"content": "a\u0000", "tool_calls": [{call}]}}"#);
        let chunk = format!(r#"{{"choices": [{{"delta": {message}, "finish_reason": "stop"}}]}}"#);
        let mut streamed = Answer::default();
        streamed.event(Api::ChatCompletions, &chunk);
        let whole = Answer::read(Api::ChatCompletions, chunk.replace("delta", "message").as_bytes());
        for answer in [streamed, whole.expect("an answer")] {
            assert_eq!(answer.text, "a\u{fffd}");
            let call = &answer.tool_calls().expect("calls")[0];
            assert_eq!(
                (&call["id"], &call["function"]["arguments"]),
                (&json!("c\u{fffd}"), &json!("\u{fffd}"))
            );
        }
    }

    #[test]
    fn the_end_of_a_response_adds_no_text_to_what_was_streamed() {
        let parts = json!([{"type": "output_text", "text": "a"}, {"type": "output_text", "text": "\u{e9}"}]);
        let response = json!({"status": "completed", "output": [{"type": "message", "content": parts}]});
        let completed = json!({"type": "response.completed", "response": response});
        let deltas = ["a", "\u{e9}"].map(|part| json!({"type": "response.output_text.delta", "delta": part}));
        let (answer, told) =
            streamed(Api::Responses, &[&deltas[..], std::slice::from_ref(&completed)].concat());
        assert_eq!((answer.text.as_str(), told.as_str()), ("a\n\u{e9}", "a\u{e9}"));
        let (answer, told) = streamed(Api::Responses, &[completed]);
        assert_eq!(answer.text, told, "nothing of it was streamed");
    }

    #[test]
    fn of_several_answers_the_first_is_recorded_and_the_last_is_the_end() {
        let chunk = |index: u64, text: &str, reason: Option<&str>| json!({"choices": [{"index": index, "delta": {"content": text}, "finish_reason": reason}]});
        let mut answer = Answer::default();
        for (event, has_ended) in [
            (chunk(0, "Yes,", None), false),
            (chunk(1, "No,", None), false),
            (chunk(0, " do it.", Some("stop")), false),
            (chunk(1, " never.", None), false),
            (chunk(1, "", Some("stop")), true),
            (json!({"choices": [], "usage": {"total_tokens": 9}}), true),
        ] {
            answer.event(Api::ChatCompletions, &event.to_string());
            assert_eq!(answer.has_ended(), has_ended, "{event}");
        }
        assert_eq!(answer.text, "Yes, do it.");
    }

    #[test]
    fn an_empty_reason_is_no_end_of_an_answer() {
        let chunk = |text: &str, reason: &str| json!({"choices": [{"delta": {"content": text}, "finish_reason": reason}]});
        let mut answer = Answer::default();
        for (event, has_ended) in
            [(chunk("Yes", ""), false), (chunk(", do it.", ""), false), (chunk("", "stop"), true)]
        {
            answer.event(Api::ChatCompletions, &event.to_string());
            assert_eq!(answer.has_ended(), has_ended, "{event}");
        }
        assert_eq!((answer.text.as_str(), answer.finish_reason.as_deref()), ("Yes, do it.", Some("stop")));
    }

    #[test]
    fn a_secret_at_the_end_of_what_is_recorded_is_left_out_whole() {
        let mut answer = Answer::default();
        for text in
            ["x ".repeat(MOST_TEXT / 2 - 10).as_str(), "see ghp_0123456", "789012345678", " and so on"]
        {
            answer
                .event(Api::ChatCompletions, &json!({"choices": [{"delta": {"content": text}}]}).to_string());
        }
        assert!(answer.text.ends_with("x see "), "{:?}", &answer.text[answer.text.len() - 30..]);
    }

    #[test]
    fn an_answer_without_an_end_takes_bounded_memory() {
        let long = "x ".repeat(1 << 19);
        let mut answer = Answer::default();
        for index in 0..40 {
            let call =
                json!({"index": index % 20, "id": long, "function": {"name": long, "arguments": long}});
            let event = json!({"choices": [{"delta": {"content": long, "tool_calls": [call]}}], "usage": {
                index.to_string(): {"tokens": 1}, "long": long, "nested": {"a": [long]}, &long: 1}});
            answer.event(Api::ChatCompletions, &event.to_string());
        }
        for index in 0..100_000 {
            let event = json!({"choices": [{"delta": {"tool_calls": [{"index": index}]}}], "usage": {
                index.to_string(): 1}});
            answer.event(Api::ChatCompletions, &event.to_string());
        }
        let calls = answer.tool_calls().expect("calls").to_string().len();
        assert!(answer.text.len() + calls < 9 << 20, "{} and {calls} bytes", answer.text.len());
        assert_eq!(answer.usage.as_ref().map(Map::len), Some(MOST_USAGE));
        assert!(json!(answer.usage).to_string().len() < MOST_USAGE * LONGEST_USAGE);
        answer.event(Api::ChatCompletions, &json!({"choices": [{"finish_reason": long}]}).to_string());
        assert_eq!(answer.finish_reason.as_deref().map(str::len), Some(LONGEST_REASON));
        answer.event(Api::ChatCompletions, &json!({"error": {"message": long}}).to_string());
        assert_eq!(answer.error.as_deref().map(str::len), Some(ERROR_BODY));
        let values = format!("{{\"choices\": [{{}}], \"x\": [{}0]}}", "0,".repeat(MOST_VALUES));
        assert_eq!(Answer::read(Api::ChatCompletions, values.as_bytes()), None);
        assert!(Answer::default().event(Api::ChatCompletions, &values).is_none());
    }

    #[test]
    fn an_error_in_a_stream_is_none_of_its_text() {
        let (answer, deltas) =
            streamed(Api::Messages, &[json!({"type": "error", "error": {"type": "overloaded_error"}})]);
        assert!(deltas.is_empty() && !answer.is_whole && answer.error.is_some());
        assert_eq!(Answer::read(Api::Messages, b"{\"error\": {}}"), None);
    }

    #[test]
    fn a_response_that_failed_or_has_not_ended_is_no_whole_answer() {
        for (status, kind) in [
            ("completed", None),
            ("incomplete", None),
            ("failed", Some(ErrorKind::Overloaded)),
            ("cancelled", Some(ErrorKind::CutStream)),
            ("queued", Some(ErrorKind::CutStream)),
            ("in_progress", Some(ErrorKind::CutStream)),
        ] {
            let error =
                (status == "failed").then(|| json!({"code": "server_error", "message": "Overloaded"}));
            let body = json!({"status": status, "error": error, "output": []}).to_string();
            let answer = Answer::read(Api::Responses, body.as_bytes()).expect("an answer");
            assert_eq!(answer.failure().map(|failure| failure.1.kind), kind, "{status}");
        }
    }
}
