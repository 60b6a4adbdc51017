//! The queue of events to write: first come, first served within a project, and project after project. While several
//! projects send requests, a project waits here for its turn at working, and not in a writer, which has others to write
//! meanwhile.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::FutureExt as _;
use tokio::sync::Notify;

use crate::sharing::{Kind, Turn, Work};

/// The number of events that must wait before another writer joins the first. A few large transactions cost Postgres
/// less than many small ones, so events usually wait for the first to end.
const ENOUGH: usize = 128;

/// The jobs that wait.
pub(super) struct Queue<J> {
    state: Mutex<State<J>>,
    /// How many writers may write events of the same project at a time, if no other project sends requests. While
    /// others do, it is one.
    most_writers: usize,
    work: Arc<Work>,
    /// Wakes the first writer: there may be jobs for it, or the queue is closed.
    pub(super) arrived: Notify,
    /// Wakes a further writer, if there is much to write or the first one is late.
    pub(super) help: Notify,
}

struct State<J> {
    /// The jobs of each project that has some.
    waiting: HashMap<Arc<str>, Line<J>>,
    /// The projects whose turn has come, which is one turn of each at most.
    ready: VecDeque<(Arc<str>, Turn)>,
    /// The number of writers that are writing events of a project. Projects without any are not in it.
    writing: HashMap<Arc<str>, usize>,
    /// How many events wait.
    events: usize,
    /// Whether the first writer's transaction takes long.
    is_late: bool,
    is_closed: bool,
}

/// The jobs of a project, with how many events each has.
struct Line<J> {
    jobs: VecDeque<(usize, J)>,
    /// Whether the project has a turn, or waits for one.
    has_asked: bool,
}

/// Jobs of a project that a writer has taken. It counts as a writer of that project, and has its turn, until this is
/// dropped.
pub(super) struct Taken<J: Send + 'static> {
    /// The jobs.
    pub(super) jobs: Vec<J>,
    project: Arc<str>,
    turn: Option<Turn>,
    queue: Arc<Queue<J>>,
}

impl<J: Send + 'static> Drop for Taken<J> {
    fn drop(&mut self) {
        // Whatever else the project has to do comes before its next events.
        self.turn = None;
        let mut state = self.queue.state();
        if let Some(writers) = state.writing.get_mut(&self.project) {
            *writers -= 1;
            if *writers == 0 {
                state.writing.remove(&self.project);
            }
        }
        self.queue.ask(&mut state, &self.project);
        self.queue.wake(&state);
    }
}

impl<J: Send + 'static> Queue<J> {
    /// Makes an empty queue. `most_writers` is how many writers may write events of the same project at a time, unless
    /// several projects send requests.
    pub(super) fn new(most_writers: usize, work: Arc<Work>) -> Self {
        let state = State {
            waiting: HashMap::new(),
            ready: VecDeque::new(),
            writing: HashMap::new(),
            events: 0,
            is_late: false,
            is_closed: false,
        };
        Self { state: Mutex::new(state), most_writers, work, arrived: Notify::new(), help: Notify::new() }
    }

    /// Adds a job with so many events of a project. Returns whether the queue is open.
    pub(super) fn push(self: &Arc<Self>, project: &Arc<str>, events: usize, job: J) -> bool {
        let mut state = self.state();
        if state.is_closed {
            return false;
        }
        state.events += events;
        if let Some(line) = state.waiting.get_mut(project) {
            line.jobs.push_back((events, job));
        } else {
            let line = Line { jobs: VecDeque::from([(events, job)]), has_asked: false };
            state.waiting.insert(Arc::clone(project), line);
        }
        self.ask(&mut state, project);
        self.wake(&state);
        true
    }

    /// Takes jobs with about `most` events, or fewer if other projects wait, too: they are of the project whose turn
    /// has come first. There are none if no project may have another writer.
    pub(super) fn take(self: &Arc<Self>, most: usize) -> Option<Taken<J>> {
        let mut state = self.state();
        let state = &mut *state;
        let (project, turn) = state.ready.pop_front()?;
        let share = (most / state.waiting.len().max(1)).max(1);
        let line = state.waiting.get_mut(&project)?;
        line.has_asked = false;
        let (mut jobs, mut events) = (Vec::new(), 0);
        while events < share
            && let Some((size, job)) = line.jobs.pop_front()
        {
            events += size;
            jobs.push(job);
        }
        state.events -= events;
        if line.jobs.is_empty() {
            state.waiting.remove(&project);
        }
        *state.writing.entry(Arc::clone(&project)).or_default() += 1;
        self.ask(state, &project);
        self.wake(state);
        Some(Taken { jobs, project, turn: Some(turn), queue: Arc::clone(self) })
    }

    /// Lets a project that has jobs wait for its turn, if it may have another writer.
    fn ask(self: &Arc<Self>, state: &mut State<J>, project: &Arc<str>) {
        let Some(line) = state.waiting.get_mut(project) else { return };
        let most_writers = if self.work.is_shared() { 1 } else { self.most_writers };
        if line.has_asked || state.writing.get(project).is_some_and(|writers| *writers >= most_writers) {
            return;
        }
        line.has_asked = true;
        if let Some(turn) = self.work.turn(project, Kind::Commit).now_or_never() {
            state.ready.push_back((Arc::clone(project), turn));
            return;
        }
        let (queue, project) = (Arc::clone(self), Arc::clone(project));
        tokio::spawn(async move {
            let turn = queue.work.turn(&project, Kind::Commit).await;
            let mut state = queue.state();
            state.ready.push_back((project, turn));
            queue.wake(&state);
        });
    }
}

impl<J> Queue<J> {
    fn state(&self) -> MutexGuard<'_, State<J>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes those writers that have something to do.
    fn wake(&self, state: &State<J>) {
        if state.ready.is_empty() {
            return;
        }
        self.arrived.notify_one();
        if state.is_late || state.events >= ENOUGH {
            self.help.notify_one();
        }
    }

    /// Notes whether the first writer's transaction takes long.
    pub(super) fn set_late(&self, is_late: bool) {
        let mut state = self.state();
        state.is_late = is_late;
        self.wake(&state);
    }

    /// Accepts no further jobs.
    pub(super) fn close(&self) {
        self.state().is_closed = true;
        self.arrived.notify_one();
    }

    /// Returns whether the queue accepts no further jobs.
    pub(super) fn is_closed(&self) -> bool {
        self.state().is_closed
    }

    /// Returns whether the queue accepts no further jobs and has none left.
    pub(super) fn is_finished(&self) -> bool {
        let state = self.state();
        state.is_closed && state.waiting.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::sharing::Limits;

    fn names<const N: usize>() -> [Arc<str>; N] {
        std::array::from_fn(|project| project.to_string().into())
    }

    fn jobs<J: Copy + Send>(taken: Option<&Taken<J>>) -> Vec<J> {
        taken.map(|taken| taken.jobs.clone()).unwrap_or_default()
    }

    #[test]
    fn who_waits_with_little_is_next_however_much_others_have_waiting() {
        let queue = Arc::new(Queue::new(2, Arc::default()));
        let [heavy, light] = names();
        for job in 0..5_000 {
            queue.push(&heavy, 1, job);
        }
        queue.push(&light, 1, -1);
        assert_eq!(jobs(queue.take(512).as_ref()).len(), 256, "half of what a writer takes");
        assert_eq!(jobs(queue.take(512).as_ref()), [-1]);
        assert_eq!(jobs(queue.take(512).as_ref()).len(), 512, "nobody else waits");
    }

    /// Turns of which a project has one at a time, and which do not end by themselves.
    fn work(projects: &[Arc<str>]) -> Arc<Work> {
        let hour = std::time::Duration::from_hours(1);
        let work = Work::new(Limits { at_a_time: 1, longest: hour, lately: hour });
        for project in projects {
            work.note(project);
        }
        Arc::new(work)
    }

    #[tokio::test]
    async fn a_project_has_one_writer_while_others_send_requests() {
        let [heavy, light] = names();
        let queue = Arc::new(Queue::new(2, work(&[Arc::clone(&heavy), light])));
        for job in 0..3 {
            queue.push(&heavy, 1, job);
        }
        let first = queue.take(1);
        assert_eq!((jobs(first.as_ref()), queue.take(9).is_none()), (vec![0], true));
        drop(first);
        assert_eq!(jobs(queue.take(9).as_ref()), [1, 2]);
    }

    #[tokio::test]
    async fn who_waits_for_their_turn_keeps_no_writer_from_others() {
        let [heavy, light] = names();
        let work = work(&[Arc::clone(&heavy), Arc::clone(&light)]);
        let queue = Arc::new(Queue::new(2, Arc::clone(&work)));
        let reads = work.turn(&heavy, Kind::Read).await;
        queue.push(&heavy, 1, 1);
        assert!(queue.take(9).is_none());
        queue.push(&light, 1, 2);
        assert_eq!(jobs(queue.take(9).as_ref()), [2]);
        queue.close();
        assert!(queue.take(9).is_none() && !queue.is_finished(), "what waits for a turn is still written");
        drop(reads);
        while queue.arrived.notified().now_or_never().is_none() || queue.state().ready.is_empty() {
            tokio::task::yield_now().await;
        }
        assert_eq!(jobs(queue.take(9).as_ref()), [1]);
        assert!(queue.is_finished());
    }

    #[test]
    fn a_project_has_so_many_writers_and_the_next_one_is_free_for_others() {
        let queue = Arc::new(Queue::new(2, Arc::default()));
        let [heavy, light] = names();
        for job in 0..6 {
            queue.push(&heavy, 1, job);
        }
        let (first, second) = (queue.take(1), queue.take(1));
        assert_eq!((jobs(first.as_ref()), jobs(second.as_ref())), (vec![0], vec![1]));
        queue.arrived.notified().now_or_never();
        assert!(queue.take(1).is_none());
        assert!(queue.arrived.notified().now_or_never().is_none(), "who finds nothing wakes nobody");
        queue.push(&light, 1, -1);
        assert_eq!(jobs(queue.take(9).as_ref()), [-1]);
        queue.close();
        assert!(!queue.is_finished(), "what waits for a writer is still written");
        drop(first);
        assert_eq!(jobs(queue.take(9).as_ref()), [2, 3, 4, 5]);
        assert!(queue.is_finished());
    }

    proptest! {
        #[test]
        fn every_job_comes_out_once_and_those_of_a_project_in_their_order_beside_others(
            pushed in proptest::collection::vec((0..4_usize, 1..600_usize), 0..60), most in 1..600_usize,
        ) {
            let queue = Arc::new(Queue::new(1, Arc::default()));
            let projects = names::<4>();
            for (number, (project, events)) in pushed.iter().enumerate() {
                queue.push(&projects[*project], *events, (*project, number));
            }
            let mut taken: Vec<Vec<(usize, usize)>> = Vec::new();
            while let Some(batch) = queue.take(most) {
                let events: Vec<_> = batch.jobs.iter().map(|(_, number)| pushed[*number].1).collect();
                let before_last: usize = events[..events.len() - 1].iter().sum();
                prop_assert!(before_last < most, "it takes no more jobs than are enough");
                taken.push(batch.jobs.clone());
            }
            for (at, batch) in taken.iter().enumerate() {
                // Whoever still waits when the same project is taken again has been taken in between.
                let again = taken[at + 1..].iter().position(|next| next[0].0 == batch[0].0);
                let between = &taken[at + 1..at + 1 + again.unwrap_or(0)];
                let later = taken[at + 1..].iter().filter(|next| next[0].0 != batch[0].0);
                for other in later.filter(|_| again.is_some()) {
                    prop_assert!(between.iter().any(|next| next[0].0 == other[0].0));
                }
            }
            prop_assert_eq!(taken.iter().flatten().count(), pushed.len());
            for project in 0..4 {
                let own: Vec<_> =
                    taken.iter().flatten().filter(|(of, _)| *of == project).map(|(_, number)| *number).collect();
                prop_assert!(own.is_sorted());
            }
        }
    }
}
