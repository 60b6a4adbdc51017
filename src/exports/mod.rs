//! Exports: finished data sets, streamed. A data set says which records it has and how a row of it is written
//! ([`Records`]); [`stream`] takes care of order, cursors, snapshots and memory; [`format`](mod@format) of the formats.

mod accepted;
mod compress;
mod corrections;
pub mod format;
mod history;
pub mod params;
mod preferences;
mod rankings;
mod routes;
mod searches;
mod slates;
pub mod stream;
mod training;

use serde::Serialize;
use sqlx::postgres::PgRow;
use sqlx::{Postgres, QueryBuilder};
use utoipa::ToSchema;
use uuid::Uuid;

pub use accepted::AcceptedSuggestions;
pub use corrections::CorrectionPairs;
pub use history::SuggestionHistory;
pub use preferences::PreferencePairs;
pub use rankings::Rankings;
pub use routes::routes;
pub use searches::SearchPairs;
pub use training::TrainingPairs;

use crate::http::Checks;
use crate::types::Timestamp;
use format::Format;
use params::Common;

/// The place of a row in its data set: when its record was finalized, the record, and the row within it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// When its record was finalized.
    pub at: Timestamp,
    /// The record.
    pub id: Uuid,
    /// Which row of the record.
    pub part: i32,
    /// How many-th record of the export it is, from 1; pieces of one export count on.
    pub record: i64,
}

/// A data set, by its own parameters.
pub trait Records: Clone + std::fmt::Debug + Send + Sync + 'static {
    /// Its name, the last part of its path.
    const NAME: &'static str;
    /// The formats it offers, the default first.
    const FORMATS: &'static [Format];

    /// SQL that counts the records of project `$1` that have no row because their text was not kept.
    const SKIPPED: Option<&'static str> = None;

    /// Checks what depends on the format.
    fn check(&self, format: Format, checks: &mut Checks);

    /// Adds `from` and `where`: the rows of the data set.
    fn from(&self, query: &mut QueryBuilder<Postgres>, project: &str, common: &Common, format: Format);

    /// The SQL of the parts of a row's [`Key`].
    fn key(&self) -> [&'static str; 3];

    /// The SQL of the columns that [`Records::write`] reads.
    fn columns(&self, common: &Common, format: Format) -> String;

    /// What stands before the first row.
    fn header(&self, format: Format) -> Option<String> {
        let _ = format;
        None
    }

    /// Writes one row as a line.
    fn write(
        &self,
        row: &PgRow,
        key: Key,
        common: &Common,
        format: Format,
        out: &mut Vec<u8>,
    ) -> anyhow::Result<()>;
}

/// A data set as `GET /v1/exports` lists it.
#[derive(Debug, Serialize, ToSchema)]
pub struct Listed {
    /// Its name, the last part of its path.
    pub dataset: &'static str,
    /// The formats it offers, the default first.
    pub formats: &'static [Format],
    /// How many rows it has with default parameters.
    pub rows: i64,
    /// How many records it leaves out because their text was not kept.
    pub skipped: i64,
}
