//! Encoders of files: rows become the pieces of a file in bounded memory.

use std::io::{self, Write};
use std::mem::{replace, take};

use anyhow::bail;
use arrow_array::RecordBatch;
use flate2::Compression;
use flate2::write::GzEncoder;
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression as Codec, ZstdLevel};
use parquet::file::properties::WriterProperties;
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use tokio::sync::mpsc;

use super::building::Part;
use super::{CHUNK, File};
use crate::exports::columns::Columns;
use crate::exports::rows::Out;

/// The maximum number of rows of a row group.
const GROUP_ROWS: usize = 100_000;
/// The maximum number of bytes of a row group, which is in memory until it is complete.
const GROUP_BYTES: usize = 16 << 20;

/// The maximum number of bytes of a column's dictionary. Names repeat and need less; texts of which most differ have a
/// dictionary only until it has so many bytes.
const DICTIONARY: usize = 256 << 10;

/// Rows on their way to the encoder, in the form that it takes.
pub(super) enum Collected {
    Lines(Vec<u8>),
    Columns(Box<Columns>),
}

/// Rows that are encoded at once.
pub(super) enum Batch {
    Lines(Vec<u8>),
    Columns(RecordBatch),
}

impl Batch {
    /// Returns the number of bytes of the rows.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Lines(lines) => lines.len(),
            Self::Columns(columns) => columns.get_array_memory_size(),
        }
    }
}

/// An encoder that makes a file from rows.
pub(super) enum Encoder {
    Plain(Pieces),
    Gzip(GzEncoder<Pieces>),
    Parquet(Box<ArrowWriter<Pieces>>),
}

/// Begins a file whose rows have this JSON Schema, and whose pieces are sent to `parts`.
pub(super) fn begin(
    file: File,
    row_schema: &Value,
    parts: mpsc::Sender<Part>,
) -> anyhow::Result<(Collected, Encoder)> {
    let pieces = Pieces { parts, last: Vec::new(), sha256: Sha256::new() };
    let encoder = match file {
        File::Jsonl => Encoder::Plain(pieces),
        File::JsonlGz => Encoder::Gzip(GzEncoder::new(pieces, Compression::default())),
        File::Parquet => {
            let columns = Columns::new(row_schema)?;
            let properties = WriterProperties::builder()
                .set_compression(Codec::ZSTD(ZstdLevel::try_new(1)?))
                .set_max_row_group_row_count(Some(GROUP_ROWS))
                .set_max_row_group_bytes(Some(GROUP_BYTES))
                .set_dictionary_page_size_limit(DICTIONARY)
                .set_created_by(concat!("gleaner ", env!("CARGO_PKG_VERSION")).to_owned())
                .build();
            let writer = ArrowWriter::try_new(pieces, columns.schema(), Some(properties))?;
            return Ok((Collected::Columns(columns.into()), Encoder::Parquet(writer.into())));
        }
    };
    Ok((Collected::Lines(Vec::new()), encoder))
}

impl Collected {
    /// Returns where rows are written.
    pub(super) fn out(&mut self) -> Out<'_> {
        match self {
            Self::Lines(lines) => Out::Lines(lines),
            Self::Columns(columns) => Out::Columns(columns),
        }
    }

    /// Returns the rows that were written since the last time, if there are any.
    pub(super) fn take(&mut self) -> anyhow::Result<Option<Batch>> {
        Ok(match self {
            Self::Lines(lines) if lines.is_empty() => None,
            Self::Lines(lines) => {
                // The next rows are about as long, unless these are unusual.
                let next = Vec::with_capacity(lines.len().min(CHUNK));
                Some(Batch::Lines(replace(lines, next)))
            }
            Self::Columns(columns) => columns.take()?.map(Batch::Columns),
        })
    }
}

impl Encoder {
    /// Adds rows.
    pub(super) fn write(&mut self, rows: Batch) -> anyhow::Result<()> {
        match (self, rows) {
            (Self::Plain(pieces), Batch::Lines(lines)) => pieces.write_all(&lines)?,
            (Self::Gzip(encoder), Batch::Lines(lines)) => encoder.write_all(&lines)?,
            (Self::Parquet(writer), Batch::Columns(columns)) => writer.write(&columns)?,
            _ => bail!("the encoder does not take rows of this form"),
        }
        Ok(())
    }

    /// Completes the file, and returns its SHA-256.
    pub(super) fn finish(self) -> anyhow::Result<Vec<u8>> {
        let pieces = match self {
            Self::Plain(pieces) => pieces,
            Self::Gzip(encoder) => encoder.finish()?,
            Self::Parquet(writer) => writer.into_inner()?,
        };
        Ok(pieces.end()?)
    }
}

/// The bytes of a file, in the pieces in which the database stores them. They are sent on a thread that may wait.
pub(super) struct Pieces {
    parts: mpsc::Sender<Part>,
    /// The bytes that do not fill a piece yet.
    last: Vec<u8>,
    sha256: Sha256,
}

impl Pieces {
    /// Sends the last piece, and returns the SHA-256 of the file.
    fn end(mut self) -> io::Result<Vec<u8>> {
        if !self.last.is_empty() {
            self.send()?;
        }
        Ok(self.sha256.finalize().to_vec())
    }

    fn send(&mut self) -> io::Result<()> {
        let piece = Part::Piece(take(&mut self.last));
        self.parts.blocking_send(piece).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}

impl Write for Pieces {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.last.capacity() == 0 {
            self.last.reserve_exact(CHUNK);
        }
        let now = &bytes[..bytes.len().min(CHUNK - self.last.len())];
        self.last.extend(now);
        self.sha256.update(now);
        if self.last.len() == CHUNK {
            self.send()?;
        }
        Ok(now.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
