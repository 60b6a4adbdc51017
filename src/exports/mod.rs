//! Exports: finished data sets, streamed. A [`Dataset`] says which rows it has and what example each of them is; it lives with
//! its domain, and [`datasets`] is the one list of all. [`mod@export`] fixes which rows there are and in which order, and
//! [`stream`] sends them in bounded memory; [`format`](mod@format) and [`chat`] say how examples are written, [`schema`] what a
//! row looks like, [`count`] how many there are, [`profile`] what they are like, [`split`], [`near`] and [`exclude`] which of
//! them share texts, [`snapshots`] keep them as files, and [`routes`](mod@routes) has the endpoints.

mod as_of;
pub mod chat;
mod compress;
pub mod count;
mod cursor;
pub mod datasets;
pub mod dsjson;
pub mod exclude;
pub mod export;
pub mod forget;
pub mod format;
pub mod near;
pub mod params;
pub mod profile;
mod progress;
pub mod routes;
mod rows;
pub mod schema;
pub mod snapshots;
pub mod split;
pub mod stream;

use std::fmt;

use futures_util::future::BoxFuture;
use serde::Serialize;
use serde_json::Value;
use sqlx::postgres::PgRow;
use sqlx::{PgPool, Postgres, QueryBuilder};
use uuid::Uuid;

use crate::error::Result;
use crate::http::Checks;
use crate::types::Timestamp;
use format::{Example, Format, Shape, Weights};
use params::Common;
use profile::Profile;
use split::Split;

/// What is known about a data set before a request is read.
#[derive(Debug)]
pub struct Description {
    /// The name of the data set, which is the last segment of its path.
    pub name: &'static str,
    /// What its rows are, in one sentence.
    pub summary: &'static str,
    /// What else its readers should know; the documentation adds the formats and file names.
    pub notes: &'static str,
    /// The shapes of examples that it yields, from which its formats follow. The first is the default.
    pub shapes: &'static [Shape],
    /// The schema of its own columns, where it has the format for them.
    pub raw: Option<fn() -> Value>,
    /// The schema of what `include=metadata` adds.
    pub metadata: Option<fn() -> Value>,
    /// What decides in which part of a split its records are.
    pub split: Split,
    /// The table of the records that its rows are made of.
    pub table: &'static str,
    /// How its rows are counted, as SQL from `from` on that begins with `table`; if not given, by its own query, which does.
    pub count: Option<&'static str>,
    /// How the records are counted that it leaves out because their text was not kept, if there can be any, as SQL from `from` on.
    pub skipped: Option<&'static str>,
}

impl Description {
    /// Whether a parameter that data sets share applies to the rows of this one.
    #[must_use]
    pub fn has_parameter(&self, name: &str) -> bool {
        match name {
            "min_chars" | "max_chars" | "max_per_answer" | "exclude" | "near_threshold" => {
                self.split.source().is_some()
            }
            "system" => self.shapes.iter().any(|shape| shape.is_chat()),
            "weights" => Format::Openai.choose(self.shapes).is_some(),
            _ => true,
        }
    }
}

/// A data set that has a description, and so can be in the [list](datasets::ALL).
pub trait Described: Dataset {
    /// What is known of it.
    const DESCRIPTION: Description;
}

/// A data set with the parameters of its own that a request gives.
///
/// SQL of a data set names the project `$1`, with every table that it reads, and never compares the projects of two tables: so
/// a database that is spread over several servers finds them all on one.
pub trait Dataset: fmt::Debug + Send + Sync {
    /// Checks the parameters, some of which only make sense with one shape of examples.
    fn check(&self, shape: Shape, checks: &mut Checks);

    /// Adds `from` and `where`: the rows that make examples of this shape.
    fn push_from(&self, query: &mut QueryBuilder<Postgres>, common: &Common, shape: Shape);

    /// The SQL of the columns by which rows are ordered, which are the first three fields of a [`RowKey`].
    fn sort_key(&self) -> [&'static str; 3];

    /// The SQL of the columns that [`Dataset::write`] reads, separated by commas.
    fn columns(&self, common: &Common, shape: Shape) -> String;

    /// What the questions of its chats are made of.
    fn told(&self, _: Shape) -> Told {
        Told::Request
    }

    /// The SQL of the hashes of question and answer of a row, where it has them.
    fn hashes(&self) -> Option<[String; 2]> {
        None
    }

    /// What stands before the first row.
    fn header(&self, _: Format) -> Option<String> {
        None
    }

    /// Reads what is to be known before the first row, of the records that were finalized before a time.
    fn prepare<'a>(&'a mut self, _: &'a PgPool, _: &'a str, _: Timestamp) -> BoxFuture<'a, Result<()>> {
        Box::pin(async { Ok(()) })
    }

    /// Writes one row as an example.
    fn write(&self, row: &PgRow, key: RowKey, common: &Common, lines: &mut Lines<'_>) -> anyhow::Result<()>;
}

/// What the question of a chat is made of, which decides which members its messages have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Told {
    /// One text of the user.
    Intent,
    /// Messages of the user and the model.
    Chat,
    /// Whatever was sent to the model, with tools and their answers.
    Request,
}

/// The position of a row in its data set, by which rows are ordered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct RowKey {
    /// When the row's record was finalized.
    pub completed_at: Timestamp,
    /// The id of the row's record.
    pub record_id: Uuid,
    /// The number of the row within its record.
    pub row: i32,
    /// The number of the record within the export, from 1; pieces of one export count on.
    pub record: i64,
}

/// The lines of an export that are about to be sent.
#[derive(Debug)]
pub struct Lines<'a> {
    format: Format,
    shape: Shape,
    weights: Weights,
    bytes: &'a mut Vec<u8>,
    /// The profile that looks at the row, if one is made.
    profile: Option<&'a mut Profile>,
    /// The records whose texts the row has.
    records: Vec<Uuid>,
}

impl Lines<'_> {
    /// The shape of examples that is wanted.
    #[must_use]
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// Writes an example of the shape that is wanted.
    pub fn write<R: Serialize>(
        &mut self,
        example: Example<'_, R>,
        metadata: Option<impl Serialize>,
    ) -> anyhow::Result<()> {
        let Some(profile) = &mut self.profile else {
            return self.format.write(self.weights, example, metadata, self.bytes);
        };
        let metadata = metadata.map(serde_json::to_value).transpose()?;
        profile.see(&example, metadata.as_ref());
        self.format.write(self.weights, example, None::<()>, self.bytes)
    }

    /// Says which records the row has texts of, if that is not the record that it is named after.
    pub fn has_records(&mut self, records: impl Iterator<Item = Uuid>) {
        self.records = records.collect();
    }
}

/// Adds the condition that no older row has the same hash: of equal rows, the oldest is left.
///
/// The rows are those of `from` as `alias` that meet the `conditions`; `key` are the columns by which they are ordered.
pub fn push_oldest(
    query: &mut QueryBuilder<Postgres>,
    (from, alias): (&str, &str),
    hash: &str,
    key: &[&str],
    conditions: impl FnOnce(&mut QueryBuilder<Postgres>),
) {
    let of =
        |table: &str| key.iter().map(|column| format!("{table}.{column}")).collect::<Vec<_>>().join(", ");
    query.push(format_args!(
        " and not exists (select from (select {alias}.* from {from} where {alias}.project = $1"
    ));
    conditions(query);
    query.push(format_args!(
        ") older where older.{hash} = {alias}.{hash} and ({}) < ({}))",
        of("older"),
        of(alias)
    ));
}
