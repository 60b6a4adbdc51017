//! Threads beside those that serve requests.

use std::panic::resume_unwind;
use std::sync::{Arc, LazyLock};

use tokio::task::spawn_blocking;

use super::Shares;

/// The places of work that runs on threads of its own, eight for a project. Each thread has a stack and memory of its own, so
/// there are few, and more of them than processors only let short work pass the long.
static THREADS: LazyLock<Shares> = LazyLock::new(|| Shares::with_total(8, 16));

/// Runs work of a project that takes milliseconds of processor time on a thread that serves no requests. It waits until a
/// thread is free. Work that has begun ends even if nobody waits for it any longer.
pub async fn apart<T: Send + 'static>(project: &Arc<str>, work: impl FnOnce() -> T + Send + 'static) -> T {
    let place = THREADS.take(project, 1).await;
    let done = spawn_blocking(move || {
        let _place = place;
        work()
    });
    match done.await.map_err(tokio::task::JoinError::try_into_panic) {
        Ok(value) => value,
        Err(Ok(panic)) => resume_unwind(panic),
        // The program ends, and drops this task.
        Err(Err(_)) => std::future::pending().await,
    }
}
