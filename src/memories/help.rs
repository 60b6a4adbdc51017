//! Help without a request: what an agent was shown, and whether it was used. To measure what it is worth, sessions
//! from which help is withheld are recorded in the same way.
//!
//! Of the help itself, only the ids of its sources and keyed hashes of its [signs](super::rules::signs) are stored.
//! The hashes show whether the help was used, and cannot be read.

use std::sync::LazyLock;

use serde::Serialize;
use sqlx::{PgConnection, PgExecutor};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::db::insert::{self, Columns as _, columns};
use crate::privacy::hash_key::HashKey;
use crate::types::derived_id;

/// Help without a request, at one moment of a session.
#[derive(Debug, Clone)]
pub struct Help {
    /// The name of the agent session.
    pub session: String,
    /// Whether the help was withheld, for comparison.
    pub held_out: bool,
    /// The pieces of the help.
    pub items: Vec<Item>,
}

/// A piece of help.
#[derive(Debug, Clone)]
pub struct Item {
    /// The kind of the piece.
    pub kind: ItemKind,
    /// The id of the memory, the file or the log.
    pub subject: Uuid,
    /// The hashes of the piece's signs. If one of them appears later, the piece was used.
    pub signs: Vec<i64>,
}

/// The kind of a piece of help.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema, sqlx::Type)]
#[serde(rename_all = "lowercase")]
#[sqlx(type_name = "text", rename_all = "lowercase")]
#[schema(as = HelpKind)]
pub enum ItemKind {
    /// A memory.
    Memory,
    /// A file.
    File,
    /// A solved example.
    Example,
}

impl ItemKind {
    /// All kinds.
    pub(super) const ALL: [Self; 3] = [Self::Memory, Self::File, Self::Example];
}

/// The hashes of what an agent has written or opened in a session. Help with one of these hashes was used.
#[derive(Debug, Clone)]
pub struct Traces {
    /// The name of the agent session.
    pub session: String,
    /// The hashes.
    pub signs: Vec<i64>,
}

/// Returns the hash of a name in a text.
#[must_use]
pub fn word(key: &HashKey, word: &str) -> i64 {
    hash(key, "word", word)
}

/// Returns the hash of a file's path.
#[must_use]
pub fn file(key: &HashKey, path: &str) -> i64 {
    hash(key, "file", path)
}

fn hash(key: &HashKey, kind: &str, text: &str) -> i64 {
    let hash = key.hash(format!("{kind}\n{text}").as_bytes());
    i64::from_be_bytes(hash[..8].try_into().expect("a hash has more bytes"))
}

/// A piece of help and the moment at which it was found.
pub(super) struct HelpRow<'a> {
    pub(super) help: &'a Help,
    pub(super) item: &'a Item,
}

columns! {
    /// The columns of a piece of help.
    struct Helps<'a>(HelpRow<'a>);
    |row| {
        "id": "uuid" = derived_id(&[b"help", row.help.session.as_bytes(), row.item.subject.as_bytes()]),
        "session_id": "text" = row.help.session.as_str(),
        "kind": "text" = row.item.kind,
        "subject": "uuid" = row.item.subject,
        "signs": "text" as "bigint[]" = literal(&row.item.signs),
        "held_out": "bool" = row.help.held_out,
    }
}

/// Writes numbers as a Postgres array literal.
fn literal(numbers: &[i64]) -> String {
    let numbers: Vec<_> = numbers.iter().map(ToString::to_string).collect();
    format!("{{{}}}", numbers.join(","))
}

/// Stores help. Help that the session already had stays unchanged.
pub(super) async fn insert(
    connection: &mut PgConnection,
    project: &str,
    rows: &[HelpRow<'_>],
) -> sqlx::Result<()> {
    static SQL: LazyLock<String> = LazyLock::new(|| {
        format!(
            "insert into unasked_help (project, {names}, shown_at)
            select $1, {values}, clock_timestamp() from (select {unnested}) new order by new.id
            on conflict do nothing",
            names = insert::names::<Helps>(),
            values = insert::values::<Helps>("new"),
            unnested = insert::unnested::<Helps>(2),
        )
    });
    if !rows.is_empty() {
        let parameters = insert::parameters(project, |parameters| Helps::bind_all(rows, parameters))?;
        sqlx::query_with(SQL.as_str(), parameters).execute(connection).await?;
    }
    Ok(())
}

/// Records the use of help with one of these hashes.
pub(super) async fn note_use(
    connection: &mut PgConnection,
    project: &str,
    traces: &Traces,
) -> sqlx::Result<()> {
    const SQL: &str = "
        update unasked_help set used_at = clock_timestamp()
        where project = $1 and session_id = $2 and used_at is null and signs && $3";
    sqlx::query(SQL).bind(project).bind(&traces.session).bind(&traces.signs).execute(connection).await?;
    Ok(())
}

/// Returns whether a session has help that was not used yet.
pub async fn is_open(db: impl PgExecutor<'_>, project: &str, session: &str) -> sqlx::Result<bool> {
    const SQL: &str = "
        select exists (
            select from unasked_help where project = $1 and session_id = $2 and used_at is null and signs <> '{}')";
    sqlx::query_scalar(SQL).bind(project).bind(session).fetch_one(db).await
}
