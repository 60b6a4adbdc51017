//! Questions that many ask at once.

use std::fmt;
use std::time::{Duration, Instant};

use tokio::sync::Mutex;

use super::while_wanted;

/// A question that is asked once at a time. Whoever asks meanwhile, or soon after, shares the answer, so that those who ask
/// without a limit keep nothing but each other waiting.
pub struct SingleFlight<T> {
    /// How long an answer is shared.
    fresh: Duration,
    last: Mutex<Option<(Instant, T)>>,
}

impl<T> fmt::Debug for SingleFlight<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SingleFlight").field("fresh", &self.fresh).finish_non_exhaustive()
    }
}

impl<T: Clone> SingleFlight<T> {
    /// Makes one whose answers are shared for so long.
    #[must_use]
    pub fn new(fresh: Duration) -> Self {
        Self { fresh, last: Mutex::default() }
    }

    /// Returns a fresh answer, for which `ask` is called if there is none.
    pub async fn answer(&self, ask: impl AsyncFnOnce() -> T) -> T {
        let mut last = while_wanted(self.last.lock()).await;
        if let Some((_, answer)) = last.as_ref().filter(|(asked, _)| asked.elapsed() < self.fresh) {
            return answer.clone();
        }
        let answer = ask().await;
        *last = Some((Instant::now(), answer.clone()));
        answer
    }
}
