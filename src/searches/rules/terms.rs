//! Terms of queries, patterns and paths, and their similarity.

use std::collections::BTreeSet;

use crate::retrieval::text::{with_identifiers_split, words};

/// The number of characters that distinguish a word, so that `creation` and `create` are the same, in any language.
const STEM: usize = 5;

/// The stems of a text's words, also within identifiers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Terms(BTreeSet<String>);

impl Terms {
    /// Returns the terms of a text.
    #[must_use]
    pub fn of(text: &str) -> Self {
        let text = with_identifiers_split(text).to_lowercase();
        Self(words(&text).map(|word| word.chars().take(STEM).collect()).collect())
    }

    /// Returns the share of these terms that another text has too, from 0 to 1.
    #[must_use]
    pub fn share_in(&self, other: &Self) -> f64 {
        self.0.intersection(&other.0).count() as f64 / self.0.len().max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn resemblance(query: &str, text: &str) -> f64 {
        Terms::of(query).share_in(&Terms::of(text))
    }

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
