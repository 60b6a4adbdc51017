//! Group commit. Events wait in a bounded queue. A writer takes whatever is waiting, writes it in one transaction for
//! each project and domain, and responds to each caller after the commit. There is no timer: an event that arrives
//! alone is written at once.
//!
//! **Three writers.** The first does nearly all the work, because a few large transactions cost Postgres less than
//! many small ones. The second joins in when 128 events wait or when a transaction takes longer than three
//! milliseconds, so that a lock held by another transaction does not delay all events. At most two write events of
//! the same project, and only one while other projects send requests, so that one is free for the others. Events that
//! wait for their project's turn at working wait in the queue, while the writers write those of other projects.
//!
//! **What is looked up first.** A filter of visible pairs may read every pair of a project. It is evaluated before the send is
//! queued, by one of the project's connections for reading, and the writer only checks that what was found is still there. A
//! send of a batch that has a filter therefore begins another piece of it, unless there are only such sends before it.
//!
//! **What is stored.** The queue takes only what is [`Kept`]: an event is dropped, or reduced to what its project
//! stores, before it is queued. What was computed from the text, such as an attempt's verdict, stays. A match that is
//! computed only when a slate ends needs the text; if the text is not stored, keyed hashes of it are.
//!
//! **Order.** Events of one request keep their order, in batches of any size, because pieces of 512 events are committed
//! one after the other. If the database or the queue refuses an event, those after it are refused, too: an outcome that is
//! stored without the attempts before it would refuse them when the batch is sent again. An event that is sent after another was acknowledged comes after it. Concurrent requests have
//! no order, because there are several writers.

mod away;
mod commit;
mod connection;
mod queue;

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use sqlx::PgPool;
use tokio::sync::{Notify, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

use self::away::Away;
use self::connection::KeptConnection;
use self::queue::Queue;
use crate::db::gin;
use crate::db::made::{self, Made};
use crate::db::receipt::{Receipt, Written};
use crate::db::silence::LongestStatement;
use crate::domain::Event;
use crate::error::{Error, Result};
use crate::http::memory::{Budget, Memory, Queued};
use crate::outage::Outage;
use crate::privacy::capture::Capture;
use crate::privacy::kept::Kept;
use crate::projects::Tenant;
use crate::sharing::{Entry, Pauses, Place, Shares, Turn, Work};

/// The maximum number of events of one project that may wait or be written at a time. Beyond that, callers get a 503.
const QUEUE: usize = 16_384;
/// The maximum number of events of one request that are written together. A transaction accepts further requests
/// until it has this many events. An event that takes long counts as many ([`Event::weight`]).
const BATCH: usize = 512;
/// The number of writers, each with a database connection.
pub const WRITERS: u32 = 3;
/// The maximum number of writers that write events of the same project at the same time, if no other project sends
/// requests. The last one is free for other projects.
const WRITERS_OF_ONE: usize = 2;
/// The duration of the first writer's transaction after which another writer joins in.
const LATE: Duration = Duration::from_millis(3);
/// How long the writers may take to end once the server is stopping.
const END: Duration = Duration::from_secs(30);

struct Job {
    tenant: Arc<Tenant>,
    events: Vec<Kept<Event>>,
    reply: oneshot::Sender<Vec<Written>>,
    /// What the request holds of the memory for bodies, until its events are written.
    _memory: Memory,
    _queued: Option<Queued>,
    _room: Place,
}

/// The queue of events to write. Clones share one queue.
#[derive(Clone)]
pub struct Writer {
    queue: Arc<Queue<Job>>,
    room: Shares,
    /// Memory for the events of short requests.
    waiting: Budget,
    away: Arc<Away>,
    /// Connections for reading, the places of projects at using them, and the turns at working.
    reading: (PgPool, Shares, Arc<Work>),
}

/// The background tasks of writing.
#[derive(Debug)]
pub struct Tasks {
    stop: watch::Sender<bool>,
    handles: Vec<JoinHandle<()>>,
    tidying: JoinHandle<()>,
}

impl Tasks {
    /// Accepts no further events, and waits until those accepted are committed or refused, unless that takes long, for
    /// example because of a lock in the database. Nobody was told that the others are written.
    pub async fn finish(self) {
        let _ = self.stop.send(true);
        self.tidying.abort();
        let end = Instant::now() + END;
        for mut handle in self.handles {
            match timeout_at(end, &mut handle).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::error!(%error, "a writer failed"),
                Err(_) => {
                    tracing::warn!("a writer did not end in time and was stopped");
                    handle.abort();
                }
            }
        }
    }
}

impl Writer {
    /// Starts the writers on `db`, a pool of their own. If the database is silent for `silence`, they ask whether it still works
    /// on what they write. Events of short requests take memory of `waiting`. On `others`, at which projects have the places
    /// `reading`, there is the upkeep of the GIN indexes, and what events refer to is looked up.
    #[must_use]
    pub fn start(
        db: &PgPool,
        silence: Duration,
        waiting: Budget,
        others: &PgPool,
        reading: &Shares,
        work: &Arc<Work>,
        longest: LongestStatement,
    ) -> (Self, Tasks) {
        let queue = Arc::new(Queue::<Job>::new(WRITERS_OF_ONE, Arc::clone(work)));
        let (stop, stopped) = watch::channel(false);
        let away = Arc::<Away>::default();
        let task = Task {
            queue: Arc::clone(&queue),
            away: Arc::clone(&away),
            work: Arc::clone(work),
            stopped,
            written: Arc::default(),
        };
        let tidying = tokio::spawn(gin::run(others.clone(), Arc::clone(&task.written), longest));
        let connection = || KeptConnection::new(db.clone(), silence);
        let mut handles: Vec<_> =
            (1..WRITERS).map(|_| tokio::spawn(task.clone().help(connection()))).collect();
        handles.push(tokio::spawn(task.run(connection())));
        let room = Shares::new(QUEUE);
        let reading = (others.clone(), reading.clone(), Arc::clone(work));
        (Self { queue, room, waiting, away, reading }, Tasks { stop, handles, tidying })
    }

    /// Writes what the project keeps of one event. Returns once that is committed. The queue keeps `memory`
    /// until then.
    pub async fn write(&self, tenant: &Arc<Tenant>, event: impl Into<Event>, memory: &Memory) -> Written {
        let mut written = self.write_all(tenant, vec![event.into()], memory).await;
        written.pop().unwrap_or_else(|| Err(anyhow::anyhow!("an event without a verdict").into()))
    }

    /// Writes what the project keeps of the events, in their order. Many events are written in pieces,
    /// between which other requests get their turn. Returns once each event is committed or refused.
    pub async fn write_all(&self, tenant: &Arc<Tenant>, events: Vec<Event>, memory: &Memory) -> Vec<Written> {
        self.write_more(tenant, events, memory, false).await
    }

    /// Writes events as [`Writer::write_all`] does. If the request `has_begun` to write others, these wait for room in the queue.
    pub async fn write_more(
        &self,
        tenant: &Arc<Tenant>,
        events: Vec<Event>,
        memory: &Memory,
        has_begun: bool,
    ) -> Vec<Written> {
        let mut verdicts: Vec<Option<Written>> = Vec::with_capacity(events.len());
        let (mut kept, mut members) = (Vec::with_capacity(events.len()), Vec::with_capacity(events.len()));
        let mut pauses = Pauses::begin();
        let taken = self.take_room(tenant, &events, memory).await;
        for (index, (event, taken)) in events.into_iter().zip(taken).enumerate() {
            pauses.pause().await;
            let capture = tenant.policy.capture(event.domain());
            if let Err(full) = taken {
                verdicts.push(Some(Err(full)));
                continue;
            }
            match tenant.keep(event).await {
                Some(event) => {
                    members.push((index, capture, event.redacted()));
                    kept.push(event);
                    verdicts.push(None);
                }
                None => verdicts.push(Some(Ok(Receipt { kept: Capture::Off, ..Receipt::created(None) }))),
            }
        }
        let written = self.write_kept(tenant, kept, memory, has_begun).await;
        for ((index, kept, redacted), written) in members.into_iter().zip(written) {
            verdicts[index] = Some(written.map(|receipt| Receipt { kept, redacted, ..receipt }));
        }
        verdicts.into_iter().map(|verdict| verdict.expect("every event is kept or not")).collect()
    }

    /// Takes room for the records that each event makes. If the quota has no room for an event, only those of its records count that
    /// are not stored yet.
    async fn take_room(&self, tenant: &Tenant, events: &[Event], memory: &Memory) -> Vec<Result<()>> {
        let take = |records| tenant.room.take(records, tenant.quotas.rows);
        let (mut taken, mut again) = (Vec::with_capacity(events.len()), Vec::new());
        for (index, event) in events.iter().enumerate() {
            let is_kept = tenant.policy.capture(event.domain()) != Capture::Off;
            let made = event.made().filter(|_| is_kept);
            taken.push(made.as_ref().map_or(Ok(()), |made| take(made.records)));
            again
                .extend(made.filter(|made| taken[index].is_err() && !made.found.is_empty()).zip(Some(index)));
        }
        if again.is_empty() {
            return taken;
        }
        let (made, indices): (Vec<_>, Vec<_>) = again.into_iter().unzip();
        match self.more(tenant, &made, memory).await {
            Ok(more) => indices.iter().zip(more).for_each(|(index, more)| taken[*index] = take(more)),
            Err(error) => {
                const NOT_BEFORE: &str = "an event before this one was not written; try again";
                taken.truncate(indices[0]);
                taken.push(Err(error));
                taken.resize_with(events.len(), || Err(Error::Unavailable(NOT_BEFORE)));
            }
        }
        taken
    }

    /// Returns by how many each event increases the number of the project's records.
    async fn more(&self, tenant: &Tenant, made: &[Made], memory: &Memory) -> Result<Vec<usize>> {
        let _entered = self.enter(tenant, memory).await?;
        Ok(made::more(&mut *self.reading.0.acquire().await?, &tenant.name, made).await?)
    }

    /// Waits for a place among the requests of the project that read, unless the request has one: it would wait for itself.
    async fn enter(&self, tenant: &Tenant, memory: &Memory) -> Result<Option<(Place, Option<Turn>)>> {
        let (_, places, work) = &self.reading;
        if memory.has_place() {
            return Ok(None);
        }
        Entry::to_read(&tenant.name, places, work).take().await.map(Some)
    }

    async fn write_kept(
        &self,
        tenant: &Arc<Tenant>,
        mut events: Vec<Kept<Event>>,
        memory: &Memory,
        has_begun: bool,
    ) -> Vec<Written> {
        let mut written = Vec::with_capacity(events.len());
        while !events.is_empty() {
            let (mut weight, mut has_others) = (0, false);
            let fits = |event: &&Kept<Event>| {
                weight += event.weight();
                let follows = has_others && event.looks_up();
                has_others |= !event.looks_up();
                weight <= BATCH && !follows
            };
            let together = events.iter().take_while(fits).count().max(1);
            let rest = events.split_off(together);
            let (mut verdicts, mut ready) = (Vec::with_capacity(together), Vec::with_capacity(together));
            for event in events {
                let refused = if event.looks_up() {
                    memory.end_turn();
                    self.look_up(tenant, &event, memory).await.err()
                } else {
                    None
                };
                if refused.is_none() {
                    ready.push(event);
                }
                verdicts.push(refused.map(Err));
            }
            // Only the first piece is refused when the queue is full, because a batch that has begun is
            // better finished.
            let may_refuse = written.is_empty() && !has_begun;
            let submitted = self.submit(tenant, ready, memory, may_refuse).await;
            let mut submitted = submitted.map(Vec::into_iter);
            written.extend(verdicts.into_iter().map(|refused| match (refused, &mut submitted) {
                (Some(refused), _) => refused,
                (None, Ok(piece)) => piece.next().expect("every event has a verdict"),
                (None, Err(reason)) => Err(Error::Unavailable(reason)),
            }));
            let total = written.len() + rest.len();
            if refuse_rest(&mut written, total) {
                return written;
            }
            events = rest;
        }
        written
    }

    /// Looks up what an event refers to, as a request of its project that reads, and holds memory for it. It is in a box, because a
    /// request is as large as the largest of its parts that is not, and few events look anything up.
    fn look_up<'a>(
        &'a self,
        tenant: &'a Tenant,
        event: &'a Event,
        memory: &'a Memory,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async {
            let entered = self.enter(tenant, memory).await?;
            let bytes = event.look_up(&mut *self.reading.0.acquire().await?, &tenant.name).await?;
            drop(entered);
            memory.hold(bytes).await
        })
    }

    /// Returns how many events are waiting or being written.
    #[must_use]
    pub fn queued(&self) -> usize {
        self.room.taken()
    }

    /// Returns why events cannot be written, if the last attempt has failed because of the database.
    #[must_use]
    pub fn outage(&self) -> Option<Outage> {
        self.away.outage()
    }

    /// Queues a piece and waits for its verdicts. The error says why it was not accepted. With `may_refuse` a
    /// full queue is an error; otherwise the piece waits for room.
    async fn submit(
        &self,
        tenant: &Arc<Tenant>,
        events: Vec<Kept<Event>>,
        memory: &Memory,
        may_refuse: bool,
    ) -> Result<Vec<Written>, &'static str> {
        const FULL: &str = "the queue is full; try again";
        const STOPPING: &str = "the server is stopping; try again";
        if events.is_empty() {
            return Ok(Vec::new());
        }
        let size = u32::try_from(events.len()).unwrap_or(u32::MAX);
        let room = if may_refuse {
            self.room.try_take(&tenant.name, size).ok_or(FULL)?
        } else {
            self.room.take(&tenant.name, size).await
        };
        let queued = memory.queue(&self.waiting);
        if queued.is_none() && may_refuse {
            return Err(FULL);
        }
        memory.end_turn();
        let weight = events.iter().map(|event| event.weight()).sum();
        let (reply, written) = oneshot::channel();
        let job = Job {
            tenant: Arc::clone(tenant),
            events,
            reply,
            _memory: memory.clone(),
            _queued: queued,
            _room: room,
        };
        if !self.queue.push(&tenant.name, weight, job) {
            return Err(STOPPING);
        }
        written.await.map_err(|_| STOPPING)
    }
}

/// Refuses the rest of so many events if the database or the queue refused one before, which they may need. Returns whether
/// it did.
pub fn refuse_rest(written: &mut Vec<Written>, total: usize) -> bool {
    let refused = written.iter().find_map(|written| match written {
        Err(Error::Unavailable(reason)) => Some(*reason),
        _ => None,
    });
    if let Some(reason) = refused {
        written.resize_with(total, || Err(Error::Unavailable(reason)));
    }
    refused.is_some()
}

/// What a writer needs to run.
#[derive(Clone)]
struct Task {
    queue: Arc<Queue<Job>>,
    away: Arc<Away>,
    work: Arc<Work>,
    stopped: watch::Receiver<bool>,
    /// Notified after each transaction.
    written: Arc<Notify>,
}

impl Task {
    /// Runs the first writer, which takes whatever waits until the queue is closed and empty.
    async fn run(mut self, mut connection: KeptConnection) {
        loop {
            let Some(batch) = self.queue.take(BATCH) else {
                if self.queue.is_finished() {
                    return;
                }
                tokio::select! {
                    biased;
                    () = self.queue.arrived.notified() => {}
                    // Events already accepted are still written.
                    _ = self.stopped.changed(), if !self.queue.is_closed() => self.queue.close(),
                    () = self.away.try_again(&mut connection) => {}
                }
                continue;
            };
            let mut commit = std::pin::pin!(commit::commit(&mut connection, &self.away, batch));
            // What another project has to write does not wait for this.
            let late = if self.work.is_shared() { Duration::ZERO } else { LATE };
            if tokio::time::timeout(late, &mut commit).await.is_err() {
                self.queue.set_late(true);
                commit.await;
                self.queue.set_late(false);
            }
            self.written.notify_one();
        }
    }

    /// Runs a further writer, which takes what waits only when that is much or when the first writer is late.
    async fn help(mut self, mut connection: KeptConnection) {
        loop {
            tokio::select! {
                () = self.queue.help.notified() => {}
                _ = self.stopped.changed() => return,
            }
            if let Some(batch) = self.queue.take(BATCH) {
                commit::commit(&mut connection, &self.away, batch).await;
                self.written.notify_one();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn writers_that_do_not_end_are_stopped_with_the_server() {
        let begun = Instant::now();
        let endless = || tokio::spawn(std::future::pending());
        let tasks =
            Tasks { stop: watch::channel(false).0, handles: vec![endless(), endless()], tidying: endless() };
        tasks.finish().await;
        assert_eq!(begun.elapsed(), END);
    }
}
