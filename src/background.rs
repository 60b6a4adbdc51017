//! Background work that is done in rounds until the server stops.

use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::db::silence::LongestStatement;
use crate::error::{Error, Result};

/// The pause after a failed round.
const AFTER_FAILURE: Duration = Duration::from_secs(5);

/// The maximum duration of the last round.
const LAST_ROUND: Duration = Duration::from_secs(10);

/// Work that is done in rounds.
pub trait Rounds: Send + 'static {
    /// The name of the work in the log.
    const NAME: &'static str;

    /// Does one round of the work, and returns how long to pause before the next. A server that stops waits ten seconds
    /// for the round to end, and then drops it.
    fn round(&mut self) -> impl Future<Output = Result<Duration>> + Send;
}

/// A task that does rounds of work.
#[derive(Debug)]
pub struct Task {
    name: &'static str,
    stop: watch::Sender<bool>,
    handle: JoinHandle<()>,
}

impl Task {
    /// Starts the task. A round of which nothing is heard for longer than any statement takes has failed. A failed round is
    /// logged only once until a round succeeds again.
    #[must_use]
    pub fn start<R: Rounds>(mut work: R, longest: LongestStatement) -> Self {
        let (stop, mut stopped) = watch::channel(false);
        let handle = tokio::spawn(async move {
            let mut has_failed = false;
            loop {
                let round = longest.while_heard(work.round()).await;
                let pause = match round.map_err(Error::from).flatten() {
                    Ok(pause) => {
                        has_failed = false;
                        pause
                    }
                    Err(error) => {
                        if !std::mem::replace(&mut has_failed, true) {
                            tracing::warn!(%error, "{} failed and will be tried again", R::NAME);
                        }
                        AFTER_FAILURE
                    }
                };
                tokio::select! {
                    () = tokio::time::sleep(pause) => {}
                    _ = stopped.changed() => return,
                }
            }
        });
        Self { name: R::NAME, stop, handle }
    }

    /// Stops the task after the current round, or drops the round if it takes too long, for example because it waits for
    /// a lock in the database. What it has not committed is as if it had not begun.
    pub async fn finish(mut self) {
        let _ = self.stop.send(true);
        match tokio::time::timeout(LAST_ROUND, &mut self.handle).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::error!(%error, "{} ended with an error", self.name),
            Err(_) => {
                tracing::warn!("{} did not end in time and was stopped", self.name);
                self.handle.abort();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    /// How many rounds have begun, of which none ends.
    #[derive(Default)]
    struct Endless(Arc<AtomicU32>);

    impl Rounds for Endless {
        const NAME: &'static str = "work without an end";

        async fn round(&mut self) -> Result<Duration> {
            self.0.fetch_add(1, Ordering::Relaxed);
            std::future::pending().await
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_round_of_which_nothing_is_heard_is_done_again() {
        let endless = Endless::default();
        let begun = Arc::clone(&endless.0);
        let _task = Task::start(endless, LongestStatement(Duration::from_secs(10)));
        tokio::time::sleep(Duration::from_secs(20)).await;
        assert_eq!(begun.load(Ordering::Relaxed), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_round_that_does_not_end_is_dropped_when_the_server_stops() {
        let begun = tokio::time::Instant::now();
        let task = Task::start(Endless::default(), LongestStatement::default());
        tokio::task::yield_now().await;
        task.finish().await;
        assert_eq!(begun.elapsed().as_secs(), LAST_ROUND.as_secs());
    }
}
