//! The samples of the scopes that are searched.
//!
//! A sample may be out of date, because a plan only needs the magnitude of a frequency. Estimates are wrong by
//! magnitudes only if the scope has grown by a factor, which does not depend on age alone: thousands of documents may
//! arrive per second, and under load, sampling takes long. A sample is therefore renewed in two ways: in the
//! background when it is old, and at once if a search has found more than its plan expected and the scope has indeed
//! grown (`Samples::renew`).

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use sqlx::PgPool;

use super::sample::{Sample, count};
use super::{Corpus, Scope};

/// The number of rows, in the order of the corpus, that are counted and sampled while a search waits. A larger scope
/// is read completely in the background.
const COUNTED_AT_ONCE: i64 = 50_000;
/// The maximum number of samples in memory, of usually one or two megabytes each, and of fifteen at most.
const SAMPLES: usize = 32;
/// The number of samples that a project keeps while others need room for theirs.
const SAMPLES_OF_ONE: usize = 8;

/// The documents that a sample represents.
type Place = (&'static str, Scope);

/// The samples in memory.
#[derive(Debug, Default)]
pub struct Samples(Mutex<HashMap<Place, Known>>);

/// A sample in memory.
#[derive(Debug)]
struct Known {
    sample: Arc<Sample>,
    /// When it was last used.
    used: Instant,
}

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

    fn lock(&self) -> MutexGuard<'_, HashMap<Place, Known>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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

    /// Stores a sample, unless its scope is empty: clients can name any number of these. If there are too many samples, the
    /// one that was not used for longest is dropped, of a project that has more than its share if there is one.
    fn store(&self, place: Place, sample: &Arc<Sample>) {
        let mut samples = self.lock();
        if sample.documents == 0 {
            samples.remove(&place);
            return;
        }
        samples.insert(place, Known { sample: Arc::clone(sample), used: Instant::now() });
        if samples.len() > SAMPLES {
            let mut of_project: HashMap<&str, usize> = HashMap::new();
            for (_, scope) in samples.keys() {
                *of_project.entry(&*scope.project).or_default() += 1;
            }
            let is_in_share = |scope: &Scope| of_project[&*scope.project] <= SAMPLES_OF_ONE;
            let least = samples.iter().min_by_key(|((_, scope), known)| (is_in_share(scope), known.used));
            if let Some(place) = least.map(|(place, _)| place.clone()) {
                samples.remove(&place);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample::sample_of;
    use super::*;

    #[test]
    fn samples_of_a_project_that_has_many_go_before_those_of_others_and_one_of_nothing_is_not_kept() {
        let samples = Samples::default();
        let place = |project: &str, facet: usize| {
            ("table", Scope { project: project.into(), facet: Some(facet.to_string()) })
        };
        let store = |place: Place, documents: i64| {
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
        assert_eq!((left("modest").len(), left("greedy").len(), left("curious").len()), (1, SAMPLES - 1, 0));
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
}
