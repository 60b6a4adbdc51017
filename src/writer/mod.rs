//! Group commit: events wait in a bounded queue; a writer takes whatever is waiting, writes it in one transaction a
//! project and domain, and answers each caller after the commit. There is no timer: alone, an event is written at once.
//!
//! One writer does nearly all. A second one joins in where much is waiting, or where the first one's transaction takes long,
//! so that a lock which somebody else holds does not keep everybody waiting.

mod commit;
mod connection;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use sqlx::PgPool;
use tokio::sync::{Mutex, Notify, OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};
use tokio::task::JoinHandle;

use self::connection::KeptConnection;
use crate::db::gin;
use crate::db::receipt::{Receipt, Written};
use crate::domain::Event;
use crate::error::Error;
use crate::privacy::capture::Capture;
use crate::privacy::kept::Kept;
use crate::projects::Tenant;

/// How many events may wait; beyond that a caller is told to come back.
const QUEUE: usize = 16_384;
/// How many events one transaction takes, before it takes no further request; and how many of one request at a time.
const BATCH: usize = 512;
/// How many connections writing takes.
pub const WRITERS: u32 = 2;
/// How many events must wait before a second transaction is begun beside one that is under way. Few transactions of many
/// events cost Postgres less than many of few, so what comes meanwhile mostly waits for the first one to end.
const ENOUGH: usize = BATCH / 4;
/// How long a transaction may take before others no longer wait for it.
const LATE: Duration = Duration::from_millis(3);

struct Job {
    tenant: Arc<Tenant>,
    events: Vec<Kept<Event>>,
    reply: oneshot::Sender<Vec<Written>>,
    _room: OwnedSemaphorePermit,
}

/// Where events are handed in. Clones share one queue.
#[derive(Debug, Clone)]
pub struct Writer {
    queue: mpsc::UnboundedSender<Job>,
    room: Arc<Semaphore>,
    load: Arc<Load>,
}

/// How much there is to write, and whether the first writer keeps up with it.
#[derive(Debug, Default)]
struct Load {
    /// How many events are in the queue.
    waiting: AtomicUsize,
    /// Whether the first writer's transaction takes long.
    late: AtomicBool,
    /// Wakes the second writer.
    help: Notify,
}

impl Load {
    /// Wakes the second writer if there is something for it to do.
    fn check(&self) {
        let waiting = self.waiting.load(Ordering::Relaxed);
        if waiting >= ENOUGH || waiting > 0 && self.late.load(Ordering::Relaxed) {
            self.help.notify_one();
        }
    }
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
    /// Starts the tasks that write. They write on `db`, a pool of their own; the indexes are tidied on `tidy_db`.
    #[must_use]
    pub fn start(db: &PgPool, tidy_db: &PgPool) -> (Self, Tasks) {
        let (queue, jobs) = mpsc::unbounded_channel();
        let (stop, stopped) = watch::channel(false);
        let load = Arc::<Load>::default();
        let task = Task {
            jobs: Arc::new(Mutex::new(jobs)),
            load: Arc::clone(&load),
            stopped,
            written: Arc::default(),
        };
        let tidying = tokio::spawn(gin::run(tidy_db.clone(), Arc::clone(&task.written)));
        let second = tokio::spawn(task.clone().help(KeptConnection::new(db.clone())));
        let first = tokio::spawn(task.run(KeptConnection::new(db.clone())));
        let room = Arc::new(Semaphore::new(QUEUE));
        (Self { queue, room, load }, Tasks { stop, handles: vec![first, second], tidying })
    }

    /// Writes what the project keeps of one event; returns once it is committed.
    pub async fn write(&self, tenant: &Arc<Tenant>, event: impl Into<Event>) -> Written {
        let mut written = self.write_all(tenant, vec![event.into()]).await;
        written.pop().unwrap_or_else(|| Err(anyhow::anyhow!("an event without a verdict").into()))
    }

    /// Writes what the project keeps of events, in their order, in pieces that leave room for others; returns once each is
    /// committed or refused.
    pub async fn write_all(&self, tenant: &Arc<Tenant>, events: Vec<Event>) -> Vec<Written> {
        let mut verdicts: Vec<Option<Written>> = Vec::with_capacity(events.len());
        let (mut kept, mut members) = (Vec::with_capacity(events.len()), Vec::with_capacity(events.len()));
        for (index, event) in events.into_iter().enumerate() {
            let capture = tenant.policy.capture(event.domain());
            match tenant.policy.keep(event) {
                Some(event) => {
                    kept.push(event);
                    members.push((index, capture));
                    verdicts.push(None);
                }
                None => verdicts.push(Some(Ok(Receipt { kept: Capture::Off, ..Receipt::created(None) }))),
            }
        }
        for ((index, kept), written) in members.into_iter().zip(self.write_kept(tenant, kept).await) {
            verdicts[index] = Some(written.map(|receipt| Receipt { kept, ..receipt }));
        }
        verdicts.into_iter().map(|verdict| verdict.expect("every event is kept or not")).collect()
    }

    async fn write_kept(&self, tenant: &Arc<Tenant>, mut events: Vec<Kept<Event>>) -> Vec<Written> {
        let mut written = Vec::with_capacity(events.len());
        while !events.is_empty() {
            let rest = events.split_off(events.len().min(BATCH));
            let size = events.len();
            // Only the first piece is turned away from a full queue: what has begun is to be finished.
            match self.submit(tenant, events, written.is_empty()).await {
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
        tenant: &Arc<Tenant>,
        events: Vec<Kept<Event>>,
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
        let job = Job { tenant: Arc::clone(tenant), events, reply, _room: room };
        self.load.waiting.fetch_add(size as usize, Ordering::Relaxed);
        self.queue.send(job).map_err(|_| STOPPING)?;
        self.load.check();
        written.await.map_err(|_| STOPPING)
    }
}

/// What a writer's task works with.
#[derive(Clone)]
struct Task {
    jobs: Arc<Mutex<mpsc::UnboundedReceiver<Job>>>,
    load: Arc<Load>,
    stopped: watch::Receiver<bool>,
    /// Told after each transaction.
    written: Arc<Notify>,
}

impl Task {
    /// The first writer: takes whatever waits, until the queue is closed and empty.
    async fn run(mut self, mut connection: KeptConnection) {
        loop {
            let batch = {
                let mut jobs = self.jobs.lock().await;
                let first = tokio::select! {
                    biased;
                    first = jobs.recv() => first,
                    _ = self.stopped.changed() => {
                        // What was taken is still written; after that the closed queue yields nothing.
                        jobs.close();
                        jobs.recv().await
                    }
                };
                let Some(first) = first else { return };
                self.take(first, &mut jobs)
            };
            let mut commit = std::pin::pin!(commit::commit(&mut connection, batch));
            if tokio::time::timeout(LATE, &mut commit).await.is_err() {
                self.load.late.store(true, Ordering::Relaxed);
                self.load.check();
                commit.await;
                self.load.late.store(false, Ordering::Relaxed);
            }
            self.written.notify_one();
        }
    }

    /// The second writer: takes what waits only when there is a lot of it, or when the first one is late.
    async fn help(mut self, mut connection: KeptConnection) {
        loop {
            tokio::select! {
                () = self.load.help.notified() => {}
                _ = self.stopped.changed() => return,
            }
            // The first writer holds the queue only while it waits for something to come in.
            let batch = self.jobs.try_lock().ok().and_then(|mut jobs| {
                let first = jobs.try_recv().ok()?;
                Some(self.take(first, &mut jobs))
            });
            if let Some(batch) = batch {
                commit::commit(&mut connection, batch).await;
                self.written.notify_one();
                self.load.check();
            }
        }
    }

    /// A batch of `first` and as much of what waits behind it as one transaction takes.
    fn take(&self, first: Job, jobs: &mut mpsc::UnboundedReceiver<Job>) -> Vec<Job> {
        let mut size = first.events.len();
        let mut batch = vec![first];
        while size < BATCH
            && let Ok(next) = jobs.try_recv()
        {
            size += next.events.len();
            batch.push(next);
        }
        self.load.waiting.fetch_sub(size, Ordering::Relaxed);
        batch
    }
}
