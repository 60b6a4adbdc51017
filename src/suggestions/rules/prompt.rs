//! What a model was told and what it answered, read once from the client's own JSON.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;
use uuid::Uuid;

use crate::suggestions::requests::NewSuggestion;
use crate::types::{FreeForm, derived_id};

/// A message of a chat, reduced to text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message<'a> {
    /// The role of the message's author, such as `user`.
    pub role: Cow<'a, str>,
    /// The text of the message.
    pub content: Cow<'a, str>,
}

#[derive(Deserialize)]
struct Request<'a> {
    #[serde(borrow)]
    messages: Option<&'a RawValue>,
    #[serde(borrow)]
    model: Option<&'a RawValue>,
    #[serde(borrow)]
    temperature: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Response<'a> {
    #[serde(borrow)]
    model: Option<&'a RawValue>,
    #[serde(borrow)]
    usage: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Usage {
    total_tokens: Option<i64>,
    prompt_tokens: Option<i64>,
    completion_tokens: Option<i64>,
    input_tokens: Option<i64>,
    output_tokens: Option<i64>,
}

/// How many tokens a call took, where the provider says so.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tokens {
    /// Those of prompt and response together.
    pub total: Option<i64>,
    /// Those of the prompt.
    pub prompt: Option<i64>,
    /// Those of the response.
    pub completion: Option<i64>,
}

impl Usage {
    /// Returns the numbers of tokens by whichever names the provider uses. Negative ones are none.
    fn tokens(&self) -> Tokens {
        let count = |one: Option<i64>, other: Option<i64>| one.or(other).filter(|count| *count >= 0);
        let prompt = count(self.prompt_tokens, self.input_tokens);
        let completion = count(self.completion_tokens, self.output_tokens);
        let both = prompt.zip(completion).and_then(|(prompt, completion)| prompt.checked_add(completion));
        Tokens { total: count(self.total_tokens, both), prompt, completion }
    }
}

#[derive(Deserialize)]
struct Context<'a> {
    #[serde(borrow)]
    blocks: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Said<'a> {
    #[serde(borrow)]
    role: Cow<'a, str>,
    #[serde(borrow)]
    content: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Part {
    text: Option<String>,
}

/// Parses the JSON, if there is some and it is a `T`.
fn read<'a, T: Deserialize<'a>>(json: Option<&'a RawValue>) -> Option<T> {
    serde_json::from_str(json?.get()).ok()
}

/// Returns what the model was told: the messages of the request, or else the context as one user message.
/// Only the text of a message is used. A request whose messages cannot be read counts as one without
/// messages.
#[must_use]
pub fn messages<'a>(llm_request: Option<&'a str>, context: &'a str) -> Vec<Message<'a>> {
    let said = || {
        let request: Request<'a> = serde_json::from_str(llm_request?).ok()?;
        let said: Vec<Said<'a>> = read(request.messages)?;
        let messages =
            said.into_iter().map(|Said { role, content }| Some(Message { role, content: text(content)? }));
        messages.collect::<Option<Vec<_>>>().filter(|messages| !messages.is_empty())
    };
    said().unwrap_or_else(|| vec![Message { role: "user".into(), content: context.into() }])
}

/// Returns the text of a message: its content, or that of the content's parts.
fn text(content: Option<&RawValue>) -> Option<Cow<'_, str>> {
    let Some(content) = content else { return Some("".into()) };
    if content.get().starts_with('[') {
        let parts: Vec<Part> = read(Some(content))?;
        return Some(parts.into_iter().filter_map(|part| part.text).collect::<String>().into());
    }
    // Serde borrows a `Cow` only within a struct, so the text is read as `&str` first.
    let borrowed: Option<&str> = read(Some(content));
    borrowed.map(Cow::Borrowed).or_else(|| read::<String>(Some(content)).map(Cow::Owned))
}

/// Returns the inputs of the blocks in a context, oldest first.
#[must_use]
pub fn inputs(context: &str) -> Vec<String> {
    #[derive(Deserialize)]
    struct Block {
        input: Option<String>,
    }
    let context: Option<Context<'_>> = serde_json::from_str(context).ok();
    let blocks: Vec<Block> = context.and_then(|context| read(context.blocks)).unwrap_or_default();
    blocks.into_iter().filter_map(|block| block.input).collect()
}

/// The properties by which analytics group slates.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Facts {
    /// The model that answered, or else the one asked for.
    pub model: Option<String>,
    /// The temperature asked for.
    pub temperature: Option<f64>,
    /// The numbers of tokens of the call.
    pub tokens: Tokens,
    /// The number of blocks in the context.
    pub context_block_count: Option<i32>,
    /// The hash of the messages as exports write them.
    pub prompt_hash: Uuid,
    /// The hash of the context.
    pub context_hash: Uuid,
}

impl Facts {
    /// Reads the properties of a request.
    #[must_use]
    pub fn of(new: &NewSuggestion) -> Self {
        let request: Option<Request<'_>> = parse(new.llm_request.as_ref());
        let response: Option<Response<'_>> = parse(new.llm_response.as_ref());
        let context: Option<Context<'_>> = parse(Some(&new.context));
        let blocks: Option<Vec<&RawValue>> = context.and_then(|context| read(context.blocks));
        let usage: Option<Usage> = response.as_ref().and_then(|response| read(response.usage));
        let (asked, temperature) =
            request.map_or((None, None), |request| (request.model, request.temperature));
        let answered = response.and_then(|response| response.model);
        let name = |model| read::<String>(model).filter(|model| (1..=200).contains(&model.len()));
        Self {
            model: name(answered).or_else(|| name(asked)),
            temperature: read(temperature),
            tokens: usage.map(|usage| usage.tokens()).unwrap_or_default(),
            context_block_count: new.context_block_count.or_else(|| i32::try_from(blocks?.len()).ok()),
            prompt_hash: prompt_hash(new),
            context_hash: derived_id(&[b"context", new.context.as_str().as_bytes()]),
        }
    }
}

fn parse<'a, T: Deserialize<'a>>(object: Option<&'a FreeForm>) -> Option<T> {
    serde_json::from_str(object?.as_str()).ok()
}

fn prompt_hash(new: &NewSuggestion) -> Uuid {
    let messages = messages(new.llm_request.as_ref().map(FreeForm::as_str), new.context.as_str());
    let parts: Vec<_> =
        messages.iter().flat_map(|message| [message.role.as_bytes(), message.content.as_bytes()]).collect();
    derived_id(&parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(llm_request: &str) -> Vec<(String, String)> {
        let messages = messages(Some(llm_request), r#"{"cwd":"/"}"#);
        messages
            .into_iter()
            .map(|message| (message.role.into_owned(), message.content.into_owned()))
            .collect()
    }

    #[test]
    fn the_prompt_is_the_messages_of_the_request_as_text_else_the_context() {
        let pair = |role: &str, content: &str| (role.to_owned(), content.to_owned());
        let request = r#"{"messages": [{"role": "system", "content": "Be \"brief\""},
            {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image"}, {"text": "b"}], "name": "x"},
            {"role": "assistant", "content": null, "tool_calls": []}]}"#;
        assert_eq!(
            told(request),
            [pair("system", "Be \"brief\""), pair("user", "ab"), pair("assistant", "")]
        );
        for other in [r#"{"messages": []}"#, r#"{"messages": "hi"}"#, r#"{"messages": [{"role": 1}]}"#, "{}"]
        {
            assert_eq!(told(other), [pair("user", r#"{"cwd":"/"}"#)], "{other}");
        }
    }
}
