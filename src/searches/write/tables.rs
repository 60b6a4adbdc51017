//! The statements that read and write threads and searches, each for many rows. The columns of inserted rows are
//! passed as arrays, see [`insert`].

use std::collections::{BTreeMap, HashMap};
use std::sync::LazyLock;

use chrono::TimeDelta;
use futures_util::TryStreamExt as _;
use sqlx::PgConnection;
use sqlx::types::Json;
use uuid::Uuid;

use super::rows::{
    AppendedStep, NamedFallback, StartedSearch, StoredFallback, StoredFallbacks, StoredSearch, ThreadKey,
};
use crate::db::insert::{self, Columns, columns};
use crate::db::retry::Lost;
use crate::searches::SearchResult;
use crate::searches::rules::learner::{
    AgentThread, EndedSearch, FallbackKind, FollowedStep, GivenHint, OpenSearch, SearchState, Step,
};
use crate::searches::rules::terms::Terms;
use crate::sharing::Pauses;
use crate::types::Timestamp;

/// One column of the rows of a statement.
fn column<'a, R, T>(rows: &'a [R], value: impl Fn(&'a R) -> T) -> Vec<T> {
    rows.iter().map(value).collect()
}

/// Returns the threads of those of these searches that are stored.
pub(super) async fn read_threads_of(
    connection: &mut PgConnection,
    project: &str,
    searches: &[Uuid],
) -> sqlx::Result<HashMap<Uuid, (Uuid, ThreadKey)>> {
    const SQL: &str =
        "select id, thread_id, agent_session_id, agent_id from searches where project = $1 and id = any($2)";
    let rows: Vec<(Uuid, Uuid, Option<String>, Option<String>)> =
        sqlx::query_as(SQL).bind(project).bind(searches).fetch_all(connection).await?;
    let thread = |(search, thread, session, agent)| (search, (thread, ThreadKey { session, agent }));
    Ok(rows.into_iter().map(thread).collect())
}

/// Inserts the threads that do not exist yet.
pub(super) async fn insert_threads(
    connection: &mut PgConnection,
    project: &str,
    threads: &BTreeMap<Uuid, ThreadKey>,
) -> sqlx::Result<()> {
    const SQL: &str = "
        insert into agent_threads (project, id, session, agent, received_at)
        select $1, new.id, new.session, new.agent, $5
        from unnest($2::uuid[], $3::text[], $4::text[]) as new (id, session, agent)
        order by new.id
        on conflict do nothing";
    sqlx::query(SQL)
        .bind(project)
        .bind(threads.keys().copied().collect::<Vec<_>>())
        .bind(threads.values().map(|key| key.session.as_deref()).collect::<Vec<_>>())
        .bind(threads.values().map(|key| key.agent.as_deref()).collect::<Vec<_>>())
        .bind(Timestamp::now())
        .execute(connection)
        .await?;
    Ok(())
}

/// Locks threads in the order of their ids, so that two transactions wait for each other and do not deadlock.
pub(super) async fn lock_threads(
    connection: &mut PgConnection,
    project: &str,
    ids: &[Uuid],
) -> sqlx::Result<BTreeMap<Uuid, AgentThread>> {
    const SQL: &str = "
        select id, root, turn, waiting, last_at, prompted_at, prompts, names from agent_threads
        where project = $1 and id = any($2) order by id for no key update";
    type Row =
        (Uuid, Option<String>, Option<String>, Vec<Uuid>, Option<Timestamp>, Option<Timestamp>, i32, i32);
    let rows: Vec<Row> = sqlx::query_as(SQL).bind(project).bind(ids).fetch_all(connection).await?;
    let thread = |(id, root, turn, waiting, last_at, prompted_at, prompts, names)| {
        (id, AgentThread { root, turn, waiting, last_at, prompted_at, prompts, names, open: Vec::new() })
    };
    Ok(rows.into_iter().map(thread).collect())
}

/// Reads the open searches of locked threads, with all steps after them that count.
pub(super) async fn read_open_searches(
    connection: &mut PgConnection,
    project: &str,
    threads: &mut BTreeMap<Uuid, AgentThread>,
) -> sqlx::Result<()> {
    const SQL: &str = "
        select thread_id, id, query, coalesce(root, ''), timestamp, results, corrects is not null from searches
        where project = $1 and thread_id = any($2) and state = 'tracking' order by timestamp, id";
    type Row = (Uuid, Uuid, String, String, Timestamp, Json<Vec<SearchResult>>, bool);
    let ids: Vec<_> = threads.keys().copied().collect();
    let mut found = Vec::new();
    let mut rows = sqlx::query_as(SQL).bind(project).bind(ids).fetch(&mut *connection);
    let mut pauses = Pauses::begin();
    while let Some(row) = rows.try_next().await? {
        pauses.pause().await;
        let (thread, id, query, root, at, Json(results), is_correction): Row = row;
        if threads.contains_key(&thread) {
            found.push((
                thread,
                OpenSearch {
                    id,
                    terms: Terms::of(&query),
                    query,
                    root,
                    at,
                    offered: results.into_iter().map(|result| result.path).collect(),
                    is_correction,
                    hints: Vec::new(),
                    steps: Vec::new(),
                },
            ));
        }
    }
    drop(rows);
    if found.is_empty() {
        return Ok(());
    }
    let ids: Vec<_> = found.iter().map(|(_, search)| search.id).collect();
    let mut steps = read_steps(connection, project, &ids).await?;
    let mut hints = read_hints(connection, project, &ids).await?;
    for (thread, mut search) in found {
        search.hints = hints.remove(&search.id).unwrap_or_default();
        search.steps = steps.remove(&search.id).unwrap_or_default();
        if let Some(thread) = threads.get_mut(&thread) {
            thread.open.push(search);
        }
    }
    Ok(())
}

async fn read_steps(
    connection: &mut PgConnection,
    project: &str,
    searches: &[Uuid],
) -> sqlx::Result<HashMap<Uuid, Vec<FollowedStep>>> {
    const SQL: &str = "
        select search_id, id, kind, target, ok, timestamp, share, counts from fallbacks
        where project = $1 and search_id = any($2) and counts order by timestamp, id";
    type Row = (Uuid, Uuid, FallbackKind, String, bool, Timestamp, f64, bool);
    let rows: Vec<Row> = sqlx::query_as(SQL).bind(project).bind(searches).fetch_all(connection).await?;
    let mut steps: HashMap<Uuid, Vec<FollowedStep>> = HashMap::new();
    for (search, id, kind, target, ok, at, share, counts) in rows {
        let step = Step { id, kind, target, ok, at };
        steps.entry(search).or_default().push(FollowedStep { step, share, counts });
    }
    Ok(steps)
}

async fn read_hints(
    connection: &mut PgConnection,
    project: &str,
    searches: &[Uuid],
) -> sqlx::Result<HashMap<Uuid, Vec<GivenHint>>> {
    const SQL: &str = "
        select search_id, rank, path, association_id, file_id, score from search_hints
        where project = $1 and search_id = any($2) order by search_id, rank";
    type Row = (Uuid, i32, String, Option<Uuid>, Option<Uuid>, f64);
    let rows: Vec<Row> = sqlx::query_as(SQL).bind(project).bind(searches).fetch_all(connection).await?;
    let mut hints: HashMap<Uuid, Vec<_>> = HashMap::new();
    for (search, rank, path, association, file, score) in rows {
        hints.entry(search).or_default().push(GivenHint { rank, path, association, file, score });
    }
    Ok(hints)
}

/// Reads what is stored about searches whose threads are locked.
pub(super) async fn read_stored_searches(
    connection: &mut PgConnection,
    project: &str,
    ids: &[Uuid],
) -> sqlx::Result<HashMap<Uuid, StoredSearch>> {
    type Row = (Uuid, Uuid, SearchState, Option<String>, Vec<u8>);
    if ids.is_empty() {
        return Ok(HashMap::new());
    }
    let sql =
        "select id, thread_id, state, root, request_hash from searches where project = $1 and id = any($2)";
    let rows: Vec<Row> = sqlx::query_as(sql).bind(project).bind(ids).fetch_all(connection).await?;
    let search = |(id, thread, state, root, hash)| (id, StoredSearch { thread, state, root, hash });
    Ok(rows.into_iter().map(search).collect())
}

/// Reads those of these fallbacks, by search and id, that are stored.
pub(super) async fn read_stored_fallbacks(
    connection: &mut PgConnection,
    project: &str,
    fallbacks: &[(Uuid, Uuid)],
) -> sqlx::Result<StoredFallbacks> {
    const SQL: &str = "
        select f.search_id, f.id, f.kind, f.target, f.ok, f.request_hash from fallbacks f
        join unnest($2::uuid[], $3::uuid[]) as sent (search_id, id)
            on sent.search_id = f.search_id and sent.id = f.id
        where f.project = $1";
    type Row = (Uuid, Uuid, FallbackKind, String, bool, Option<Vec<u8>>);
    if fallbacks.is_empty() {
        return Ok(StoredFallbacks::new());
    }
    let rows: Vec<Row> = sqlx::query_as(SQL)
        .bind(project)
        .bind(column(fallbacks, |(search, _)| *search))
        .bind(column(fallbacks, |(_, id)| *id))
        .fetch_all(connection)
        .await?;
    let fallback =
        |(search, id, kind, target, ok, hash)| ((search, id), StoredFallback { kind, target, ok, hash });
    Ok(rows.into_iter().map(fallback).collect())
}

columns! {
    /// The columns of a new search.
    struct Searches<'a>(&'a StartedSearch);
    |search| {
        "id": "uuid" = search.id,
        "thread_id": "uuid" = search.thread,
        "query": "text" = search.query.as_str(),
        "best_score": "float8" = search.best_score,
        "result_count": "int" = search.result_count,
        "results": "jsonb" = Json(&search.results),
        "agent_session_id": "text" = search.key.session.as_deref(),
        "agent_id": "text" = search.key.agent.as_deref(),
        "turn_id": "text" = search.turn.as_deref(),
        "root": "text" = search.root.as_deref(),
        "timestamp": "timestamptz" = search.at,
        "state": "text" = search.state,
        "request_hash": "bytea" = search.hash.as_slice(),
        "corrects": "uuid" = search.corrects,
    }
}

columns! {
    /// The columns of a new hint, with the search that it belongs to.
    struct Hints<'a>((Uuid, &'a GivenHint));
    |row| {
        "search_id": "uuid" = row.0,
        "rank": "int" = row.1.rank,
        "path": "text" = row.1.path.as_str(),
        "association_id": "uuid" = row.1.association,
        "file_id": "uuid" = row.1.file,
        "score": "float8" = row.1.score,
    }
}

columns! {
    /// The columns of a fallback that is new.
    struct Fallbacks<'a>(&'a AppendedStep);
    |appended| {
        "search_id": "uuid" = appended.search,
        "id": "uuid" = appended.followed.step.id,
        "kind": "text" = appended.followed.step.kind,
        "target": "text" = appended.followed.step.target.as_str(),
        "ok": "bool" = appended.followed.step.ok,
        "timestamp": "timestamptz" = appended.followed.step.at,
        "share": "float8" = appended.followed.share,
        "counts": "bool" = appended.followed.counts,
        "request_hash": "bytea" = appended.hash.as_deref(),
    }
}

/// The statement that inserts rows of these columns, but for those that are there already.
fn insertion<C: Columns>(table: &str) -> String {
    insertion_if::<C>(table, "true")
}

/// The statement that inserts those rows `new` of these columns that meet a condition, but for those that are there already.
fn insertion_if<C: Columns>(table: &str, condition: &str) -> String {
    format!(
        "insert into {table} (project, {names}) select $1, {values} from (select {unnested}) new
        where {condition} on conflict do nothing",
        names = insert::names::<C>(),
        values = insert::values::<C>("new"),
        unnested = insert::unnested::<C>(2),
    )
}

/// Inserts rows. Returns how many of them were not there already.
async fn insert_rows<C: Columns>(
    connection: &mut PgConnection,
    project: &str,
    sql: &'static str,
    rows: &[C::Row<'_>],
) -> sqlx::Result<u64> {
    if rows.is_empty() {
        return Ok(0);
    }
    let parameters = insert::parameters(project, |parameters| C::bind_all(rows, parameters))?;
    Ok(sqlx::query_with(sql, parameters).execute(connection).await?.rows_affected())
}

/// Inserts searches with their hints. The lock of a thread does not keep a transaction of another thread from starting a
/// search with the same id: it is [`Lost`], and finds the search when it is repeated.
pub(super) async fn insert_searches(
    connection: &mut PgConnection,
    project: &str,
    searches: &[StartedSearch],
) -> sqlx::Result<()> {
    static SEARCHES: LazyLock<String> = LazyLock::new(|| insertion::<Searches>("searches"));
    // A hint was found before. What led to it may have been erased since; otherwise it is locked, and its erasure finds the hint.
    const STILL_THERE: &str = "
        case when new.association_id is null
            then exists (
                select from touched_files f where f.project = $1 and f.file_id = new.file_id for key share)
            else exists (
                select from associations a where a.project = $1 and a.id = new.association_id for key share)
        end";
    static HINTS: LazyLock<String> = LazyLock::new(|| insertion_if::<Hints>("search_hints", STILL_THERE));
    let hints = searches.iter().flat_map(|search| search.hints.iter().map(|hint| (search.id, hint)));
    let hints: Vec<_> = hints.collect();
    let searches: Vec<_> = searches.iter().collect();
    if insert_rows::<Searches>(connection, project, &SEARCHES, &searches).await? < searches.len() as u64 {
        return Err(Lost.into());
    }
    insert_rows::<Hints>(connection, project, &HINTS, &hints).await?;
    Ok(())
}

/// Inserts fallbacks. One that came by another way already (a hook and a transcript tell the same) stays as it is.
pub(super) async fn insert_fallbacks(
    connection: &mut PgConnection,
    project: &str,
    appended: &[AppendedStep],
) -> sqlx::Result<()> {
    static SQL: LazyLock<String> = LazyLock::new(|| insertion::<Fallbacks>("fallbacks"));
    let appended: Vec<_> = appended.iter().collect();
    insert_rows::<Fallbacks>(connection, project, &SQL, &appended).await?;
    Ok(())
}

/// Notes the hashes of the requests that posted stored fallbacks.
pub(super) async fn name_fallbacks(
    connection: &mut PgConnection,
    project: &str,
    named: &[NamedFallback],
) -> sqlx::Result<()> {
    const SQL: &str = "
        update fallbacks f set request_hash = new.request_hash
        from unnest($2::uuid[], $3::uuid[], $4::bytea[]) as new (search_id, id, request_hash)
        where f.project = $1 and f.search_id = new.search_id and f.id = new.id";
    if named.is_empty() {
        return Ok(());
    }
    sqlx::query(SQL)
        .bind(project)
        .bind(column(named, |named| named.search))
        .bind(column(named, |named| named.id))
        .bind(column(named, |named| named.hash.as_slice()))
        .execute(connection)
        .await?;
    Ok(())
}

/// Ends searches. Exports are ordered by `completed_at`, so that is the time of the database's clock, and a microsecond more
/// from search to search in the order given.
pub(super) async fn end_searches(
    connection: &mut PgConnection,
    project: &str,
    ended: &[EndedSearch],
) -> sqlx::Result<()> {
    const SQL: &str = "
        update searches s set state = new.state, ended_at = new.ended_at, completed_at = new.completed_at
        from unnest($2::uuid[], $3::text[], $4::timestamptz[], $5::timestamptz[])
            as new (id, state, ended_at, completed_at)
        where s.project = $1 and s.id = new.id";
    const HINTS: &str = "
        update search_hints h set read = new.read
        from unnest($2::uuid[], $3::int[], $4::bool[]) as new (search_id, rank, read)
        where h.project = $1 and h.search_id = new.search_id and h.rank = new.rank";
    if ended.is_empty() {
        return Ok(());
    }
    // Read beforehand: where tables are distributed, an update may call no function whose result changes.
    let now: Timestamp = sqlx::query_scalar("select clock_timestamp()").fetch_one(&mut *connection).await?;
    let completed = (0..).take(ended.len()).map(|index| now.plus(TimeDelta::microseconds(index)));
    sqlx::query(SQL)
        .bind(project)
        .bind(column(ended, |ended| ended.search.id))
        .bind(column(ended, |ended| ended.state))
        .bind(column(ended, |ended| ended.at))
        .bind(completed.collect::<Vec<_>>())
        .execute(&mut *connection)
        .await?;
    let hints: Vec<_> = ended
        .iter()
        .flat_map(|ended| ended.hints().map(|(hint, read)| (ended.search.id, hint.rank, read)))
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

/// Notes how threads stand.
pub(super) async fn update_threads(
    connection: &mut PgConnection,
    project: &str,
    threads: &BTreeMap<Uuid, AgentThread>,
    received: Timestamp,
) -> sqlx::Result<()> {
    const SQL: &str = "
        update agent_threads t
        set root = new.root, turn = new.turn, last_at = new.last_at, has_open = new.has_open, received_at = $7,
            waiting = array(select jsonb_array_elements_text(new.waiting)::uuid), prompted_at = new.prompted_at,
            prompts = new.prompts, names = new.names
        from unnest($2::uuid[], $3::text[], $4::text[], $5::timestamptz[], $6::bool[], $8::jsonb[], $9::timestamptz[],
            $10::int[], $11::int[]) as new (id, root, turn, last_at, has_open, waiting, prompted_at, prompts, names)
        where t.project = $1 and t.id = new.id";
    if threads.is_empty() {
        return Ok(());
    }
    sqlx::query(SQL)
        .bind(project)
        .bind(threads.keys().copied().collect::<Vec<_>>())
        .bind(threads.values().map(|thread| thread.root.as_deref()).collect::<Vec<_>>())
        .bind(threads.values().map(|thread| thread.turn.as_deref()).collect::<Vec<_>>())
        .bind(threads.values().map(|thread| thread.last_at).collect::<Vec<_>>())
        .bind(threads.values().map(|thread| !thread.open.is_empty()).collect::<Vec<_>>())
        .bind(received)
        // Arrays of unequal length make no column.
        .bind(threads.values().map(|thread| Json(&thread.waiting)).collect::<Vec<_>>())
        .bind(threads.values().map(|thread| thread.prompted_at).collect::<Vec<_>>())
        .bind(threads.values().map(|thread| thread.prompts).collect::<Vec<_>>())
        .bind(threads.values().map(|thread| thread.names).collect::<Vec<_>>())
        .execute(connection)
        .await?;
    Ok(())
}
