//! The keys under which a log is found: hashes of its project with each of its words, with each of them in its domain, with
//! each two words that stand together, and with the beginning of each longer word.
//!
//! One array of numbers a row, in one index, is smaller and faster to keep than a text search vector, and since the project
//! is in every key, no query meets another tenant's rows. The column `search_keys` holds what [`of_log`] returns; another
//! way to make keys would need a migration that makes them anew.

use super::text::words;

/// How many words of an intent have keys.
const MOST_WORDS: usize = 100;
/// Of a word at least a character longer than this, so many characters are a key too: a slip of the pen further on leaves
/// it as it is.
const PREFIX: usize = 4;

/// A key, as Postgres keeps it.
pub(super) type Key = i32;

/// All keys of a log, ascending and distinct.
#[must_use]
pub(in crate::generations) fn of_log(project: &str, user_intent: &str, domain_name: &str) -> Vec<Key> {
    let lower = user_intent.to_lowercase();
    let mut keys = of_parts(project, &lower);
    for word in words(&lower).take(MOST_WORDS) {
        keys.extend([of_word(project, None, word), of_word(project, Some(domain_name), word)]);
    }
    keys.sort_unstable();
    keys.dedup();
    keys
}

/// The key of a word in lower case, in a domain if given.
pub(super) fn of_word(project: &str, domain_name: Option<&str>, word: &str) -> Key {
    match domain_name {
        None => key(project, "word", &[word]),
        Some(domain_name) => key(project, "domain", &[domain_name, "\x1f", word]),
    }
}

/// The keys of an intent's words, in a domain if given. The intent is in lower case.
pub(super) fn of_words(project: &str, domain_name: Option<&str>, intent: &str) -> Vec<Key> {
    words(intent).take(MOST_WORDS).map(|word| of_word(project, domain_name, word)).collect()
}

/// The keys of an intent's pairs of words and of the beginnings of words. The intent is in lower case.
pub(super) fn of_parts(project: &str, intent: &str) -> Vec<Key> {
    let words: Vec<_> = words(intent).take(MOST_WORDS).collect();
    let pairs = words.windows(2).map(|pair| key(project, "pair", &[pair[0], " ", pair[1]]));
    let beginnings = words.iter().filter_map(|word| {
        let (end, _) = word.char_indices().nth(PREFIX)?;
        Some(key(project, "prefix", &[&word[..end]]))
    });
    pairs.chain(beginnings).collect()
}

/// CRC-32 serves as the hash: what it is will not change, and the rare log that is found by accident ranks low.
fn key(project: &str, kind: &str, parts: &[&str]) -> Key {
    let mut hash = crc32fast::Hasher::new();
    for part in [project, "\x1f", kind, "\x1f"].iter().chain(parts) {
        hash.update(part.as_bytes());
    }
    hash.finalize().cast_signed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_the_same_for_ever() {
        // Kept in databases: if this fails, a migration is needed.
        assert_eq!(
            of_log("default", "Create fund", "cbu"),
            [-2_094_249_293, -993_012_963, -784_702_140, -398_851_847, 416_434_878, 1_570_039_114]
        );
    }

    #[test]
    fn a_log_shares_keys_with_a_slip_of_the_pen_but_with_no_other_project_or_domain() {
        let keys = of_log("p", "Create a hedge fund", "cbu");
        let found = |asked: Vec<Key>| asked.into_iter().filter(|key| keys.contains(key)).count();
        assert_eq!(found(of_words("p", None, "create a hedge fund")), 4);
        assert_eq!(found(of_words("p", Some("cbu"), "create a hedge fund")), 4);
        assert_eq!(found(of_words("p", Some("entity"), "create a hedge fund")), 0);
        // Pairs of words, and the beginnings of the two longer ones.
        assert_eq!(found(of_parts("p", "create a hedge fund")), 3 + 2);
        assert_eq!(found(of_parts("p", "creaet")), 1);
        assert_eq!(found(of_log("q", "Create a hedge fund", "cbu")), 0);
    }
}
