//! Background work that is done in rounds until the server stops.

use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::error::Result;

/// The pause after a failed round.
const AFTER_FAILURE: Duration = Duration::from_secs(5);

/// Work that is done in rounds.
pub trait Rounds: Send + 'static {
    /// The name of the work in the log.
    const NAME: &'static str;

    /// Does one round of the work, and returns how long to pause before the next. A server that stops waits for the round
    /// to end, so one should not take long.
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
    /// Starts the task. A failed round is logged only once until a round succeeds again.
    #[must_use]
    pub fn start<R: Rounds>(mut work: R) -> Self {
        let (stop, mut stopped) = watch::channel(false);
        let handle = tokio::spawn(async move {
            let mut has_failed = false;
            loop {
                let pause = match work.round().await {
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

    /// Stops the task after the current round.
    pub async fn finish(self) {
        let _ = self.stop.send(true);
        if let Err(error) = self.handle.await {
            tracing::error!(%error, "{} ended with an error", self.name);
        }
    }
}
