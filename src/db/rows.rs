//! Rows that are read in bounded memory, however large each of them is.

use futures_util::TryStreamExt as _;
use futures_util::stream::BoxStream;
use sqlx::postgres::{PgArguments, PgRow};
use sqlx::query::Query;
use sqlx::{
    AssertSqlSafe, Connection as _, Execute as _, FromRow, PgConnection, PgExecutor, PgPool, Postgres,
    Row as _, TypeInfo as _, ValueRef as _,
};

use crate::db::process::Process;
use crate::error::{Error, Result};
use crate::http::memory::{Memory, Reading};
use crate::sharing::{Pauses, to_its_end};

/// The maximum number of bytes, as JSON, of the parts of one record that an answer shows.
pub const MOST: usize = 32 << 20;

/// The number of bytes above which a row needs memory of its own.
const LONG: usize = 64 << 10;

/// The number of bytes above which the room for a row is counted as long as the connection keeps it.
const VERY_LONG: usize = 8 << 20;

/// The most bytes, as JSON, that the records of an answer have together, unless there is only one.
const MOST_OF_RECORDS: usize = 16 << 20;

/// Returns how many bytes the values of a row have.
#[must_use]
pub fn length(row: &PgRow) -> usize {
    length_of_first(row, row.len())
}

/// Returns how many bytes the values of so many first columns of a row have.
#[must_use]
pub fn length_of_first(row: &PgRow, columns: usize) -> usize {
    values(row, columns).map(|(_, bytes)| bytes.len()).sum()
}

/// Returns about how many bytes the values of a row have when they are written as JSON.
#[must_use]
pub fn size(row: &PgRow) -> usize {
    values(row, row.len())
        .map(|(is_json, bytes)| bytes.len() + if is_json { 0 } else { escapes(bytes) })
        .sum()
}

/// Returns for how many bytes memory has to be held for a row that is written as JSON, if it is so long that it needs memory of its
/// own: for twice as many as it has, because the connection keeps the room that it has taken for the row, and for those that it has
/// as JSON. Memory is held for twice as many as one says.
pub fn long(row: &PgRow) -> Option<usize> {
    let length = length(row);
    (length > LONG).then(|| length + size(row) / 2)
}

/// Returns whether a row is so long that memory is to be held for its room as long as the connection keeps it, which is until no
/// further rows of the statement are read.
#[must_use]
pub fn is_very_long(row: &PgRow) -> bool {
    length(row) > VERY_LONG
}

/// Returns the values of so many first columns of a row, each with whether it is JSON already.
fn values(row: &PgRow, columns: usize) -> impl Iterator<Item = (bool, &[u8])> {
    (0..columns).filter_map(|column| {
        let value = row.try_get_raw(column).ok()?;
        let is_json = matches!(value.type_info().name(), "JSON" | "JSONB");
        Some((is_json, value.as_bytes().ok()?))
    })
}

/// Returns how many bytes longer a text is as JSON, because some of its characters are escaped.
fn escapes(text: &[u8]) -> usize {
    let more = |byte: &u8| match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 0x08 | 0x0c => 1,
        0..0x20 => 5,
        _ => 0,
    };
    text.iter().map(more).sum()
}

/// Reads a record that is a row, with a connection of its own, and holds memory for it. Returns none if there is none.
pub async fn single<R>(
    query: Query<'_, Postgres, PgArguments>,
    db: &PgPool,
    memory: &Memory,
) -> Result<Option<R>>
where
    R: for<'r> FromRow<'r, PgRow>,
{
    let (statement, reading) = (Statement::of(query)?, memory.reading_one());
    reading.by(async || one(statement.query(), &mut *db.acquire().await?, &reading).await).await
}

/// Reads all rows, as [`parts`] does, with a connection of its own.
pub async fn all<R>(query: Query<'_, Postgres, PgArguments>, db: &PgPool, memory: &Memory) -> Result<Vec<R>>
where
    R: for<'r> FromRow<'r, PgRow>,
{
    let (statement, reading) = (Statement::of(query)?, memory.reading(MOST));
    reading.by(async || parts(statement.query(), &mut *db.acquire().await?, &reading).await).await
}

/// Reads a record, and holds memory for it. Returns none if there is none.
pub async fn one<R>(
    query: Query<'_, Postgres, PgArguments>,
    connection: &mut PgConnection,
    reading: &Reading<'_>,
) -> Result<Option<R>>
where
    R: for<'r> FromRow<'r, PgRow>,
{
    let row = row(query, connection, reading).await?;
    Ok(row.map(|row| R::from_row(&row)).transpose()?)
}

/// Reads the row of a record, and holds memory for it. Returns none if there is none.
pub async fn row(
    query: Query<'_, Postgres, PgArguments>,
    connection: &mut PgConnection,
    reading: &Reading<'_>,
) -> Result<Option<PgRow>> {
    let Some(row) = query.fetch_optional(&mut *connection).await? else { return Ok(None) };
    if long(&row).is_some() {
        shrink(connection).await?;
    }
    reading.hold(size(&row))?;
    Ok(Some(row))
}

/// Gives back the room that a connection has taken for long rows. What it has read last keeps the room until it reads something
/// else.
pub async fn shrink(connection: &mut PgConnection) -> sqlx::Result<()> {
    connection.shrink_buffers();
    connection.ping().await
}

/// Reads the parts of one record, or whatever else is shown as a whole, and holds memory for them. Those that have more
/// than 32 MiB of JSON together are refused: no answer holds them. After a failure, a transaction is of no further use.
pub async fn parts<R>(
    query: Query<'_, Postgres, PgArguments>,
    connection: &mut PgConnection,
    reading: &Reading<'_>,
) -> Result<Vec<R>>
where
    R: for<'r> FromRow<'r, PgRow>,
{
    let has_room = |_, bytes| {
        let too_large =
            || format!("the record has more than {MOST} bytes as JSON, which is more than an answer shows");
        if bytes > MOST { Err(Error::TooLarge(too_large())) } else { Ok(true) }
    };
    let statement = Statement::of(query)?;
    let parts = to_its_end(async {
        let mut rows = statement.rows(connection);
        let read = rows.read(reading, has_room).await;
        if read.is_err() {
            rows.end(reading.memory()).await;
        }
        read
    });
    parts.await.map(|(parts, _)| parts)
}

/// Reads at most `most` records of a query that returns at most one more, and holds memory for them. It ends early where they have
/// more than 16 MiB together. Returns whether there are more.
pub async fn some<R>(
    query: Query<'_, Postgres, PgArguments>,
    db: &PgPool,
    most: usize,
    memory: &Memory,
) -> Result<(Vec<R>, bool)>
where
    R: for<'r> FromRow<'r, PgRow>,
{
    let has_room = |count, bytes| Ok(count < most && (bytes <= MOST_OF_RECORDS || count == 0));
    let statement = Statement::of(query)?;
    let reading = memory.reading(MOST_OF_RECORDS);
    let read = || {
        to_its_end(async {
            let mut rows = statement.rows(db);
            let read = rows.read(&reading, has_room).await;
            if read.as_ref().is_ok_and(|(records, _)| records.len() == most) {
                rows.read_rest().await?;
            } else {
                rows.end(memory).await;
            }
            read
        })
    };
    reading.by(read).await
}

/// A statement that reads records, perhaps several times.
struct Statement {
    sql: String,
    arguments: PgArguments,
}

impl Statement {
    fn of(mut query: Query<'_, Postgres, PgArguments>) -> Result<Self> {
        let arguments = query.take_arguments().map_err(sqlx::Error::Encode)?.unwrap_or_default();
        Ok(Self { sql: query.sql().as_str().to_owned(), arguments })
    }

    fn query(&self) -> Query<'static, Postgres, PgArguments> {
        sqlx::query_with(AssertSqlSafe(self.sql.clone()), self.arguments.clone())
    }

    fn rows<'e>(&self, db: impl PgExecutor<'e> + 'e) -> Rows<'e> {
        let sql = format!("select rows.*, pg_backend_pid() from ({}\n) rows", self.sql);
        let query = sqlx::query_with(AssertSqlSafe(sql), self.arguments.clone());
        Rows { rows: query.fetch(db), process: None, bytes: 0, is_over: false }
    }
}

/// The rows of a statement. Postgres sends all of them, however many are read, and a connection that is given back before its
/// statement is over reads the rest, and keeps the room for it. Whoever leaves some therefore ends the statement.
struct Rows<'e> {
    rows: BoxStream<'e, sqlx::Result<PgRow>>,
    /// The number of the process that serves the connection, when a row has come.
    process: Option<i32>,
    /// How many bytes the rows have had as JSON.
    bytes: usize,
    is_over: bool,
}

impl Rows<'_> {
    async fn next(&mut self) -> sqlx::Result<Option<PgRow>> {
        let row = self.rows.try_next().await;
        self.is_over = !matches!(row, Ok(Some(_)));
        if let Ok(Some(row)) = &row {
            self.process = Some(row.try_get(row.len() - 1)?);
            self.bytes += size(row);
        }
        row
    }

    /// Reads rows as long as there is room for so many and for so many bytes, and holds memory for them. Returns whether there
    /// are more.
    async fn read<R>(
        &mut self,
        reading: &Reading<'_>,
        has_room: impl Fn(usize, usize) -> Result<bool>,
    ) -> Result<(Vec<R>, bool)>
    where
        R: for<'r> FromRow<'r, PgRow>,
    {
        let (mut records, mut pauses) = (Vec::new(), Pauses::begin());
        while let Some(row) = self.next().await? {
            if !has_room(records.len(), self.bytes)? {
                return Ok((records, true));
            }
            // Twice: once for the records, and once for the answer that is made of them.
            reading.hold(size(&row))?;
            records.push(R::from_row(&row)?);
            pauses.pause().await;
        }
        Ok((records, false))
    }

    /// Reads the rows that are left, and keeps nothing of them.
    async fn read_rest(&mut self) -> sqlx::Result<()> {
        while self.next().await?.is_some() {}
        Ok(())
    }

    /// Ends the statement, unless it is over. A transaction that it is part of is then of no further use.
    async fn end(mut self, memory: &Memory) {
        let (false, Some(process), Some(db)) = (self.is_over, self.process, memory.ends()) else {
            return;
        };
        if let Err(error) = Process::cancel_number(db, process).await {
            tracing::debug!(%error, "a statement could not be ended");
        }
        while let Ok(Some(_)) = self.rows.try_next().await {}
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_text_is_counted_as_long_as_it_is_as_json(text in "[\\x00-\\x7f]*|.*") {
            let written = serde_json::to_string(&text).expect("JSON");
            prop_assert_eq!(text.len() + escapes(text.as_bytes()) + 2, written.len());
        }
    }
}
