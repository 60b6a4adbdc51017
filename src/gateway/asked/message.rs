//! What one message of a request says, and whether a person says it.

use std::borrow::Cow;

use serde_json::Value;

use crate::agents::{said_in, sent_meanwhile};
use crate::providers::answer::{joined, text};

/// Returns whether a message is from a human. The result of a tool also has the role `user`, but belongs to the tool
/// call before it, and so has what only an agent has written. What a person sends while the agent works may have the role
/// `system`.
pub(super) fn is_human(message: &Value) -> bool {
    let content = &message["content"];
    if is_of_system(message) {
        return sent_meanwhile(&text(content)).is_some() && !is_added(content);
    }
    is_of_user(message) && !has_result(content) && !is_added(content)
}

/// Returns whether a message is an instruction of the agent.
pub(super) fn is_of_system(message: &Value) -> bool {
    ["system", "developer"].iter().any(|role| message["role"] == *role)
}

/// Returns whether a message has the role of the user, in which also the results of tools are sent.
pub(super) fn is_of_user(message: &Value) -> bool {
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
pub(super) fn said_beside_result(message: &Value) -> Option<Cow<'_, str>> {
    let content = &message["content"];
    Some(own_text(content)).filter(|said| is_of_user(message) && has_result(content) && !said.is_empty())
}

/// Returns the texts of a content that are a person's own, without those that an agent has added.
pub(super) fn own_text(content: &Value) -> Cow<'_, str> {
    let texts: Vec<_> = match content {
        Value::Array(blocks) => blocks.iter().filter_map(|block| block["text"].as_str()).collect(),
        content => content.as_str().into_iter().collect(),
    };
    joined(&texts.into_iter().filter_map(said_in).collect::<Vec<_>>())
}

/// Returns the texts of a message, of which its size is estimated. A call of a tool is a line of its own, as
/// [`Length`](crate::messages::rules::estimate::Length) expects it. Pictures have no text.
pub(super) fn lines(message: &Value) -> Vec<Cow<'_, str>> {
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
pub(super) fn has_media(value: &Value) -> bool {
    match value {
        Value::Array(items) => items.iter().any(has_media),
        Value::Object(_) => {
            is_media(value) || ["content", "output"].iter().any(|member| has_media(&value[member]))
        }
        _ => false,
    }
}

/// Returns whether a part of a message is no text.
pub(super) fn is_media(part: &Value) -> bool {
    part["type"].as_str().is_some_and(|kind| MEDIA.contains(&kind))
}
