//! An export: its rows, which are fixed before the first one is read, and how they are read page by page.

use std::fmt;
use std::sync::Arc;

use anyhow::Context as _;
use sqlx::postgres::{PgArguments, PgRow};
use sqlx::{Arguments as _, PgConnection, PgPool, Postgres, QueryBuilder, Row as _};
use uuid::Uuid;

use super::as_of::{before_writes_in_flight, settle};
use super::format::{Format, Shape};
use super::params::{Common, Order};
use super::profile::Profile;
use super::rows::Out;
use super::text::QuestionAndAnswer;
use super::{Dataset, Description, Lines, RowKey, Told, cursor, exclude, groups, near, progress};
use crate::db::rows;
use crate::error::{Error, Result};
use crate::http::page::cursor_scope;
use crate::http::{Check as _, Checks};
use crate::types::Timestamp;

/// The number of rows that one statement reads.
pub(super) const PAGE: usize = 5_000;

/// The maximum number of bytes of a row: those of a conversation, and of its names and times.
const LONGEST_ROW: usize = (16 << 20) + (64 << 10);

/// An export whose rows are fixed and which is ready to begin.
pub struct Export {
    pub(super) rows: Rows,
    pub(super) project: String,
    /// What binds cursors to the conditions of the export.
    scope: [u8; 8],
    as_of: Timestamp,
    /// The position after which the export begins, if it continues an earlier part.
    after: Option<RowKey>,
    /// The last row of the export, if it has a limit.
    last: Option<RowKey>,
    /// If only a sample of the records is exported, those whose 32-bit hash is below this number.
    pub(super) sample: Option<i64>,
    /// The text before the first row, as long as it is not written.
    header: Option<String>,
    /// The cursor of the next part, if there is one.
    pub next_cursor: Option<String>,
    /// Whether rows can be left out because their texts are also in another part, and are to be counted.
    counts_dropped: bool,
    /// The number of rows left out of this part of a split because their texts are also in another part.
    pub dropped: Option<i64>,
}

impl fmt::Debug for Export {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Export").field("rows", &self.rows).field("as_of", &self.as_of).finish_non_exhaustive()
    }
}

impl Export {
    /// Checks the parameters, fixes the rows of the export, and finds its extent.
    pub async fn prepare(
        db: &PgPool,
        project: &str,
        description: &Description,
        dataset: Box<dyn Dataset>,
        common: Common,
    ) -> Result<Self> {
        let mut export = Self::fix(db, project, description, dataset, common).await?;
        let mut connection = db.acquire().await?;
        export.find_extent(&mut connection).await?;
        Ok(export)
    }

    /// Checks the parameters, and fixes the rows of the export, which has no extent yet.
    pub(super) async fn fix(
        db: &PgPool,
        project: &str,
        description: &Description,
        mut dataset: Box<dyn Dataset>,
        mut common: Common,
    ) -> Result<Self> {
        let conditions = format!("{:?} {dataset:?}", common.conditions());
        let scope = cursor_scope(description.name, &[&("conditions".to_owned(), conditions)]);
        let (format, shape) = check(description, dataset.as_ref(), &common)?;
        let edge = cursor::edge(common.order());
        let cursor = common.cursor.take();
        let cursor = cursor.map(|cursor| cursor::open(&cursor, scope, edge)).transpose()?;
        let (from_cursor, after) = cursor.unzip();
        if let (Some(given), Some(kept)) = (common.as_of, from_cursor)
            && given != kept
        {
            return Err(Error::invalid("/as_of", "differs from the cursor's"));
        }
        let as_of = match common.as_of.or(from_cursor) {
            Some(as_of) => {
                let pointer = if common.as_of.is_some() { "/as_of" } else { "/cursor" };
                settle(db, project, as_of, pointer).await?;
                as_of
            }
            None => before_writes_in_flight(db, project).await?,
        };
        common.as_of = Some(as_of);
        for table in description.tables {
            progress::renew_outdated_statistics(db, project, table).await?;
        }
        if let Some(source) = description.split.source().filter(|_| common.needs_groups()) {
            groups::catch_up(db, project, source, as_of).await?;
        }
        if let Some(comparison) = dataset.comparison().filter(|_| common.is_near()) {
            near::catch_up(db, project, comparison, as_of).await?;
        }
        if let Some(snapshot) = common.exclude {
            exclude::prepare(db, project, snapshot).await?;
        }
        dataset.prepare(db, project, as_of).await?;
        let header = if after.is_none() { dataset.header(format) } else { None };
        // In an export that is divided by a limit, only the first part reports the number for all.
        let counts_dropped = after.is_none() && description.split.source().is_some() && common.drops();
        Ok(Self {
            rows: Rows { dataset: dataset.into(), common, format, shape },
            project: project.to_owned(),
            scope,
            as_of,
            after,
            last: None,
            sample: None,
            header,
            next_cursor: None,
            counts_dropped,
            dropped: None,
        })
    }

    /// Finds out how many rows are left out, and where the export ends. That reads the keys of all rows.
    pub(super) async fn find_extent(&mut self, connection: &mut PgConnection) -> Result<()> {
        if self.counts_dropped {
            self.dropped = Some(self.count_dropped(connection).await?);
        }
        if let Some(limit) = self.rows.common.limit {
            let (last, more) = self.find_end(connection, limit).await?;
            self.last = last;
            self.next_cursor = last.filter(|_| more).map(|last| cursor::seal(self.scope, self.as_of, last));
        }
        Ok(())
    }

    /// Returns the media type of the rows, unless they are NDJSON.
    pub fn media_type(&self) -> Option<&'static str> {
        self.rows.format.media_type()
    }

    /// Returns the time whose state of the data is exported.
    pub fn as_of(&self) -> Timestamp {
        self.as_of
    }

    /// Makes the query of the last record within `limit`, and of the one after it if there is one.
    pub fn end(&self, limit: i64) -> Result<QueryBuilder<Postgres>> {
        let [completed_at, record_id, _] = self.rows.dataset.sort_key();
        let columns = format!("select distinct {completed_at} as completed_at, {record_id} as record_id");
        let mut query = self.select(&columns)?;
        self.push_order(&mut query, &["completed_at", "record_id"]);
        query.push(" offset ").push_bind(limit - 1).push(" limit 2");
        Ok(query)
    }

    /// The last record within `limit`, and whether there is one more behind it.
    async fn find_end(&self, connection: &mut PgConnection, limit: i64) -> Result<(Option<RowKey>, bool)> {
        let found: Vec<(Timestamp, Uuid)> = self.end(limit)?.build_query_as().fetch_all(connection).await?;
        let record = self.taken().saturating_add(limit);
        let row = cursor::edge(self.rows.common.order());
        let key = |&(completed_at, record_id)| RowKey { completed_at, record_id, row, record };
        Ok((found.first().map(key), found.len() > 1))
    }

    /// Counts the rows that are left out of this part of a split because their texts are also in another part.
    async fn count_dropped(&mut self, connection: &mut PgConnection) -> Result<i64> {
        let mut counts = [0, 0];
        for (with_overlaps, count) in [(true, 0), (false, 1)] {
            self.rows.common.with_overlaps = with_overlaps;
            counts[count] = self.count(connection).await?;
        }
        let [all, kept]: [i64; 2] = counts;
        Ok(all - kept)
    }

    /// Counts the remaining rows.
    pub(super) async fn count(&self, connection: &mut PgConnection) -> Result<i64> {
        Ok(self.counted()?.build_query_scalar().fetch_one(connection).await?)
    }

    /// Makes the query of the number of the remaining rows.
    pub(super) fn counted(&self) -> Result<QueryBuilder<Postgres>> {
        self.select("select count(*)")
    }

    /// Returns the number of records that were exported so far, also in earlier parts.
    fn taken(&self) -> i64 {
        self.after.map_or(0, |after| after.record)
    }

    /// Makes a query of these columns over the remaining rows.
    fn select(&self, columns: &str) -> Result<QueryBuilder<Postgres>> {
        let mut query = query_of_project(columns, &self.project)?;
        self.rows.dataset.push_from(&mut query, &self.rows.common, self.rows.shape);
        let [completed_at, record_id, row] = self.rows.dataset.sort_key();
        query.push(format_args!(" and {completed_at} < ")).push_bind(self.as_of);
        if let Some(sample) = self.sample {
            query.push(format_args!(" and ('x' || left(md5({record_id}::text), 8))::bit(32)::bigint < "));
            query.push_bind(sample);
        }
        let [behind, up_to] = match self.rows.common.order() {
            Order::Oldest => [">", "<="],
            Order::Newest => ["<", ">="],
        };
        for (key, comparison) in [(self.after, behind), (self.last, up_to)] {
            let Some(key) = key else { continue };
            query.push(format_args!(" and ({completed_at}, {record_id}, {row}) {comparison} ("));
            query.push_bind(key.completed_at).push(", ").push_bind(key.record_id);
            query.push(", ").push_bind(key.row).push(")");
            // This follows from the condition above. If the row number is from another table, an index on the
            // records can only start at the key because of it.
            let comparison = if comparison.starts_with('>') { ">=" } else { "<=" };
            query.push(format_args!(" and ({completed_at}, {record_id}) {comparison} ("));
            query.push_bind(key.completed_at).push(", ").push_bind(key.record_id).push(")");
        }
        Ok(query)
    }

    /// Adds the order of rows by these columns.
    fn push_order(&self, query: &mut QueryBuilder<Postgres>, columns: &[&str]) {
        let direction = self.rows.common.order().direction();
        for (place, column) in columns.iter().enumerate() {
            let before = if place == 0 { "order by" } else { "," };
            query.push(format_args!(" {before} {column} {direction}"));
        }
    }

    /// Makes the query of the next page of rows. `more` are additional columns, each after a comma.
    pub fn next_page(&self, more: &str) -> Result<QueryBuilder<Postgres>> {
        let [completed_at, record_id, row] = self.rows.dataset.sort_key();
        let columns = self.rows.dataset.columns(&self.rows.common, self.rows.shape);
        let mut query = self.select(&format!(
            "select {completed_at} as key_completed_at, {record_id} as key_record_id, {row} as key_row, {columns}{more}"
        ))?;
        self.push_order(&mut query, &["key_completed_at", "key_record_id", "key_row"]);
        query.push(format_args!(" limit {PAGE}"));
        Ok(query)
    }

    /// Fails if the rows of the page that was read may lack a condition, because the excluded snapshot is gone.
    pub(super) async fn confirm(&self, connection: &mut PgConnection) -> Result<()> {
        match self.rows.common.exclude {
            Some(snapshot) => exclude::confirm(connection, &self.project, snapshot).await,
            None => Ok(()),
        }
    }

    /// Returns the text before the first row, unless it was already taken.
    pub(super) fn take_header(&mut self) -> Vec<u8> {
        self.header.take().unwrap_or_default().into_bytes()
    }

    /// Writes a row of a page as a line, and moves the position to it. If there is a `profile`, it also gets the row.
    pub(super) fn write(
        &mut self,
        row: &PgRow,
        bytes: &mut Vec<u8>,
        profile: Option<&mut Profile>,
    ) -> anyhow::Result<()> {
        let key = self.pass(row)?;
        self.rows.write(row, key, Out::Lines(bytes), profile)?;
        Ok(())
    }

    /// Returns whether a row is left out because it is too long without its last columns, of which so many were added. One that joins
    /// several records may be. The position moves to it.
    pub(super) fn leaves_out(&mut self, row: &PgRow, added: usize) -> sqlx::Result<bool> {
        let is_too_long = rows::length_of_first(row, row.len() - added) > LONGEST_ROW;
        if is_too_long {
            self.pass(row)?;
        }
        Ok(is_too_long)
    }

    /// Moves the position to a row of a page.
    pub(super) fn pass(&mut self, row: &PgRow) -> sqlx::Result<RowKey> {
        let record_id = row.try_get("key_record_id")?;
        let is_next = self.after.is_none_or(|after| after.record_id != record_id);
        let key = RowKey {
            completed_at: row.try_get("key_completed_at")?,
            record_id,
            row: row.try_get("key_row")?,
            record: self.taken() + i64::from(is_next),
        };
        self.after = Some(key);
        Ok(key)
    }
}

/// What the rows of an export are, and how they are written.
#[derive(Debug, Clone)]
pub(super) struct Rows {
    dataset: Arc<dyn Dataset>,
    pub(super) common: Common,
    pub(super) format: Format,
    shape: Shape,
}

impl Rows {
    /// Returns a row's question and answer, if it has them.
    pub(super) fn texts(&self) -> Option<QuestionAndAnswer> {
        self.dataset.texts(self.shape)
    }

    /// Writes a row. If there is a `profile`, it also gets the row. Returns the records whose texts are in the row.
    pub(super) fn write(
        &self,
        row: &PgRow,
        key: RowKey,
        out: Out<'_>,
        profile: Option<&mut Profile>,
    ) -> anyhow::Result<Vec<Uuid>> {
        let mut lines = Lines {
            format: self.format,
            shape: self.shape,
            weights: self.common.weights.unwrap_or_default(),
            out,
            profile,
            records: vec![key.record_id],
        };
        self.dataset.write(row, key, &self.common, &mut lines)?;
        Ok(lines.records)
    }
}

/// Checks the parameters of an export. Returns the format and the shape of its rows.
pub(super) fn check(
    description: &Description,
    dataset: &dyn Dataset,
    common: &Common,
) -> Result<(Format, Shape)> {
    let mut checks = Checks::default();
    common.check(&mut checks);
    let offered: Vec<_> = Format::of(description.shapes).collect();
    let format = common.format.unwrap_or(offered[0]);
    let shape = format.choose(description.shapes);
    if let Some(shape) = shape {
        dataset.check(shape, &mut checks);
        common.check_shape(format, shape, description.split, &mut checks);
    } else {
        let names: Vec<_> = offered.into_iter().map(Format::name).collect();
        checks.fail("format", format!("this data set offers {}", names.join(", ")));
    }
    let fits = format.is_json() || !common.with_metadata();
    checks.require(fits, "include", "the rows of this format have no place for metadata");
    checks.finish()?;
    Ok((format, shape.context("a format without a shape")?))
}

/// Returns the JSON Schema of the rows of an export with these parameters, if the rows are JSON.
pub(super) fn schema(
    description: &Description,
    dataset: &dyn Dataset,
    common: &Common,
) -> Result<Option<serde_json::Value>> {
    let (format, shape) = check(description, dataset, common)?;
    let told: Told = dataset.told(shape);
    Ok(super::schema::of_row(description, format, shape, told, common))
}

/// Begins a query over the data of a project with this text. The project is `$1`.
pub(super) fn query_of_project(beginning: &str, project: &str) -> Result<QueryBuilder<Postgres>> {
    let mut arguments = PgArguments::default();
    arguments.add(project).map_err(anyhow::Error::from_boxed)?;
    Ok(QueryBuilder::with_arguments(beginning, arguments))
}
