//! The chats of exported rows: messages with their tool calls, read from what clients sent to their models.
//!
//! The parser accepts requests of OpenAI's Chat Completions, of OpenAI's Responses (`instructions`, `input`) and of
//! Anthropic's Messages (`system`, content blocks), and plain lists of messages. It returns all of them in the form
//! of Chat Completions, which trainers read: the arguments of a tool call are a JSON text, and each tool's result is
//! a separate message.

use std::borrow::Cow;

use serde::Serialize;
use serde_json::{Map, Value, json};
use utoipa::ToSchema;

use crate::types::value;

/// A message of a chat.
#[derive(Debug, Clone, Default, PartialEq, Serialize, ToSchema)]
pub struct Message<'a> {
    /// The role of the message's author, such as `user`.
    pub role: Cow<'a, str>,
    /// The text of the message.
    pub content: Cow<'a, str>,
    /// The calls of tools that the model makes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<Object>)]
    pub tool_calls: Vec<Value>,
    /// The id of the call that this result of a tool answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
    /// Whether the message is learned (1) or only read (0), if the format says so for each message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<u8>,
}

impl<'a> Message<'a> {
    /// Makes a message with a role and a text.
    pub fn new(role: impl Into<Cow<'a, str>>, content: impl Into<Cow<'a, str>>) -> Self {
        Self { role: role.into(), content: content.into(), ..Self::default() }
    }

    fn is_empty(&self) -> bool {
        self.role == "assistant" && self.content.is_empty() && self.tool_calls.is_empty()
    }
}

/// The messages that were sent to a model, and the tools that the model could call.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Prompt<'a> {
    /// The messages, of which the last one is to be answered.
    pub messages: Vec<Message<'a>>,
    /// The tools, each with `type` and `function`.
    pub tools: Vec<Value>,
}

impl<'a> Prompt<'a> {
    /// Makes a prompt of one message of the user.
    pub fn of(text: impl Into<Cow<'a, str>>) -> Self {
        Self { messages: vec![Message::new("user", text)], tools: vec![] }
    }

    /// Reads what a client sent to a model. Returns none if it is neither a request nor a list of messages.
    #[must_use]
    pub fn read(json: &str) -> Option<Self> {
        let mut prompt = match value::parse_inner(json).ok()? {
            Value::Array(messages) => Self { messages: of_chat(messages)?, tools: vec![] },
            Value::Object(mut request) => {
                let tools = match request.remove("tools").or_else(|| request.remove("functions")) {
                    Some(Value::Array(tools)) => tools.into_iter().filter_map(tool).collect(),
                    _ => vec![],
                };
                let system = request.remove("system").or_else(|| request.remove("instructions"));
                let said = match (request.remove("messages"), request.remove("input")) {
                    (Some(Value::Array(messages)), _) => of_chat(messages)?,
                    (None | Some(Value::Null), Some(Value::String(text))) => vec![Message::new("user", text)],
                    (None | Some(Value::Null), Some(Value::Array(items))) => of_items(items)?,
                    _ => return None,
                };
                let system = system.and_then(|content| text(&content)).filter(|text| !text.is_empty());
                let system = system.map(|text| Message::new("system", text));
                Self { messages: system.into_iter().chain(said).collect(), tools }
            }
            _ => return None,
        };
        prompt.messages.retain(|message| !message.is_empty());
        if prompt.messages.is_empty() { None } else { Some(prompt) }
    }

    /// Puts a system message first, in place of the prompt's own.
    #[must_use]
    pub fn with_system(mut self, system: Option<&'a str>) -> Self {
        if let Some(system) = system {
            self.messages.retain(|message| message.role != "system");
            self.messages.insert(0, Message::new("system", system));
        }
        self
    }
}

/// Reads the messages of Chat Completions and of Anthropic's Messages.
fn of_chat(messages: Vec<Value>) -> Option<Vec<Message<'static>>> {
    let mut chat = Vec::with_capacity(messages.len());
    for message in messages {
        let Value::Object(mut message) = message else { return None };
        let Some(Value::String(role)) = message.remove("role") else { return None };
        let mut said = Message::new(role, "");
        match message.remove("content") {
            None | Some(Value::Null) => {}
            Some(Value::Array(blocks)) => of_blocks(blocks, &mut said, &mut chat)?,
            Some(content) => said.content = text(&content)?.into(),
        }
        if let Some(Value::Array(calls)) = message.remove("tool_calls") {
            said.tool_calls.extend(calls.iter().filter_map(normalized));
        }
        if let Some(Value::String(id)) = message.remove("tool_call_id") {
            said.tool_call_id = Some(id);
        }
        let only_answers =
            said.role == "user" && said.content.is_empty() && chat.last().is_some_and(is_answer);
        if !only_answers {
            chat.push(said);
        }
    }
    Some(chat)
}

fn is_answer(message: &Message<'_>) -> bool {
    message.role == "tool"
}

/// Adds the text and the calls of a message's blocks to the message. The results of tools in the blocks become
/// messages before it.
fn of_blocks(
    blocks: Vec<Value>,
    said: &mut Message<'static>,
    chat: &mut Vec<Message<'static>>,
) -> Option<()> {
    let mut content = String::new();
    for block in blocks {
        let Value::Object(mut block) = block else { return None };
        match block.get("type").and_then(Value::as_str) {
            Some("tool_use") => {
                let input = block.get("input").map_or_else(|| "{}".to_owned(), Value::to_string);
                said.tool_calls.push(call(&block, "id", &input));
            }
            Some("tool_result") => {
                let answer = block.remove("content").and_then(|content| text(&content)).unwrap_or_default();
                let id = block.get("tool_use_id").and_then(Value::as_str).map(ToOwned::to_owned);
                chat.push(Message { tool_call_id: id, ..Message::new("tool", answer) });
            }
            _ => content.push_str(block.get("text").and_then(Value::as_str).unwrap_or_default()),
        }
    }
    said.content = content.into();
    Some(())
}

/// Reads the items of the input of OpenAI's Responses. Consecutive calls become one message.
fn of_items(items: Vec<Value>) -> Option<Vec<Message<'static>>> {
    let mut chat: Vec<Message<'static>> = Vec::with_capacity(items.len());
    for item in items {
        let Value::Object(mut item) = item else { return None };
        let kind = item.get("type").and_then(Value::as_str).unwrap_or("message").to_owned();
        match kind.as_str() {
            "message" => {
                let Some(Value::String(role)) = item.remove("role") else { return None };
                let content = item.remove("content").and_then(|content| text(&content))?;
                chat.push(Message::new(role, content));
            }
            "function_call" | "custom_tool_call" => {
                let arguments = item.get("arguments").or_else(|| item.get("input"));
                let arguments = arguments.and_then(Value::as_str).unwrap_or("{}");
                let call = call(&item, "call_id", arguments);
                match chat.last_mut().filter(|last| last.role == "assistant") {
                    Some(last) => last.tool_calls.push(call),
                    None => chat.push(Message { tool_calls: vec![call], ..Message::new("assistant", "") }),
                }
            }
            "function_call_output" | "custom_tool_call_output" => {
                let answer = item.remove("output").and_then(|output| text(&output)).unwrap_or_default();
                let id = item.get("call_id").and_then(Value::as_str).map(ToOwned::to_owned);
                chat.push(Message { tool_call_id: id, ..Message::new("tool", answer) });
            }
            // Reasoning, and the results of the provider's own tools, were not said by anybody.
            _ => {}
        }
    }
    Some(chat)
}

/// Returns a text, or the texts of the parts of a content.
fn text(content: &Value) -> Option<String> {
    match content {
        Value::String(text) => Some(text.clone()),
        Value::Array(parts) => {
            let texts = parts.iter().map(|part| match part {
                Value::Object(part) => Some(part.get("text").and_then(Value::as_str).unwrap_or_default()),
                _ => None,
            });
            texts.collect::<Option<String>>()
        }
        Value::Null => Some(String::new()),
        _ => None,
    }
}

/// Makes a call of the tool that `from` names. The call's id is the member `id`.
fn call(from: &Map<String, Value>, id: &str, arguments: &str) -> Value {
    let name = |name: &str| from.get(name).and_then(Value::as_str);
    json!({"id": name(id), "type": "function", "function": {"name": name("name"), "arguments": arguments}})
}

/// Returns a call in the form of Chat Completions, with the same members for all calls, because loaders expect the
/// same members in every row. Its arguments are a text even if a client has sent an object. The input of a custom
/// tool becomes its arguments.
fn normalized(sent: &Value) -> Option<Value> {
    let sent = sent.as_object()?;
    let called = sent.get("function").or_else(|| sent.get("custom"))?;
    let arguments = match called.get("arguments").or_else(|| called.get("input")) {
        None | Some(Value::Null) => "{}".to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(arguments) => arguments.to_string(),
    };
    let name = |value: Option<&Value>| value.and_then(Value::as_str).map(ToOwned::to_owned);
    Some(json!({"id": name(sent.get("id")), "type": "function",
        "function": {"name": name(called.get("name")), "arguments": arguments}}))
}

/// Returns a tool in the form of Chat Completions. Tools of the providers, which have no parameters, are left out.
fn tool(tool: Value) -> Option<Value> {
    let Value::Object(mut tool) = tool else { return None };
    if tool.get("function").is_some_and(Value::is_object) {
        return Some(Value::Object(tool));
    }
    let parameters = tool.remove("input_schema").or_else(|| tool.remove("parameters"))?;
    let mut function = Map::new();
    function.insert("name".to_owned(), tool.remove("name")?);
    if let Some(description) = tool.remove("description") {
        function.insert("description".to_owned(), description);
    }
    function.insert("parameters".to_owned(), parameters);
    Some(json!({"type": "function", "function": function}))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the messages and tools that are read from a request.
    fn read(request: &Value) -> Value {
        let Some(prompt) = Prompt::read(&request.to_string()) else { return Value::Null };
        json!({"messages": prompt.messages, "tools": prompt.tools})
    }

    fn lookup(id: &str) -> Value {
        json!({"role": "assistant", "content": "", "tool_calls": [
            {"id": id, "type": "function", "function": {"name": "look", "arguments": "{\"at\":1}"}}]})
    }

    fn tools() -> Value {
        json!([{"type": "function", "function": {"name": "look", "description": "Looks.", "parameters": {"type": "object"}}}])
    }

    #[test]
    fn chat_completions_keep_their_tools_calls_and_answers() {
        let request = json!({"model": "m", "tools": tools(), "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url"}, {"type": "text", "text": "b"}]},
            {"role": "assistant", "content": null, "tool_calls": [
                {"id": "1", "type": "function", "function": {"name": "look", "arguments": {"at": 1}}}]},
            {"role": "tool", "tool_call_id": "1", "content": "there"},
            {"role": "assistant", "content": ""},
        ]});
        let expected = json!({"tools": tools(), "messages": [
            {"role": "system", "content": "Be brief."}, {"role": "user", "content": "ab"}, lookup("1"),
            {"role": "tool", "content": "there", "tool_call_id": "1"},
        ]});
        assert_eq!(read(&request), expected);
        let bare = json!([{"role": "user", "content": "hi"}]);
        assert_eq!(read(&bare), json!({"messages": bare, "tools": []}));
    }

    #[test]
    fn anthropics_system_and_blocks_are_messages() {
        let request = json!({
            "system": [{"type": "text", "text": "Be brief."}],
            "tools": [{"name": "look", "description": "Looks.", "input_schema": {"type": "object"}}, {"type": "web_search"}],
            "messages": [
                {"role": "user", "content": "where?"},
                {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm"}, {"type": "tool_use", "id": "1", "name": "look", "input": {"at": 1}}]},
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": [{"type": "text", "text": "there"}]}]},
                {"role": "assistant", "content": [{"type": "tool_use", "id": "2", "name": "look", "input": {"at": 1}}]},
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "2", "content": "here"}, {"type": "text", "text": "so?"}]},
            ],
        });
        let expected = json!({"tools": tools(), "messages": [
            {"role": "system", "content": "Be brief."}, {"role": "user", "content": "where?"},
            lookup("1"), {"role": "tool", "content": "there", "tool_call_id": "1"},
            lookup("2"), {"role": "tool", "content": "here", "tool_call_id": "2"}, {"role": "user", "content": "so?"},
        ]});
        assert_eq!(read(&request), expected);
    }

    #[test]
    fn the_input_of_responses_is_messages() {
        let request = json!({
            "instructions": "Be brief.",
            "tools": [{"type": "function", "name": "look", "description": "Looks.", "parameters": {"type": "object"}}],
            "input": [
                {"role": "user", "content": [{"type": "input_text", "text": "where?"}]},
                {"type": "reasoning", "summary": []},
                {"type": "function_call", "call_id": "1", "name": "look", "arguments": "{\"at\":1}"},
                {"type": "function_call_output", "call_id": "1", "output": "there"},
            ],
        });
        let expected = json!({"tools": tools(), "messages": [
            {"role": "system", "content": "Be brief."}, {"role": "user", "content": "where?"},
            lookup("1"), {"role": "tool", "content": "there", "tool_call_id": "1"},
        ]});
        assert_eq!(read(&request), expected);
        let messages = json!([{"role": "user", "content": "hi"}]);
        assert_eq!(read(&json!({"input": "hi"})), json!({"messages": messages, "tools": []}));
    }

    #[test]
    fn what_is_no_request_is_not_read() {
        for other in [
            json!({}),
            json!([]),
            json!("hi"),
            json!({"messages": "hi"}),
            json!({"messages": [{"role": 1}]}),
            json!({"blocks": []}),
        ] {
            assert_eq!(read(&other), Value::Null, "{other}");
        }
        assert_eq!(Prompt::read("plain text"), None);
        // An object with this member is no text of JSON, whatever the parser makes of it by default.
        let hidden =
            json!([{"$serde_json::private::RawValue": json!({"role": "user", "content": "hi"}).to_string()}]);
        assert_eq!(read(&hidden), Value::Null);
    }

    #[test]
    fn a_system_message_that_is_asked_for_takes_the_place_of_another() {
        let prompt =
            Prompt { messages: vec![Message::new("system", "a"), Message::new("user", "b")], tools: vec![] };
        let roles =
            |prompt: &Prompt<'_>| prompt.messages.iter().map(|it| it.content.to_string()).collect::<Vec<_>>();
        assert_eq!(roles(&prompt.clone().with_system(Some("c"))), ["c", "b"]);
        assert_eq!(roles(&prompt.with_system(None)), ["a", "b"]);
    }
}
