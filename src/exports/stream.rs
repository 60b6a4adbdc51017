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
//! 3. **Flow** (`Export::run`). Pages of 5 000 rows in key order, each a statement of its own with a snapshot of its
//!    own: a long export holds no snapshot open, and vacuum goes on. Rows are read one by one, written as JSON in
//!    Rust, and sent in chunks of 64 KiB through a channel that holds four. That is all the memory it takes. JSON is
//!    not built in SQL: measured before this was written, 420 MB/s against 178 MB/s for `COPY (SELECT json …)`.
//!    Exports have connections of their own (a quarter as many as there are for reading, two at least) and wait five
//!    seconds for one; a reader who takes nothing for a minute loses theirs. So slow readers do not delay others.
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
//! What is only alike is compared by [`near`](super::near).
//!
//! **Split.** See [`split`](super::split): what decides is the texts of a row, and not the row.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use clap::Args;
use futures_util::TryStreamExt as _;
use sqlx::PgPool;
use sqlx::postgres::PgConnectOptions;
use tokio::sync::{Mutex, mpsc};

use super::export::{Export, PAGE};
use crate::db::{self, EXPORT_NAME};
use crate::error::{Error, Result};
use crate::sharing::{Place, Shares};

/// How long a reader may take nothing before the export is given up, and its connection to the database with it.
pub(super) const STALL: Duration = Duration::from_mins(1);
/// The bytes per second that a reader must take on average, beyond a minute of patience, before compression.
const SLOWEST: u64 = 16 << 10;
/// How long an export waits for others to end.
const PATIENCE: Duration = Duration::from_secs(5);
/// How many bytes are sent at a time.
pub(super) const CHUNK: usize = 64 << 10;

/// Whether more is to be sent.
#[derive(PartialEq, Eq)]
enum Progress {
    More,
    Done,
    /// Nobody listens any more.
    Abandoned,
}

impl Export {
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
        let mut query = self.next_page("")?;
        let mut connection = db.acquire().await?;
        let query = query.build();
        let mut rows = query.fetch(&mut *connection);
        let mut chunk = Vec::with_capacity(CHUNK * 2);
        chunk.extend(self.take_header());
        let mut count = 0;
        while let Some(row) = rows.try_next().await? {
            self.write(&row, &mut chunk, None)?;
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

/// The connections reserved for exports, so that slow readers do not delay others.
#[derive(Debug, Clone)]
pub struct Exports {
    /// The connections, as many as there are permits, and two for the building of snapshots.
    pub db: PgPool,
    /// The most snapshots that a project may have.
    pub most_snapshots: i64,
    /// Who builds snapshots on this server, one at a time.
    pub building: Arc<Mutex<()>>,
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
            db: db::pool(options, EXPORT_NAME, size.saturating_add(2)),
            most_snapshots: limits.most_snapshots.into(),
            building: Arc::default(),
            longest: Duration::from_secs(limits.longest_export),
            places,
        }
    }

    /// Returns how long an export may take.
    #[must_use]
    pub fn longest(&self) -> Duration {
        self.longest
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

    /// The most snapshots that a project may have at once. The database keeps their files.
    #[arg(long, env = "GLEANER_MOST_SNAPSHOTS", default_value_t = Self::default().most_snapshots, global = true, value_name = "N",
        value_parser = clap::value_parser!(u32).range(0..=100_000))]
    pub most_snapshots: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self { most_exports: 4, longest_export: 3600, most_snapshots: 50 }
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
