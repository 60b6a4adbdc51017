//! The expiry of searches whose agents went silent, because nobody would tell of their end.
//!
//! It goes by our own clock, as no event tells the time: a search ends a window after the last event of its agent came in. It
//! ends in the same way as if the next event had come after a silence.

use std::sync::Arc;
use std::time::Duration;

use chrono::TimeDelta;
use sqlx::PgPool;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use uuid::Uuid;

use super::rules::learner::longest_silence;
use super::settings::Rules;
use super::write;
use crate::auth::keyring::Keyring;
use crate::error::Result;
use crate::types::Timestamp;

/// The shortest and the longest pause between two looks at what is due.
const PAUSES: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(5));
/// How many threads one transaction ends.
const PIECE: i64 = 100;

/// The background task that ends searches.
#[derive(Debug)]
pub struct Task {
    stop: watch::Sender<bool>,
    handle: JoinHandle<()>,
}

impl Task {
    /// Starts the task.
    #[must_use]
    pub fn start(db: &PgPool, keyring: Arc<Keyring>) -> Self {
        let (stop, mut stopped) = watch::channel(false);
        let db = db.clone();
        let handle = tokio::spawn(async move {
            loop {
                let pause = match expire(&db, &keyring, Timestamp::now()).await {
                    Ok(next) => next.unwrap_or(PAUSES.1).clamp(PAUSES.0, PAUSES.1),
                    Err(error) => {
                        tracing::debug!(%error, "searches could not be expired");
                        PAUSES.1
                    }
                };
                tokio::select! {
                    () = tokio::time::sleep(pause) => {}
                    _ = stopped.changed() => return,
                }
            }
        });
        Self { stop, handle }
    }

    /// Stops the task, once the transaction that it is at is over.
    pub async fn finish(self) {
        let _ = self.stop.send(true);
        if let Err(error) = self.handle.await {
            tracing::error!(%error, "expiry ended badly");
        }
    }
}

/// Ends the searches of all agents of which nothing has come in for the window before `now`; returns how long it is until the
/// next may be due, if any is open.
pub async fn expire(db: &PgPool, keyring: &Keyring, now: Timestamp) -> Result<Option<Duration>> {
    const OPEN: &str = "
        select min(received_at), bool_and(waiting <> '{}') from agent_threads where project = $1 and has_open";
    let projects: Vec<String> = sqlx::query_scalar("select name from projects").fetch_all(db).await?;
    let mut next: Option<TimeDelta> = None;
    for project in projects {
        let rules = &keyring.tenant(&project).await?.rules;
        while expire_some(db, &project, rules, now).await? {}
        let (oldest, all_wait): (Option<Timestamp>, Option<bool>) =
            sqlx::query_as(OPEN).bind(&project).fetch_one(db).await?;
        let silence = longest_silence(rules, all_wait == Some(true));
        let due = oldest.map(|oldest| silence - (now.0 - oldest.0));
        next = due.into_iter().chain(next).min();
    }
    Ok(next.map(|next| next.to_std().unwrap_or_default()))
}

/// Ends the searches of some threads that are due; returns whether there were any.
async fn expire_some(db: &PgPool, project: &str, rules: &Rules, now: Timestamp) -> Result<bool> {
    const DUE: &str = "
        select id from agent_threads
        where project = $1 and has_open and received_at < case when waiting = '{}' then $2 else $3 end
        order by received_at limit $4";
    const STILL_DUE: &str = "
        select id from agent_threads
        where project = $1 and has_open and received_at < case when waiting = '{}' then $2 else $3 end and id = any($4)
        order by id for no key update";
    let before = |waits| now.plus(-longest_silence(rules, waits));
    let mut transaction = db.begin().await?;
    let due: Vec<Uuid> = sqlx::query_scalar(DUE)
        .bind(project)
        .bind(before(false))
        .bind(before(true))
        .bind(PIECE)
        .fetch_all(&mut *transaction)
        .await?;
    if due.is_empty() {
        return Ok(false);
    }
    let query = sqlx::query_scalar(STILL_DUE).bind(project).bind(before(false)).bind(before(true)).bind(due);
    let due: Vec<Uuid> = query.fetch_all(&mut *transaction).await?;
    write::expire(&mut transaction, project, rules, &due, now).await?;
    transaction.commit().await?;
    Ok(true)
}
