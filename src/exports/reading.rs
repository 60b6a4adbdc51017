//! How the rows of a page are read in bounded memory, whoever they are for.

use std::sync::Arc;
use std::time::Duration;

use futures_util::{FutureExt as _, Stream, TryStreamExt as _};
use sqlx::PgPool;
use sqlx::postgres::PgRow;
use tokio::task::yield_now;

use crate::db::process::Process;
use crate::db::silence::unless_silent;
use crate::sharing::{Place, Shares};

/// The time after which an export that waits for a row lets another one wait in its place, if nothing comes meanwhile. A row that
/// has begun to come takes memory until it is there.
const SLICE: Duration = Duration::from_secs(1);

/// Makes the places of exports that wait for a row, or have one for which they hold no memory: one for each project, and two in all.
pub(super) fn arrivals() -> Shares {
    Shares::with_total(1, 2)
}

/// An export of a project, among all for which rows arrive.
#[derive(Debug, Clone)]
pub(super) struct Arriving {
    places: Shares,
    project: Arc<str>,
}

impl Arriving {
    pub(super) fn new(places: &Shares, project: &str) -> Self {
        Self { places: places.clone(), project: project.into() }
    }

    /// Waits for a row. How long it is is only known when it has come, so few exports wait at the same time, and those for whom
    /// none comes let others wait in turn. The place is returned with the row, to be given back when memory is held for it.
    pub(super) async fn row(
        &self,
        rows: &mut (impl Stream<Item = sqlx::Result<PgRow>> + Unpin),
    ) -> sqlx::Result<Option<(PgRow, Option<Place>)>> {
        if let Some(row) = rows.try_next().now_or_never() {
            return Ok(row?.map(|row| (row, None)));
        }
        loop {
            let place = self.places.take(&self.project, 1).await;
            if let Some(row) = unless_silent(SLICE, rows.try_next()).await {
                return Ok(row?.map(|row| (row, Some(place))));
            }
            drop(place);
            // Whoever waits for the place takes it now.
            yield_now().await;
        }
    }

    /// Ends the statement of a process of which no further rows are wanted. Its connection can be used again when the statement has
    /// ended. The connection has the room of the last row, and takes as much for the one that Postgres has begun to send: the place of
    /// the last row is kept, or one is taken.
    pub(super) async fn end(
        &self,
        place: Option<Place>,
        rows: &mut (impl Stream<Item = sqlx::Result<PgRow>> + Unpin),
        db: &PgPool,
        process: Process,
    ) -> sqlx::Result<()> {
        process.cancel(db, Duration::ZERO).await?;
        let _place = match place {
            Some(place) => place,
            None => self.places.take(&self.project, 1).await,
        };
        while let Ok(Some(_)) = rows.try_next().await {}
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures_util::{StreamExt as _, stream};
    use tokio::time::{Instant, timeout};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn those_for_whom_no_row_comes_let_others_wait_in_turn() {
        let arriving = arrivals();
        for project in ["a", "b"] {
            let arriving = Arriving::new(&arriving, project);
            tokio::spawn(async move { arriving.row(&mut stream::pending()).await });
        }
        tokio::time::sleep(SLICE / 2).await;
        let mut rows = pin!(stream::once(tokio::time::sleep(SLICE)).filter_map(|()| async { None }));
        let row = timeout(10 * SLICE, Arriving::new(&arriving, "c").row(&mut rows)).await;
        assert!(matches!(row, Ok(Ok(None))), "its row is there after a second");
    }

    #[tokio::test(start_paused = true)]
    async fn a_row_that_has_begun_to_come_is_there_before_others_wait() {
        let arriving = arrivals();
        let coming = Arriving::new(&arriving, "a");
        let begun = Instant::now();
        tokio::spawn(async move {
            let pieces = async {
                for _ in 0..10 {
                    tokio::time::sleep(SLICE / 3).await;
                }
            };
            let mut rows = pin!(stream::once(pieces).filter_map(|()| async { None }));
            coming.row(&mut rows).await
        });
        tokio::time::sleep(SLICE / 4).await;
        drop(arriving.take(&"a".into(), 1).await);
        assert!(begun.elapsed() > 3 * SLICE, "{:?}", begun.elapsed());
    }
}
