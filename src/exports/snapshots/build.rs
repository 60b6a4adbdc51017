//! The building of snapshots, one at a time on each server. Pages of an export become the bytes of a file, which the
//! database stores in pieces. Memory is needed for the rows of a page, a row group, and a piece.

use std::time::Duration;

use anyhow::{Context as _, bail};
use chrono::TimeDelta;
use futures_util::TryStreamExt as _;
use sha2::{Digest as _, Sha256};
use sqlx::{PgPool, Row as _};
use tokio::task::{JoinHandle, spawn_blocking};
use uuid::Uuid;

use super::CHUNK;
use super::encode::Encoder;
use super::request::Wanted;
use super::store::{self, Building, Contents};
use crate::background::Rounds;
use crate::error::{Error, Result};
use crate::exports::export::{Export, PAGE};
use crate::exports::split::Text;
use crate::exports::stream::Exports;
use crate::outage::Outage;
use crate::types::Timestamp;

/// The pause between two searches for snapshots that nobody builds.
const PAUSE: Duration = Duration::from_secs(5);
/// The duration of a builder's lease, unless it is renewed.
const LEASE: TimeDelta = TimeDelta::seconds(15);
/// The interval at which a builder renews its lease.
const RENEWAL: Duration = Duration::from_secs(4);
/// The columns of a row's question and answer: the text, and its hash unless the text is ASCII.
const TEXT_COLUMNS: [[&str; 2]; 2] =
    [["key_question", "key_question_hash"], ["key_answer", "key_answer_hash"]];
/// The number of bytes of lines that are encoded at once.
const LINES: usize = 1 << 20;

/// The periodic work of building snapshots whose builder has died, and of deleting expired snapshots.
#[derive(Debug)]
pub struct Snapshots(pub Exports);

impl Rounds for Snapshots {
    const NAME: &'static str = "the building of snapshots";

    async fn round(&mut self) -> Result<Duration> {
        store::expire(&self.0.db, Timestamp::now()).await?;
        tokio::spawn(work(self.0.clone()));
        Ok(PAUSE)
    }
}

/// Builds snapshots that are due, and deletes expired ones.
pub async fn build_due(exports: Exports) -> Result<()> {
    store::expire(&exports.db, Timestamp::now()).await?;
    work(exports).await;
    Ok(())
}

/// Builds the waiting snapshots, one after the other.
pub async fn work(exports: Exports) {
    let _turn = exports.building.lock().await;
    loop {
        match next(&exports).await {
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
async fn next(exports: &Exports) -> Result<bool> {
    let db = &exports.db;
    let Some(building) = store::claim(db, Timestamp::now(), until()).await? else { return Ok(false) };
    let begun = std::time::Instant::now();
    let built = tokio::select! {
        built = build(exports, &building) => built,
        () = renew(db, &building) => return Ok(true),
    };
    match built {
        Ok(()) => {
            tracing::info!(id = %building.id, seconds = begun.elapsed().as_secs(), "a snapshot is complete");
        }
        Err(error) => {
            let cause = format!("{error:#}");
            tracing::error!(id = %building.id, cause, "a snapshot could not be built");
            let said = match error.downcast_ref::<Error>() {
                // The database is not available, or busy. The lease ends, and the snapshot is tried again.
                Some(error) if error.is_transient() => return Ok(false),
                Some(error @ Error::Invalid(_)) => error.to_string(),
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
        tokio::time::sleep(RENEWAL).await;
        if let Ok(false) = building.renew(db, until()).await {
            tracing::info!(id = %building.id, "the building of a snapshot has ended before its time");
            return;
        }
    }
}

async fn build(exports: &Exports, building: &Building) -> anyhow::Result<()> {
    let db = &exports.db;
    let Wanted { entry, dataset, mut common } = Wanted::read(&building.dataset, &building.parameters)?;
    common.as_of = Some(building.as_of);
    let formats = entry.formats().find(|format| format.name() == building.format);
    common.format = Some(formats.context("the format is not known anymore")?);
    let mut export = Export::prepare(db, &building.project, &entry.description, dataset, common).await?;
    let expected = export.count(db).await?;
    let mut file = FileBuilder {
        db,
        building,
        encoder: None,
        encoding: None,
        waiting: Vec::new(),
        sha256: Sha256::new(),
        bytes: 0,
        chunks: 0,
    };
    let encoder = Encoder::new(building.file, &building.row_schema)?;
    file.encoder = Some(encoder);
    still_ours(building.expect(db, expected, export.dropped).await?)?;
    let texts = export.texts().filter(|_| building.has_texts);
    let mut turns = exports.turns(&building.project);
    let (mut rows, mut page) = (0_i64, 0_i32);
    loop {
        turns.begin().await;
        let (count, contents) = write_page(&mut export, texts, &mut file).await?;
        rows += i64::try_from(count)?;
        if count > 0 {
            still_ours(building.keep_contents(db, page, &contents).await?)?;
            still_ours(building.progress(db, rows, file.bytes).await?)?;
            page += 1;
        }
        if count < PAGE {
            break;
        }
    }
    let (bytes, sha256) = file.finish().await?;
    still_ours(building.complete(db, rows, bytes, &sha256).await?)
}

/// Ends the building if another builder has taken over, or the snapshot was deleted.
fn still_ours(is_ours: bool) -> anyhow::Result<()> {
    if is_ours { Ok(()) } else { bail!("the snapshot was deleted, or another server builds it") }
}

/// Writes a page of rows. Returns their number, and the records and texts in them.
async fn write_page(
    export: &mut Export,
    texts: Option<[Text<'_>; 2]>,
    file: &mut FileBuilder<'_>,
) -> anyhow::Result<(usize, Contents)> {
    let texts = texts.into_iter().flatten().zip(TEXT_COLUMNS);
    // The database computes the hashes that the server cannot compute.
    let columns = texts.clone().map(|(text, [content, hash])| {
        let (sql, hash_of) = (text.sql, text.hash());
        format!(
            ", {sql} as {content}, case when octet_length({sql}) > char_length({sql}) then {hash_of} end as {hash}"
        )
    });
    let mut query = export.next_page(&columns.collect::<String>())?;
    let (mut lines, mut contents, mut count) = (Vec::with_capacity(LINES), Contents::default(), 0);
    let mut last: Vec<Uuid> = Vec::new();
    let mut connection = file.db.acquire().await?;
    let query = query.build();
    let mut rows = query.fetch(&mut *connection);
    while let Some(row) = rows.try_next().await? {
        let records = export.write(&row, &mut lines, None)?;
        if records != last {
            contents.records.extend(&records);
            last = records;
        }
        for (text, [content, hash]) in texts.clone() {
            let content: Option<&str> = row.try_get(content)?;
            let hash: Option<i64> = row.try_get(hash)?;
            contents.texts.extend(hash.or_else(|| text.hash_of(content?)));
        }
        count += 1;
        if lines.len() >= LINES {
            file.write(std::mem::replace(&mut lines, Vec::with_capacity(LINES))).await?;
        }
    }
    file.write(lines).await?;
    contents.texts.sort_unstable();
    contents.texts.dedup();
    Ok((count, contents))
}

/// An encoder and the bytes that it has made.
type Encoded = anyhow::Result<(Encoder, Vec<u8>)>;

/// A file that grows in the database.
struct FileBuilder<'a> {
    db: &'a PgPool,
    building: &'a Building,
    /// The encoder, while it is idle.
    encoder: Option<Encoder>,
    /// The encoder at work, while the next rows are read.
    encoding: Option<JoinHandle<Encoded>>,
    /// The bytes that do not fill a piece yet.
    waiting: Vec<u8>,
    sha256: Sha256,
    bytes: i64,
    chunks: i32,
}

impl FileBuilder<'_> {
    /// Adds lines. They are encoded while the caller continues.
    async fn write(&mut self, lines: Vec<u8>) -> anyhow::Result<()> {
        self.settle().await?;
        if lines.is_empty() {
            return Ok(());
        }
        let mut encoder = self.encoder.take().context("there is an encoder")?;
        self.encoding = Some(spawn_blocking(move || {
            let bytes = encoder.write(&lines)?;
            Ok((encoder, bytes))
        }));
        Ok(())
    }

    /// Waits for the encoder, and stores its bytes.
    async fn settle(&mut self) -> anyhow::Result<()> {
        if let Some(encoding) = self.encoding.take() {
            let (encoder, bytes) = encoding.await??;
            self.encoder = Some(encoder);
            self.keep(bytes).await?;
        }
        Ok(())
    }

    async fn keep(&mut self, bytes: Vec<u8>) -> anyhow::Result<()> {
        self.sha256.update(&bytes);
        self.bytes += i64::try_from(bytes.len())?;
        let mut bytes = bytes.as_slice();
        while self.waiting.len() + bytes.len() >= CHUNK {
            let (now, later) = bytes.split_at(CHUNK - self.waiting.len());
            self.waiting.extend(now);
            still_ours(self.building.keep_chunk(self.db, self.chunks, &self.waiting).await?)?;
            self.chunks += 1;
            self.waiting.clear();
            bytes = later;
        }
        self.waiting.extend(bytes);
        Ok(())
    }

    /// Completes the file. Returns its length and its SHA-256.
    async fn finish(mut self) -> anyhow::Result<(i64, Vec<u8>)> {
        self.settle().await?;
        let encoder = self.encoder.take().context("there is an encoder")?;
        let rest = spawn_blocking(move || encoder.finish()).await??;
        self.keep(rest).await?;
        if !self.waiting.is_empty() {
            let rest = std::mem::take(&mut self.waiting);
            still_ours(self.building.keep_chunk(self.db, self.chunks, &rest).await?)?;
        }
        Ok((self.bytes, self.sha256.finalize().to_vec()))
    }
}
