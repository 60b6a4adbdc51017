//! The choice of the keys that are looked up in the index. Not all keys of a query are used, because most of a
//! million documents may share a word with it. Rare keys are used first, while about [`MOST`] documents have any of
//! them. If these find few documents, documents are also found that have several common keys together.

use std::collections::HashSet;
use std::iter;

use super::keys::{self, Key};
use super::sample::Sample;
use super::text::words;
use super::{Keyed, Scope};

/// The maximum number of candidates of a search.
pub const MOST: usize = 1_000;
/// The number of keys that are tried to find documents that have all of them.
const TOGETHER: usize = 6;
/// The maximum number of different words that may be misspelled. In a longer text, the others are enough to find
/// documents.
const MOST_MISSPELLED: usize = 100;
/// The number of documents beyond which an arbitrary thousand of them is as good as any other.
const HOPELESS: f64 = 5_000.0;

/// The keys that are looked up in the index.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct KeyPlan {
    /// The rare keys. Candidates have any of them.
    pub(super) any: Vec<Key>,
    /// The common keys. If the rare ones find few documents, candidates have all of these.
    pub(super) all: Vec<Key>,
    /// Whether even all common keys are in too many documents. Then the first rows in the order of the corpus are as
    /// good as any others.
    pub(super) first_rows: bool,
}

impl KeyPlan {
    /// Plans the search for a text in a scope, with samples of the scope and of its whole project.
    pub(super) fn new(text: &str, scope: &Scope, keyed: Keyed, sample: &Sample, project: &Sample) -> Self {
        if let Keyed::Terms(terms) = keyed {
            let mut terms = terms(text);
            let mut before = HashSet::new();
            terms.retain(|term| before.insert(term.clone()));
            let meant = meant(terms.iter().map(String::as_str), sample);
            let all = terms.iter().map(String::as_str).chain(meant);
            let keys = all.map(|term| keys::of_term(&scope.project, term));
            return Self::of_keys(keys.collect(), Vec::new(), sample, project);
        }
        let text = text.to_lowercase();
        let mut of_words = scope.keys_of_words(&text);
        of_words.extend(meant(words(&text), sample).map(|word| scope.key_of_word(word)));
        Self::of_keys(of_words, scope.keys_of_parts(&text), sample, project)
    }

    /// Plans a search with keys. Frequencies of words are estimated from the sample of the scope. Those of pairs and
    /// prefixes, of which many are rare, are estimated from the sample of the project.
    fn of_keys(of_words: Vec<Key>, of_parts: Vec<Key>, sample: &Sample, project: &Sample) -> Self {
        let rarest_first = |keys: Vec<Key>, frequency: &dyn Fn(Key) -> f64| {
            let mut keys: Vec<_> = keys.into_iter().map(|key| (frequency(key), key)).collect();
            keys.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
            keys.dedup();
            keys
        };
        let of_words = rarest_first(of_words, &|key| sample.document_frequency(key));
        // The project has at least the documents of the scope, of which its sample may have none.
        let of_parts = rarest_first(of_parts, &|key| {
            project.document_frequency(key).max(sample.document_frequency(key))
        });
        // Of the keys that are not in the samples, words are used first, because a pair of rare words is rarely
        // repeated.
        let mut rarest = [&*of_words, &*of_parts].concat();
        rarest.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut found = 0.0;
        let rare = rarest.iter().take_while(|(frequency, _)| {
            found += frequency;
            found <= MOST as f64
        });
        let any: Vec<_> = rare.map(|&(_, key)| key).collect();
        // A word is used first, because it belongs to the facet, and then pairs, which Postgres reads faster than
        // their words.
        let Some(word) = of_words.iter().map(|&(_, key)| key).find(|key| !any.contains(key)) else {
            return Self { first_rows: any.is_empty(), any, ..Self::default() };
        };
        let others = rarest[any.len()..].iter().map(|&(_, key)| key).filter(|&key| key != word);
        let (all, documents) = together(iter::once(word).chain(others), sample);
        if documents > HOPELESS {
            Self { any, first_rows: true, ..Self::default() }
        } else {
            Self { any, all, first_rows: false }
        }
    }
}

/// Returns the known words of which these words may be misspellings.
fn meant<'a>(words: impl Iterator<Item = &'a str>, sample: &'a Sample) -> impl Iterator<Item = &'a str> {
    words.filter(|word| !sample.knows(word)).take(MOST_MISSPELLED).flat_map(|word| sample.similar_words(word))
}

/// Returns keys in order until few documents have all of them, and an estimate of how many these are.
fn together(keys: impl Iterator<Item = Key>, sample: &Sample) -> (Vec<Key>, f64) {
    let mut all: Vec<Key> = Vec::new();
    let mut rows: Option<Vec<u16>> = None;
    let mut documents = f64::INFINITY;
    for key in keys.take(TOGETHER) {
        let with_key = sample.postings(key);
        let left: Vec<_> = match &rows {
            None => with_key.collect(),
            Some(rows) => with_key.filter(|row| rows.binary_search(row).is_ok()).collect(),
        };
        if left.is_empty() && !all.is_empty() {
            continue;
        }
        all.push(key);
        documents = sample.scale(left.len());
        if documents <= MOST as f64 {
            break;
        }
        rows = Some(left);
    }
    (all, documents)
}

#[cfg(test)]
mod tests {
    use super::super::sample::sample_of;
    use super::*;

    /// A sample in which row `n` has the key `k` where `n` is a multiple of `k`.
    fn multiples(documents: i64) -> Sample {
        let rows = (1..=100).map(|row| (String::new(), (1..=100).filter(|key| row % key == 0).collect()));
        sample_of(&rows.collect::<Vec<_>>(), documents)
    }

    #[test]
    fn the_rarest_keys_are_taken_while_few_documents_have_them() {
        let small = multiples(1_000);
        let plan = |of_words: &[Key], of_parts: &[Key]| {
            KeyPlan::of_keys(of_words.to_vec(), of_parts.to_vec(), &small, &small)
        };
        let any = |any: &[Key]| KeyPlan { any: any.to_vec(), ..KeyPlan::default() };
        assert_eq!(plan(&[2, 50], &[]), any(&[50, 2]));
        assert_eq!(plan(&[2], &[50, 50]), any(&[50, 2]));
        assert_eq!(plan(&[150], &[101, 2]), any(&[150, 101, 2]), "neither 101 nor 150 was seen");
        assert_eq!(plan(&[1, 2, 50], &[]), KeyPlan { all: vec![1], ..any(&[50, 2]) });
        assert_eq!(plan(&[], &[]), KeyPlan { first_rows: true, ..any(&[]) });
    }

    #[test]
    fn common_keys_are_asked_for_together_and_hopeless_ones_not_at_all() {
        let large = multiples(20_000);
        let plan = |of_words: &[Key]| KeyPlan::of_keys(of_words.to_vec(), Vec::new(), &large, &large);
        let rest = KeyPlan::default;
        // A fifth, a third and half of the documents have one of them; three in a hundred have all.
        assert_eq!(plan(&[2, 3, 5]), KeyPlan { all: vec![5, 3, 2], ..rest() });
        assert_eq!(plan(&[2, 3, 5, 70]), KeyPlan { any: vec![70], all: vec![5, 3, 2], ..rest() });
        assert_eq!(plan(&[1, 2]), KeyPlan { first_rows: true, ..rest() });
        assert_eq!(plan(&[1, 2, 70]), KeyPlan { any: vec![70], first_rows: true, ..rest() });
        // In the project, pairs and prefixes are more common than in a facet.
        let project = multiples(4_000_000);
        let plan = KeyPlan::of_keys(vec![50], vec![25], &multiples(1_000), &project);
        assert_eq!(plan, KeyPlan { any: vec![50], ..rest() }, "a part alone would leave the facet");
    }
}
