//! The keys under which a log is found: hashes of its project with its domain, with each of its words, with each two words
//! that stand together, and with the beginning of each longer word.
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
    let mut keys = of_intent(project, user_intent);
    keys.push(of_domain(project, domain_name));
    keys.sort_unstable();
    keys.dedup();
    keys
}

/// The keys of an intent, ascending and distinct.
pub(super) fn of_intent(project: &str, user_intent: &str) -> Vec<Key> {
    let lower = user_intent.to_lowercase();
    let words: Vec<_> = words(&lower).take(MOST_WORDS).collect();
    let mut keys: Vec<_> = words.iter().map(|word| of_word(project, word)).collect();
    keys.extend(words.windows(2).map(|pair| key(project, "pair", &[pair[0], " ", pair[1]])));
    keys.extend(words.iter().filter_map(|word| {
        let (end, _) = word.char_indices().nth(PREFIX)?;
        Some(key(project, "prefix", &[&word[..end]]))
    }));
    keys.sort_unstable();
    keys.dedup();
    keys
}

/// The key of a word in lower case.
pub(super) fn of_word(project: &str, word: &str) -> Key {
    key(project, "word", &[word])
}

/// The key of a domain.
pub(super) fn of_domain(project: &str, domain_name: &str) -> Key {
    key(project, "domain", &[domain_name])
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
        assert_eq!(of_domain("default", "cbu"), 2_091_783_206);
        assert_eq!(
            of_intent("default", "Create fund"),
            [-2_094_249_293, -993_012_963, -784_702_140, 1_570_039_114]
        );
    }

    #[test]
    fn a_log_shares_keys_with_a_slip_of_the_pen_but_with_no_other_project() {
        let keys = of_log("p", "Create a hedge fund", "cbu");
        let shared =
            |project, intent| of_intent(project, intent).into_iter().filter(|key| keys.contains(key)).count();
        // Words, pairs of words, and the beginnings of the two longer ones.
        assert_eq!(shared("p", "Create a hedge fund"), 4 + 3 + 2);
        assert_eq!(shared("p", "creaet"), 1);
        assert_eq!(shared("q", "Create a hedge fund"), 0);
    }
}
