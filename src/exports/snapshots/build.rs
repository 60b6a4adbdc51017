//! The building of snapshots, one at a time on each server. Pages of an export become the bytes of a file, which the
//! database stores in pieces. Memory is needed for some megabytes of lines, a row group, and a few pieces; very long rows
//! need some times their own length.

use std::mem::take;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use chrono::TimeDelta;
use futures_util::TryStreamExt as _;
use sqlx::postgres::PgRow;
use sqlx::{PgPool, Row as _};
use tokio::sync::{OwnedMutexGuard, mpsc};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep, timeout};
use uuid::Uuid;

use super::building::{self, Building, Contents, Kept, Part};
use super::connections::Connections;
use super::encode::{self, Batch, Collected, Encoder};
use super::queue::{Receiver, Sender, queue};
use super::request::Wanted;
use super::store;
use crate::background::Rounds;
use crate::db::{self, rows};
use crate::error::{Error, Result};
use crate::exports::RowKey;
use crate::exports::export::{Export, PAGE, Rows};
use crate::exports::places::Exports;
use crate::exports::reader::Turns;
use crate::exports::text::{Hashes, QuestionAndAnswer};
use crate::http::memory::Memory;
use crate::outage::Outage;
use crate::types::Timestamp;

/// The pause between two searches for snapshots that nobody builds.
const PAUSE: Duration = Duration::from_secs(5);
/// The duration of a builder's lease, unless it is renewed.
const LEASE: TimeDelta = TimeDelta::seconds(15);
/// The interval at which a builder renews its lease.
const RENEWAL: Duration = Duration::from_secs(4);
/// The number of projects of which it is known when they had their turn.
const MOST_SERVED: usize = 1_000;
/// The names of the columns that are added for the question and the answer of a row that does not have their texts.
const TEXT_COLUMNS: [&str; 2] = ["key_question", "key_answer"];
/// The number of bytes of rows, with the system message of each, that are written at once.
const BUNCH: usize = 64 << 10;
/// The number of parts of a file that wait to be stored. A row group becomes some ten pieces at once.
const PARTS_WAITING: usize = 4;
/// How long a building waits for the memory of a long row.
const LONGEST_WAIT: Duration = Duration::from_mins(10);
/// How long it does so while snapshots of other projects wait to be built.
const PATIENCE: Duration = Duration::from_secs(1);

/// There is no memory for a long row, and snapshots of other projects wait to be built.
#[derive(Debug, thiserror::Error)]
#[error("there is no memory for a long row; snapshots of other projects are built first")]
struct LetsOthersGoFirst;

/// Another builder has taken over, or the snapshot was deleted.
#[derive(Debug, thiserror::Error)]
#[error("the snapshot was deleted, or another server builds it")]
struct NotOurs;

/// A limit of the server that a snapshot exceeds.
#[derive(Debug, thiserror::Error)]
enum Exceeded {
    #[error("the building took longer than the {0} seconds that GLEANER_LONGEST_EXPORT allows")]
    Time(u64),
    #[error("the file has more than the {0} MiB that GLEANER_LARGEST_SNAPSHOT allows")]
    Size(i64),
}

/// The periodic work of building snapshots whose builder has died, and of deleting expired snapshots.
#[derive(Debug)]
pub struct Snapshots(pub Exports);

impl Rounds for Snapshots {
    const NAME: &'static str = "the building of snapshots";

    async fn round(&mut self) -> Result<Duration> {
        store::expire(&self.0.db, db::earlier_now(&self.0.db).await?).await?;
        // Whoever builds a snapshot also builds those that wait for it.
        if let Ok(served) = Arc::clone(&self.0.building).try_lock_owned() {
            let upkeep = upkeep(self.0.clone(), served);
            tokio::spawn(self.0.longest_statement.while_heard(upkeep));
        }
        Ok(PAUSE)
    }
}

/// Builds snapshots that are due, and deletes expired ones.
pub async fn build_due(exports: Exports) -> Result<()> {
    store::expire(&exports.db, db::earlier_now(&exports.db).await?).await?;
    work(&exports, Arc::clone(&exports.building).lock_owned().await).await;
    Ok(())
}

/// Has the waiting snapshots built in the background. If a task waits to do so already, it builds all that are due when its
/// turn comes, so that there is never more than one, however many snapshots are requested.
pub fn build_soon(exports: &Exports) {
    let Ok(next) = Arc::clone(&exports.next_building).try_lock_owned() else { return };
    let exports = exports.clone();
    tokio::spawn(async move {
        let served = Arc::clone(&exports.building).lock_owned().await;
        drop(next);
        // Whoever is next builds what this leaves.
        let _ = exports.longest_statement.while_heard(Box::pin(work(&exports, served))).await;
    });
}

/// Builds the waiting snapshots. The index of the records in them is merged here, so that a snapshot that is requested
/// after another one need not wait for that.
async fn upkeep(exports: Exports, served: OwnedMutexGuard<Vec<String>>) {
    work(&exports, served).await;
    if let Err(error) = store::tidy(&exports.db).await {
        tracing::debug!(%error, "the index of the records in snapshots could not be tidied");
    }
}

/// Builds the waiting snapshots, one after the other. Projects take turns.
async fn work(exports: &Exports, mut served: OwnedMutexGuard<Vec<String>>) {
    loop {
        match next(exports, &mut served).await {
            Ok(true) => {}
            Ok(false) => return,
            Err(error) => {
                tracing::warn!(%error, "snapshots could not be built and will be tried again");
                return;
            }
        }
    }
}

/// Builds one waiting snapshot. Returns whether to continue with another one.
async fn next(exports: &Exports, served: &mut Vec<String>) -> Result<bool> {
    let db = &exports.db;
    let Some(building) = building::claim(db, Timestamp::now(), until(), served).await? else {
        return Ok(false);
    };
    served.retain(|project| *project != building.project);
    if served.len() >= MOST_SERVED {
        served.remove(0);
    }
    served.push(building.project.clone());
    let begun = std::time::Instant::now();
    let connections = Connections::of(exports, building.lease);
    let longest = exports.longest();
    let built = tokio::select! {
        built = timeout(longest, build(exports, &connections.db, &building)) => {
            Some(built.unwrap_or_else(|_| Err(Exceeded::Time(longest.as_secs()).into())))
        }
        () = renew(db, &building) => None,
    };
    connections.end(db).await;
    match built {
        None => {}
        Some(Ok(())) => {
            tracing::info!(id = %building.id, seconds = begun.elapsed().as_secs(), "a snapshot is complete");
        }
        Some(Err(error)) => {
            if error.is::<NotOurs>() {
                tracing::info!(id = %building.id, "{error}");
                return Ok(true);
            }
            if error.is::<LetsOthersGoFirst>() {
                tracing::info!(id = %building.id, "{error}");
                building.put_back(db).await?;
                return Ok(true);
            }
            let cause = format!("{error:#}");
            tracing::error!(id = %building.id, cause, "a snapshot could not be built");
            let said = match error.downcast_ref::<Error>() {
                // The database is not available, or busy. The lease ends, and the snapshot is tried again.
                Some(error) if error.is_transient() => return Ok(false),
                Some(error @ Error::Invalid(_)) => error.to_string(),
                _ if error.is::<Exceeded>() => error.to_string(),
                _ if error.downcast_ref::<sqlx::Error>().and_then(Outage::of).is_some() => {
                    return Ok(false);
                }
                _ => "the server failed; its log says why".to_owned(),
            };
            building.fail(db, &said).await?;
        }
    }
    Ok(true)
}

fn until() -> Timestamp {
    let now = Timestamp::now();
    now.plus(LEASE).unwrap_or(now)
}

/// Renews the lease until the snapshot is no longer wanted, or another builder has taken over.
async fn renew(db: &PgPool, building: &Building) {
    loop {
        sleep(RENEWAL).await;
        if let Ok(false) = building.renew(db, until()).await {
            tracing::info!(id = %building.id, "the building of a snapshot has ended before its time");
            return;
        }
    }
}

/// Reads rows, writes them as lines or columns, encodes these, and stores the file, at the same time. Only a few
/// megabytes wait between each two.
async fn build(exports: &Exports, db: &PgPool, building: &Building) -> anyhow::Result<()> {
    let Wanted { entry, dataset, mut common } = Wanted::read(&building.dataset, &building.parameters)?;
    common.as_of = Some(building.as_of);
    building.clear(db).await?;
    let formats = entry.formats().find(|format| format.name() == building.format);
    common.format = Some(formats.context("the format is not known anymore")?);
    let export = Export::prepare(db, &building.project, &entry.description, dataset, common).await?;
    let (mut counted, dropped) = (export.counted()?, export.dropped);
    let counting = async {
        sleep(exports.count_after).await;
        let expected = counted.build_query_scalar().fetch_one(db).await?;
        Ok(still_ours(building.expect(db, expected).await?)?)
    };
    let (bunches, to_write) = queue();
    let (batches, to_encode) = queue();
    let (parts, to_keep) = mpsc::channel(PARTS_WAITING);
    let (collected, encoder) = encode::begin(building.file, &building.row_schema, parts.clone())?;
    let added = export.rows.texts().filter(|_| building.has_texts).map(Added::of).unwrap_or_default();
    let texts = added.texts.clone();
    let writing = write(export.rows.clone(), collected, texts, db.clone(), to_write, batches, parts);
    let (writing, encoding) = (tokio::spawn(writing), spawn_blocking(|| encode(encoder, to_encode)));
    let memory = Memory::of_project(&exports.bodies, &building.project.as_str().into());
    let reading = Box::pin(read(export, &added, exports.turns(&building.project), &memory, db, bunches));
    let (writing, encoding) = (async { writing.await? }, async { encoding.await? });
    let keeping = keep(db, building, exports.largest_snapshot, to_keep);
    let made = async { tokio::try_join!(keeping, encoding, writing, reading) };
    let (kept, sha256, (), ()) = tokio::select! {
        made = made => made?,
        // The rest goes on after the count, unless nobody wants the snapshot any more.
        Err(error) = counting => return Err(error),
    };
    Ok(still_ours(building.complete(db, kept, dropped, &sha256).await?)?)
}

/// Where the questions and answers of rows are. Those that no row has get columns of their own.
#[derive(Default)]
struct Added {
    /// The SQL of the columns that are added, each after a comma.
    sql: String,
    /// The number of these columns.
    count: usize,
    /// The kinds of the texts, with the names of their columns.
    texts: Vec<(&'static str, &'static str)>,
}

impl Added {
    fn of(texts: QuestionAndAnswer) -> Self {
        let mut added = Self::default();
        for ((text, column), own) in texts.into_iter().zip(TEXT_COLUMNS) {
            if column.is_none() {
                added.sql.extend([", ", text.sql, " as ", own]);
                added.count += 1;
            }
            added.texts.push((text.kind, column.unwrap_or(own)));
        }
        added
    }
}

/// Ends the building if another builder has taken over, or the snapshot was deleted.
fn still_ours(is_ours: bool) -> Result<(), NotOurs> {
    if is_ours { Ok(()) } else { Err(NotOurs) }
}

/// Rows of a page that were read, with their positions.
#[derive(Default)]
struct Bunch {
    rows: Vec<(PgRow, RowKey)>,
    /// The number of bytes of the rows, and of what is added to each when it is written.
    bytes: usize,
    /// Whether the page ends with these rows.
    ends_page: bool,
}

impl Bunch {
    /// Adds a row to which so many bytes are added when it is written.
    fn push(&mut self, row: PgRow, key: RowKey, added: usize) {
        self.bytes += added + rows::length(&row);
        self.rows.push((row, key));
    }

    /// Adds the rows to a queue. Returns whether somebody takes them.
    async fn send(self, bunches: &Sender<Self>) -> bool {
        let bytes = self.bytes;
        bunches.send(self, bytes).await
    }
}

/// Reads the rows page by page. It ends early if nobody takes them.
async fn read(
    mut export: Export,
    added: &Added,
    mut turns: Turns,
    memory: &Memory,
    db: &PgPool,
    bunches: Sender<Bunch>,
) -> anyhow::Result<()> {
    let system = export.rows.common.system.as_ref().map_or(0, String::len);
    loop {
        turns.begin().await;
        let mut query = export.next_page(&added.sql)?;
        let (mut bunch, mut count) = (Bunch::default(), 0);
        let mut connection = db.acquire().await?;
        let mut rows = query.build().fetch(&mut *connection);
        while let Some(row) = rows.try_next().await? {
            if export.leaves_out(&row, added.count)? {
                count += 1;
                continue;
            }
            let key = export.pass(&row)?;
            if let Some(bytes) = rows::long(&row) {
                hold(bytes, memory, db).await?;
            }
            bunch.push(row, key, system);
            count += 1;
            if bunch.bytes >= BUNCH && !take(&mut bunch).send(&bunches).await {
                return Ok(());
            }
        }
        drop(rows);
        export.confirm(&mut connection).await?;
        bunch.ends_page = true;
        if !bunch.send(&bunches).await || count < PAGE {
            return Ok(());
        }
    }
}

/// Waits for memory for a long row. The memory of a project may be in use for long, and others do not wait for that.
async fn hold(bytes: usize, memory: &Memory, db: &PgPool) -> anyhow::Result<()> {
    let until = Instant::now() + LONGEST_WAIT;
    while let Err(error) = memory.hold_late(bytes, PATIENCE).await {
        if building::others_wait(db, &memory.project()).await? {
            bail!(LetsOthersGoFirst);
        }
        if Instant::now() > until {
            return Err(error.into());
        }
    }
    Ok(())
}

/// Writes rows for the encoder, and collects what is in them. It ends early if nobody takes them.
async fn write(
    rows: Rows,
    mut collected: Collected,
    texts: Vec<(&'static str, &'static str)>,
    db: PgPool,
    mut bunches: Receiver<Bunch>,
    batches: Sender<Batch>,
    pages: mpsc::Sender<Part>,
) -> anyhow::Result<()> {
    let (mut contents, mut hashes, mut count) = (Contents::default(), Hashes::default(), 0);
    let mut last: Vec<Uuid> = Vec::new();
    while let Some(bunch) = bunches.recv().await {
        for (row, key) in &bunch.value.rows {
            let records = rows.write(row, *key, collected.out(), None)?;
            if records != last {
                contents.records.extend(&records);
                last = records;
            }
            for &(kind, column) in &texts {
                if let Some(content) = row.try_get(column)? {
                    hashes.add(kind, content);
                }
            }
        }
        count += bunch.value.rows.len();
        let ends_page = bunch.value.ends_page;
        drop(bunch);
        hashes.limit(&db).await?;
        if let Some(batch) = collected.take()? {
            let bytes = batch.bytes();
            if !batches.send(batch, bytes).await {
                return Ok(());
            }
        }
        if ends_page && count > 0 {
            contents.texts = hashes.take(&db).await?;
            last.clear();
            if pages.send(Part::Page(take(&mut count), take(&mut contents))).await.is_err() {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// Encodes rows, on a thread of its own. Returns the SHA-256 of the file.
fn encode(mut encoder: Encoder, mut batches: Receiver<Batch>) -> anyhow::Result<Vec<u8>> {
    while let Some(batch) = batches.blocking_recv() {
        encoder.write(batch.value)?;
    }
    encoder.finish()
}

/// Stores the parts of a file of at most so many bytes.
async fn keep(
    db: &PgPool,
    building: &Building,
    most_bytes: i64,
    mut parts: mpsc::Receiver<Part>,
) -> anyhow::Result<Kept> {
    let mut kept = Kept::default();
    while let Some(part) = parts.recv().await {
        match part {
            Part::Piece(piece) => {
                kept.bytes += i64::try_from(piece.len())?;
                ensure!(kept.bytes <= most_bytes, Exceeded::Size(most_bytes >> 20));
                still_ours(building.keep_chunk(db, kept.pieces, &piece).await?)?;
                kept.pieces += 1;
            }
            Part::Page(rows, contents) => {
                kept.rows += i64::try_from(rows)?;
                still_ours(building.keep_page(db, kept.pages, &contents, (kept.rows, kept.bytes)).await?)?;
                kept.pages += 1;
            }
        }
    }
    Ok(kept)
}
