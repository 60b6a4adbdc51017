//! Turns at working. While several projects send requests, each project works on at most half of the processors, and
//! what else it has to do waits in its own queue, whatever it is: reading, sending an export, parsing a batch or
//! a large body, or committing events. Otherwise each of them would leave the others a connection and a writer, which are of no use
//! without a processor. The kinds of work alternate, so that the events of a project do not wait for all of its
//! searches. A project alone never waits.
//!
//! A project that works much also waits a moment, each time before it works on, while one that works little is served.
//! Two projects that both work much do not wait for each other, and nobody waits for much more than a fifth of their time.
//!
//! A turn is for work, and not for waiting: it ends before a request waits for the writer, and before an export waits
//! for its reader. Work that takes long continues after its turn, so that nothing that is slow, or that waits for
//! somebody else, stops the rest of its project.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, OwnedSemaphorePermit};
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout_at};

use super::{MANY_PROJECTS, OPEN, Places, while_wanted};

/// How long a project waits at most for one that works less, each time before it works on.
const WAY: Duration = Duration::from_millis(5);
/// How many times as much work of a project is much more.
const MUCH_MORE: f64 = 4.0;
/// How much work a request is at least, in seconds, whether it takes a turn or not.
const REQUEST: f64 = 100e-6;
/// How much a project waits at most for those that work less, for each second that it works. Somebody who always has a request
/// served that takes no turn would otherwise keep it waiting all the time.
const WAITS: f64 = 0.25;

/// Limits on the turns of a project beside others.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// How many of its turns may be taken at the same time, at least one.
    pub at_a_time: usize,
    /// The maximum duration of a turn.
    pub longest: Duration,
    /// How long a project counts as one that sends requests.
    pub lately: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Self { at_a_time: processors / 2, longest: Duration::from_millis(50), lately: Duration::from_secs(1) }
    }
}

/// The turns of all projects at working.
#[derive(Debug)]
pub struct Work {
    seen: Arc<Seen>,
    /// The turns of each project that can be taken at the same time.
    turns: Places,
    /// As many for each kind of work. Only those who have one of these wait for a turn, so that the kinds alternate.
    kinds: [Places; Kind::COUNT],
}

/// What the projects do.
#[derive(Debug)]
struct Seen {
    limits: Limits,
    projects: Mutex<Projects>,
    /// Notifies those who give way that a request was served.
    served: Notify,
}

/// Which projects send requests, and how much each of them works while there are several.
#[derive(Debug, Default)]
struct Projects {
    /// The project that has sent the last request, and when.
    last: Option<(Arc<str>, Instant)>,
    /// When another project than that sent a request.
    other: Option<Instant>,
    works: HashMap<Arc<str>, Works>,
}

/// How much a project works.
#[derive(Debug)]
struct Works {
    /// The number of its requests that are being served.
    served: usize,
    /// When the last of them began.
    begun: Instant,
    /// The sums of its turns and requests, and of what it has waited for others, in seconds, of which the earlier ones count less
    /// and less, up to a time.
    sum: f64,
    waited: f64,
    until: Instant,
}

impl Works {
    /// Returns the share of the sums that counts now.
    fn left(&self, now: Instant, lately: Duration) -> f64 {
        (-now.duration_since(self.until).div_duration_f64(lately)).exp()
    }

    /// Returns the sum of its turns and requests up to now.
    fn sum(&self, now: Instant, lately: Duration) -> f64 {
        self.sum * self.left(now, lately)
    }

    /// Adds what it has worked and waited.
    fn add(&mut self, now: Instant, lately: Duration, (worked, waited): (f64, f64)) {
        let left = self.left(now, lately);
        self.sum = self.sum * left + worked;
        self.waited = self.waited * left + waited;
        self.until = now;
    }
}

impl Projects {
    fn note(&mut self, project: &Arc<str>) {
        let now = Instant::now();
        match &mut self.last {
            Some((last, at)) if last == project => *at = now,
            _ => {
                let before = self.last.replace((Arc::clone(project), now));
                self.other = before.map(|(_, at)| at);
            }
        }
    }

    /// Returns how much a project works. If there are many, those that have done nothing lately are forgotten.
    fn works(&mut self, project: &Arc<str>, now: Instant, lately: Duration) -> &mut Works {
        if self.works.len() >= MANY_PROJECTS && !self.works.contains_key(project) {
            self.works.retain(|_, works| works.served > 0 || now.duration_since(works.until) < lately);
        }
        let new = || Works { served: 0, begun: now, sum: 0.0, waited: 0.0, until: now };
        self.works.entry(Arc::clone(project)).or_insert_with(new)
    }
}

impl Seen {
    fn projects(&self) -> MutexGuard<'_, Projects> {
        self.projects.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a turn to what a project has worked.
    fn add(&self, project: &Arc<str>, begun: Instant) {
        let took = begun.elapsed().min(self.limits.longest);
        self.add_times(project, (took.as_secs_f64(), 0.0));
    }

    /// Adds times to what a project has worked and waited.
    fn add_times(&self, project: &Arc<str>, times: (f64, f64)) {
        let (now, lately) = (Instant::now(), self.limits.lately);
        self.projects().works(project, now, lately).add(now, lately, times);
    }

    /// Returns until when a project waits for others that work much less, if one of them is being served.
    fn gives_way(&self, project: &Arc<str>) -> Option<Instant> {
        let (now, lately) = (Instant::now(), self.limits.lately);
        let projects = self.projects();
        let own = projects.works.get(project)?;
        // Both count as much less as each other by now.
        if own.waited > WAITS * own.sum {
            return None;
        }
        let own = own.sum(now, lately);
        let is_less = |works: &Works| works.served > 0 && MUCH_MORE * works.sum(now, lately) < own;
        let less = projects.works.values().filter(|works| is_less(works));
        less.map(|works| works.begun + WAY).max().filter(|until| *until > now)
    }
}

/// A kind of work.
#[derive(Debug, Clone, Copy)]
pub enum Kind {
    /// Answering a request to read.
    Read,
    /// Sending rows of an export.
    Export,
    /// Parsing many events that were sent together, or a large one.
    Parse,
    /// Committing events.
    Commit,
}

impl Kind {
    const COUNT: usize = Self::Commit as usize + 1;
}

/// A project's turn at working. Dropping this value ends it.
#[derive(Debug)]
pub struct Turn(Option<Held>);

#[derive(Debug)]
struct Held {
    permits: Arc<Mutex<Option<[OwnedSemaphorePermit; 2]>>>,
    /// The task that ends the turn if it takes too long.
    timer: AbortHandle,
    project: Arc<str>,
    begun: Instant,
    seen: Arc<Seen>,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.timer.abort();
        self.permits.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.seen.add(&self.project, self.begun);
    }
}

/// A request that is being served. Dropping this value ends it.
#[derive(Debug)]
pub struct Served {
    project: Arc<str>,
    seen: Arc<Seen>,
}

impl Drop for Served {
    fn drop(&mut self) {
        if let Some(works) = self.seen.projects().works.get_mut(&self.project) {
            works.served -= 1;
        }
        self.seen.served.notify_waiters();
    }
}

impl Turn {
    /// Returns whether the turn has ended because it took too long.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.0
            .as_ref()
            .is_some_and(|held| held.permits.lock().unwrap_or_else(PoisonError::into_inner).is_none())
    }
}

impl Default for Work {
    fn default() -> Self {
        Self::new(Limits::default())
    }
}

impl Work {
    /// Limits the turns of each project.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        let places = || Places::new(limits.at_a_time.max(1));
        let kinds = std::array::from_fn(|_| places());
        let seen = Seen { limits, projects: Mutex::default(), served: Notify::default() };
        Self { seen: Arc::new(seen), turns: places(), kinds }
    }

    /// Notes that a project works.
    pub fn note(&self, project: &Arc<str>) {
        self.seen.projects().note(project);
    }

    /// Notes that a project sends a request, which is being served as long as the returned value lives.
    #[must_use]
    pub fn serve(&self, project: &Arc<str>) -> Served {
        let now = Instant::now();
        let mut projects = self.seen.projects();
        projects.note(project);
        let works = projects.works(project, now, self.seen.limits.lately);
        works.served += 1;
        works.begun = now;
        works.add(now, self.seen.limits.lately, (REQUEST, 0.0));
        drop(projects);
        Served { project: Arc::clone(project), seen: Arc::clone(&self.seen) }
    }

    /// Returns whether several projects have sent requests lately.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        let other = self.seen.projects().other;
        other.is_some_and(|at| at.elapsed() < self.seen.limits.lately)
    }

    /// Waits for a turn of a project, after those who have waited longer for work of this kind. There is nothing to
    /// wait for unless several projects send requests.
    pub async fn turn(&self, project: &Arc<str>, kind: Kind) -> Turn {
        if !self.is_shared() {
            return Turn(None);
        }
        let of_kind = while_wanted(self.kinds[kind as usize].of(project).acquire_owned()).await.expect(OPEN);
        let turn = while_wanted(self.turns.of(project).acquire_owned()).await.expect(OPEN);
        while_wanted(self.give_way(project)).await;
        let permits = Arc::new(Mutex::new(Some([turn, of_kind])));
        let (ended, longest) = (Arc::clone(&permits), self.seen.limits.longest);
        let timer = tokio::spawn(async move {
            tokio::time::sleep(longest).await;
            ended.lock().unwrap_or_else(PoisonError::into_inner).take();
        });
        let (project, begun, seen) = (Arc::clone(project), Instant::now(), Arc::clone(&self.seen));
        Turn(Some(Held { permits, timer: timer.abort_handle(), project, begun, seen }))
    }

    /// Waits while projects are served that work much less than this one, but not for long.
    pub async fn give_way(&self, project: &Arc<str>) {
        let begun = Instant::now();
        let mut waits = false;
        loop {
            let mut served = pin!(self.seen.served.notified());
            served.as_mut().enable();
            let Some(until) = self.seen.gives_way(project) else { break };
            waits = true;
            if timeout_at(until.min(begun + WAY), served).await.is_err() {
                break;
            }
        }
        if waits {
            self.seen.add_times(project, (0.0, begun.elapsed().as_secs_f64()));
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    /// The turns of projects, each of which has one at a time.
    fn work() -> Work {
        Work::new(Limits { at_a_time: 1, lately: Duration::from_hours(1), ..Limits::default() })
    }

    /// Two projects that have sent requests.
    fn two(work: &Work) -> [Arc<str>; 2] {
        let projects: [Arc<str>; 2] = ["greedy".into(), "modest".into()];
        for project in &projects {
            work.note(project);
        }
        projects
    }

    fn now(work: &Work, project: &Arc<str>, kind: Kind) -> Option<Turn> {
        work.turn(project, kind).now_or_never()
    }

    #[tokio::test]
    async fn a_project_works_in_turn_while_others_send_requests() {
        let work = work();
        let greedy: Arc<str> = "greedy".into();
        work.note(&greedy);
        assert!(!work.is_shared());
        let alone: Vec<_> = (0..5).filter_map(|_| now(&work, &greedy, Kind::Read)).collect();
        assert_eq!(alone.len(), 5);
        let [greedy, modest] = two(&work);
        let held = now(&work, &greedy, Kind::Read).expect("its turn");
        for kind in [Kind::Read, Kind::Export, Kind::Parse, Kind::Commit] {
            assert!(now(&work, &greedy, kind).is_none(), "{kind:?} waits");
        }
        assert!(now(&work, &modest, Kind::Read).is_some());
        drop(held);
        assert!(now(&work, &greedy, Kind::Commit).is_some());
    }

    #[tokio::test]
    async fn the_kinds_of_a_projects_work_alternate() {
        let work = work();
        let [greedy, _] = two(&work);
        let held = now(&work, &greedy, Kind::Read).expect("its turn");
        let mut reads: Vec<_> = (0..9).map(|_| Box::pin(work.turn(&greedy, Kind::Read))).collect();
        assert!(reads.iter_mut().all(|read| read.now_or_never().is_none()));
        let mut commit = Box::pin(work.turn(&greedy, Kind::Commit));
        assert!((&mut commit).now_or_never().is_none());
        drop(held);
        assert!(reads.iter_mut().all(|read| read.now_or_never().is_none()));
        assert!((&mut commit).now_or_never().is_some(), "it waits for none of those that have not begun");
    }

    #[tokio::test(start_paused = true)]
    async fn what_takes_long_holds_up_nothing_else() {
        let work = work();
        let [greedy, _] = two(&work);
        let slow = work.turn(&greedy, Kind::Read).await;
        let begun = tokio::time::Instant::now();
        let next = work.turn(&greedy, Kind::Read).await;
        assert_eq!(
            (begun.elapsed(), slow.is_over(), next.is_over()),
            (work.seen.limits.longest, true, false)
        );
        drop(slow);
        assert!(now(&work, &greedy, Kind::Read).is_none(), "a turn that is over is not given back again");
    }

    #[tokio::test(start_paused = true)]
    async fn a_project_that_works_much_gives_way_to_one_that_works_little_but_not_for_long() {
        let work = work();
        let [greedy, modest] = two(&work);
        let works = async |project| {
            let turn = work.turn(project, Kind::Read).await;
            tokio::time::advance(Duration::from_millis(10)).await;
            drop(turn);
        };
        for _ in 0..5 {
            works(&greedy).await;
        }
        works(&modest).await;
        let served = work.serve(&modest);
        let mut turn = Box::pin(work.turn(&greedy, Kind::Read));
        assert!((&mut turn).now_or_never().is_none());
        drop(served);
        drop((&mut turn).now_or_never().expect("the modest one has its answer"));
        let _served = [work.serve(&modest), work.serve(&greedy)];
        drop(now(&work, &modest, Kind::Read).expect("it works less"));
        let begun = Instant::now();
        work.turn(&greedy, Kind::Read).await;
        assert_eq!(begun.elapsed(), WAY);
        works(&modest).await;
        let _served = work.serve(&modest);
        assert!(now(&work, &greedy, Kind::Read).is_some(), "they work alike");
    }

    #[tokio::test(start_paused = true)]
    async fn somebody_who_is_always_served_keeps_others_waiting_for_a_fifth_of_their_time_at_most() {
        let work = work();
        let [greedy, modest] = two(&work);
        let mut waited = Duration::ZERO;
        for _ in 0..100 {
            let _served = work.serve(&modest);
            let begun = Instant::now();
            let turn = work.turn(&greedy, Kind::Read).await;
            waited += begun.elapsed();
            tokio::time::advance(Duration::from_millis(1)).await;
            drop(turn);
        }
        assert!((20..=30).contains(&waited.as_millis()), "{waited:?}");
    }
}
