//! Which logs are looked at closely. Not all that share a word with the intent: of a million logs that may be most. Keys are
//! taken, the rarest first, while about [`MOST`] logs have any of them; where even the rarest has too many, those logs that have several.

use super::keys::{self, Key};
use super::sample::{Sample, Scope};
use super::text::words;

/// How many logs are looked at closely.
pub(super) const MOST: usize = 1_000;
/// A key that more logs of the project have is no use, even where few of the domain do: the index would read them all.
const TOO_COMMON: f64 = 30_000.0;
/// Where more logs of the project than this have one of the keys, the index sorts out those of the domain.
const NARROWED_FROM: f64 = 1_500.0;
/// How many keys are tried for having together.
const TOGETHER: usize = 6;
/// Beyond so many logs nothing is gained by reading them.
const HOPELESS: f64 = 5_000.0;

/// What the index is asked for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Plan {
    /// Logs that have any of the keys, and this one of their domain if given.
    Any(Vec<Key>, Option<Key>),
    /// Logs that have all of the keys.
    All(Vec<Key>),
    /// Nothing: the newest logs are as good as any.
    Newest,
}

impl Plan {
    /// Plans the search for an intent in a scope, by samples of the scope and of its whole project.
    pub(super) fn new(intent: &str, scope: &Scope, sample: &Sample, project: &Sample) -> Self {
        let mut keys = keys::of_intent(&scope.project, intent);
        for word in words(&intent.to_lowercase()) {
            keys.extend(
                sample.words_like(word).into_iter().map(|meant| keys::of_word(&scope.project, meant)),
            );
        }
        keys.sort_unstable();
        keys.dedup();
        let domain = scope.domain_name.as_ref().map(|name| keys::of_domain(&scope.project, name));
        Self::of_keys(keys, domain, sample, project)
    }

    fn of_keys(keys: Vec<Key>, domain: Option<Key>, sample: &Sample, project: &Sample) -> Self {
        let mut rarest: Vec<_> = keys.into_iter().map(|key| (sample.estimate(key), key)).collect();
        rarest.sort_by(|a, b| a.0.total_cmp(&b.0));
        let (mut any, mut found, mut read) = (Vec::new(), 0.0, 0.0);
        for &(logs, key) in &rarest {
            if found + logs > MOST as f64 {
                break;
            }
            let in_project = project.estimate(key);
            if in_project <= TOO_COMMON {
                any.push(key);
                found += logs;
                read += in_project;
            }
        }
        if !any.is_empty() {
            return Self::Any(any, domain.filter(|_| read > NARROWED_FROM));
        }
        let mut all: Vec<Key> = Vec::new();
        let mut rows: Option<Vec<u16>> = None;
        for &(_, key) in rarest.iter().take(TOGETHER) {
            let with_key = sample.rows_with(key);
            let left: Vec<_> = match &rows {
                None => with_key.collect(),
                Some(rows) => with_key.filter(|row| rows.binary_search(row).is_ok()).collect(),
            };
            if left.is_empty() && !all.is_empty() {
                continue;
            }
            all.push(key);
            let enough = sample.scale(left.len()) <= MOST as f64;
            rows = Some(left);
            if enough {
                break;
            }
        }
        match rows {
            Some(rows) if sample.scale(rows.len()) <= HOPELESS => {
                all.extend(domain);
                Self::All(all)
            }
            _ => Self::Newest,
        }
    }
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
        let plan =
            |keys: &[Key], domain, sample: &Sample| Plan::of_keys(keys.to_vec(), domain, sample, sample);
        assert_eq!(plan(&[1, 2, 50], None, &small), Plan::Any(vec![50, 2], None));
        assert_eq!(plan(&[50], Some(7), &small), Plan::Any(vec![50], None));
        assert_eq!(plan(&[], None, &small), Plan::Newest);
    }

    #[test]
    fn common_keys_are_asked_for_together_and_hopeless_ones_not_at_all() {
        let large = multiples(20_000);
        let plan = |keys: &[Key], domain| Plan::of_keys(keys.to_vec(), domain, &large, &large);
        // A fifth, a third and half of the logs have one of them; three in a hundred have all.
        assert_eq!(plan(&[2, 3, 5], None), Plan::All(vec![5, 3, 2]));
        assert_eq!(plan(&[2, 3, 5], Some(1)), Plan::All(vec![5, 3, 2, 1]));
        assert_eq!(plan(&[1, 2], None), Plan::Newest);
        // In the project they are too common for the index to read them.
        let project = multiples(4_000_000);
        assert_eq!(Plan::of_keys(vec![50], None, &multiples(1_000), &project), Plan::All(vec![50]));
    }
}
