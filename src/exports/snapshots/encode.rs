//! Encoders of files: lines of JSON become the bytes of a file in bounded memory.

use std::io::Write as _;
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

use super::File;
use super::columns::Column;

/// The maximum number of rows of a row group.
const GROUP_ROWS: usize = 100_000;
/// The maximum number of bytes of a row group, which is in memory until it is complete.
const GROUP_BYTES: usize = 64 << 20;
/// The numbers of rows, and of bytes of JSON, after which lines are converted to columns.
const BATCH: (usize, usize) = (8_192, 4 << 20);

/// An encoder that makes a file from lines.
pub(super) enum Encoder {
    Plain(Vec<u8>),
    Gzip(GzEncoder<Vec<u8>>),
    Parquet(Box<Parquet>),
}

/// An encoder that makes a Parquet file from lines of JSON.
pub(super) struct Parquet {
    column: Column,
    decoder: Decoder,
    writer: ArrowWriter<Vec<u8>>,
    /// The number of bytes that wait to be converted to columns.
    waiting: usize,
    /// A line in which JSON values are texts.
    line: Vec<u8>,
}

impl Encoder {
    /// Begins a file whose rows have this JSON Schema.
    pub(super) fn new(file: File, row_schema: &Value) -> anyhow::Result<Self> {
        Ok(match file {
            File::Jsonl => Self::Plain(Vec::new()),
            File::JsonlGz => Self::Gzip(GzEncoder::new(Vec::new(), Compression::default())),
            File::Parquet => Self::Parquet(Box::new(Parquet::new(row_schema)?)),
        })
    }

    /// Adds whole lines. Returns the bytes of the file that are ready.
    pub(super) fn write(&mut self, lines: &[u8]) -> anyhow::Result<Vec<u8>> {
        Ok(match self {
            Self::Plain(_) => lines.to_vec(),
            Self::Gzip(encoder) => {
                encoder.write_all(lines)?;
                take(encoder.get_mut())
            }
            Self::Parquet(parquet) => {
                parquet.write(lines)?;
                take(parquet.writer.inner_mut())
            }
        })
    }

    /// Completes the file. Returns the rest of its bytes.
    pub(super) fn finish(self) -> anyhow::Result<Vec<u8>> {
        Ok(match self {
            Self::Plain(rest) => rest,
            Self::Gzip(encoder) => encoder.finish()?,
            Self::Parquet(mut parquet) => {
                parquet.flush()?;
                parquet.writer.into_inner()?
            }
        })
    }
}

impl Parquet {
    fn new(row_schema: &Value) -> anyhow::Result<Self> {
        let column = Column::of(row_schema);
        let schema = column.schema();
        let properties = WriterProperties::builder()
            .set_compression(Codec::ZSTD(ZstdLevel::try_new(3)?))
            .set_max_row_group_row_count(Some(GROUP_ROWS))
            .set_max_row_group_bytes(Some(GROUP_BYTES))
            .set_created_by(concat!("gleaner ", env!("CARGO_PKG_VERSION")).to_owned())
            .build();
        let decoder = ReaderBuilder::new(Arc::clone(&schema)).with_batch_size(BATCH.0).build_decoder()?;
        let writer = ArrowWriter::try_new(Vec::new(), schema, Some(properties))?;
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
