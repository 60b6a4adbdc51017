//! Erases records of all domains by session, age and id. [`retention`] erases expired records automatically.

pub mod retention;
pub mod routes;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::json;
use sqlx::{PgConnection, PgPool, Postgres, Transaction};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::audit::{self, Action};
use crate::auth::Actor;
use crate::db;
use crate::db::erased::{Cause, Counts, KINDS, Piece};
use crate::db::retry::repeat;
use crate::domain::{Domain, SessionName};
use crate::error::Result;
use crate::projects::Tenant;
use crate::searches::late_reports;
use crate::searches::limits::{MOST_NAME, cut};
use crate::state::App;
use crate::types::Timestamp;

/// The maximum number of records that one transaction of an erasure by age or session takes.
const PIECE: i64 = 500;

/// The number of records erased of each kind, such as `generations` and their `attempts`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, ToSchema)]
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

/// Waits until the reports of hooks that were answered before are stored, by whichever server, so that an erasure finds them.
pub async fn after_reports(app: &App, project: &Arc<str>) -> Result<()> {
    app.searches.earlier_reports(project).await?;
    late_reports::earlier(&app.db, project).await
}

/// Erases everything that was recorded under a session's name, in all domains, in batches, each of which is committed on
/// its own, so that writers do not wait for long. A name to which a redaction rule applies is
/// stored redacted, unless the record is older than the rule, and a long one that an agent gave is stored cut.
pub async fn session(
    db: &PgPool,
    tenant: &Arc<Tenant>,
    actor: &Actor,
    session: SessionName<'_>,
) -> Result<Erased> {
    let name = tenant.redacted_name(session.session.to_owned()).await;
    let server = tenant.redacted_name(session.server.map(str::to_owned)).await;
    let [given_cut, name_cut] = [session.session, &name].map(|name| {
        let mut name = name.to_owned();
        cut(&mut name, MOST_NAME);
        name
    });
    let mut names = vec![session];
    for session in [session.session, &name, &given_cut, &name_cut] {
        for server in [names[0].server, server.as_deref()] {
            let name = SessionName { session, server };
            if !names.contains(&name) {
                names.push(name);
            }
        }
    }
    // The audit log does not contain the session's name, because the name is erased too.
    let mut pieces = Pieces::begin(db, tenant, actor, json!({"by": "session"}));
    pieces.erased.add(KINDS.map(|kind| (kind, 0)).into());
    for domain in Domain::ALL {
        for name in &names {
            while pieces.erase(domain, What::Session(*name)).await? {}
        }
    }
    pieces.end().await
}

/// Erases the records with this id in some domains, with everything that belongs to them.
pub async fn record(
    db: &PgPool,
    tenant: &Tenant,
    actor: &Actor,
    domains: &[Domain],
    id: Uuid,
) -> Result<Erased> {
    repeat(|| async {
        let mut transaction = begin(db, &tenant.name).await?;
        let mut erased = Erased::default();
        for domain in domains {
            erased.add(domain.erase_record(&mut transaction, &tenant.name, &tenant.rules, id).await?);
        }
        if !erased.is_nothing() {
            note(&mut transaction, tenant, actor, json!({"by": "id", "id": id, "erased": erased})).await?;
        }
        transaction.commit().await?;
        Ok(erased)
    })
    .await
}

/// The result of an erasure by age.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ErasureByAge)]
pub struct ByAge {
    /// The number of records erased of each kind.
    pub erased: Erased,
    /// Whether there are more records to erase. If so, send the request again.
    pub more: bool,
}

/// Erases the records of some domains that were finalized, or else created, before a time, with all that was learned
/// from them. Records are erased in batches, each of which is committed on its own, until `patience` is over.
pub async fn before(
    db: &PgPool,
    tenant: &Tenant,
    actor: &Actor,
    domains: &[Domain],
    time: Timestamp,
    patience: Duration,
) -> Result<ByAge> {
    let begun = Instant::now();
    let names: Vec<_> = domains.iter().map(|domain| domain.name()).collect();
    let mut pieces = Pieces::begin(db, tenant, actor, json!({"by": "age", "before": time, "domains": names}));
    let mut more = false;
    for domain in domains {
        while !more && pieces.erase(*domain, What::Before(time)).await? {
            more = begun.elapsed() > patience;
        }
    }
    Ok(ByAge { erased: pieces.end().await?, more })
}

/// What is erased of a domain.
#[derive(Clone, Copy)]
enum What<'a> {
    Session(SessionName<'a>),
    /// What was finalized, or else created, before a time.
    Before(Timestamp),
}

/// An erasure in pieces, each of which is committed together with the entry of the audit log that says what was erased so far.
struct Pieces<'a> {
    db: &'a PgPool,
    tenant: &'a Tenant,
    actor: &'a Actor,
    entry: Uuid,
    details: serde_json::Value,
    erased: Erased,
}

impl<'a> Pieces<'a> {
    fn begin(db: &'a PgPool, tenant: &'a Tenant, actor: &'a Actor, details: serde_json::Value) -> Self {
        Self { db, tenant, actor, entry: Uuid::now_v7(), details, erased: Erased::default() }
    }

    /// Erases a piece of a domain. Returns whether there is more to erase.
    async fn erase(&mut self, domain: Domain, what: What<'_>) -> Result<bool> {
        let this = &*self;
        let (erased, more) = repeat(|| async {
            let (project, rules) = (&*this.tenant.name, &this.tenant.rules);
            let mut transaction = begin(this.db, project).await?;
            let Piece { erased: counts, more } = match what {
                What::Session(name) => {
                    domain.erase_session(&mut transaction, project, rules, name, PIECE).await?
                }
                What::Before(time) => {
                    domain.erase_before(&mut transaction, project, rules, time, PIECE, Cause::Request).await?
                }
            };
            let mut erased = this.erased.clone();
            erased.add(counts);
            if erased != this.erased {
                this.note(&mut transaction, &erased).await?;
            }
            transaction.commit().await?;
            Ok((erased, more))
        })
        .await?;
        self.erased = erased;
        Ok(more)
    }

    /// Ends the erasure, which is in the audit log even if it has found nothing.
    async fn end(self) -> Result<Erased> {
        let mut transaction = db::begin(self.db).await?;
        self.note(&mut transaction, &self.erased).await?;
        transaction.commit().await?;
        Ok(self.erased)
    }

    async fn note(&self, connection: &mut PgConnection, erased: &Erased) -> sqlx::Result<()> {
        let mut details = self.details.clone();
        details["erased"] = json!(erased);
        let (project, action) = (&self.tenant.name, Action::RecordsErased);
        audit::note_so_far(connection, self.entry, project, self.actor, action, details).await
    }
}

/// Begins a transaction that erases records of a project.
pub async fn begin(db: &PgPool, project: &str) -> sqlx::Result<Transaction<'static, Postgres>> {
    let mut transaction = db::begin(db).await?;
    alone(&mut transaction, project).await?;
    Ok(transaction)
}

/// Waits until no other transaction erases records of the project. What several records refer to, such as a message that two
/// sends have carried, goes with the last of them, and two erasures at once would each leave it to the other. Only erasures
/// take this lock, before all other locks that they wait for, so that it is in no deadlock.
async fn alone(connection: &mut PgConnection, project: &str) -> sqlx::Result<()> {
    const LOCK: &str = "select pg_advisory_xact_lock(hashtext('gleaner erasures of ' || $1))";
    sqlx::query(LOCK).bind(project).execute(connection).await?;
    Ok(())
}

/// Records an erasure in the audit log.
pub async fn note(
    connection: &mut PgConnection,
    tenant: &Tenant,
    actor: &Actor,
    details: serde_json::Value,
) -> sqlx::Result<()> {
    audit::note(connection, &tenant.name, actor, Action::RecordsErased, details).await
}
