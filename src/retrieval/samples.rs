//! Samples: some documents of a scope, from which the number of documents and the document frequency of keys are
//! estimated.
//!
//! The ids of documents decide which ones are in the sample, so that it represents the whole scope, and the same
//! search has the same result. The newest documents would not be representative: after an import they are all of one
//! kind.
//!
//! A sample may be out of date, because a plan only needs the magnitude of a frequency. Estimates are wrong by
//! magnitudes only if the scope has grown by a factor, which does not depend on age alone: thousands of documents may
//! arrive per second, and under load, sampling takes long. A sample is therefore renewed in two ways: in the
//! background when it is old, and at once if a search has found more than its plan expected and the scope has indeed
//! grown (`Samples::renew`).

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use sqlx::{AssertSqlSafe, PgPool};

use super::keys::Key;
use super::text::trigrams;
use super::{Corpus, Keyed, Scope, in_scope};

/// The minimum number of documents in a sample, if there are so many. A sample has less than twice as many.
const ROWS: i64 = 2_000;
/// The number of rows, in the order of the corpus, that are counted and sampled while a search waits. A larger scope
/// is read completely in the background.
const COUNTED_AT_ONCE: i64 = 50_000;
/// The assumed size of a scope that is not completely counted yet. It is rather too large, which makes a search
/// narrower than necessary, but never slow.
const UNCOUNTED: i64 = 1_000_000;
/// The inverse of the maximum share of time that is spent on renewing the sample of a scope in the background.
const SHARE: u32 = 100;
/// The maximum number of documents of a scope that is small.
const FEW: i64 = 20_000;
/// The maximum number of samples in memory, of one or two megabytes each.
const SAMPLES: usize = 32;
/// The minimum trigram similarity, from 0 to 1, at which an unknown word may be a misspelling of a known one, and the
/// maximum number of such words.
const ALIKE: f32 = 0.4;
const MOST_ALIKE: usize = 3;

/// The documents that a sample represents.
type Place = (&'static str, Scope);

/// The samples in memory.
#[derive(Debug, Default)]
pub struct Samples(Mutex<HashMap<Place, Arc<Sample>>>);

impl Samples {
    /// Returns the sample of a scope. The sample of a new scope is taken now, and an old one is renewed in the
    /// background.
    pub(super) async fn of(
        self: &Arc<Self>,
        db: &PgPool,
        corpus: &'static Corpus,
        scope: &Scope,
    ) -> sqlx::Result<Arc<Sample>> {
        let Some(sample) = self.known(corpus, scope) else {
            return self.take(db, corpus, scope, Some(COUNTED_AT_ONCE)).await;
        };
        if sample.is_old() && !sample.renewed.swap(true, Ordering::Relaxed) {
            let (samples, db, scope) = (Arc::clone(self), db.clone(), scope.clone());
            tokio::spawn(async move {
                if let Err(error) = samples.take(&db, corpus, &scope, None).await {
                    tracing::warn!(%error, table = corpus.table, "no new sample could be taken");
                    samples.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&(corpus.table, scope));
                }
            });
        }
        Ok(sample)
    }

    /// Renews the sample of a scope if the scope has grown much since then. Returns whether it was renewed. Only
    /// scopes that are counted quickly are checked: the others are large, rarely grow by a factor, and are renewed in
    /// time.
    pub(super) async fn renew(
        &self,
        db: &PgPool,
        corpus: &'static Corpus,
        scope: &Scope,
        sample: &Sample,
    ) -> sqlx::Result<bool> {
        // If the scope has grown by half, the estimates are useless.
        let most = sample.documents + sample.documents / 2;
        if sample.documents > COUNTED_AT_ONCE || count(db, corpus, scope, Some(most + 1)).await? <= most {
            return Ok(false);
        }
        self.take(db, corpus, scope, Some(COUNTED_AT_ONCE)).await?;
        Ok(true)
    }

    fn known(&self, corpus: &Corpus, scope: &Scope) -> Option<Arc<Sample>> {
        let samples = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        samples.get(&(corpus.table, scope.clone())).cloned()
    }

    /// Takes a sample and stores it, in place of the oldest one if there are many.
    async fn take(
        &self,
        db: &PgPool,
        corpus: &'static Corpus,
        scope: &Scope,
        most: Option<i64>,
    ) -> sqlx::Result<Arc<Sample>> {
        let sample = Arc::new(Sample::take(db, corpus, scope, most).await?);
        let place = (corpus.table, scope.clone());
        let mut samples = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if samples.len() >= SAMPLES
            && !samples.contains_key(&place)
            && let Some(oldest) =
                samples.iter().min_by_key(|(_, sample)| sample.taken).map(|(place, _)| place.clone())
        {
            samples.remove(&oldest);
        }
        samples.insert(place, Arc::clone(&sample));
        Ok(sample)
    }
}

/// Counts the rows of a scope, up to a limit.
async fn count(db: &PgPool, corpus: &Corpus, scope: &Scope, most: Option<i64>) -> sqlx::Result<i64> {
    let sql = format!(
        "select count(*) from (select from {} where {} limit $3) document",
        corpus.table,
        in_scope(corpus)
    );
    let query = sqlx::query_scalar(AssertSqlSafe(sql)).bind(&*scope.project).bind(&scope.facet);
    query.bind(most).fetch_one(db).await
}

/// The sample of a scope.
#[derive(Debug)]
pub(super) struct Sample {
    /// The number of documents of the scope.
    documents: i64,
    /// The number of documents in the sample.
    rows: usize,
    /// The pairs of keys and rows of the sample, sorted.
    postings: Vec<(Key, u16)>,
    /// The words of the sample in lower case, sorted.
    words: Vec<String>,
    /// The pairs of trigrams and words, as indices of `words`, sorted.
    trigrams: Vec<([char; 3], u32)>,
    taken: Instant,
    /// The age from which the sample is old.
    good_for: Duration,
    /// Whether a new sample is being taken.
    renewed: AtomicBool,
}

impl Sample {
    async fn take(db: &PgPool, corpus: &Corpus, scope: &Scope, most: Option<i64>) -> sqlx::Result<Self> {
        let started = Instant::now();
        let counted = count(db, corpus, scope, most).await?;
        let Corpus { table, text, keys, indexed, order, .. } = corpus;
        let sql = format!(
            "select left({text}, 1000), {keys} from {table}
            where project = $1 and {indexed} and {text} is not null and {keys} is not null and id = any(array(
                select id from (
                    select id from {table} where {} order by {order} limit $3
                ) first
                where uuid_hash(id) % $4 = 0
            ))",
            in_scope(corpus)
        );
        let one_in = i32::try_from(counted / ROWS).unwrap_or(i32::MAX).max(1);
        let query = sqlx::query_as(AssertSqlSafe(sql)).bind(&*scope.project).bind(&scope.facet);
        let rows: Vec<(String, Vec<Key>)> = query.bind(most).bind(one_in).fetch_all(db).await?;
        Ok(if most.is_some_and(|most| counted >= most) {
            Self::new(&rows, corpus.keyed, UNCOUNTED, Duration::ZERO)
        } else {
            Self::new(&rows, corpus.keyed, counted, started.elapsed() * SHARE)
        })
    }

    fn new(rows: &[(String, Vec<Key>)], keyed: Keyed, documents: i64, good_for: Duration) -> Self {
        let mut postings: Vec<_> = (0_u16..)
            .zip(rows)
            .flat_map(|(row, (_, keys))| keys.iter().map(move |&key| (key, row)))
            .collect();
        postings.sort_unstable();
        let mut vocabulary = BTreeSet::new();
        for (text, _) in rows {
            vocabulary.extend(keyed.words(text));
        }
        let words: Vec<_> = vocabulary.into_iter().collect();
        let mut trigrams: Vec<_> = (0_u32..)
            .zip(&words)
            .flat_map(|(place, word)| trigrams(word).map(move |trigram| (trigram, place)))
            .collect();
        trigrams.sort_unstable();
        trigrams.dedup();
        Self {
            documents,
            rows: rows.len(),
            postings,
            words,
            trigrams,
            taken: Instant::now(),
            good_for,
            renewed: AtomicBool::new(false),
        }
    }

    /// Returns the number of documents of the scope.
    pub(super) fn documents(&self) -> f64 {
        self.documents as f64
    }

    /// Returns whether the scope has so few documents that a thousand are a large part of them.
    pub(super) fn is_of_few(&self) -> bool {
        self.documents <= FEW
    }

    fn is_old(&self) -> bool {
        self.taken.elapsed() > self.good_for
    }

    /// Returns the rows of the sample that have a key, in order.
    pub(super) fn postings(&self, key: Key) -> impl Iterator<Item = u16> + '_ {
        let start = self.postings.partition_point(|&(other, _)| other < key);
        self.postings[start..].iter().take_while(move |(other, _)| *other == key).map(|&(_, row)| row)
    }

    /// Estimates how many documents of the scope have a key. Even a key that is not in the sample may be in a few.
    pub(super) fn document_frequency(&self, key: Key) -> f64 {
        self.scale(self.postings(key).count())
    }

    /// Estimates the number of documents of the scope that this number of rows of the sample represents.
    pub(super) fn scale(&self, rows: usize) -> f64 {
        (rows as f64).max(0.5) / self.rows.max(1) as f64 * self.documents as f64
    }

    /// Returns whether a word is among those of the sample.
    pub(super) fn knows(&self, word: &str) -> bool {
        self.words.binary_search_by(|known| known.as_str().cmp(word)).is_ok()
    }

    /// Returns the words of the sample of which an unknown word may be a misspelling, the most probable first.
    pub(super) fn similar_words(&self, word: &str) -> Vec<&str> {
        let length = word.chars().count();
        if length < 3 {
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
pub(super) fn sample_of(rows: &[(String, Vec<Key>)], documents: i64) -> Sample {
    Sample::new(rows, Keyed::Words, documents, Duration::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_stands_for_the_documents_of_its_scope() {
        let row = |keys: &[Key]| ("Create a hedge fund".to_owned(), keys.to_vec());
        let sample = sample_of(&[row(&[1, 2]), row(&[2]), row(&[2, 3]), row(&[])], 400);
        let frequencies = [1, 2, 3, 4].map(|key| sample.document_frequency(key).to_string());
        assert_eq!(frequencies, ["100", "300", "100", "50"]);
        assert!(sample.is_of_few() && !sample_of(&[row(&[1])], 20_001).is_of_few());
        assert_eq!(sample.postings(2).collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(sample.similar_words("crate"), ["create"]);
        assert!(sample.knows("create") && !sample.knows("crate"));
        assert_eq!(sample.similar_words("xyzzy"), Vec::<&str>::new());
    }
}
