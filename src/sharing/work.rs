//! Turns at working. While several projects send requests, each project works on at most half of the processors, and
//! what else it has to do waits in its own queue, whatever it is: reading, sending an export, parsing a batch, or
//! committing events. Otherwise each of them would leave the others a connection and a writer, which are of no use
//! without a processor. The kinds of work alternate, so that the events of a project do not wait for all of its
//! searches. A project alone never waits.
//!
//! A turn is for work, and not for waiting: it ends before a request waits for the writer, and before an export waits
//! for its reader. Work that takes long continues after its turn, so that nothing that is slow, or that waits for
//! somebody else, stops the rest of its project.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::OwnedSemaphorePermit;
use tokio::task::AbortHandle;

use super::{OPEN, Places, while_wanted};

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
    longest: Duration,
    lately: Duration,
    seen: Mutex<Seen>,
    /// The turns of each project that can be taken at the same time.
    turns: Places,
    /// As many for each kind of work. Only those who have one of these wait for a turn, so that the kinds alternate.
    kinds: [Places; Kind::COUNT],
}

/// Which projects send requests. It is only known whether there are several.
#[derive(Debug, Default)]
struct Seen {
    /// The project that has sent the last request, and when.
    last: Option<(Arc<str>, Instant)>,
    /// When another project than that sent a request.
    other: Option<Instant>,
}

/// A kind of work.
#[derive(Debug, Clone, Copy)]
pub enum Kind {
    /// Answering a request to read.
    Read,
    /// Sending rows of an export.
    Export,
    /// Parsing many events that were sent together.
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
}

impl Drop for Held {
    fn drop(&mut self) {
        self.timer.abort();
        self.permits.lock().unwrap_or_else(PoisonError::into_inner).take();
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
    pub fn new(Limits { at_a_time, longest, lately }: Limits) -> Self {
        let places = || Places::new(at_a_time.max(1));
        let kinds = std::array::from_fn(|_| places());
        Self { longest, lately, seen: Mutex::default(), turns: places(), kinds }
    }

    /// Notes that a project sends requests.
    pub fn note(&self, project: &Arc<str>) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
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
    pub fn is_shared(&self) -> bool {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.other.is_some_and(|at| at.elapsed() < self.lately)
    }

    /// Waits for a turn of a project, after those who have waited longer for work of this kind. There is nothing to
    /// wait for unless several projects send requests.
    pub async fn turn(&self, project: &Arc<str>, kind: Kind) -> Turn {
        if !self.is_shared() {
            return Turn(None);
        }
        let of_kind = while_wanted(self.kinds[kind as usize].of(project).acquire_owned()).await.expect(OPEN);
        let turn = while_wanted(self.turns.of(project).acquire_owned()).await.expect(OPEN);
        let permits = Arc::new(Mutex::new(Some([turn, of_kind])));
        let (ended, longest) = (Arc::clone(&permits), self.longest);
        let timer = tokio::spawn(async move {
            tokio::time::sleep(longest).await;
            ended.lock().unwrap_or_else(PoisonError::into_inner).take();
        });
        Turn(Some(Held { permits, timer: timer.abort_handle() }))
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
        assert_eq!((begun.elapsed(), slow.is_over(), next.is_over()), (work.longest, true, false));
        drop(slow);
        assert!(now(&work, &greedy, Kind::Read).is_none(), "a turn that is over is not given back again");
    }
}
