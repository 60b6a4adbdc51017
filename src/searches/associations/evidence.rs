//! Evidence, from which the weights of associations are computed. Resolved searches add associations and evidence for
//! them. The weight of each piece of evidence decays, and each piece can be removed again.

use std::collections::{BTreeMap, HashSet};

use sqlx::PgConnection;
use uuid::Uuid;

use super::feed::Feed;
use crate::retrieval::keys;
use crate::retrieval::text::with_identifiers_split;
use crate::searches::rules::learner::EndedSearch;
use crate::searches::rules::repository::repository;
use crate::searches::settings::Rules;
use crate::types::{Timestamp, derived_id};

/// The weight of evidence that an agent read the file of a hint.
const HINT_READ: f64 = 0.5;
/// The weight of evidence that an agent did not read the file of a hint.
const HINT_UNREAD: f64 = -0.25;
/// The weight of evidence that a person objected to the file and the agent then went to another. It outweighs one
/// search that found the file.
const CORRECTED: f64 = -2.0;

/// The kind of a piece of evidence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, sqlx::Type)]
#[sqlx(type_name = "text", rename_all = "snake_case")]
pub(super) enum Kind {
    /// A search found the file.
    Found,
    /// The agent got the association as a hint and read the file.
    HintRead,
    /// The agent got the association as a hint and did not read the file.
    HintUnread,
    /// A client reported that the association helped.
    Useful,
    /// A client reported that the association did not help.
    Wrong,
    /// A person objected to the file in their session, and the agent went to another.
    Corrected,
}

/// A piece of evidence for or against an association, from a search or a report.
#[derive(Debug, sqlx::FromRow)]
pub(super) struct Evidence {
    #[sqlx(rename = "association_id")]
    pub(super) association: Uuid,
    /// The id of the search or of the report.
    pub(super) source: Uuid,
    pub(super) kind: Kind,
    pub(super) weight: f64,
    pub(super) at: Timestamp,
    /// The rank among the files that the search found, from 1. It is 0 for other kinds.
    pub(super) rank: i32,
}

/// Learns from searches that have ended. Returns the number of new associations.
pub(in crate::searches) async fn learn(
    connection: &mut PgConnection,
    project: &str,
    rules: &Rules,
    ended: &[EndedSearch],
) -> sqlx::Result<usize> {
    if !rules.learn || ended.iter().all(|ended| ended.finds.is_empty() && ended.search.hints.is_empty()) {
        return Ok(0);
    }
    let feed = Feed::lock(connection, project).await?;
    let mut queries = BTreeMap::new();
    let mut found = BTreeMap::new();
    let mut evidence = Vec::new();
    // The clock of a client may be ahead. What others have taught would decay until then, and nothing of theirs would count.
    let now = Timestamp::now();
    for ended in ended {
        let (source, search) = (ended.search.id, &ended.search);
        let ended_at = ended.at.min(now);
        let query = query_id(&search.root, &search.query);
        for (rank, find) in (1..).zip(&ended.finds) {
            let association = association_id(query, &find.path);
            queries.insert(query, (search.root.as_str(), search.query.as_str()));
            let (weight, at) = (find.weight, find.at.min(now));
            found.insert(association, (query, find.path.as_str(), at));
            evidence.push(Evidence { association, source, kind: Kind::Found, weight, at, rank });
        }
        for path in &ended.refuted {
            let (association, at) = (association_id(query, path), ended_at);
            let (kind, weight) = (Kind::Corrected, CORRECTED);
            evidence.push(Evidence { association, source, kind, weight, at, rank: 0 });
        }
        for (hint, read) in ended.hints() {
            let Some(association) = hint.association else { continue };
            let (kind, weight) =
                if read { (Kind::HintRead, HINT_READ) } else { (Kind::HintUnread, HINT_UNREAD) };
            evidence.push(Evidence { association, source, kind, weight, at: ended_at, rank: 0 });
        }
    }
    insert_queries(connection, project, &queries).await?;
    let created = insert_associations(connection, project, &found).await?;
    insert(connection, project, rules, &evidence).await?;
    let changed: HashSet<_> = evidence.iter().map(|evidence| evidence.association).collect();
    let changed: Vec<_> = changed.into_iter().collect();
    feed.note(connection, project, &changed).await?;
    Ok(created)
}

/// Inserts new queries, with the keys by which they are found.
async fn insert_queries(
    connection: &mut PgConnection,
    project: &str,
    queries: &BTreeMap<Uuid, (&str, &str)>,
) -> sqlx::Result<()> {
    const SQL: &str = "
        insert into association_queries (project, id, root, query, repository, search_keys)
        select $1, new.id, new.root, new.query, new.repository, new.search_keys::int[]
        from unnest($2::uuid[], $3::text[], $4::text[], $5::text[], $6::text[])
            as new (id, root, query, repository, search_keys)
        on conflict do nothing";
    let repositories: Vec<_> = queries.values().map(|(root, _)| repository(root)).collect();
    let search_keys = queries.values().zip(&repositories).map(|((_, query), repository)| {
        keys::literal(&keys::of_document(project, repository, &with_identifiers_split(query)))
    });
    let search_keys: Vec<_> = search_keys.collect();
    sqlx::query(SQL)
        .bind(project)
        .bind(queries.keys().copied().collect::<Vec<_>>())
        .bind(queries.values().map(|(root, _)| *root).collect::<Vec<_>>())
        .bind(queries.values().map(|(_, query)| *query).collect::<Vec<_>>())
        .bind(&repositories)
        .bind(search_keys)
        .execute(connection)
        .await?;
    Ok(())
}

/// Inserts new associations, without weight. Returns their number. An association that was gone is listed again.
async fn insert_associations(
    connection: &mut PgConnection,
    project: &str,
    found: &BTreeMap<Uuid, (Uuid, &str, Timestamp)>,
) -> sqlx::Result<usize> {
    const SQL: &str = "
        insert into associations (project, id, query_id, path, weight, weighed_at, evidence, last_seen_at)
        select $1, new.id, new.query_id, new.path, 0, new.at, 0, new.at
        from unnest($2::uuid[], $3::uuid[], $4::text[], $5::timestamptz[]) as new (id, query_id, path, at)
        on conflict do nothing returning id";
    const BACK: &str = "
        update associations set gone_at = null where project = $1 and id = any($2) and gone_at is not null";
    let ids: Vec<_> = found.keys().copied().collect();
    let created: Vec<Uuid> = sqlx::query_scalar(SQL)
        .bind(project)
        .bind(&ids)
        .bind(found.values().map(|(query, ..)| *query).collect::<Vec<_>>())
        .bind(found.values().map(|(_, path, _)| *path).collect::<Vec<_>>())
        .bind(found.values().map(|(.., at)| *at).collect::<Vec<_>>())
        .fetch_all(&mut *connection)
        .await?;
    sqlx::query(BACK).bind(project).bind(&ids).execute(connection).await?;
    Ok(created.len())
}

/// Inserts evidence for existing associations, and adds its weight to theirs. Returns the number of new pieces. A
/// piece that already exists does not count again.
pub(super) async fn insert(
    connection: &mut PgConnection,
    project: &str,
    rules: &Rules,
    evidence: &[Evidence],
) -> sqlx::Result<usize> {
    const SQL: &str = "
        insert into association_evidence (project, association_id, source, kind, weight, at, rank)
        select $1, new.* from unnest($2::uuid[], $3::uuid[], $4::text[], $5::float8[], $6::timestamptz[], $7::int[])
            as new (association_id, source, kind, weight, at, rank)
        where exists (select from associations a where a.project = $1 and a.id = new.association_id)
        on conflict do nothing returning association_id, source, kind";
    let column = |value: fn(&Evidence) -> Uuid| evidence.iter().map(value).collect::<Vec<_>>();
    let inserted: Vec<(Uuid, Uuid, Kind)> = sqlx::query_as(SQL)
        .bind(project)
        .bind(column(|evidence| evidence.association))
        .bind(column(|evidence| evidence.source))
        .bind(evidence.iter().map(|evidence| evidence.kind).collect::<Vec<_>>())
        .bind(evidence.iter().map(|evidence| evidence.weight).collect::<Vec<_>>())
        .bind(evidence.iter().map(|evidence| evidence.at).collect::<Vec<_>>())
        .bind(evidence.iter().map(|evidence| evidence.rank).collect::<Vec<_>>())
        .fetch_all(&mut *connection)
        .await?;
    let inserted: HashSet<_> = inserted.into_iter().collect();
    let mut sums: BTreeMap<Uuid, Sum> = BTreeMap::new();
    for evidence in evidence {
        if inserted.contains(&(evidence.association, evidence.source, evidence.kind)) {
            sums.entry(evidence.association).or_default().add(evidence, rules.half_life);
        }
    }
    add_weights(connection, project, rules, &sums).await?;
    Ok(inserted.len())
}

/// The sum of several pieces of evidence for one association.
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
        if evidence.kind == Kind::Found {
            self.found += 1;
            self.last_found = self.last_found.max(Some(evidence.at));
        }
    }
}

/// Adds sums of evidence to the weights of their associations. The result does not depend on the order in which
/// evidence arrives, because both are brought to the later of their times.
async fn add_weights(
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
    if sums.is_empty() {
        return Ok(());
    }
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

/// Removes the evidence of these sources. An association without evidence from a search is deleted, and so is a query
/// without associations.
pub(in crate::searches) async fn forget(
    connection: &mut PgConnection,
    project: &str,
    rules: &Rules,
    sources: &[Uuid],
) -> sqlx::Result<()> {
    const TAKE: &str = "
        delete from association_evidence where project = $1 and source = any($2) returning association_id";
    const WEIGH: &str = "
        update associations a
        set weight = coalesce(decayed(left_over.weight, extract(epoch from a.settled_at - left_over.latest)::float8, $3),
                    left_over.weight, 0)
                + coalesce(decayed(a.settled_weight, extract(epoch from left_over.latest - a.settled_at)::float8, $3),
                    a.settled_weight),
            weighed_at = coalesce(greatest(left_over.latest, a.settled_at), a.weighed_at),
            evidence = coalesce(left_over.found, 0) + a.settled_evidence,
            last_seen_at = coalesce(
                greatest(left_over.last_found, case when a.settled_evidence > 0 then least(a.settled_at, a.last_seen_at) end),
                a.last_seen_at)
        from unnest($2::uuid[]) as changed (id) left join (
            select e.association_id, max(e.latest) as latest, count(*) filter (where e.kind = 'found') as found,
                max(e.at) filter (where e.kind = 'found') as last_found,
                sum(decayed(e.weight, extract(epoch from e.latest - e.at)::float8, $3)) as weight
            from (
                select e.*, max(e.at) over (partition by e.association_id) as latest
                from association_evidence e where e.project = $1 and e.association_id = any($2)
            ) e
            group by e.association_id
        ) left_over on left_over.association_id = changed.id
        where a.project = $1 and a.id = changed.id";
    const DROP: &str = "
        delete from associations a where a.project = $1 and a.id = any($2) and a.settled_evidence = 0 and not exists (
            select from association_evidence e
            where e.project = $1 and e.association_id = a.id and e.kind = 'found')
        returning a.id, a.query_id";
    const DROP_QUERIES: &str = "
        delete from association_queries q where q.project = $1 and q.id = any($2) and not exists (
            select from associations a where a.project = $1 and a.query_id = q.id)";
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
    // Other searches were answered with the paths of these associations.
    let sql = "delete from search_hints where project = $1 and association_id = any($2)";
    sqlx::query(sql).bind(project).bind(&dropped).execute(&mut *connection).await?;
    sqlx::query(WEIGH).bind(project).bind(&changed).bind(rules.half_life).execute(&mut *connection).await?;
    sqlx::query(DROP_QUERIES).bind(project).bind(queries).execute(&mut *connection).await?;
    feed.note(connection, project, &changed).await
}

/// Removes the evidence of these sources, whose records are erased, but not what it has added to the weights of
/// associations.
pub(in crate::searches) async fn settle(
    connection: &mut PgConnection,
    project: &str,
    rules: &Rules,
    sources: &[Uuid],
) -> sqlx::Result<()> {
    const TAKE: &str = "
        delete from association_evidence where project = $1 and source = any($2)
        returning association_id, source, kind, weight, at, rank";
    const SETTLE: &str = "
        update associations a
        set settled_weight = coalesce(
                decayed(a.settled_weight, extract(epoch from new.at - a.settled_at)::float8, $6), a.settled_weight)
                + coalesce(decayed(new.weight, extract(epoch from a.settled_at - new.at)::float8, $6), new.weight),
            settled_at = greatest(a.settled_at, new.at),
            settled_evidence = a.settled_evidence + new.found
        from unnest($2::uuid[], $3::float8[], $4::timestamptz[], $5::int[]) as new (id, weight, at, found)
        where a.project = $1 and a.id = new.id";
    // Everyone who changes weights holds this lock.
    Feed::lock(connection, project).await?;
    let taken: Vec<Evidence> =
        sqlx::query_as(TAKE).bind(project).bind(sources).fetch_all(&mut *connection).await?;
    let mut sums: BTreeMap<Uuid, Sum> = BTreeMap::new();
    for evidence in &taken {
        sums.entry(evidence.association).or_default().add(evidence, rules.half_life);
    }
    sqlx::query(SETTLE)
        .bind(project)
        .bind(sums.keys().copied().collect::<Vec<_>>())
        .bind(sums.values().map(|sum| sum.weight).collect::<Vec<_>>())
        .bind(sums.values().map(|sum| sum.at).collect::<Vec<_>>())
        .bind(sums.values().map(|sum| sum.found).collect::<Vec<_>>())
        .bind(rules.half_life)
        .execute(connection)
        .await?;
    Ok(())
}

fn query_id(root: &str, query: &str) -> Uuid {
    derived_id(&[b"query", root.as_bytes(), query.as_bytes()])
}

fn association_id(query: Uuid, path: &str) -> Uuid {
    derived_id(&[b"association", query.as_bytes(), path.as_bytes()])
}
