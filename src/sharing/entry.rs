//! How a request is let in among those of its project.

use std::sync::Arc;
use std::time::Duration;

use super::{Kind, Place, Shares, Turn, Work};
use crate::error::{Error, Result};

/// How long a request waits to be let in.
const PATIENCE: Duration = Duration::from_secs(5);

/// What a request takes before it works: a place of its project, and a turn if it reads. It may give both back and take
/// them again, so that it keeps them from nobody while it waits for its client.
#[derive(Debug, Clone)]
pub struct Entry {
    project: Arc<str>,
    places: Shares,
    work: Option<Arc<Work>>,
}

impl Entry {
    /// Makes the entry of a request that reads.
    #[must_use]
    pub fn to_read(project: &Arc<str>, places: &Shares, work: &Arc<Work>) -> Self {
        Self { project: Arc::clone(project), places: places.clone(), work: Some(Arc::clone(work)) }
    }

    /// Makes the entry of a request that takes a place only: one that changes what is not an event, because it waits for
    /// locks, or one that has had turns and reads what it shows.
    #[must_use]
    pub fn without_turn(project: &Arc<str>, places: &Shares) -> Self {
        Self { project: Arc::clone(project), places: places.clone(), work: None }
    }

    /// Makes an entry that takes its place of these.
    #[must_use]
    pub fn through(&self, places: &Shares) -> Self {
        Self { places: places.clone(), ..self.clone() }
    }

    /// Waits for a place and a turn, but not for long. Requests of one project may wait for each other, but not for those
    /// of other projects.
    pub async fn take(&self) -> Result<(Place, Option<Turn>)> {
        let taken = tokio::time::timeout(PATIENCE, async {
            let place = self.places.take(&self.project, 1).await;
            let turn = match &self.work {
                Some(work) => Some(work.turn(&self.project, Kind::Read).await),
                None => None,
            };
            (place, turn)
        });
        taken
            .await
            .map_err(|_| Error::Unavailable("this project has too many requests in progress; try again"))
    }
}
