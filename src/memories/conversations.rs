//! Reads conversations: their queries, the memories shown, and the verdicts.

use serde::Serialize;
use sqlx::{PgExecutor, PgPool};
use utoipa::ToSchema;
use uuid::Uuid;

use super::suggestion::SuggestedMemory;
use super::{ConversationQuery, Judged, suggest};
use crate::error::Result;

/// The maximum number of queries of a conversation that are shown, the newest.
const MOST_QUERIES: i64 = 1_000;

/// A conversation: the queries of an agent session and the memories that were shown in it.
#[derive(Debug, Serialize, ToSchema)]
pub struct Conversation {
    /// The name of the conversation's agent session.
    pub session_id: String,
    /// The queries, in order. If there are more than 1,000, only the newest 1,000 are listed.
    pub queries: Vec<ConversationQuery>,
    /// The memories that were suggested, in order, with their verdicts.
    pub suggested: Vec<SuggestedMemory>,
    /// The memories that the client reported as shown.
    pub shown: Vec<Uuid>,
    /// The verdicts on memories, in order, including those on memories that were not suggested.
    pub verdicts: Vec<Judged>,
}

/// Returns a conversation, or none if nothing was asked, shown or judged in it.
pub async fn get(db: &PgPool, project: &str, session: &str) -> Result<Option<Conversation>> {
    const QUERIES: &str = "
        select * from (
            select id, session_id, query, shown, root, at from conversation_queries
            where project = $1 and session_id = $2 order by at desc, id desc limit $3
        ) newest order by at, id";
    const VERDICTS: &str = "
        select session_id, memory_id, verdict, judged_at from conversation_memories
        where project = $1 and session_id = $2 and verdict is not null order by judged_at, memory_id";
    let mut snapshot = db.begin_with("begin isolation level repeatable read read only").await?;
    let queries: Vec<ConversationQuery> = sqlx::query_as(QUERIES)
        .bind(project)
        .bind(session)
        .bind(MOST_QUERIES)
        .fetch_all(&mut *snapshot)
        .await?;
    let verdicts: Vec<Judged> =
        sqlx::query_as(VERDICTS).bind(project).bind(session).fetch_all(&mut *snapshot).await?;
    let suggested = suggest::suggested(&mut *snapshot, project, session).await?;
    if queries.is_empty() && verdicts.is_empty() && suggested.is_empty() {
        return Ok(None);
    }
    let mut shown: Vec<Uuid> = Vec::new();
    for id in queries.iter().flat_map(|query| &query.shown) {
        if !shown.contains(id) {
            shown.push(*id);
        }
    }
    Ok(Some(Conversation { session_id: session.to_owned(), queries, suggested, shown, verdicts }))
}

/// Returns a query of a conversation, or none if there is no such query.
pub async fn query(
    db: impl PgExecutor<'_>,
    project: &str,
    id: Uuid,
) -> sqlx::Result<Option<ConversationQuery>> {
    const SQL: &str = "
        select id, session_id, query, shown, root, at from conversation_queries where project = $1 and id = $2";
    sqlx::query_as(SQL).bind(project).bind(id).fetch_optional(db).await
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
