//! The tokens that providers report.

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::types::{FreeForm, value};

/// The tokens of a call, as the provider counted them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tokens {
    /// The tokens of the whole prompt, those read from and written to a cache included.
    pub input: Option<i64>,
    /// The tokens of the answer.
    pub output: Option<i64>,
}

/// Reads the usage that a provider reports: `OpenAI`'s (Chat Completions and Responses) or `Anthropic`'s, whose input
/// tokens leave out those of the cache.
#[must_use]
pub fn tokens_of(usage: &FreeForm) -> Tokens {
    #[derive(Deserialize)]
    struct Usage<'a> {
        #[serde(borrow)]
        prompt_tokens: Option<&'a RawValue>,
        completion_tokens: Option<&'a RawValue>,
        input_tokens: Option<&'a RawValue>,
        output_tokens: Option<&'a RawValue>,
        cache_read_input_tokens: Option<&'a RawValue>,
        cache_creation_input_tokens: Option<&'a RawValue>,
    }
    let Ok(usage) = serde_json::from_str::<Usage>(usage.as_str()) else {
        return Tokens::default();
    };
    // What is no whole number is left out, and the rest is counted.
    let whole = |value: Option<&RawValue>| serde_json::from_str::<i64>(value?.get()).ok();
    let [read, written] = [usage.cache_read_input_tokens, usage.cache_creation_input_tokens]
        .map(|tokens| whole(tokens).unwrap_or_default());
    let cached = read.saturating_add(written);
    let count = |tokens: i64| tokens.clamp(0, super::MOST_TOKENS);
    Tokens {
        input: whole(usage.prompt_tokens)
            .or_else(|| Some(whole(usage.input_tokens)?.saturating_add(cached)))
            .map(count),
        output: whole(usage.completion_tokens).or_else(|| whole(usage.output_tokens)).map(count),
    }
}

/// Returns the numbers in a usage, with their names. A usage that is nested too deeply to be read has none.
#[must_use]
pub(super) fn numbers_of(usage: &FreeForm) -> FreeForm {
    fn is_kept(value: &mut Value) -> bool {
        match value {
            Value::Number(_) => true,
            Value::Object(members) => {
                members.retain(|_, value| is_kept(value));
                !members.is_empty()
            }
            _ => false,
        }
    }
    let mut usage = value::parse_inner(usage.as_str()).unwrap_or_default();
    if is_kept(&mut usage) { FreeForm::of(&usage).unwrap_or_default() } else { FreeForm::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_usage_only_the_numbers_are_kept() {
        for (usage, numbers) in [
            (r#"{"prompt_tokens":3,"api_key":"x"}"#, r#"{"prompt_tokens":3}"#),
            (
                r#"{"details":{"cached":1.5,"tier":"x"},"list":[1,"x"],"none":null}"#,
                r#"{"details":{"cached":1.5}}"#,
            ),
            (r#"{"details":{"tier":"x"},"is":true}"#, "{}"),
            (&format!(r#"{{"a":{}{}}}"#, r#"{"a":"#.repeat(300), "1".to_owned() + &"}".repeat(300)), "{}"),
        ] {
            let usage = serde_json::from_str(usage).expect(usage);
            assert_eq!(numbers_of(&usage).as_str(), numbers);
        }
    }

    #[test]
    fn usage_is_read_in_the_words_of_each_provider() {
        for (usage, input, output) in [
            (r#"{"prompt_tokens": 10, "completion_tokens": 3, "total_tokens": 13}"#, Some(10), Some(3)),
            (
                r#"{"input_tokens": 10, "output_tokens": 3, "cache_read_input_tokens": 100, "cache_creation_input_tokens": 5}"#,
                Some(115),
                Some(3),
            ),
            (
                r#"{"input_tokens": 10, "input_tokens_details": {"cached_tokens": 8}, "output_tokens": 3}"#,
                Some(10),
                Some(3),
            ),
            (r#"{"input_tokens": 10, "cache_read_input_tokens": null}"#, Some(10), None),
            (r#"{"input_tokens": "ten"}"#, None, None),
            (r#"{"prompt_tokens": 10, "input_tokens": 9.5, "completion_tokens": 3}"#, Some(10), Some(3)),
            ("{}", None, None),
        ] {
            let usage = serde_json::from_str(usage).expect(usage);
            assert_eq!(tokens_of(&usage), Tokens { input, output });
        }
    }
}
