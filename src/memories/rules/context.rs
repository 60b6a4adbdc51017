//! The context of a conversation: the terms of its last query and, with decaying weights, of earlier queries.

use std::collections::{HashMap, HashSet};

use super::grams::grams;
use super::terms::written_terms;
use crate::retrieval::keys::{self, Key, KeyMap};

/// The weight of each query relative to the next one. Measured on multi-turn questions, earlier queries help most
/// with 0.3 and not at all with 1.
const DECAY: f64 = 0.3;
/// The maximum count of a term that is repeated within a query.
const MOST_REPEATED: u32 = 2;
/// The number of different terms of a query that are compared, from its beginning.
const MOST_TERMS: usize = 200;

/// The context of a conversation.
#[derive(Debug, Default)]
pub struct Context {
    /// The terms of all its queries, with their weights.
    pub weights: KeyMap<f64>,
    /// The terms of the last query, in order, each once.
    pub own: Vec<Key>,
    /// The terms that only earlier queries have.
    pub earlier: Vec<Key>,
    /// The adjacent terms of the last query.
    pub pairs: HashSet<(Key, Key)>,
    /// The character 4-grams of all queries, with their weights.
    pub grams: HashMap<u64, f64>,
    /// How the terms were written.
    pub written: KeyMap<String>,
}

impl Context {
    /// Makes the context of queries, the last one first.
    #[must_use]
    pub fn of<'a>(project: &str, queries: impl IntoIterator<Item = &'a str>) -> Self {
        let mut context = Self::default();
        let mut weight = 1.0;
        for (age, query) in queries.into_iter().enumerate() {
            let (mut counts, mut sequence): (KeyMap<u32>, Vec<Key>) = (KeyMap::default(), Vec::new());
            for (term, written) in written_terms(query) {
                let key = keys::of_term(project, &term);
                if counts.len() >= MOST_TERMS && !counts.contains_key(&key) {
                    continue;
                }
                sequence.push(key);
                *counts.entry(key).or_default() += 1;
                context.written.entry(key).or_insert_with(|| written.to_owned());
                let known = if age == 0 { &mut context.own } else { &mut context.earlier };
                if counts[&key] == 1 && !context.weights.contains_key(&key) {
                    known.push(key);
                }
            }
            if age == 0 {
                context.pairs = sequence.windows(2).map(|pair| (pair[0], pair[1])).collect();
            }
            for (key, count) in counts {
                *context.weights.entry(key).or_default() += weight * f64::from(count.min(MOST_REPEATED));
            }
            let mut grams: Vec<_> = grams(query).into_iter().collect();
            // Of more, always the same ones are compared.
            grams.sort_unstable();
            for gram in grams.into_iter().take(MOST_TERMS * 8) {
                *context.grams.entry(gram).or_default() += weight;
            }
            weight *= DECAY;
        }
        context
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn earlier_queries_weigh_less_the_older_they_are() {
        let context = Context::of("p", ["JWT tokens, tokens, tokens", "login", "login page"]);
        let weight = |term: &str| context.weights.get(&keys::of_term("p", term)).copied().unwrap_or_default();
        let rounded = ["jwt", "token", "login", "page", "other"].map(|term| format!("{:.2}", weight(term)));
        assert_eq!(rounded, ["1.00", "2.00", "0.39", "0.09", "0.00"]);
        assert_eq!((context.own.len(), context.earlier.len()), (2, 2));
        assert_eq!(context.written[&keys::of_term("p", "jwt")], "JWT");
    }
}
