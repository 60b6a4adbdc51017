//! The database connection that a writer keeps between batches.

use std::sync::Arc;
use std::time::{Duration, Instant};

use sqlx::{ConnectOptions as _, Connection as _, PgConnection, PgPool};
use tokio::time::{sleep, timeout};

use crate::db::process::Process;
use crate::db::silence::silent;
use crate::db::writer_name;

/// A writer's connection and when it was last used. It is kept between batches because a test of every connection costs a
/// round trip.
///
/// It does not belong to the pool any more, so that it is closed when it is dropped, in whatever state it is. The pool would
/// wait for ever until a statement in progress ends, and nobody says so when a connection dies because the machine of the
/// database loses power, or because something between the machines forgets it.
pub(super) struct KeptConnection {
    db: PgPool,
    silence: Duration,
    connection: Option<Kept>,
}

struct Kept {
    connection: PgConnection,
    /// The process of Postgres that serves the connection.
    process: Process,
    used: Instant,
    /// The project whose name the connection has.
    project: Option<Arc<str>>,
}

/// Finds out whether Postgres still works on what a connection has sent.
pub(super) struct Watch {
    db: PgPool,
    silence: Duration,
    process: Process,
}

impl KeptConnection {
    /// How long the connection may be idle without being tested before its next use.
    const REST: Duration = Duration::from_secs(1);
    /// How long the test may take.
    const TEST: Duration = Duration::from_secs(5);

    /// Makes one that connects by a pool when it is first used. Nothing but a write takes longer than `silence`.
    pub(super) fn new(db: PgPool, silence: Duration) -> Self {
        Self { db, silence, connection: None }
    }

    /// Returns the connection, with the name of the project in which it is going to write.
    pub(super) async fn named(&mut self, project: &Arc<str>) -> sqlx::Result<(&mut PgConnection, Watch)> {
        const NAME: &str = "select set_config('application_name', $1, false)";
        let taking = async {
            let mut kept = Self::take(self.connection.take(), &self.db).await?;
            if kept.project.as_ref() != Some(project) {
                sqlx::query(NAME).bind(writer_name(project)).execute(&mut kept.connection).await?;
                kept.project = Some(Arc::clone(project));
            }
            Ok(kept)
        };
        let kept = timeout(self.silence, taking).await.unwrap_or_else(|_| Err(silent()))?;
        let kept = self.connection.insert(kept);
        let watch = Watch { db: self.db.clone(), silence: self.silence, process: kept.process };
        Ok((&mut kept.connection, watch))
    }

    /// Executes a statement that does not take long.
    pub(super) async fn execute(&mut self, statement: &'static str) -> sqlx::Result<()> {
        let executing = async {
            let mut kept = Self::take(self.connection.take(), &self.db).await?;
            sqlx::raw_sql(statement).execute(&mut kept.connection).await?;
            Ok(kept)
        };
        let kept = timeout(self.silence, executing).await.unwrap_or_else(|_| Err(silent()))?;
        self.connection = Some(kept);
        Ok(())
    }

    /// Returns what is kept, or a new connection if there is none or it fails its test.
    async fn take(kept: Option<Kept>, db: &PgPool) -> sqlx::Result<Kept> {
        if let Some(mut kept) = kept
            && (kept.used.elapsed() < Self::REST
                || matches!(timeout(Self::TEST, kept.connection.ping()).await, Ok(Ok(()))))
        {
            kept.used = Instant::now();
            return Ok(kept);
        }
        let mut connection = db.acquire().await?.detach();
        let process = Process::of(&mut connection).await?;
        Ok(Kept { connection, process, used: Instant::now(), project: None })
    }

    /// Gives back the memory that a long statement has taken.
    pub(super) fn shrink(&mut self) {
        if let Some(kept) = &mut self.connection {
            kept.connection.shrink_buffers();
        }
    }

    /// Closes the connection, in whatever state it is.
    pub(super) fn discard(&mut self) {
        self.connection = None;
    }
}

impl Watch {
    /// How long the question may take.
    const ANSWER: Duration = Duration::from_secs(5);

    /// Waits for a write for as long as Postgres works on it, however long that is.
    pub(super) async fn over<T>(self, write: impl Future<Output = sqlx::Result<T>>) -> sqlx::Result<T> {
        tokio::select! {
            biased;
            written = write => written,
            () = self.until_idle() => Err(silent()),
        }
    }

    async fn until_idle(&self) {
        loop {
            sleep(self.silence).await;
            if !self.is_at_work().await {
                return;
            }
        }
    }

    /// Asks Postgres by a connection of its own whether it works for the one that is watched, or has just done so.
    async fn is_at_work(&self) -> bool {
        let options = self.db.connect_options().as_ref().clone().application_name("gleaner");
        let asking = async {
            let mut connection = options.connect().await?;
            self.process.is_at_work(&mut connection, self.silence).await
        };
        match timeout(Self::ANSWER, asking).await {
            Ok(Ok(is_at_work)) => is_at_work,
            // It is there, and does not say.
            Ok(Err(sqlx::Error::Database(_))) => true,
            _ => false,
        }
    }
}
