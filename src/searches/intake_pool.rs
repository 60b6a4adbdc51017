//! What the intake of agents' reports shares: database connections, and the order in which senders take turns.

use std::collections::{BTreeSet, HashMap};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, PgPool, Postgres, Transaction};
use tokio::sync::{Notify, OwnedMutexGuard};
use uuid::Uuid;

use super::late_reports::{EARLIER, LATE, LateReports, Marked};
use crate::db;
use crate::error::{Error, Result};
use crate::sharing::{Place, Shares, while_wanted};
use crate::types::derived_id;

/// The maximum number of hook reports of one project that are processed at the same time. All projects together have four
/// times as many.
const REPORTS: usize = 256;

/// The connections with which hooks, transcripts and expiry write, and the turns of those who send lines.
#[derive(Debug, Clone)]
pub struct IntakePool {
    /// The connections. They have the writer's application name, because exports wait for connections with it.
    pub db: PgPool,
    /// The projects' places at these connections, of which one project leaves half to others.
    shares: Shares,
    /// The projects' places for pieces of transcripts, as many. What is read of a piece takes memory until it is stored.
    pieces: Shares,
    turns: Arc<Mutex<HashMap<Uuid, Weak<tokio::sync::Mutex<()>>>>>,
    /// The places for hook reports, whose processing may outlast their requests.
    reports: Shares,
    underway: Arc<Underway>,
    late: LateReports,
}

/// The hook reports that are being processed.
#[derive(Debug, Default)]
struct Underway {
    numbers: Mutex<Numbers>,
    ended: Notify,
}

/// The numbers of hook reports, each of which is greater than those before it.
#[derive(Debug, Default)]
struct Numbers {
    next: u64,
    /// The reports that are being processed, with their projects.
    taken: BTreeSet<(Arc<str>, u64)>,
}

impl Underway {
    fn numbers(&self) -> MutexGuard<'_, Numbers> {
        self.numbers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A hook report that is being processed, until this value is dropped.
#[derive(Debug)]
pub struct Report {
    name: (Arc<str>, u64),
    underway: Arc<Underway>,
    marked: Marked,
    _place: Place,
}

impl Drop for Report {
    fn drop(&mut self) {
        self.underway.numbers().taken.remove(&self.name);
        self.underway.ended.notify_waiters();
    }
}

impl IntakePool {
    /// Makes a pool of at most this many connections.
    #[must_use]
    pub fn new(options: &PgConnectOptions, connections: u32) -> Self {
        let db = db::pool(options, db::WRITER_NAME, connections);
        let connections = connections as usize;
        let shares = || Shares::with_total((connections / 2).max(1), connections);
        let late = LateReports::new(options);
        Self {
            db,
            shares: shares(),
            pieces: shares(),
            turns: Arc::default(),
            reports: Shares::new(REPORTS),
            underway: Arc::default(),
            late,
        }
    }

    /// Begins a transaction when it is the project's turn. The place is given back when it is dropped.
    pub(super) async fn begin(
        &self,
        project: &Arc<str>,
    ) -> sqlx::Result<(Place, Transaction<'static, Postgres>)> {
        let place = self.shares.take(project, 1).await;
        let begin = format!("begin; set local application_name = '{}'", db::writer_name(project));
        Ok((place, db::begin_with(&self.db, AssertSqlSafe(begin)).await?))
    }

    /// Waits until a piece of a transcript may be read. The place is given back when it is dropped.
    pub(super) async fn begin_piece(&self, project: &Arc<str>) -> Place {
        self.pieces.take(project, 1).await
    }

    /// Begins to process a hook report of a project, or returns none if it has too many.
    pub fn report(&self, project: &Arc<str>) -> Option<Report> {
        let place = self.reports.try_take(project, 1)?;
        let mut numbers = self.underway.numbers();
        let name = (Arc::clone(project), numbers.next);
        numbers.next += 1;
        numbers.taken.insert(name.clone());
        Some(Report { name, underway: Arc::clone(&self.underway), marked: Marked::default(), _place: place })
    }

    /// Returns what marks a report for the erasures of other servers, because its sender gets the answer before it is stored.
    /// The future must not be dropped before its end.
    pub fn late(&self, report: &Report) -> impl Future<Output = ()> + Send + 'static {
        self.late.clone().mark(Arc::clone(&report.name.0), Arc::clone(&report.marked))
    }

    /// Waits until all hook reports of a project that have begun have been processed, so that an erasure finds what they
    /// have said. Their senders may have got their answers before.
    pub async fn earlier_reports(&self, project: &Arc<str>) -> Result<()> {
        let next = self.underway.numbers().next;
        let all = async {
            loop {
                let mut ended = pin!(self.underway.ended.notified());
                ended.as_mut().enable();
                let earlier = (Arc::clone(project), 0)..(Arc::clone(project), next);
                if self.underway.numbers().taken.range(earlier).next().is_none() {
                    return;
                }
                while_wanted(ended).await;
            }
        };
        tokio::time::timeout(EARLIER, all).await.map_err(|_| Error::Unavailable(LATE))
    }

    /// Waits until all hook reports have been processed.
    pub async fn idle(&self) {
        self.reports.idle().await;
    }

    /// Waits until no other request sends lines of this source in the project. The turn ends when the guard is
    /// dropped.
    pub(super) async fn turn(&self, project: &str, source: Uuid) -> OwnedMutexGuard<()> {
        let turn = {
            let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
            turns.retain(|_, turn| turn.strong_count() > 0);
            let name = derived_id(&[project.as_bytes(), source.as_bytes()]);
            let turn = turns.get(&name).and_then(Weak::upgrade).unwrap_or_default();
            turns.insert(name, Arc::downgrade(&turn));
            turn
        };
        while_wanted(turn.lock_owned()).await
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn a_project_leaves_places_for_the_hook_reports_of_others() {
        let pool = IntakePool::new(&PgConnectOptions::new(), 4);
        let [busy, quiet]: [Arc<str>; 2] = ["busy".into(), "quiet".into()];
        let held: Vec<_> = std::iter::from_fn(|| pool.report(&busy)).collect();
        assert_eq!(held.len(), REPORTS);
        assert!(pool.report(&quiet).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn an_erasure_waits_for_the_reports_of_its_project_that_have_begun() {
        let pool = IntakePool::new(&PgConnectOptions::new(), 4);
        let [own, other]: [Arc<str>; 2] = ["own".into(), "other".into()];
        let (_of_other, first) = (pool.report(&other), pool.report(&own));
        let mut erasure = pin!(pool.earlier_reports(&own));
        assert!(erasure.as_mut().now_or_never().is_none(), "the first one is processed");
        let later = pool.report(&own);
        drop(first);
        erasure.now_or_never().expect("what came later is not waited for").expect("in time");
        assert!(matches!(pool.earlier_reports(&own).await, Err(Error::Unavailable(_))), "it takes too long");
        drop(later);
        pool.earlier_reports(&own).await.expect("none is left");
    }
}
