//! Associations: where queries were answered, found by similarity of the query. `evidence` says how they come to be and to
//! their weight, [`feedback`] what people say of them, [`feed`] how an index elsewhere follows them.

pub(super) mod evidence;
pub mod feed;
pub mod feedback;

use serde::Serialize;
use sqlx::{PgExecutor, PgPool};
use utoipa::ToSchema;
use uuid::Uuid;

use self::evidence::root_key;
use super::rules::{paths, terms};
use super::settings::Rules;
use crate::error::Result;
use crate::types::Timestamp;

/// How many queries are looked at for each term: bounds the work, however common the words.
const QUERIES_A_TERM: i64 = 400;
/// How many of these, the ones that share most and rarest terms, are compared with the query at hand.
const CANDIDATES: i64 = 200;
/// How many similar queries are looked at for their associations.
const NEAREST: i64 = 50;
/// The least similarity of a query that is worth telling.
const LEAST_SIMILARITY: f64 = 0.2;
/// How many hints a search is answered with.
const HINTS: i64 = 5;

/// Where a query was answered.
#[derive(Debug, Clone, Serialize, ToSchema, sqlx::FromRow)]
pub struct Association {
    /// The id of the association in its project.
    pub id: Uuid,
    /// The query that was answered.
    pub query: String,
    /// The folder that the path is relative to, if it lies in it.
    pub root: Option<String>,
    /// The file that answered it.
    pub path: String,
    /// The similarity of that query to the one at hand, 0 to 1.
    pub score: f64,
    /// The sum of the evidence, each piece decayed until the beginning of this hour; negative where more speaks against the
    /// association than for it.
    pub weight: f64,
    /// How many searches found the file.
    pub evidence: i32,
    /// When a search last found the file, by the agent's clock.
    pub last_seen_at: Timestamp,
}

/// Finds the hints for a query: associations for which more speaks than against.
pub(super) async fn hints(
    db: &PgPool,
    project: &str,
    query: &str,
    root: Option<&str>,
    rules: &Rules,
) -> Result<Vec<Association>> {
    let mut found = find(db, project, query, root, HINTS, rules).await?;
    found.retain(|association| association.weight > 0.0);
    Ok(found)
}

/// Finds associations by what their queries share with this one. The work is bounded: from each term, so many queries are
/// taken; of these, those that share most are compared; and of the most similar ones the associations are read.
pub(super) async fn find(
    db: impl PgExecutor<'_>,
    project: &str,
    query: &str,
    root: Option<&str>,
    limit: i64,
    rules: &Rules,
) -> Result<Vec<Association>> {
    const SQL: &str = "
        with shared as (
            select taken.query_id, sum(wanted.worth / ln(1 + taken.frequency)) as worth
            from unnest($3::text[], $4::float8[]) as wanted (term, worth)
            cross join lateral (
                select t.query_id, count(*) over () as frequency from (
                    select t.query_id from association_terms t
                    where t.project = $1 and t.term = wanted.term and ($5::bigint is null or t.root_key = $5)
                    limit $6
                ) t
            ) taken
            group by taken.query_id
            order by worth desc, taken.query_id limit $13
        ),
        near as (
            select q.id, q.query, q.root, similarity(q.query, $2)::float8 as score
            from shared join association_queries q on q.project = $1 and q.id = shared.query_id
            where $7::text is null or q.root = $7
            order by score desc, shared.worth desc, q.id limit $8
        )
        select a.id, near.query, nullif(near.root, '') as root, a.path, near.score, weighed.weight, a.evidence, a.last_seen_at
        from near
        join associations a on a.project = $1 and a.query_id = near.id and a.gone_at is null
        cross join lateral (
            select decayed(a.weight, extract(epoch from $9 - a.weighed_at)::float8, $10) as weight
        ) weighed
        where near.score >= $11
        order by near.score * (1 + weighed.weight / (1 + abs(weighed.weight))) desc, weighed.weight desc, a.id
        limit $12";
    let terms = terms::terms(query);
    // A pair of words says more than the two.
    let worth: Vec<_> = terms.iter().map(|term| if term.contains(' ') { 3.0 } else { 1.0 }).collect();
    let root = root.map(paths::folder);
    Ok(sqlx::query_as(SQL)
        .bind(project)
        .bind(query)
        .bind(terms)
        .bind(worth)
        .bind(root.as_deref().map(root_key))
        .bind(QUERIES_A_TERM)
        .bind(&root)
        .bind(NEAREST)
        .bind(now())
        .bind(rules.half_life)
        .bind(LEAST_SIMILARITY)
        .bind(limit)
        .bind(CANDIDATES)
        .fetch_all(db)
        .await?)
}

/// The time for which weights are told: the beginning of this hour, so that the same question has the same answer.
pub(super) fn now() -> Timestamp {
    const HOUR: i64 = 3_600_000_000;
    let now = Timestamp::now();
    Timestamp::from_micros(now.micros() / HOUR * HOUR).unwrap_or(now)
}

/// Reads one association, if there is one, as for its own query.
pub(super) async fn get(
    db: impl PgExecutor<'_>,
    project: &str,
    id: Uuid,
    rules: &Rules,
) -> sqlx::Result<Option<Association>> {
    const SQL: &str = "
        select a.id, q.query, nullif(q.root, '') as root, a.path, 1::float8 as score,
            decayed(a.weight, extract(epoch from $3 - a.weighed_at)::float8, $4) as weight, a.evidence, a.last_seen_at
        from associations a join association_queries q on q.project = $1 and q.id = a.query_id
        where a.project = $1 and a.id = $2";
    sqlx::query_as(SQL).bind(project).bind(id).bind(now()).bind(rules.half_life).fetch_optional(db).await
}
