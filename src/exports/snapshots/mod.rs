//! Snapshots: exports that are kept as files, with a length, a hash and a card, so that a training can name what it was trained
//! on, a download can be resumed, and programs that read Parquet read only what they need.
//!
//! A request fixes the parameters and the state of the data ([`mod@make`]). One of the servers then builds the file in the
//! background ([`build`]) and keeps it in the database in pieces of 1 MiB. Who builds has a lease that each piece renews; when
//! a server dies, the lease ends, and another server, or the same one after it has started again, begins anew. As an export of
//! the same `as_of` is the same bytes, so is the file.
//!
//! A complete snapshot never changes. When a record is erased of which it has rows, that is counted, and the card says so
//! ([`erased`]).

pub mod build;
pub mod card;
pub mod columns;
mod encode;
pub mod erased;
pub mod make;
pub mod request;
pub mod routes;
pub mod store;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;
use uuid::Uuid;

use crate::http::page::Listed;
use crate::types::{FreeForm, Timestamp};

/// How many bytes of a file the database keeps in a row.
pub const CHUNK: usize = 1 << 20;

/// What kind of file a snapshot is.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema, sqlx::Type, clap::ValueEnum,
)]
#[sqlx(type_name = "text")]
#[schema(as = SnapshotFile)]
pub enum File {
    /// One row a line, as JSON.
    #[serde(rename = "jsonl")]
    #[sqlx(rename = "jsonl")]
    #[value(name = "jsonl")]
    Jsonl,
    /// The same, compressed.
    #[serde(rename = "jsonl.gz")]
    #[sqlx(rename = "jsonl.gz")]
    #[value(name = "jsonl.gz")]
    JsonlGz,
    /// Apache Parquet, in row groups of at most 100 000 rows, compressed with zstd.
    #[default]
    #[serde(rename = "parquet")]
    #[sqlx(rename = "parquet")]
    #[value(name = "parquet")]
    Parquet,
}

impl File {
    /// The ending of the file's name.
    #[must_use]
    pub fn ending(self) -> &'static str {
        match self {
            Self::Jsonl => "jsonl",
            Self::JsonlGz => "jsonl.gz",
            Self::Parquet => "parquet",
        }
    }

    /// The media type of the file.
    #[must_use]
    pub fn media_type(self) -> &'static str {
        match self {
            Self::Jsonl => "application/jsonl",
            Self::JsonlGz => "application/gzip",
            Self::Parquet => "application/vnd.apache.parquet",
        }
    }
}

/// How far a snapshot is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema, sqlx::Type)]
#[serde(rename_all = "lowercase")]
#[sqlx(type_name = "text", rename_all = "lowercase")]
#[schema(as = SnapshotState)]
pub enum State {
    /// A server is about to build it.
    Waiting,
    /// A server builds it.
    Building,
    /// Its file can be read.
    Complete,
    /// It could not be built; `error` says why.
    Failed,
}

/// An export that is kept as a file.
#[derive(Debug, Serialize, ToSchema, sqlx::FromRow)]
pub struct Snapshot {
    /// The snapshot's id.
    pub id: Uuid,
    /// The name of the file, without its ending.
    pub name: String,
    /// The data set.
    pub dataset: String,
    /// How a row is written.
    pub format: String,
    /// What kind of file it is.
    pub file: File,
    /// The other parameters of the export.
    pub parameters: FreeForm,
    /// The licence under which the rows may be used, as whoever made the snapshot has named it.
    pub licence: Option<String>,
    /// How far it is.
    pub state: State,
    /// Why it could not be built.
    pub error: Option<String>,
    /// The share of the rows that are written, from 0 to 1.
    #[sqlx(skip)]
    pub progress: f64,
    /// The state of the data that it is of.
    pub as_of: Timestamp,
    /// How many rows it has so far.
    #[sqlx(rename = "row_count")]
    pub rows: i64,
    /// How many rows its part of a split lacks because their texts stand in another part, too. Null where there is no split.
    pub rows_dropped: Option<i64>,
    /// How many bytes the file has so far.
    #[sqlx(rename = "byte_count")]
    pub bytes: i64,
    /// The SHA-256 of the complete file, in hexadecimal digits; its entity tag is the same.
    pub sha256: Option<String>,
    /// How many records that have rows in it were erased since it was begun.
    pub erased_records: i64,
    /// The path of the file.
    #[sqlx(skip)]
    pub path: String,
    /// The path of the data set card.
    #[sqlx(skip)]
    pub card: String,
    /// When it was asked for.
    pub created_at: Timestamp,
    /// When it was complete.
    pub completed_at: Option<Timestamp>,
    /// When it is deleted by itself. Null if it is kept until somebody deletes it.
    pub keep_until: Option<Timestamp>,
    /// How many rows there are to be.
    #[serde(skip)]
    pub rows_expected: Option<i64>,
    /// The JSON Schema of a row.
    #[serde(skip)]
    #[schema(ignore)]
    #[sqlx(json)]
    pub row_schema: Value,
}

impl Snapshot {
    /// Adds what follows from the other members.
    fn complete(mut self) -> Self {
        self.path = format!("/v1/snapshots/{}/{}", self.id, self.file_name());
        self.card = format!("/v1/snapshots/{}/README.md", self.id);
        self.progress = match (self.state, self.rows_expected) {
            (State::Complete, _) => 1.0,
            (State::Building, Some(expected)) if expected > 0 => {
                (self.rows as f64 / expected as f64).min(1.0)
            }
            _ => 0.0,
        };
        self
    }

    /// The name of its file.
    #[must_use]
    pub fn file_name(&self) -> String {
        format!("{}.{}", self.name, self.file.ending())
    }
}

impl Listed for Snapshot {
    fn sort_key(&self) -> (Timestamp, String) {
        (self.created_at, self.id.to_string())
    }
}
