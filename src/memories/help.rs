//! Help that comes unasked: what was shown to an agent without a question, and whether it was used. What it was worth is told
//! by sessions that are kept silent, where the same is noted and nothing shown.
//!
//! Nothing is kept of what was shown but whose it is, and keyed hashes of its [signs](super::rules::signs): they say whether it
//! was used, and nobody can read them.

use std::sync::LazyLock;

use serde::Serialize;
use sqlx::{PgConnection, PgExecutor};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::db::insert::{self, Columns as _, columns};
use crate::privacy::hash_key::HashKey;
use crate::types::derived_id;

/// Help that comes unasked, at one moment of a session.
#[derive(Debug, Clone)]
pub struct Help {
    /// The name of the agent session.
    pub session: String,
    /// Whether nothing was shown, so that it can be told what happens without.
    pub held_out: bool,
    /// What it consists of.
    pub items: Vec<Item>,
}

/// A piece of help.
#[derive(Debug, Clone)]
pub struct Item {
    /// What kind of thing it is.
    pub kind: ItemKind,
    /// The id of the memory, the association or the log that it is.
    pub subject: Uuid,
    /// The hashes of what is used where it is used.
    pub signs: Vec<i64>,
}

/// What kind of thing a piece of help is.
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

/// Something that an agent has written or opened in a session, as hashes: help that has one of them was used.
#[derive(Debug, Clone)]
pub struct Traces {
    /// The name of the agent session.
    pub session: String,
    /// The hashes.
    pub signs: Vec<i64>,
}

/// Returns the hash of a name that a text names.
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

/// A piece of help with the moment that it belongs to.
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

/// Writes numbers as a literal of a Postgres array.
fn literal(numbers: &[i64]) -> String {
    let numbers: Vec<_> = numbers.iter().map(ToString::to_string).collect();
    format!("{{{}}}", numbers.join(","))
}

/// Keeps help. What the session has had already stays as it was.
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

/// Notes that help was used which has one of these signs.
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
