//! Erasure of records in all domains: by their session, by their age and by their id. [`retention`] erases by itself what a
//! project wants to keep no longer.

pub mod retention;
pub mod routes;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde::Serialize;
use sqlx::PgPool;
use utoipa::ToSchema;
use uuid::Uuid;

use crate::db::erased::{Counts, Learned};
use crate::domain::{Domain, SessionName};
use crate::error::Result;
use crate::projects::Tenant;
use crate::types::Timestamp;

/// The most records that one transaction of an erasure by age takes.
const PIECE: i64 = 500;

/// How many records of each kind were erased, such as `generations` and their `attempts`.
#[derive(Debug, Default, Serialize, ToSchema)]
#[serde(transparent)]
#[schema(as = ErasedRecordCounts)]
pub struct Erased(BTreeMap<&'static str, u64>);

impl Erased {
    /// Returns whether nothing was erased.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        self.0.values().all(|count| *count == 0)
    }

    /// Returns the kinds of records, each with how many were erased.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.0.iter().map(|(kind, count)| (*kind, *count))
    }

    fn add(&mut self, counts: Counts) {
        for (kind, count) in counts {
            *self.0.entry(kind).or_default() += count;
        }
    }
}

/// Erases everything that was recorded under a session's name, in all domains.
pub async fn session(db: &PgPool, tenant: &Tenant, session: SessionName<'_>) -> Result<Erased> {
    let mut transaction = db.begin().await?;
    let mut erased = Erased::default();
    for domain in Domain::ALL {
        erased.add(domain.erase_session(&mut transaction, &tenant.name, &tenant.rules, session).await?);
    }
    transaction.commit().await?;
    Ok(erased)
}

/// Erases the records with this id in some domains, with everything that belongs to them.
pub async fn record(db: &PgPool, tenant: &Tenant, domains: &[Domain], id: Uuid) -> Result<Erased> {
    let mut transaction = db.begin().await?;
    let mut erased = Erased::default();
    for domain in domains {
        erased.add(domain.erase_record(&mut transaction, &tenant.name, &tenant.rules, id).await?);
    }
    transaction.commit().await?;
    Ok(erased)
}

/// What an erasure by age has come to.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ErasureByAge)]
pub struct ByAge {
    /// How many records of each kind were erased.
    pub erased: Erased,
    /// Whether there are more records to erase, for which the request is to be sent again.
    pub more: bool,
}

/// Erases the records of some domains that were finalized, or else created, before a time, with all that was learned from
/// them. It is done in pieces, each committed by itself, and ends early when `patience` is over.
pub async fn before(
    db: &PgPool,
    tenant: &Tenant,
    domains: &[Domain],
    time: Timestamp,
    patience: Duration,
) -> Result<ByAge> {
    let begun = Instant::now();
    let mut erased = Erased::default();
    for domain in domains {
        loop {
            let mut transaction = db.begin().await?;
            let piece = domain
                .erase_before(&mut transaction, &tenant.name, &tenant.rules, time, PIECE, Learned::Forget)
                .await?;
            transaction.commit().await?;
            erased.add(piece.erased);
            if !piece.more {
                break;
            }
            if begun.elapsed() > patience {
                return Ok(ByAge { erased, more: true });
            }
        }
    }
    Ok(ByAge { erased, more: false })
}
