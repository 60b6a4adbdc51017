//! Samples: some documents of a scope, from which the document frequency of a key is estimated, and how many documents the
//! scope has.
//!
//! Which documents those are depends on their ids alone, so they stand for all of the scope, and the same search has the same answer. The
//! newest would not do: after an import they are of one kind, and the words of all others would seem rare.
//!
//! A sample is a little old, and may be: a plan needs the magnitude of a frequency. It is wrong by magnitudes only where the
//! scope has grown by a factor, so age alone does not tell. Documents come by thousands a second, and under load a sample of
//! few takes long. Therefore a sample is taken again in two ways: in the background when it is old, and at once when a search
//! has found more than its plan can have meant and the scope has indeed grown (`Samples::renew`).

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use sqlx::{AssertSqlSafe, PgPool};

use super::keys::Key;
use super::text::trigrams;
use super::{Corpus, Keyed, Scope, in_scope};

/// How many documents a sample has at least, if there are so many. It has fewer than twice as many.
const ROWS: i64 = 2_000;
/// How many rows, the first in the order of the corpus, are counted and sampled while a search waits. All of a larger scope are in the background.
const COUNTED_AT_ONCE: i64 = 50_000;
/// The size assumed of a scope that is not counted to its end yet. It is rather too large: a search is then narrower than it need
/// be, but never slow.
const UNCOUNTED: i64 = 1_000_000;
/// Renewing the sample of a scope in the background takes at most one part in so many of the time.
const SHARE: u32 = 100;
/// The maximum number of documents of a scope that is small.
const FEW: i64 = 20_000;
/// How many samples are remembered, at one or two megabytes each.
const SAMPLES: usize = 32;
/// The least likeness by trigrams, 0 to 1, at which an unknown word may be a known one misspelled; and how many such words are taken.
const ALIKE: f32 = 0.4;
const MOST_ALIKE: usize = 3;

/// What a sample is of.
type Place = (&'static str, Scope);

/// The samples taken so far.
#[derive(Debug, Default)]
pub struct Samples(Mutex<HashMap<Place, Arc<Sample>>>);

impl Samples {
    /// Returns the sample of a scope. That of a scope asked for the first time is taken now, and one that has grown old is renewed
    /// in the background.
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

    /// Takes the sample of a scope again if this one is of a much smaller scope than there is by now; whether it was. Only scopes that
    /// are counted quickly are looked at: the others are large, grow by a factor slowly, and are renewed in time.
    pub(super) async fn renew(
        &self,
        db: &PgPool,
        corpus: &'static Corpus,
        scope: &Scope,
        sample: &Sample,
    ) -> sqlx::Result<bool> {
        // Grown by half, its estimates are of no use.
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

    /// Takes a sample and keeps it, in place of the oldest if there are many.
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

/// Counts the rows of a scope, at most so many.
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
    /// How many documents the scope has.
    documents: i64,
    /// How many of them are in the sample.
    rows: usize,
    /// Which row of the sample has which key, ascending.
    postings: Vec<(Key, u16)>,
    /// The words of the sample in lower case, ascending.
    words: Vec<String>,
    /// Which word, by its place in `words`, has which trigram, ascending.
    trigrams: Vec<([char; 3], u32)>,
    taken: Instant,
    /// The age at which it is old.
    good_for: Duration,
    /// Whether a newer one is on its way.
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

    /// Returns how many documents the scope has.
    pub(super) fn documents(&self) -> f64 {
        self.documents as f64
    }

    /// Whether the scope has so few documents that a thousand are a good part of them.
    pub(super) fn is_of_few(&self) -> bool {
        self.documents <= FEW
    }

    fn is_old(&self) -> bool {
        self.taken.elapsed() > self.good_for
    }

    /// Returns the rows of the sample that have a key, ascending.
    pub(super) fn postings(&self, key: Key) -> impl Iterator<Item = u16> + '_ {
        let start = self.postings.partition_point(|&(other, _)| other < key);
        self.postings[start..].iter().take_while(move |(other, _)| *other == key).map(|&(_, row)| row)
    }

    /// Estimates how many documents of the scope have a key. A key that no row of the sample has may be that of a few.
    pub(super) fn document_frequency(&self, key: Key) -> f64 {
        self.scale(self.postings(key).count())
    }

    /// Estimates how many documents of the scope so many rows of the sample stand for.
    pub(super) fn scale(&self, rows: usize) -> f64 {
        (rows as f64).max(0.5) / self.rows.max(1) as f64 * self.documents as f64
    }

    /// Returns the words of the sample that a word unknown to it may be a misspelling of, the likeliest first.
    pub(super) fn similar_words(&self, word: &str) -> Vec<&str> {
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
        assert_eq!(sample.similar_words("create"), Vec::<&str>::new());
        assert_eq!(sample.similar_words("xyzzy"), Vec::<&str>::new());
    }
}
