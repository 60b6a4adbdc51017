//! Expansions: patterns that found what similar queries had missed.

use axum::extract::State;
use serde::Serialize;
use sqlx::PgPool;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::associations::{self, Association, Wanted};
use crate::auth::{Caller, Read};
use crate::error::{Refusals, Result};
use crate::http::Query;
use crate::state::App;
use crate::types::Timestamp;

/// How many similar associations are looked at.
const NEAREST: i64 = 50;

/// The path of expansions.
pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(list))
}

/// A pattern that led to a file.
#[derive(Debug, Serialize, ToSchema, sqlx::FromRow)]
struct Expansion {
    /// The pattern, as the agent gave it to grep or glob.
    pattern: String,
    /// The query that had missed it.
    query: String,
    /// How like that query the one at hand is, 0 to 1.
    score: f64,
    /// How many searches it helped.
    evidence: i64,
    /// When it last did, by the agent's clock.
    last_seen_at: Timestamp,
}

/// Expansions, the best first.
#[derive(Debug, Serialize, ToSchema)]
struct Expansions {
    /// By likeness of the query, then by how many searches the pattern helped.
    data: Vec<Expansion>,
}

/// Patterns that found what similar queries had missed: after each, the agent read the file that answered.
#[utoipa::path(get, path = "/v1/searches/expansions", tag = "searches", params(Wanted),
    responses((status = 200, description = "The patterns", body = Expansions), Refusals))]
async fn list(
    State(app): State<App>,
    caller: Caller<Read>,
    Query(wanted): Query<Wanted>,
) -> Result<axum::Json<Expansions>> {
    let rules = &caller.tenant.rules;
    let root = wanted.root.as_deref();
    let near = associations::find(&app.db, &caller.project, &wanted.query, root, NEAREST, rules).await?;
    let data = find(&app.db, &caller.project, &near, wanted.limit()).await?;
    Ok(axum::Json(Expansions { data }))
}

/// The patterns of the searches that these associations were learned from, of each the latest hundred.
async fn find(db: &PgPool, project: &str, near: &[Association], limit: i64) -> Result<Vec<Expansion>> {
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
        led as (
            select f.target as pattern, s.query, search.score, search.id, f.timestamp
            from search
            join searches s on s.project = $1 and s.id = search.id
            join fallbacks f on f.project = $1 and f.search_id = s.id and f.kind in ('grep', 'glob') and f.ok and f.counts
            where f.target <> s.query and exists (
                select from fallbacks r
                where r.project = $1 and r.search_id = s.id and r.kind = 'read' and r.ok and r.counts
                    and r.timestamp >= f.timestamp)
        )
        select pattern, (array_agg(query order by score desc, timestamp desc))[1] as query, max(score) as score,
            count(distinct id) as evidence, max(timestamp) as last_seen_at
        from led group by pattern
        order by max(score) desc, count(distinct id) desc, max(timestamp) desc, pattern limit $4";
    Ok(sqlx::query_as(SQL)
        .bind(project)
        .bind(near.iter().map(|near| near.id).collect::<Vec<_>>())
        .bind(near.iter().map(|near| near.score).collect::<Vec<_>>())
        .bind(limit)
        .fetch_all(db)
        .await?)
}
