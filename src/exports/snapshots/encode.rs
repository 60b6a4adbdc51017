//! Encoders of files: lines of JSON become the pieces of a file in bounded memory.

use std::io::{self, Write};
use std::mem::take;
use std::sync::Arc;

use arrow_json::ReaderBuilder;
use arrow_json::reader::Decoder;
use flate2::Compression;
use flate2::write::GzEncoder;
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression as Codec, ZstdLevel};
use parquet::file::properties::WriterProperties;
use serde_json::Value;
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};

use super::columns::Column;
use super::{CHUNK, File};

/// The maximum number of rows of a row group.
const GROUP_ROWS: usize = 100_000;
/// The maximum number of bytes of a row group, which is in memory until it is complete.
const GROUP_BYTES: usize = 64 << 20;
/// The numbers of rows, and of bytes of JSON, after which lines are converted to columns.
const BATCH: (usize, usize) = (4_096, 2 << 20);

/// An encoder that makes a file from lines.
pub(super) enum Encoder {
    Plain(Pieces),
    Gzip(GzEncoder<Pieces>),
    Parquet(Box<Parquet>),
}

/// An encoder that makes a Parquet file from lines of JSON.
pub(super) struct Parquet {
    column: Column,
    decoder: Decoder,
    writer: ArrowWriter<Pieces>,
    /// The number of bytes that wait to be converted to columns.
    waiting: usize,
    /// A line in which JSON values are texts.
    line: Vec<u8>,
}

impl Encoder {
    /// Begins a file whose rows have this JSON Schema.
    pub(super) fn new(file: File, row_schema: &Value) -> anyhow::Result<Self> {
        Ok(match file {
            File::Jsonl => Self::Plain(Pieces::default()),
            File::JsonlGz => Self::Gzip(GzEncoder::new(Pieces::default(), Compression::default())),
            File::Parquet => Self::Parquet(Box::new(Parquet::new(row_schema)?)),
        })
    }

    /// Adds whole lines. Returns the pieces of the file that are complete.
    pub(super) fn write(&mut self, lines: &[u8]) -> anyhow::Result<Vec<Vec<u8>>> {
        let pieces = match self {
            Self::Plain(pieces) => {
                pieces.write_all(lines)?;
                pieces
            }
            Self::Gzip(encoder) => {
                encoder.write_all(lines)?;
                encoder.get_mut()
            }
            Self::Parquet(parquet) => {
                parquet.write(lines)?;
                parquet.writer.inner_mut()
            }
        };
        Ok(take(&mut pieces.complete))
    }

    /// Completes the file, and returns the rest of it.
    pub(super) fn finish(self) -> anyhow::Result<Pieces> {
        Ok(match self {
            Self::Plain(pieces) => pieces,
            Self::Gzip(encoder) => encoder.finish()?,
            Self::Parquet(mut parquet) => {
                parquet.flush()?;
                parquet.writer.into_inner()?
            }
        })
    }
}

/// The bytes of a file, in the pieces in which the database stores them.
#[derive(Default)]
pub(super) struct Pieces {
    complete: Vec<Vec<u8>>,
    /// The bytes that do not fill a piece yet.
    last: Vec<u8>,
    sha256: Sha256,
}

impl Pieces {
    /// Returns the pieces that were not taken yet, and the SHA-256 of the file.
    pub(super) fn end(mut self) -> (Vec<Vec<u8>>, Vec<u8>) {
        if !self.last.is_empty() {
            self.complete.push(self.last);
        }
        (self.complete, self.sha256.finalize().to_vec())
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
            self.complete.push(take(&mut self.last));
        }
        Ok(now.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Parquet {
    fn new(row_schema: &Value) -> anyhow::Result<Self> {
        let column = Column::of(row_schema);
        let schema = column.schema();
        let properties = WriterProperties::builder()
            .set_compression(Codec::ZSTD(ZstdLevel::try_new(1)?))
            .set_max_row_group_row_count(Some(GROUP_ROWS))
            .set_max_row_group_bytes(Some(GROUP_BYTES))
            .set_created_by(concat!("gleaner ", env!("CARGO_PKG_VERSION")).to_owned())
            .build();
        let decoder = ReaderBuilder::new(Arc::clone(&schema)).with_batch_size(BATCH.0).build_decoder()?;
        let writer = ArrowWriter::try_new(Pieces::default(), schema, Some(properties))?;
        Ok(Self { column, decoder, writer, waiting: 0, line: Vec::new() })
    }

    fn write(&mut self, lines: &[u8]) -> anyhow::Result<()> {
        if !self.column.has_json() {
            return self.decode(lines);
        }
        let mut rewritten = take(&mut self.line);
        for line in lines.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()) {
            let row: &RawValue = serde_json::from_slice(line)?;
            self.column.rewrite(row, &mut rewritten)?;
            rewritten.push(b'\n');
        }
        self.decode(&rewritten)?;
        rewritten.clear();
        self.line = rewritten;
        Ok(())
    }

    fn decode(&mut self, mut lines: &[u8]) -> anyhow::Result<()> {
        while !lines.is_empty() {
            let read = self.decoder.decode(lines)?;
            self.waiting += read;
            lines = &lines[read..];
            // The decoder accepts no more rows once its batch is full.
            if !lines.is_empty() || self.waiting >= BATCH.1 {
                self.flush()?;
            }
        }
        Ok(())
    }

    /// Converts the waiting rows to columns.
    fn flush(&mut self) -> anyhow::Result<()> {
        if let Some(batch) = self.decoder.flush()? {
            self.writer.write(&batch)?;
        }
        self.waiting = 0;
        Ok(())
    }
}
