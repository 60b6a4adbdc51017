mod bounds;
mod choices;
mod cookies;
mod headers;
mod inputs;
mod json;
mod languages;
mod left_alone;
mod lists;
mod manifests;
mod named;
mod private_keys;
mod programs;
mod tables;
mod tokens;

use super::*;

fn secrets() -> Redactor {
    Redactor::new(&["secrets"], &[], None).expect("built-in rules")
}

fn redacted(redactor: &Redactor, text: &str) -> String {
    let spans = redactor.spans(text, 0, MOST_SPANS);
    let tags = redactor.tags.as_ref().map(|key| (key, replacements::TAG));
    redactor.replace(text, 0, &spans, tags, &mut usize::MAX.clone()).unwrap_or_else(|| text.to_owned())
}

/// Returns a text as it is stored: one that is JSON stays JSON.
fn stored(redactor: &Redactor, text: &str) -> String {
    let mut text = text.to_owned();
    text.texts(&mut Redaction::new(redactor, &HashKey::new(vec![1; 32])));
    text
}

/// Asserts that the secret of a text is replaced, also as it is stored.
#[track_caller]
fn assert_replaced(redactor: &Redactor, text: &str, secret: &str) {
    for redacted in [redacted(redactor, text), stored(redactor, text)] {
        assert!(redacted.contains("[redacted:secrets]") && !redacted.contains(secret), "{text}: {redacted}");
    }
}

/// Characters that look drawn at random, always the same.
fn random(length: usize) -> String {
    let mut random = fastrand::Rng::with_seed(length as u64);
    std::iter::repeat_with(|| random.alphanumeric()).take(length).collect()
}

/// Characters drawn at random of some, always the same for the same number.
pub(super) fn drawn(of: &str, length: usize, number: u64) -> String {
    let (of, mut random) = (of.as_bytes(), fastrand::Rng::with_seed(number));
    std::iter::repeat_with(|| char::from(of[random.usize(..of.len())])).take(length).collect()
}

const LETTERS_AND_DIGITS: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
