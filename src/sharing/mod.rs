//! What all projects share: a limit on concurrent work of one kind ([`Shares`]), and the processors ([`Work`]).

mod work;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

pub use work::{Kind, Limits, Turn, Work};

/// The number of projects that can take all of their places at the same time.
const CROWDED_PROJECTS: usize = 4;
/// The number of known projects above which those without a taken place are forgotten.
const MANY_PROJECTS: usize = 1_000;
/// Semaphores are never closed.
const OPEN: &str = "it is never closed";

/// The places of each project.
#[derive(Debug)]
struct Places {
    /// The number of places of a project.
    of_one: usize,
    own: Mutex<HashMap<Arc<str>, Arc<Semaphore>>>,
}

impl Places {
    fn new(of_one: usize) -> Self {
        Self { of_one, own: Mutex::default() }
    }

    /// Returns the places of a project.
    fn of(&self, project: &Arc<str>) -> Arc<Semaphore> {
        let mut own = self.own.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(places) = own.get(project) {
            return Arc::clone(places);
        }
        if own.len() >= MANY_PROJECTS {
            // Everyone who has a place or waits for one holds the semaphore.
            own.retain(|_, places| Arc::strong_count(places) > 1);
        }
        Arc::clone(own.entry(Arc::clone(project)).or_insert_with(|| Arc::new(Semaphore::new(self.of_one))))
    }
}

/// A limit on concurrent work: each project has a number of places, and all projects together have more, usually four
/// times as many. A project that uses all of its places leaves places for the others.
#[derive(Debug, Clone)]
pub struct Shares {
    all: Arc<Semaphore>,
    own: Arc<Places>,
    total: usize,
}

/// Places that were taken. Dropping this value gives them back.
#[derive(Debug)]
pub struct Place {
    own: OwnedSemaphorePermit,
    _all: OwnedSemaphorePermit,
}

impl Place {
    /// Returns how many places these are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.own.num_permits()
    }
}

impl Shares {
    /// Makes a limit with so many places for each project, and four times as many in total.
    #[must_use]
    pub fn new(of_one: usize) -> Self {
        Self::with_total(of_one, of_one * CROWDED_PROJECTS)
    }

    /// Makes a limit with so many places for each project and in total.
    #[must_use]
    pub fn with_total(of_one: usize, total: usize) -> Self {
        Self { all: Arc::new(Semaphore::new(total)), own: Arc::new(Places::new(of_one)), total }
    }

    /// Returns the number of places of a project.
    #[must_use]
    pub fn of_one(&self) -> usize {
        self.own.of_one
    }

    /// Returns the number of places for all projects together.
    #[must_use]
    pub fn total(&self) -> usize {
        self.total
    }

    /// Returns the number of places that are taken.
    #[must_use]
    pub fn taken(&self) -> usize {
        self.total() - self.all.available_permits()
    }

    /// Takes a number of places for a project, and waits until they are free: first those of the project, then those
    /// of all projects.
    pub async fn take(&self, project: &Arc<str>, count: u32) -> Place {
        let own = self.own.of(project).acquire_many_owned(count).await.expect(OPEN);
        let all = Arc::clone(&self.all).acquire_many_owned(count).await.expect(OPEN);
        Place { own, _all: all }
    }

    /// Takes a number of places for a project if they are free.
    #[must_use]
    pub fn try_take(&self, project: &Arc<str>, count: u32) -> Option<Place> {
        let own = self.own.of(project).try_acquire_many_owned(count).ok()?;
        let all = Arc::clone(&self.all).try_acquire_many_owned(count).ok()?;
        Some(Place { own, _all: all })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_project_takes_its_own_places_and_others_find_theirs() {
        let shares = Shares::new(2);
        let [greedy, modest]: [Arc<str>; 2] = ["greedy".into(), "modest".into()];
        let held: Vec<_> = (0..5).map_while(|_| shares.try_take(&greedy, 1)).collect();
        assert_eq!(held.len(), 2);
        assert!(shares.try_take(&modest, 2).is_some());
        let waits = tokio::spawn({
            let (shares, greedy) = (shares.clone(), Arc::clone(&greedy));
            async move { shares.take(&greedy, 1).await }
        });
        assert!(shares.try_take(&modest, 2).is_some(), "who waits takes no place of others");
        drop(held);
        waits.await.expect("has its place");
        assert_eq!((shares.taken(), shares.total()), (0, 8));
    }
}
