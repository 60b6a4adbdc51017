//! The commit of a project's batch: a transaction for each domain, and a statement for the requests to the gateway that
//! begin and for those that end (`Lane` in `messages/write.rs`). A transaction that lost a race is
//! repeated, and one that fails because of an event is replaced by a transaction for each event.
//!
//! # When a transaction fails
//!
//! A lost race, such as a deadlock, is tried again, five times, after 2 to 32 ms. A lost connection,
//! or a server that is out of resources or shutting down, is a 503 for every event of the batch. So is a connection that is
//! silent while Postgres does not work on what it has sent; however long that takes, it is waited for. Anything else, also a
//! panic, means that some row is not acceptable: the events are written again one by one, so that a poisoned one harms no
//! neighbor. If one of them is a 503 then, so are those after it, which may need it.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::time::Instant;

use futures_util::FutureExt as _;

use super::away::Away;
use super::connection::KeptConnection;
use super::queue::Taken;
use super::{Job, refuse_rest};
use crate::db::receipt::Written;
use crate::db::retry::Losses;
use crate::domain::{self, Event, InForce, Together};
use crate::error::Error;
use crate::outage::Outage;
use crate::privacy::kept::Kept;
use crate::projects::Tenant;
use crate::telemetry;

/// Writes the events of a project's jobs in a transaction for each domain, and answers each job.
pub(super) async fn commit(connection: &mut KeptConnection, away: &Away, mut batch: Taken<Job>) {
    let jobs = std::mem::take(&mut batch.jobs);
    let started = Instant::now();
    let mut verdicts: Vec<Vec<Option<Written>>> =
        jobs.iter().map(|job| job.events.iter().map(|_| None).collect()).collect();
    let mut groups: BTreeMap<Together, Vec<(usize, usize)>> = BTreeMap::new();
    for (number, job) in jobs.iter().enumerate() {
        for (index, event) in job.events.iter().enumerate() {
            groups.entry(event.together()).or_default().push((number, index));
        }
    }
    for members in groups.into_values() {
        let events: Vec<_> = members.iter().map(|&(job, index)| &jobs[job].events[index]).collect();
        let tenant = &jobs[members[0].0].tenant;
        let written = write(connection, away, tenant, &events).await;
        telemetry::count_events(events.iter().map(|event| event.kind()).zip(&written));
        for (&(job, index), written) in members.iter().zip(written) {
            verdicts[job][index] = Some(written);
        }
        metrics::histogram!("gleaner_commit_events").record(events.len() as f64);
    }
    connection.shrink();
    metrics::histogram!("gleaner_commit_duration_seconds").record(started.elapsed().as_secs_f64());
    for (job, verdicts) in jobs.into_iter().zip(verdicts) {
        // A caller that has gone away does not receive the answer, but its events are written all the same.
        let _ = job.reply.send(verdicts.into_iter().flatten().collect());
    }
}

/// Writes events of one project and domain in one transaction. If an event makes that fail, each event is
/// written in a transaction of its own.
async fn write(
    connection: &mut KeptConnection,
    away: &Away,
    tenant: &Tenant,
    events: &[&Kept<Event>],
) -> Vec<Written> {
    let error = match try_write(connection, tenant, events).await {
        Ok(written) => {
            away.is_over();
            return written;
        }
        Err(error) => error,
    };
    if let Some(outage) = Outage::of(&error) {
        away.met(outage, &error);
        return events.iter().map(|_| Err(Error::Unavailable(outage.refusal()))).collect();
    }
    if events.len() == 1 {
        return vec![Err(error.into())];
    }
    tracing::warn!(%error, events = events.len(), "a batch failed; writing its events one by one");
    let mut written = Vec::with_capacity(events.len());
    for &event in events {
        written.extend(Box::pin(write(connection, away, tenant, &[event])).await);
        if refuse_rest(&mut written, events.len()) {
            break;
        }
    }
    written
}

async fn try_write(
    connection: &mut KeptConnection,
    tenant: &Tenant,
    events: &[&Kept<Event>],
) -> sqlx::Result<Vec<Written>> {
    let mut losses = Losses::default();
    loop {
        let rules = InForce { searches: &tenant.rules, messages: &tenant.messages };
        let (own, watch) = connection.named(&tenant.name).await?;
        match watch.over(caught(domain::write(own, &tenant.name, rules, events))).await {
            Err(error) if losses.again(&error).await => {}
            Err(error) => {
                connection.discard();
                return Err(error);
            }
            written => return written,
        }
    }
}

/// Makes a panic an error, which is that of the event that causes it and does not end the writer.
async fn caught<T>(write: impl Future<Output = sqlx::Result<T>>) -> sqlx::Result<T> {
    let panicked = |_| Err(sqlx::Error::Encode("writing has panicked".into()));
    // The connection is discarded, and nothing else is changed before the write ends.
    AssertUnwindSafe(write).catch_unwind().await.unwrap_or_else(panicked)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_is_the_fault_of_an_event_and_not_of_the_database() {
        let panics = async { panic!("as a test wants it") };
        let error = caught::<()>(panics).await.expect_err("it panics");
        assert_eq!(Outage::of(&error), None);
        assert_eq!(Error::from(error).status(), 500);
    }
}
