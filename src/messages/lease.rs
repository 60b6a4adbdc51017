//! Ends abandoned sends: those whose clients never reported the result, and those of servers that died. Each send has
//! a lease, and a server renews the leases of the sends that it performs. On this occasion it learns which of them were
//! cancelled by way of another server.

use std::sync::Arc;
use std::time::Duration;

use chrono::TimeDelta;
use sqlx::PgPool;
use sqlx::types::Json;

use super::failure::own;
use super::in_flight::InFlight;
use super::rules::errors::Kind;
use crate::background::Rounds;
use crate::db::{self, retry};
use crate::error::Result;

/// The pause between two checks of the leases, after which a call ends whose send was cancelled by way of another server.
const PAUSE: Duration = Duration::from_secs(2);

/// The background work that ends sends with an expired lease.
#[derive(Debug)]
pub struct Leases {
    /// Connections to the database.
    pub db: PgPool,
    /// The sends that this server performs.
    pub in_flight: Arc<InFlight>,
}

impl Rounds for Leases {
    const NAME: &'static str = "ending abandoned sends";

    async fn round(&mut self) -> Result<Duration> {
        self.in_flight.renew(&self.db).await?;
        interrupt(&self.db, TimeDelta::zero()).await?;
        Ok(PAUSE)
    }
}

/// Ends the sends whose lease has expired, by the database's clock and after so much more time, as interrupted: of each
/// project up to a thousand that nobody else is changing, so that a project delays neither the others nor the renewal of
/// leases.
pub async fn interrupt(db: &PgPool, later: TimeDelta) -> Result<()> {
    const BEGIN: &str = "begin; set local lock_timeout = '200ms'";
    const PROJECTS: &str =
        "select distinct project from sends where state = 'sending' and lease_until < now() + $1";
    const SENDS: &str = "
        update sends set state = 'error', stage = 'interrupted', error = $3, error_class = $4, lease_until = null,
            completed_at = clock_timestamp()
        where project = $1 and id = any(array(
            select id from sends where project = $1 and state = 'sending' and lease_until < now() + $2
            order by lease_until limit 1000 for no key update skip locked
        ))
        returning pair_id";
    const PAIRS: &str = "
        update pairs set lifecycle_state = 'error', error = $3
        where project = $1 and id = any($2) and lifecycle_state = 'sending'";
    let error = own(Kind::Interrupted, "The send was never ended.");
    let projects: Vec<String> = sqlx::query_scalar(PROJECTS).bind(later).fetch_all(db).await?;
    for project in projects {
        let mut transaction = db::begin_with(db, BEGIN).await?;
        let pairs: Vec<uuid::Uuid> = sqlx::query_scalar(SENDS)
            .bind(&project)
            .bind(later)
            .bind(Json(&error))
            .bind(error.class)
            .fetch_all(&mut *transaction)
            .await?;
        let ended = sqlx::query(PAIRS).bind(&project).bind(&pairs).bind(Json(&error));
        match ended.execute(&mut *transaction).await {
            Err(error) if retry::lost_a_race(&error) => continue,
            ended => ended?,
        };
        transaction.commit().await?;
        metrics::counter!("gleaner_sends_interrupted_total").increment(pairs.len() as u64);
    }
    Ok(())
}
