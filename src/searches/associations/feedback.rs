//! Reports of clients about associations: whether one was useful, and that a file no longer exists.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use utoipa::ToSchema;
use uuid::Uuid;

use super::evidence::{self, Evidence, Kind};
use super::feed::Feed;
use super::{Association, get};
use crate::db::retry::repeat;
use crate::domain::Domain;
use crate::error::{Error, Result};
use crate::http::{Check, Checks};
use crate::privacy::hash_key::HashKey;
use crate::privacy::kept::Kept;
use crate::privacy::policy::Private;
use crate::privacy::redact::{Redaction, Texts as _};
use crate::projects::Tenant;
use crate::searches::intake_pool::IntakePool;
use crate::searches::limits::MOST_PATH;
use crate::searches::rules::paths;
use crate::searches::rules::repository::{file_id, repository};
use crate::types::{OptionalName, Timestamp};

/// The weight of a report that an association was useful.
const USEFUL: f64 = 1.0;

/// Feedback on an association.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewAssociationFeedback)]
pub struct NewFeedback {
    /// Whether the association was useful.
    pub verdict: Verdict,
}

impl Check for NewFeedback {}

/// Whether an association was useful.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = AssociationVerdict)]
pub enum Verdict {
    /// The association helped.
    Useful,
    /// The association did not help. It loses more than half of its weight, and is no longer listed at 0 or less.
    Wrong,
}

/// A verdict on one association. The same `source` counts once.
#[derive(Debug)]
pub struct Feedback {
    /// The id of the association that the verdict is about.
    pub association: Uuid,
    /// The id under which the verdict is stored as evidence.
    pub source: Uuid,
    /// Whether the association was useful.
    pub verdict: Verdict,
}

impl Private for Feedback {
    fn domain(&self) -> Domain {
        Domain::Searches
    }

    fn reduce(self, _: &HashKey) -> Option<Self> {
        None
    }

    fn redact(&mut self, _: &mut Redaction<'_>) {}
}

/// Adds a verdict to the evidence for its association. Returns the association with its new weight.
pub async fn give(pool: &IntakePool, tenant: &Tenant, feedback: &Kept<Feedback>) -> Result<Association> {
    // Exports compare the time with those of searches, which are by the clock of the database.
    const OPPOSITE: &str = "
        select clock_timestamp(), exists (
            select from association_evidence
            where project = $1 and association_id = $2 and source = $3 and kind <> $4)";
    let (project, rules, id) = (&*tenant.name, &tenant.rules, feedback.association);
    repeat(|| async {
        let (_place, mut transaction) = pool.begin(&tenant.name).await?;
        let feed = Feed::lock(&mut transaction, project).await?;
        let Some(association) = get(&mut *transaction, project, id, rules).await? else {
            return Err(Error::NotFound("association"));
        };
        let (kind, weight) = match feedback.verdict {
            Verdict::Useful => (Kind::Useful, USEFUL),
            Verdict::Wrong => (Kind::Wrong, -(1.0 + association.weight.max(0.0) / 2.0)),
        };
        let source = feedback.source;
        let opposite = sqlx::query_as(OPPOSITE).bind(project).bind(id).bind(source).bind(kind);
        let (at, is_opposite): (Timestamp, bool) = opposite.fetch_one(&mut *transaction).await?;
        if is_opposite {
            let detail = format!("the feedback on the association {id} already exists with another verdict");
            return Err(Error::Conflict(detail));
        }
        let evidence = [Evidence { association: id, source, kind, weight, at, rank: 0 }];
        if evidence::insert(&mut transaction, project, rules, &evidence).await? > 0 {
            feed.note(&mut transaction, project, &[id]).await?;
        }
        let association = get(&mut *transaction, project, id, rules).await?;
        transaction.commit().await?;
        association.ok_or(Error::NotFound("association"))
    })
    .await
}

/// A file that no longer exists.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct GoneFile {
    /// The folder that contained the file. Leave it out for associations without a known root.
    #[serde(default)]
    #[schema(value_type = Option<String>, max_length = 4096)]
    root: OptionalName,
    /// The path of the file.
    #[schema(min_length = 1, max_length = 4096)]
    path: String,
}

impl Check for GoneFile {
    fn check(&self, checks: &mut Checks) {
        checks.text("path", &self.path, MOST_PATH);
        if let Some(root) = self.root.as_deref() {
            checks.text("root", root, MOST_PATH);
        }
    }
}

impl Private for GoneFile {
    fn domain(&self) -> Domain {
        Domain::Searches
    }

    fn reduce(self, _: &HashKey) -> Option<Self> {
        None
    }

    fn redact(&mut self, redaction: &mut Redaction<'_>) {
        self.root.texts(redaction);
        self.path.texts(redaction);
    }
}

/// Marks the associations with a file that no longer exists. Returns their number.
pub async fn mark_gone(pool: &IntakePool, project: &Arc<str>, file: &Kept<GoneFile>) -> Result<usize> {
    // The rows are locked in the order in which those who touch files lock them.
    const TOUCHED: &str = "
        with touched as materialized (
            select thread_id from touched_files where project = $1 and file_id = $2
            order by thread_id for no key update
        )
        update touched_files f set gone = true from touched
        where f.project = $1 and f.thread_id = touched.thread_id and f.file_id = $2";
    const ASSOCIATIONS: &str = "
        update associations a set gone_at = $4
        from association_queries q
        where a.project = $1 and md5(a.path) = md5($3) and a.path = $3 and a.gone_at is null
            and q.project = $1 and q.id = a.query_id and q.root = $2
        returning a.id";
    let root = file.root.as_deref().map(paths::folder);
    let path = paths::normalise(&file.path, root.as_deref(), root.as_deref());
    let repository = root.as_deref().map(repository).unwrap_or_default();
    let root = root.unwrap_or_default();
    repeat(|| async {
        let (_place, mut transaction) = pool.begin(project).await?;
        // Whoever changes files and associations takes the files first.
        if !repository.is_empty() {
            let query = sqlx::query(TOUCHED).bind(&**project).bind(file_id(&repository, &path));
            query.execute(&mut *transaction).await?;
        }
        let feed = Feed::lock(&mut transaction, project).await?;
        let ids: Vec<Uuid> = sqlx::query_scalar(ASSOCIATIONS)
            .bind(&**project)
            .bind(&root)
            .bind(&path)
            .bind(Timestamp::now())
            .fetch_all(&mut *transaction)
            .await?;
        feed.note(&mut transaction, project, &ids).await?;
        transaction.commit().await?;
        Ok(ids.len())
    })
    .await
}
