//! Parses a request as far as its record needs it: the model, the messages, and their positions in the body. All
//! other members are left to the provider.

use std::borrow::Cow;
use std::ops::Range;

use axum::body::Bytes;
use serde::Deserialize;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::agents::{is_asked_by_agent, is_told_by_agent, said_in, sent_meanwhile};
use crate::error::{Error, Result};
use crate::http::clean::clean_json;
use crate::messages::passed::{Passed, SentMessage};
use crate::messages::rules::estimate::Length;
use crate::providers::answer::{Api, joined, text};
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

/// Returns whether a message is from a human. The result of a tool also has the role `user`, but belongs to the tool
/// call before it, and so has what only an agent has written. What a person sends while the agent works may have the role
/// `system`.
fn is_human(message: &Value) -> bool {
    let content = &message["content"];
    if is_of_system(message) {
        return sent_meanwhile(&text(content)).is_some() && !is_added(content);
    }
    is_of_user(message) && !has_result(content) && !is_added(content)
}

fn is_of_system(message: &Value) -> bool {
    ["system", "developer"].iter().any(|role| message["role"] == *role)
}

fn is_of_user(message: &Value) -> bool {
    (message["type"].is_null() || message["type"] == "message") && message["role"] == "user"
}

fn has_result(content: &Value) -> bool {
    content.as_array().is_some_and(|blocks| blocks.iter().any(|block| block["type"] == "tool_result"))
}

/// Returns whether all of a content is texts of an agent. A picture is a person's.
fn is_added(content: &Value) -> bool {
    let is_added = |text: &Value| text.as_str().is_some_and(|text| said_in(text).is_none());
    match content {
        Value::Array(blocks) => blocks.iter().all(|block| is_added(&block["text"])),
        content => is_added(content),
    }
}

/// Returns what a person says in a message with the result of a tool, as after an interruption of the tool.
fn said_beside_result(message: &Value) -> Option<Cow<'_, str>> {
    let content = &message["content"];
    Some(own_text(content)).filter(|said| is_of_user(message) && has_result(content) && !said.is_empty())
}

/// Returns the texts of a content that are a person's own, without those that an agent has added.
fn own_text(content: &Value) -> Cow<'_, str> {
    let texts: Vec<_> = match content {
        Value::Array(blocks) => blocks.iter().filter_map(|block| block["text"].as_str()).collect(),
        content => content.as_str().into_iter().collect(),
    };
    joined(&texts.into_iter().filter_map(said_in).collect::<Vec<_>>())
}

/// Returns the texts of a message, of which its size is estimated. A call of a tool is a line of its own, as
/// [`Length`] expects it. Pictures have no text.
fn lines(message: &Value) -> Vec<Cow<'_, str>> {
    fn call(name: &Value, given: &Value) -> String {
        let given = given.as_str().map_or_else(|| given.to_string(), str::to_owned);
        format!("{{\"name\": {name}, \"arguments\": {given}}}")
    }
    fn collect<'a>(value: &'a Value, lines: &mut Vec<Cow<'a, str>>) {
        match value {
            Value::String(text) => lines.push(text.into()),
            Value::Array(items) => items.iter().for_each(|item| collect(item, lines)),
            Value::Object(_) => match value["type"].as_str().unwrap_or_default() {
                "tool_use" | "custom_tool_call" => lines.push(call(&value["name"], &value["input"]).into()),
                "function_call" => lines.push(call(&value["name"], &value["arguments"]).into()),
                "thinking" => collect(&value["thinking"], lines),
                _ => {
                    for member in ["content", "text", "output"] {
                        collect(&value[member], lines);
                    }
                    for tool in value["tool_calls"].as_array().into_iter().flatten() {
                        lines.push(call(&tool["function"]["name"], &tool["function"]["arguments"]).into());
                    }
                }
            },
            _ => {}
        }
    }
    let mut found = Vec::new();
    collect(message, &mut found);
    found
}

/// The types of the parts of messages that are no text.
const MEDIA: [&str; 8] = [
    "computer_screenshot",
    "document",
    "file",
    "image",
    "image_url",
    "input_audio",
    "input_file",
    "input_image",
];

/// Returns whether a message has a part that is no text, also in the result of a tool.
fn has_media(value: &Value) -> bool {
    match value {
        Value::Array(items) => items.iter().any(has_media),
        Value::Object(_) => {
            is_media(value) || ["content", "output"].iter().any(|member| has_media(&value[member]))
        }
        _ => false,
    }
}

/// Returns whether a part of a message is no text.
fn is_media(part: &Value) -> bool {
    part["type"].as_str().is_some_and(|kind| MEDIA.contains(&kind))
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

#[cfg(test)]
mod tests {
    use super::*;

    fn read(api: Api, body: &Value) -> (Asked, Bytes) {
        let text = body.to_string();
        (Asked::read(api, &text, None).expect("reads"), text.into())
    }

    fn parsed(body: &Bytes) -> Value {
        serde_json::from_slice(body).expect("JSON")
    }

    #[test]
    fn a_turn_is_dropped_with_its_tools_and_what_the_client_has_not_changed_stays_as_it_is() {
        let messages = json!([
            {"role": "user", "content": "one"},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "Bash", "input": {"a": 1}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "ok"}]},
            {"role": "assistant", "content": "did it"},
            {"role": "user", "content": [{"type": "text", "text": "<system-reminder>x"}, {"type": "text", "text": "two"}]},
            {"role": "assistant", "content": "yes"},
            {"role": "user", "content": "three"},
        ]);
        let body = json!({"model": "p/m", "max_tokens": 5, "system": [{"type": "text", "text": "Be brief."}],
            "messages": messages, "metadata": {"user_id": "user_a_account__session_s-1"}, "unknown": [1.50]});
        let (asked, bytes) = read(Api::Messages, &body);
        assert_eq!((asked.user_text.as_str(), asked.system.as_deref()), ("three", Some("Be brief.")));
        assert_eq!((asked.passed.turns.len(), asked.session.as_deref()), (2, Some("s-1")));
        assert_eq!(asked.request(&bytes, "p/m", 0), bytes);
        let renamed = asked.request(&bytes, "m", 0);
        assert_eq!(parsed(&renamed)["model"], "m");
        assert_eq!(renamed.len(), bytes.len() - 2);
        let once = parsed(&asked.request(&bytes, "m", 1));
        assert_eq!(once["messages"].as_array().map(Vec::len), Some(3));
        assert_eq!((&once["messages"][0], &once["unknown"]), (&messages[4], &body["unknown"]));
        let twice = parsed(&asked.request(&bytes, "p/m", 2));
        assert_eq!(twice["messages"], json!([messages[6]]));
        let prompt: Value = serde_json::from_str(&asked.prompt(&bytes, 2)).expect("JSON");
        assert_eq!(prompt, json!([{"role": "system", "content": "Be brief."}, messages[6]]));
        let ids: Vec<_> = asked.passed.messages.iter().map(|sent| sent.turn).collect();
        assert_eq!((ids[0], ids[3], ids[6]), (Some(asked.passed.turns[0].0), ids[0], asked.passed.turn));
    }

    #[test]
    fn what_an_agent_asks_for_itself_is_no_human_message_but_known_by_its_words() {
        let user = |text: &str| json!({"role": "user", "content": text});
        let told = json!({"role": "developer", "content": "Be brief.\nYou are a title generator."});
        for (messages, is_own) in [
            (json!([told, user("Add a page.")]), true),
            (json!([user("Add a page."), user("[SUGGESTION MODE: what next?]")]), true),
            (json!([user("Warmup")]), true),
            (
                json!([
                    user("Add a page."),
                    user(
                        "<system-reminder>This is a side question from the user. Be brief.</system-reminder> Why?"
                    )
                ]),
                true,
            ),
            (
                json!([
                    user("<system-reminder>This is a side question from the user.</system-reminder>"),
                    user("Add a page.")
                ]),
                false,
            ),
            (json!([user("Warmup takes long.")]), false),
            (json!([user("\nWeb page content:\n---\nHTTP.\n---\n\nWhat is it?")]), true),
            (json!([user("[SUGGESTION MODE: what next?]"), user("Add a page.")]), false),
            (json!([user("You are a title generator. Add a page.")]), false),
        ] {
            let (asked, _) = read(Api::ChatCompletions, &json!({"model": "m", "messages": messages}));
            assert_eq!(
                (asked.user_text.is_empty(), asked.passed.turn.is_none()),
                (is_own, is_own),
                "{messages}"
            );
            assert!(asked.passed.said.is_some());
        }
    }

    #[test]
    fn system_messages_of_a_list_always_stay() {
        let messages = json!([{"role": "system", "content": "s"}, {"role": "user", "content": "one"},
            {"role": "system", "content": "later"}, {"role": "user", "content": "two"}]);
        let (asked, body) = read(Api::ChatCompletions, &json!({"model": "m", "messages": messages}));
        let left = parsed(&asked.request(&body, "m", 1));
        assert_eq!(left["messages"], json!([messages[0], messages[2], messages[3]]));
        assert!(asked.passed.overhead.chars == 6 && asked.passed.user.chars == 3);
    }

    #[test]
    fn a_prompt_is_of_characters_that_can_be_stored() {
        let body = r#"{"model": "m", "messages": [{"role": "user", "content": "\ud83d\u0000"}]}"#;
        let mut clean = body.as_bytes().to_vec();
        clean_json(&mut clean).expect("JSON");
        let asked = Asked::read(Api::ChatCompletions, str::from_utf8(&clean).expect("UTF-8"), None);
        let prompt = asked.expect("reads").prompt(&body.into(), 0);
        assert_eq!(prompt, r#"[{"role": "user", "content": "\ufffd\ufffd"}]"#);
    }

    #[test]
    fn what_codex_sends_is_read_as_messages_are() {
        let body = json!({"model": "m", "instructions": "i", "input": [
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "find it"}]},
            {"type": "reasoning", "encrypted_content": "xxxxxxxxxx"},
            {"type": "function_call", "call_id": "c", "name": "shell", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c", "output": "found"}]});
        let (asked, _) = read(Api::Responses, &body);
        assert_eq!((asked.user_text.as_str(), asked.passed.turns.len()), ("find it", 0));
        assert_eq!(asked.passed.messages.len(), 4);
        let (asked, _) = read(Api::Responses, &json!({"model": "m", "input": "hello"}));
        assert_eq!((asked.user_text.as_str(), asked.passed.messages.len()), ("hello", 1));
    }

    #[test]
    fn what_only_an_agent_has_written_is_no_message_of_a_person() {
        let user = |content: Value| json!({"role": "user", "content": content});
        let block = |text: &str| json!({"type": "text", "text": text});
        let skill = "Base directory for this skill: /skills/x\n\nDo it so.";
        for added in [
            json!("<system-reminder>be nice</system-reminder>"),
            json!("Another language model started to solve this problem and produced a summary"),
            json!("This session is being continued from a previous conversation"),
            json!([block(" <local-command-stdout>ok</local-command-stdout>"), block(skill), block(" ")]),
        ] {
            let messages =
                [user(json!("Fix it.")), json!({"role": "assistant", "content": "ok"}), user(added.clone())];
            let (asked, _) = read(Api::ChatCompletions, &json!({"model": "m", "messages": messages}));
            let first = asked.passed.messages[0].id;
            assert_eq!((asked.user_text.as_str(), asked.passed.turn), ("Fix it.", Some(first)), "{added}");
            assert_eq!(
                (asked.passed.turns.len(), asked.passed.messages[2].turn),
                (0, Some(first)),
                "{added}"
            );
            let (asked, _) = read(Api::ChatCompletions, &json!({"model": "m", "messages": [user(added)]}));
            assert_eq!((asked.user_text.as_str(), asked.passed.turn, asked.passed.said), ("", None, None));
        }
        let picture = json!([{"type": "image"}, block("<system-reminder>be nice</system-reminder>")]);
        let (asked, _) = read(Api::Messages, &json!({"model": "m", "messages": [user(picture)]}));
        assert_eq!((asked.user_text.as_str(), asked.passed.turn), ("", Some(asked.passed.messages[0].id)));
    }

    #[test]
    fn a_request_has_more_than_its_text_where_the_provider_remembers_something_or_is_sent_a_picture() {
        let result = json!({"type": "tool_result", "content": [{"type": "image"}]});
        let said = |content: Value| json!([{"role": "user", "content": content}]);
        let shown = json!([{"type": "computer_call_output", "output": {"type": "computer_screenshot"}}]);
        for (member, value, has_more) in [
            ("input", said(json!("one")), false),
            ("input", said(json!([{"type": "input_text", "text": "one"}])), false),
            ("input", said(json!([{"type": "input_image"}])), true),
            ("input", shown, true),
            ("input", said(json!([result])), true),
            ("previous_response_id", Value::Null, false),
            ("previous_response_id", json!("r"), true),
            ("conversation", json!({"id": "c"}), true),
            ("prompt", json!({"id": "p"}), true),
        ] {
            let mut body = json!({"model": "m", "input": "one"});
            body[member] = value;
            assert_eq!(read(Api::Responses, &body).0.passed.has_more, has_more, "{body}");
        }
    }

    #[test]
    fn the_same_said_after_something_else_is_another_message_and_said_again_after_the_same_it_is_not() {
        let turn = |more: Value| {
            let mut body = json!({"model": "m", "input": "continue"});
            body.as_object_mut().expect("an object").extend(more.as_object().cloned().unwrap_or_default());
            let passed = read(Api::Responses, &body).0.passed;
            (passed.turn, passed.said)
        };
        let after = |response: &str| turn(json!({"previous_response_id": response}));
        let (first, again, other, none) = (after("r1"), after("r1"), after("r2"), turn(json!({})));
        assert_eq!(first, again);
        assert!(first.0 != other.0 && first.0 != none.0 && first.1 == other.1 && first.1 == none.1);
        // A conversation has the same name when the next message is said in it.
        let [one, two] = [(); 2].map(|()| turn(json!({"conversation": "c"})));
        assert!(one.0 != two.0 && one.1 == two.1);
    }

    #[test]
    fn what_cannot_be_read_is_refused_and_what_need_not_be_there_is_not() {
        for body in [
            "",
            "[]",
            "{}",
            r#"{"model": 1}"#,
            r#"{"model": "m", "messages": 1}"#,
            r#"{"model": "m", "messages": [1}"#,
        ] {
            Asked::read(Api::Messages, body, None).expect_err(body);
        }
        let (asked, _) = read(Api::Messages, &json!({"model": "m"}));
        assert_eq!((asked.user_text.as_str(), asked.passed.turn), ("", None));
    }
}
