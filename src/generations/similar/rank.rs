//! The ranking of the logs whose texts are compared.
//!
//! The score is the sum of two measures. The first is the similarity of the intents: the share of common trigrams,
//! where rare ones weigh more. The second is the similarity of the programs: from the programs of the 300 most
//! similar intents, kernel ridge regression over words, their order and trigrams predicts the program of the intent,
//! and the more similar a program is to the prediction, the higher is its score. The second measure finds paraphrases
//! that share few words with the intent, because several logs have their program. Of the best logs, those that differ
//! from each other are returned, because five variants of one program are of little use to a model.

use crate::retrieval::features::{Numbers, pairs_of};
use crate::retrieval::matrix::{Matrix, solve, sum};
use crate::retrieval::rank::Texts;
use crate::retrieval::text::{Token, tokens};

/// The number of logs whose programs are also compared.
const CLOSE: usize = 300;
/// The ridge of the regression: the larger it is, the less a single log counts.
const RIDGE: f32 = 0.1;
/// The number of iterations that solve the regression.
const ITERATIONS: usize = 8;
/// The weight of the similarity of the programs relative to that of the intents.
const PROGRAM: f32 = 4.0;
/// The penalty for being similar to a log that is already chosen.
const VARIETY: f32 = 0.6;
/// The bonus for a good rating by a reviewer.
const PRAISE: f32 = 0.02;

/// The properties of a log that matter for the ranking.
#[derive(Debug, Clone, Copy)]
pub(super) struct Solved<'a> {
    pub(super) intent: &'a str,
    pub(super) program: &'a str,
    /// Whether a reviewer rated the log good.
    pub(super) praised: bool,
}

/// Returns the best logs for an intent as indices of `logs`, with their similarity from 0 to 1, the most similar
/// first: at most `limit`, and none below `least`.
pub(super) fn rank(intent: &str, logs: &[Solved<'_>], limit: usize, least: f64) -> Vec<(usize, f64)> {
    let intents = logs.iter().map(|log| log.intent).chain([intent]);
    let intents: Vec<_> = intents.map(str::to_lowercase).collect();
    let texts = Texts::new(&intents);
    let close = texts.closest(CLOSE);
    let Texts { mut vocabulary, sequences, by_trigrams, .. } = texts;
    let rows: Vec<_> = close.iter().map(|&(_, place)| place).chain([logs.len()]).collect();
    let sequences = || rows.iter().map(|&row| &sequences[row]);
    let mut pairs = Numbers::default();
    let by_tokens = Matrix::of(sequences().map(|sequence| sequence.iter().copied()));
    let by_pairs = Matrix::of(sequences().map(|sequence| pairs.of_all(pairs_of(sequence))));
    let programs: Vec<_> = close.iter().map(|&(_, place)| logs[place].program.to_lowercase()).collect();
    let by_parts = by_parts(&programs, &mut vocabulary.tokens);
    let features = [by_trigrams.rows_at(&rows), by_tokens.weighed(damped), by_pairs.weighed(damped)];
    let fits = predict(features.map(|block| block.of_length(1.0 / 3.0_f32.sqrt())), &by_parts);

    let candidates = close.into_iter().zip(fits).map(|((likeness, place), fit)| {
        let similarity = 1.0 - (1.0 - f64::from(likeness)) * (1.0 - f64::from(fit.clamp(0.0, 1.0)));
        let praise = if logs[place].praised { PRAISE } else { 0.0 };
        Candidate { place, similarity, score: likeness + PROGRAM * fit + praise }
    });
    let mut chosen = choose(&candidates.collect::<Vec<_>>(), logs, &by_parts, limit, least);
    chosen.sort_by(|a, b| b.1.total_cmp(&a.1));
    chosen
}

/// The programs by their tokens and pairs of adjacent tokens.
fn by_parts<'a>(programs: &'a [String], numbers: &mut Numbers<&'a str>) -> Matrix {
    let mut parts = Numbers::default();
    let rows = programs.iter().map(|program| {
        let sequence = numbers.of_all(tokens(program).map(Token::as_str));
        let alone = sequence.iter().map(|&token| (token, None));
        let in_order = pairs_of(&sequence).map(|(token, next)| (token, Some(next)));
        parts.of_all(alone.chain(in_order))
    });
    Matrix::of(rows).weighed(damped).of_length(1.0)
}

/// Returns the score of each program: its similarity to the program of the last intent, as predicted from all others.
/// The intents are given in blocks of features.
fn predict(mut intents: [Matrix; 3], programs: &Matrix) -> Vec<f32> {
    let wanted = intents.each_mut().map(Matrix::pop);
    let fits = sum(intents.iter().zip(&wanted).map(|(block, wanted)| block.times_row(wanted)));
    let weights = solve(&intents, RIDGE, &fits, ITERATIONS);
    let prediction = programs.transposed_times(&weights);
    programs.times(&prediction).into_iter().map(|fit| fit * (1.0 + RIDGE)).collect()
}

/// Returns the weight of a feature that occurs this often.
fn damped(count: f32) -> f32 {
    1.0 + count.ln()
}

struct Candidate {
    place: usize,
    similarity: f64,
    score: f32,
}

/// Chooses, one after the other, the best log that differs from those already chosen. A program that is already
/// chosen comes after all others, and never for the same intent.
fn choose(
    candidates: &[Candidate],
    logs: &[Solved<'_>],
    programs: &Matrix,
    limit: usize,
    least: f64,
) -> Vec<(usize, f64)> {
    let mut chosen = Vec::new();
    let mut left: Vec<_> = (0..candidates.len()).filter(|&row| candidates[row].similarity >= least).collect();
    let mut likest = vec![0.0_f32; candidates.len()];
    let mut taken = vec![false; candidates.len()];
    let log = |row: usize| logs[candidates[row].place];
    for again in [false, true] {
        loop {
            let open = left.iter().copied().filter(|&row| again || !taken[row]);
            let value = |row: usize| candidates[row].score - VARIETY * likest[row];
            let best = open.reduce(|best, row| if value(row) > value(best) { row } else { best });
            let Some(best) = best.filter(|_| chosen.len() < limit) else { break };
            let Candidate { place, similarity, .. } = candidates[best];
            chosen.push((place, similarity));
            let Solved { intent, program, .. } = log(best);
            left.retain(|&row| {
                let same = log(row).program == program;
                taken[row] |= same;
                !(same && log(row).intent == intent)
            });
            let likeness = programs.times_row(programs.row(best));
            likest.iter_mut().zip(likeness).for_each(|(most, likeness)| *most = most.max(likeness));
        }
    }
    chosen
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    fn log<'a>(intent: &'a str, program: &'a str) -> Solved<'a> {
        Solved { intent, program, praised: false }
    }

    #[test]
    fn a_paraphrase_is_found_by_the_program_that_many_logs_point_to() {
        let logs = [
            log("list all files with their sizes", "ls -l"),
            log("show files and sizes", "ls -l"),
            log("print the names of the files in this folder along with how big each is", "ls -l"),
            log("how many lines has this file", "wc -l"),
            log("print the names of users", "cut -d: -f1 /etc/passwd"),
        ];
        let found = rank("names of files and how big", &logs, 1, 0.0);
        assert_eq!(logs[found[0].0].program, "ls -l");
    }

    #[test]
    fn of_equal_logs_the_praised_one_comes_first() {
        let praised = Solved { praised: true, ..log("Create a fund!", "(fund :praised)") };
        let logs = [log("Create a fund?", "(fund :plain)"), praised];
        assert_eq!(rank("Create a fund", &logs, 1, 0.0)[0].0, 1);
    }

    proptest! {
        #[test]
        fn a_ranking_is_sorted_distinct_within_bounds_and_has_the_same_intent_first(
            texts in prop::collection::vec(("[a-c é基.]{0,8}", "[a-c( ]{0,6}"), 1..40),
            wanted in 0_usize..40,
            limit in 1_usize..10,
            least in 0.0..0.5_f64,
        ) {
            let logs: Vec<_> = texts.iter().map(|(intent, program)| log(intent, program)).collect();
            let intent = &texts[wanted % texts.len()].0;
            let ranked = rank(intent, &logs, limit, least);
            prop_assert!(ranked.len() <= limit);
            prop_assert!(ranked.is_sorted_by(|a, b| a.1 >= b.1));
            prop_assert!(ranked.iter().all(|(_, similarity)| (least..=1.0).contains(similarity)));
            let pairs: HashSet<_> = ranked.iter().map(|&(place, _)| (logs[place].intent, logs[place].program)).collect();
            prop_assert_eq!(pairs.len(), ranked.len());
            let all = rank(intent, &logs, 100, 0.0);
            prop_assert_eq!(all.first().map(|best| best.1), Some(1.0));
            let distinct: HashSet<_> = texts.iter().collect();
            prop_assert_eq!(all.len(), distinct.len());
        }
    }
}
