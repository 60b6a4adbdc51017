//! Terms, by which memories and queries are compared. A term is the stem of a word. An identifier yields its words
//! and itself: `parseHttpURL` has the terms `parsehttpurl`, `pars`, `http` and `url`. Very common words are not
//! terms.

use std::borrow::Cow;
use std::collections::BTreeMap;

use rust_stemmers::{Algorithm, Stemmer};

use crate::retrieval::keys::{self, Key};
use crate::retrieval::text::words;

/// The number of terms of a text that are used. A longer text is found by its beginning.
const MOST_TERMS: usize = 4_000;
/// The maximum length in bytes of a term. A longer word is known by its beginning, because the stemmer takes a time that grows
/// with the square of a word's length. A longer identifier has only the terms of its words.
const LONGEST_TERM: usize = 64;

/// Words that say nothing about the subject of a text, sorted.
const STOP_WORDS: [&str; 91] = [
    "a", "about", "am", "an", "and", "are", "as", "at", "be", "been", "being", "but", "by", "can", "could",
    "d", "did", "do", "does", "for", "from", "had", "has", "have", "he", "her", "here", "him", "his", "how",
    "i", "if", "in", "into", "is", "it", "its", "just", "ll", "m", "me", "my", "no", "not", "of", "on", "or",
    "our", "please", "re", "s", "she", "should", "so", "some", "such", "t", "than", "that", "the", "their",
    "them", "then", "there", "these", "they", "this", "those", "to", "too", "up", "us", "ve", "very", "was",
    "we", "were", "what", "when", "where", "which", "while", "who", "whom", "why", "will", "with", "would",
    "you", "your", "yours",
];

/// Returns the terms of a text, in their order.
pub fn terms(text: &str) -> impl Iterator<Item = String> {
    written_terms(text).map(|(term, _)| term)
}

/// Returns the terms of a text in order, each with its original spelling.
pub fn written_terms(text: &str) -> impl Iterator<Item = (String, &str)> {
    let runs = text.split(|c: char| !(c.is_alphanumeric() || c == '_'));
    runs.filter(|run| !run.is_empty()).flat_map(of_run).take(MOST_TERMS)
}

/// Returns the terms of a run of letters, digits and underscores.
fn of_run(run: &str) -> impl Iterator<Item = (String, &str)> {
    let parts: Vec<_> = words(run).flat_map(parts).collect();
    let is_identifier = parts.len() > 1 && run.is_ascii() && run.len() <= LONGEST_TERM;
    let whole = is_identifier.then(|| (run.to_ascii_lowercase(), run));
    let terms = parts.into_iter().filter_map(|part| Some((term(&part.to_lowercase())?, part)));
    whole.into_iter().chain(terms)
}

/// Returns the term of a word in lower case, if it is one.
fn term(word: &str) -> Option<String> {
    let word = &word[..word.floor_char_boundary(LONGEST_TERM)];
    if STOP_WORDS.binary_search(&word).is_ok() {
        return None;
    }
    let is_english = word.bytes().all(|byte| byte.is_ascii_lowercase());
    let stem = if is_english { Stemmer::create(Algorithm::English).stem(word) } else { Cow::Borrowed(word) };
    Some(stem.into_owned())
}

/// Returns the words of an identifier: `parseHttpURL2` has `parse`, `Http`, `URL` and `2`.
fn parts(word: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut start, mut before): (usize, Option<char>) = (0, None);
    let mut characters = word.char_indices().peekable();
    while let Some((at, c)) = characters.next() {
        let next_is_lower = characters.peek().is_some_and(|(_, next)| next.is_lowercase());
        let begins = before.is_some_and(|before| {
            before.is_numeric() != c.is_numeric()
                || c.is_uppercase() && (before.is_lowercase() || before.is_uppercase() && next_is_lower)
        });
        if begins {
            parts.push(&word[start..at]);
            start = at;
        }
        before = Some(c);
    }
    parts.push(&word[start..]);
    parts
}

/// The terms of a memory as the database stores them.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Indexed {
    /// The keys of the terms, ascending.
    pub keys: Vec<Key>,
    /// The number of occurrences of each term in the memory, at most 255.
    pub counts: Vec<u8>,
}

impl Indexed {
    /// Counts the terms of a memory's texts.
    #[must_use]
    pub fn of<'a>(project: &str, texts: impl IntoIterator<Item = &'a str>) -> Self {
        let mut counts: BTreeMap<Key, u8> = BTreeMap::new();
        for term in texts.into_iter().flat_map(terms).take(MOST_TERMS) {
            let count = counts.entry(keys::of_term(project, &term)).or_default();
            *count = count.saturating_add(1);
        }
        let (keys, counts) = counts.into_iter().unzip();
        Self { keys, counts }
    }

    /// Returns the keys by which the memory is found, with those of its project.
    #[must_use]
    pub fn search_keys(&self, project: &str) -> Vec<Key> {
        [&keys::of_project(project), &*self.keys].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(text: &str) -> Vec<String> {
        terms(text).collect()
    }

    #[test]
    fn stop_words_are_sorted() {
        assert!(STOP_WORDS.is_sorted());
    }

    #[test]
    fn words_are_stemmed_and_identifiers_are_split() {
        assert_eq!(all("How do I handle the tokens?"), ["handl", "token"]);
        assert_eq!(all("parseHttpURL"), ["parsehttpurl", "pars", "http", "url"]);
        assert_eq!(
            all("ovn_lflow XMLParser x86"),
            ["ovn_lflow", "ovn", "lflow", "xmlparser", "xml", "parser", "x86", "x", "86"]
        );
        assert_eq!(all("src/auth.rs:401"), ["src", "auth", "rs", "401"]);
        assert_eq!(all("Größe 基金"), ["größe", "基", "金"]);
        assert_eq!(all("… —"), Vec::<String>::new());
    }

    #[test]
    fn a_long_word_is_known_by_its_beginning() {
        let long = "ay".repeat(10_000);
        assert!(all(&long).iter().all(|term| term.len() <= LONGEST_TERM));
        assert_eq!(all(&long), all(&long[..300]));
        assert_eq!(all(&"é".repeat(1_000)), ["é".repeat(LONGEST_TERM / 2)]);
    }

    #[test]
    fn terms_are_counted() {
        let indexed = Indexed::of("p", ["tokens and a token", "Token"]);
        assert_eq!(indexed, Indexed { keys: vec![keys::of_term("p", "token")], counts: vec![3] });
    }
}
