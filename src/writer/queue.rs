//! The queue of events to write: first come, first served within a project, and round-robin among projects.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// The jobs that wait.
pub(super) struct Queue<J> {
    state: Mutex<State<J>>,
    /// Wakes the writer that waits for a job.
    pub(super) arrived: Notify,
}

struct State<J> {
    /// The jobs of each project that has some, with how many events each has.
    waiting: HashMap<Arc<str>, VecDeque<(usize, J)>>,
    /// These projects in the order of their turns.
    turns: VecDeque<Arc<str>>,
    is_closed: bool,
}

impl<J> Default for Queue<J> {
    fn default() -> Self {
        let state = State { waiting: HashMap::new(), turns: VecDeque::new(), is_closed: false };
        Self { state: Mutex::new(state), arrived: Notify::new() }
    }
}

impl<J> Queue<J> {
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

    /// Takes jobs with about `most` events in total, about equally many from each waiting project. Returns them with
    /// their number of events. If a project's job is large, there are up to twice as many, so that others do not wait for it.
    pub(super) fn take(&self, most: usize) -> (Vec<J>, usize) {
        let mut state = self.state();
        let State { waiting, turns, .. } = &mut *state;
        let share = (most / turns.len().max(1)).max(1);
        let mut first_turns = turns.len();
        let (mut batch, mut size) = (Vec::new(), 0);
        while (size < most || first_turns > 0 && size < 2 * most)
            && let Some(project) = turns.pop_front()
        {
            first_turns = first_turns.saturating_sub(1);
            let Some(jobs) = waiting.get_mut(&project) else { continue };
            let mut own = 0;
            let share = share.min(most.saturating_sub(size)).max(1);
            while own < share
                && let Some((events, job)) = jobs.pop_front()
            {
                own += events;
                batch.push(job);
            }
            size += own;
            if jobs.is_empty() {
                waiting.remove(&project);
            } else {
                turns.push_back(project);
            }
        }
        (batch, size)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn who_waits_with_little_is_among_the_next_however_much_others_have_waiting() {
        let queue = Queue::default();
        let [heavy, light]: [Arc<str>; 2] = ["heavy".into(), "light".into()];
        for job in 0..5_000 {
            queue.push(&heavy, 1, job);
        }
        queue.push(&light, 1, -1);
        let (batch, size) = queue.take(512);
        assert!(batch.contains(&-1));
        assert_eq!((batch.len(), size), (512, 512), "what the one does not need the other has");
        queue.push(&light, 1, -2);
        // A large job of one project does not push out another project's.
        queue.push(&heavy, 512, 5_000);
        assert!(queue.take(512).0.contains(&-2));
        // Nor does it where the turn is the one's.
        queue.take(10_000);
        queue.push(&heavy, 512, 5_001);
        queue.push(&light, 1, -3);
        assert_eq!(queue.take(512), (vec![5_001, -3], 513));
    }

    proptest! {
        #[test]
        fn every_job_comes_out_once_and_those_of_a_project_in_their_order(
            jobs in proptest::collection::vec((0..4_usize, 1..600_usize), 0..60), most in 1..600_usize,
        ) {
            let queue = Queue::default();
            let projects: Vec<Arc<str>> = (0..4).map(|project| project.to_string().into()).collect();
            for (number, (project, events)) in jobs.iter().enumerate() {
                queue.push(&projects[*project], *events, (*project, number));
            }
            let mut taken = Vec::new();
            loop {
                let waiting: std::collections::HashSet<_> =
                    jobs.iter().enumerate().filter(|(number, _)| !taken.iter().any(|(_, n)| n == number)).map(|(_, job)| job.0).collect();
                let (batch, size) = queue.take(most);
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
