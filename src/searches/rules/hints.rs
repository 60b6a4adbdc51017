//! Hints: how probable it is that an agent needs a file and has not opened it yet.
//!
//! Most searches should get no hint. A wrong hint costs an agent a quarter of what a right one saves, so a hint pays
//! if at least one in five is right. The signs and their weights were found by replaying real sessions in
//! chronological order, with each search answered by what was known at that time. A hinted file is right if the agent
//! had not touched it before, and read or changed it later in the turn.

use std::collections::{BTreeSet, HashMap};

use crate::retrieval::keys::Key;

/// The score from which the best file is a hint. One in five hints with this score is right.
pub const CUT: f64 = 0.2;
/// The score from which the second file is a hint as well.
pub const SECOND_CUT: f64 = 0.25;

/// The weight of the file's name having been mentioned in the session.
const NAMED: f64 = 1.5;
/// The weight of the file having been touched together with the current files.
const TOGETHER: f64 = 1.5;
/// The weight of the file containing the identifiers of the query.
const CONTENT: f64 = 1.5;
/// The weight of the query's words in the path.
const PATH: f64 = 1.5;
/// The weight of the file having been touched in the same folder, and not only in another clone.
const SAME_ROOT: f64 = 0.75;
/// The weight of the file having answered a query with the same words. It suffices on its own.
const LEARNED: f64 = 3.4;
/// The minimum similarity of a query whose answer is a sign.
const LEAST_LIKENESS: f64 = 0.6;
/// The minimum number of words that such a query has in common, because what one word finds differs from task to
/// task.
const LEAST_WORDS: usize = 2;
/// The weight of the number of turns: the longer a session, the more of the files that it needs it has already
/// opened.
const LATE: f64 = -0.5;
/// The weight of the first turn, in which little is known of the session.
const FIRST: f64 = -0.5;
/// The sum of weights from which a hint pays.
const PAYS: f64 = 3.0;
/// The increase of the logarithm of the odds with the sum of weights, by a logistic regression over the best files of
/// these searches.
const STEEPNESS: f64 = 0.46;

/// The signs that an agent needs a file.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Signs {
    /// Whether the file's name was mentioned in a prompt or in the output of a tool in the session.
    pub named: bool,
    /// The sum, over the files that the turn touched last, of how strongly the file belongs to them, see
    /// [`together`].
    pub together: f64,
    /// The share of the query's identifiers in what was read from or written to the file, from 0 to 1.
    pub content: f64,
    /// The share of the query's words in the path, from 0 to 1.
    pub path: f64,
    /// Whether the file was touched in the same folder.
    pub same_root: bool,
    /// The similarity of the closest query that the file has answered, see [`likeness`].
    pub learned: f64,
}

impl Signs {
    /// Returns the probability, from 0 to 1, that an agent needs the file and has not opened it, in this turn of its
    /// session. The first turn is 1. The turn of an unknown session is none.
    #[must_use]
    pub fn score(&self, turn: Option<i32>) -> f64 {
        let flag = |sign| if sign { 1.0 } else { 0.0 };
        let of_file = NAMED * flag(self.named)
            + TOGETHER * self.together.ln_1p()
            + CONTENT * self.content
            + PATH * self.path
            + SAME_ROOT * flag(self.same_root)
            + LEARNED * self.learned;
        let of_turn =
            turn.map_or(0.0, |turn| LATE * f64::from(turn.max(0)).ln_1p() + FIRST * flag(turn <= 1));
        let pays = (CUT / (1.0 - CUT)).ln();
        let odds = (STEEPNESS * (of_file + of_turn - PAYS) + pays).exp();
        odds / (1.0 + odds)
    }
}

/// Returns how strongly two files belong together, from the number of turns that touched both, and of turns that
/// touched the current one.
#[must_use]
pub fn together(both: usize, at_hand: usize) -> f64 {
    both as f64 / (2 + at_hand) as f64
}

/// Returns the similarity of two queries: the share of all their words that both have, from 0 to 1. It is 0 if the
/// queries have too little in common.
#[must_use]
pub fn likeness(one: &BTreeSet<Key>, other: &BTreeSet<Key>) -> f64 {
    let both = one.intersection(other).count();
    let share = both as f64 / (one.len() + other.len() - both).max(1) as f64;
    if both >= LEAST_WORDS && share >= LEAST_LIKENESS { share } else { 0.0 }
}

/// The names in a query with their weights: the fewer files have a name, the greater is its weight.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Telling(HashMap<Key, f64>);

impl Telling {
    /// Weights names by the number of the `files` that have each of them. Names that more than the share `common` of
    /// the files have get no weight.
    #[must_use]
    pub fn new(frequencies: impl IntoIterator<Item = (Key, usize)>, files: usize, common: f64) -> Self {
        let files = files.max(1) as f64;
        let telling = frequencies.into_iter().filter(|(_, having)| *having as f64 <= common * files);
        Self(telling.map(|(key, having)| (key, (files / having.max(1) as f64).ln_1p())).collect())
    }

    /// Returns the share of the names' total weight that belongs to the names that a file has.
    pub fn share(&self, has: impl Fn(Key) -> bool) -> f64 {
        let all: f64 = self.0.values().sum();
        let told: f64 = self.0.iter().filter(|(key, _)| has(**key)).map(|(_, weight)| weight).sum();
        if all > 0.0 { told / all } else { 0.0 }
    }
}

/// Returns how many of the files with these scores, best first, are hints: none, one or two.
#[must_use]
pub fn shown(scores: impl IntoIterator<Item = f64>) -> usize {
    [CUT, SECOND_CUT].into_iter().zip(scores).take_while(|(cut, score)| score >= cut).count()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn signs() -> impl Strategy<Value = Signs> {
        let flags = (any::<bool>(), any::<bool>());
        (flags, 0.0..3.0, 0.0..=1.0, 0.0..=1.0, 0.0..=1.0).prop_map(
            |((named, same_root), together, content, path, learned)| Signs {
                named,
                together,
                content,
                path,
                same_root,
                learned,
            },
        )
    }

    #[test]
    fn no_sign_pays_by_itself_but_the_answer_of_the_same_query() {
        let nothing = Signs::default();
        for (signs, pays) in [
            (nothing, false),
            (Signs { named: true, same_root: true, ..nothing }, false),
            (Signs { content: 1.0, same_root: true, ..nothing }, false),
            (Signs { path: 1.0, same_root: true, ..nothing }, false),
            (Signs { named: true, content: 1.0, same_root: true, ..nothing }, true),
            (Signs { content: 1.0, path: 1.0, same_root: true, ..nothing }, true),
            (Signs { learned: 1.0, ..nothing }, true),
            (Signs { learned: LEAST_LIKENESS, ..nothing }, false),
        ] {
            assert_eq!(signs.score(None) >= CUT, pays, "{signs:?}");
        }
    }

    #[test]
    fn there_is_one_hint_or_none_and_a_second_where_it_is_likely() {
        assert_eq!(shown([]), 0);
        assert_eq!(shown([0.19, 0.19]), 0);
        assert_eq!(shown([0.6, 0.24]), 1);
        assert_eq!(shown([0.6, 0.25, 0.25]), 2);
    }

    #[test]
    fn what_few_files_have_tells_more_and_what_most_have_nothing() {
        let telling = Telling::new([(1, 1), (2, 40), (3, 90)], 100, 0.5);
        assert!(telling.share(|key| key == 1) > 0.7);
        assert!(telling.share(|key| key == 3).abs() < 1e-9);
        assert!((telling.share(|_| true) - 1.0).abs() < 1e-9);
        assert!(Telling::default().share(|_| true).abs() < 1e-9);
    }

    #[test]
    fn queries_are_alike_that_have_most_of_several_words_in_common() {
        let words = |words: &[Key]| words.iter().copied().collect::<BTreeSet<_>>();
        assert!((likeness(&words(&[1, 2]), &words(&[1, 2])) - 1.0).abs() < 1e-9);
        assert!((likeness(&words(&[1, 2]), &words(&[1, 2, 3])) - 2.0 / 3.0).abs() < 1e-9);
        assert!(likeness(&words(&[1]), &words(&[1])).abs() < 1e-9);
        assert!(likeness(&words(&[1, 2]), &words(&[1, 2, 3, 4])).abs() < 1e-9);
        assert!(likeness(&words(&[]), &words(&[])).abs() < 1e-9);
    }

    proptest! {
        #[test]
        fn each_sign_makes_a_hint_likelier_and_each_turn_less(signs in signs(), turn in 1..1_000) {
            let score = signs.score(Some(turn));
            prop_assert!((0.0..1.0).contains(&score));
            for more in [
                Signs { named: true, ..signs },
                Signs { same_root: true, ..signs },
                Signs { together: signs.together + 1.0, ..signs },
                Signs { content: 1.0, ..signs },
                Signs { path: 1.0, ..signs },
                Signs { learned: 1.0, ..signs },
            ] {
                prop_assert!(more.score(Some(turn)) >= score);
            }
            prop_assert!(signs.score(None) > score);
            prop_assert!(turn == 1 || signs.score(Some(turn + 1)) < score);
        }
    }
}
