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
//!    snapshot, so that vacuum can proceed, and ends early if its reader takes long. Rows are read one by one, written
//!    as JSON in Rust, and sent in chunks of 64 KiB through a channel that holds four of them. An export needs no more
//!    memory than that, except for a long row, for which it holds some of the memory that requests share, and for a very
//!    long one until its page ends, because the connection keeps the room. If there is none, it forgets the row, ends the
//!    statement, waits, and begins the next page with that row. Building the JSON in SQL is slower: 178 MB/s for
//!    `COPY (SELECT json …)` against 420 MB/s. Exports have their own connections, four for each project unless it is
//!    configured otherwise, and wait five seconds for one. A reader that reads nothing for a minute is disconnected, so
//!    that slow readers do not delay others. While other projects send requests, the exports of one project take turns
//!    at working with each other and with its other requests, and an export that waits for its reader has none.
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
use std::time::Duration;

use bytes::Bytes;
use sqlx::{Connection as _, PgPool};
use tokio::sync::mpsc;

use super::export::{Export, PAGE};
use super::reader::{CHUNK, Reader, Turns};
use super::reading::Arriving;
use crate::db::process::Process;
use crate::db::rows;
use crate::http::memory::Memory;
use crate::http::pace::STALL;

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
    /// Where the reader had taken too long to read so far.
    Slow,
    /// Behind a row that was left out. The connection keeps the room that it has taken for it until it is given back.
    LeftOut,
}

impl Export {
    /// Sends the rows to `out` as chunks of lines, and an empty chunk at the end. If `out` closes without an empty
    /// chunk, the export was interrupted and must not look complete. It ends early if the reader is gone. A page for whose
    /// reader it has waited for `patience` is followed by the next one. The `turns` and the `permit` are given back before the reader sees the end. The export holds `memory` for each long row.
    pub async fn run<P>(
        mut self,
        db: PgPool,
        out: mpsc::Sender<Bytes>,
        turns: Turns,
        permit: P,
        memory: Memory,
        patience: Duration,
    ) {
        let arriving = turns.arriving();
        let mut reader = Reader::new(out, Some(turns));
        loop {
            reader.begin().await;
            match self.send_page(&db, &mut reader, &arriving, &memory, patience).await {
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
        arriving: &Arriving,
        memory: &Memory,
        patience: Duration,
    ) -> anyhow::Result<Progress> {
        let mut query = self.next_page("")?;
        let mut connection = db.acquire().await?;
        let process = Process::of(&mut connection).await?;
        let query = query.build();
        let mut rows = query.fetch(&mut *connection);
        let mut chunk = Vec::with_capacity(CHUNK * 2);
        chunk.extend(self.take_header());
        let mut count = 0;
        let until = reader.waited() + patience;
        let out = reader.out.clone();
        let mut gone = pin!(out.closed());
        let (mut place, mut keeps) = (None, false);
        let end = loop {
            let row = tokio::select! {
                biased;
                row = arriving.row(&mut rows) => row?,
                () = &mut gone => break End::Gone,
            };
            let Some((row, taken)) = row else { break End::Last };
            place = taken;
            if self.leaves_out(&row, 0)? {
                break End::LeftOut;
            }
            let long = rows::long(&row);
            if let Some(bytes) = long {
                if !memory.try_hold(bytes) {
                    break End::Long(bytes);
                }
                chunk.reserve_exact(rows::size(&row));
            }
            place = None;
            // The connection keeps the room of a very long row until the page ends.
            keeps |= rows::is_very_long(&row);
            self.write(&row, &mut chunk, None)?;
            drop(row);
            count += 1;
            if chunk.len() >= CHUNK && !reader.take(&mut chunk).await {
                break End::Gone;
            }
            if reader.waited() > until {
                break End::Slow;
            }
            if long.is_some() && !keeps {
                memory.give_back();
            }
        };
        if end != End::Last {
            reader.pause();
            arriving.end(place, &mut rows, db, process).await?;
        }
        drop(rows);
        connection.shrink_buffers();
        memory.give_back();
        if end == End::Gone {
            return Ok(Progress::Abandoned);
        }
        self.confirm(&mut connection).await?;
        drop(connection);
        if !chunk.is_empty() && !reader.take(&mut chunk).await {
            return Ok(Progress::Abandoned);
        }
        Ok(match end {
            End::Long(bytes) => Progress::Waiting(bytes),
            End::Slow | End::LeftOut => Progress::More,
            _ if count == PAGE => Progress::More,
            _ => Progress::Done,
        })
    }
}
