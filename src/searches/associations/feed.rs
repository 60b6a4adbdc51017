//! The change feed of associations, which an external index can follow.
//!
//! Every change gets the next number of its project. An association stores only the number of its latest change, and
//! a client gets its current state, and no change twice.
//!
//! # Why a lock and not a sequence
//!
//! With a sequence, a transaction could take a number and commit after a later number was already read. A transaction
//! that changes associations therefore first locks the project's row in `association_feeds`, and holds the lock until
//! the commit. Numbers become visible in their order, and a client that has read up to one has missed none before it.
//! Because every such transaction takes this lock before any association, no two of them can deadlock.
//! `association_changes` has only the latest number of each association, and of an erased association nothing else.

use serde::Serialize;
use sqlx::{PgConnection, PgPool};
use utoipa::ToSchema;
use uuid::Uuid;

use super::now;
use crate::db::rows;
use crate::error::Result;
use crate::http::memory::Memory;
use crate::searches::settings::Rules;
use crate::types::Timestamp;

/// The lock on a project's feed, held until the transaction ends. A transaction that changes associations takes it
/// first, so that no two of them wait for each other's rows.
#[derive(Debug)]
pub(super) struct Feed {
    last: i64,
}

impl Feed {
    /// Locks the feed, once no other transaction holds it.
    pub(super) async fn lock(connection: &mut PgConnection, project: &str) -> sqlx::Result<Self> {
        const SQL: &str = "
            insert into association_feeds as f (project, last_change) values ($1, 0)
            on conflict (project) do update set last_change = f.last_change
            returning last_change";
        Ok(Self { last: sqlx::query_scalar(SQL).bind(project).fetch_one(connection).await? })
    }

    /// Gives these associations, which have changed, the next numbers.
    pub(super) async fn note(
        self,
        connection: &mut PgConnection,
        project: &str,
        associations: &[Uuid],
    ) -> sqlx::Result<()> {
        const SQL: &str = "
            with changed as (
                insert into association_changes as c (project, association_id, change)
                select $1, new.id, $3 + new.position from unnest($2::uuid[]) with ordinality as new (id, position)
                on conflict (project, association_id) do update set change = excluded.change
            )
            update association_feeds set last_change = $3 + cardinality($2) where project = $1";
        if !associations.is_empty() {
            sqlx::query(SQL).bind(project).bind(associations).bind(self.last).execute(connection).await?;
        }
        Ok(())
    }
}

/// An association that has changed, in its current state.
#[derive(Debug, Serialize, ToSchema, sqlx::FromRow)]
#[schema(as = AssociationChange)]
pub struct Change {
    /// The number of the change, which is greater than the number of any earlier change.
    pub change: i64,
    /// The id of the association.
    id: Uuid,
    /// The kind of the change: `learned` (the association now has these values), `refuted` (its weight is now 0 or
    /// less, so that it should not be shown), `gone` (its file no longer exists) or `erased` (it should be deleted,
    /// and has no other values).
    kind: String,
    /// The query that was answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    query: Option<String>,
    /// The folder that the path is relative to, if the file is in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    root: Option<String>,
    /// The file that answered the query.
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    /// The sum of the association's evidence, each piece decayed until the beginning of this hour.
    #[serde(skip_serializing_if = "Option::is_none")]
    weight: Option<f64>,
    /// The number of searches that found the file.
    #[serde(skip_serializing_if = "Option::is_none")]
    evidence: Option<i32>,
    /// When a search last found the file, by the agent's clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    last_seen_at: Option<Timestamp>,
}

/// Lists the changes of a project's associations with numbers greater than `after`, in the order of their numbers.
/// There are fewer than `limit` if they are larger than 16 MiB together.
///
/// Because of `offset`, an association is found by its id. In a project that is younger than its statistics, the planner expects
/// a single one, and might otherwise read all of the project for each change.
pub async fn list(
    db: &PgPool,
    project: &str,
    after: i64,
    limit: i64,
    rules: &Rules,
    memory: &Memory,
) -> Result<Vec<Change>> {
    const SQL: &str = "
        select c.change, c.association_id as id,
            case when a.id is null then 'erased' when a.gone_at is not null then 'gone'
                when weighed.weight > 0 then 'learned' else 'refuted' end as kind,
            q.query, nullif(q.root, '') as root, a.path, weighed.weight, a.evidence, a.last_seen_at
        from association_changes c
        left join lateral (select * from associations where project = $1 and id = c.association_id offset 0) a on true
        left join lateral (select * from association_queries where project = $1 and id = a.query_id offset 0) q on true
        cross join lateral (
            select decayed(a.weight, extract(epoch from $4 - a.weighed_at)::float8, $5) as weight
        ) weighed
        where c.project = $1 and c.change > $2
        order by c.change limit $3";
    let query = sqlx::query(SQL).bind(project).bind(after).bind(limit).bind(now()).bind(rules.half_life);
    let (changes, _) = rows::some(query, db, usize::MAX, memory).await?;
    Ok(changes)
}
