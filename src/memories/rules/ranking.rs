//! Compares memories with a conversation.
//!
//! Memories are ranked in two steps. [`score`] compares the terms of all candidates (BM25, with the terms of the three best
//! memories added at a low weight, as in pseudo-relevance feedback). [`compare`] looks at the texts of the best of these, and yields
//! the evidence from which [`confidence`](super::confidence) follows.

use super::context::Context;
use super::grams::grams;
use super::terms::{Indexed, terms};
use crate::retrieval::keys::{self, Key, KeyMap};

/// The usual constants of BM25 for repeated terms and for long memories.
const K1: f64 = 1.2;
const B: f64 = 0.75;
/// The number of best memories from which terms are taken, the number of terms, and the weight of the first one.
const FEEDBACK_MEMORIES: usize = 3;
const FEEDBACK_TERMS: usize = 15;
const FEEDBACK_WEIGHT: f64 = 0.15;
/// The minimum number of memories for which evidence is computed.
const FEWEST: f64 = 50.0;

/// How common terms are among the memories that are searched.
#[derive(Debug, Default)]
pub struct Statistics {
    /// How many memories there are.
    pub memories: f64,
    /// How many of them have a term.
    pub frequencies: KeyMap<f64>,
}

impl Statistics {
    /// Returns the inverse document frequency of a term.
    fn idf(&self, key: Key) -> f64 {
        let having = self.frequencies.get(&key).copied().unwrap_or_default().min(self.memories);
        (1.0 + (self.memories - having + 0.5) / (having + 0.5)).ln()
    }

    /// Raises estimates that are below the number of candidates with a term.
    fn raise(&mut self, keys: impl Iterator<Item = Key>, candidates: &[Indexed]) {
        let mut counts: KeyMap<f64> = keys.map(|key| (key, 0.0)).collect();
        for key in candidates.iter().flat_map(|candidate| &candidate.keys) {
            if let Some(count) = counts.get_mut(key) {
                *count += 1.0;
            }
        }
        for (key, count) in counts {
            let known = self.frequencies.entry(key).or_default();
            *known = known.max(count);
        }
    }
}

/// Scores candidates by their terms. A score of 0 means that the memory has no term of the queries. The statistics are
/// corrected by the candidates, which may be more than were expected.
#[must_use]
pub fn score(context: &Context, candidates: &[Indexed], statistics: &mut Statistics) -> Vec<f64> {
    statistics.memories = statistics.memories.max(candidates.len() as f64);
    statistics.raise(context.weights.keys().copied(), candidates);
    let lengths: Vec<f64> = candidates.iter().map(length).collect();
    let average = (lengths.iter().sum::<f64>() / lengths.len().max(1) as f64).max(1.0);
    let all = |weights: &KeyMap<f64>, statistics: &Statistics| -> Vec<f64> {
        let query = weights.iter().map(|(key, weight)| (*key, weight * statistics.idf(*key))).collect();
        candidates.iter().zip(&lengths).map(|(it, length)| bm25(&query, it, length / average)).collect()
    };
    let by_query = all(&context.weights, statistics);
    let mut best: Vec<_> = (0..candidates.len()).filter(|&place| by_query[place] > 0.0).collect();
    best.sort_by(|&a, &b| by_query[b].total_cmp(&by_query[a]).then(a.cmp(&b)));
    best.truncate(FEEDBACK_MEMORIES);
    let total: f64 = best.iter().map(|&place| by_query[place]).sum();
    statistics.raise(best.iter().flat_map(|&place| candidates[place].keys.iter().copied()), candidates);
    let mut told: KeyMap<f64> = KeyMap::default();
    for &place in &best {
        let candidate = &candidates[place];
        let share = by_query[place] / total / lengths[place].max(1.0);
        for (key, count) in candidate.keys.iter().zip(&candidate.counts) {
            *told.entry(*key).or_default() += share * f64::from(*count) * statistics.idf(*key);
        }
    }
    let mut told: Vec<_> = told.into_iter().collect();
    told.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    let most = told.first().map_or(1.0, |(_, weight)| *weight).max(f64::MIN_POSITIVE);
    let weight = |(key, weight): (Key, f64)| (key, FEEDBACK_WEIGHT * weight / most);
    let by_feedback = all(&told.into_iter().take(FEEDBACK_TERMS).map(weight).collect(), statistics);
    // A score is a sum over terms, so that the two add up.
    let sum = |(query, feedback)| if query > 0.0 { query + feedback } else { 0.0 };
    by_query.into_iter().zip(by_feedback).map(sum).collect()
}

fn length(candidate: &Indexed) -> f64 {
    candidate.counts.iter().map(|count| f64::from(*count)).sum()
}

/// The score of a memory whose length is a multiple of the average. The query's weights include the rarity of its
/// terms. They are added in the order of the memory's keys, because the sum of floating-point numbers depends on it.
fn bm25(query: &KeyMap<f64>, candidate: &Indexed, length: f64) -> f64 {
    let norm = K1 * (1.0 - B + B * length);
    let of_term = |(key, count): (&Key, &u8)| {
        let count = f64::from(*count);
        query.get(key).map(|weight| weight * count * (K1 + 1.0) / (count + norm))
    };
    candidate.keys.iter().zip(&candidate.counts).filter_map(of_term).sum()
}

/// What a memory and a conversation have in common.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Evidence {
    /// The score by terms, as a fraction of the score of a memory of average length that has every term once.
    pub saturation: f64,
    /// The lead over the sixth best memory, as a fraction of the best score.
    pub lead: f64,
    /// The share of the queries' character 4-grams that the memory has, weighted by rarity.
    pub grams: f64,
    /// The share of the last query's pairs of adjacent terms that are adjacent in the memory too, weighted by rarity.
    pub phrases: f64,
    /// The logarithm of one plus the sum of the inverse document frequencies of the terms that the last query and the
    /// memory share.
    pub shared: f64,
    /// The logarithm of the number of memories searched, which is at least 50 because the weights were fitted with no
    /// fewer. Among many memories, an accidental match is more likely.
    pub size: f64,
    /// The share of the terms of earlier queries that the memory has, weighted by rarity. It is 0 without earlier
    /// queries.
    pub earlier: f64,
}

/// A memory that is compared, with its text.
#[derive(Debug)]
pub struct Compared<'a> {
    /// Its terms.
    pub indexed: &'a Indexed,
    /// Its score by terms.
    pub score: f64,
    /// Its texts.
    pub text: &'a str,
}

/// Compares the texts of the best memories, the best of all first, with a conversation.
#[must_use]
pub fn compare(
    project: &str,
    context: &Context,
    memories: &[Compared<'_>],
    statistics: &Statistics,
) -> Vec<Evidence> {
    let best = memories.first().map_or(0.0, |memory| memory.score).max(f64::MIN_POSITIVE);
    let sixth = memories.get(5).map_or(0.0, |memory| memory.score);
    let by_grams = shares_of_grams(context, memories);
    let weigh = |keys: &[Key], indexed: Option<&Indexed>| -> f64 {
        let has = |key: &&Key| indexed.is_none_or(|indexed| indexed.keys.binary_search(key).is_ok());
        keys.iter().filter(has).map(|key| statistics.idf(*key)).sum()
    };
    let mut attainable: Vec<_> =
        context.weights.iter().map(|(key, weight)| weight * statistics.idf(*key)).collect();
    attainable.sort_by(f64::total_cmp);
    let attainable = attainable.iter().sum::<f64>().max(f64::MIN_POSITIVE);
    let earlier = weigh(&context.earlier, None);
    let rarity = |pair: &(Key, Key)| statistics.idf(pair.0).min(statistics.idf(pair.1));
    let mut pairs: Vec<_> = context.pairs.iter().copied().collect();
    pairs.sort_unstable();
    let all_pairs: f64 = pairs.iter().map(rarity).sum();
    let evidence = |(memory, grams): (&Compared<'_>, f64)| {
        let sequence: Vec<_> = terms(memory.text).map(|term| keys::of_term(project, &term)).collect();
        let mut there: Vec<_> = sequence.windows(2).map(|pair| (pair[0], pair[1])).collect();
        there.sort_unstable();
        let found: f64 = pairs.iter().filter(|pair| there.binary_search(pair).is_ok()).map(rarity).sum();
        Evidence {
            saturation: (memory.score / attainable).min(2.0),
            lead: (memory.score - sixth) / best,
            grams,
            phrases: if all_pairs > 0.0 { found / all_pairs } else { 0.0 },
            shared: weigh(&context.own, Some(memory.indexed)).ln_1p(),
            size: statistics.memories.max(FEWEST).ln(),
            earlier: if earlier > 0.0 {
                weigh(&context.earlier, Some(memory.indexed)) / earlier
            } else {
                0.0
            },
        }
    };
    memories.iter().zip(by_grams).map(evidence).collect()
}

/// The share of the queries' 4-grams that each memory has. How rare a gram is follows from the memories that are
/// compared.
fn shares_of_grams(context: &Context, memories: &[Compared<'_>]) -> Vec<f64> {
    let texts: Vec<_> = memories.iter().map(|memory| grams(memory.text)).collect();
    let count = texts.len() as f64;
    let mut asked: Vec<_> = context.grams.iter().collect();
    asked.sort_unstable_by_key(|(gram, _)| **gram);
    let mut shares = vec![0.0; texts.len()];
    let mut total = 0.0;
    for (gram, weight) in asked {
        let having: Vec<_> = (0..texts.len()).filter(|&place| texts[place].contains(gram)).collect();
        let frequency = having.len() as f64;
        let weight = weight * (1.0 + (count - frequency + 0.5) / (frequency + 0.5)).ln();
        total += weight;
        for place in having {
            shares[place] += weight;
        }
    }
    if total > 0.0 {
        for share in &mut shares {
            *share /= total;
        }
    }
    shares
}

/// Returns the terms of the last query that a memory has, or else those of earlier queries, the rarest first and as
/// they were written.
#[must_use]
pub fn in_common<'a>(
    context: &'a Context,
    indexed: &Indexed,
    statistics: &Statistics,
    most: usize,
) -> (Vec<&'a str>, bool) {
    let of = |keys: &[Key]| {
        let mut shared: Vec<_> =
            keys.iter().copied().filter(|key| indexed.keys.binary_search(key).is_ok()).collect();
        shared.sort_by(|a, b| statistics.idf(*b).total_cmp(&statistics.idf(*a)));
        let mut words: Vec<&str> = Vec::new();
        for word in shared.iter().filter_map(|key| context.written.get(key)) {
            if words.len() == most {
                break;
            }
            // An identifier also counts for its words.
            if !words.iter().any(|other| other.contains(word.as_str())) {
                words.push(word);
            }
        }
        words
    };
    let own = of(&context.own);
    if own.is_empty() { (of(&context.earlier), false) } else { (own, true) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXTS: [&str; 7] = [
        "AuthMiddleware refuses a JWT whose clock is ahead",
        "The staging database is on port 5433",
        "Invoices are rounded to the cent",
        "The clock of the build server is slow",
        "JWT keys are rotated every month",
        "Use pytest for tests",
        "Deploy on Tuesdays",
    ];

    fn ranked(queries: &[&str]) -> Vec<(usize, Evidence)> {
        let context = Context::of("p", queries.iter().copied());
        let candidates: Vec<_> = TEXTS.iter().map(|text| Indexed::of("p", [*text])).collect();
        let mut statistics = Statistics::default();
        let scores = score(&context, &candidates, &mut statistics);
        let mut order: Vec<_> = (0..TEXTS.len()).filter(|&place| scores[place] > 0.0).collect();
        order.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]));
        let compared: Vec<_> = order
            .iter()
            .map(|&place| Compared { indexed: &candidates[place], score: scores[place], text: TEXTS[place] })
            .collect();
        let evidence = compare("p", &context, &compared, &statistics);
        order.into_iter().zip(evidence).collect()
    }

    #[test]
    fn the_memory_with_the_rarest_words_of_the_last_query_comes_first() {
        let found = ranked(&["Why is my JWT clock refused?"]);
        assert_eq!(found.iter().map(|(place, _)| *place).collect::<Vec<_>>(), [0, 3, 4]);
        assert!(found[0].1.saturation > found[1].1.saturation);
        assert!(ranked(&["Who refuses a JWT?"])[0].1.phrases > 0.0);
        assert!(found.iter().all(|(_, evidence)| evidence.earlier == 0.0));
    }

    #[test]
    fn what_was_asked_before_tells_which_of_two_is_meant() {
        let first = |queries: &[&str]| ranked(queries)[0].0;
        assert_eq!(first(&["What about the clock?", "The build server fails"]), 3);
        assert_eq!(first(&["What about the clock?", "The AuthMiddleware refuses it"]), 0);
        assert!(ranked(&["the of"]).is_empty() && ranked(&[]).is_empty());
    }

    #[test]
    fn words_in_common_are_told_as_written_and_an_identifier_once() {
        let context = Context::of("p", ["AuthMiddleware clock skew", "invoices"]);
        let indexed = |text| Indexed::of("p", [text]);
        let candidates: Vec<_> = TEXTS.iter().map(|text| indexed(*text)).collect();
        let mut statistics = Statistics::default();
        let _ = score(&context, &candidates, &mut statistics);
        assert_eq!(
            in_common(&context, &candidates[0], &statistics, 3),
            (vec!["AuthMiddleware", "clock"], true)
        );
        assert_eq!(in_common(&context, &candidates[2], &statistics, 3), (vec!["invoices"], false));
    }
}
