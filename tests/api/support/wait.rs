//! Waiting for what happens by itself, with an end.

use std::time::{Duration, Instant};

/// Asks again and again until it is so; fails, saying what it waited for, after two minutes.
pub(crate) async fn eventually(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let begun = Instant::now();
    while !is_so().await {
        assert!(begun.elapsed() < Duration::from_mins(2), "still not so: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
