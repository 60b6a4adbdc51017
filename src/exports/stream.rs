//! How an export flows: page by page in key order, one way or the other; each page a statement of its own, so that a long export holds back no
//! vacuum; JSON is made here, not in SQL; the memory used is that of a few chunks.
//!
//! # An export, step by step
//!
//! 1. **Parameters** (`exports/routes.rs`) are divided by name into the common ones and the data set's own; both are structs
//!    that also serve the command line, so that there is one list and one documentation. Eight bytes of a hash over data set
//!    and conditions bind the cursor; `limit`, `cursor`, `as_of`, `format` and `include` are free to change on the way.
//! 2. **Extent** (`Export::prepare`). A cursor holds the place after which to go on and the `as_of` of its export. Without
//!    one, `as_of` is worked out; given, it is settled (both below). With `limit`, one statement over keys alone finds the
//!    last record of the piece and whether another follows, so that `Gleaner-Next-Cursor` is known before the body
//!    begins. A record is a log: its rows are never cut in two.
//! 3. **Flow** (`Export::run`). Pages of 5 000 rows in key order, each a statement of its own with a snapshot of its own: a
//!    long export holds no snapshot open, and vacuum goes on. Rows are read one by one, written as JSON in Rust, and sent in
//!    chunks of 64 KiB through a channel that holds four. That is all the memory it takes. JSON is not built in SQL: measured
//!    before this was written, 420 MB/s against 178 MB/s for `COPY (SELECT json …)`. Exports have connections of their own
//!    (a quarter as many as there are for reading, two at least) and wait five seconds for one; a reader who takes nothing for
//!    a minute loses theirs. So slow readers keep nobody else waiting.
//! 4. **End.** When the receiver is gone, the next chunk cannot be sent and the export ends. When a statement fails, the
//!    error goes down the channel and breaks the body: a client sees a broken transfer, never a short file. `.jsonl.gz` is
//!    compressed on a blocking thread.
//!
//! **Order and keys.** Rows come by (`completed_at`, log, place within the log): the order in which logs were finalized.
//! `created_at` would not do, since clients may send any, and a log may stay open for long.
//!
//! **`as_of`.** An export is repeatable if it takes exactly the logs with `completed_at < as_of`, and if none of those can
//! appear later. `completed_at` comes from the database's clock, read inside the finalizing transaction. Postgres
//! publishes when a transaction began before any of its statements runs. So: read the database's clock, then the oldest begin
//! among the transactions of all connections that call themselves `gleaner-writer`, and take the smaller. A transaction that
//! was seen began at `as_of` or later, so its logs are later still; one that was not seen has committed already, or began
//! after the clock was read. This holds for any number of servers and imports on one database, and needs no table of its
//! own. A given `as_of` must not be in the future; the export waits up to five seconds until no older write is under way.
//! Not covered, by intent: reviews, `DELETE` and erasure take effect at once in every export.
//!
//! **Dedupe.** A row is left out if an older one with the same stored hash meets the same conditions: an anti-join by index,
//! whatever the size. For training pairs the hash is a generated column over intent and program as exported, so that a
//! review's correction moves it; for correction pairs it is made when the pair is noted.
//!
//! **Split.** See [`split`]: what decides is the texts of a row, and not the row.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use bytes::Bytes;
use clap::Args;
use futures_util::TryStreamExt as _;
use sqlx::postgres::{PgArguments, PgConnectOptions};
use sqlx::{Arguments as _, PgConnection, PgPool, Postgres, QueryBuilder, Row as _};
use tokio::sync::mpsc;
use uuid::Uuid;

use super::format::{Format, Shape};
use super::params::{Common, Order};
use super::{Dataset, Description, Lines, RowKey, split};
use crate::db::{self, EXPORT_NAME, WRITER_NAME};
use crate::error::{Error, Result};
use crate::http::page::{cursor_scope, open_cursor, seal_cursor};
use crate::http::{Check as _, Checks};
use crate::sharing::{Place, Shares};
use crate::types::Timestamp;

/// How many rows one statement reads.
const PAGE: i64 = 5_000;
/// How long a reader may take nothing before the export is given up, and its connection to the database with it.
pub(super) const STALL: Duration = Duration::from_mins(1);
/// The bytes per second that a reader must take on average, beyond a minute of patience, before compression.
const SLOWEST: u64 = 16 << 10;
/// How long an export waits for others to end.
const PATIENCE: Duration = Duration::from_secs(5);
/// The maximum number of records that a cursor may say were taken: more than any database holds, and still to be
/// counted on from.
const MOST_RECORDS: i64 = 1 << 53;
/// How many bytes are sent at a time.
const CHUNK: usize = 64 << 10;

/// An export that is about to begin: its extent is fixed.
pub struct Export {
    dataset: Box<dyn Dataset>,
    common: Common,
    project: String,
    format: Format,
    shape: Shape,
    as_of: Timestamp,
    /// The last row of what was taken before.
    after: Option<RowKey>,
    /// The last row that this export has, if not all there are.
    last: Option<RowKey>,
    /// What still has to be said before the first row.
    header: Option<String>,
    /// Where the next piece begins, if there is one.
    pub next_cursor: Option<String>,
    /// How many rows of this part of a split are left out because their texts stand in another part too.
    pub dropped: Option<i64>,
}

/// Whether more is to be sent.
#[derive(PartialEq, Eq)]
enum Progress {
    More,
    Done,
    /// Nobody listens any more.
    Abandoned,
}

impl Export {
    /// Checks the parameters and fixes the extent.
    pub async fn prepare(
        db: &PgPool,
        project: &str,
        description: &Description,
        dataset: Box<dyn Dataset>,
        mut common: Common,
    ) -> Result<Self> {
        let conditions = format!("{:?} {dataset:?}", common.conditions());
        let scope = cursor_scope(description.name, &[&("conditions".to_owned(), conditions)]);
        let mut checks = Checks::default();
        common.check(&mut checks);
        let offered: Vec<_> = Format::of(description.shapes).collect();
        let format = common.format.unwrap_or(offered[0]);
        let shape = format.choose(description.shapes);
        if let Some(shape) = shape {
            dataset.check(shape, &mut checks);
            common.check_shape(format, shape, description.split.is_some(), &mut checks);
        } else {
            let names: Vec<_> = offered.into_iter().map(Format::name).collect();
            checks.fail("format", format!("this data set offers {}", names.join(", ")));
        }
        let fits = format.is_json() || !common.with_metadata();
        checks.require(fits, "include", "the rows of this format have no place for metadata");
        checks.finish()?;
        let shape = shape.context("a format without a shape")?;
        let edge = edge(common.order());
        let cursor = common.cursor.take();
        let cursor = cursor.map(|cursor| open_export_cursor(&cursor, scope, edge)).transpose()?;
        let (from_cursor, after) = cursor.unzip();
        if let (Some(given), Some(kept)) = (common.as_of, from_cursor)
            && given != kept
        {
            return Err(Error::invalid("/as_of", "differs from the cursor's"));
        }
        let as_of = match common.as_of.or(from_cursor) {
            Some(as_of) => {
                settle(db, as_of).await?;
                as_of
            }
            None => before_writes_in_flight(db).await?,
        };
        common.as_of = Some(as_of);
        if let Some(source) = description.split.filter(|_| common.needs_groups()) {
            split::catch_up(db, project, source, as_of).await?;
        }
        let header = if after.is_none() { format.header(description.features) } else { None };
        let mut export = Self {
            dataset,
            common,
            project: project.to_owned(),
            format,
            shape,
            as_of,
            after,
            last: None,
            header,
            next_cursor: None,
            dropped: None,
        };
        // Of an export in pieces, the first one says it for all.
        if export.after.is_none() && description.split.is_some() && export.common.drops() {
            export.dropped = Some(export.count_dropped(db).await?);
        }
        if let Some(limit) = export.common.limit {
            let mut connection = db.acquire().await?;
            let (last, more) = export.find_end(&mut connection, limit).await?;
            export.last = last;
            export.next_cursor = last.filter(|_| more).map(|last| seal_export_cursor(scope, as_of, last));
        }
        Ok(export)
    }

    /// The media type of the rows, where they are not NDJSON.
    pub fn media_type(&self) -> Option<&'static str> {
        self.format.media_type()
    }

    /// The time whose state of the data is exported.
    pub fn as_of(&self) -> Timestamp {
        self.as_of
    }

    /// The last record within `limit`, and whether there is one more behind it.
    async fn find_end(&self, connection: &mut PgConnection, limit: i64) -> Result<(Option<RowKey>, bool)> {
        let [completed_at, record_id, _] = self.dataset.sort_key();
        let columns = format!("select distinct {completed_at} as completed_at, {record_id} as record_id");
        let mut query = self.select(&columns)?;
        self.push_order(&mut query, &["completed_at", "record_id"]);
        query.push(" offset ").push_bind(limit - 1).push(" limit 2");
        let found: Vec<(Timestamp, Uuid)> = query.build_query_as().fetch_all(connection).await?;
        let record = self.taken().saturating_add(limit);
        let row = edge(self.common.order());
        let key = |&(completed_at, record_id)| RowKey { completed_at, record_id, row, record };
        Ok((found.first().map(key), found.len() > 1))
    }

    /// Counts the rows of this part that are left out because their texts stand in another part too.
    async fn count_dropped(&mut self, db: &PgPool) -> Result<i64> {
        let mut counts = [0, 0];
        for (with_overlaps, count) in [(true, 0), (false, 1)] {
            self.common.with_overlaps = with_overlaps;
            let mut query = self.select("select count(*)")?;
            counts[count] = query.build_query_scalar().fetch_one(db).await?;
        }
        let [all, kept]: [i64; 2] = counts;
        Ok(all - kept)
    }

    /// How many records were taken so far, in earlier pieces too.
    fn taken(&self) -> i64 {
        self.after.map_or(0, |after| after.record)
    }

    /// A query of these columns over what is still to be taken.
    fn select(&self, columns: &str) -> Result<QueryBuilder<Postgres>> {
        let mut query = query_of_project(columns, &self.project)?;
        self.dataset.push_from(&mut query, &self.common, self.shape);
        let [completed_at, record_id, row] = self.dataset.sort_key();
        query.push(format_args!(" and {completed_at} < ")).push_bind(self.as_of);
        let [behind, up_to] = match self.common.order() {
            Order::Oldest => [">", "<="],
            Order::Newest => ["<", ">="],
        };
        for (key, comparison) in [(self.after, behind), (self.last, up_to)] {
            if let Some(key) = key {
                query.push(format_args!(" and ({completed_at}, {record_id}, {row}) {comparison} ("));
                query.push_bind(key.completed_at).push(", ").push_bind(key.record_id);
                query.push(", ").push_bind(key.row).push(")");
            }
        }
        Ok(query)
    }

    /// Adds the order of rows by these columns.
    fn push_order(&self, query: &mut QueryBuilder<Postgres>, columns: &[&str]) {
        let direction = match self.common.order() {
            Order::Oldest => "asc",
            Order::Newest => "desc",
        };
        for (place, column) in columns.iter().enumerate() {
            let before = if place == 0 { "order by" } else { "," };
            query.push(format_args!(" {before} {column} {direction}"));
        }
    }

    /// Sends the rows to `out` as chunks of lines, and an empty chunk when that was all. Where `out` closes without one,
    /// the export was interrupted: it must not look whole. Ends early when nobody listens any more. The `permit` under which it
    /// runs is given back before the reader learns of the end.
    pub async fn run<P>(mut self, db: PgPool, out: mpsc::Sender<Bytes>, permit: P) {
        let mut reader = Reader { out, taken: 0, waited: Duration::ZERO };
        loop {
            match self.send_page(&db, &mut reader).await {
                Ok(Progress::More) => {}
                Ok(Progress::Done) => {
                    drop(permit);
                    let _ = reader.out.send(Bytes::new()).await;
                    return;
                }
                Ok(Progress::Abandoned) => return,
                Err(error) => {
                    tracing::error!(cause = format!("{error:#}"), "an export was interrupted");
                    return;
                }
            }
        }
    }

    async fn send_page(&mut self, db: &PgPool, reader: &mut Reader) -> anyhow::Result<Progress> {
        let [completed_at, record_id, row] = self.dataset.sort_key();
        let columns = self.dataset.columns(&self.common, self.shape);
        let mut query = self.select(&format!(
            "select {completed_at} as key_completed_at, {record_id} as key_record_id, {row} as key_row, {columns}"
        ))?;
        self.push_order(&mut query, &["key_completed_at", "key_record_id", "key_row"]);
        query.push(" limit ").push_bind(PAGE);
        let mut connection = db.acquire().await?;
        let query = query.build();
        let mut rows = query.fetch(&mut *connection);
        let mut chunk = Vec::with_capacity(CHUNK * 2);
        chunk.extend(self.header.take().unwrap_or_default().into_bytes());
        let mut count = 0;
        while let Some(row) = rows.try_next().await? {
            let record_id = row.try_get("key_record_id")?;
            let is_next = self.after.is_none_or(|after| after.record_id != record_id);
            let key = RowKey {
                completed_at: row.try_get("key_completed_at")?,
                record_id,
                row: row.try_get("key_row")?,
                record: self.taken() + i64::from(is_next),
            };
            let mut lines = Lines {
                format: self.format,
                shape: self.shape,
                weights: self.common.weights.unwrap_or_default(),
                bytes: &mut chunk,
            };
            self.dataset.write(&row, key, &self.common, &mut lines)?;
            self.after = Some(key);
            count += 1;
            if chunk.len() >= CHUNK && !reader.send(&mut chunk).await {
                return Ok(Progress::Abandoned);
            }
        }
        if !chunk.is_empty() && !reader.send(&mut chunk).await {
            return Ok(Progress::Abandoned);
        }
        Ok(if count == PAGE { Progress::More } else { Progress::Done })
    }
}

/// Begins a query of a data set with this text. The project is `$1`.
pub(super) fn query_of_project(beginning: &str, project: &str) -> Result<QueryBuilder<Postgres>> {
    let mut arguments = PgArguments::default();
    arguments.add(project).map_err(anyhow::Error::from_boxed)?;
    Ok(QueryBuilder::with_arguments(beginning, arguments))
}

/// The connections that exports have to themselves, so that readers who dawdle keep nobody else waiting.
#[derive(Debug, Clone)]
pub struct Exports {
    /// The connections, as many as there are permits.
    pub db: PgPool,
    /// How long an export may take.
    longest: Duration,
    places: Shares,
}

impl Exports {
    /// Makes the connections and permits that `limits` allow.
    pub fn new(options: &PgConnectOptions, limits: Limits) -> Self {
        let places = Shares::new(limits.most_exports as usize);
        let size = u32::try_from(places.total()).unwrap_or(u32::MAX);
        Self {
            db: db::pool(options, EXPORT_NAME, size),
            longest: Duration::from_secs(limits.longest_export),
            places,
        }
    }

    /// Runs an export, for as long as one may take; one cut off there ends as a broken one does.
    pub async fn run(self, export: Export, out: mpsc::Sender<Bytes>, place: Place) {
        if tokio::time::timeout(self.longest, export.run(self.db, out, place)).await.is_err() {
            tracing::warn!(seconds = self.longest.as_secs(), "an export took too long and was stopped");
        }
    }

    /// Takes a place for an export of a project. Waits a little where there is none: an export whose reader has gone is
    /// about to give its place back. The places of one project are a part of all, so that its readers cannot keep those
    /// of other projects out.
    pub async fn place(&self, project: &Arc<str>) -> Result<Place> {
        let place = tokio::time::timeout(PATIENCE, self.places.take(project, 1)).await;
        let taken = || Error::Unavailable("the maximum number of exports is in progress; try again");
        place.map_err(|_| taken())
    }
}

/// What exports may take of the server.
#[derive(Debug, Clone, Copy, Args)]
#[command(next_help_heading = "Serving")]
pub struct Limits {
    /// The most exports of one project at once, each with a connection of its own; one more waits a little and is then
    /// refused. All projects together have four times as many.
    #[arg(long, env = "GLEANER_MOST_EXPORTS", default_value_t = Self::default().most_exports, global = true, value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub most_exports: u32,

    /// The longest that an export may take, in seconds; then it is broken off. It can be taken in pieces.
    #[arg(long, env = "GLEANER_LONGEST_EXPORT", default_value_t = Self::default().longest_export, global = true, value_name = "SECONDS",
        value_parser = clap::value_parser!(u64).range(1..))]
    pub longest_export: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { most_exports: 4, longest_export: 3600 }
    }
}

/// The reader of an export, who has to keep up a pace: a slow one holds a place that others wait for.
struct Reader {
    out: mpsc::Sender<Bytes>,
    /// How many bytes the reader has taken.
    taken: u64,
    /// How long the export has waited for the reader.
    waited: Duration,
}

impl Reader {
    /// Sends a chunk. Returns whether the reader is still there and fast enough.
    async fn send(&mut self, chunk: &mut Vec<u8>) -> bool {
        let bytes = Bytes::from(std::mem::replace(chunk, Vec::with_capacity(CHUNK * 2)));
        let length = bytes.len() as u64;
        metrics::counter!("gleaner_export_bytes_total").increment(length);
        let allowed = STALL + Duration::from_secs(self.taken / SLOWEST);
        let patience = allowed.saturating_sub(self.waited).min(STALL);
        let begun = Instant::now();
        let sent = matches!(tokio::time::timeout(patience, self.out.send(bytes)).await, Ok(Ok(())));
        self.waited += begun.elapsed();
        self.taken += length;
        sent
    }
}

/// The newest moment of which everything is decided: just before the oldest write in flight, on whatever server.
///
/// A record's `completed_at` is the database's clock read within its transaction, whose start Postgres has published by
/// then. So a write that is not seen here began later than the clock is read, or is committed already.
async fn before_writes_in_flight(db: &PgPool) -> Result<Timestamp> {
    let now: Timestamp = sqlx::query_scalar("select clock_timestamp()").fetch_one(db).await?;
    Ok(oldest_write(db).await?.map_or(now, |oldest| oldest.min(now)))
}

async fn oldest_write(db: &PgPool) -> Result<Option<Timestamp>> {
    let sql = "select min(xact_start) from pg_stat_activity where application_name = $1 and datname = current_database()";
    Ok(sqlx::query_scalar(sql).bind(WRITER_NAME).fetch_one(db).await?)
}

/// Waits until no write is in flight that could still add to the state at `as_of`.
async fn settle(db: &PgPool, as_of: Timestamp) -> Result<()> {
    for _ in 0..500 {
        if oldest_write(db).await?.is_none_or(|oldest| oldest >= as_of) {
            return Ok(());
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    Err(Error::Unavailable("writes from before as_of are still in progress; try again"))
}

/// A number of a row behind all rows of its record, in this order.
fn edge(order: Order) -> i32 {
    match order {
        Order::Oldest => i32::MAX,
        Order::Newest => i32::MIN,
    }
}

fn seal_export_cursor(scope: [u8; 8], as_of: Timestamp, last: RowKey) -> String {
    seal_cursor(scope, last.completed_at, &format!("{} {} {}", last.record_id, as_of.micros(), last.record))
}

/// Reads a cursor: the state that the export is of, and the last record taken, with the number of a row behind all of its.
fn open_export_cursor(cursor: &str, scope: [u8; 8], edge: i32) -> Result<(Timestamp, RowKey)> {
    let (completed_at, rest) = open_cursor(cursor, scope)?;
    let parsed = || {
        let (record_id, rest) = rest.split_once(' ')?;
        let (as_of, record) = rest.split_once(' ')?;
        let record = record.parse().ok().filter(|record| (1..=MOST_RECORDS).contains(record))?;
        let key = RowKey { completed_at, record_id: record_id.parse().ok()?, row: edge, record };
        Some((Timestamp::from_micros(as_of.parse().ok()?)?, key))
    };
    parsed().ok_or_else(|| Error::invalid("/cursor", "is not a cursor of this list with these filters"))
}
