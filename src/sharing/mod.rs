//! What all projects share: a limit on concurrent work of one kind ([`Shares`]), the processors ([`Work`]), threads for
//! work that takes long ([`apart`]), or else pauses in it ([`Pauses`]), and answers to questions about the server
//! ([`SingleFlight`]). Requests hold what they have of it even if their clients hang up ([`in_full`]).

mod entry;
mod hang_ups;
mod single_flight;
mod threads;
mod work;

use std::collections::HashMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

pub use entry::Entry;
pub use hang_ups::{in_full, to_its_end, while_wanted};
pub use single_flight::SingleFlight;
pub use threads::{Pauses, apart, apart_with, in_place, in_turn, joined};
pub use work::{Kind, Limits, Served, Turn, Work};

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

/// The places of all projects together.
#[derive(Debug)]
struct All {
    total: usize,
    /// How many times as many places as are left for others a project may take.
    times: usize,
    taken: Mutex<Taken>,
    /// Notifies those who wait for places of any project.
    freed: Notify,
}

/// How many places are taken, in all and by each project that has some.
#[derive(Debug, Default)]
struct Taken {
    all: usize,
    by_project: HashMap<Arc<str>, usize>,
}

impl All {
    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes places for a project, unless it would then have more than are left for others.
    fn try_take(&self, project: &Arc<str>, count: usize) -> bool {
        let mut taken = self.taken();
        let own = taken.by_project.get(project).copied().unwrap_or_default() + count;
        let Some(left) = self.total.checked_sub(taken.all + count) else { return false };
        if own > self.times * left.max(1) {
            return false;
        }
        taken.all += count;
        taken.by_project.insert(Arc::clone(project), own);
        true
    }

    fn give_back(&self, project: &Arc<str>, count: usize) {
        let mut taken = self.taken();
        taken.all -= count;
        if let Some(own) = taken.by_project.get_mut(project) {
            *own -= count;
            if *own == 0 {
                taken.by_project.remove(project);
            }
        }
        drop(taken);
        self.freed.notify_waiters();
    }
}

/// A limit on concurrent work: each project has a number of places, and all projects together have more, usually four
/// times as many. A project takes no more than it leaves free, or twice that of what a single piece of work may need much of, or
/// one, so that a few projects that take what they can still leave something to all others.
#[derive(Debug, Clone)]
pub struct Shares {
    all: Arc<All>,
    own: Arc<Places>,
}

/// Places that were taken. Dropping this value gives them back.
#[derive(Debug)]
pub struct Place {
    project: Arc<str>,
    /// The places of the project, of which there may be more than of all projects.
    permit: OwnedSemaphorePermit,
    count: usize,
    all: Arc<All>,
}

impl Place {
    /// Returns how many places these are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count
    }

    /// Adds the places of `other`, unless they are of another project. Then they are returned.
    pub fn add(&mut self, mut other: Self) -> Option<Self> {
        if !Arc::ptr_eq(self.permit.semaphore(), other.permit.semaphore()) {
            return Some(other);
        }
        let own = other.permit.num_permits();
        self.permit.merge(other.permit.split(own).expect("it has as many"));
        self.count += std::mem::take(&mut other.count);
        None
    }

    /// Gives back as many of these places as there are, at most so many, and returns how many these were.
    pub fn give_back(&mut self, most: usize) -> usize {
        let count = most.min(self.count);
        drop(self.permit.split(count).expect("it has as many"));
        self.count -= count;
        self.all.give_back(&self.project, count);
        count
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.all.give_back(&self.project, self.count());
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
        Self::leaving(of_one, total, 1)
    }

    /// Makes a limit with so many places for a project, and twice as many in total, of which a single piece of work may need very
    /// many: a project may take twice as many as it leaves free. If another one has all that it may have, two thirds of that are
    /// left.
    #[must_use]
    pub fn of_much(of_one: usize) -> Self {
        Self::leaving(of_one, 2 * of_one, 2)
    }

    fn leaving(of_one: usize, total: usize, times: usize) -> Self {
        let all = All { total, times, taken: Mutex::default(), freed: Notify::default() };
        Self { all: Arc::new(all), own: Arc::new(Places::new(of_one)) }
    }

    /// Waits until no place is taken.
    pub async fn idle(&self) {
        loop {
            let mut freed = pin!(self.all.freed.notified());
            freed.as_mut().enable();
            if self.taken() == 0 {
                return;
            }
            freed.await;
        }
    }

    /// Returns the number of places of a project.
    #[must_use]
    pub fn of_one(&self) -> usize {
        self.own.of_one
    }

    /// Returns the number of places for all projects together.
    #[must_use]
    pub fn total(&self) -> usize {
        self.all.total
    }

    /// Returns the number of places that are taken.
    #[must_use]
    pub fn taken(&self) -> usize {
        self.all.taken().all
    }

    /// Takes a number of places for a project, and waits until they are free: first those of the project, then those
    /// of all projects.
    pub async fn take(&self, project: &Arc<str>, count: u32) -> Place {
        let permit = while_wanted(self.own.of(project).acquire_many_owned(count)).await.expect(OPEN);
        loop {
            let mut freed = pin!(self.all.freed.notified());
            freed.as_mut().enable();
            let count = permit.num_permits();
            if self.all.try_take(project, count) {
                return self.place(project, permit, count);
            }
            while_wanted(freed).await;
        }
    }

    /// Takes as many of a number of places as the project may have, and waits until that is at least one. The others are taken only
    /// from the project, which has no more at the same time than if it had all of them.
    pub async fn take_some(&self, project: &Arc<str>, most: u32) -> Place {
        let permit = while_wanted(self.own.of(project).acquire_many_owned(most)).await.expect(OPEN);
        loop {
            let mut freed = pin!(self.all.freed.notified());
            freed.as_mut().enable();
            if let Some(count) =
                (1..=permit.num_permits()).rev().find(|count| self.all.try_take(project, *count))
            {
                return self.place(project, permit, count);
            }
            while_wanted(freed).await;
        }
    }

    /// Takes a number of places for a project if they are free.
    #[must_use]
    pub fn try_take(&self, project: &Arc<str>, count: u32) -> Option<Place> {
        let permit = self.own.of(project).try_acquire_many_owned(count).ok()?;
        let count = permit.num_permits();
        self.all.try_take(project, count).then(|| self.place(project, permit, count))
    }

    fn place(&self, project: &Arc<str>, permit: OwnedSemaphorePermit, count: usize) -> Place {
        Place { project: Arc::clone(project), permit, count, all: Arc::clone(&self.all) }
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

    #[test]
    fn two_thirds_of_what_one_project_may_have_are_left_for_another_piece_of_work() {
        let shares = Shares::of_much(96);
        let held = shares.try_take(&"greedy".into(), 96).expect("half of all");
        assert!(shares.try_take(&"modest".into(), 65).is_none());
        let _held = (held, shares.try_take(&"modest".into(), 64).expect("there are 96"));
        assert!(shares.try_take(&"third".into(), 21).is_some());
    }

    #[tokio::test]
    async fn who_takes_some_places_gets_as_many_as_others_leave() {
        let shares = Shares::with_total(8, 32);
        let mut held = Vec::new();
        for (project, count) in [("a", 8), ("b", 8), ("c", 8), ("d", 4), ("e", 2), ("f", 1), ("g", 1)] {
            let place = shares.take_some(&project.into(), 8).await;
            assert_eq!(place.count(), count, "{project}");
            held.push(place);
        }
        let own = shares.own.of(&"e".into());
        assert_eq!(own.available_permits(), 0, "a project that has some has no more than if it had all");
        let waits = tokio::spawn({
            let shares = shares.clone();
            async move { shares.take_some(&"h".into(), 8).await.count() }
        });
        tokio::task::yield_now().await;
        drop(held.swap_remove(3));
        assert_eq!(waits.await.expect("has some"), 2);
        drop(held);
        assert_eq!(shares.take_some(&"h".into(), 8).await.count(), 8, "the others were given back");
    }

    #[tokio::test]
    async fn projects_that_take_all_they_can_leave_something_to_others() {
        let shares = Shares::with_total(8, 16);
        let take_all = |project: &str| {
            let project = project.into();
            std::iter::from_fn(|| shares.try_take(&project, 1)).collect::<Vec<_>>()
        };
        let mut taken: Vec<_> = ["a", "b", "c", "d", "e"].map(take_all).into();
        let counts: Vec<_> = taken.iter().map(Vec::len).collect();
        assert_eq!(counts, [8, 4, 2, 1, 1]);
        assert!(take_all("f").is_empty());
        let waits = tokio::spawn({
            let shares = shares.clone();
            async move { shares.take(&"f".into(), 1).await }
        });
        tokio::task::yield_now().await;
        taken[0].pop();
        waits.await.expect("has the place that another one has given back");
    }
}
