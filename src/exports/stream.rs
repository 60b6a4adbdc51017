//! How an export is sent: page by page in the order of its keys, in bounded memory, and each page by a statement of
//! its own, so that a long export does not hold back vacuum.
//!
//! # An export, step by step
//!
//! 1. **Parameters** (`exports/routes.rs`) are divided by name into the common ones and the data set's own. Both are
//!    structs that also serve the command line, so that there is one list and one documentation. A hash of the data
//!    set and the conditions, of eight bytes, binds a cursor to them. `limit`, `cursor`, `as_of`, `format` and
//!    `include` may change from part to part.
//!
//! 2. **Extent** (`Export::prepare`). A cursor contains the position after which to continue, and the `as_of` of its
//!    export. Without a cursor, a missing `as_of` is chosen, and a given one is settled (see below). With `limit`,
//!    one statement over the keys alone finds the last record of the part and whether another one follows, so that
//!    `Gleaner-Next-Cursor` is known before the body begins. The rows of one record are never in different parts. If the
//!    client hangs up meanwhile, or it takes longer than an export may, the statement is canceled.
//!
//! 3. **Pages** (`Export::run`) have 5,000 rows in the order of their keys. Each is a statement with its own
//!    snapshot, so that vacuum can proceed. Rows are read one by one, written as JSON in Rust, and sent in chunks of
//!    64 KiB through a channel that holds four of them. An export needs no more memory than that, except for a long row, for
//!    which it holds some of the memory that requests share. If there is none, it forgets the row, ends the statement, waits,
//!    and begins the next page with that row. Building the JSON
//!    in SQL is slower: 178 MB/s for `COPY (SELECT json …)` against 420 MB/s. Exports have their own connections, four
//!    for each project unless it is configured otherwise, and wait five seconds for one. A reader that reads nothing
//!    for a minute is disconnected, so that slow readers do not delay others. While other projects send requests, the
//!    exports of one project take turns at working with each other and with its other requests, and an export that
//!    waits for its reader has none.
//!
//! 4. **End.** If the reader is gone, the statement is canceled, and the export ends. If a statement fails, the
//!    error is sent through the channel and breaks the body, so that a client sees a broken transfer and never a
//!    short file. `.jsonl.gz` is compressed on a blocking thread.
//!
//! **Order and keys.** Rows are ordered by `completed_at`, record, and number within the record, which is the order
//! in which records were finalized. `created_at` is not used, because clients choose it, and a record may stay open
//! for long.
//!
//! **`as_of`.** An export can be repeated if it has exactly the records with `completed_at < as_of`, and if no such
//! record can appear later. `completed_at` comes from the database's clock, read in the transaction that finalizes
//! the record, and Postgres publishes when a transaction began before any of its statements runs. An export therefore
//! reads the database's clock, then the start of the oldest transaction of all connections whose name says that
//! they may write in the project (`db::writer_name`), and uses the earlier of the two. A transaction that it sees began at `as_of` or later, so its records are later
//! too. A transaction that it does not see has committed already, or began after the clock was read. This is true for
//! any number of servers and imports on one database, and needs no table. A given `as_of` must not be in the future
//! by that clock, and neither must that of a cursor; the export waits up to five seconds until it has come and no older write
//! is in progress. Reviews and erasures take effect in
//! every export at once, by intent.
//!
//! **Dedupe.** A row is left out if an older row with the same stored hash meets the same conditions, which an
//! anti-join by index finds in an export of any size. The hash of a training pair is a generated column over intent
//! and program as exported, so that a reviewer's correction changes it. The hash of a correction pair is computed
//! when the pair is stored.
//!
//! Similar rows are found by [`near`](super::near), and the parts of a split are explained in
//! [`split`](super::split).

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use bytes::Bytes;
use clap::Args;
use futures_util::{Stream, TryStreamExt as _};
use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgConnectOptions, PgRow};
use sqlx::{PgPool, Postgres};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{Mutex, mpsc, oneshot};
use tokio::time::timeout;

use super::Description;
use super::datasets::AnyDataset;
use super::export::{Export, PAGE};
use super::params::Common;
use super::profile::Report;
use super::reading::{self, arrivals, arrive};
use crate::db::process::Process;
use crate::db::silence::{self, LongestStatement};
use crate::db::{self, EXPORT_NAME, rows};
use crate::error::{Error, Result};
use crate::http::memory::Memory;
use crate::http::pace::{Pace, STALL};
use crate::recurring;
use crate::sharing::{Kind, Place, Shares, Turn, Work, while_wanted};

/// The time that an export waits for others to end.
const PATIENCE: Duration = Duration::from_secs(5);
/// The pause until a statement that was canceled should have ended.
const PAUSE: Duration = Duration::from_millis(20);
/// How long Postgres may do nothing on a connection whose statement was canceled. The connection is dead if it takes longer.
const SILENCE: Duration = Duration::from_secs(10);
/// The maximum number of concurrent downloads of snapshots of one project. All projects together have four times as
/// many.
const MOST_DOWNLOADS: usize = 16;
/// The number of bytes that are sent at a time.
pub(super) const CHUNK: usize = 64 << 10;

/// How an export continues after a page.
#[derive(PartialEq, Eq)]
enum Progress {
    More,
    Done,
    /// The reader is gone.
    Abandoned,
    /// The next row has so many bytes, for which there is no memory now.
    Waiting(usize),
}

/// Where the reading of a page ends.
#[derive(PartialEq, Eq)]
enum End {
    /// At its last row.
    Last,
    /// Where the reader was gone.
    Gone,
    /// Before a row of so many bytes, for which there was no memory.
    Long(usize),
}

impl Export {
    /// Sends the rows to `out` as chunks of lines, and an empty chunk at the end. If `out` closes without an empty
    /// chunk, the export was interrupted and must not look complete. It ends early if the reader is gone. The
    /// `turns` and the `permit` are given back before the reader sees the end. The export holds `memory` for each long row.
    pub async fn run<P>(
        mut self,
        db: PgPool,
        out: mpsc::Sender<Bytes>,
        turns: Option<Turns>,
        permit: P,
        memory: Memory,
    ) {
        let mut reader = Reader::new(out, turns);
        loop {
            reader.begin().await;
            match self.send_page(&db, &mut reader, &memory).await {
                Ok(Progress::More) => {}
                Ok(Progress::Done) => {
                    reader.pause();
                    drop(permit);
                    let _ = reader.out.send(Bytes::new()).await;
                    return;
                }
                Ok(Progress::Abandoned) => return,
                Ok(Progress::Waiting(bytes)) => {
                    reader.pause();
                    let held = tokio::select! {
                        held = memory.hold_late(bytes, STALL) => held,
                        () = reader.out.closed() => return,
                    };
                    if let Err(error) = held {
                        tracing::warn!(%error, bytes, "an export was interrupted at a long row");
                        return;
                    }
                }
                Err(error) => {
                    tracing::error!(cause = format!("{error:#}"), "an export was interrupted");
                    return;
                }
            }
        }
    }

    /// Sends the rows of a page. If there is no memory for a long row, nothing is kept of it, and the next page begins with it.
    async fn send_page(
        &mut self,
        db: &PgPool,
        reader: &mut Reader,
        memory: &Memory,
    ) -> anyhow::Result<Progress> {
        let mut query = self.next_page("")?;
        let mut connection = db.acquire().await?;
        let process = Process::of(&mut connection).await?;
        let query = query.build();
        let mut rows = query.fetch(&mut *connection);
        let mut chunk = Vec::with_capacity(CHUNK * 2);
        chunk.extend(self.take_header());
        let mut count = 0;
        let out = reader.out.clone();
        let mut gone = pin!(out.closed());
        let end = loop {
            let row = tokio::select! {
                biased;
                row = reader.await_row(&mut rows) => row?,
                () = &mut gone => break End::Gone,
            };
            let Some(row) = row else { break End::Last };
            let long = rows::long(&row);
            if let Some(bytes) = long {
                if !memory.try_hold(bytes) {
                    break End::Long(bytes);
                }
                chunk.reserve_exact(bytes / 2);
            }
            self.write(&row, &mut chunk, None)?;
            drop(row);
            count += 1;
            if chunk.len() >= CHUNK && !reader.take(&mut chunk).await {
                break End::Gone;
            }
            if long.is_some() {
                memory.give_back();
            }
        };
        if end != End::Last {
            reader.pause();
            reading::end(&mut rows, db, process).await?;
        }
        if end == End::Gone {
            return Ok(Progress::Abandoned);
        }
        drop(rows);
        self.confirm(&mut connection).await?;
        if !chunk.is_empty() && !reader.take(&mut chunk).await {
            return Ok(Progress::Abandoned);
        }
        Ok(match end {
            End::Long(bytes) => Progress::Waiting(bytes),
            _ if count == PAGE => Progress::More,
            _ => Progress::Done,
        })
    }
}

/// The connections reserved for exports, so that slow readers do not delay others.
#[derive(Debug, Clone)]
pub struct Exports {
    /// The connections, as many as there are permits, one to keep account of snapshots, and one to cancel statements. The
    /// building of a snapshot has others.
    pub db: PgPool,
    options: PgConnectOptions,
    /// The maximum number of snapshots of a project.
    pub most_snapshots: i64,
    /// The maximum number of bytes of a snapshot's file.
    pub largest_snapshot: i64,
    /// The lock that a server holds while it builds a snapshot, so that it builds one at a time, with the projects whose
    /// snapshots it has built, the last one most recently.
    pub building: Arc<Mutex<Vec<String>>>,
    /// The lock of the one task that waits for that lock.
    pub next_building: Arc<Mutex<()>>,
    /// The time after which it is of use to know the progress of a building, for which the rows are counted.
    pub count_after: Duration,
    /// The maximum duration of an export, and of the building of a snapshot.
    longest: Duration,
    /// The longest time that a statement beside exports may take.
    pub(super) longest_statement: LongestStatement,
    places: Shares,
    /// The downloads of snapshots in progress.
    downloads: Shares,
    work: Arc<Work>,
    /// The places of exports that wait for a row.
    arriving: Shares,
}

/// The turns of an export at working, and its place among those that wait for a row.
#[derive(Debug)]
pub struct Turns {
    work: Arc<Work>,
    project: Arc<str>,
    turn: Option<Turn>,
    arriving: Shares,
}

impl Turns {
    /// Waits for a turn, after those who have waited longer.
    pub(super) async fn begin(&mut self) {
        self.end();
        self.work.note(&self.project);
        self.turn = Some(self.work.turn(&self.project, Kind::Export).await);
    }

    /// Waits for the next turn if the last one is over, and otherwise only for what other requests can do at once, and for
    /// projects that work much less.
    async fn proceed(&mut self) {
        if self.turn.as_ref().is_some_and(Turn::is_over) {
            self.begin().await;
        } else if self.work.is_shared() {
            tokio::task::yield_now().await;
            self.work.give_way(&self.project).await;
        }
    }

    /// Lets others work.
    pub(super) fn end(&mut self) {
        self.turn = None;
    }
}

impl Exports {
    /// Makes the connections and permits that `limits` allow.
    pub fn new(
        options: &PgConnectOptions,
        limits: Limits,
        work: &Arc<Work>,
        longest_statement: LongestStatement,
    ) -> Self {
        let places = Shares::new(limits.most_exports as usize);
        let size = u32::try_from(places.total()).unwrap_or(u32::MAX);
        let longest = Duration::from_secs(limits.longest_export);
        let limited = LongestStatement(longest).limit(options);
        Self {
            db: db::pool(&limited, EXPORT_NAME, size.saturating_add(2)),
            options: options.clone(),
            most_snapshots: limits.most_snapshots.into(),
            largest_snapshot: i64::from(limits.largest_snapshot) << 20,
            building: Arc::default(),
            next_building: Arc::default(),
            count_after: limits.count_after,
            longest,
            longest_statement,
            places,
            downloads: Shares::new(MOST_DOWNLOADS),
            work: Arc::clone(work),
            arriving: arrivals(),
        }
    }

    /// Makes connections besides the common ones, with a name that begins with [`EXPORT_NAME`].
    pub(super) fn connections(&self, name: &str, count: u32) -> PgPool {
        db::pool(&self.options, name, count)
    }

    /// Returns the maximum duration of an export, and of the building of a snapshot.
    #[must_use]
    pub fn longest(&self) -> Duration {
        self.longest
    }

    /// Prepares an export of a project in at most the maximum duration, and takes a place for it.
    pub async fn prepare(
        &self,
        project: &Arc<str>,
        description: &Description,
        dataset: AnyDataset,
        common: Common,
    ) -> Result<(Export, Place)> {
        let place = self.place(project).await?;
        self.in_time(async {
            let mut export = Export::fix(&self.db, project, description, dataset, common).await?;
            let extent = |mut connection: PoolConnection<Postgres>| async move {
                export.find_extent(&mut connection).await?;
                Ok(export)
            };
            self.while_awaited(place, extent).await
        })
        .await
    }

    /// Makes the profile of a data set of a project in at most the maximum duration.
    pub async fn profile(
        &self,
        project: &Arc<str>,
        description: &Description,
        dataset: AnyDataset,
        common: Common,
        memory: &Memory,
    ) -> Result<Report> {
        let (place, name, memory) = (self.place(project).await?, description.name, memory.clone());
        let (db, arriving) = (self.db.clone(), self.arriving.clone());
        self.in_time(async {
            let mut export = Export::fix(&self.db, project, description, dataset, common).await?;
            let profile = |mut connection: PoolConnection<Postgres>| async move {
                export.find_extent(&mut connection).await?;
                export.profile(&mut connection, &db, name, &memory, &arriving).await
            };
            Ok(self.while_awaited(place, profile).await?.0)
        })
        .await
    }

    /// Waits for work for at most the maximum duration of an export.
    async fn in_time<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        const LATE: Error = Error::Unavailable("the rows could not be counted in time; ask for fewer rows");
        timeout(self.longest, work).await.map_err(|_| LATE)?
    }

    /// Runs statements that may take long, on a connection of their own. If nobody waits for them any more, they are
    /// canceled, and only then the place is given back. Those of a connection that is dead are given up.
    async fn while_awaited<T, S>(
        &self,
        place: Place,
        statements: impl FnOnce(PoolConnection<Postgres>) -> S,
    ) -> Result<(T, Place)>
    where
        T: Send + 'static,
        S: Future<Output = Result<T>> + Send + 'static,
    {
        let mut connection = self.db.acquire().await?;
        let process = Process::of(&mut connection).await?;
        let (statements, db) = (statements(connection), self.db.clone());
        let (mut sender, result) = oneshot::channel();
        tokio::spawn(async move {
            let mut statements = pin!(statements);
            tokio::select! {
                result = &mut statements => {
                    let _ = sender.send(result.map(|done| (done, place)));
                    return;
                }
                () = sender.closed() => {}
            }
            loop {
                match process.cancel(&db, SILENCE).await {
                    Ok(true) => {}
                    Ok(false) => return silence::note_given_up(),
                    Err(error) => {
                        recurring::warn("the statement of an export could not be canceled", error);
                    }
                }
                // Between two statements, nothing was canceled, and another one follows.
                if timeout(PAUSE, &mut statements).await.is_ok() {
                    return;
                }
            }
        });
        while_wanted(result).await.context("the statements did not end")?
    }

    /// Runs an export for at most the maximum duration. An export that takes longer is interrupted.
    pub async fn run(self, export: Export, out: mpsc::Sender<Bytes>, place: Place, memory: Memory) {
        let turns = self.turns(&export.project);
        let run = export.run(self.db, out, Some(turns), place, memory);
        if timeout(self.longest, run).await.is_err() {
            tracing::warn!(seconds = self.longest.as_secs(), "an export took too long and was stopped");
        }
    }

    /// Returns the turns at work of an export of a project.
    #[must_use]
    pub fn turns(&self, project: &str) -> Turns {
        let arriving = self.arriving.clone();
        Turns { work: Arc::clone(&self.work), project: project.into(), turn: None, arriving }
    }

    /// Takes a place for an export of a project, and waits for a short time if there is none, because an export whose
    /// reader is gone soon releases its place. A project gets only a part of all places, so that its readers cannot
    /// block those of other projects.
    pub async fn place(&self, project: &Arc<str>) -> Result<Place> {
        let place = timeout(PATIENCE, self.places.take(project, 1)).await;
        let taken = || Error::Unavailable("the maximum number of exports is in progress; try again");
        place.map_err(|_| taken())
    }

    /// Takes a place for the download of a snapshot, in the same way. Readers of Parquet request several parts of a
    /// file at once.
    pub async fn download(&self, project: &Arc<str>) -> Result<Place> {
        let place = timeout(PATIENCE, self.downloads.take(project, 1)).await;
        let taken = || Error::Unavailable("the maximum number of downloads is in progress; try again");
        place.map_err(|_| taken())
    }
}

/// Limits on exports.
#[derive(Debug, Clone, Copy, Args)]
#[command(next_help_heading = "Serving")]
pub struct Limits {
    /// The maximum number of concurrent exports of one project. An export beyond it waits for a short time and is
    /// then rejected. The limit for all projects together is four times as high.
    #[arg(long, env = "GLEANER_MOST_EXPORTS", default_value_t = Self::default().most_exports, global = true, value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub most_exports: u32,

    /// The number of seconds after which an export or the building of a snapshot is stopped. A long export can be divided
    /// into parts.
    #[arg(long, env = "GLEANER_LONGEST_EXPORT", default_value_t = Self::default().longest_export, global = true, value_name = "SECONDS",
        value_parser = clap::value_parser!(u64).range(1..))]
    pub longest_export: u64,

    /// The maximum number of snapshots of one project. Their files are in the database.
    #[arg(long, env = "GLEANER_MOST_SNAPSHOTS", default_value_t = Self::default().most_snapshots, global = true, value_name = "N",
        value_parser = clap::value_parser!(u32).range(0..=100_000))]
    pub most_snapshots: u32,

    /// The maximum size of a snapshot's file, in MiB.
    #[arg(long, env = "GLEANER_LARGEST_SNAPSHOT", default_value_t = Self::default().largest_snapshot, global = true, value_name = "MIB",
        value_parser = clap::value_parser!(u32).range(1..))]
    pub largest_snapshot: u32,

    /// The time after which the rows of a snapshot that is being built are counted.
    #[arg(skip = Self::default().count_after)]
    pub count_after: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            most_exports: 4,
            longest_export: 3600,
            most_snapshots: 50,
            largest_snapshot: 16 << 10,
            count_after: Duration::from_secs(5),
        }
    }
}

/// The reader of an export or of a snapshot. It must read at a minimum rate, because a slow reader keeps a place from others.
pub(super) struct Reader {
    out: mpsc::Sender<Bytes>,
    turns: Option<Turns>,
    pace: Pace,
}

impl Reader {
    /// Makes a reader who has read nothing yet.
    pub(super) fn new(out: mpsc::Sender<Bytes>, turns: Option<Turns>) -> Self {
        Self { out, turns, pace: Pace::default() }
    }

    /// Waits for the export's turn to work.
    async fn begin(&mut self) {
        if let Some(turns) = &mut self.turns {
            turns.begin().await;
        }
    }

    /// Waits for a row.
    async fn await_row(
        &self,
        rows: &mut (impl Stream<Item = sqlx::Result<PgRow>> + Unpin),
    ) -> sqlx::Result<Option<PgRow>> {
        match &self.turns {
            Some(turns) => arrive(rows, &turns.arriving, &turns.project).await,
            None => rows.try_next().await,
        }
    }

    /// Lets other exports of the project work.
    fn pause(&mut self) {
        if let Some(turns) = &mut self.turns {
            turns.end();
        }
    }

    /// Sends rows, and leaves room for further ones. Returns whether the reader is still there and fast enough.
    async fn take(&mut self, chunk: &mut Vec<u8>) -> bool {
        let rows = std::mem::replace(chunk, Vec::with_capacity(CHUNK * 2));
        metrics::counter!("gleaner_export_bytes_total").increment(rows.len() as u64);
        if rows.len() <= 2 * CHUNK {
            return self.send(rows.into()).await;
        }
        // What waits for the reader is no more than usual, also of a long row. A part of it would keep the whole.
        for piece in rows.chunks(CHUNK) {
            if !self.send(Bytes::copy_from_slice(piece)).await {
                return false;
            }
        }
        true
    }

    /// Sends a chunk. Returns whether the reader is still there and fast enough.
    pub(super) async fn send(&mut self, bytes: Bytes) -> bool {
        self.pace.note(bytes.len());
        let bytes = match self.out.try_send(bytes) {
            Ok(()) => {
                if let Some(turns) = &mut self.turns {
                    turns.proceed().await;
                }
                return true;
            }
            Err(TrySendError::Full(bytes)) => bytes,
            Err(TrySendError::Closed(_)) => return false,
        };
        // The reader has more than enough to read. Until it has read some of it, other exports can work.
        self.pause();
        let sent = self.pace.wait(&self.out, bytes).await;
        self.begin().await;
        sent
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;
    use crate::sharing;

    #[tokio::test]
    async fn an_export_that_waits_for_its_reader_lets_another_of_its_project_work() {
        let work = Arc::new(Work::new(sharing::Limits { at_a_time: 1, ..Default::default() }));
        for project in ["p", "q", "p"] {
            work.note(&project.into());
        }
        let arriving = arrivals();
        let turns =
            || Turns { work: Arc::clone(&work), project: "p".into(), turn: None, arriving: arriving.clone() };
        let (out, mut chunks) = mpsc::channel(1);
        let mut reader = Reader::new(out, Some(turns()));
        reader.begin().await;
        let mut other = turns();
        assert!(reader.send(vec![1].into()).await);
        assert!(other.begin().now_or_never().is_none(), "the first one works");
        let mut sending = Box::pin(reader.send(vec![2].into()));
        assert!(sending.as_mut().now_or_never().is_none(), "nobody reads");
        other.begin().now_or_never().expect("its turn");
        assert_eq!(chunks.recv().await.as_deref(), Some([1].as_slice()));
        assert!(sending.as_mut().now_or_never().is_none(), "it is the other one's turn");
        other.end();
        assert!(sending.await);
        assert_eq!(chunks.recv().await.as_deref(), Some([2].as_slice()));
    }
}
