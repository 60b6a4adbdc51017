//! How common keys and words are, from a sample of each scope: its newest solved logs, and how many logs it has in all.
//! A search is planned by it. What is known is a little old, which does no harm; a scope asked for the first time
//! is sampled then, one asked again later in the background.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use sqlx::{PgPool, Postgres, QueryBuilder};

use super::keys::Key;
use super::text::{trigrams, words};

/// How many logs make a sample.
const ROWS: usize = 2_000;
/// How many logs of a scope are looked at to find solved ones.
const LOOKED_AT: usize = 20_000;
/// So many are counted before the first search of a scope is answered; of a greater scope the rest is counted later.
const COUNTED_AT_ONCE: i64 = 50_000;
/// The least age at which a sample is taken again.
const STALE: Duration = Duration::from_secs(10);
/// Taking samples of a scope uses up at most one part in so many of the time.
const SHARE: u32 = 1000;
/// How many logs are few.
const FEW: f64 = 20_000.0;
/// How many scopes are remembered, at one or two megabytes each.
const SCOPES: usize = 32;
/// How like a known word must an unknown one be to be taken for it, by their trigrams (0 to 1); and for how many it is.
const ALIKE: f32 = 0.4;
const MOST_ALIKE: usize = 3;

/// What is searched: a project's logs, or those of one domain of it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Scope {
    pub(super) project: Arc<str>,
    pub(super) domain_name: Option<String>,
}

impl Scope {
    /// Adds the condition that a log is in the scope.
    pub(super) fn push(&self, query: &mut QueryBuilder<Postgres>) {
        query.push("project = ").push_bind(self.project.to_string());
        if let Some(domain_name) = &self.domain_name {
            query.push(" and domain_name = ").push_bind(domain_name.clone());
        }
    }
}

/// The samples taken so far.
#[derive(Debug, Default)]
pub struct Samples(Mutex<HashMap<Scope, Arc<Sample>>>);

impl Samples {
    /// The sample of a scope.
    pub(super) async fn of(self: &Arc<Self>, db: &PgPool, scope: &Scope) -> sqlx::Result<Arc<Sample>> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(scope).cloned();
        let Some(sample) = known else {
            return Ok(self.keep(scope, Sample::take(db, scope, Some(COUNTED_AT_ONCE)).await?));
        };
        if sample.is_stale() && !sample.renewed.swap(true, Ordering::Relaxed) {
            let (samples, db, scope) = (Arc::clone(self), db.clone(), scope.clone());
            tokio::spawn(async move {
                match Sample::take(&db, &scope, None).await {
                    Ok(sample) => drop(samples.keep(&scope, sample)),
                    Err(error) => {
                        tracing::warn!(%error, "no new sample of the logs could be taken");
                        samples.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&scope);
                    }
                }
            });
        }
        Ok(sample)
    }

    fn keep(&self, scope: &Scope, sample: Sample) -> Arc<Sample> {
        let sample = Arc::new(sample);
        let mut samples = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if samples.len() >= SCOPES
            && !samples.contains_key(scope)
            && let Some(oldest) =
                samples.iter().min_by_key(|(_, sample)| sample.taken).map(|(scope, _)| scope.clone())
        {
            samples.remove(&oldest);
        }
        samples.insert(scope.clone(), Arc::clone(&sample));
        sample
    }
}

/// A sample of a scope.
#[derive(Debug)]
pub(super) struct Sample {
    /// How many logs the scope has.
    size: f64,
    /// How many of them are in the sample.
    rows: usize,
    /// Which row has which key, ascending.
    postings: Vec<(Key, u16)>,
    /// The words of the sample in lower case, ascending.
    words: Vec<String>,
    /// Which word, by its place among them, has which trigram, ascending.
    trigrams: Vec<([char; 3], u32)>,
    taken: Instant,
    /// Until when it is new enough.
    good_for: Duration,
    /// Whether a newer one is on its way.
    renewed: AtomicBool,
}

impl Sample {
    async fn take(db: &PgPool, scope: &Scope, counted: Option<i64>) -> sqlx::Result<Self> {
        let started = Instant::now();
        let mut query = QueryBuilder::new(
            "select left(user_intent, 1000), search_keys from (
                select user_intent, search_keys, success from generations where ",
        );
        scope.push(&mut query);
        query.push(format_args!(" order by created_at desc, id desc limit {LOOKED_AT}"));
        query.push(format_args!(
            ") recent
            where success and user_intent is not null and search_keys is not null limit {ROWS}"
        ));
        let rows: Vec<(String, Vec<Key>)> = query.build_query_as().fetch_all(db).await?;

        let mut query = QueryBuilder::new("select count(*) from (select from generations where ");
        scope.push(&mut query);
        query.push(" limit ").push_bind(counted).push(") log");
        let mut size: i64 = query.build_query_scalar().fetch_one(db).await?;
        let all_counted = counted.is_none_or(|most| size < most);
        if !all_counted {
            // Rather too many: then a search is narrower than it need be, but never slow.
            let sql = "select reltuples::int8 from pg_class where oid = 'generations'::regclass";
            size = size.max(sqlx::query_scalar(sql).fetch_one(db).await?);
        }
        let good_for = if all_counted { STALE.max(started.elapsed() * SHARE) } else { Duration::ZERO };
        Ok(Self::new(&rows, size, good_for))
    }

    fn new(rows: &[(String, Vec<Key>)], size: i64, good_for: Duration) -> Self {
        let mut postings: Vec<_> = (0_u16..)
            .zip(rows)
            .flat_map(|(row, (_, keys))| keys.iter().map(move |&key| (key, row)))
            .collect();
        postings.sort_unstable();
        let mut vocabulary = BTreeSet::new();
        for (intent, _) in rows {
            let lower = intent.to_lowercase();
            for word in words(&lower) {
                if !vocabulary.contains(word) {
                    vocabulary.insert(word.to_owned());
                }
            }
        }
        let words: Vec<_> = vocabulary.into_iter().collect();
        let mut trigrams: Vec<_> = (0_u32..)
            .zip(&words)
            .flat_map(|(place, word)| trigrams(word).map(move |trigram| (trigram, place)))
            .collect();
        trigrams.sort_unstable();
        trigrams.dedup();
        Self {
            size: size as f64,
            rows: rows.len(),
            postings,
            words,
            trigrams,
            taken: Instant::now(),
            good_for,
            renewed: AtomicBool::new(false),
        }
    }

    /// Whether the scope has so few logs that some thousand are a good part of them.
    pub(super) fn is_of_few(&self) -> bool {
        self.size <= FEW
    }

    fn is_stale(&self) -> bool {
        self.taken.elapsed() > self.good_for
    }

    /// The rows of the sample that have a key.
    pub(super) fn rows_with(&self, key: Key) -> impl Iterator<Item = u16> + '_ {
        let start = self.postings.partition_point(|&(other, _)| other < key);
        self.postings[start..].iter().take_while(move |(other, _)| *other == key).map(|&(_, row)| row)
    }

    /// How many logs of the scope probably have a key. A key that no row has may be one of a few logs.
    pub(super) fn estimate(&self, key: Key) -> f64 {
        self.scale(self.rows_with(key).count())
    }

    /// How many logs of the scope so many rows of the sample stand for.
    pub(super) fn scale(&self, rows: usize) -> f64 {
        (rows as f64).max(0.5) / self.rows.max(1) as f64 * self.size
    }

    /// The words that one which no log of the sample has may have been meant to be.
    pub(super) fn words_like(&self, word: &str) -> Vec<&str> {
        let length = word.chars().count();
        if length < 3 || self.words.binary_search_by(|known| known.as_str().cmp(word)).is_ok() {
            return Vec::new();
        }
        let mut in_common = vec![0_u16; self.words.len()];
        for trigram in trigrams(word) {
            let start = self.trigrams.partition_point(|(known, _)| *known < trigram);
            for (_, place) in self.trigrams[start..].iter().take_while(|(known, _)| *known == trigram) {
                in_common[*place as usize] += 1;
            }
        }
        let shared = in_common.iter().zip(&self.words).filter(|(in_common, _)| **in_common > 0);
        let mut alike: Vec<_> = shared
            .filter_map(|(in_common, other)| {
                // A word has one trigram more than characters.
                let all = length + other.chars().count() + 2;
                let likeness = 2.0 * f32::from(*in_common) / all as f32;
                (likeness >= ALIKE).then_some((likeness, other.as_str()))
            })
            .collect();
        alike.sort_by(|a, b| b.0.total_cmp(&a.0));
        alike.into_iter().take(MOST_ALIKE).map(|(_, other)| other).collect()
    }
}

#[cfg(test)]
pub(super) fn sample_of(rows: &[(String, Vec<Key>)], size: i64) -> Sample {
    Sample::new(rows, size, STALE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_stands_for_its_scope() {
        let row = |keys: &[Key]| ("Create a hedge fund".to_owned(), keys.to_vec());
        let sample = sample_of(&[row(&[1, 2]), row(&[2]), row(&[2, 3]), row(&[])], 400);
        let estimates = [1, 2, 3, 4].map(|key| sample.estimate(key).to_string());
        assert_eq!(estimates, ["100", "300", "100", "50"]);
        assert!(sample.is_of_few() && !sample_of(&[row(&[1])], 20_001).is_of_few());
        assert_eq!(sample.rows_with(2).collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(sample.words_like("crate"), ["create"]);
        assert_eq!(sample.words_like("create"), Vec::<&str>::new());
        assert_eq!(sample.words_like("xyzzy"), Vec::<&str>::new());
    }
}
