//! What the intake of agents' reports shares: database connections, and the order in which senders take turns.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, PgPool, Postgres, Transaction};
use tokio::sync::OwnedMutexGuard;
use uuid::Uuid;

use crate::db;
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
    turns: Arc<Mutex<HashMap<Uuid, Weak<tokio::sync::Mutex<()>>>>>,
    /// The places for hook reports, whose processing may outlast their requests.
    reports: Shares,
}

impl IntakePool {
    /// Makes a pool of at most this many connections.
    #[must_use]
    pub fn new(options: &PgConnectOptions, connections: u32) -> Self {
        let db = db::pool(options, db::WRITER_NAME, connections);
        let connections = connections as usize;
        let shares = Shares::with_total((connections / 2).max(1), connections);
        Self { db, shares, turns: Arc::default(), reports: Shares::new(REPORTS) }
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

    /// Returns a place for a hook report of a project, or none if it has too many.
    pub fn place(&self, project: &Arc<str>) -> Option<Place> {
        self.reports.try_take(project, 1)
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
    use super::*;

    #[tokio::test]
    async fn a_project_leaves_places_for_the_hook_reports_of_others() {
        let pool = IntakePool::new(&PgConnectOptions::new(), 4);
        let [busy, quiet]: [Arc<str>; 2] = ["busy".into(), "quiet".into()];
        let held: Vec<_> = std::iter::from_fn(|| pool.place(&busy)).collect();
        assert_eq!(held.len(), REPORTS);
        assert!(pool.place(&quiet).is_some());
    }
}
