//! The connections and places of exports, and what may be done with them at a time.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use bytes::Bytes;
use clap::Args;
use sqlx::pool::PoolConnection;
use sqlx::postgres::PgConnectOptions;
use sqlx::{PgPool, Postgres};
use tokio::sync::{Mutex, mpsc, oneshot};
use tokio::time::timeout;

use super::Description;
use super::datasets::AnyDataset;
use super::export::Export;
use super::params::Common;
use super::profile::Report;
use super::reader::Turns;
use super::reading::{Arriving, arrivals};
use crate::db::process::Process;
use crate::db::silence::{self, LongestStatement};
use crate::db::{self, EXPORT_NAME};
use crate::error::{Error, Result};
use crate::http::memory::{Budget, Memory};
use crate::recurring;
use crate::sharing::{Place, Shares, Work, while_wanted};

/// The time that an export waits for others to end.
const PATIENCE: Duration = Duration::from_secs(5);
/// The pause until a statement that was canceled should have ended.
const PAUSE: Duration = Duration::from_millis(20);
/// How long Postgres may do nothing on a connection whose statement was canceled. The connection is dead if it takes longer.
const SILENCE: Duration = Duration::from_secs(10);
/// The maximum number of concurrent downloads of snapshots of one project. All projects together have four times as
/// many.
const MOST_DOWNLOADS: usize = 16;

/// The connections reserved for exports, so that slow readers do not delay others.
#[derive(Debug, Clone)]
pub struct Exports {
    /// The connections, as many as there are permits, one to keep account of snapshots, and one to cancel statements. The
    /// building of a snapshot has others.
    pub db: PgPool,
    options: PgConnectOptions,
    /// The maximum number of snapshots of a project.
    pub most_snapshots: i64,
    /// The maximum number of bytes of a snapshot's file.
    pub largest_snapshot: i64,
    /// The lock that a server holds while it builds a snapshot, so that it builds one at a time, with the projects whose
    /// snapshots it has built, the last one most recently.
    pub building: Arc<Mutex<Vec<String>>>,
    /// The lock of the one task that waits for that lock.
    pub next_building: Arc<Mutex<()>>,
    /// The time after which it is of use to know the progress of a building, for which the rows are counted.
    pub count_after: Duration,
    /// The time for which a page of an export waits for its reader.
    longest_page: Duration,
    /// The maximum duration of an export, and of the building of a snapshot.
    longest: Duration,
    /// The longest time that a statement beside exports may take.
    pub(super) longest_statement: LongestStatement,
    places: Shares,
    /// The downloads of snapshots in progress.
    downloads: Shares,
    work: Arc<Work>,
    /// The places of exports that wait for a row.
    arriving: Shares,
    /// The memory of which the building of a snapshot takes what long rows need.
    pub(super) bodies: Budget,
}

impl Exports {
    /// Makes the connections and permits that `limits` allow.
    pub fn new(
        options: &PgConnectOptions,
        limits: Limits,
        work: &Arc<Work>,
        bodies: &Budget,
        longest_statement: LongestStatement,
    ) -> Self {
        let places = Shares::new(limits.most_exports as usize);
        let size = u32::try_from(places.total()).unwrap_or(u32::MAX);
        let longest = Duration::from_secs(limits.longest_export);
        let limited = LongestStatement(longest).limit(options);
        Self {
            db: db::pool(&limited, EXPORT_NAME, size.saturating_add(2)),
            options: options.clone(),
            most_snapshots: limits.most_snapshots.into(),
            largest_snapshot: i64::from(limits.largest_snapshot) << 20,
            building: Arc::default(),
            next_building: Arc::default(),
            count_after: limits.count_after,
            longest_page: limits.longest_page,
            longest,
            longest_statement,
            bodies: bodies.clone(),
            places,
            downloads: Shares::new(MOST_DOWNLOADS),
            work: Arc::clone(work),
            arriving: arrivals(),
        }
    }

    /// Makes connections besides the common ones, with a name that begins with [`EXPORT_NAME`].
    pub(super) fn connections(&self, name: &str, count: u32) -> PgPool {
        db::pool(&self.options, name, count)
    }

    /// Returns the maximum duration of an export, and of the building of a snapshot.
    #[must_use]
    pub fn longest(&self) -> Duration {
        self.longest
    }

    /// Prepares an export of a project in at most the maximum duration, and takes a place for it.
    pub async fn prepare(
        &self,
        project: &Arc<str>,
        description: &Description,
        dataset: AnyDataset,
        common: Common,
    ) -> Result<(Export, Place)> {
        let place = self.place(project).await?;
        self.in_time(async {
            let mut export = Export::fix(&self.db, project, description, dataset, common).await?;
            let extent = |mut connection: PoolConnection<Postgres>| async move {
                export.find_extent(&mut connection).await?;
                Ok(export)
            };
            self.while_awaited(place, extent).await
        })
        .await
    }

    /// Makes the profile of a data set of a project in at most the maximum duration.
    pub async fn profile(
        &self,
        project: &Arc<str>,
        description: &Description,
        dataset: AnyDataset,
        common: Common,
        memory: &Memory,
    ) -> Result<Report> {
        let (place, name, memory) = (self.place(project).await?, description.name, memory.clone());
        let (db, arriving) = (self.db.clone(), Arriving::new(&self.arriving, project));
        self.in_time(async {
            let mut export = Export::fix(&self.db, project, description, dataset, common).await?;
            let profile = |mut connection: PoolConnection<Postgres>| async move {
                export.find_extent(&mut connection).await?;
                export.profile(&mut connection, &db, name, &memory, &arriving).await
            };
            Ok(self.while_awaited(place, profile).await?.0)
        })
        .await
    }

    /// Waits for work for at most the maximum duration of an export.
    async fn in_time<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        const LATE: Error = Error::Unavailable("the rows could not be counted in time; ask for fewer rows");
        timeout(self.longest, work).await.map_err(|_| LATE)?
    }

    /// Runs statements that may take long, on a connection of their own. If nobody waits for them any more, they are
    /// canceled, and only then the place is given back. Those of a connection that is dead are given up.
    async fn while_awaited<T, S>(
        &self,
        place: Place,
        statements: impl FnOnce(PoolConnection<Postgres>) -> S,
    ) -> Result<(T, Place)>
    where
        T: Send + 'static,
        S: Future<Output = Result<T>> + Send + 'static,
    {
        let mut connection = self.db.acquire().await?;
        let process = Process::of(&mut connection).await?;
        let (statements, db) = (statements(connection), self.db.clone());
        let (mut sender, result) = oneshot::channel();
        tokio::spawn(async move {
            let mut statements = pin!(statements);
            tokio::select! {
                result = &mut statements => {
                    let _ = sender.send(result.map(|done| (done, place)));
                    return;
                }
                () = sender.closed() => {}
            }
            loop {
                match process.cancel(&db, SILENCE).await {
                    Ok(true) => {}
                    Ok(false) => return silence::note_given_up(),
                    Err(error) => {
                        recurring::warn("the statement of an export could not be canceled", error);
                    }
                }
                // Between two statements, nothing was canceled, and another one follows.
                if timeout(PAUSE, &mut statements).await.is_ok() {
                    return;
                }
            }
        });
        while_wanted(result).await.context("the statements did not end")?
    }

    /// Runs an export for at most the maximum duration. An export that takes longer is interrupted.
    pub async fn run(self, export: Export, out: mpsc::Sender<Bytes>, place: Place, memory: Memory) {
        let turns = self.turns(&export.project);
        let run = export.run(self.db, out, turns, place, memory, self.longest_page);
        if timeout(self.longest, run).await.is_err() {
            tracing::warn!(seconds = self.longest.as_secs(), "an export took too long and was stopped");
        }
    }

    /// Returns the turns at work of an export of a project.
    #[must_use]
    pub fn turns(&self, project: &str) -> Turns {
        Turns::new(&self.work, project, &self.arriving)
    }

    /// Takes a place for an export of a project, and waits for a short time if there is none, because an export whose
    /// reader is gone soon releases its place. A project gets only a part of all places, so that its readers cannot
    /// block those of other projects.
    pub async fn place(&self, project: &Arc<str>) -> Result<Place> {
        let place = timeout(PATIENCE, self.places.take(project, 1)).await;
        let taken = || Error::Unavailable("the maximum number of exports is in progress; try again");
        place.map_err(|_| taken())
    }

    /// Takes a place for the download of a snapshot, in the same way. Readers of Parquet request several parts of a
    /// file at once.
    pub async fn download(&self, project: &Arc<str>) -> Result<Place> {
        let place = timeout(PATIENCE, self.downloads.take(project, 1)).await;
        let taken = || Error::Unavailable("the maximum number of downloads is in progress; try again");
        place.map_err(|_| taken())
    }
}

/// The maximum number of seconds that a statement of Postgres may be allowed to take.
const MOST_SECONDS: u64 = (i32::MAX / 1_000) as u64;

/// Limits on exports.
#[derive(Debug, Clone, Copy, Args)]
#[command(next_help_heading = "Serving")]
pub struct Limits {
    /// The maximum number of concurrent exports of one project. An export beyond it waits for a short time and is
    /// then rejected. The limit for all projects together is four times as high.
    #[arg(long, env = "GLEANER_MOST_EXPORTS", default_value_t = Self::default().most_exports, global = true, value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub most_exports: u32,

    /// The number of seconds after which an export or the building of a snapshot is stopped. A long export can be divided
    /// into parts.
    #[arg(long, env = "GLEANER_LONGEST_EXPORT", default_value_t = Self::default().longest_export, global = true, value_name = "SECONDS",
        value_parser = clap::value_parser!(u64).range(1..=MOST_SECONDS))]
    pub longest_export: u64,

    /// The maximum number of snapshots of one project. Their files are in the database.
    #[arg(long, env = "GLEANER_MOST_SNAPSHOTS", default_value_t = Self::default().most_snapshots, global = true, value_name = "N",
        value_parser = clap::value_parser!(u32).range(0..=100_000))]
    pub most_snapshots: u32,

    /// The maximum size of a snapshot's file, in MiB.
    #[arg(long, env = "GLEANER_LARGEST_SNAPSHOT", default_value_t = Self::default().largest_snapshot, global = true, value_name = "MIB",
        value_parser = clap::value_parser!(u32).range(1..))]
    pub largest_snapshot: u32,

    /// The time after which the rows of a snapshot that is being built are counted.
    #[arg(skip = Self::default().count_after)]
    pub count_after: Duration,

    /// The time for which a page of an export waits for its reader. A statement that waits keeps the database from removing
    /// what other requests replace.
    #[arg(skip = Self::default().longest_page)]
    pub longest_page: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            most_exports: 4,
            longest_export: 3600,
            most_snapshots: 50,
            largest_snapshot: 16 << 10,
            count_after: Duration::from_secs(5),
            longest_page: Duration::from_secs(30),
        }
    }
}
