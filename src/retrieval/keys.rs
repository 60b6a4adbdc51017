//! The keys of a document: hashes of its project with each of its words, with each of its words in its facet, with
//! each pair of adjacent words, and with the prefix of each longer word. A text without words is its own key.
//!
//! One array of integers per row, in one index, is smaller and cheaper to maintain than a text search vector. Databases
//! contain the results of [`of_document`], so a change of the keys needs a migration.
//!
//! Every key contains the project, but anyone can compute words of one project that have the keys of words of another. So
//! the array of a row also has the [keys of its project](of_project), which no word has, and a search asks for these as
//! well. Postgres then skips the rows of other projects in the index, however many have a key of the search.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use sha2::{Digest as _, Sha256};
use sqlx::error::BoxDynError;
use sqlx::postgres::{PgTypeInfo, PgValueRef};
use sqlx::{Decode, Postgres, Type};

use super::Scope;
use super::text::words;

/// The maximum number of words of a text that have keys.
const MOST_WORDS: usize = 100;
/// The number of bytes at the beginning of a text that are searched for these words. What has none takes long to search.
const MOST_READ: usize = 64 << 10;
/// The number of characters of a longer word's prefix that is a key. A typing error after the prefix does not change
/// the key.
const PREFIX: usize = 4;

/// A key, as stored in Postgres. Those of words are not negative, and those of projects are.
pub type Key = i32;

/// A map from keys. A search counts hundreds of thousands of them, for which the standard library's hash is slow.
pub type KeyMap<V> = HashMap<Key, V, RandomState>;

/// The keys of a document without those of its project, as they are read from Postgres. A search reads those of a
/// thousand documents, and sqlx takes about 30 ns to decode each member of an array, several times as long as comparing
/// it takes.
#[derive(Debug, Default)]
pub struct StoredKeys(pub Vec<Key>);

impl Type<Postgres> for StoredKeys {
    fn type_info() -> PgTypeInfo {
        <Vec<Key> as Type<Postgres>>::type_info()
    }
}

impl Decode<'_, Postgres> for StoredKeys {
    fn decode(value: PgValueRef<'_>) -> Result<Self, BoxDynError> {
        // Five integers come first: the number of dimensions, whether there are nulls, the type of the members, their
        // number and the index of the first. An empty array has no dimension. Before each member is its length.
        let members = value.as_bytes()?.get(20..).unwrap_or_default();
        let key = |member: &[u8; 8]| Key::from_be_bytes([member[4], member[5], member[6], member[7]]);
        Ok(Self(members.as_chunks().0.iter().map(key).filter(|key| *key >= 0).collect()))
    }
}

/// Returns the keys of a project. They have 62 bits of a hash together, so that no other project has both.
#[must_use]
pub fn of_project(project: &str) -> [Key; 2] {
    let hash = Sha256::digest(project);
    let key = |start: usize| {
        Key::MIN | Key::from_be_bytes([hash[start], hash[start + 1], hash[start + 2], hash[start + 3]])
    };
    [key(0), key(4)]
}

/// Returns all keys of a document and those of its project, sorted and without duplicates.
#[must_use]
pub fn of_document(project: &str, facet: &str, text: &str) -> Vec<Key> {
    let lower = read_of(text).to_lowercase();
    let mut keys = of_parts(project, &lower);
    keys.extend(of_project(project));
    for word in first_words(&lower) {
        keys.extend([of_word(project, None, word), of_word(project, Some(facet), word)]);
    }
    keys.sort_unstable();
    keys.dedup();
    keys
}

/// Returns the key of a term that a domain has made from its documents and queries
/// ([`Keyed::Terms`](super::Keyed::Terms)).
#[must_use]
pub fn of_term(project: &str, term: &str) -> Key {
    key(project, "term", &[term])
}

/// Computes keys of terms of one kind in one part of a project, which differ from all others.
#[derive(Debug, Clone)]
pub struct Space {
    hash: crc32fast::Hasher,
    of_project: [Key; 2],
}

impl Space {
    /// Makes the keys of a kind of terms in a part of a project.
    #[must_use]
    pub fn new(project: &str, kind: &str, part: &str) -> Self {
        let mut hash = crc32fast::Hasher::new();
        for part in [project, "\x1f", kind, "\x1f", part, "\x1f"] {
            hash.update(part.as_bytes());
        }
        Self { hash, of_project: of_project(project) }
    }

    /// Returns the key of a term.
    #[must_use]
    pub fn key(&self, term: &str) -> Key {
        let mut hash = self.hash.clone();
        hash.update(term.as_bytes());
        finish(hash)
    }

    /// Returns the keys of the project.
    #[must_use]
    pub fn of_project(&self) -> [Key; 2] {
        self.of_project
    }
}

/// Writes keys as a Postgres array literal. An array of arrays would have to be rectangular, so a statement for many
/// rows gets the keys of each row as text.
#[must_use]
pub fn literal(keys: &[Key]) -> String {
    let keys: Vec<_> = keys.iter().map(ToString::to_string).collect();
    format!("{{{}}}", keys.join(","))
}

impl Scope {
    /// Returns the key of a word in lower case in this scope.
    pub(super) fn key_of_word(&self, word: &str) -> Key {
        of_word(&self.project, self.facet.as_deref(), word)
    }

    /// Returns the keys of a text's words in this scope. The text must be in lower case.
    pub(super) fn keys_of_words(&self, text: &str) -> Vec<Key> {
        first_words(text).map(|word| self.key_of_word(word)).collect()
    }

    /// Returns the keys of a text's pairs of words and of its words' prefixes, which belong to the whole project. The
    /// text must be in lower case.
    pub(super) fn keys_of_parts(&self, text: &str) -> Vec<Key> {
        of_parts(&self.project, text)
    }
}

/// Returns the part of a text that is searched for words.
fn read_of(text: &str) -> &str {
    &text[..text.floor_char_boundary(MOST_READ)]
}

/// Returns the words of a text that have keys.
fn first_words(text: &str) -> impl Iterator<Item = &str> {
    words(read_of(text)).take(MOST_WORDS)
}

fn of_word(project: &str, facet: Option<&str>, word: &str) -> Key {
    match facet {
        None => key(project, "word", &[word]),
        // The label is "domain" because logs, which are divided by domain, were the first documents.
        Some(facet) => key(project, "domain", &[facet, "\x1f", word]),
    }
}

fn of_parts(project: &str, text: &str) -> Vec<Key> {
    let words: Vec<_> = first_words(text).collect();
    let itself = words.is_empty().then(|| key(project, "text", &[read_of(text).trim()]));
    let pairs = words.windows(2).map(|pair| key(project, "pair", &[pair[0], " ", pair[1]]));
    let prefixes = words.iter().filter_map(|word| {
        let (end, _) = word.char_indices().nth(PREFIX)?;
        Some(key(project, "prefix", &[&word[..end]]))
    });
    pairs.chain(prefixes).chain(itself).collect()
}

/// Hashes a key with CRC-32, which will not change. A document that is found by a collision is rare and ranks low.
fn key(project: &str, kind: &str, parts: &[&str]) -> Key {
    let mut hash = crc32fast::Hasher::new();
    for part in [project, "\x1f", kind, "\x1f"].iter().chain(parts) {
        hash.update(part.as_bytes());
    }
    finish(hash)
}

/// Returns the upper bits of a hash as a key that is not negative.
fn finish(hash: crc32fast::Hasher) -> Key {
    (hash.finalize() >> 1).cast_signed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_the_same_for_ever() {
        // Databases contain keys. If this test fails, a migration is needed.
        assert_eq!(
            of_document("default", "cbu", "Create fund"),
            [
                -1_213_665_599,
                -837_195_651,
                208_217_439,
                785_019_557,
                1_100_359_001,
                1_650_977_166,
                1_755_132_578,
                1_948_057_724
            ]
        );
    }

    #[test]
    fn a_document_shares_keys_with_a_typing_error_but_with_no_other_project_or_facet() {
        let keys = of_document("p", "cbu", "Create a hedge fund");
        let found = |asked: Vec<Key>| asked.into_iter().filter(|key| keys.contains(key)).count();
        let scope = |facet: Option<&str>| Scope { project: "p".into(), facet: facet.map(str::to_owned) };
        let by_words = |facet| found(scope(facet).keys_of_words("create a hedge fund"));
        assert_eq!([by_words(None), by_words(Some("cbu")), by_words(Some("entity"))], [4, 4, 0]);
        let by_parts = |text| found(scope(None).keys_of_parts(text));
        assert_eq!(
            by_parts("create a hedge fund"),
            3 + 2,
            "pairs of words, and the prefixes of the longer ones"
        );
        assert_eq!(by_parts("creaet"), 1);
        assert_eq!(found(of_document("q", "cbu", "Create a hedge fund")), 0);
    }

    #[test]
    fn what_has_no_words_is_searched_for_them_at_its_beginning_only() {
        let marks = "\u{fffd}".repeat(MOST_READ / 3);
        let keys = of_document("p", "cbu", &format!("{marks}\u{fffd}\u{fffd} word"));
        assert_eq!(keys, of_document("p", "cbu", &marks));
        assert_ne!(keys, of_document("p", "cbu", "word"));
        assert_eq!(of_parts("p", &marks), of_parts("p", &format!("{marks} word")));
    }

    #[test]
    fn a_document_has_the_keys_of_its_project_which_no_word_has() {
        let text = (0..1_000).map(|number| format!("w{number}")).collect::<Vec<_>>().join(" ");
        let keys = of_document("p", "cbu", &text);
        let negative: Vec<_> = keys.iter().copied().filter(|key| *key < 0).collect();
        let mut of_project = of_project("p");
        of_project.sort_unstable();
        assert_eq!(negative, of_project);
        assert!(keys.len() > 300);
    }
}
