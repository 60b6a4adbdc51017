//! Terms of queries, patterns and paths: what they are found by, and how alike they are.

use std::collections::BTreeSet;

/// How many characters of a word tell it from others: `creation` and `create` are to meet, in any language.
const STEM: usize = 5;
/// How many words of a text are looked at.
const WORDS: usize = 12;

/// The stems of a text's words. Words end where letters and digits do, and within `camelCase`; each character of a
/// script that puts no spaces between words is one.
fn stems(text: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut before = ' ';
    for c in text.chars() {
        if c.is_alphanumeric() {
            let begins = !before.is_alphanumeric()
                || (before.is_lowercase() && c.is_uppercase())
                || spaceless(c)
                || spaceless(before);
            if begins {
                words.push(String::new());
            }
            if let Some(word) = words.last_mut()
                && word.chars().count() < STEM
            {
                word.extend(c.to_lowercase());
            }
        }
        before = c;
    }
    words
}

/// Whether a character belongs to a script without spaces (Chinese, Japanese).
fn spaceless(c: char) -> bool {
    ('\u{2e80}'..='\u{9fff}').contains(&c) || ('\u{f900}'..='\u{faff}').contains(&c)
}

/// The terms that a query is found by: its stems, and each pair of neighbours. A text without a word is one
/// term itself.
#[must_use]
pub fn terms(query: &str) -> Vec<String> {
    let mut stems = stems(query);
    stems.truncate(WORDS);
    if stems.is_empty() {
        return vec![query.trim().chars().take(50).collect()];
    }
    let pairs = stems.windows(2).map(|pair| pair.join(" "));
    let terms: BTreeSet<_> = pairs.chain(stems.iter().cloned()).collect();
    terms.into_iter().collect()
}

/// The share of the query's stems that the text has, 0 to 1.
#[must_use]
pub fn resemblance(query: &str, text: &str) -> f64 {
    let wanted: BTreeSet<_> = stems(query).into_iter().collect();
    let there: BTreeSet<_> = stems(text).into_iter().collect();
    wanted.intersection(&there).count() as f64 / wanted.len().max(1) as f64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_query_is_found_by_its_stems_and_pairs_of_neighbours() {
        assert_eq!(terms("login button"), ["butto", "login", "login butto"]);
        assert_eq!(terms("LoginButton.tsx"), ["butto", "butto tsx", "login", "login butto", "tsx"]);
        assert_eq!(terms("func.*parseHTTP2"), ["func", "func parse", "http2", "parse", "parse http2"]);
        assert_eq!(terms("登录"), ["录", "登", "登 录"]);
        assert_eq!(terms(" => "), ["=>"]);
    }

    #[test]
    fn resemblance_is_the_share_of_the_query_that_is_there() {
        assert!((resemblance("login button", "src/auth/LoginButton.tsx") - 1.0).abs() < 1e-9);
        assert!((resemblance("user creation", "src/create.rs") - 0.5).abs() < 1e-9);
        assert!(resemblance("", "src/create.rs").abs() < 1e-9);
    }

    proptest! {
        #[test]
        fn every_text_has_some_terms_and_not_many(text in any::<String>()) {
            let terms = terms(&text);
            prop_assert!((1..2 * WORDS).contains(&terms.len()), "{terms:?}");
        }

        #[test]
        fn a_text_with_words_resembles_itself(text in "[a-z]{1,8}( [a-zA-Z0-9]{1,8}){0,5}") {
            prop_assert!((resemblance(&text, &text) - 1.0).abs() < 1e-9);
        }
    }
}
