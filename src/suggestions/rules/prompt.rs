//! The prompt of a model and its answer, read once from the client's own JSON.

use serde::Deserialize;
use serde_json::value::RawValue;
use uuid::Uuid;

use crate::exports::chat::Prompt;
use crate::suggestions::requests::NewSuggestion;
use crate::types::{FreeForm, derived_id};

#[derive(Deserialize)]
struct Request<'a> {
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
    /// The tokens of prompts and responses together.
    pub total: Option<i64>,
    /// The tokens of prompts.
    pub prompt: Option<i64>,
    /// The tokens of responses.
    pub completion: Option<i64>,
}

impl Usage {
    /// Returns the numbers of tokens by whichever names the provider uses. Impossible ones are left out.
    fn tokens(&self) -> Tokens {
        let count = |one: Option<i64>, other: Option<i64>| {
            one.or(other).filter(|count| (0..=1_000_000_000).contains(count))
        };
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

/// Parses the JSON, if there is some and it is a `T`.
fn read<'a, T: Deserialize<'a>>(json: Option<&'a RawValue>) -> Option<T> {
    serde_json::from_str(json?.get()).ok()
}

/// Returns the messages that were sent to the model: those of the request, or else the context as one user message. A
/// request whose messages cannot be read counts as one without messages.
#[must_use]
pub fn told<'a>(llm_request: Option<&str>, context: &'a str) -> Prompt<'a> {
    llm_request.and_then(Prompt::read).unwrap_or_else(|| Prompt::of(context))
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
    /// The model that answered, or the requested model if the response names none.
    pub model: Option<String>,
    /// The requested temperature.
    pub temperature: Option<f64>,
    /// The numbers of tokens of the call.
    pub tokens: Tokens,
    /// Whether the call failed.
    pub failed: bool,
    /// The number of blocks in the context.
    pub context_block_count: Option<i32>,
    /// Whether the messages of the request can be read.
    pub request_is_readable: bool,
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
        let sent = new.llm_request.as_ref().and_then(|request| Prompt::read(request.as_str()));
        Self {
            model: name(answered).or_else(|| name(asked)),
            temperature: read(temperature),
            tokens: usage.map(|usage| usage.tokens()).unwrap_or_default(),
            failed: new.failure().is_some(),
            context_block_count: new.context_block_count.or_else(|| i32::try_from(blocks?.len()).ok()),
            request_is_readable: sent.is_some(),
            prompt_hash: prompt_hash(&sent.unwrap_or_else(|| Prompt::of(new.context.as_str()))),
            context_hash: derived_id(&[b"context", new.context.as_str().as_bytes()]),
        }
    }
}

fn parse<'a, T: Deserialize<'a>>(object: Option<&'a FreeForm>) -> Option<T> {
    serde_json::from_str(object?.as_str()).ok()
}

fn prompt_hash(told: &Prompt<'_>) -> Uuid {
    let parts = [serde_json::to_vec(&told.messages), serde_json::to_vec(&told.tools)];
    derived_id(&parts.each_ref().map(|part| part.as_deref().unwrap_or_default()))
}
