//! What a conversation has had already, and is not suggested again.

use std::collections::HashSet;

use sqlx::PgPool;
use uuid::Uuid;

/// The memories that a conversation has had already: they were shown, suggested or judged in it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Had<'a> {
    /// The name of the conversation's agent session.
    pub(super) session: &'a str,
    /// Whether suggestions that were withheld count like those that were shown.
    pub(super) with_withheld: bool,
}

impl Had<'_> {
    /// Returns which of these memories the conversation has had. A client may have shown it any number of others, so only the
    /// newest 1,000 queries are looked at.
    pub(super) async fn of(&self, db: &PgPool, project: &str, ids: &[Uuid]) -> sqlx::Result<HashSet<Uuid>> {
        const SQL: &str = "
            select memory_id from conversation_memories
                where project = $1 and session_id = $2 and memory_id = any($3)
            union select shown.id from (
                select shown from conversation_queries where project = $1 and session_id = $2
                order by at desc, id desc limit 1000
            ) q cross join unnest(q.shown) as shown (id) where shown.id in (select unnest($3))
            union select subject from unasked_help
                where project = $1 and session_id = $2 and kind = 'memory' and held_out and subject = any($3) and $4";
        let had = sqlx::query_scalar(SQL).bind(project).bind(self.session).bind(ids).bind(self.with_withheld);
        Ok(had.fetch_all(db).await?.into_iter().collect())
    }
}
