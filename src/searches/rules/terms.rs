//! Terms of queries, patterns and paths, and their similarity.

use std::collections::BTreeSet;

use crate::retrieval::text::{with_identifiers_split, words};

/// The number of characters that distinguish a word, so that `creation` and `create` are the same, in any language.
const STEM: usize = 5;

/// Returns the stems of a text's words, also within identifiers.
fn stems(text: &str) -> BTreeSet<String> {
    let text = with_identifiers_split(text).to_lowercase();
    words(&text).map(|word| word.chars().take(STEM).collect()).collect()
}

/// Returns the share of the query's stems that the text contains, from 0 to 1.
#[must_use]
pub fn resemblance(query: &str, text: &str) -> f64 {
    let (wanted, there) = (stems(query), stems(text));
    wanted.intersection(&there).count() as f64 / wanted.len().max(1) as f64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn resemblance_is_the_share_of_the_query_that_is_there() {
        assert!((resemblance("login button", "src/auth/LoginButton.tsx") - 1.0).abs() < 1e-9);
        assert!((resemblance("user creation", "src/create.rs") - 0.5).abs() < 1e-9);
        assert!(resemblance("", "src/create.rs").abs() < 1e-9);
    }

    proptest! {
        #[test]
        fn a_text_with_words_resembles_itself(text in "[a-z]{1,8}( [a-zA-Z0-9]{1,8}){0,5}") {
            prop_assert!((resemblance(&text, &text) - 1.0).abs() < 1e-9);
        }
    }
}
