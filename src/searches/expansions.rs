//! Expansions: patterns that found what similar queries had missed.

use std::sync::Arc;

use serde::Serialize;
use sqlx::PgPool;
use utoipa::ToSchema;

use super::associations;
use super::settings::Rules;
use crate::error::Result;
use crate::retrieval::Samples;
use crate::types::Timestamp;

/// The maximum number of similar associations that are read.
const NEAREST: i64 = 50;

/// A search pattern that led to a file.
#[derive(Debug, Serialize, ToSchema, sqlx::FromRow)]
pub struct Expansion {
    /// The pattern that the agent passed to grep or glob.
    pub pattern: String,
    /// The query that missed what the pattern found.
    pub query: String,
    /// The similarity of this query to the current one, from 0 to 1.
    pub score: f64,
    /// The number of searches that the pattern helped.
    pub evidence: i64,
    /// When the pattern last helped, by the agent's clock.
    pub last_seen_at: Timestamp,
}

/// Finds the patterns of the searches from which the associations of similar queries were learned, of each
/// association the latest hundred searches. The texts of the queries are read last, because an aggregate would hold a copy
/// for each use of a pattern.
pub async fn find(
    db: &PgPool,
    samples: &Arc<Samples>,
    project: &Arc<str>,
    query: &str,
    repository: Option<&str>,
    limit: i64,
    rules: &Rules,
) -> Result<Vec<Expansion>> {
    const SQL: &str = "
        with search as (
            select distinct on (e.source) e.source as id, near.score
            from unnest($2::uuid[], $3::float8[]) as near (id, score)
            cross join lateral (
                select e.source, e.at from association_evidence e
                where e.project = $1 and e.association_id = near.id and e.kind = 'found' order by e.at desc limit 100
            ) e
            order by e.source, near.score desc
        ),
        -- Materialized, so that the last read is looked up once for each search and not for each of its patterns.
        followed as materialized (
            select search.id, search.score, (
                select max(r.timestamp) from fallbacks r
                where r.project = $1 and r.search_id = search.id and r.kind in ('read', 'index') and r.ok and r.counts
            ) as last_read_at
            from search
        ),
        led as (
            select followed.id, followed.score, f.target as pattern, max(f.timestamp) as timestamp
            from followed
            join searches s on s.project = $1 and s.id = followed.id
            join fallbacks f on f.project = $1 and f.search_id = followed.id and f.kind in ('grep', 'glob') and f.ok and f.counts
            where f.target <> s.query and f.timestamp <= followed.last_read_at
            group by followed.id, followed.score, f.target
        ),
        best as (
            select pattern, (array_agg(id order by score desc, timestamp desc, id))[1] as id, max(score) as score,
                count(*) as evidence, max(timestamp) as last_seen_at
            from led group by pattern
            order by max(score) desc, count(*) desc, max(timestamp) desc, pattern limit $4
        )
        select best.pattern, s.query, best.score, best.evidence, best.last_seen_at
        from best join searches s on s.project = $1 and s.id = best.id
        order by best.score desc, best.evidence desc, best.last_seen_at desc, best.pattern";
    let near = associations::find(db, samples, project, query, repository, NEAREST, rules).await?;
    Ok(sqlx::query_as(SQL)
        .bind(&**project)
        .bind(near.iter().map(|near| near.id).collect::<Vec<_>>())
        .bind(near.iter().map(|near| near.score).collect::<Vec<_>>())
        .bind(limit)
        .fetch_all(db)
        .await?)
}
