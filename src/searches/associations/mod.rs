//! Associations: links from queries to the files that answered them, found by the similarity of queries. `evidence`
//! says how they arise and what their weight is, [`feedback`] what clients report about them, and [`feed`] how an
//! external index follows them.

pub(super) mod evidence;
pub mod feed;
pub mod feedback;

use std::sync::Arc;

use serde::Serialize;
use sqlx::{PgExecutor, PgPool};
use utoipa::ToSchema;
use uuid::Uuid;

use super::settings::Rules;
use crate::error::Result;
use crate::retrieval::rank::{Texts, bytes_ranked};
use crate::retrieval::text::with_identifiers_split;
use crate::retrieval::{Candidate, Candidates, Corpus, Keyed, Samples, Scope};
use crate::types::Timestamp;

/// The maximum number of similar queries whose associations are read.
const NEAREST: usize = 50;
/// The minimum similarity of a query whose associations are returned.
const LEAST_SIMILARITY: f64 = 0.3;

/// A file that answered a query.
#[derive(Debug, Clone, Serialize, ToSchema, sqlx::FromRow)]
pub struct Association {
    /// The id of the association in its project.
    pub id: Uuid,
    /// The query that was answered.
    pub query: String,
    /// The folder that the path is relative to, if the file is in it.
    pub root: Option<String>,
    /// The file that answered the query.
    pub path: String,
    /// The similarity of this query to the current one, from 0 to 1.
    pub score: f64,
    /// The sum of the evidence for the association, decayed to the beginning of the current hour. It is negative if
    /// there is more evidence against the association than for it.
    pub weight: f64,
    /// The number of searches that found the file.
    pub evidence: i32,
    /// When a search last found the file, by the agent's clock.
    pub last_seen_at: Timestamp,
}

/// Queries as documents, which are found within a project or a repository. Identifiers are split into words, for keys
/// and for ranking.
static QUERIES: Corpus = Corpus {
    table: "association_queries",
    text: "query",
    keys: "search_keys",
    keyed: Keyed::Words,
    in_facet: "repository = $2",
    facets_are_sampled: false,
    indexed: "true",
    order: "repository, id",
    filled_up: false,
    columns: "id, query",
    filter: "true",
};

/// A query that may be similar.
#[derive(sqlx::FromRow)]
struct Query {
    id: Uuid,
    query: String,
}

impl Candidate for Query {
    fn id(&self) -> Uuid {
        self.id
    }

    fn bytes(&self) -> usize {
        bytes_ranked(&self.query)
    }
}

/// Finds associations with a positive weight whose queries are similar to this one, in a repository or in the whole
/// project.
pub async fn find(
    db: &PgPool,
    samples: &Arc<Samples>,
    project: &Arc<str>,
    query: &str,
    repository: Option<&str>,
    limit: i64,
    rules: &Rules,
) -> Result<Vec<Association>> {
    const SQL: &str = "
        select a.id, q.query, nullif(q.root, '') as root, a.path, near.score, weighed.weight, a.evidence, a.last_seen_at
        from unnest($2::uuid[], $3::float8[]) as near (id, score)
        join association_queries q on q.project = $1 and q.id = near.id
        join associations a on a.project = $1 and a.query_id = near.id and a.gone_at is null
        cross join lateral (
            select decayed(a.weight, extract(epoch from $4 - a.weighed_at)::float8, $5) as weight
        ) weighed
        where weighed.weight > 0
        order by near.score * (1 + weighed.weight / (1 + abs(weighed.weight))) desc, weighed.weight desc, a.id
        limit $6";
    let text = with_identifiers_split(query);
    let scope = Scope { project: Arc::clone(project), facet: repository.map(str::to_owned) };
    let search = samples.begin(project).await?;
    let finder = Candidates { db, samples, corpus: &QUERIES, search: &search };
    let queries: Vec<Query> = finder.find(&scope, &text, |query| query).await?;
    let rank = move || {
        let texts = queries.iter().map(|near| with_identifiers_split(&near.query)).chain([text]);
        let texts: Vec<_> = texts.map(|text| text.to_lowercase()).collect();
        let closest = Texts::new(&texts).closest(NEAREST).into_iter();
        let near = closest.map(|(likeness, place)| (queries[place].id, f64::from(likeness)));
        near.filter(|(_, likeness)| *likeness >= LEAST_SIMILARITY).unzip::<_, _, Vec<_>, Vec<_>>()
    };
    let (ids, scores) = search.rank(rank).await?;
    Ok(sqlx::query_as(SQL)
        .bind(&**project)
        .bind(ids)
        .bind(scores)
        .bind(now())
        .bind(rules.half_life)
        .bind(limit)
        .fetch_all(db)
        .await?)
}

/// Returns the time for which weights are computed: the beginning of this hour, so that the same request has the same
/// response.
pub(super) fn now() -> Timestamp {
    const HOUR: i64 = 3_600_000_000;
    let now = Timestamp::now();
    Timestamp::from_micros(now.micros() / HOUR * HOUR).unwrap_or(now)
}

/// Reads one association, if it exists, with the score for its own query.
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
