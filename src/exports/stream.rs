//! How an export flows: page by page in key order, each page a statement of its own, so that a long export holds back no
//! vacuum; JSON is made here, not in SQL; the memory used is that of a few chunks.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use clap::Args;
use futures_util::TryStreamExt as _;
use sqlx::postgres::PgConnectOptions;
use sqlx::{PgConnection, PgPool, Postgres, QueryBuilder, Row as _};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use uuid::Uuid;

use super::format::Format;
use super::params::Common;
use super::{Key, Records};
use crate::db::{self, EXPORT_NAME, WRITER_NAME};
use crate::error::{Error, Result};
use crate::http::page::{cursor_scope, open_cursor, seal_cursor};
use crate::http::{Check as _, Checks};
use crate::types::Timestamp;

/// How many rows one statement reads.
const PAGE: i64 = 5_000;
/// How long a reader may take nothing before the export is given up, and its connection to the database with it.
const STALL: Duration = Duration::from_mins(1);
/// How long an export waits for others to end.
const PATIENCE: Duration = Duration::from_secs(5);
/// How many bytes are sent at a time.
const CHUNK: usize = 64 << 10;

/// An export that is about to begin: its extent is fixed.
pub struct Export<R> {
    records: R,
    common: Common,
    project: String,
    format: Format,
    as_of: Timestamp,
    after: Option<Key>,
    last: Option<Key>,
    /// What still has to be said before the first row.
    header: Option<String>,
    /// Where the next piece begins, if there is one.
    pub next_cursor: Option<String>,
}

impl<R: Records> Export<R> {
    /// Checks the parameters and fixes the extent.
    pub async fn prepare(db: &PgPool, project: &str, records: R, mut common: Common) -> Result<Self> {
        let conditions = format!("{:?} {records:?}", common.conditions());
        let scope = cursor_scope(R::NAME, &[&("conditions".to_owned(), conditions)]);
        let format = common.format.unwrap_or(R::FORMATS[0]);
        let mut checks = Checks::default();
        common.check(&mut checks);
        records.check(format, &mut checks);
        checks.require(R::FORMATS.contains(&format), "format", "this data set does not offer that format");
        let fits = format.is_json() || !common.with_metadata();
        checks.require(fits, "include", "the rows of this format have no place for metadata");
        checks.finish()?;
        let cursor = common.cursor.take().map(|cursor| open_export_cursor(&cursor, scope)).transpose()?;
        let (from_cursor, after) = cursor.unzip();
        if let (Some(given), Some(kept)) = (common.as_of, from_cursor)
            && given != kept
        {
            return Err(Error::invalid("/as_of", "is another than the cursor's"));
        }
        let as_of = match common.as_of.or(from_cursor) {
            Some(as_of) => {
                settle(db, as_of).await?;
                as_of
            }
            None => before_writes_in_flight(db).await?,
        };
        let header = if after.is_none() { records.header(format) } else { None };
        let mut export = Self {
            records,
            header,
            common,
            project: project.to_owned(),
            format,
            as_of,
            after,
            last: None,
            next_cursor: None,
        };
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

    /// The state of the data that is exported.
    pub fn as_of(&self) -> Timestamp {
        self.as_of
    }

    /// The last record within `limit`, and whether there is one more behind it.
    async fn find_end(&self, connection: &mut PgConnection, limit: i64) -> Result<(Option<Key>, bool)> {
        let [at, id, _] = self.records.key();
        let mut query = QueryBuilder::new(format!("select distinct {at} as at, {id} as id"));
        self.push_extent(&mut query);
        query.push(" order by at, id offset ").push_bind(limit - 1).push(" limit 2");
        let found: Vec<(Timestamp, Uuid)> = query.build_query_as().fetch_all(connection).await?;
        let record = self.taken() + limit;
        let last = found.first().map(|&(at, id)| Key { at, id, part: i32::MAX, record });
        Ok((last, found.len() > 1))
    }

    /// How many records were taken so far, in earlier pieces too.
    fn taken(&self) -> i64 {
        self.after.map_or(0, |after| after.record)
    }

    fn push_extent(&self, query: &mut QueryBuilder<Postgres>) {
        let [at, id, part] = self.records.key();
        self.records.from(query, &self.project, &self.common, self.format);
        query.push(format_args!(" and {at} < ")).push_bind(self.as_of);
        for (key, comparison) in [(self.after, ">"), (self.last, "<=")] {
            if let Some(Key { at: key_at, id: key_id, part: key_part, .. }) = key {
                query.push(format_args!(" and ({at}, {id}, {part}) {comparison} (")).push_bind(key_at);
                query.push(", ").push_bind(key_id).push(", ").push_bind(key_part).push(")");
            }
        }
    }

    /// Sends the rows to `out` as chunks of lines, and an empty chunk when that was all. Where `out` closes without one,
    /// the export broke off: it must not look whole. Ends early when nobody listens any more. Its `place` is free before
    /// the reader learns of the end.
    pub async fn run<P>(mut self, db: PgPool, out: mpsc::Sender<Bytes>, place: P) {
        loop {
            match self.page(&db, &out).await {
                Ok(Some(true)) => {}
                Ok(Some(false)) => {
                    drop(place);
                    let _ = out.send(Bytes::new()).await;
                    return;
                }
                Ok(None) => return,
                Err(error) => {
                    tracing::error!(cause = format!("{error:#}"), "an export broke off");
                    return;
                }
            }
        }
    }

    /// Sends one page; whether another may follow, or none if nobody listens.
    async fn page(&mut self, db: &PgPool, out: &mpsc::Sender<Bytes>) -> anyhow::Result<Option<bool>> {
        let [at, id, part] = self.records.key();
        let columns = self.records.columns(&self.common, self.format);
        let mut query = QueryBuilder::new(format!(
            "select {at} as key_at, {id} as key_id, {part} as key_part, {columns}"
        ));
        self.push_extent(&mut query);
        query.push(" order by key_at, key_id, key_part limit ").push_bind(PAGE);
        let mut connection = db.acquire().await?;
        let query = query.build();
        let mut rows = query.fetch(&mut *connection);
        let mut chunk = Vec::with_capacity(CHUNK * 2);
        chunk.extend(self.header.take().unwrap_or_default().into_bytes());
        let mut count = 0;
        while let Some(row) = rows.try_next().await? {
            let id = row.try_get("key_id")?;
            let is_next = self.after.is_none_or(|after| after.id != id);
            let record = self.after.map_or(0, |after| after.record) + i64::from(is_next);
            let key = Key { at: row.try_get("key_at")?, id, part: row.try_get("key_part")?, record };
            self.records.write(&row, key, &self.common, self.format, &mut chunk)?;
            self.after = Some(key);
            count += 1;
            if chunk.len() >= CHUNK && !send(out, &mut chunk).await {
                return Ok(None);
            }
        }
        if !chunk.is_empty() && !send(out, &mut chunk).await {
            return Ok(None);
        }
        Ok(Some(count == PAGE))
    }

    /// How many rows there are.
    pub async fn count(&self, db: &PgPool) -> Result<i64> {
        let mut query = QueryBuilder::new("select count(*)");
        self.push_extent(&mut query);
        Ok(query.build_query_scalar().fetch_one(db).await?)
    }
}

/// The connections that exports have to themselves, so that readers who dawdle keep nobody else waiting.
#[derive(Debug, Clone)]
pub struct Exports {
    /// As many connections as there are places.
    pub db: PgPool,
    /// How long one may take.
    longest: Duration,
    places: Arc<Semaphore>,
}

impl Exports {
    /// What `limits` allow.
    pub fn new(options: &PgConnectOptions, limits: Limits) -> Self {
        let size = limits.most_exports;
        Self {
            db: db::pool(options, EXPORT_NAME, size),
            longest: Duration::from_secs(limits.longest_export),
            places: Arc::new(Semaphore::new(size as usize)),
        }
    }

    /// Runs an export, for as long as one may take; one cut off there ends as a broken one does.
    pub async fn run<R: Records>(
        self,
        export: Export<R>,
        out: mpsc::Sender<Bytes>,
        place: OwnedSemaphorePermit,
    ) {
        if tokio::time::timeout(self.longest, export.run(self.db, out, place)).await.is_err() {
            tracing::warn!(seconds = self.longest.as_secs(), "an export took too long and was broken off");
        }
    }

    /// A place for one export. Waits a little where there is none: one whose reader has gone is about to be free.
    pub async fn place(&self) -> Result<OwnedSemaphorePermit> {
        let place = tokio::time::timeout(PATIENCE, Arc::clone(&self.places).acquire_owned()).await;
        let taken = || Error::Unavailable("as many exports as allowed are under way; try again");
        place.ok().and_then(Result::ok).ok_or_else(taken)
    }
}

/// What exports may take of the server.
#[derive(Debug, Clone, Copy, Args)]
#[command(next_help_heading = "Serving")]
pub struct Limits {
    /// The most exports at once, each with a connection of its own; one more waits a little and is then refused.
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

/// Sends a chunk; whether somebody still listens.
async fn send(out: &mpsc::Sender<Bytes>, chunk: &mut Vec<u8>) -> bool {
    let bytes = Bytes::from(std::mem::replace(chunk, Vec::with_capacity(CHUNK * 2)));
    metrics::counter!("gleaner_export_bytes_total").increment(bytes.len() as u64);
    deliver(out, bytes).await
}

/// Hands bytes on; whether somebody still listens, and did within the time that a reader may take nothing.
pub(super) async fn deliver(out: &mpsc::Sender<Bytes>, bytes: Bytes) -> bool {
    matches!(tokio::time::timeout(STALL, out.send(bytes)).await, Ok(Ok(())))
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
    Err(Error::Unavailable("writes from before as_of are still under way; try again"))
}

fn seal_export_cursor(scope: [u8; 8], as_of: Timestamp, last: Key) -> String {
    seal_cursor(scope, last.at, &format!("{} {} {}", last.id, as_of.micros(), last.record))
}

/// The state that the export is of, and the last record taken.
fn open_export_cursor(cursor: &str, scope: [u8; 8]) -> Result<(Timestamp, Key)> {
    let (at, rest) = open_cursor(cursor, scope)?;
    let parsed = || {
        let (id, rest) = rest.split_once(' ')?;
        let (as_of, record) = rest.split_once(' ')?;
        let key = Key { at, id: id.parse().ok()?, part: i32::MAX, record: record.parse().ok()? };
        Some((Timestamp::from_micros(as_of.parse().ok()?)?, key))
    };
    parsed().ok_or_else(|| Error::invalid("/cursor", "is not a cursor of this list with these filters"))
}
