//! The statements that write memories and conversations. Those for many rows take a column as an array (see
//! [`insert`](mod@crate::db::insert)).

use std::collections::{HashMap, HashSet};
use std::sync::LazyLock;

use sqlx::PgConnection;
use sqlx::types::Json;
use uuid::Uuid;

use super::event::{Ask, Change, Judge, Start, Suggest};
use super::rules::terms::Indexed;
use super::suggestion::Shown;
use super::{folder, store};
use crate::db::insert::{self, Columns as _, columns};
use crate::retrieval::keys;
use crate::sharing::Pauses;
use crate::types::{FreeForm, derived_id};

/// A row of a memory that is stored.
struct MemoryRow<'a> {
    id: Uuid,
    start: &'a Start,
    indexed: Option<Indexed>,
    search_keys: Option<String>,
}

impl<'a> MemoryRow<'a> {
    fn started(project: &str, id: Uuid, start: &'a Start) -> Self {
        let new = &start.new;
        let texts = [Some(&*new.content), new.file_path.as_deref(), new.symbol.as_deref()];
        let texts = texts.into_iter().flatten().chain(new.tags.iter().map(String::as_str));
        let indexed = start.keeps_text.then(|| Indexed::of(project, texts));
        let search_keys = indexed.as_ref().map(|indexed| keys::literal(&indexed.search_keys(project)));
        Self { id, start, indexed, search_keys }
    }

    /// Makes the rows of memories. Counting their terms may take a second, in which the other tasks of the thread get their
    /// turns.
    async fn all_started(project: &str, starts: &[(Uuid, &'a Start)]) -> Vec<Self> {
        let (mut rows, mut pauses) = (Vec::with_capacity(starts.len()), Pauses::begin());
        for (id, start) in starts {
            pauses.pause().await;
            rows.push(Self::started(project, *id, start));
        }
        rows
    }
}

/// The number of bytes of the contents of memories that one statement inserts, unless a single memory has more. Their terms take
/// several times as much memory, and Postgres waits while they are counted.
const TOGETHER: usize = 1 << 20;

/// Returns how many of the first memories are inserted by one statement.
pub(super) fn together(starts: &[(Uuid, &Start)]) -> usize {
    let mut bytes = 0;
    let fits = |(_, start): &&(Uuid, &Start)| {
        bytes += start.new.content.len();
        bytes <= TOGETHER
    };
    starts.iter().take_while(fits).count().max(1).min(starts.len())
}

columns! {
    /// The columns of a memory.
    struct Memories<'a>(MemoryRow<'a>);
    |row| {
        "id": "uuid" = row.id,
        "source_type": "text" = row.start.new.source_type.unwrap_or_default(),
        "content": "text" = Some(&*row.start.new.content).filter(|_| row.start.keeps_text),
        "importance": "float8" = row.start.new.importance.unwrap_or(0.5),
        "tags": "jsonb" = Json(&row.start.new.tags),
        "file_path": "text" = row.start.new.file_path.as_deref(),
        "symbol": "text" = row.start.new.symbol.as_deref(),
        "root": "text" = row.start.new.root.as_deref().map(folder),
        "session_id": "text" = row.start.new.session_id.as_deref(),
        "code_file": "uuid" = row.start.code_file,
        "metadata": "jsonb" = FreeForm::or_empty(row.start.new.metadata.as_ref()),
        "created_at": "timestamptz" = row.start.created_at,
        "search_keys": "text" as "int[]" = row.search_keys.as_deref(),
        "term_counts": "bytea" = row.indexed.as_ref().map(|indexed| indexed.counts.as_slice()),
        "request_hash": "bytea" = row.start.hash.as_slice(),
    }
}

/// Inserts memories, each with an id of its own. Returns the ids of those that did not exist yet.
pub(super) async fn insert_memories(
    connection: &mut PgConnection,
    project: &str,
    mut starts: Vec<(Uuid, &Start)>,
) -> sqlx::Result<HashSet<Uuid>> {
    // All writers insert in this order, so that they do not wait for each other.
    starts.sort_unstable_by_key(|(id, _)| *id);
    let (mut made, mut left) = (HashSet::new(), starts.as_slice());
    while !left.is_empty() {
        let (next, rest) = left.split_at(together(left));
        let rows = MemoryRow::all_started(project, next).await;
        made.extend(insert_rows(connection, project, &rows).await?);
        left = rest;
    }
    Ok(made)
}

async fn insert_rows(
    connection: &mut PgConnection,
    project: &str,
    rows: &[MemoryRow<'_>],
) -> sqlx::Result<Vec<Uuid>> {
    static SQL: LazyLock<String> = LazyLock::new(|| {
        format!(
            "insert into memories (project, {names})
            select $1, {values} from (select {unnested}) new order by new.id
            on conflict do nothing
            returning id",
            names = insert::names::<Memories>(),
            values = insert::values::<Memories>("new"),
            unnested = insert::unnested::<Memories>(2),
        )
    });
    let parameters = insert::parameters(project, |parameters| Memories::bind_all(rows, parameters))?;
    sqlx::query_scalar_with(SQL.as_str(), parameters).fetch_all(connection).await
}

/// Changes a memory. Searches and suggestions use the new content at once. A piece of a source file that has another text or
/// place then is no longer known as it was sent, so that the file is replaced as a whole the next time. Returns whether there
/// is one.
pub(super) async fn change_memory(
    connection: &mut PgConnection,
    project: &str,
    id: Uuid,
    Change { change, drops_content }: &Change,
) -> sqlx::Result<bool> {
    const SQL: &str = "
        update memories set revision = revision + (content is distinct from $3)::integer, content = $3, importance = $4,
            tags = $5, file_path = $6, symbol = $7, root = $8, metadata = $9, search_keys = $10, term_counts = $11,
            request_hash = case when code_file is not null and $12 then '' else request_hash end
        where project = $1 and id = $2";
    const FORGET: &str = "delete from memory_embeddings where project = $1 and memory_id = $2";
    let Some(memory) = store::lock(connection, project, id).await? else {
        return Ok(false);
    };
    let content = change.content.as_deref().map(str::to_owned).or(memory.content).filter(|_| !drops_content);
    let is_reworded =
        change.content.is_some() || change.file_path.is_some() || change.symbol.is_some() || *drops_content;
    let is_moved = change.root.is_some();
    let importance = change.importance.unwrap_or(memory.importance);
    let tags = change.tags.clone().unwrap_or(memory.tags);
    let file_path = change.file_path.as_deref().map(str::to_owned).or(memory.file_path);
    let symbol = change.symbol.as_deref().map(str::to_owned).or(memory.symbol);
    let root = change.root.as_deref().map(|root| folder(root).to_owned()).or(memory.root);
    let metadata = change.metadata.clone().unwrap_or(memory.metadata);
    let indexed = content.as_deref().map(|content| {
        let texts = [Some(content), file_path.as_deref(), symbol.as_deref()];
        Indexed::of(project, texts.into_iter().flatten().chain(tags.iter().map(String::as_str)))
    });
    let (keys, counts) = indexed.map(|indexed| (indexed.search_keys(project), indexed.counts)).unzip();
    sqlx::query(SQL)
        .bind(project)
        .bind(id)
        .bind(content)
        .bind(importance)
        .bind(Json(tags))
        .bind(file_path)
        .bind(symbol)
        .bind(root)
        .bind(Json(metadata))
        .bind(keys)
        .bind(counts)
        .bind(is_reworded || is_moved)
        .execute(&mut *connection)
        .await?;
    if is_reworded {
        sqlx::query(FORGET).bind(project).bind(id).execute(connection).await?;
    }
    Ok(true)
}

columns! {
    /// The columns of a query.
    struct Queries<'a>(&'a Ask);
    |ask| {
        "session_id": "text" = ask.session.as_str(),
        "id": "uuid" = ask.id,
        "query": "text" = Some(&*ask.new.query).filter(|_| ask.keeps_text),
        "shown": "text" as "uuid[]" = literal(&ask.new.shown),
        "root": "text" = ask.new.root.as_deref().map(folder),
        "asked_by": "uuid" = ask.asked_by,
        "at": "timestamptz" = ask.at,
        "request_hash": "bytea" = ask.hash.as_slice(),
    }
}

/// Writes ids as a literal of a Postgres array.
fn literal(ids: &[Uuid]) -> String {
    let ids: Vec<_> = ids.iter().map(ToString::to_string).collect();
    format!("{{{}}}", ids.join(","))
}

/// Inserts queries. Returns the ids of those that did not exist yet.
pub(super) async fn insert_queries(
    connection: &mut PgConnection,
    project: &str,
    rows: &[&Ask],
) -> sqlx::Result<HashSet<Uuid>> {
    static SQL: LazyLock<String> = LazyLock::new(|| {
        format!(
            "insert into conversation_queries (project, {names})
            select $1, {values} from (select {unnested}) new order by new.id
            on conflict do nothing
            returning id",
            names = insert::names::<Queries>(),
            values = insert::values::<Queries>("new"),
            unnested = insert::unnested::<Queries>(2),
        )
    });
    let parameters = insert::parameters(project, |parameters| Queries::bind_all(rows, parameters))?;
    let made: Vec<Uuid> = sqlx::query_scalar_with(SQL.as_str(), parameters).fetch_all(connection).await?;
    Ok(made.into_iter().collect())
}

/// A response with suggestions.
struct SuggestRow<'a> {
    suggest: &'a Suggest,
    /// Whether words of its queries are stored, because none of them was erased meanwhile.
    has_words: bool,
}

impl SuggestRow<'_> {
    fn keywords(&self) -> &[String] {
        if self.has_words { &self.suggest.intent.keywords } else { &[] }
    }

    fn search_query(&self) -> &str {
        if self.has_words { &self.suggest.intent.search_query } else { "" }
    }
}

columns! {
    /// The columns of an answer.
    struct Suggests<'a>(SuggestRow<'a>);
    |row| {
        "id": "uuid" = row.suggest.id,
        "session_id": "text" = row.suggest.session.as_str(),
        "query_id": "uuid" = row.suggest.query(),
        "intent_type": "text" = row.suggest.intent.intent_type,
        "intent_confidence": "float8" = row.suggest.intent.confidence,
        "keywords": "jsonb" = Json(row.keywords()),
        "search_query": "text" = row.search_query(),
        "confidence_threshold": "float8" = row.suggest.threshold,
        "took_ms": "float8" = row.suggest.took_ms,
        "request_hash": "bytea" = row.suggest.hash.as_slice(),
    }
}

/// A memory with the response that it is part of and its rank in it.
struct ShownRow<'a> {
    suggest: &'a Suggest,
    /// See [`SuggestRow`].
    has_words: bool,
    shown: &'a Shown,
    rank: i32,
    /// The revision of the memory's content. None if it was erased meanwhile.
    revision: Option<i32>,
}

impl ShownRow<'_> {
    /// Returns the reason, which has words of the memory and of the queries, and is erased with them.
    fn reason(&self) -> Option<&str> {
        let reason = self.shown.reason.as_str();
        self.revision.and(Some(reason)).filter(|reason| !reason.is_empty() && self.has_words)
    }
}

columns! {
    /// The columns of a memory that is suggested.
    struct Suggestions<'a>(ShownRow<'a>);
    |row| {
        "id": "uuid" = row_id(&row.suggest.session, row.shown.memory),
        "session_id": "text" = row.suggest.session.as_str(),
        "memory_id": "uuid" = row.shown.memory,
        "memory_revision": "int" = row.revision,
        "suggest_id": "uuid" = row.suggest.id,
        "query_id": "uuid" = row.suggest.query(),
        "intent_type": "text" = row.suggest.intent.intent_type,
        "source_type": "text" = row.shown.source_type,
        "rank": "int" = row.rank,
        "confidence": "float8" = row.shown.confidence,
        "log_odds": "float8" = row.shown.log_odds,
        "score": "float8" = row.shown.factors.score(),
        "semantic_similarity": "float8" = row.shown.factors.semantic_similarity,
        "recency": "float8" = row.shown.factors.recency,
        "importance": "float8" = row.shown.factors.importance,
        "context_match": "float8" = row.shown.factors.context_match,
        "reason": "text" = row.reason(),
    }
}

/// Returns the id of the row for a memory in a conversation.
fn row_id(session: &str, memory: Uuid) -> Uuid {
    derived_id(&[b"conversation memory", session.as_bytes(), memory.as_bytes()])
}

/// Stores responses with the memories that they suggest. A memory that a concurrent response suggested in the same
/// conversation is left out. Returns the ids of the new responses.
pub(super) async fn insert_suggests(
    connection: &mut PgConnection,
    project: &str,
    rows: &[&Suggest],
) -> sqlx::Result<HashSet<Uuid>> {
    static SUGGESTS: LazyLock<String> = LazyLock::new(|| {
        format!(
            "insert into memory_suggests (project, {names}, created_at)
            select $1, {values}, clock_timestamp() from (select {unnested}) new order by new.id
            on conflict do nothing
            returning id",
            names = insert::names::<Suggests>(),
            values = insert::values::<Suggests>("new"),
            unnested = insert::unnested::<Suggests>(2),
        )
    });
    static SUGGESTIONS: LazyLock<String> = LazyLock::new(|| {
        format!(
            "insert into conversation_memories (project, {names}, shown_at)
            select $1, {values}, clock_timestamp() from (select {unnested}) new
            order by new.session_id, new.memory_id
            on conflict do nothing",
            names = insert::names::<Suggestions>(),
            values = insert::values::<Suggestions>("new"),
            unnested = insert::unnested::<Suggestions>(2),
        )
    });
    let queries: Vec<_> = rows.iter().flat_map(|suggest| suggest.queries.iter().copied()).collect();
    let there = lock_queries(connection, project, &queries).await?;
    let has_words = |suggest: &Suggest| suggest.queries.iter().all(|query| there.contains(query));
    let rows: Vec<_> =
        rows.iter().map(|suggest| SuggestRow { suggest, has_words: has_words(suggest) }).collect();
    let parameters = insert::parameters(project, |parameters| Suggests::bind_all(&rows, parameters))?;
    let made: Vec<Uuid> =
        sqlx::query_scalar_with(SUGGESTS.as_str(), parameters).fetch_all(&mut *connection).await?;
    let made: HashSet<_> = made.into_iter().collect();
    let mut shown: Vec<_> = rows
        .iter()
        .filter(|row| made.contains(&row.suggest.id))
        .flat_map(|&SuggestRow { suggest, has_words }| {
            let row = move |(rank, shown)| ShownRow { suggest, has_words, shown, rank, revision: None };
            (1..).zip(&suggest.shown).map(row)
        })
        .collect();
    if !shown.is_empty() {
        let memories: Vec<_> = shown.iter().map(|row| row.shown.memory).collect();
        let revisions = lock_revisions(connection, project, &memories).await?;
        for row in &mut shown {
            row.revision = revisions.get(&row.shown.memory).copied();
        }
        let parameters = insert::parameters(project, |parameters| Suggestions::bind_all(&shown, parameters))?;
        sqlx::query_with(SUGGESTIONS.as_str(), parameters).execute(connection).await?;
    }
    Ok(made)
}

/// Returns which of these queries were not erased. An erasure waits until what has words of them is committed.
async fn lock_queries(
    connection: &mut PgConnection,
    project: &str,
    queries: &[Uuid],
) -> sqlx::Result<HashSet<Uuid>> {
    const SQL: &str =
        "select id from conversation_queries where project = $1 and id = any($2) order by id for key share";
    if queries.is_empty() {
        return Ok(HashSet::new());
    }
    let there: Vec<Uuid> = sqlx::query_scalar(SQL).bind(project).bind(queries).fetch_all(connection).await?;
    Ok(there.into_iter().collect())
}

/// Returns the revisions of memories, without those that were erased. An erasure waits until what is written about these is
/// committed, so that it finds that.
async fn lock_revisions(
    connection: &mut PgConnection,
    project: &str,
    memories: &[Uuid],
) -> sqlx::Result<HashMap<Uuid, i32>> {
    const SQL: &str = "
        select id, revision from memories where project = $1 and id = any($2) order by id for key share";
    let rows: Vec<(Uuid, i32)> =
        sqlx::query_as(SQL).bind(project).bind(memories).fetch_all(connection).await?;
    Ok(rows.into_iter().collect())
}

columns! {
    /// The columns of a verdict.
    struct Verdicts<'a>(&'a Judge);
    |judge| {
        "id": "uuid" = row_id(&judge.session, judge.memory),
        "session_id": "text" = judge.session.as_str(),
        "memory_id": "uuid" = judge.memory,
        "verdict": "text" = judge.verdict,
    }
}

/// Stores verdicts. Each replaces an earlier verdict on the memory in the same conversation, whose time stays if it is the
/// same. Returns the memories that exist.
pub(super) async fn judge(
    connection: &mut PgConnection,
    project: &str,
    rows: &[&Judge],
) -> sqlx::Result<HashSet<Uuid>> {
    // Exports are ordered by the time of the verdict, which comes from the database's clock and is different for each
    // verdict of a batch.
    static SQL: LazyLock<String> = LazyLock::new(|| {
        format!(
            "insert into conversation_memories as given (project, {names}, source_type, memory_revision, judged_at)
            select $1, {values}, m.source_type, m.revision,
                (select clock_timestamp()) + new.ordinal * interval '1 microsecond'
            from (select {unnested}, generate_subscripts($2, 1) as ordinal) new
            join memories m on m.project = $1 and m.id = new.memory_id
            order by new.session_id, new.memory_id
            on conflict (session_id, memory_id, project)
                do update set verdict = excluded.verdict,
                    memory_revision = case when given.suggest_id is null then excluded.memory_revision
                        else coalesce(given.memory_revision, excluded.memory_revision) end,
                    judged_at = case when given.verdict = excluded.verdict then given.judged_at else excluded.judged_at end
            returning memory_id",
            names = insert::names::<Verdicts>(),
            values = insert::values::<Verdicts>("new"),
            unnested = insert::unnested::<Verdicts>(2),
        )
    });
    let parameters = insert::parameters(project, |parameters| Verdicts::bind_all(rows, parameters))?;
    let found: Vec<Uuid> = sqlx::query_scalar_with(SQL.as_str(), parameters).fetch_all(connection).await?;
    Ok(found.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use serde_json::json;

    use super::super::Event;
    use super::*;

    #[tokio::test]
    async fn other_tasks_get_their_turns_while_the_terms_of_memories_are_counted() {
        let turns = Arc::new(AtomicUsize::new(0));
        let other = tokio::spawn({
            let turns = Arc::clone(&turns);
            async move {
                loop {
                    turns.fetch_add(1, Ordering::Relaxed);
                    tokio::task::yield_now().await;
                }
            }
        });
        let new = json!({"content": "implementations ".repeat(10_000)});
        let new = || serde_json::from_value(new.clone()).expect("a memory");
        let events: Vec<_> = (0..20).map(|_| Event::start(new(), None)).collect();
        let starts: Vec<_> = events.iter().filter_map(Event::as_start).collect();
        let rows = MemoryRow::all_started("p", &starts).await;
        assert_eq!(rows.len(), 20);
        assert!(turns.load(Ordering::Relaxed) > 1);
        other.abort();
        assert_eq!([together(&starts), together(&starts[..2]), together(&[])], [6, 2, 0]);
    }
}
