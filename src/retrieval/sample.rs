//! A sample: some documents of a scope, from which the number of documents and the document frequency of keys are
//! estimated.
//!
//! The ids of documents decide which ones are in the sample, so that it represents the whole scope, and the same
//! search has the same result. The newest documents would not be representative: after an import they are all of one
//! kind.

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use futures_util::{Stream, TryStreamExt as _};
use sqlx::{AssertSqlSafe, PgPool};

use super::keys::{Key, StoredKeys};
use super::text::trigrams;
use super::{Corpus, Keyed, Scope, in_scope};
use crate::sharing::apart;

/// The minimum number of documents in a sample, if there are so many and they are not long.
const ROWS: i64 = 2_000;
/// The maximum number of documents in a sample. So many belong to it only if a scope has no more, or if clients have chosen
/// the ids.
const MOST_ROWS: i64 = 2 * ROWS;
/// The number of keys of the documents in a sample from which on no further document is added.
const MOST_KEYS: usize = 500_000;
/// The number of characters of the words of a sample from which on no further word is added. The work of finding similar words
/// grows with it.
const MOST_LETTERS: usize = 250_000;
/// The maximum number of characters of a word of a sample, and of one that may be a misspelling of it.
const LONGEST_WORD: usize = 40;
/// The approximate number of bytes that a word takes besides its own: the pointer to it, and what the allocator adds.
const OF_WORD: usize = size_of::<Box<str>>() + 16;
/// The assumed size of a scope that is not completely counted yet. It is rather too large, which makes a search
/// narrower than necessary, but never slow.
const UNCOUNTED: i64 = 1_000_000;
/// The inverse of the maximum share of time that is spent on renewing the sample of a scope in the background.
const SHARE: u32 = 100;
/// The maximum number of documents of a scope that is small.
const FEW: i64 = 20_000;
/// The minimum trigram similarity, from 0 to 1, at which an unknown word may be a misspelling of a known one, and the
/// maximum number of such words.
const ALIKE: f32 = 0.4;
const MOST_ALIKE: usize = 3;

/// Counts the rows of a scope, up to a limit.
pub(super) async fn count(
    db: &PgPool,
    corpus: &Corpus,
    scope: &Scope,
    most: Option<i64>,
) -> sqlx::Result<i64> {
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
    pub(super) documents: i64,
    /// The number of documents in the sample.
    rows: usize,
    /// The pairs of keys and rows of the sample, sorted.
    postings: Vec<(Key, u16)>,
    /// The words of the sample in lower case, sorted. Long ones are left out.
    words: Vec<Box<str>>,
    /// The pairs of trigrams and words, as indices of `words`, sorted.
    trigrams: Vec<([char; 3], u32)>,
    /// The approximate number of bytes that the sample takes.
    pub(super) bytes: usize,
    taken: Instant,
    /// The age from which the sample is old.
    good_for: Duration,
    /// Whether a new sample is being taken.
    pub(super) renewed: AtomicBool,
}

impl Sample {
    /// Takes a sample of the scope, of which at most so many rows are read.
    pub(super) async fn take(
        db: &PgPool,
        corpus: &Corpus,
        scope: &Scope,
        most: Option<i64>,
    ) -> sqlx::Result<Self> {
        let started = Instant::now();
        let counted = count(db, corpus, scope, most).await?;
        let Corpus { table, text, keys, indexed, order, .. } = corpus;
        let sql = format!(
            "select left({text}, 1000), {keys} from {table}
            where project = $1 and {indexed} and {text} is not null and {keys} is not null and id = any(array(
                select id from (
                    select id from {table} where {} order by {order} limit $3
                ) first
                where uuid_hash(id) % $4 = 0 limit $5
            )) order by uuid_hash(id)",
            in_scope(corpus)
        );
        let one_in = i32::try_from(counted / ROWS).unwrap_or(i32::MAX).max(1);
        let query = sqlx::query_as(AssertSqlSafe(sql)).bind(&*scope.project).bind(&scope.facet);
        let rows = beginning(query.bind(most).bind(one_in).bind(MOST_ROWS).fetch(db)).await?;
        let (documents, good_for) = if most.is_some_and(|most| counted >= most) {
            (UNCOUNTED, Duration::ZERO)
        } else {
            (counted, started.elapsed() * SHARE)
        };
        let keyed = corpus.keyed;
        Ok(apart(&scope.project, move || Self::new(&rows, keyed, documents, good_for)).await)
    }

    fn new(rows: &[(String, Vec<Key>)], keyed: Keyed, documents: i64, good_for: Duration) -> Self {
        let mut postings: Vec<_> = (0_u16..)
            .zip(rows)
            .flat_map(|(row, (_, keys))| keys.iter().map(move |&key| (key, row)))
            .collect();
        postings.sort_unstable();
        postings.shrink_to_fit();
        let words = words(rows, keyed);
        let mut trigrams: Vec<_> = (0_u32..)
            .zip(&words)
            .flat_map(|(place, word)| trigrams(word).map(move |trigram| (trigram, place)))
            .collect();
        trigrams.sort_unstable();
        trigrams.dedup();
        trigrams.shrink_to_fit();
        let of_words: usize = words.iter().map(|word| word.len() + OF_WORD).sum();
        let bytes = of_words + size_of_val(&*postings) + size_of_val(&*trigrams);
        Self {
            documents,
            rows: rows.len(),
            postings,
            words,
            trigrams,
            bytes,
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

    /// Returns whether a new sample should be taken.
    pub(super) fn is_old(&self) -> bool {
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
        self.words.binary_search_by(|known| (**known).cmp(word)).is_ok()
    }

    /// Returns the words of the sample of which an unknown word may be a misspelling, the most probable first.
    pub(super) fn similar_words(&self, word: &str) -> Vec<&str> {
        let length = word.chars().count();
        if !(3..=LONGEST_WORD).contains(&length) {
            return Vec::new();
        }
        let mut in_common = vec![0_u16; self.words.len()];
        for trigram in trigrams(word).collect::<BTreeSet<_>>() {
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
                (likeness >= ALIKE).then_some((likeness, &**other))
            })
            .collect();
        alike.sort_by(|a, b| b.0.total_cmp(&a.0));
        alike.into_iter().take(MOST_ALIKE).map(|(_, other)| other).collect()
    }
}

/// Reads the text and the keys of documents, until these have enough keys.
async fn beginning(
    documents: impl Stream<Item = sqlx::Result<(String, StoredKeys)>>,
) -> sqlx::Result<Vec<(String, Vec<Key>)>> {
    let (mut documents, mut read, mut count) = (pin!(documents), Vec::new(), 0);
    while count < MOST_KEYS
        && let Some((text, StoredKeys(keys))) = documents.try_next().await?
    {
        count += keys.len();
        read.push((text, keys));
    }
    Ok(read)
}

/// Returns the words of the first documents in lower case, sorted and without long ones, until they have enough characters.
fn words(documents: &[(String, Vec<Key>)], keyed: Keyed) -> Vec<Box<str>> {
    let mut words = BTreeSet::new();
    let mut letters = 0;
    for word in documents.iter().flat_map(|(text, _)| keyed.words(text)) {
        let length = word.chars().count();
        if letters >= MOST_LETTERS {
            break;
        }
        if length <= LONGEST_WORD && words.insert(word) {
            letters += length;
        }
    }
    words.into_iter().map(String::into_boxed_str).collect()
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

    #[test]
    fn a_word_is_compared_by_each_of_its_trigrams_once_and_a_long_one_not_at_all() {
        let long = "c".repeat(41);
        let sample = sample_of(&[(format!("aaa create {long}"), Vec::new())], 1);
        assert_eq!(sample.similar_words(&"a".repeat(20)), Vec::<&str>::new());
        assert!(!sample.knows(&long) && sample.similar_words(&long[..39]).is_empty());
        assert_eq!(sample.similar_words("crate"), ["create"]);
    }

    #[tokio::test]
    async fn a_sample_of_long_documents_has_fewer_of_them_and_not_all_of_their_words() {
        let document = |number: usize| {
            let words: Vec<_> = (0..10).map(|word| format!("{:0>36}x", number * 10 + word)).collect();
            (words.join(" "), StoredKeys((0..4_000).collect()))
        };
        let documents = futures_util::stream::iter((0..1_200).map(document).map(Ok));
        let read = beginning(documents).await.expect("nothing fails");
        assert_eq!(read.len(), MOST_KEYS / 4_000);
        let many: Vec<_> = (0..1_200).map(document).map(|(text, _)| (text, Vec::new())).collect();
        let letters: usize = sample_of(&many, 1).words.iter().map(|word| word.len()).sum();
        assert!((MOST_LETTERS..MOST_LETTERS + LONGEST_WORD).contains(&letters), "{letters}");
    }
}
