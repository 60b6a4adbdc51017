//! The queue of events to write: first come, first served within a project, and round-robin among projects.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::sharing::Work;

/// The jobs that wait.
pub(super) struct Queue<J> {
    state: Mutex<State<J>>,
    /// How many writers may write events of the same project at a time, if no other project sends requests.
    most_writers: usize,
    /// Whether several projects send requests. While they do, a project has one writer.
    work: Arc<Work>,
    /// Wakes the writer that waits for a job.
    pub(super) arrived: Notify,
}

struct State<J> {
    /// The jobs of each project that has some, with how many events each has.
    waiting: HashMap<Arc<str>, VecDeque<(usize, J)>>,
    /// These projects in the order of their turns.
    turns: VecDeque<Arc<str>>,
    /// The number of writers that are writing events of a project. Projects without any are not in it.
    writing: HashMap<Arc<str>, usize>,
    is_closed: bool,
}

/// Jobs that a writer has taken. It counts as a writer of their projects until this is dropped.
pub(super) struct Taken<J> {
    /// The jobs.
    pub(super) jobs: Vec<J>,
    /// The number of their events.
    pub(super) events: usize,
    projects: Vec<Arc<str>>,
    queue: Arc<Queue<J>>,
}

impl<J> Drop for Taken<J> {
    fn drop(&mut self) {
        if self.projects.is_empty() {
            return;
        }
        let mut state = self.queue.state();
        for project in &self.projects {
            if let Some(writers) = state.writing.get_mut(project) {
                *writers -= 1;
                if *writers == 0 {
                    state.writing.remove(project);
                }
            }
        }
        let waits = !state.waiting.is_empty();
        drop(state);
        if waits {
            self.queue.arrived.notify_one();
        }
    }
}

impl<J> Queue<J> {
    /// Makes an empty queue. `most_writers` is how many writers may write events of the same project at a time, unless
    /// several projects send requests.
    pub(super) fn new(most_writers: usize, work: Arc<Work>) -> Self {
        let state = State {
            waiting: HashMap::new(),
            turns: VecDeque::new(),
            writing: HashMap::new(),
            is_closed: false,
        };
        Self { state: Mutex::new(state), most_writers, work, arrived: Notify::new() }
    }

    fn state(&self) -> MutexGuard<'_, State<J>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a job with so many events of a project. Returns whether the queue is open.
    pub(super) fn push(&self, project: &Arc<str>, events: usize, job: J) -> bool {
        let mut state = self.state();
        if state.is_closed {
            return false;
        }
        if let Some(jobs) = state.waiting.get_mut(project) {
            jobs.push_back((events, job));
        } else {
            state.waiting.insert(Arc::clone(project), VecDeque::from([(events, job)]));
            state.turns.push_back(Arc::clone(project));
        }
        drop(state);
        self.arrived.notify_one();
        true
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

    /// Takes jobs with about `most` events in total, about equally many from each waiting project that may have another
    /// writer. If a project's job is large, there are up to twice as many, so that others do not wait for it.
    pub(super) fn take(self: &Arc<Self>, most: usize) -> Taken<J> {
        let mut taken = Taken { jobs: Vec::new(), events: 0, projects: Vec::new(), queue: Arc::clone(self) };
        let mut state = self.state();
        let State { waiting, turns, writing, .. } = &mut *state;
        let most_writers = if self.work.is_shared() { 1 } else { self.most_writers };
        let may = |project: &Arc<str>, writing: &HashMap<_, usize>| {
            writing.get(project).is_none_or(|writers| *writers < most_writers)
        };
        let mut first_turns = turns.iter().filter(|project| may(project, writing)).count();
        let share = (most / first_turns.max(1)).max(1);
        while taken.events < most || first_turns > 0 && taken.events < 2 * most {
            let has_turn = |project: &Arc<str>| taken.projects.contains(project) || may(project, writing);
            let Some(project) = turns.iter().position(has_turn).and_then(|turn| turns.remove(turn)) else {
                break;
            };
            first_turns = first_turns.saturating_sub(1);
            let Some(jobs) = waiting.get_mut(&project) else { continue };
            let mut own = 0;
            let share = share.min(most.saturating_sub(taken.events)).max(1);
            while own < share
                && let Some((events, job)) = jobs.pop_front()
            {
                own += events;
                taken.jobs.push(job);
            }
            taken.events += own;
            if !taken.projects.contains(&project) {
                *writing.entry(Arc::clone(&project)).or_default() += 1;
                taken.projects.push(Arc::clone(&project));
            }
            if jobs.is_empty() {
                waiting.remove(&project);
            } else {
                turns.push_back(project);
            }
        }
        drop(state);
        taken
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn who_waits_with_little_is_among_the_next_however_much_others_have_waiting() {
        let queue = Arc::new(Queue::new(2, Arc::default()));
        let take = |most| {
            let mut taken = queue.take(most);
            (std::mem::take(&mut taken.jobs), taken.events)
        };
        let [heavy, light]: [Arc<str>; 2] = ["heavy".into(), "light".into()];
        for job in 0..5_000 {
            queue.push(&heavy, 1, job);
        }
        queue.push(&light, 1, -1);
        let (batch, size) = take(512);
        assert!(batch.contains(&-1));
        assert_eq!((batch.len(), size), (512, 512), "what the one does not need the other has");
        queue.push(&light, 1, -2);
        // A large job of one project does not push out another project's.
        queue.push(&heavy, 512, 5_000);
        assert!(take(512).0.contains(&-2));
        // Nor does it where the turn is the one's.
        take(10_000);
        queue.push(&heavy, 512, 5_001);
        queue.push(&light, 1, -3);
        assert_eq!(take(512), (vec![5_001, -3], 513));
    }

    #[test]
    fn a_project_has_one_writer_while_others_send_requests() {
        let work = Arc::<Work>::default();
        let queue = Arc::new(Queue::new(2, Arc::clone(&work)));
        let [heavy, light]: [Arc<str>; 2] = ["heavy".into(), "light".into()];
        work.note(&heavy);
        work.note(&light);
        for job in 0..3 {
            queue.push(&heavy, 1, job);
        }
        let first = queue.take(1);
        assert_eq!((first.jobs.as_slice(), queue.take(9).jobs.len()), ([0].as_slice(), 0));
        drop(first);
        assert_eq!(queue.take(9).jobs, [1, 2]);
    }

    #[test]
    fn a_project_has_so_many_writers_and_the_next_one_is_free_for_others() {
        let queue = Arc::new(Queue::new(2, Arc::default()));
        let [heavy, light]: [Arc<str>; 2] = ["heavy".into(), "light".into()];
        for job in 0..6 {
            queue.push(&heavy, 1, job);
        }
        let (first, second) = (queue.take(1), queue.take(1));
        assert_eq!((first.jobs.as_slice(), second.jobs.as_slice()), ([0].as_slice(), [1].as_slice()));
        for _ in 0..6 {
            queue.arrived.notified().now_or_never();
        }
        assert!(queue.take(1).jobs.is_empty());
        assert!(queue.arrived.notified().now_or_never().is_none(), "who finds nothing wakes nobody");
        queue.push(&light, 1, -1);
        assert_eq!(queue.take(9).jobs, [-1]);
        queue.close();
        assert!(!queue.is_finished(), "what waits for a writer is still written");
        drop(first);
        assert_eq!(queue.take(9).jobs, [2, 3, 4, 5]);
        assert!(queue.is_finished());
    }

    proptest! {
        #[test]
        fn every_job_comes_out_once_and_those_of_a_project_in_their_order(
            jobs in proptest::collection::vec((0..4_usize, 1..600_usize), 0..60), most in 1..600_usize,
        ) {
            let queue = Arc::new(Queue::new(1, Arc::default()));
            let projects: Vec<Arc<str>> = (0..4).map(|project| project.to_string().into()).collect();
            for (number, (project, events)) in jobs.iter().enumerate() {
                queue.push(&projects[*project], *events, (*project, number));
            }
            let mut taken = Vec::new();
            loop {
                let waiting: std::collections::HashSet<_> =
                    jobs.iter().enumerate().filter(|(number, _)| !taken.iter().any(|(_, n)| n == number)).map(|(_, job)| job.0).collect();
                let next = queue.take(most);
                let (batch, size) = (next.jobs.clone(), next.events);
                if batch.is_empty() {
                    break;
                }
                prop_assert_eq!(size, batch.iter().map(|(_, number)| jobs[*number].1).sum::<usize>());
                let came: std::collections::HashSet<_> = batch.iter().map(|(project, _)| *project).collect();
                // The large jobs of some projects may fill a batch; otherwise every project that waits is in it.
                prop_assert!(size >= 2 * most || came == waiting);
                taken.extend(batch);
            }
            prop_assert_eq!(taken.len(), jobs.len());
            for project in 0..4 {
                let own: Vec<_> = taken.iter().filter(|(of, _)| *of == project).map(|(_, number)| *number).collect();
                prop_assert!(own.is_sorted());
            }
        }
    }
}
