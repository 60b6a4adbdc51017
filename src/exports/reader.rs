//! The reader of an export or of a snapshot, and the turns of an export, which it gives up while its reader has enough to read.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

use super::reading::{Arriving, arrivals};
use crate::http::pace::Pace;
use crate::sharing::{Kind, Pauses, Shares, Turn, Work};

/// The number of bytes that are sent at a time.
pub(super) const CHUNK: usize = 64 << 10;

/// The turns of an export at working, and its place among those that wait for a row.
#[derive(Debug)]
pub struct Turns {
    work: Arc<Work>,
    project: Arc<str>,
    turn: Option<Turn>,
    pauses: Pauses,
    arriving: Arriving,
}

impl Turns {
    /// Makes the turns of an export of a project that has none yet.
    pub(super) fn new(work: &Arc<Work>, project: &str, arriving: &Shares) -> Self {
        Self {
            work: Arc::clone(work),
            project: project.into(),
            turn: None,
            pauses: Pauses::begin(),
            arriving: Arriving::new(arriving, project),
        }
    }

    /// Makes the turns of an export that has no others beside it.
    #[must_use]
    pub fn alone(project: &str) -> Self {
        Self::new(&Arc::default(), project, &arrivals())
    }

    /// Returns the export among all for which rows arrive.
    pub(super) fn arriving(&self) -> Arriving {
        self.arriving.clone()
    }

    /// Waits for a turn, after those who have waited longer.
    pub(super) async fn begin(&mut self) {
        self.end();
        self.work.note(&self.project);
        self.turn = Some(self.work.turn(&self.project, Kind::Export).await);
        self.pauses = Pauses::begin();
    }

    /// Waits for the next turn if the last one is over, and otherwise now and then for what other requests can do at once, and for
    /// projects that work much less. A long row has hundreds of chunks, and others may do much at once.
    async fn proceed(&mut self) {
        if self.turn.as_ref().is_some_and(Turn::is_over) {
            self.begin().await;
        } else if self.work.is_shared() && self.pauses.pause().await {
            self.work.give_way(&self.project).await;
        }
    }

    /// Lets others work.
    pub(super) fn end(&mut self) {
        self.turn = None;
    }
}

/// The reader of an export or of a snapshot. It must read at a minimum rate, because a slow reader keeps a place from others.
pub(super) struct Reader {
    pub(super) out: mpsc::Sender<Bytes>,
    turns: Option<Turns>,
    pace: Pace,
}

impl Reader {
    /// Makes a reader who has read nothing yet.
    pub(super) fn new(out: mpsc::Sender<Bytes>, turns: Option<Turns>) -> Self {
        Self { out, turns, pace: Pace::default() }
    }

    /// Waits for the export's turn to work.
    pub(super) async fn begin(&mut self) {
        if let Some(turns) = &mut self.turns {
            turns.begin().await;
        }
    }

    /// Lets other exports of the project work.
    pub(super) fn pause(&mut self) {
        if let Some(turns) = &mut self.turns {
            turns.end();
        }
    }

    /// Returns how long the reader was waited for.
    pub(super) fn waited(&self) -> Duration {
        self.pace.waited()
    }

    /// Sends rows, and leaves room for further ones. Returns whether the reader is still there and fast enough.
    pub(super) async fn take(&mut self, chunk: &mut Vec<u8>) -> bool {
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
    async fn chunks_that_are_there_quickly_are_sent_without_pauses_and_others_work_after_a_millisecond() {
        let work = Arc::new(Work::default());
        for project in ["p", "q"] {
            work.note(&project.into());
        }
        let (out, _chunks) = mpsc::channel(1_000);
        let mut reader = Reader::new(out, Some(Turns::new(&work, "p", &arrivals())));
        reader.begin().await;
        let sent = |reader: &mut Reader| reader.send(vec![1].into()).now_or_never();
        let begun = std::time::Instant::now();
        let at_once = (0..100).take_while(|_| sent(&mut reader) == Some(true)).count();
        assert!(at_once > 10 || begun.elapsed() > Duration::from_millis(1), "{at_once} chunks");
        std::thread::sleep(Duration::from_millis(2));
        assert_eq!(sent(&mut reader), None);
    }

    #[tokio::test]
    async fn an_export_that_waits_for_its_reader_lets_another_of_its_project_work() {
        let work = Arc::new(Work::new(sharing::Limits { at_a_time: 1, ..Default::default() }));
        for project in ["p", "q", "p"] {
            work.note(&project.into());
        }
        let arriving = arrivals();
        let turns = || Turns::new(&work, "p", &arriving);
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
