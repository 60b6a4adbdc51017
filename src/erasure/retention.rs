//! Retention erases records automatically after the number of days that their project's settings give, counted from
//! when they were finalized, or created if they never were.
//!
//! Records are erased in small batches, each in its own transaction. The size of a batch adapts to how long the last
//! one of its project and domain took, and the pause after a batch is several times as long as the batch, so that erasing never
//! takes most of the time. Projects take turns: half of the time is for those that have more expired records than a batch erases, and
//! the other half is for looking at the rest. What was learned from searches keeps its weight.

use std::collections::{BTreeMap, VecDeque};
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

/// The minimum time from the beginning of one pass over all projects to that of the next one.
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
    /// When the current pass began.
    begun: Option<Timestamp>,
    /// The records at which the current pass has not looked yet.
    ahead: VecDeque<Records>,
    /// The records of which some have been erased, and more may have expired.
    more: BTreeMap<Records, Progress>,
    /// How long this pass has looked at records of which no more have expired, and how long it has erased others.
    looking: Duration,
    erasing: Duration,
    /// The least time that any of the records in `more` had taken when the pass began.
    least: Duration,
}

/// The records of a project in a domain.
type Records = (String, Domain);

/// How far the erasing of a project's records of a domain is.
#[derive(Debug, Clone, Copy)]
struct Progress {
    /// How long the batches have taken. Whoever has taken the least time is next, so that batches which take long delay mostly
    /// themselves.
    taken: Duration,
    /// The number of records of the next batch.
    most: i64,
}

impl Retention {
    /// Makes the work for this database.
    #[must_use]
    pub fn new(db: &PgPool, keyring: Arc<Keyring>) -> Self {
        Self {
            db: db.clone(),
            keyring,
            begun: None,
            ahead: VecDeque::new(),
            more: BTreeMap::new(),
            looking: Duration::ZERO,
            erasing: Duration::ZERO,
            least: Duration::ZERO,
        }
    }

    /// Erases one batch. A pass over all projects begins when the one before has looked at all of them, a minute after that began.
    /// Returns whether there may be more to erase before the next pass.
    pub async fn piece(&mut self, now: Timestamp) -> Result<bool> {
        let lasts = self.begun.is_some_and(|begun| (now.0 - begun.0).abs() < PASS);
        if self.ahead.is_empty() && (self.more.is_empty() || !lasts) {
            for project in projects(&self.db).await? {
                let records = Domain::ALL.map(|domain| (project.clone(), domain));
                self.ahead.extend(records.into_iter().filter(|records| !self.more.contains_key(records)));
            }
            self.begun = Some(now);
            (self.looking, self.erasing) = Default::default();
            self.least = self.more.values().map(|progress| progress.taken).min().unwrap_or_default();
        }
        let behind = self.more.iter().min_by_key(|(_, progress)| progress.taken);
        let behind = behind.map(|(records, progress)| (records.clone(), *progress));
        let next = match behind {
            Some(next) if self.ahead.is_empty() || self.erasing < self.looking => Some(next),
            _ => self.ahead.pop_front().map(|new| (new, Progress { taken: self.least, most: FIRST })),
        };
        if let Some((records, mut progress)) = next {
            let begun = Instant::now();
            let has_more = self.erase(&records.0, records.1, &mut progress.most, now).await;
            let took = begun.elapsed();
            progress.taken += took;
            if has_more.as_ref().is_ok_and(|has_more| *has_more) {
                self.erasing += took;
                self.more.insert(records, progress);
            } else {
                self.looking += took;
                self.more.remove(&records);
            }
            has_more?;
        }
        Ok(!self.ahead.is_empty() || !self.more.is_empty())
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
