//! Limits on concurrent work that all projects share. A project that uses all of its places leaves places for the
//! others, and it has fewer places while others send requests: a place is of no use to them if there is no processor
//! for them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The number of projects that can take all of their places at the same time.
const CROWDED_PROJECTS: usize = 4;
/// The number of known projects above which those without a taken place are forgotten.
const MANY_PROJECTS: usize = 1_000;

/// Returns the number of processors of this machine that the program can use, which the database often shares.
#[must_use]
pub fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// How long a project counts as one that sends requests.
const LATELY: Duration = Duration::from_secs(1);

/// The projects that send requests, of which it is only known whether there are several.
#[derive(Debug, Default)]
pub struct Crowd(Mutex<Seen>);

#[derive(Debug, Default)]
struct Seen {
    /// The project that has sent the last request, and when.
    last: Option<(Arc<str>, Instant)>,
    /// When another project than that sent a request.
    other: Option<Instant>,
}

impl Crowd {
    /// Notes a request of a project.
    pub fn note(&self, project: &Arc<str>) {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        match &mut seen.last {
            Some((last, at)) if last == project => *at = now,
            _ => {
                let before = seen.last.replace((Arc::clone(project), now));
                seen.other = before.map(|(_, at)| at);
            }
        }
    }

    /// Returns whether several projects have sent requests lately.
    #[must_use]
    pub fn is_there(&self) -> bool {
        let seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        seen.other.is_some_and(|at| at.elapsed() < LATELY)
    }
}

/// A limit on concurrent work: each project has a number of places, and all projects together have four times as
/// many.
#[derive(Debug, Clone)]
pub struct Shares {
    of_one: usize,
    /// The number of places of a project while other projects send requests.
    of_one_in_crowd: usize,
    crowd: Arc<Crowd>,
    all: Arc<Semaphore>,
    own: Arc<Mutex<HashMap<Arc<str>, Own>>>,
}

/// The places of a project.
#[derive(Debug, Clone)]
struct Own {
    places: Arc<Semaphore>,
    /// The places that are also needed in a crowd.
    in_crowd: Arc<Semaphore>,
}

/// Places that were taken. Dropping this value gives them back.
#[derive(Debug)]
pub struct Place {
    _own: OwnedSemaphorePermit,
    _in_crowd: Option<OwnedSemaphorePermit>,
    _all: OwnedSemaphorePermit,
}

impl Shares {
    /// Makes a limit with so many places for each project.
    #[must_use]
    pub fn new(of_one: usize) -> Self {
        Self {
            of_one,
            of_one_in_crowd: of_one,
            crowd: Arc::default(),
            all: Arc::new(Semaphore::new(of_one * CROWDED_PROJECTS)),
            own: Arc::default(),
        }
    }

    /// Gives each project only so many places, and at least one, while others send requests.
    #[must_use]
    pub fn in_crowd(self, of_one: usize, crowd: &Arc<Crowd>) -> Self {
        Self { of_one_in_crowd: of_one.clamp(1, self.of_one), crowd: Arc::clone(crowd), ..self }
    }

    /// Returns the number of places for all projects together.
    #[must_use]
    pub fn total(&self) -> usize {
        self.of_one * CROWDED_PROJECTS
    }

    /// Returns the number of places that are taken.
    #[must_use]
    pub fn taken(&self) -> usize {
        self.total() - self.all.available_permits()
    }

    /// Takes a number of places for a project, and waits until they are free: first those of the project, then those
    /// of all projects.
    pub async fn take(&self, project: &Arc<str>, count: u32) -> Place {
        const OPEN: &str = "it is never closed";
        let Own { places, in_crowd } = self.of(project);
        let own = places.acquire_many_owned(count).await.expect(OPEN);
        let in_crowd = if self.crowd.is_there() {
            Some(in_crowd.acquire_many_owned(self.in_crowd_of(count)).await.expect(OPEN))
        } else {
            None
        };
        let all = Arc::clone(&self.all).acquire_many_owned(count).await.expect(OPEN);
        Place { _own: own, _in_crowd: in_crowd, _all: all }
    }

    /// Takes a number of places for a project if they are free.
    #[must_use]
    pub fn try_take(&self, project: &Arc<str>, count: u32) -> Option<Place> {
        let Own { places, in_crowd } = self.of(project);
        let own = places.try_acquire_many_owned(count).ok()?;
        let in_crowd = if self.crowd.is_there() {
            Some(in_crowd.try_acquire_many_owned(self.in_crowd_of(count)).ok()?)
        } else {
            None
        };
        let all = Arc::clone(&self.all).try_acquire_many_owned(count).ok()?;
        Some(Place { _own: own, _in_crowd: in_crowd, _all: all })
    }

    /// Returns how many of the places in a crowd so many places need.
    fn in_crowd_of(&self, count: u32) -> u32 {
        count.min(u32::try_from(self.of_one_in_crowd).unwrap_or(u32::MAX))
    }

    fn of(&self, project: &Arc<str>) -> Own {
        let mut own = self.own.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = own.get(project) {
            return own.clone();
        }
        if own.len() >= MANY_PROJECTS {
            // Everyone who has a place or waits for one holds a clone of the semaphore.
            own.retain(|_, own| Arc::strong_count(&own.places) > 1);
        }
        let semaphore = |places| Arc::new(Semaphore::new(places));
        let new = || Own { places: semaphore(self.of_one), in_crowd: semaphore(self.of_one_in_crowd) };
        own.entry(Arc::clone(project)).or_insert_with(new).clone()
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

    #[tokio::test]
    async fn a_project_has_fewer_places_while_others_send_requests() {
        let crowd = Arc::new(Crowd::default());
        let shares = Shares::new(3).in_crowd(1, &crowd);
        let [greedy, modest]: [Arc<str>; 2] = ["greedy".into(), "modest".into()];
        let takes =
            |project: &Arc<str>| -> Vec<_> { (0..5).map_while(|_| shares.try_take(project, 1)).collect() };
        for _ in 0..3 {
            crowd.note(&greedy);
        }
        assert!(!crowd.is_there());
        let held = takes(&greedy);
        assert_eq!(held.len(), 3);
        drop(held);
        crowd.note(&modest);
        crowd.note(&greedy);
        assert!(crowd.is_there());
        let held = [takes(&greedy), takes(&modest)];
        assert_eq!(held.map(|held| held.len()), [1, 1]);
        assert_eq!(shares.taken(), 0);
    }
}
