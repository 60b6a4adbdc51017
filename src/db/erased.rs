//! What erasures of all domains share: what they have come to, and how the records of a session are locked.

use sqlx::{AssertSqlSafe, PgConnection};
use uuid::Uuid;

/// The kinds of records, as erasures count them.
pub const KINDS: [&str; 8] =
    ["generations", "attempts", "suggestions", "searches", "pairs", "sends", "memories", "queries"];

/// The number of records erased of each kind.
pub type Counts = Vec<(&'static str, u64)>;

/// What a piece of an erasure by age or session has come to.
#[derive(Debug)]
pub struct Piece {
    /// The number of records erased of each kind.
    pub erased: Counts,
    /// Whether there may be more to erase.
    pub more: bool,
}

impl Piece {
    /// Makes the result of a piece after which there may be more if it has erased something.
    #[must_use]
    pub fn of(erased: Counts) -> Self {
        let more = erased.iter().any(|(_, count)| *count > 0);
        Self { erased, more }
    }
}

/// Locks some records of a session in the order of their ids, as the writer locks them, which prevents deadlocks. Returns
/// their ids.
pub async fn lock_some(
    connection: &mut PgConnection,
    table: &'static str,
    (project, session): (&str, &str),
    most: i64,
) -> sqlx::Result<Vec<Uuid>> {
    let sql = format!(
        "select id from {table} where project = $1 and session_id = $2 order by id limit $3 for update"
    );
    let query = sqlx::query_scalar(AssertSqlSafe(sql)).bind(project).bind(session).bind(most);
    query.fetch_all(connection).await
}

/// Forgets by which names it is seen that agents use these records of a kind, which they were shown unasked.
pub async fn forget_signs(
    connection: &mut PgConnection,
    project: &str,
    kind: &str,
    records: &[Uuid],
) -> sqlx::Result<()> {
    const SQL: &str = "
        update unasked_help set signs = null
        where project = $1 and subject = any($3) and kind = $2 and signs is not null";
    sqlx::query(SQL).bind(project).bind(kind).bind(records).execute(connection).await?;
    Ok(())
}

/// Why records are erased.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// They are older than their project keeps them. What was learned from them keeps its weight, and no longer says where that
    /// came from. Pieces of files stay, since they are as old as the files are.
    Age,
    /// Somebody asks for it. What was learned from them is forgotten as well.
    Request,
}
