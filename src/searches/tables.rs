//! The statements that read and write trails and searches, each for many rows: columns come in as arrays through `unnest`.

use std::collections::{BTreeMap, HashMap};

use sqlx::PgConnection;
use sqlx::types::Json;
use uuid::Uuid;

use super::learner::{Ended, Followed, Kind, Open, State, Step, Trail};
use super::write::{Appended, Known, Sent, Started, Who};
use super::{MOST_RESULTS, SearchResult};
use crate::types::Timestamp;

/// One column of the rows that a statement takes.
fn column<'a, R, T>(rows: &'a [R], value: impl Fn(&'a R) -> T) -> Vec<T> {
    rows.iter().map(value).collect()
}

/// The trails of searches that are stored.
pub(super) async fn trails_of(
    connection: &mut PgConnection,
    project: &str,
    searches: &[Uuid],
) -> sqlx::Result<BTreeMap<Uuid, Who>> {
    let sql =
        "select distinct trail, agent_session_id, agent_id from searches where project = $1 and id = any($2)";
    let rows: Vec<(Uuid, Option<String>, Option<String>)> =
        sqlx::query_as(sql).bind(project).bind(searches).fetch_all(connection).await?;
    Ok(rows.into_iter().map(|(trail, session, agent)| (trail, Who { session, agent })).collect())
}

/// Makes the trails that are not there yet.
pub(super) async fn insert_trails(
    connection: &mut PgConnection,
    project: &str,
    trails: &BTreeMap<Uuid, Who>,
) -> sqlx::Result<()> {
    const SQL: &str = "
        insert into trails (project, id, session, agent, received_at)
        select $1, new.id, new.session, new.agent, $5
        from unnest($2::uuid[], $3::text[], $4::text[]) as new (id, session, agent)
        order by new.id
        on conflict do nothing";
    sqlx::query(SQL)
        .bind(project)
        .bind(trails.keys().copied().collect::<Vec<_>>())
        .bind(trails.values().map(|who| who.session.as_deref()).collect::<Vec<_>>())
        .bind(trails.values().map(|who| who.agent.as_deref()).collect::<Vec<_>>())
        .bind(Timestamp::now())
        .execute(connection)
        .await?;
    Ok(())
}

/// Locks trails, in id order, so that two that lock the same ones wait for each other instead of forming a deadlock.
pub(super) async fn lock_trails(
    connection: &mut PgConnection,
    project: &str,
    ids: &[Uuid],
) -> sqlx::Result<BTreeMap<Uuid, Trail>> {
    const SQL: &str = "
        select id, root, turn, waiting, last_at from trails
        where project = $1 and id = any($2) order by id for no key update";
    type Row = (Uuid, Option<String>, Option<String>, Vec<String>, Option<Timestamp>);
    let rows: Vec<Row> = sqlx::query_as(SQL).bind(project).bind(ids).fetch_all(connection).await?;
    let trail =
        |(id, root, turn, waiting, last_at)| (id, Trail { root, turn, waiting, last_at, open: Vec::new() });
    Ok(rows.into_iter().map(trail).collect())
}

/// Reads the open searches of locked trails, with all that followed them.
pub(super) async fn read_open(
    connection: &mut PgConnection,
    project: &str,
    trails: &mut BTreeMap<Uuid, Trail>,
) -> sqlx::Result<()> {
    const SQL: &str = "
        select trail, id, query, coalesce(root, ''), timestamp, results from searches
        where project = $1 and trail = any($2) and state = 'tracking' order by timestamp, id";
    type Row = (Uuid, Uuid, String, String, Timestamp, Json<Vec<SearchResult>>);
    let ids: Vec<_> = trails.keys().copied().collect();
    let rows: Vec<Row> = sqlx::query_as(SQL).bind(project).bind(ids).fetch_all(&mut *connection).await?;
    if rows.is_empty() {
        return Ok(());
    }
    let ids: Vec<_> = rows.iter().map(|(_, id, ..)| *id).collect();
    let mut steps = read_steps(connection, project, &ids).await?;
    let mut hints = read_hints(connection, project, &ids).await?;
    for (trail, id, query, root, at, Json(results)) in rows {
        if let Some(trail) = trails.get_mut(&trail) {
            trail.open.push(Open {
                id,
                query,
                root,
                at,
                offered: results.into_iter().map(|result| result.path).collect(),
                hints: hints.remove(&id).unwrap_or_default(),
                steps: steps.remove(&id).unwrap_or_default(),
            });
        }
    }
    Ok(())
}

async fn read_steps(
    connection: &mut PgConnection,
    project: &str,
    searches: &[Uuid],
) -> sqlx::Result<HashMap<Uuid, Vec<Followed>>> {
    const SQL: &str = "
        select search_id, id, kind, target, ok, timestamp, share, counts from fallbacks
        where project = $1 and search_id = any($2) order by timestamp, id";
    type Row = (Uuid, Uuid, Kind, String, bool, Timestamp, f64, bool);
    let rows: Vec<Row> = sqlx::query_as(SQL).bind(project).bind(searches).fetch_all(connection).await?;
    let mut steps: HashMap<Uuid, Vec<Followed>> = HashMap::new();
    for (search, id, kind, target, ok, at, share, counts) in rows {
        let step = Step { id, kind, target, ok, at };
        steps.entry(search).or_default().push(Followed { step, share, counts });
    }
    Ok(steps)
}

async fn read_hints(
    connection: &mut PgConnection,
    project: &str,
    searches: &[Uuid],
) -> sqlx::Result<HashMap<Uuid, Vec<(Uuid, String)>>> {
    const SQL: &str = "
        select h.search_id, a.id, a.path from search_hints h
        join associations a on a.project = $1 and a.id = h.association_id
        where h.project = $1 and h.search_id = any($2)";
    let rows: Vec<(Uuid, Uuid, String)> =
        sqlx::query_as(SQL).bind(project).bind(searches).fetch_all(connection).await?;
    let mut hints: HashMap<Uuid, Vec<_>> = HashMap::new();
    for (search, association, path) in rows {
        hints.entry(search).or_default().push((association, path));
    }
    Ok(hints)
}

/// What is known of searches that are stored; their trails are locked.
pub(super) async fn read_known(
    connection: &mut PgConnection,
    project: &str,
    ids: &[Uuid],
) -> sqlx::Result<HashMap<Uuid, Known>> {
    let sql = "select id, trail, state, request_hash from searches where project = $1 and id = any($2)";
    let rows: Vec<(Uuid, Uuid, State, Vec<u8>)> =
        sqlx::query_as(sql).bind(project).bind(ids).fetch_all(connection).await?;
    Ok(rows.into_iter().map(|(id, trail, state, hash)| (id, Known { trail, state, hash })).collect())
}

/// Which of these fallbacks, by search and id, are stored, and the hashes of the requests that posted them.
pub(super) async fn read_sent(
    connection: &mut PgConnection,
    project: &str,
    fallbacks: &[(Uuid, Uuid)],
) -> sqlx::Result<Sent> {
    const SQL: &str = "
        select f.search_id, f.id, f.request_hash from fallbacks f
        join unnest($2::uuid[], $3::uuid[]) as sent (search_id, id)
            on sent.search_id = f.search_id and sent.id = f.id
        where f.project = $1";
    if fallbacks.is_empty() {
        return Ok(Sent::new());
    }
    let rows: Vec<(Uuid, Uuid, Option<Vec<u8>>)> = sqlx::query_as(SQL)
        .bind(project)
        .bind(column(fallbacks, |(search, _)| *search))
        .bind(column(fallbacks, |(_, id)| *id))
        .fetch_all(connection)
        .await?;
    Ok(rows.into_iter().map(|(search, id, hash)| ((search, id), hash)).collect())
}

/// The paths of associations.
pub(super) async fn read_paths(
    connection: &mut PgConnection,
    project: &str,
    associations: &[Uuid],
) -> sqlx::Result<HashMap<Uuid, String>> {
    if associations.is_empty() {
        return Ok(HashMap::new());
    }
    let sql = "select id, path from associations where project = $1 and id = any($2)";
    let rows: Vec<(Uuid, String)> =
        sqlx::query_as(sql).bind(project).bind(associations).fetch_all(connection).await?;
    Ok(rows.into_iter().collect())
}

/// Inserts searches with their hints.
pub(super) async fn insert_searches(
    connection: &mut PgConnection,
    project: &str,
    searches: &[Started],
) -> sqlx::Result<()> {
    const SQL: &str = "
        insert into searches (project, id, trail, query, best_score, result_count, results, agent_session_id, agent_id,
            turn_id, root, timestamp, state, request_hash)
        select $1, new.* from unnest($2::uuid[], $3::uuid[], $4::text[], $5::float8[], $6::int[], $7::jsonb[], $8::text[],
            $9::text[], $10::text[], $11::text[], $12::timestamptz[], $13::text[], $14::bytea[]) as new";
    const HINTS: &str = "
        insert into search_hints (project, search_id, association_id, place, score)
        select $1, new.* from unnest($2::uuid[], $3::uuid[], $4::int[], $5::float8[]) as new";
    if searches.is_empty() {
        return Ok(());
    }
    sqlx::query(SQL)
        .bind(project)
        .bind(column(searches, |search| search.id))
        .bind(column(searches, |search| search.trail))
        .bind(column(searches, |search| search.query.as_str()))
        .bind(column(searches, |search| search.best_score))
        .bind(column(searches, |search| search.result_count))
        .bind(column(searches, |search| Json(&search.results[..search.results.len().min(MOST_RESULTS)])))
        .bind(column(searches, |search| search.who.session.as_deref()))
        .bind(column(searches, |search| search.who.agent.as_deref()))
        .bind(column(searches, |search| search.turn.as_deref()))
        .bind(column(searches, |search| search.root.as_deref()))
        .bind(column(searches, |search| search.at))
        .bind(column(searches, |search| search.state))
        .bind(column(searches, |search| search.hash.as_slice()))
        .execute(&mut *connection)
        .await?;
    let numbered = |search: &Started| {
        let hints = (1_i32..).zip(search.hints.clone());
        let id = search.id;
        hints.map(move |(place, (association, score))| (id, association, place, score))
    };
    let hints: Vec<_> = searches.iter().flat_map(numbered).collect();
    if !hints.is_empty() {
        sqlx::query(HINTS)
            .bind(project)
            .bind(column(&hints, |hint| hint.0))
            .bind(column(&hints, |hint| hint.1))
            .bind(column(&hints, |hint| hint.2))
            .bind(column(&hints, |hint| hint.3))
            .execute(connection)
            .await?;
    }
    Ok(())
}

/// Inserts fallbacks. One that came by another way already (a hook and a transcript tell the same) stays as it is.
pub(super) async fn insert_fallbacks(
    connection: &mut PgConnection,
    project: &str,
    appended: &[Appended],
) -> sqlx::Result<()> {
    const SQL: &str = "
        insert into fallbacks (project, search_id, id, kind, target, ok, timestamp, share, counts, request_hash)
        select $1, new.* from unnest($2::uuid[], $3::uuid[], $4::text[], $5::text[], $6::bool[], $7::timestamptz[],
            $8::float8[], $9::bool[], $10::bytea[]) as new
        on conflict do nothing";
    if appended.is_empty() {
        return Ok(());
    }
    sqlx::query(SQL)
        .bind(project)
        .bind(column(appended, |new| new.search))
        .bind(column(appended, |new| new.followed.step.id))
        .bind(column(appended, |new| new.followed.step.kind))
        .bind(column(appended, |new| new.followed.step.target.as_str()))
        .bind(column(appended, |new| new.followed.step.ok))
        .bind(column(appended, |new| new.followed.step.at))
        .bind(column(appended, |new| new.followed.share))
        .bind(column(appended, |new| new.followed.counts))
        .bind(column(appended, |new| new.hash.as_deref()))
        .execute(connection)
        .await?;
    Ok(())
}

/// Ends searches: in the order given, a microsecond apart, by the database's clock, since exports are ordered by it.
pub(super) async fn end_searches(
    connection: &mut PgConnection,
    project: &str,
    ended: &[Ended],
) -> sqlx::Result<()> {
    const SQL: &str = "
        update searches s
        set state = new.state, ended_at = new.ended_at,
            completed_at = (select clock_timestamp()) + new.place * interval '1 microsecond'
        from unnest($2::uuid[], $3::text[], $4::timestamptz[]) with ordinality as new (id, state, ended_at, place)
        where s.project = $1 and s.id = new.id";
    const HINTS: &str = "
        update search_hints h set read = new.read
        from unnest($2::uuid[], $3::uuid[], $4::bool[]) as new (search_id, association_id, read)
        where h.project = $1 and h.search_id = new.search_id and h.association_id = new.association_id";
    if ended.is_empty() {
        return Ok(());
    }
    sqlx::query(SQL)
        .bind(project)
        .bind(column(ended, |ended| ended.search.id))
        .bind(column(ended, |ended| ended.state))
        .bind(column(ended, |ended| ended.at))
        .execute(&mut *connection)
        .await?;
    let hints: Vec<_> = ended
        .iter()
        .flat_map(|ended| ended.hints().map(|(association, read)| (ended.search.id, association, read)))
        .collect();
    if !hints.is_empty() {
        sqlx::query(HINTS)
            .bind(project)
            .bind(column(&hints, |hint| hint.0))
            .bind(column(&hints, |hint| hint.1))
            .bind(column(&hints, |hint| hint.2))
            .execute(connection)
            .await?;
    }
    Ok(())
}

/// Notes how trails stand.
pub(super) async fn update_trails(
    connection: &mut PgConnection,
    project: &str,
    trails: &BTreeMap<Uuid, Trail>,
    received: Timestamp,
) -> sqlx::Result<()> {
    const SQL: &str = "
        update trails t
        set root = new.root, turn = new.turn, last_at = new.last_at, has_open = new.has_open, received_at = $7,
            waiting = array(select jsonb_array_elements_text(new.waiting))
        from unnest($2::uuid[], $3::text[], $4::text[], $5::timestamptz[], $6::bool[], $8::jsonb[])
            as new (id, root, turn, last_at, has_open, waiting)
        where t.project = $1 and t.id = new.id";
    if trails.is_empty() {
        return Ok(());
    }
    sqlx::query(SQL)
        .bind(project)
        .bind(trails.keys().copied().collect::<Vec<_>>())
        .bind(trails.values().map(|trail| trail.root.as_deref()).collect::<Vec<_>>())
        .bind(trails.values().map(|trail| trail.turn.as_deref()).collect::<Vec<_>>())
        .bind(trails.values().map(|trail| trail.last_at).collect::<Vec<_>>())
        .bind(trails.values().map(|trail| !trail.open.is_empty()).collect::<Vec<_>>())
        .bind(received)
        // Arrays of unequal length make no column.
        .bind(trails.values().map(|trail| Json(&trail.waiting)).collect::<Vec<_>>())
        .execute(connection)
        .await?;
    Ok(())
}
