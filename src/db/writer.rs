//! Group commit: events wait in a bounded queue; a writer takes whatever is waiting, writes it in one transaction a
//! project, and answers each caller after the commit. There is no timer: alone, an event is written at once.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use sqlx::pool::PoolConnection;
use sqlx::{PgConnection, PgPool, Postgres};
use tokio::sync::{Mutex, Notify, OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};
use tokio::task::JoinHandle;

use crate::auth::Keyring;
use crate::error::{Error, Result, is_connection_lost};
use crate::projects::{Capture, Captures, Tenant};
use crate::{generations, searches, suggestions};

/// How many events may wait; beyond that a caller is told to come back.
const QUEUE: usize = 16_384;
/// How many events one transaction takes, before it takes no further request; and how many of one request at a time.
const BATCH: usize = 512;
/// How many transactions are under way at once: while one waits for the disk, the next is filled.
pub const WRITERS: u32 = 2;
/// How often a transaction that lost against another one is tried again.
const TRIES: usize = 5;

/// Something that happens to a record of some domain, validated and with its id and times made.
#[derive(Debug)]
pub enum Event {
    /// To a generation log.
    Generation(generations::Event),
    /// To a suggestion record.
    Suggestion(suggestions::Event),
    /// To a search.
    Search(searches::Event),
}

/// What kind of record an event happens to: those of one kind are written together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Domain {
    Generations,
    Suggestions,
    Searches,
}

impl Event {
    fn domain(&self) -> Domain {
        match self {
            Self::Generation(_) => Domain::Generations,
            Self::Suggestion(_) => Domain::Suggestions,
            Self::Search(_) => Domain::Searches,
        }
    }

    /// How much of it is kept.
    fn capture(&self, captures: Captures) -> Capture {
        match self {
            Self::Generation(_) => captures.generations,
            Self::Suggestion(_) => captures.suggestions,
            Self::Search(_) => captures.searches,
        }
    }

    /// What of it is kept, if anything is.
    fn reduced(mut self, tenant: &Tenant) -> Option<Self> {
        match (self.capture(tenant.captures), &mut self) {
            (Capture::Full, _) => {}
            (Capture::Metadata, Self::Generation(event)) => event.reduce(&tenant.key),
            (Capture::Metadata, Self::Suggestion(event)) => event.reduce(&tenant.key),
            // A search is nothing without its text.
            (Capture::Metadata, Self::Search(_)) | (Capture::Off, _) => return None,
        }
        Some(self)
    }
}

/// That an event is committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Receipt {
    /// It had been sent before; nothing was changed.
    pub replayed: bool,
    /// The number it has within its record, where its kind has one.
    pub number: Option<i32>,
    /// How much of it is kept.
    pub kept: Capture,
}

impl Receipt {
    /// It is new.
    #[must_use]
    pub fn created(number: Option<i32>) -> Self {
        Self { replayed: false, number, kept: Capture::Full }
    }

    /// It was there.
    #[must_use]
    pub fn replayed(number: Option<i32>) -> Self {
        Self { replayed: true, number, kept: Capture::Full }
    }
}

/// What became of one event.
pub type Written = Result<Receipt>;

struct Job {
    project: Arc<str>,
    events: Vec<Event>,
    reply: oneshot::Sender<Vec<Written>>,
    _room: OwnedSemaphorePermit,
}

/// Where events are handed in. Clones share one queue.
#[derive(Debug, Clone)]
pub struct Writer {
    queue: mpsc::UnboundedSender<Job>,
    room: Arc<Semaphore>,
    keyring: Arc<Keyring>,
}

/// The tasks that write what is handed in.
#[derive(Debug)]
pub struct Tasks {
    stop: watch::Sender<bool>,
    handles: Vec<JoinHandle<()>>,
    tidying: JoinHandle<()>,
}

impl Tasks {
    /// Takes no more events, and waits until all that were taken are committed or refused.
    pub async fn finish(self) {
        let _ = self.stop.send(true);
        self.tidying.abort();
        for handle in self.handles {
            if let Err(error) = handle.await {
                tracing::error!(%error, "a writer ended badly");
            }
        }
    }
}

impl Writer {
    /// Starts the writers on `db`, a pool of their own; what they leave behind is tidied on `tidy_db`. The keyring knows
    /// what each project keeps.
    #[must_use]
    pub fn start(db: &PgPool, tidy_db: &PgPool, keyring: Arc<Keyring>) -> (Self, Tasks) {
        let (queue, jobs) = mpsc::unbounded_channel();
        let (stop, stopped) = watch::channel(false);
        let jobs = Arc::new(Mutex::new(jobs));
        let written = Arc::new(Notify::new());
        let writer = || run(db.clone(), Arc::clone(&jobs), stopped.clone(), Arc::clone(&written));
        let handles = (0..WRITERS).map(|_| tokio::spawn(writer())).collect();
        let tidying = tokio::spawn(super::tidy::run(tidy_db.clone(), written));
        (Self { queue, room: Arc::new(Semaphore::new(QUEUE)), keyring }, Tasks { stop, handles, tidying })
    }

    /// Writes one event; returns once it is committed.
    pub async fn write(&self, project: &Arc<str>, event: Event) -> Written {
        let mut written = self.write_all(project, vec![event]).await;
        written.pop().unwrap_or_else(|| Err(anyhow::anyhow!("an event without a verdict").into()))
    }

    /// Writes what the project keeps of events, in their order, in pieces that leave room for others; returns once each is
    /// committed or refused. Every event there is passes here, so none is kept against a project's choice.
    pub async fn write_all(&self, project: &Arc<str>, events: Vec<Event>) -> Vec<Written> {
        let Ok(tenant) = self.keyring.tenant(project).await else {
            const UNKNOWN: &str = "the project's settings cannot be read; try again";
            return events.iter().map(|_| Err(Error::Unavailable(UNKNOWN))).collect();
        };
        if tenant.captures == Captures::default() {
            return self.write_kept(project, events).await;
        }
        let kept: Vec<_> = events.iter().map(|event| event.capture(tenant.captures)).collect();
        let events = events.into_iter().filter_map(|event| event.reduced(&tenant)).collect();
        let mut written = self.write_kept(project, events).await.into_iter();
        let verdict = |kept| match kept {
            Capture::Off => Some(Ok(Receipt { kept, ..Receipt::created(None) })),
            Capture::Full | Capture::Metadata => {
                written.next().map(|written| written.map(|receipt| Receipt { kept, ..receipt }))
            }
        };
        kept.into_iter().filter_map(verdict).collect()
    }

    async fn write_kept(&self, project: &Arc<str>, mut events: Vec<Event>) -> Vec<Written> {
        let mut written = Vec::with_capacity(events.len());
        while !events.is_empty() {
            let rest = events.split_off(events.len().min(BATCH));
            let size = events.len();
            // Only the first piece is turned away from a full queue: what has begun is to be finished.
            match self.submit(project, events, written.is_empty()).await {
                Ok(piece) => written.extend(piece),
                Err(reason) => written.extend((0..size).map(|_| Err(Error::Unavailable(reason)))),
            }
            events = rest;
        }
        written
    }

    /// How many events wait or are being written.
    #[must_use]
    pub fn queued(&self) -> usize {
        QUEUE - self.room.available_permits()
    }

    /// Has a piece written; an error says why it was not taken.
    async fn submit(
        &self,
        project: &Arc<str>,
        events: Vec<Event>,
        may_refuse: bool,
    ) -> Result<Vec<Written>, &'static str> {
        const STOPPING: &str = "the server is stopping; try again";
        let size = u32::try_from(events.len()).unwrap_or(u32::MAX);
        let room = Arc::clone(&self.room);
        let room = if may_refuse {
            room.try_acquire_many_owned(size).map_err(|_| "the queue is full; try again")?
        } else {
            room.acquire_many_owned(size).await.map_err(|_| STOPPING)?
        };
        let (reply, written) = oneshot::channel();
        let job = Job { project: Arc::clone(project), events, reply, _room: room };
        self.queue.send(job).map_err(|_| STOPPING)?;
        written.await.map_err(|_| STOPPING)
    }
}

async fn run(
    db: PgPool,
    jobs: Arc<Mutex<mpsc::UnboundedReceiver<Job>>>,
    mut stopped: watch::Receiver<bool>,
    written: Arc<Notify>,
) {
    let mut hand = Hand { db, connection: None };
    loop {
        let mut batch = Vec::new();
        {
            let mut jobs = jobs.lock().await;
            let first = tokio::select! {
                biased;
                first = jobs.recv() => first,
                _ = stopped.changed() => {
                    // What was taken is still written; after that the closed queue yields nothing.
                    jobs.close();
                    jobs.recv().await
                }
            };
            let Some(first) = first else { return };
            let mut size = first.events.len();
            batch.push(first);
            while size < BATCH
                && let Ok(next) = jobs.try_recv()
            {
                size += next.events.len();
                batch.push(next);
            }
        }
        commit(&mut hand, batch).await;
        written.notify_one();
    }
}

/// Writes the jobs' events, a transaction for each project and domain, and answers each job.
async fn commit(hand: &mut Hand, jobs: Vec<Job>) {
    let started = Instant::now();
    let mut verdicts: Vec<Vec<Option<Written>>> =
        jobs.iter().map(|job| job.events.iter().map(|_| None).collect()).collect();
    let mut groups: BTreeMap<(&str, Domain), Vec<(usize, usize)>> = BTreeMap::new();
    for (number, job) in jobs.iter().enumerate() {
        for (place, event) in job.events.iter().enumerate() {
            groups.entry((&*job.project, event.domain())).or_default().push((number, place));
        }
    }
    for ((project, _), places) in groups {
        let events: Vec<_> = places.iter().map(|&(job, place)| &jobs[job].events[place]).collect();
        for (&(job, place), written) in places.iter().zip(write_project(hand, project, &events).await) {
            verdicts[job][place] = Some(written);
        }
        metrics::histogram!("gleaner_commit_events").record(events.len() as f64);
    }
    metrics::histogram!("gleaner_commit_duration_seconds").record(started.elapsed().as_secs_f64());
    for (job, verdicts) in jobs.into_iter().zip(verdicts) {
        // A caller that went away does not wait for the answer; its events are written all the same.
        let _ = job.reply.send(verdicts.into_iter().flatten().collect());
    }
}

/// Whether the database was away when it was last written to.
static AWAY: AtomicBool = AtomicBool::new(false);

/// Writes events of one project and domain together; where one of them makes the statement fail, each by itself.
async fn write_project(hand: &mut Hand, project: &str, events: &[&Event]) -> Vec<Written> {
    match try_write(hand, project, events).await {
        Ok(written) => {
            if AWAY.swap(false, Ordering::Relaxed) {
                tracing::info!("the database is back: events are written");
            }
            written
        }
        Err(error) if is_connection_lost(&error) => {
            // Once an outage: every batch of every client meets it.
            if !AWAY.swap(true, Ordering::Relaxed) {
                tracing::warn!(%error, "events cannot be written: the database is away");
            }
            events
                .iter()
                .map(|_| Err(Error::Unavailable("the database cannot be reached; try again")))
                .collect()
        }
        Err(error) if events.len() == 1 => vec![Err(error.into())],
        Err(error) => {
            tracing::warn!(%error, events = events.len(), "a batch failed; writing its events one by one");
            let mut written = Vec::with_capacity(events.len());
            for &event in events {
                written.extend(Box::pin(write_project(hand, project, &[event])).await);
            }
            written
        }
    }
}

async fn try_write(hand: &mut Hand, project: &str, events: &[&Event]) -> sqlx::Result<Vec<Written>> {
    let mut tries = 0;
    loop {
        match apply(hand.connection().await?, project, events).await {
            Err(error) if tries < TRIES && lost_a_race(&error) => {
                tries += 1;
                metrics::counter!("gleaner_commit_retries_total").increment(1);
                tokio::time::sleep(Duration::from_millis(1 << tries)).await;
            }
            Err(error) => {
                // Whatever state it is in, the next batch takes another.
                hand.connection = None;
                return Err(error);
            }
            written => return written,
        }
    }
}

/// A writer's hold of the database.
struct Hand {
    db: PgPool,
    /// The connection, and when it was last used. It is kept from batch to batch: the pool tests connections that come and
    /// go, at a round trip each.
    connection: Option<(PoolConnection<Postgres>, Instant)>,
}

impl Hand {
    /// After so long a connection is given back, so that the pool tests it before it is used again.
    const REST: Duration = Duration::from_secs(1);

    async fn connection(&mut self) -> sqlx::Result<&mut PgConnection> {
        let connection = match self.connection.take() {
            Some((connection, used)) if used.elapsed() < Self::REST => connection,
            rested => {
                drop(rested);
                self.db.acquire().await?
            }
        };
        let (connection, _) = self.connection.insert((connection, Instant::now()));
        Ok(connection)
    }
}

/// Writes events of one project and domain in one transaction. Records of different domains know nothing of each other, so
/// events of one keep no order with those of another.
async fn apply(
    connection: &mut PgConnection,
    project: &str,
    events: &[&Event],
) -> sqlx::Result<Vec<Written>> {
    let (mut generations, mut suggestions, mut searches) = (Vec::new(), Vec::new(), Vec::new());
    for event in events {
        match event {
            Event::Generation(event) => generations.push(event),
            Event::Suggestion(event) => suggestions.push(event),
            Event::Search(event) => searches.push(event),
        }
    }
    // They are of one domain. What each needs to remember is large, and would be moved by everyone who waits for it.
    if !generations.is_empty() {
        Box::pin(generations::write::write(connection, project, &generations)).await
    } else if !suggestions.is_empty() {
        Box::pin(suggestions::write::write(connection, project, &suggestions)).await
    } else {
        Box::pin(searches::write::write(connection, project, &searches)).await
    }
}

/// A deadlock or serialization failure: the same again may well succeed.
pub(crate) fn lost_a_race(error: &sqlx::Error) -> bool {
    error
        .as_database_error()
        .and_then(sqlx::error::DatabaseError::code)
        .is_some_and(|code| code == "40001" || code == "40P01")
}
