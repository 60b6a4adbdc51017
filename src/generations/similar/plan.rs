//! Which logs are looked at closely. Not all that share a word with the intent: of a million logs that may be most. Rare keys are
//! asked for first, the rarest ones while about [`MOST`] logs have any of them; where that finds few, logs that have several of the
//! common ones.

use std::iter;

use super::keys::{self, Key};
use super::sample::{Sample, Scope};
use super::text::words;

/// How many logs are looked at closely.
pub(super) const MOST: usize = 1_000;
/// How many keys are tried for having together.
const TOGETHER: usize = 6;
/// Beyond so many logs nothing is gained by reading them.
const HOPELESS: f64 = 5_000.0;

/// What the index is asked for.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    /// Rare keys: logs that have any of them.
    pub(super) any: Vec<Key>,
    /// Common keys: logs that have all of them, where the rare ones find few.
    pub(super) all: Vec<Key>,
    /// Whether too many logs have even all common keys: then the newest are as good as any.
    pub(super) newest: bool,
}

impl Plan {
    /// Plans the search for an intent in a scope, by samples of the scope and of its whole project.
    pub(super) fn new(intent: &str, scope: &Scope, sample: &Sample, project: &Sample) -> Self {
        let intent = intent.to_lowercase();
        let domain_name = scope.domain_name.as_deref();
        let mut of_words = keys::of_words(&scope.project, domain_name, &intent);
        let meant = words(&intent).flat_map(|word| sample.words_like(word));
        of_words.extend(meant.map(|word| keys::of_word(&scope.project, domain_name, word)));
        let of_parts = keys::of_parts(&scope.project, &intent);
        Self::of_keys(of_words, of_parts, sample, project)
    }

    /// Keys of words are those of the scope, whose sample tells how many logs have them. Keys of their parts, of which there
    /// are many rare ones, are those of the project.
    fn of_keys(of_words: Vec<Key>, of_parts: Vec<Key>, sample: &Sample, project: &Sample) -> Self {
        let rarest_first = |keys: Vec<Key>, logs: &dyn Fn(Key) -> f64| {
            let mut keys: Vec<_> = keys.into_iter().map(|key| (logs(key), key)).collect();
            keys.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
            keys.dedup();
            keys
        };
        let of_words = rarest_first(of_words, &|key| sample.estimate(key));
        // The project has at least those of the scope, which may be none of its newest.
        let of_parts = rarest_first(of_parts, &|key| project.estimate(key).max(sample.estimate(key)));
        // Of keys that the samples do not have, words come first: a pair of rare words is rarely said twice.
        let mut rarest = [&*of_words, &*of_parts].concat();
        rarest.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut found = 0.0;
        let rare = rarest.iter().take_while(|(logs, _)| {
            found += logs;
            found <= MOST as f64
        });
        let any: Vec<_> = rare.map(|&(_, key)| key).collect();
        // A word first, which keeps to the domain; then pairs, which Postgres reads sooner than the words they are of.
        let Some(word) = of_words.iter().map(|&(_, key)| key).find(|key| !any.contains(key)) else {
            return Self { newest: any.is_empty(), any, ..Self::default() };
        };
        let others = rarest[any.len()..].iter().map(|&(_, key)| key).filter(|&key| key != word);
        let (all, logs) = together(iter::once(word).chain(others), sample);
        if logs > HOPELESS {
            Self { any, newest: true, ..Self::default() }
        } else {
            Self { any, all, newest: false }
        }
    }
}

/// Takes keys in turn until few logs have them together, and how many that probably are.
fn together(keys: impl Iterator<Item = Key>, sample: &Sample) -> (Vec<Key>, f64) {
    let mut all: Vec<Key> = Vec::new();
    let mut rows: Option<Vec<u16>> = None;
    let mut logs = f64::INFINITY;
    for key in keys.take(TOGETHER) {
        let with_key = sample.rows_with(key);
        let left: Vec<_> = match &rows {
            None => with_key.collect(),
            Some(rows) => with_key.filter(|row| rows.binary_search(row).is_ok()).collect(),
        };
        if left.is_empty() && !all.is_empty() {
            continue;
        }
        all.push(key);
        logs = sample.scale(left.len());
        if logs <= MOST as f64 {
            break;
        }
        rows = Some(left);
    }
    (all, logs)
}

#[cfg(test)]
mod tests {
    use super::super::sample::sample_of;
    use super::*;

    /// A sample in which row `n` has the key `k` where `n` is a multiple of `k`.
    fn multiples(size: i64) -> Sample {
        let rows = (1..=100).map(|row| (String::new(), (1..=100).filter(|key| row % key == 0).collect()));
        sample_of(&rows.collect::<Vec<_>>(), size)
    }

    #[test]
    fn the_rarest_keys_are_taken_while_they_have_few_logs() {
        let small = multiples(1_000);
        let plan = |of_words: &[Key], of_parts: &[Key]| {
            Plan::of_keys(of_words.to_vec(), of_parts.to_vec(), &small, &small)
        };
        let any = |any: &[Key]| Plan { any: any.to_vec(), ..Plan::default() };
        assert_eq!(plan(&[2, 50], &[]), any(&[50, 2]));
        assert_eq!(plan(&[2], &[50, 50]), any(&[50, 2]));
        assert_eq!(plan(&[150], &[101, 2]), any(&[150, 101, 2]), "neither 101 nor 150 was seen");
        assert_eq!(plan(&[1, 2, 50], &[]), Plan { all: vec![1], ..any(&[50, 2]) });
        assert_eq!(plan(&[], &[]), Plan { newest: true, ..any(&[]) });
    }

    #[test]
    fn common_keys_are_asked_for_together_and_hopeless_ones_not_at_all() {
        let large = multiples(20_000);
        let plan = |of_words: &[Key]| Plan::of_keys(of_words.to_vec(), Vec::new(), &large, &large);
        let rest = Plan::default;
        // A fifth, a third and half of the logs have one of them; three in a hundred have all.
        assert_eq!(plan(&[2, 3, 5]), Plan { all: vec![5, 3, 2], ..rest() });
        assert_eq!(plan(&[2, 3, 5, 70]), Plan { any: vec![70], all: vec![5, 3, 2], ..rest() });
        assert_eq!(plan(&[1, 2]), Plan { newest: true, ..rest() });
        assert_eq!(plan(&[1, 2, 70]), Plan { any: vec![70], newest: true, ..rest() });
        // In the project parts of words are more common than in a domain.
        let project = multiples(4_000_000);
        let plan = Plan::of_keys(vec![50], vec![25], &multiples(1_000), &project);
        assert_eq!(plan, Plan { any: vec![50], ..rest() }, "a part alone would leave the domain");
    }
}
