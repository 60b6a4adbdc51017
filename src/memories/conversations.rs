//! Reads conversations: their queries, the memories shown, and the verdicts.

use std::collections::HashSet;

use serde::Serialize;
use sqlx::{PgExecutor, PgPool};
use utoipa::ToSchema;
use uuid::Uuid;

use super::suggestion::SuggestedMemory;
use super::{ConversationQuery, Judged, suggest};
use crate::db::{self, rows};
use crate::error::Result;
use crate::http::memory::Memory;

/// The maximum number of queries, of verdicts and of suggestions of a conversation that are shown, the newest of each.
const MOST: i64 = 1_000;

/// A conversation: the queries of an agent session and the memories that were shown in it.
#[derive(Debug, Serialize, ToSchema)]
pub struct Conversation {
    /// The name of the conversation's agent session.
    pub session_id: String,
    /// The queries, in order. If there are more than 1,000, or more than 16 MiB, only the newest are listed.
    pub queries: Vec<ConversationQuery>,
    /// The memories that were suggested, in order, with their verdicts. If there are more than 1,000, only the newest are listed.
    pub suggested: Vec<SuggestedMemory>,
    /// The memories that the client reported as shown with these queries.
    pub shown: Vec<Uuid>,
    /// The verdicts on memories, in order, including those on memories that were not suggested. If there are more than 1,000,
    /// only the newest are listed.
    pub verdicts: Vec<Judged>,
}

/// Returns a conversation, or none if nothing was asked, shown or judged in it.
pub async fn get(db: &PgPool, project: &str, session: &str, memory: &Memory) -> Result<Option<Conversation>> {
    const QUERIES: &str = "
        select id, session_id, query, shown, root, at from conversation_queries
        where project = $1 and session_id = $2 order by at desc, id desc limit $3";
    const VERDICTS: &str = "
        select * from (
            select session_id, memory_id, verdict, judged_at from conversation_memories
            where project = $1 and session_id = $2 and verdict is not null
            order by judged_at desc, memory_id desc limit $3
        ) newest order by judged_at, memory_id";
    let of_session = |sql: &'static str| sqlx::query(sql).bind(project).bind(session).bind(MOST);
    let (mut queries, _): (Vec<ConversationQuery>, _) =
        rows::some(of_session(QUERIES), db, usize::MAX, memory).await?;
    queries.reverse();
    let reading = memory.reading(rows::MOST);
    let read = async || {
        let mut snapshot = db::begin_snapshot(db).await?;
        let verdicts: Vec<Judged> = rows::parts(of_session(VERDICTS), &mut snapshot, &reading).await?;
        Ok((verdicts, suggest::suggested(&mut *snapshot, project, session, MOST).await?))
    };
    let (verdicts, suggested) = reading.by(read).await?;
    if queries.is_empty() && verdicts.is_empty() && suggested.is_empty() {
        return Ok(None);
    }
    let mut known = HashSet::new();
    let shown =
        queries.iter().flat_map(|query| &query.shown).copied().filter(|id| known.insert(*id)).collect();
    Ok(Some(Conversation { session_id: session.to_owned(), queries, suggested, shown, verdicts }))
}

/// Returns a query of a conversation, or none if there is no such query.
pub async fn query(
    db: &PgPool,
    project: &str,
    id: Uuid,
    memory: &Memory,
) -> Result<Option<ConversationQuery>> {
    const SQL: &str = "
        select id, session_id, query, shown, root, at from conversation_queries where project = $1 and id = $2";
    rows::single(sqlx::query(SQL).bind(project).bind(id), db, memory).await
}

/// Returns the verdict on a memory in a conversation, or none if it was not judged there.
pub async fn judged(
    db: impl PgExecutor<'_>,
    project: &str,
    session: &str,
    memory: Uuid,
) -> sqlx::Result<Option<Judged>> {
    const SQL: &str = "
        select session_id, memory_id, verdict, judged_at from conversation_memories
        where project = $1 and session_id = $2 and memory_id = $3 and verdict is not null";
    sqlx::query_as(SQL).bind(project).bind(session).bind(memory).fetch_optional(db).await
}

/// Returns the last query of a conversation, and its folder. There is none if the conversation has no query, or if
/// its text is not stored.
pub async fn last_query(
    db: impl PgExecutor<'_>,
    project: &str,
    session: &str,
) -> sqlx::Result<Option<(String, Option<String>)>> {
    const SQL: &str = "
        select query, root from conversation_queries where project = $1 and session_id = $2 and query is not null
        order by at desc, id desc limit 1";
    sqlx::query_as(SQL).bind(project).bind(session).fetch_optional(db).await
}

/// Returns the session in which a key last added a query, and the folder of that query. On an open server, it is the
/// session of a client without a key. There is none if the key has added no query.
pub async fn last_active(
    db: impl PgExecutor<'_>,
    project: &str,
    key: Option<Uuid>,
) -> sqlx::Result<Option<(String, Option<String>)>> {
    const SQL: &str = "
        select session_id, root from conversation_queries where project = $1 and asked_by = $2
        order by at desc, id desc limit 1";
    sqlx::query_as(SQL).bind(project).bind(key.unwrap_or_default()).fetch_optional(db).await
}
