//! How memories are read and erased. [`write`](super::write) writes them.

use serde::Deserialize;
use sqlx::{PgConnection, PgPool, Postgres, QueryBuilder};
use utoipa::IntoParams;
use uuid::Uuid;

use super::{Memory, SourceType, folder};
use crate::db::aged::Aged;
use crate::db::erased::{Cause, Counts, Piece, forget_signs, lock_some};
use crate::db::rows;
use crate::error::Result;
use crate::exports::forget::forget;
use crate::http::memory;
use crate::http::page::{Listed, Page, PageRequest};
use crate::http::{Check, Checks};
use crate::memories::exports::DATASETS;
use crate::types::{Contained, Timestamp};

const SELECT: &str = "
    select m.id, m.content, m.source_type, m.importance, m.tags, m.file_path, m.symbol, m.root, m.session_id, m.metadata,
        m.created_at
    from memories m where m.project = ";

/// The filter of a list of memories.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct Filter {
    /// Only memories whose content contains this text. Case is ignored.
    #[param(inline)]
    q: Option<Contained>,
    /// Only memories of this kind.
    #[param(inline)]
    source_type: Option<SourceType>,
    /// Only memories with this tag.
    tag: Option<String>,
    /// Only memories about this folder.
    root: Option<String>,
    /// Only memories about this file.
    file_path: Option<String>,
}

impl Check for Filter {
    fn check(&self, checks: &mut Checks) {
        checks.contained("q", self.q.as_ref());
    }
}

// A part of a content, which may be of any length, is not compared with whole texts.
crate::texts! {
    Filter: tag, root, file_path;
}

impl Listed for Memory {
    fn sort_key(&self) -> (Timestamp, String) {
        (self.created_at, self.id.to_string())
    }
}

/// Returns one page of a project's memories.
pub async fn list(db: &PgPool, project: &str, filter: &Filter, page: &PageRequest) -> Result<Page<Memory>> {
    let mut query = QueryBuilder::<Postgres>::new(SELECT);
    query.push_bind(project.to_owned());
    if let Some(source_type) = filter.source_type {
        query.push(" and m.source_type = ").push_bind(source_type);
    }
    if let Some(tag) = &filter.tag {
        query.push(" and m.tags @> to_jsonb(").push_bind(tag.clone()).push("::text)");
    }
    if let Some(root) = &filter.root {
        query.push(" and m.root = ").push_bind(folder(root).to_owned());
    }
    if let Some(path) = &filter.file_path {
        query.push(" and md5(m.file_path) = md5(").push_bind(path.clone());
        query.push(") and m.file_path = ").push_bind(path.clone());
    }
    if let Some(text) = &filter.q {
        query.push(" and m.content ilike ").push_bind(text.pattern());
    }
    page.push(&mut query, "m.created_at", "m.id", "uuid")?;
    page.read(&mut query, db).await
}

/// Returns a memory, or none if there is no such memory.
pub async fn get(db: &PgPool, project: &str, id: Uuid, memory: &memory::Memory) -> Result<Option<Memory>> {
    rows::single(select(project, id).build(), db, memory).await
}

/// Locks and returns a memory that is going to be changed.
pub(super) async fn lock(
    connection: &mut PgConnection,
    project: &str,
    id: Uuid,
) -> sqlx::Result<Option<Memory>> {
    select(project, id).push(" for no key update").build_query_as().fetch_optional(connection).await
}

fn select(project: &str, id: Uuid) -> QueryBuilder<Postgres> {
    let mut query = QueryBuilder::new(SELECT);
    query.push_bind(project.to_owned()).push(" and m.id = ").push_bind(id);
    query
}

/// Erases memories, and the reasons for which they were suggested. The statistics of that stay, but no verdict is about a
/// memory that is made later with the same id.
pub(super) async fn delete_all(
    connection: &mut PgConnection,
    project: &str,
    ids: &[Uuid],
) -> sqlx::Result<u64> {
    let sql = "delete from memories where project = $1 and id = any($2) returning id";
    let erased: Vec<Uuid> =
        sqlx::query_scalar(sql).bind(project).bind(ids).fetch_all(&mut *connection).await?;
    let sql = "update conversation_memories set reason = null, memory_revision = null
        where project = $1 and memory_id = any($2)";
    sqlx::query(sql).bind(project).bind(&erased).execute(&mut *connection).await?;
    forget_signs(connection, project, "memory", &erased).await?;
    forget(connection, project, &DATASETS, &erased).await?;
    Ok(erased.len() as u64)
}

/// Returns the contents of memories in any order, without those that were erased or whose text is not stored.
pub(super) async fn contents(
    db: &PgPool,
    project: &str,
    ids: &[Uuid],
    memory: &memory::Memory,
) -> Result<Vec<(Uuid, String)>> {
    let sql = "select id, content from memories where project = $1 and id = any($2) and content is not null";
    rows::all(sqlx::query(sql).bind(project).bind(ids), db, memory).await
}

/// The number of records erased.
#[derive(Debug, Default)]
pub struct Erased {
    /// The number of memories erased.
    pub memories: u64,
    /// The number of queries erased.
    pub queries: u64,
}

impl Erased {
    /// Returns the numbers by kind.
    #[must_use]
    pub fn counts(&self) -> Counts {
        vec![("memories", self.memories), ("queries", self.queries)]
    }
}

/// Erases the memory with this id, and the query with it if there is one.
pub async fn delete_record(connection: &mut PgConnection, project: &str, id: Uuid) -> Result<Erased> {
    let memories = delete_all(connection, project, &[id]).await?;
    let queries = delete_queries(connection, project, &[id]).await?;
    Ok(Erased { memories, queries })
}

/// Erases queries, and the words of them in what was suggested since. No suggestion is one for a query that is made later
/// with the same id.
async fn delete_queries(connection: &mut PgConnection, project: &str, ids: &[Uuid]) -> sqlx::Result<u64> {
    // What is suggested meanwhile for these queries is committed before.
    const LOCK: &str =
        "select id from conversation_queries where project = $1 and id = any($2) order by id for update";
    // A suggestion is also based on some queries before the last one. How many these were is not stored, so all suggestions
    // from the first erased query of a conversation on may have words of it.
    const SINCE: &str = "
        select s.id from (
            select distinct on (session_id) session_id, at, id from conversation_queries
            where project = $1 and id = any($2) order by session_id, at, id
        ) erased
        join memory_suggests s on s.project = $1 and s.session_id = erased.session_id
        cross join lateral (select * from conversation_queries where project = $1 and id = s.query_id offset 0) last
        where (last.at, last.id) >= (erased.at, erased.id)";
    const UNWORD: [&str; 2] = [
        "update memory_suggests set keywords = '[]', search_query = ''
            where project = $1 and id = any($2) and keywords <> '[]'",
        "update conversation_memories set reason = null
            where project = $1 and suggest_id = any($2) and reason is not null",
    ];
    sqlx::query(LOCK).bind(project).bind(ids).execute(&mut *connection).await?;
    let since: Vec<Uuid> =
        sqlx::query_scalar(SINCE).bind(project).bind(ids).fetch_all(&mut *connection).await?;
    if !since.is_empty() {
        for sql in UNWORD {
            sqlx::query(sql).bind(project).bind(&since).execute(&mut *connection).await?;
        }
    }
    let sql = "delete from conversation_queries where project = $1 and id = any($2) returning id";
    let erased: Vec<Uuid> =
        sqlx::query_scalar(sql).bind(project).bind(ids).fetch_all(&mut *connection).await?;
    for sql in [
        "update memory_suggests set query_id = null where project = $1 and query_id = any($2)",
        "update conversation_memories set query_id = null where project = $1 and query_id = any($2)",
    ] {
        sqlx::query(sql).bind(project).bind(&erased).execute(&mut *connection).await?;
    }
    forget(connection, project, &DATASETS, &erased).await?;
    Ok(erased.len() as u64)
}

/// Erases the oldest memories, queries, suggestions and verdicts that were stored before a time, at most `most` of each. Pieces of
/// files do not expire: they are as old as their files, and go with them.
pub async fn delete_before(
    connection: &mut PgConnection,
    project: &str,
    time: Timestamp,
    most: i64,
    cause: Cause,
) -> Result<Piece> {
    const MEMORIES: Aged = Aged { table: "memories", since: "created_at", may_go: "true" };
    const NOTES: Aged = Aged { may_go: "code_file is null", ..MEMORIES };
    const QUERIES: Aged = Aged { table: "conversation_queries", since: "at", may_go: "true" };
    const SUGGESTS: Aged = Aged { table: "memory_suggests", since: "created_at", may_go: "true" };
    // What was suggested goes with the suggestion.
    const JUDGED: Aged = Aged {
        table: "conversation_memories",
        since: "judged_at",
        may_go: "verdict is not null and suggest_id is null",
    };
    const HELP: Aged = Aged { table: "unasked_help", since: "shown_at", may_go: "true" };
    let aged = if cause == Cause::Age { NOTES } else { MEMORIES };
    let memories = aged.lock_oldest(connection, project, time, most).await?;
    let memories = delete_all(connection, project, &memories).await?;
    let queries = QUERIES.lock_oldest(connection, project, time, most).await?;
    let queries = delete_queries(connection, project, &queries).await?;
    let suggests = SUGGESTS.lock_oldest(connection, project, time, most).await?;
    for sql in [
        "delete from conversation_memories where project = $1 and suggest_id = any($2)",
        "delete from memory_suggests where project = $1 and id = any($2)",
    ] {
        sqlx::query(sql).bind(project).bind(&suggests).execute(&mut *connection).await?;
    }
    let judged = JUDGED.delete_oldest(connection, project, time, most).await?;
    let help = HELP.delete_oldest(connection, project, time, most).await?;
    let more = help > 0 || memories > 0 || queries > 0 || !suggests.is_empty() || judged > 0;
    Ok(Piece { erased: Erased { memories, queries }.counts(), more })
}

/// Erases some memories that were stored in an agent session, and some queries of the conversation that the session is,
/// at most `most` of each.
pub async fn delete_session(
    connection: &mut PgConnection,
    project: &str,
    session: &str,
    most: i64,
) -> Result<Erased> {
    let ids = lock_some(connection, "memories", (project, session), most).await?;
    let memories = delete_all(connection, project, &ids).await?;
    let sql = "delete from conversation_queries where project = $1 and id = any(array(
                   select id from conversation_queries where project = $1 and session_id = $2 limit $3))
               returning id";
    let queries: Vec<Uuid> =
        sqlx::query_scalar(sql).bind(project).bind(session).bind(most).fetch_all(&mut *connection).await?;
    for sql in [
        "delete from conversation_memories where project = $1 and session_id = $2",
        "delete from memory_suggests where project = $1 and session_id = $2",
        "delete from unasked_help where project = $1 and session_id = $2",
    ] {
        sqlx::query(sql).bind(project).bind(session).execute(&mut *connection).await?;
    }
    forget(connection, project, &DATASETS, &queries).await?;
    Ok(Erased { memories, queries: queries.len() as u64 })
}
