//! Rates and quotas: the number of requests per second of a key or project, the bytes per day and the records of a
//! project. None apply unless they are set. Each server counts on its own, and rates and bytes start at zero when it
//! starts.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::http::request::Parts;
use chrono::{NaiveDate, NaiveTime, Utc};
use governor::clock::{Clock as _, DefaultClock};
use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};
use sqlx::{PgPool, Postgres, QueryBuilder};
use uuid::Uuid;

use super::keys::ApiKey;
use crate::domain::Domain;
use crate::error::{Error, Result};
use crate::http::received;
use crate::projects::Tenant;
use crate::projects::room::Room;

/// The key or project of a rate.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Whose {
    Key(Uuid),
    Project(Arc<str>),
}

/// The bytes that a project has sent on a day, in UTC.
#[derive(Debug, Clone)]
struct Sent {
    day: NaiveDate,
    bytes: Arc<AtomicU64>,
}

/// The use of rates and quotas by keys and projects. Only keys and projects with limits are tracked.
#[derive(Debug, Default)]
pub struct Rates {
    requests: Mutex<HashMap<Whose, (NonZeroU32, Arc<DefaultDirectRateLimiter>)>>,
    sent: Mutex<HashMap<Arc<str>, Sent>>,
    rooms: Mutex<HashMap<Arc<str>, Arc<Room>>>,
}

impl Rates {
    /// Returns what a project with a quota of records may still store, which outlives what was read of its settings.
    pub(super) fn room(&self, project: &Arc<str>) -> Arc<Room> {
        let mut rooms = self.rooms.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(rooms.entry(Arc::clone(project)).or_default())
    }

    /// Admits a request, or rejects it with 429 because a rate or the quota of bytes is used up, which applies to requests that
    /// write. For these, records are counted.
    pub async fn admit(
        &self,
        db: &PgPool,
        key: Option<&ApiKey>,
        tenant: &Tenant,
        writes: bool,
        parts: &Parts,
    ) -> Result<()> {
        if let Some(key) = key
            && let Some(rate) = key.requests_per_second.and_then(|rate| u32::try_from(rate).ok())
        {
            self.count_request(Whose::Key(key.id), rate)?;
        }
        let quotas = &tenant.quotas;
        if let Some(rate) = quotas.requests_per_second {
            self.count_request(Whose::Project(Arc::clone(&tenant.name)), rate)?;
        }
        if !writes {
            return Ok(());
        }
        if let Some(most) = quotas.bytes_per_day {
            self.count_bytes(&tenant.name, most, parts)?;
        }
        count_records(db, tenant).await
    }

    fn count_request(&self, whose: Whose, rate: u32) -> Result<()> {
        let Some(rate) = NonZeroU32::new(rate) else { return Ok(()) };
        let policy = match whose {
            Whose::Key(_) => "key",
            Whose::Project(_) => "project",
        };
        let limiter = {
            let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
            let (of, limiter) = requests.entry(whose).or_insert_with(|| new_limiter(rate));
            if *of != rate {
                (*of, *limiter) = new_limiter(rate);
            }
            Arc::clone(limiter)
        };
        let clock = DefaultClock::default();
        limiter.check().map_err(|until| {
            let wait = until.wait_time_from(clock.now());
            let detail = format!("this {policy} has sent more than {rate} requests per second");
            Error::exceeded(policy, rate.get().into(), Duration::from_secs(1), wait, detail)
        })
    }

    fn count_bytes(&self, project: &Arc<str>, most: u64, parts: &Parts) -> Result<()> {
        let now = Utc::now();
        let count = {
            let mut sent = self.sent.lock().unwrap_or_else(PoisonError::into_inner);
            let new = || Sent { day: now.date_naive(), bytes: Arc::default() };
            let own = sent.entry(Arc::clone(project)).or_insert_with(new);
            if own.day != now.date_naive() {
                *own = new();
            }
            Arc::clone(&own.bytes)
        };
        if count.load(Ordering::Relaxed) >= most {
            const DAY: Duration = Duration::from_hours(24);
            let passed = (now.time() - NaiveTime::MIN).to_std().unwrap_or_default();
            let detail = format!("this project has used its quota of {most} bytes for today (UTC)");
            return Err(Error::exceeded("bytes", most, DAY, DAY.saturating_sub(passed), detail));
        }
        received::add_to(&count, &parts.headers, &parts.extensions);
        Ok(())
    }
}

fn new_limiter(rate: NonZeroU32) -> (NonZeroU32, Arc<DefaultDirectRateLimiter>) {
    (rate, Arc::new(RateLimiter::direct(Quota::per_second(rate))))
}

/// Counts the records of a project with a quota of them, if that was not done lately. Whoever adds records asks for room. Others, who end
/// what was begun, are not refused.
pub(super) async fn count_records(db: &PgPool, tenant: &Tenant) -> Result<()> {
    match tenant.quotas.rows {
        Some(most) => tenant.room.count(most, records_left(db, &tenant.name, most)).await,
        None => Ok(()),
    }
}

/// Returns how many records a project may still store in all domains together.
async fn records_left(db: &PgPool, project: &str, quota: u64) -> Result<i64> {
    let mut left = i64::try_from(quota).unwrap_or(i64::MAX);
    for domain in Domain::ALL {
        let table = domain.session_columns().table;
        let mut query = QueryBuilder::<Postgres>::new(format!(
            "select count(*) from (select from {table} where project = "
        ));
        query.push_bind(project).push(" limit ").push_bind(left.max(0)).push(") records");
        let count: i64 = query.build_query_scalar().fetch_one(db).await?;
        left -= count;
    }
    Ok(left)
}
