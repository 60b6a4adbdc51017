//! Exports: data sets, streamed. A [`Dataset`] says which rows it has and which example each row is. It is in the
//! folder of its domain, and [`datasets`] lists all of them. [`mod@export`] fixes the rows of an export and their
//! order, [`stream`] sends them to a [`reader`] in bounded memory, and [`places`] limits how many are sent at a time.
//! [`format`](mod@format) and [`chat`] say how examples are written, [`schema`] describes a row, [`columns`] makes
//! columns of rows, [`count`] counts rows, and [`profile`] describes all rows. [`split`], [`near`] and [`exclude`] find
//! rows that share [texts](text), [`snapshots`] store exports as files, and [`routes`](mod@routes) has the endpoints.

mod as_of;
pub mod chat;
pub mod columns;
mod compress;
pub mod count;
mod cursor;
pub mod datasets;
pub mod dsjson;
pub mod exclude;
pub mod export;
pub mod forget;
pub mod format;
pub mod groups;
pub mod near;
pub mod params;
pub mod places;
pub mod profile;
pub mod progress;
pub mod reader;
mod reading;
pub mod routes;
mod rows;
pub mod schema;
pub mod selection;
pub mod snapshots;
pub mod split;
pub mod stream;
pub mod text;

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
use groups::Comparison;
use params::Common;
use profile::Profile;
use rows::Out;
use split::Split;
use text::QuestionAndAnswer;

/// What is known about a data set before a request is read.
#[derive(Debug)]
pub struct Description {
    /// The name of the data set, which is the last segment of its path.
    pub name: &'static str,
    /// What its rows are, in one sentence.
    pub summary: &'static str,
    /// Further information for readers. The documentation adds the formats and file names.
    pub notes: &'static str,
    /// The shapes of examples that it yields, from which its formats follow. The first is the default.
    pub shapes: &'static [Shape],
    /// The schema of the data set's own columns, if it has the format for them.
    pub raw: Option<fn() -> Value>,
    /// The schema of what `include=metadata` adds.
    pub metadata: Option<fn() -> Value>,
    /// What decides on the part of a split that a record is in.
    pub split: Split,
    /// The tables from which the rows are made, that of the records first.
    pub tables: &'static [&'static str],
    /// The SQL that counts the rows, from `from` on, beginning with the first of the `tables`. Without it, the data set's own query
    /// counts them.
    pub count: Option<&'static str>,
    /// The SQL that counts the records left out because their text was not stored, from `from` on. Without it, there
    /// are none.
    pub skipped: Option<&'static str>,
}

impl Description {
    /// Returns whether a common parameter applies to the rows of this data set.
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
    /// The description.
    const DESCRIPTION: Description;
}

/// A data set with the values of its own parameters.
///
/// The SQL of a data set compares the project of every table with `$1`, and never with the project of another table,
/// so that a database that is distributed over several servers finds all rows on one of them.
pub trait Dataset: fmt::Debug + Send + Sync {
    /// Checks the parameters, some of which are only valid for one shape of examples.
    fn check(&self, shape: Shape, checks: &mut Checks);

    /// Adds `from` and `where` for the rows that make examples of this shape.
    fn push_from(&self, query: &mut QueryBuilder<Postgres>, common: &Common, shape: Shape);

    /// Returns the SQL of the columns by which rows are ordered, which are the first three fields of a [`RowKey`].
    fn sort_key(&self) -> [&'static str; 3];

    /// Returns the SQL of the columns that [`Dataset::write`] reads, separated by commas.
    fn columns(&self, common: &Common, shape: Shape) -> String;

    /// Returns what the question of a chat is made of.
    fn told(&self, _: Shape) -> Told {
        Told::Request
    }

    /// Returns a row's question and answer, if it has them.
    fn texts(&self, _: Shape) -> Option<QuestionAndAnswer> {
        None
    }

    /// Returns the comparison by which similar rows are found, if the rows have texts.
    fn comparison(&self) -> Option<&'static Comparison> {
        None
    }

    /// Returns the text before the first row, if there is one.
    fn header(&self, _: Format) -> Option<String> {
        None
    }

    /// Reads what must be known before the first row, from the records that were finalized before a time.
    fn prepare<'a>(&'a mut self, _: &'a PgPool, _: &'a str, _: Timestamp) -> BoxFuture<'a, Result<()>> {
        Box::pin(async { Ok(()) })
    }

    /// Writes one row as an example.
    fn write(&self, row: &PgRow, key: RowKey, common: &Common, lines: &mut Lines<'_>) -> anyhow::Result<()>;
}

/// What the question of a chat is made of, which decides which members its messages have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Told {
    /// One message of the user.
    Intent,
    /// Messages of the user and the model.
    Chat,
    /// Everything that was sent to the model, including tools and their results.
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
    /// The number of the record within the export, from 1. It continues in the next part of the same export.
    pub record: i64,
}

/// The lines of an export, to which each row is added.
#[derive(Debug)]
pub struct Lines<'a> {
    format: Format,
    shape: Shape,
    weights: Weights,
    out: Out<'a>,
    /// The profile that gets the row, if one is made.
    profile: Option<&'a mut Profile>,
    /// The records whose texts are in the row.
    records: Vec<Uuid>,
}

impl Lines<'_> {
    /// Returns the shape of examples that is wanted.
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
            return self.format.write(self.weights, example, metadata, &mut self.out);
        };
        let metadata = metadata.map(serde_json::to_value).transpose()?;
        profile.see(self.format, &example, metadata.as_ref());
        self.format.write(self.weights, example, None::<()>, &mut self.out)
    }

    /// Sets the records whose texts are in the row, if they are others than the record that the row is named after.
    pub fn has_records(&mut self, records: impl Iterator<Item = Uuid>) {
        self.records = records.collect();
    }
}
