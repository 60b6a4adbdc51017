//! The samples of the scopes that are searched.
//!
//! A sample may be out of date, because a plan only needs the magnitude of a frequency. Estimates are wrong by
//! magnitudes only if the scope has grown by a factor, which does not depend on age alone: thousands of documents may
//! arrive per second, and under load, sampling takes long. A sample is therefore renewed in two ways: in the
//! background when it is old, and at once if a search has found more than its plan expected and the scope has indeed
//! grown (`Samples::renew`).

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use sqlx::PgPool;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::sample::{Sample, count};
use super::{Corpus, Scope};
use crate::db::silence::LongestStatement;
use crate::error::{Error, Result};
use crate::http::memory::{Budget, Memory};
use crate::sharing::{Place, Shares, apart, joined};

/// The number of rows, in the order of the corpus, that are counted and sampled while a search waits. A larger scope
/// is read completely in the background.
const COUNTED_AT_ONCE: i64 = 50_000;
/// How much is kept in memory. A sample usually has one or two megabytes, and twenty at most.
const MOST: Size = Size { samples: 32, bytes: 64 << 20 };
/// How much a project keeps while others need room for their samples, besides its first sample.
const SHARE: Size = Size { samples: 8, bytes: 16 << 20 };

/// The documents that a sample represents.
type Sampled = (&'static str, Scope);

/// How many searches a project and all projects may have at a time, each of which has read up to a thousand texts.
const SEARCHES: (usize, usize) = (4, 8);
/// The number of bytes beyond which a search is large, and that a large one counts as. Hardly any is larger, and a search that
/// wanted most of the memory would wait until nobody else has any. One large ranking of texts by their trigrams takes place at a
/// time, because these take more; memories are ranked by the terms that are stored with them, which take less than they count.
const LARGE: usize = 32 << 20;
/// How long a search waits for its place, to be the one with a large ranking, and for memory.
const PATIENCE: Duration = Duration::from_secs(5);
/// The error of a search that has waited too long.
const BUSY: Error = Error::Unavailable("other searches for similar texts take too long; try again");

/// The samples in memory, and what searches share besides them.
#[derive(Debug)]
pub struct Samples {
    known: Mutex<HashMap<Sampled, Known>>,
    /// The longest time that taking one may be silent.
    longest: LongestStatement,
    /// The memory of which searches take what the ranking of their candidates needs.
    memory: Budget,
    searches: Shares,
    /// The place of the search with a large ranking.
    large: Shares,
}

/// A search, from before its candidates are read until they are ranked.
#[derive(Debug)]
pub struct Search {
    memory: Memory,
    /// The number of bytes that the ranking takes.
    bytes: AtomicUsize,
    large: Shares,
    project: Arc<str>,
    _place: Place,
}

impl Search {
    /// Takes memory for so many bytes that are compared, with what is made of them. It is taken for all candidates at once: searches
    /// that each held some, and waited for more, would wait for each other. Nobody else waits behind a search.
    pub async fn take(&self, bytes: usize) -> Result<()> {
        let bytes = bytes + self.bytes.fetch_add(bytes, Ordering::Relaxed);
        // Twice as much is held as is asked for, for a body and what is made of it.
        self.memory.hold_late(bytes.min(LARGE) / 2, PATIENCE).await
    }

    /// Ranks the texts of the candidates by their trigrams. That takes more memory than is held if they are large, so large rankings
    /// take place one at a time. Others wait for the one whose turn it is, which therefore needs no place among the threads of its
    /// project.
    pub async fn rank<T: Send + 'static>(self, ranking: impl FnOnce() -> T + Send + 'static) -> Result<T> {
        let project = Arc::clone(&self.project);
        let is_large = self.bytes.load(Ordering::Relaxed) > LARGE;
        let large = self.large.clone();
        let rank = move || {
            let _search = self;
            ranking()
        };
        if !is_large {
            return Ok(apart(&project, rank).await);
        }
        let place = timeout(PATIENCE, large.take(&project, 1)).await.map_err(|_| BUSY)?;
        let rank = move || {
            let _place = place;
            rank()
        };
        Ok(joined(spawn_blocking(rank)).await)
    }
}

/// How many samples there are, and how many bytes they have.
#[derive(Debug, Clone, Copy, Default)]
struct Size {
    samples: usize,
    bytes: usize,
}

impl Size {
    fn add(&mut self, sample: &Sample) {
        self.samples += 1;
        self.bytes += sample.bytes;
    }

    /// Returns whether this is too much. One sample alone never is, so that every scope can have one.
    fn exceeds(self, most: Self) -> bool {
        self.samples > most.samples || self.samples > 1 && self.bytes > most.bytes
    }
}

/// A sample in memory.
#[derive(Debug)]
struct Known {
    sample: Arc<Sample>,
    /// When it was last used.
    used: Instant,
}

impl Samples {
    /// Makes none yet.
    #[must_use]
    pub fn new(longest: LongestStatement, memory: Budget) -> Self {
        let searches = Shares::with_total(SEARCHES.0, SEARCHES.1);
        let large = Shares::with_total(1, 1);
        Self { known: Mutex::default(), longest, memory, searches, large }
    }

    /// Begins a search in a project when it is its turn.
    pub async fn begin(&self, project: &Arc<str>) -> Result<Search> {
        let place = timeout(PATIENCE, self.searches.take(project, 1)).await.map_err(|_| BUSY)?;
        Ok(Search {
            memory: Memory::of_project(&self.memory, project),
            bytes: AtomicUsize::default(),
            large: self.large.clone(),
            project: Arc::clone(project),
            _place: place,
        })
    }

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
                let taken = samples.longest.while_heard(samples.take(&db, corpus, &scope, None)).await;
                if let Err(error) = taken.flatten() {
                    tracing::warn!(%error, table = corpus.table, "no new sample could be taken");
                    samples.lock().remove(&(corpus.table, scope));
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

    fn lock(&self) -> MutexGuard<'_, HashMap<Sampled, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn known(&self, corpus: &Corpus, scope: &Scope) -> Option<Arc<Sample>> {
        let mut samples = self.lock();
        let known = samples.get_mut(&(corpus.table, scope.clone()))?;
        known.used = Instant::now();
        Some(Arc::clone(&known.sample))
    }

    /// Takes a sample and stores it.
    async fn take(
        &self,
        db: &PgPool,
        corpus: &'static Corpus,
        scope: &Scope,
        most: Option<i64>,
    ) -> sqlx::Result<Arc<Sample>> {
        let sample = Arc::new(Sample::take(db, corpus, scope, most).await?);
        self.store((corpus.table, scope.clone()), &sample);
        Ok(sample)
    }

    /// Stores a sample, unless its scope is empty: clients can name any number of these. As long as the samples are too many
    /// or too large, the one that was not used for longest is dropped, of a project that has more than its share if there
    /// is one.
    fn store(&self, place: Sampled, sample: &Arc<Sample>) {
        let mut samples = self.lock();
        if sample.documents == 0 {
            samples.remove(&place);
            return;
        }
        samples.insert(place, Known { sample: Arc::clone(sample), used: Instant::now() });
        while let Some(place) = superfluous(&samples) {
            samples.remove(&place);
        }
    }
}

/// Returns the sample that is dropped next, if these are too much.
fn superfluous(samples: &HashMap<Sampled, Known>) -> Option<Sampled> {
    let (mut all, mut of_project) = (Size::default(), HashMap::<&str, Size>::new());
    for ((_, scope), known) in samples {
        all.add(&known.sample);
        of_project.entry(&*scope.project).or_default().add(&known.sample);
    }
    if !all.exceeds(MOST) {
        return None;
    }
    let is_in_share = |scope: &Scope| !of_project[&*scope.project].exceeds(SHARE);
    let least = samples.iter().min_by_key(|((_, scope), known)| (is_in_share(scope), known.used));
    least.map(|(place, _)| place.clone())
}

#[cfg(test)]
mod tests {
    use super::super::sample::sample_of;
    use super::*;

    #[tokio::test]
    async fn a_large_ranking_does_not_wait_for_the_threads_of_its_project() {
        let samples = Samples::new(LongestStatement::default(), Budget::new(1 << 30));
        let project = Arc::from("p");
        let (ends, waits): (Vec<_>, Vec<_>) = (0..8).map(|_| std::sync::mpsc::channel::<()>()).unzip();
        let threads = waits.into_iter().map(|wait| {
            let project = Arc::clone(&project);
            tokio::spawn(async move { apart(&project, move || wait.recv()).await })
        });
        let threads: Vec<_> = threads.collect();
        tokio::task::yield_now().await;
        let search = samples.begin(&project).await.expect("a place");
        search.take(LARGE + 1).await.expect("memory");
        let ranked = timeout(Duration::from_mins(1), search.rank(|| 17)).await;
        assert_eq!(ranked.expect("a thread").expect("a place"), 17);
        drop(ends);
        for thread in threads {
            thread.await.expect("it ends").expect_err("nothing was sent");
        }
    }

    #[test]
    fn samples_of_a_project_that_has_many_go_before_those_of_others_and_one_of_nothing_is_not_kept() {
        let samples = Samples::new(LongestStatement::default(), Budget::new(0));
        let place = |project: &str, facet: usize| {
            ("table", Scope { project: project.into(), facet: Some(facet.to_string()) })
        };
        let store = |place: Sampled, documents: i64| {
            samples.store(place, &Arc::new(sample_of(&[], documents)));
        };
        let left = |project: &str| {
            let known = samples.lock();
            let of_project = known.keys().filter(|(_, scope)| &*scope.project == project);
            let mut left: Vec<_> = of_project.filter_map(|(_, scope)| scope.facet.clone()).collect();
            left.sort_by_key(|facet| facet.parse::<usize>().expect("a number"));
            left
        };
        store(place("modest", 0), 1);
        for facet in 0..100 {
            store(place("greedy", facet), 1);
            store(place("curious", facet), 0);
        }
        assert_eq!(
            (left("modest").len(), left("greedy").len(), left("curious").len()),
            (1, MOST.samples - 1, 0)
        );
        assert_eq!(left("greedy")[0], "69", "the oldest have gone");
        store(place("modest", 0), 0);
        assert_eq!(left("modest").len(), 0);
        // Whoever has no more than a share loses only what nobody has used for longest.
        for (project, facet) in
            ["a", "b", "c", "d"].into_iter().flat_map(|project| (0..8).map(move |n| (project, n)))
        {
            store(place(project, facet), 1);
        }
        assert_eq!(["a", "b", "c", "d"].map(|project| left(project).len()), [8; 4]);
        samples.lock().get_mut(&place("a", 0)).expect("it is known").used = Instant::now();
        store(place("e", 0), 1);
        assert_eq!(left("a"), ["0", "2", "3", "4", "5", "6", "7"]);
    }
    #[test]
    fn samples_have_a_number_of_bytes_at_most_and_the_last_one_is_always_kept() {
        let samples = Samples::new(LongestStatement::default(), Budget::new(0));
        let store = |project: &str, facet: usize, bytes: usize| {
            let mut sample = sample_of(&[], 1);
            sample.bytes = bytes;
            let scope = Scope { project: project.into(), facet: Some(facet.to_string()) };
            samples.store(("table", scope), &Arc::new(sample));
        };
        let left = || {
            let known = samples.lock();
            let mut left: Vec<_> = known
                .keys()
                .map(|(_, scope)| format!("{}{}", scope.project, scope.facet.clone().unwrap_or_default()))
                .collect();
            left.sort();
            left.join(" ")
        };
        store("modest", 0, 15 << 20);
        for facet in 0..8 {
            store("greedy", facet, 15 << 20);
        }
        assert_eq!(left(), "greedy5 greedy6 greedy7 modest0");
        store("large", 0, 40 << 20);
        assert_eq!(left(), "greedy7 large0", "whoever has one sample is in its share");
        store("other", 0, 15 << 20);
        assert_eq!(left(), "large0 other0");
        store("huge", 0, 100 << 20);
        assert_eq!(left(), "huge0");
    }
}
