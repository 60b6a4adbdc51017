//! Retention erases records automatically after the number of days that their project's settings give, counted from
//! when they were finalized, or created if they never were.
//!
//! Records are erased in small batches, each in its own transaction. The size of a batch adapts to how long the last
//! one of its project and domain took, and the pause after a batch is several times as long as the batch, so that erasing never
//! takes most of the time. Projects take turns, also those of which records expire while many of another one are erased. What was
//! learned from searches keeps its weight.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use chrono::TimeDelta;
use sqlx::PgPool;

use crate::auth::keyring::Keyring;
use crate::background::Rounds;
use crate::db;
use crate::db::erased::Cause;
use crate::db::retry::repeat;
use crate::domain::Domain;
use crate::error::Result;
use crate::telemetry::EXPIRED;
use crate::types::Timestamp;

/// The pause between two passes over all projects. A pass that takes longer looks for all of them again.
const PASS: TimeDelta = TimeDelta::minutes(1);
/// The length of the pause after a batch, as a multiple of the batch's duration.
const REST: u32 = 4;
/// The minimum and maximum number of records of a batch.
const PIECES: (i64, i64) = (10, 1_000);
/// The number of records of the first batch.
const FIRST: i64 = 100;
/// The target duration of a batch. After a shorter one, the next batch is larger; after a longer one, smaller.
const PIECE_TIME: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(40));

/// The background work of retention.
#[derive(Debug)]
pub struct Retention {
    db: PgPool,
    keyring: Arc<Keyring>,
    /// What is left of the current pass.
    left: BTreeMap<(String, Domain), Progress>,
    /// When projects were last looked for.
    looked: Option<Timestamp>,
    /// The number of batches so far.
    batches: u64,
}

/// How far the erasing of a project's records of a domain is.
#[derive(Debug, Clone, Copy)]
struct Progress {
    /// How long the batches have taken. Whoever has taken the least time is next, so that batches which take long delay mostly
    /// themselves.
    taken: Duration,
    /// The number of batches before the last one of these records, or before they became part of the pass. Of those that have taken
    /// equally little time, the ones that have waited longest are next.
    since: u64,
    /// The number of records of the next batch.
    most: i64,
}

impl Retention {
    /// Makes the work for this database.
    #[must_use]
    pub fn new(db: &PgPool, keyring: Arc<Keyring>) -> Self {
        Self { db: db.clone(), keyring, left: BTreeMap::new(), looked: None, batches: 0 }
    }

    /// Erases one batch of the current pass over all projects. Projects that have none left in it are part of it again after
    /// a minute. Returns whether the pass goes on.
    pub async fn piece(&mut self, now: Timestamp) -> Result<bool> {
        let looked = self.looked.filter(|looked| (now.0 - looked.0).abs() < PASS);
        if self.left.is_empty() || looked.is_none() {
            let taken = self.left.values().map(|progress| progress.taken).min().unwrap_or_default();
            for project in projects(&self.db).await? {
                for domain in Domain::ALL {
                    let new = Progress { taken, since: self.batches, most: FIRST };
                    self.left.entry((project.clone(), domain)).or_insert(new);
                }
            }
            self.looked = Some(now);
        }
        self.batches += 1;
        let next = self.left.iter().min_by_key(|(_, progress)| (progress.taken, progress.since));
        if let Some(((project, domain), progress)) = next {
            let (of, mut progress) = ((project.clone(), *domain), *progress);
            let begun = Instant::now();
            let has_more = self.erase(&of.0, of.1, &mut progress.most, now).await;
            progress.taken += begun.elapsed();
            progress.since = self.batches;
            if has_more.as_ref().is_ok_and(|has_more| *has_more) {
                self.left.insert(of, progress);
            } else {
                self.left.remove(&of);
            }
            has_more?;
        }
        Ok(!self.left.is_empty())
    }

    /// Erases one batch of a project's expired records. Returns whether there may be more.
    async fn erase(&self, project: &str, domain: Domain, most: &mut i64, now: Timestamp) -> Result<bool> {
        // What a project is writing does not delay the others.
        const BEGIN: &str = "begin; set local lock_timeout = '200ms'";
        const MINE: &str = "select pg_try_advisory_xact_lock(hashtext('gleaner retention'))";
        let tenant = self.keyring.tenant(project).await?;
        let Some(days) = tenant.retention.get(domain) else { return Ok(false) };
        let Some(before) = now.plus(-TimeDelta::days(days.get().into())) else { return Ok(false) };
        let begun = Instant::now();
        let (db, limit) = (&self.db, *most);
        let piece = repeat(|| async {
            let mut transaction = db::begin_with(db, BEGIN).await?;
            // Several servers may share the database, and one at a time is enough.
            if !sqlx::query_scalar::<_, bool>(MINE).fetch_one(&mut *transaction).await? {
                return Ok(None);
            }
            let piece = async {
                super::alone(&mut transaction, project).await?;
                domain.erase_before(&mut transaction, project, &tenant.rules, before, limit, Cause::Age).await
            };
            let piece = match piece.await {
                Ok(piece) => piece,
                Err(error) => {
                    // A transaction that is dropped still has its lock for a moment, and the next batch would find it taken.
                    drop(transaction.rollback().await);
                    return Err(error);
                }
            };
            transaction.commit().await?;
            Ok(Some(piece))
        });
        let piece = match piece.await {
            // The next pass tries again.
            Err(error) if error.is_lost_race() => return Ok(false),
            piece => piece?,
        };
        let Some(piece) = piece else { return Ok(false) };
        let (short, long) = PIECE_TIME;
        match begun.elapsed() {
            took if took > long => *most = (limit / 2).max(PIECES.0),
            took if took < short => *most = (limit * 2).min(PIECES.1),
            _ => {}
        }
        for (kind, count) in piece.erased {
            metrics::counter!(EXPIRED, "kind" => kind).increment(count);
        }
        Ok(piece.more)
    }
}

impl Rounds for Retention {
    const NAME: &'static str = "retention";

    async fn round(&mut self) -> Result<Duration> {
        let begun = Instant::now();
        let now = db::earlier_now(&self.db).await?;
        let goes_on = self.piece(now).await?;
        Ok(if goes_on { begun.elapsed() * REST } else { PASS.to_std().unwrap_or_default() })
    }
}

/// Returns the projects with a retention setting.
async fn projects(db: &PgPool) -> sqlx::Result<Vec<String>> {
    const SQL: &str =
        "select name from projects where jsonb_typeof(settings -> 'retention_days') = 'object' order by name";
    sqlx::query_scalar(SQL).fetch_all(db).await
}
