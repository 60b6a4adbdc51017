//! Associations: where queries were answered. Learned from searches that were resolved, found by similarity of the query,
//! weighed by evidence that decays.

use std::collections::{BTreeMap, HashSet};

use axum::extract::State;
use axum::http::HeaderMap;
use serde::{Deserialize, Serialize};
use sqlx::{PgConnection, PgExecutor, PgPool};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use super::changes::{self, Feed};
use super::learner::Ended;
use super::settings::Rules;
use super::{MOST_PATH, MOST_QUERY, paths, words};
use crate::app::App;
use crate::auth::{Caller, Read, Write};
use crate::error::{Error, Refusals, Result};
use crate::extract::{ById, Check, Checks, Json, Path, Query, idempotency_id};
use crate::value::{Timestamp, derived_id};

/// How much it says for an association that an agent which was told of it read the file.
const HINT_READ: f64 = 0.5;
/// How much it says that the agent did not.
const HINT_UNREAD: f64 = -0.25;
/// How much it says that somebody found it useful.
const USEFUL: f64 = 1.0;
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

/// The paths of associations.
pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(feedback))
        .routes(routes!(gone))
        .merge(changes::routes())
}

/// Where a query was answered.
#[derive(Debug, Clone, Serialize, ToSchema, sqlx::FromRow)]
pub struct Association {
    /// Names it in its project.
    pub id: Uuid,
    /// The query that was answered.
    pub query: String,
    /// The folder that the path is relative to, if it lies in it.
    pub root: Option<String>,
    /// The file that answered it.
    pub path: String,
    /// How like its query the one at hand is, 0 to 1.
    pub score: f64,
    /// What speaks for it, each piece of evidence decayed until this hour; negative where more speaks against it.
    pub weight: f64,
    /// How many searches found it.
    pub evidence: i32,
    /// When one last did, by the agent's clock.
    pub last_seen_at: Timestamp,
}

/// What to find associations for.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct Wanted {
    /// The query at hand.
    #[param(min_length = 1, max_length = 2000)]
    query: String,
    /// Only those of this folder.
    #[param(min_length = 1, max_length = 4096)]
    root: Option<String>,
    /// The most associations, 1 to 100; 10 if not given.
    #[param(minimum = 1, maximum = 100)]
    limit: Option<i64>,
}

impl Check for Wanted {
    fn check(&self, checks: &mut Checks) {
        checks.text("query", &self.query, MOST_QUERY);
        if let Some(root) = &self.root {
            checks.text("root", root, MOST_PATH);
        }
        let fits = self.limit.is_none_or(|limit| (1..=100).contains(&limit));
        checks.require(fits, "limit", "must be 1 to 100");
    }
}

/// Associations, the best first.
#[derive(Debug, Serialize, ToSchema)]
struct Associations {
    /// By likeness of the query and, among alike ones, by weight.
    data: Vec<Association>,
}

/// Where queries like this one were answered. What is old ranks lower, and is never left out for that.
#[utoipa::path(get, path = "/v1/associations", tag = "searches", params(Wanted),
    responses((status = 200, description = "The associations", body = Associations), Refusals))]
async fn list(
    State(app): State<App>,
    caller: Caller<Read>,
    Query(wanted): Query<Wanted>,
) -> Result<axum::Json<Associations>> {
    let rules = Rules::of(&app.db, &caller.project).await?;
    let (root, limit) = (wanted.root.as_deref(), wanted.limit.unwrap_or(10));
    let data = find(&app.db, &caller.project, &wanted.query, root, limit, &rules).await?;
    Ok(axum::Json(Associations { data }))
}

/// The hints for a query: associations for which more speaks than against.
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
    let terms = words::terms(query);
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

/// The time as of which weights are told: the beginning of this hour, so that the same question has the same answer.
pub(super) fn now() -> Timestamp {
    const HOUR: i64 = 3_600_000_000;
    let now = Timestamp::now();
    Timestamp::from_micros(now.micros() / HOUR * HOUR).unwrap_or(now)
}

/// What a root is found by among the terms.
fn root_key(root: &str) -> i64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&derived_id(&[b"root", root.as_bytes()]).as_bytes()[..8]);
    i64::from_be_bytes(bytes)
}

fn query_id(root: &str, query: &str) -> Uuid {
    derived_id(&[b"query", root.as_bytes(), query.as_bytes()])
}

fn association_id(query: Uuid, path: &str) -> Uuid {
    derived_id(&[b"association", query.as_bytes(), path.as_bytes()])
}

/// What somebody says of an association.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct NewFeedback {
    /// The verdict.
    verdict: Verdict,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    /// It helped.
    Useful,
    /// It did not: from now on it weighs less than half.
    Wrong,
}

impl Check for NewFeedback {
    fn check(&self, _: &mut Checks) {}
}

/// Says whether an association helped. With an `Idempotency-Key`, sending it again changes nothing.
#[utoipa::path(post, path = "/v1/associations/{id}/feedback", tag = "searches", request_body = NewFeedback,
    params(ById, ("Idempotency-Key" = Option<String>, Header, description = "Stands in for an id the client cannot make")),
    responses((status = 200, description = "The association, weighed anew", body = Association), Refusals))]
async fn feedback(
    State(app): State<App>,
    caller: Caller<Write>,
    headers: HeaderMap,
    Path(ById { id }): Path<ById>,
    Json(NewFeedback { verdict }): Json<NewFeedback>,
) -> Result<axum::Json<Association>> {
    let project = &caller.project;
    let source = idempotency_id(&headers, project, "feedback", Some(id))?.unwrap_or_else(Uuid::now_v7);
    let mut transaction = app.searches.db.begin().await?;
    let rules = Rules::of(&mut *transaction, project).await?;
    let feed = Feed::lock(&mut transaction, project).await?;
    let Some(now) = get(&mut *transaction, project, id, &rules).await? else {
        return Err(Error::NotFound("association"));
    };
    let (kind, weight) = match verdict {
        Verdict::Useful => ("useful", USEFUL),
        Verdict::Wrong => ("wrong", -(1.0 + now.weight.max(0.0) / 2.0)),
    };
    let evidence = [Evidence { association: id, source, kind, weight, at: Timestamp::now(), place: 0 }];
    if insert_evidence(&mut transaction, project, &evidence).await? > 0 {
        weigh(&mut transaction, project, &rules, &evidence).await?;
        feed.note(&mut transaction, project, &[id]).await?;
    }
    let association = get(&mut *transaction, project, id, &rules).await?;
    transaction.commit().await?;
    association.map(axum::Json).ok_or(Error::NotFound("association"))
}

/// A file that left the index.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Gone {
    /// The folder it was in; none for associations of no known root.
    #[schema(min_length = 1, max_length = 4096)]
    root: Option<String>,
    /// The file.
    #[schema(min_length = 1, max_length = 4096)]
    path: String,
}

impl Check for Gone {
    fn check(&self, checks: &mut Checks) {
        checks.text("path", &self.path, MOST_PATH);
        if let Some(root) = &self.root {
            checks.text("root", root, MOST_PATH);
        }
    }
}

/// What was marked.
#[derive(Debug, Serialize, ToSchema)]
struct Marked {
    /// How many associations led to the file and no longer do.
    gone: usize,
}

/// Says that a file is gone: nothing leads to it any more, until an agent finds it again.
#[utoipa::path(post, path = "/v1/associations/gone", tag = "searches", request_body = Gone,
    responses((status = 200, description = "How many associations led there", body = Marked), Refusals))]
async fn gone(
    State(app): State<App>,
    caller: Caller<Write>,
    Json(file): Json<Gone>,
) -> Result<axum::Json<Marked>> {
    const SQL: &str = "
        update associations a set gone_at = $4
        from association_queries q
        where a.project = $1 and a.path = $3 and a.gone_at is null
            and q.project = $1 and q.id = a.query_id and q.root = $2
        returning a.id";
    let root = file.root.as_deref().map(paths::folder);
    let path = paths::normalise(&file.path, root.as_deref(), root.as_deref());
    let mut transaction = app.searches.db.begin().await?;
    let feed = Feed::lock(&mut transaction, &caller.project).await?;
    let ids: Vec<Uuid> = sqlx::query_scalar(SQL)
        .bind(&*caller.project)
        .bind(root.unwrap_or_default())
        .bind(path)
        .bind(Timestamp::now())
        .fetch_all(&mut *transaction)
        .await?;
    feed.note(&mut transaction, &caller.project, &ids).await?;
    transaction.commit().await?;
    Ok(axum::Json(Marked { gone: ids.len() }))
}

/// One association, as for its own query.
async fn get(
    db: impl PgExecutor<'_>,
    project: &str,
    id: Uuid,
    rules: &Rules,
) -> sqlx::Result<Option<Association>> {
    const SQL: &str = "
        select a.id, q.query, nullif(q.root, '') as root, a.path, 1::float8 as score,
            decayed(a.weight, extract(epoch from $3 - a.weighed_at)::float8, $4) as weight, a.evidence, a.last_seen_at
        from associations a join association_queries q on q.project = a.project and q.id = a.query_id
        where a.project = $1 and a.id = $2";
    sqlx::query_as(SQL).bind(project).bind(id).bind(now()).bind(rules.half_life).fetch_optional(db).await
}

/// What one search, or one person, says of an association.
#[derive(Debug)]
struct Evidence {
    association: Uuid,
    source: Uuid,
    kind: &'static str,
    weight: f64,
    at: Timestamp,
    place: i32,
}

/// Learns from searches whose sessions are over; how many associations there were not before.
pub(super) async fn learn(
    connection: &mut PgConnection,
    project: &str,
    rules: &Rules,
    ended: &[Ended],
) -> sqlx::Result<usize> {
    if !rules.learn || ended.iter().all(|ended| ended.finds.is_empty() && ended.search.hints.is_empty()) {
        return Ok(0);
    }
    let feed = Feed::lock(connection, project).await?;
    let mut queries = BTreeMap::new();
    let mut found = BTreeMap::new();
    let mut evidence = Vec::new();
    for ended in ended {
        let (source, search) = (ended.search.id, &ended.search);
        let query = query_id(&search.root, &search.query);
        for (place, find) in (1..).zip(&ended.finds) {
            let association = association_id(query, &find.path);
            queries.insert(query, (search.root.as_str(), search.query.as_str()));
            found.insert(association, (query, find.path.as_str(), find.at));
            let (weight, at) = (find.weight, find.at);
            evidence.push(Evidence { association, source, kind: "found", weight, at, place });
        }
        for (association, read) in ended.hints() {
            let (kind, weight) = if read { ("hint_read", HINT_READ) } else { ("hint_unread", HINT_UNREAD) };
            evidence.push(Evidence { association, source, kind, weight, at: ended.at, place: 0 });
        }
    }
    insert_queries(connection, project, &queries).await?;
    let created = insert(connection, project, &found).await?;
    insert_evidence(connection, project, &evidence).await?;
    weigh(connection, project, rules, &evidence).await?;
    let changed: HashSet<_> = evidence.iter().map(|evidence| evidence.association).collect();
    let changed: Vec<_> = changed.into_iter().collect();
    feed.note(connection, project, &changed).await?;
    Ok(created)
}

/// Inserts queries that are new, with their terms.
async fn insert_queries(
    connection: &mut PgConnection,
    project: &str,
    queries: &BTreeMap<Uuid, (&str, &str)>,
) -> sqlx::Result<()> {
    const SQL: &str = "
        insert into association_queries (project, id, root, query)
        select $1, new.* from unnest($2::uuid[], $3::text[], $4::text[]) as new
        on conflict do nothing returning id";
    const TERMS: &str = "
        insert into association_terms (project, term, root_key, query_id)
        select $1, new.* from unnest($2::text[], $3::bigint[], $4::uuid[]) as new";
    let new: Vec<Uuid> = sqlx::query_scalar(SQL)
        .bind(project)
        .bind(queries.keys().copied().collect::<Vec<_>>())
        .bind(queries.values().map(|(root, _)| *root).collect::<Vec<_>>())
        .bind(queries.values().map(|(_, query)| *query).collect::<Vec<_>>())
        .fetch_all(&mut *connection)
        .await?;
    let (mut terms, mut roots, mut ids) = (Vec::new(), Vec::new(), Vec::new());
    for (id, (root, query)) in new.into_iter().filter_map(|id| Some((id, queries.get(&id)?))) {
        for term in words::terms(query) {
            terms.push(term);
            roots.push(root_key(root));
            ids.push(id);
        }
    }
    sqlx::query(TERMS).bind(project).bind(terms).bind(roots).bind(ids).execute(connection).await?;
    Ok(())
}

/// Inserts associations that are new, without weight yet; how many were. One that was gone is back.
async fn insert(
    connection: &mut PgConnection,
    project: &str,
    found: &BTreeMap<Uuid, (Uuid, &str, Timestamp)>,
) -> sqlx::Result<usize> {
    const SQL: &str = "
        insert into associations (project, id, query_id, path, weight, weighed_at, evidence, last_seen_at)
        select $1, new.id, new.query_id, new.path, 0, new.at, 0, new.at
        from unnest($2::uuid[], $3::uuid[], $4::text[], $5::timestamptz[]) as new (id, query_id, path, at)
        on conflict do nothing";
    const BACK: &str = "
        update associations set gone_at = null where project = $1 and id = any($2) and gone_at is not null";
    let ids: Vec<_> = found.keys().copied().collect();
    let created = sqlx::query(SQL)
        .bind(project)
        .bind(&ids)
        .bind(found.values().map(|(query, ..)| *query).collect::<Vec<_>>())
        .bind(found.values().map(|(_, path, _)| *path).collect::<Vec<_>>())
        .bind(found.values().map(|(.., at)| *at).collect::<Vec<_>>())
        .execute(&mut *connection)
        .await?
        .rows_affected();
    sqlx::query(BACK).bind(project).bind(&ids).execute(connection).await?;
    Ok(usize::try_from(created).unwrap_or(usize::MAX))
}

/// Inserts evidence for associations that are there; how many pieces were new.
async fn insert_evidence(
    connection: &mut PgConnection,
    project: &str,
    evidence: &[Evidence],
) -> sqlx::Result<u64> {
    const SQL: &str = "
        insert into association_evidence (project, association_id, source, kind, weight, at, place)
        select $1, new.* from unnest($2::uuid[], $3::uuid[], $4::text[], $5::float8[], $6::timestamptz[], $7::int[])
            as new (association_id, source, kind, weight, at, place)
        where exists (select from associations a where a.project = $1 and a.id = new.association_id)
        on conflict do nothing";
    let column = |value: fn(&Evidence) -> Uuid| evidence.iter().map(value).collect::<Vec<_>>();
    let inserted = sqlx::query(SQL)
        .bind(project)
        .bind(column(|evidence| evidence.association))
        .bind(column(|evidence| evidence.source))
        .bind(evidence.iter().map(|evidence| evidence.kind).collect::<Vec<_>>())
        .bind(evidence.iter().map(|evidence| evidence.weight).collect::<Vec<_>>())
        .bind(evidence.iter().map(|evidence| evidence.at).collect::<Vec<_>>())
        .bind(evidence.iter().map(|evidence| evidence.place).collect::<Vec<_>>())
        .execute(connection)
        .await?;
    Ok(inserted.rows_affected())
}

/// Adds the weight of new evidence to its associations. Whatever order evidence comes in, the sum is the same: each
/// weight is brought to the later of its own time and the association's.
async fn weigh(
    connection: &mut PgConnection,
    project: &str,
    rules: &Rules,
    evidence: &[Evidence],
) -> sqlx::Result<()> {
    let mut sums: BTreeMap<Uuid, Sum> = BTreeMap::new();
    for evidence in evidence {
        sums.entry(evidence.association).or_default().add(evidence, rules.half_life);
    }
    add(connection, project, rules, &sums).await
}

/// What several pieces of evidence come to.
#[derive(Debug, Default)]
struct Sum {
    weight: f64,
    at: Option<Timestamp>,
    found: i32,
    last_found: Option<Timestamp>,
}

impl Sum {
    fn add(&mut self, evidence: &Evidence, half_life: f64) {
        let later = self.at.map_or(evidence.at, |at| at.max(evidence.at));
        let left = |weight: f64, at: Timestamp| {
            let seconds = (later.0 - at.0).as_seconds_f64();
            weight * 2_f64.powf(-(seconds / half_life).min(100.0))
        };
        self.weight = self.at.map_or(0.0, |at| left(self.weight, at)) + left(evidence.weight, evidence.at);
        self.at = Some(later);
        if evidence.kind == "found" {
            self.found += 1;
            self.last_found = self.last_found.max(Some(evidence.at));
        }
    }
}

async fn add(
    connection: &mut PgConnection,
    project: &str,
    rules: &Rules,
    sums: &BTreeMap<Uuid, Sum>,
) -> sqlx::Result<()> {
    const SQL: &str = "
        update associations a
        set weight = decayed(a.weight, extract(epoch from new.at - a.weighed_at)::float8, $7)
                + decayed(new.weight, extract(epoch from a.weighed_at - new.at)::float8, $7),
            weighed_at = greatest(a.weighed_at, new.at),
            evidence = a.evidence + new.found,
            last_seen_at = greatest(a.last_seen_at, new.last_found)
        from unnest($2::uuid[], $3::float8[], $4::timestamptz[], $5::int[], $6::timestamptz[])
            as new (id, weight, at, found, last_found)
        where a.project = $1 and a.id = new.id";
    sqlx::query(SQL)
        .bind(project)
        .bind(sums.keys().copied().collect::<Vec<_>>())
        .bind(sums.values().map(|sum| sum.weight).collect::<Vec<_>>())
        .bind(sums.values().map(|sum| sum.at).collect::<Vec<_>>())
        .bind(sums.values().map(|sum| sum.found).collect::<Vec<_>>())
        .bind(sums.values().map(|sum| sum.last_found).collect::<Vec<_>>())
        .bind(rules.half_life)
        .execute(connection)
        .await?;
    Ok(())
}

/// Takes away what these sources said. An association that no search speaks for any more goes, and so does a query that
/// leads nowhere.
pub(super) async fn forget(
    connection: &mut PgConnection,
    project: &str,
    rules: &Rules,
    sources: &[Uuid],
) -> sqlx::Result<()> {
    const TAKE: &str = "
        delete from association_evidence where project = $1 and source = any($2) returning association_id";
    const WEIGH: &str = "
        update associations a
        set weight = left_over.weight, weighed_at = left_over.latest, evidence = left_over.found,
            last_seen_at = coalesce(left_over.last_found, a.last_seen_at)
        from (
            select e.association_id, max(e.latest) as latest, count(*) filter (where e.kind = 'found') as found,
                max(e.at) filter (where e.kind = 'found') as last_found,
                sum(decayed(e.weight, extract(epoch from e.latest - e.at)::float8, $3)) as weight
            from (
                select e.*, max(e.at) over (partition by e.association_id) as latest
                from association_evidence e where e.project = $1 and e.association_id = any($2)
            ) e
            group by e.association_id
        ) left_over
        where a.project = $1 and a.id = left_over.association_id";
    const DROP: &str = "
        delete from associations a where a.project = $1 and a.id = any($2) and not exists (
            select from association_evidence e
            where e.project = $1 and e.association_id = a.id and e.kind = 'found')
        returning a.id, a.query_id";
    const DROP_QUERIES: &str = "
        delete from association_queries q where q.project = $1 and q.id = any($2) and not exists (
            select from associations a where a.project = $1 and a.query_id = q.id)
        returning q.id, q.root, q.query";
    const DROP_TERMS: &str = "
        delete from association_terms t using unnest($2::text[], $3::bigint[], $4::uuid[]) as old (term, root_key, id)
        where t.project = $1 and t.term = old.term and t.root_key = old.root_key and t.query_id = old.id";
    let feed = Feed::lock(connection, project).await?;
    let changed: Vec<Uuid> =
        sqlx::query_scalar(TAKE).bind(project).bind(sources).fetch_all(&mut *connection).await?;
    let changed: Vec<_> = changed.into_iter().collect::<HashSet<_>>().into_iter().collect();
    if changed.is_empty() {
        return Ok(());
    }
    let dropped: Vec<(Uuid, Uuid)> =
        sqlx::query_as(DROP).bind(project).bind(&changed).fetch_all(&mut *connection).await?;
    let (dropped, queries): (Vec<_>, Vec<_>) = dropped.into_iter().unzip();
    let sql = "delete from association_evidence where project = $1 and association_id = any($2)";
    sqlx::query(sql).bind(project).bind(&dropped).execute(&mut *connection).await?;
    sqlx::query(WEIGH).bind(project).bind(&changed).bind(rules.half_life).execute(&mut *connection).await?;
    let queries: Vec<(Uuid, String, String)> =
        sqlx::query_as(DROP_QUERIES).bind(project).bind(queries).fetch_all(&mut *connection).await?;
    let (mut terms, mut roots, mut ids) = (Vec::new(), Vec::new(), Vec::new());
    for (id, root, query) in queries {
        for term in words::terms(&query) {
            terms.push(term);
            roots.push(root_key(&root));
            ids.push(id);
        }
    }
    sqlx::query(DROP_TERMS).bind(project).bind(terms).bind(roots).bind(ids).execute(&mut *connection).await?;
    feed.note(connection, project, &changed).await
}
