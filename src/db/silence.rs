//! What is done about connections that die without a word, because the machine of the database loses power, say, or because
//! something between the machines forgets them. The library (sqlx 0.9) cannot have the kernel test its connections, and would
//! wait for ever for the end of a statement. Postgres therefore ends every statement of requests and of work in the
//! background that takes longer than a limit, and work of which nothing is heard for longer than that is given up.

use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::sync::{Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use sqlx::postgres::PgConnectOptions;
use sqlx::{Connection as _, PgConnection};
use tokio::time::{Instant, sleep, timeout};

/// When work was last given up, so that its connections may be in the middle of a statement.
static GIVEN_UP: Mutex<Option<Instant>> = Mutex::new(None);

/// The time after which the kernel has found that a connection is dead on which something was sent.
const FOUND: Duration = Duration::from_mins(20);

/// How long the test of a connection may take.
const TEST: Duration = Duration::from_secs(2);

/// The longest time that a statement of a request or of work in the background may take. Exports have a limit of their own.
#[derive(Debug, Clone, Copy)]
pub struct LongestStatement(pub Duration);

impl Default for LongestStatement {
    /// Model providers may be silent for ten minutes, too.
    fn default() -> Self {
        Self(Duration::from_mins(10))
    }
}

impl LongestStatement {
    /// Has Postgres end the statements that take longer.
    #[must_use]
    pub fn limit(self, options: &PgConnectOptions) -> PgConnectOptions {
        options.clone().options([("statement_timeout", self.0.as_millis())])
    }

    /// Does work, and gives it up with an error when nothing has happened in it for longer than any statement takes. Dropping the
    /// work closes the connections that it has.
    pub async fn while_heard<T>(self, work: impl Future<Output = T>) -> sqlx::Result<T> {
        // The work is pinned here, so that a request has room for it once and not twice.
        let work = pin!(work);
        let done = unless_silent(self.0 + self.0 / 10, work).await;
        done.ok_or_else(|| {
            note_given_up();
            silent()
        })
    }
}

/// Does work until nothing has happened in it for so long. It is then dropped, and there is no result. The time in which this
/// thread was busy with something else does not count.
pub async fn unless_silent<T>(silence: Duration, work: impl Future<Output = T>) -> Option<T> {
    let mut work = pin!(work);
    let mut over = pin!(sleep(silence));
    let mut heard = Instant::now();
    poll_fn(|context| {
        // Whoever polls is the clock, or else something in the work has happened.
        let is_clock = over.is_elapsed();
        if !is_clock {
            heard = Instant::now();
        }
        if let Poll::Ready(done) = work.as_mut().poll(context) {
            return Poll::Ready(Some(done));
        }
        if is_clock {
            // If the clock is late, this thread was busy, and something may have come that nobody has heard.
            if over.deadline().elapsed() > silence / 2 {
                heard = Instant::now();
            }
            if heard.elapsed() >= silence {
                return Poll::Ready(None);
            }
            over.as_mut().reset(heard + silence);
        }
        if over.as_mut().poll(context).is_ready() {
            context.waker().wake_by_ref();
        }
        Poll::Pending
    })
    .await
}

/// Notes that work is given up, before its connections are.
pub fn note_given_up() {
    *GIVEN_UP.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
}

/// Returns whether a connection answers soon.
pub(super) async fn answers(connection: &mut PgConnection) -> bool {
    matches!(timeout(TEST, connection.ping()).await, Ok(Ok(())))
}

/// Returns an error if a connection that work gives back may be in the middle of a statement and does not answer soon.
/// Otherwise, the test would only cost a round trip.
pub(super) async fn expect_end(connection: &mut PgConnection) -> sqlx::Result<()> {
    let given_up = *GIVEN_UP.lock().unwrap_or_else(PoisonError::into_inner);
    if given_up.is_some_and(|at| at.elapsed() < FOUND) && !answers(connection).await {
        return Err(silent());
    }
    Ok(())
}

/// Returns the error of a connection of which nothing is heard.
pub fn silent() -> sqlx::Error {
    sqlx::Error::Io(io::Error::new(io::ErrorKind::TimedOut, "nothing is heard from the database"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sharing::while_wanted;

    const LIMIT: LongestStatement = LongestStatement(Duration::from_secs(10));

    #[tokio::test(start_paused = true)]
    async fn work_without_a_sign_of_life_is_given_up() {
        let begun = Instant::now();
        let work = async {
            sleep(Duration::from_secs(7)).await;
            std::future::pending::<()>().await;
        };
        LIMIT.while_heard(work).await.expect_err("nothing is heard of it");
        assert_eq!(begun.elapsed().as_secs(), 18);
    }

    #[tokio::test(start_paused = true)]
    async fn work_goes_on_for_as_long_as_something_happens_in_it() {
        let work = async {
            for _ in 0..100 {
                sleep(Duration::from_secs(10)).await;
            }
            "done"
        };
        assert_eq!(LIMIT.while_heard(work).await.expect("it ends"), "done");
    }

    #[tokio::test(start_paused = true)]
    async fn work_goes_on_while_it_waits_for_what_has_a_limit_of_its_own() {
        let provider = while_wanted(sleep(Duration::from_hours(1)));
        LongestStatement::default().while_heard(provider).await.expect("it ends");
    }
}
