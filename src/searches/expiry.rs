//! The expiry of searches whose agents went silent, because nothing else would report their end.
//!
//! It uses the clocks of the server and the database, because no event tells the time, and the earlier of both, because one
//! may be wrong: a search ends a window after the last event of its agent came in. It ends in the same way as if the next
//! event had come after a silence.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use chrono::TimeDelta;
use sqlx::{AssertSqlSafe, PgPool};
use uuid::Uuid;

use super::rules::learner::longest_silence;
use super::settings::Rules;
use super::write;
use crate::auth::keyring::Keyring;
use crate::background::Rounds;
use crate::db;
use crate::error::{Error, Result};
use crate::projects::Tenant;
use crate::types::Timestamp;

/// The minimum and maximum pause between two checks for searches that are due.
const PAUSES: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(5));

/// The periodic work of ending searches.
#[derive(Debug)]
pub struct Expiry {
    db: PgPool,
    keyring: Arc<Keyring>,
    failed: Failed,
}

impl Expiry {
    /// Makes the work of ending searches in this database.
    #[must_use]
    pub fn new(db: &PgPool, keyring: Arc<Keyring>) -> Self {
        Self { db: db.clone(), keyring, failed: Failed::default() }
    }
}

impl Rounds for Expiry {
    const NAME: &'static str = "the expiry of searches";

    async fn round(&mut self) -> Result<Duration> {
        let now = db::earlier_now(&self.db).await?;
        let next = expire(&self.db, &self.keyring, &mut self.failed, now).await?;
        Ok(next.unwrap_or(PAUSES.1).clamp(PAUSES.0, PAUSES.1))
    }
}

/// The threads whose searches could not be ended, each with its project. They are tried again after a restart.
#[derive(Debug, Default)]
pub struct Failed(Vec<(String, Uuid)>);

impl Failed {
    /// Returns the threads of a project. Threads of other projects may have the same ids.
    fn of(&self, project: &str) -> Vec<Uuid> {
        self.0.iter().filter(|(of, _)| of == project).map(|(_, id)| *id).collect()
    }
}

/// Ends the searches of all agents that have been silent for the window before `now`. Returns the time until the next
/// search may be due, if any is open. Projects without open searches cost nothing. A thread whose searches cannot be
/// ended is logged once, added to `failed` and then skipped, so that it does not keep other searches open.
pub async fn expire(
    db: &PgPool,
    keyring: &Keyring,
    failed: &mut Failed,
    now: Timestamp,
) -> Result<Option<Duration>> {
    let open = open_projects(db, keyring, failed, now).await?;
    let due = open.into_iter().filter(|(_, due)| *due <= TimeDelta::zero());
    let mut due: VecDeque<_> = due.map(|(project, _)| project).collect();
    // Each project gets a piece in turn.
    while let Some(project) = due.pop_front() {
        let Some(tenant) = known(keyring, &project).await else { continue };
        if expire_some(db, &project, &tenant.rules, failed, now).await? {
            due.push_back(project);
        }
    }
    let next = open_projects(db, keyring, failed, now).await?.into_iter().map(|(_, due)| due).min();
    Ok(next.map(|next| next.to_std().unwrap_or_default()))
}

/// Returns a project with its settings. If they cannot be read, other projects do not wait for that.
async fn known(keyring: &Keyring, project: &str) -> Option<Arc<Tenant>> {
    let tenant = keyring.tenant(project).await;
    tenant.inspect_err(|error| tracing::debug!(project, %error, "searches wait for the settings")).ok()
}

/// Returns the projects with open searches, and the time until one of each may be due.
async fn open_projects(
    db: &PgPool,
    keyring: &Keyring,
    failed: &Failed,
    now: Timestamp,
) -> Result<Vec<(String, TimeDelta)>> {
    const OPEN: &str = "
        select project, min(received_at), bool_and(waiting <> '{}') from agent_threads
        where has_open and (project, id) not in (select * from unnest($1::text[], $2::uuid[]))
        group by project";
    let (projects, ids): (Vec<_>, Vec<_>) = failed.0.iter().cloned().unzip();
    let open: Vec<(String, Timestamp, bool)> =
        sqlx::query_as(OPEN).bind(projects).bind(ids).fetch_all(db).await?;
    let mut projects = Vec::with_capacity(open.len());
    for (project, oldest, all_wait) in open {
        let Some(tenant) = known(keyring, &project).await else { continue };
        let due = longest_silence(&tenant.rules, all_wait) - (now.0 - oldest.0);
        projects.push((project, due));
    }
    Ok(projects)
}

/// Ends the searches of some threads that are due. Returns whether there were any. If they cannot be ended together,
/// each is tried alone, to find those that fail.
async fn expire_some(
    db: &PgPool,
    project: &str,
    rules: &Rules,
    failed: &mut Failed,
    now: Timestamp,
) -> Result<bool> {
    const DUE: &str = "
        select id from agent_threads
        where project = $1 and has_open and received_at < case when waiting = '{}' then $2 else $3 end
            and id <> all($4)
        order by received_at limit $5";
    let due: Vec<Uuid> = sqlx::query_scalar(DUE)
        .bind(project)
        .bind(due_before(rules, false, now))
        .bind(due_before(rules, true, now))
        .bind(failed.of(project))
        .bind(i64::try_from(write::MOST_THREADS).unwrap_or(i64::MAX))
        .fetch_all(db)
        .await?;
    match expire_threads(db, project, rules, &due, now).await {
        Err(Error::Internal(_)) => {}
        // The next round tries again. Other projects do not wait for this one.
        Err(error) if error.is_lost_race() => return Ok(false),
        ended => return ended.map(|()| !due.is_empty()),
    }
    for id in due {
        match expire_threads(db, project, rules, &[id], now).await {
            Err(Error::Internal(cause)) => {
                tracing::warn!(project, %id, cause = format!("{cause:#}"), "the searches of a silent agent could not be ended");
                failed.0.push((project.to_owned(), id));
            }
            Err(error) if error.is_lost_race() => return Ok(false),
            ended => ended?,
        }
    }
    Ok(true)
}

/// Returns the time before which the latest event of a thread must have come in for its searches to end.
fn due_before(rules: &Rules, waits: bool, now: Timestamp) -> Option<Timestamp> {
    now.plus(-longest_silence(rules, waits))
}

/// Ends the searches of those of these threads that are still due, in one transaction. It waits only for a short time for
/// what the agents have just said. Exports of other projects need not wait for it, so it has the name of its project's
/// writers.
async fn expire_threads(
    db: &PgPool,
    project: &str,
    rules: &Rules,
    threads: &[Uuid],
    now: Timestamp,
) -> Result<()> {
    const STILL_DUE: &str = "
        select id from agent_threads
        where project = $1 and has_open and received_at < case when waiting = '{}' then $2 else $3 end and id = any($4)
        order by id for no key update";
    if threads.is_empty() {
        return Ok(());
    }
    let begin = format!(
        "begin; set local application_name = '{}'; set local lock_timeout = '200ms'",
        db::writer_name(project)
    );
    let mut transaction = db::begin_with(db, AssertSqlSafe(begin)).await?;
    let due: Vec<Uuid> = sqlx::query_scalar(STILL_DUE)
        .bind(project)
        .bind(due_before(rules, false, now))
        .bind(due_before(rules, true, now))
        .bind(threads)
        .fetch_all(&mut *transaction)
        .await?;
    write::expire(&mut transaction, project, rules, &due, now).await?;
    transaction.commit().await?;
    Ok(())
}
