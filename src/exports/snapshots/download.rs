//! Sends the file of a snapshot, or a part of it. It is read from the database piece by piece, and no connection is
//! held in between.

use std::sync::Arc;

use axum::body::{Body, Bytes};
use sqlx::PgPool;
use tokio::sync::mpsc;
use uuid::Uuid;

use super::{CHUNK as PIECE, store};
use crate::db::silence::LongestStatement;
use crate::error::{Error, Result};
use crate::exports::reader::{CHUNK, Reader};
use crate::http::pace;
use crate::sharing::Place;

/// The number of chunks that wait for the reader: a piece, so that the next one is read meanwhile.
const WAITING: usize = PIECE / CHUNK;

/// A download: the bytes of a file from `start` to before `end`.
pub(super) struct Download {
    pub(super) db: PgPool,
    pub(super) longest: LongestStatement,
    pub(super) project: Arc<str>,
    pub(super) id: Uuid,
    pub(super) start: u64,
    pub(super) end: u64,
}

impl Download {
    /// Returns the bytes as the body of a response. They are read in the background, at most two pieces ahead of the
    /// reader, who must read at a minimum rate. The `place` is given back at the end.
    pub(super) fn body(self, place: Place) -> Body {
        let (out, chunks) = mpsc::channel(WAITING);
        let size = self.end - self.start;
        tokio::spawn(async move {
            let _place = place;
            let longest = self.longest;
            let sent = longest.while_heard(self.send(Reader::new(out, None))).await;
            if let Err(error) = sent.map_err(Error::from).flatten() {
                tracing::warn!(%error, "the download of a snapshot was interrupted");
            }
        });
        pace::body(chunks, size)
    }

    /// Sends the bytes. It ends early if the reader is gone or too slow.
    async fn send(self, mut reader: Reader) -> Result<()> {
        let mut at = self.start;
        while at < self.end {
            let (number, skipped) = (at / PIECE as u64, at % PIECE as u64);
            let piece = Bytes::from(store::chunk(&self.db, &self.project, self.id, number).await?);
            let length = piece.len() as u64;
            let to = (skipped + self.end - at).min(length);
            let [from, to] = [skipped.min(to), to].map(|place| usize::try_from(place).unwrap_or(usize::MAX));
            let mut rest = piece.slice(from..to);
            at += rest.len() as u64;
            if rest.is_empty() {
                return Ok(());
            }
            while !rest.is_empty() {
                let chunk = rest.split_to(CHUNK.min(rest.len()));
                if !reader.send(chunk).await {
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}
