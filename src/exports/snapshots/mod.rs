//! Snapshots: exports that are stored as files with a length, a hash and a card. A training can name the snapshot
//! that it used, a download can be resumed, and programs that read Parquet read only what they need.
//!
//! A request fixes the parameters and the state of the data ([`mod@make`]). One of the servers then builds the file
//! in the background ([`build`]) and stores it in the database in pieces of 512 KiB. The builder holds a lease, which
//! it renews. If the server dies, the lease ends, and another server, or the same one after a restart, begins again.
//! Because exports with the same `as_of` have the same bytes, so has the file. The time of a building and the size of a
//! file are limited, so that a project can neither keep the others waiting for long nor fill the disk.
//!
//! A complete snapshot never changes. If a record is erased that is in a snapshot, the snapshot counts it, and the
//! card says so ([`erased`]).

pub mod build;
pub mod building;
pub mod card;
mod connections;
mod download;
mod encode;
pub mod erased;
pub mod make;
mod queue;
pub mod request;
pub mod routes;
pub mod store;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;
use uuid::Uuid;

use crate::http::page::Listed;
use crate::types::{FreeForm, Timestamp};

/// The maximum number of bytes of a file that one row of the database contains.
pub const CHUNK: usize = 512 << 10;

/// The kind of file that a snapshot is.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema, sqlx::Type, clap::ValueEnum,
)]
#[sqlx(type_name = "text")]
#[schema(as = SnapshotFile)]
pub enum File {
    /// JSON lines, with one row per line.
    #[serde(rename = "jsonl")]
    #[sqlx(rename = "jsonl")]
    #[value(name = "jsonl")]
    Jsonl,
    /// JSON lines, compressed with gzip.
    #[serde(rename = "jsonl.gz")]
    #[sqlx(rename = "jsonl.gz")]
    #[value(name = "jsonl.gz")]
    JsonlGz,
    /// Apache Parquet, with row groups of at most 100,000 rows, compressed with zstd.
    #[default]
    #[serde(rename = "parquet")]
    #[sqlx(rename = "parquet")]
    #[value(name = "parquet")]
    Parquet,
}

impl File {
    /// Returns the extension of the file's name.
    #[must_use]
    pub fn ending(self) -> &'static str {
        match self {
            Self::Jsonl => "jsonl",
            Self::JsonlGz => "jsonl.gz",
            Self::Parquet => "parquet",
        }
    }

    /// Returns the media type of the file.
    #[must_use]
    pub fn media_type(self) -> &'static str {
        match self {
            Self::Jsonl => "application/jsonl",
            Self::JsonlGz => "application/gzip",
            Self::Parquet => "application/vnd.apache.parquet",
        }
    }
}

/// The progress of a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema, sqlx::Type)]
#[serde(rename_all = "lowercase")]
#[sqlx(type_name = "text", rename_all = "lowercase")]
#[schema(as = SnapshotState)]
pub enum State {
    /// The snapshot waits to be built.
    Waiting,
    /// A server builds the snapshot.
    Building,
    /// The snapshot is complete, and its file can be read.
    Complete,
    /// The snapshot could not be built, and `error` says why.
    Failed,
}

/// An export that is stored as a file.
#[derive(Debug, Serialize, ToSchema, sqlx::FromRow)]
pub struct Snapshot {
    /// The snapshot's id.
    pub id: Uuid,
    /// The name of the file without its extension.
    pub name: String,
    /// The data set.
    pub dataset: String,
    /// The format of the rows.
    pub format: String,
    /// The kind of file.
    pub file: File,
    /// The other parameters of the export.
    pub parameters: FreeForm,
    /// The licence under which the rows may be used, as given in the request.
    pub licence: Option<String>,
    /// The progress of the snapshot.
    pub state: State,
    /// The reason why the snapshot could not be built.
    pub error: Option<String>,
    /// The share of the rows that are written, from 0 to 1. It is 0 until the rows are counted, which happens after
    /// some seconds.
    #[sqlx(skip)]
    pub progress: f64,
    /// The time whose state of the data the snapshot contains.
    pub as_of: Timestamp,
    /// The number of rows that are written so far.
    #[sqlx(rename = "row_count")]
    pub rows: i64,
    /// The number of rows left out of this part of a split because their texts are also in another part. Null without
    /// a split, and until the snapshot is complete.
    pub rows_dropped: Option<i64>,
    /// The length of the file so far, in bytes.
    #[sqlx(rename = "byte_count")]
    pub bytes: i64,
    /// The SHA-256 of the complete file, in hexadecimal digits; its entity tag is the same.
    pub sha256: Option<String>,
    /// The number of records in the file that were erased after the snapshot was requested.
    pub erased_records: i64,
    /// The path of the file.
    #[sqlx(skip)]
    pub path: String,
    /// The path of the data set card.
    #[sqlx(skip)]
    pub card: String,
    /// The time of the request.
    pub created_at: Timestamp,
    /// The time when the snapshot became complete.
    pub completed_at: Option<Timestamp>,
    /// The time at which the snapshot is deleted automatically. Null if it is kept until a request deletes it.
    pub keep_until: Option<Timestamp>,
    /// The number of rows that the file will have.
    #[serde(skip)]
    pub rows_expected: Option<i64>,
    /// The JSON Schema of a row.
    #[serde(skip)]
    #[schema(ignore)]
    #[sqlx(json)]
    pub row_schema: Value,
}

impl Snapshot {
    /// Sets the fields that follow from the others.
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

    /// Returns the name of the snapshot's file.
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
