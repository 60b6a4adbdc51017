//! Character 4-grams, by which `authentication` and `authenticate` are similar, and so are a word and its
//! misspelling.

use std::collections::HashSet;

use crate::retrieval::text::words;

/// Returns the 4-grams of a text's words, each with a space before and behind it. A shorter word is a single gram.
#[must_use]
pub fn grams(text: &str) -> HashSet<u64> {
    let lower = text.to_lowercase();
    let mut grams = HashSet::new();
    for word in words(&lower) {
        let mut window = 0_u64;
        let mut length = 0;
        for c in [' '].into_iter().chain(word.chars()).chain([' ']) {
            // A character takes sixteen bits. Different characters beyond that range may be confused, which does no
            // harm.
            window = window << 16 | u64::from(u32::from(c) & 0xFFFF);
            length += 1;
            if length >= 4 {
                grams.insert(window);
            }
        }
        if length < 4 {
            grams.insert(window);
        }
    }
    grams
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_that_begin_alike_share_grams() {
        let (a, b) = (grams("Authentication"), grams("authenticate it"));
        assert_eq!((a.len(), a.intersection(&b).count()), (13, 9));
        assert_eq!(grams("a b").len(), 2);
        assert!(grams("…").is_empty());
    }
}
