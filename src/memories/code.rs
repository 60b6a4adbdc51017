//! Source code as memories. The memories of a file are replaced together, and unchanged pieces stay as they are.

use std::collections::{HashMap, HashSet};

use serde::{Deserialize, Serialize};
use sqlx::PgConnection;
use utoipa::ToSchema;
use uuid::Uuid;

use super::event::Start;
use super::{MOST_CONTENT, MOST_PATH, NewMemory, SourceType, store, tables};
use crate::http::{Check, Checks};
use crate::types::{OptionalName, Timestamp, derived_id, request_hash};

/// The maximum number of pieces of a file.
const MOST_CHUNKS: usize = 5_000;
/// The maximum number of bytes that folder and path may take in all the memories of a file together. Each has both.
const MOST_PLACES: usize = 8 << 20;

/// The number of bytes that a memory is assumed to take, besides its texts.
const CHUNK: usize = 500;

/// The functions and other pieces of a source file, which replace the file's memories.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewCode {
    /// The folder that the path is relative to.
    #[schema(min_length = 1, max_length = 4096)]
    pub root: String,
    /// The file's path within the folder.
    #[schema(min_length = 1, max_length = 4096)]
    pub path: String,
    /// The pieces of the file, in order. An empty list means that the file no longer exists.
    #[schema(max_items = 5000)]
    pub chunks: Vec<NewChunk>,
}

/// A piece of a file.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewChunk {
    /// The function, class or other symbol that the piece contains. A piece without one is identified by its position
    /// in the file.
    #[serde(default, skip_serializing_if = "OptionalName::is_none")]
    pub symbol: OptionalName,
    /// The piece's text.
    #[schema(min_length = 1, max_length = 262_144)]
    pub content: String,
    /// When the piece was written, such as the time of the commit. The default is now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created_at: Option<Timestamp>,
}

impl Check for NewCode {
    fn check(&self, checks: &mut Checks) {
        checks.text("root", &self.root, MOST_PATH);
        checks.text("path", &self.path, MOST_PATH);
        checks.require(self.chunks.len() <= MOST_CHUNKS, "chunks", "has more than 5000 pieces");
        let places = (self.root.len() + self.path.len()) * self.chunks.len();
        checks.require(places <= MOST_PLACES, "chunks", "has too many pieces for so long a path");
        for (index, chunk) in self.chunks.iter().enumerate() {
            checks.text(&format!("chunks/{index}/content"), &chunk.content, MOST_CONTENT);
            checks.name(&format!("chunks/{index}/symbol"), chunk.symbol.as_deref());
        }
    }
}

/// The numbers of added, unchanged and removed pieces of a file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = CodeCounts)]
pub struct Counts {
    /// The number of pieces that are new or have a new text.
    pub added: u32,
    /// The number of pieces that have not changed.
    pub unchanged: u32,
    /// The number of pieces that no longer exist.
    pub removed: u32,
}

/// A file's pieces as memories.
#[derive(Debug)]
pub struct Code {
    /// The id of the file, by which its memories are found.
    pub file: Uuid,
    /// The memories with their ids.
    pub chunks: Vec<(Uuid, Start)>,
}

impl Code {
    /// Returns how many bytes the memories take besides their texts.
    #[must_use]
    pub fn size(&self) -> usize {
        let place = |start: &Start| {
            [&start.new.root, &start.new.file_path].map(|place| place.as_deref().map_or(0, str::len))
        };
        self.chunks.iter().map(|(_, start)| CHUNK + place(start).iter().sum::<usize>()).sum()
    }

    /// Makes memories from the pieces. A memory's id is derived from folder, path and symbol, or position, so that it
    /// stays the same.
    #[must_use]
    pub fn of(NewCode { root, path, chunks }: NewCode) -> Self {
        let mut known: HashMap<String, usize> = HashMap::new();
        let memories = (0..).zip(chunks).map(|(place, chunk): (usize, NewChunk)| {
            let NewChunk { symbol, content, created_at } = chunk;
            let name = symbol.as_deref().map_or_else(|| format!("#{place}"), |symbol| format!(":{symbol}"));
            // Some languages allow several functions with the same name.
            let times = known.entry(name.clone()).or_default();
            *times += 1;
            let id = derived_id(&[
                b"code",
                root.as_bytes(),
                path.as_bytes(),
                name.as_bytes(),
                times.to_string().as_bytes(),
            ]);
            let hash = request_hash(&(symbol.as_deref(), &content));
            let new = NewMemory {
                id: None,
                content,
                source_type: Some(SourceType::Code),
                importance: None,
                tags: Vec::new(),
                file_path: Some(path.clone()).into(),
                symbol,
                root: Some(root.clone()).into(),
                session_id: OptionalName::default(),
                metadata: None,
                created_at: None,
            };
            let created_at = created_at.unwrap_or_else(Timestamp::now);
            (id, Start { new, code_file: Some(file_id(&root, &path)), keeps_text: true, created_at, hash })
        });
        Self { chunks: memories.collect(), file: file_id(&root, &path) }
    }
}

fn file_id(root: &str, path: &str) -> Uuid {
    derived_id(&[b"code file", root.as_bytes(), path.as_bytes()])
}

/// Replaces the memories of a file, and any memory that has the id of one of its pieces.
pub(super) async fn replace(
    connection: &mut PgConnection,
    project: &str,
    code: &Code,
) -> sqlx::Result<Counts> {
    const LOCK: &str = "select pg_advisory_xact_lock(hashtextextended($1 || ' ' || $2::text, 0))";
    // A memory that was stored by itself has no hash of a piece.
    const KNOWN: &str = "
        select id, request_hash from memories where project = $1 and code_file = $2
        union all select id, null from memories
            where project = $1 and id = any($3) and code_file is distinct from $2";
    // Without the lock, two requests for the same file would each miss what the other has added.
    sqlx::query(LOCK).bind(project).bind(code.file).execute(&mut *connection).await?;
    let ids: Vec<_> = code.chunks.iter().map(|(id, _)| *id).collect();
    let known: Vec<(Uuid, Option<Vec<u8>>)> =
        sqlx::query_as(KNOWN).bind(project).bind(code.file).bind(ids).fetch_all(&mut *connection).await?;
    let known: HashMap<_, _> = known.into_iter().collect();
    let is_as_before = |id: &Uuid, start: &Start| known.get(id).and_then(Option::as_ref) == Some(&start.hash);
    let (same, new): (Vec<_>, Vec<_>) = code.chunks.iter().partition(|(id, start)| is_as_before(id, start));
    let same: HashSet<_> = same.into_iter().map(|(id, _)| *id).collect();
    let gone: Vec<_> = known.keys().copied().filter(|id| !same.contains(id)).collect();
    store::delete_all(connection, project, &gone).await?;
    let starts = new.iter().map(|(id, start)| (*id, start)).collect();
    let added = tables::insert_memories(connection, project, starts).await?.len();
    let changed = new.iter().filter(|(id, _)| known.contains_key(id)).count();
    let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    Ok(Counts { added: count(added), unchanged: count(same.len()), removed: count(gone.len() - changed) })
}

crate::texts! {
    NewCode: root, path, chunks;
    NewChunk: symbol, content;
}
