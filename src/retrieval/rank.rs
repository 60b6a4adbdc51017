//! Ranking by texts alone: texts are similar if they have trigrams in common, and rare trigrams weigh more.

use super::features::Vocabulary;
use super::matrix::Matrix;

/// The texts of candidates and, as the last one, that of the query, divided into features.
#[derive(Debug)]
pub struct Texts<'a> {
    texts: &'a [String],
    /// The numbers of the tokens and trigrams.
    pub vocabulary: Vocabulary<'a>,
    /// The tokens of each text.
    pub sequences: Vec<Vec<u32>>,
    /// The trigrams of each text, weighted by rarity.
    pub by_trigrams: Matrix,
}

impl<'a> Texts<'a> {
    /// Divides texts in lower case into features. The last one is the query's.
    #[must_use]
    pub fn new(texts: &'a [String]) -> Self {
        let mut vocabulary = Vocabulary::default();
        let sequences: Vec<_> = texts.iter().map(|text| vocabulary.read(text)).collect();
        let trigrams =
            sequences.iter().map(|tokens| tokens.iter().flat_map(|&token| vocabulary.trigrams_of(token)));
        let by_trigrams = Matrix::of(trigrams).weighed(|_| 1.0);
        Self { texts, vocabulary, sequences, by_trigrams }
    }

    /// Returns the candidates that are most similar to the query, with their similarity from 0 to 1, and their index.
    #[must_use]
    pub fn closest(&self, most: usize) -> Vec<(f32, usize)> {
        let query = self.texts.last();
        let mut close: Vec<_> = self
            .by_trigrams
            .likenesses_to_last()
            .into_iter()
            .enumerate()
            .map(|(place, likeness)| (if self.texts.get(place) == query { 1.0 } else { likeness }, place))
            .collect();
        close.sort_by(|a, b| b.0.total_cmp(&a.0));
        close.truncate(most);
        close
    }
}

/// Returns about how many bytes a candidate's text takes when it is ranked: with itself, its features and their numbers. Letters
/// beyond ASCII make far more different trigrams.
#[must_use]
pub fn bytes_ranked(text: &str) -> usize {
    const ASCII: usize = 24;
    const OTHER: usize = 128;
    let ascii = text.bytes().filter(u8::is_ascii).count();
    let other = text.chars().count() - ascii;
    ascii * ASCII + other * OTHER
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_text_is_the_closest_and_rare_trigrams_tell_more_than_common_ones() {
        let texts = ["create a fund", "create a share", "amend a fund", "create a hedge fund", "a fund"];
        let texts: Vec<_> = texts.iter().chain(&["a fund"]).map(ToString::to_string).collect();
        let texts = Texts::new(&texts);
        let closest = texts.closest(4);
        assert_eq!(closest.iter().map(|&(_, place)| place).collect::<Vec<_>>(), [4, 2, 0, 3]);
        assert_eq!(closest[0].0.to_string(), "1");
    }
}
