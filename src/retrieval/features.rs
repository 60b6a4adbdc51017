//! Features: what texts have in common, as numbers. Features are numbered in the order in which they appear in the
//! candidates, so that nothing needs sorting, and the trigrams of a word are computed once.

use std::collections::HashMap;
use std::hash::Hash;

use foldhash::fast::RandomState;

use super::text::{Token, tokens, trigrams};

/// Things, such as words, numbered in the order in which they appear. Numbers of different numberings are unrelated.
#[derive(Debug)]
pub struct Numbers<T>(HashMap<T, u32, RandomState>);

impl<T> Default for Numbers<T> {
    fn default() -> Self {
        Self(HashMap::default())
    }
}

impl<T: Eq + Hash> Numbers<T> {
    /// Returns the number of a thing.
    pub fn of(&mut self, thing: T) -> u32 {
        let next = u32::try_from(self.0.len()).unwrap_or(u32::MAX);
        *self.0.entry(thing).or_insert(next)
    }

    /// Returns the numbers of several things.
    pub fn of_all(&mut self, things: impl Iterator<Item = T>) -> Vec<u32> {
        things.map(|thing| self.of(thing)).collect()
    }
}

/// The tokens of texts in lower case, and the trigrams of those tokens that are words.
#[derive(Debug, Default)]
pub struct Vocabulary<'a> {
    /// The numbers of the tokens.
    pub tokens: Numbers<&'a str>,
    trigrams: Numbers<[char; 3]>,
    trigrams_of: Vec<Vec<u32>>,
}

impl<'a> Vocabulary<'a> {
    /// Returns the tokens of a text in lower case, with one more at the beginning and the end that mark these.
    pub fn read(&mut self, text: &'a str) -> Vec<u32> {
        // No text contains these tokens.
        let [beginning, end] = ["", " "].map(Token::Mark);
        let all = [beginning].into_iter().chain(tokens(text)).chain([end]);
        all.map(|token| {
            let number = self.tokens.of(token.as_str());
            if number as usize == self.trigrams_of.len() {
                let word = if let Token::Word(word) = token { Some(word) } else { None };
                self.trigrams_of.push(self.trigrams.of_all(word.into_iter().flat_map(trigrams)));
            }
            number
        })
        .collect()
    }

    /// Returns the trigrams of a token. A token that is not a word has none.
    pub fn trigrams_of(&self, token: u32) -> impl Iterator<Item = u32> {
        self.trigrams_of[token as usize].iter().copied()
    }
}

/// Returns the pairs of adjacent tokens.
pub fn pairs_of(tokens: &[u32]) -> impl Iterator<Item = (u32, u32)> {
    tokens.windows(2).map(|pair| (pair[0], pair[1]))
}
