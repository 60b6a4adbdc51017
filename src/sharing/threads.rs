//! Threads beside those that serve requests.

use std::panic::resume_unwind;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::Semaphore;
use tokio::task::{JoinHandle, block_in_place, spawn_blocking};

use super::Shares;

/// The number of bytes beyond which a piece of work is large, and the unit in which large work is counted.
const LARGE: usize = 1 << 20;

/// How many units of large work are done at the same time, because together they take much memory: eight for a project, or one piece
/// of work that has more. Where other projects leave fewer, a piece of work is done with those.
static UNITS: LazyLock<Shares> = LazyLock::new(|| Shares::new(8));

/// The places of work that runs on threads of its own, eight for a project. There are few, because each thread has a stack
/// and memory of its own. There are more than processors, so that short work need not wait for long work.
static THREADS: LazyLock<Shares> = LazyLock::new(|| Shares::with_total(8, 16));

/// Runs work of a project that takes milliseconds of processor time on a thread that serves no requests. It waits until a
/// thread is free. Work that has begun ends even if nobody waits for it any longer.
pub async fn apart<T: Send + 'static>(project: &Arc<str>, work: impl FnOnce() -> T + Send + 'static) -> T {
    apart_with(project, 0, work).await
}

/// Runs work as [`apart`] does that takes some memory for each of so many bytes. Large work waits for other large work.
pub async fn apart_with<T: Send + 'static>(
    project: &Arc<str>,
    bytes: usize,
    work: impl FnOnce() -> T + Send + 'static,
) -> T {
    let large = match bytes.div_ceil(LARGE).min(UNITS.of_one()) {
        0 | 1 => None,
        units => Some(UNITS.take_some(project, u32::try_from(units).unwrap_or(u32::MAX)).await),
    };
    let place = (THREADS.take(project, 1).await, large);
    joined(spawn_blocking(move || {
        let _place = place;
        work()
    }))
    .await
}

/// The places of work of a project that is too short for a thread of its own, one for each project.
static SHORT: LazyLock<Shares> = LazyLock::new(|| Shares::with_total(1, Semaphore::MAX_PERMITS));

/// The number of bytes below which work needs no place.
const TINY: usize = 512;

/// Runs short work on so many bytes, of which a project does one piece at a time. Otherwise its requests, however many there are, would
/// all work before anybody else's next turn. Others have theirs after a piece that has taken a millisecond.
pub async fn in_turn<T>(project: &Arc<str>, bytes: usize, work: impl FnOnce() -> T) -> T {
    if bytes < TINY {
        return work();
    }
    let _place = SHORT.take(project, 1).await;
    let mut pauses = Pauses::begin();
    let done = work();
    pauses.pause().await;
    done
}

/// Does work of some milliseconds that cannot wait. Another thread takes over the other tasks of this one meanwhile, if there is one.
pub fn in_place<T>(work: impl FnOnce() -> T) -> T {
    let flavor = Handle::try_current().map(|runtime| runtime.runtime_flavor());
    if matches!(flavor, Ok(RuntimeFlavor::MultiThread)) { block_in_place(work) } else { work() }
}

/// Waits for a task that nobody aborts. If it panics, so does this one.
pub async fn joined<T>(task: JoinHandle<T>) -> T {
    match task.await.map_err(tokio::task::JoinError::try_into_panic) {
        Ok(value) => value,
        Err(Ok(panic)) => resume_unwind(panic),
        // The program ends, and drops this task.
        Err(Err(_)) => std::future::pending().await,
    }
}

/// The time for which a task works before the other tasks of its thread get their turn.
const TURN: Duration = Duration::from_millis(1);

/// The pauses of work that is done in many pieces, in which the other tasks of the thread get their turn.
#[derive(Debug)]
pub struct Pauses(Instant);

impl Pauses {
    /// Begins the work.
    #[must_use]
    pub fn begin() -> Self {
        Self(Instant::now())
    }

    /// Pauses between two pieces if the work has gone on for a millisecond since the last pause. Returns whether it has.
    pub async fn pause(&mut self) -> bool {
        let is_due = self.0.elapsed() > TURN;
        if is_due {
            tokio::task::yield_now().await;
            self.0 = Instant::now();
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, mpsc};

    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn projects_with_work_of_the_largest_size_leave_room_for_less_large_work_of_others() {
        let projects: [Arc<str>; 3] = ["a", "b", "c"].map(Into::into);
        let (release, held) = mpsc::channel::<()>();
        let held = Arc::new(Mutex::new(held));
        let (begins, mut begun) = tokio::sync::mpsc::unbounded_channel();
        let work = |project: &Arc<str>| {
            let (project, held, begins) = (Arc::clone(project), Arc::clone(&held), begins.clone());
            let work = move || {
                begins.send(()).expect("the test listens");
                held.lock().expect("nobody panics").recv().expect_err("nothing is sent");
            };
            tokio::spawn(async move { apart_with(&project, 64 * LARGE, work).await })
        };
        let mut works: Vec<_> = projects.iter().map(work).collect();
        for _ in 0..3 {
            begun.recv().await.expect("all begin");
        }
        works.push(work(&projects[0]));
        assert_eq!(apart_with(&"d".into(), 2 * LARGE, || "done").await, "done");
        begun.try_recv().expect_err("a project does one large piece of work at a time");
        drop(release);
        for work in works {
            work.await.expect("ends");
        }
    }

    #[tokio::test]
    async fn a_project_does_one_short_piece_of_work_at_a_time_and_pauses_after_a_millisecond() {
        let [busy, other]: [Arc<str>; 2] = ["busy with short work", "other with short work"].map(Into::into);
        let mut long = Box::pin(in_turn(&busy, TINY, || std::thread::sleep(2 * TURN)));
        assert!((&mut long).now_or_never().is_none(), "it lets others work");
        let mut next = Box::pin(in_turn(&busy, TINY, || "next"));
        assert!((&mut next).now_or_never().is_none());
        assert_eq!(in_turn(&other, TINY, || "other").now_or_never(), Some("other"));
        assert_eq!(in_turn(&busy, TINY - 1, || "tiny").now_or_never(), Some("tiny"));
        long.await;
        assert_eq!(next.await, "next");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn beside_work_in_place_another_thread_does_the_other_tasks() {
        let work = async {
            let (sender, receiver) = mpsc::channel();
            let other = tokio::spawn(async move { sender.send("other") });
            let told = in_place(|| receiver.recv_timeout(Duration::from_mins(1)));
            (told, other.await.expect("ends"))
        };
        assert_eq!(tokio::spawn(work).await.expect("ends"), (Ok("other"), Ok(())));
    }

    #[tokio::test]
    async fn a_project_has_eight_threads_and_another_still_finds_one() {
        let [greedy, modest]: [Arc<str>; 2] = ["greedy".into(), "modest".into()];
        let (release, held) = mpsc::channel::<()>();
        let held = Arc::new(Mutex::new(held));
        let (begins, mut begun) = tokio::sync::mpsc::unbounded_channel();
        let works: Vec<_> = (0..9)
            .map(|_| {
                let (project, held, begins) = (Arc::clone(&greedy), Arc::clone(&held), begins.clone());
                let work = move || {
                    begins.send(()).expect("the test listens");
                    held.lock().expect("nobody panics").recv().expect_err("nothing is sent");
                };
                tokio::spawn(async move { apart(&project, work).await })
            })
            .collect();
        for _ in 0..8 {
            begun.recv().await.expect("eight begin");
        }
        assert_eq!(apart(&modest, || "done").await, "done");
        begun.try_recv().expect_err("the ninth waits");
        drop(release);
        begun.recv().await.expect("the ninth begins");
        for work in works {
            work.await.expect("ends");
        }
    }
}
