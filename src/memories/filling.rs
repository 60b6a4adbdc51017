//! Stores the [embeddings](super::embeddings) of memories in the background.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sqlx::{FromRow, PgPool};
use uuid::Uuid;

use super::embeddings::LONGEST_TEXT;
use crate::auth::keyring::Keyring;
use crate::background::Rounds;
use crate::db;
use crate::domain::Domain;
use crate::embeddings::{Embedder, Failure};
use crate::error::Result;
use crate::privacy::capture::Capture;
use crate::types::Timestamp;

/// The number of memories that are looked at in one step, and the number of texts in one request.
const PAGE: i64 = 500;
const BATCH: usize = 32;
/// The pause after all memories were looked at, as a multiple of the time that it took, and at least.
const REST: u32 = 50;
const SHORTEST_PAUSE: Duration = Duration::from_secs(1);
/// A text that every model has an embedding of.
const ANY_TEXT: &str = "text";
/// How long a text is not sent again that had no embedding although the API can be used.
const AGAIN: Duration = Duration::from_mins(10);

/// Fills in the embeddings of memories, the newest first.
pub struct Filling {
    db: PgPool,
    keyring: Arc<Keyring>,
    embedder: Arc<Embedder>,
    /// The projects that are left in this pass, and the last memory that was looked at in the last of them.
    left: Vec<String>,
    after: Option<(Timestamp, Uuid)>,
    /// For how long this pass has looked at memories.
    took: Duration,
    /// The memories that are passed by, because the API fails with their texts alone, and since when there are some.
    failing: HashSet<Uuid>,
    failing_since: Instant,
}

#[derive(FromRow)]
struct Seen {
    id: Uuid,
    created_at: Timestamp,
    is_missing: bool,
}

#[derive(FromRow)]
struct Missing {
    id: Uuid,
    text: String,
    digest: String,
}

impl Filling {
    /// Makes the task.
    #[must_use]
    pub fn new(db: &PgPool, keyring: Arc<Keyring>, embedder: Arc<Embedder>) -> Self {
        Self {
            db: db.clone(),
            keyring,
            embedder,
            left: Vec::new(),
            after: None,
            took: Duration::ZERO,
            failing: HashSet::new(),
            failing_since: Instant::now(),
        }
    }

    /// Looks at the next memories of a project, and fills in what is missing. Nothing is sent of a project that has stopped
    /// keeping texts.
    async fn page(&mut self, project: &str) -> Result<()> {
        const SEEN: &str = "
            select m.id, m.created_at, m.content is not null and e.memory_id is null as is_missing
            from memories m
            left join memory_embeddings e on e.project = $1 and e.memory_id = m.id and e.model = $2
            where m.project = $1 and ($3::timestamptz is null or (m.created_at, m.id) < ($3, $4))
            order by m.created_at desc, m.id desc limit $5";
        const MISSING: &str = "
            select id, text, md5(text) as digest from (
                select id, concat_ws(' ', symbol, file_path, left(content, $3)) as text
                from memories where project = $1 and id = any($2) and content is not null
            ) texts";
        // If its settings cannot be read, the next pass tries again.
        let tenant = self.keyring.tenant(project).await.ok();
        if tenant.is_none_or(|tenant| tenant.policy.capture(Domain::Memories) != Capture::Full) {
            self.left.pop();
            self.after = None;
            return Ok(());
        }
        let begun = Instant::now();
        let (created_at, id) = self.after.unzip();
        let query = sqlx::query_as(SEEN).bind(project).bind(&self.embedder.model).bind(created_at).bind(id);
        let mut seen: Vec<Seen> = query.bind(PAGE).fetch_all(&self.db).await?;
        self.took += begun.elapsed();
        let is_last = seen.len() < usize::try_from(PAGE).unwrap_or(usize::MAX);
        let is_missing = |seen: &Seen| seen.is_missing && !self.failing.contains(&seen.id);
        let mut missing: Vec<_> = (0..seen.len()).filter(|&place| is_missing(&seen[place])).collect();
        let is_more = missing.len() > BATCH;
        if is_more {
            missing.truncate(BATCH);
            seen.truncate(missing[BATCH - 1] + 1);
        }
        if !missing.is_empty() {
            let ids: Vec<_> = missing.iter().map(|&place| seen[place].id).collect();
            let query = sqlx::query_as(MISSING).bind(project).bind(ids).bind(LONGEST_TEXT);
            let texts: Vec<Missing> = query.fetch_all(&self.db).await?;
            self.fill(project, &texts).await?;
        }
        self.after = seen.last().map(|last| (last.created_at, last.id));
        if is_last && !is_more {
            self.left.pop();
            self.after = None;
        }
        Ok(())
    }

    /// Fills in the embeddings of texts.
    async fn fill(&mut self, project: &str, missing: &[Missing]) -> Result<()> {
        let texts: Vec<_> = missing.iter().map(|missing| missing.text.as_str()).collect();
        let embeddings = match self.embedder.embed(&texts).await {
            Ok(embeddings) => embeddings.into_iter().map(Some).collect(),
            Err(failure) => self.singly(&texts, failure).await?,
        };
        for (missing, embedding) in missing.iter().zip(embeddings) {
            match embedding {
                Some(embedding) => {
                    store(&self.db, project, &self.embedder.model, missing, &embedding).await?;
                }
                None => {
                    self.failing.insert(missing.id);
                }
            }
        }
        Ok(())
    }

    /// Returns the embeddings of texts that have failed together. A text that the model does not accept has an empty one, so
    /// that it is not sent again, and one with which the API fails has none. Fails if the API cannot be used at all.
    async fn singly(&self, texts: &[&str], failure: Failure) -> Result<Vec<Option<Vec<f32>>>> {
        // A text may be the reason why an API fails, so that nothing behind it would ever be sent.
        if self.embedder.embed(&[ANY_TEXT]).await.is_err() {
            return Err(anyhow::Error::from(failure).into());
        }
        let mut embeddings = Vec::with_capacity(texts.len());
        for text in texts {
            embeddings.push(match self.embedder.embed(&[text]).await {
                Ok(mut embeddings) => embeddings.pop(),
                Err(Failure::Refused(_)) => Some(Vec::new()),
                Err(Failure::Unavailable(error)) => {
                    tracing::debug!(%error, "a memory is compared without its embedding");
                    None
                }
            });
        }
        Ok(embeddings)
    }
}

/// Stores the embedding of a memory, unless the memory was erased or its text has changed since it was read.
async fn store(db: &PgPool, project: &str, model: &str, missing: &Missing, embedding: &[f32]) -> Result<()> {
    const SQL: &str = "
        insert into memory_embeddings (project, memory_id, model, embedding)
        select $1, id, $3, $4 from memories
        where project = $1 and id = $2 and md5(concat_ws(' ', symbol, file_path, left(content, $5))) = $6
        for no key update skip locked
        on conflict (memory_id, project) do update set model = excluded.model, embedding = excluded.embedding";
    let query = sqlx::query(SQL).bind(project).bind(missing.id).bind(model).bind(embedding);
    query.bind(LONGEST_TEXT).bind(&missing.digest).execute(db).await?;
    Ok(())
}

impl Rounds for Filling {
    const NAME: &'static str = "filling in embeddings";

    async fn round(&mut self) -> Result<Duration> {
        const MINE: &str = "select pg_try_advisory_xact_lock(hashtext('gleaner embeddings'))";
        // Several servers may share the database, and one at a time is enough. The transaction reads nothing, so that it keeps
        // nothing from being vacuumed.
        let mut turn = db::begin(&self.db).await?;
        if !sqlx::query_scalar::<_, bool>(MINE).fetch_one(&mut *turn).await? {
            return Ok(SHORTEST_PAUSE);
        }
        if self.left.is_empty() {
            self.left = projects(&self.db).await?;
            self.took = Duration::ZERO;
            if self.failing_since.elapsed() > AGAIN {
                self.failing.clear();
                self.failing_since = Instant::now();
            }
        }
        if let Some(project) = self.left.last().cloned() {
            self.page(&project).await?;
        }
        turn.commit().await?;
        Ok(if self.left.is_empty() { (self.took * REST).max(SHORTEST_PAUSE) } else { Duration::ZERO })
    }
}

/// Returns the projects that have memories.
async fn projects(db: &PgPool) -> sqlx::Result<Vec<String>> {
    // Each step finds the next project in the index, however many memories there are.
    const SQL: &str = "
        with recursive found as (
            (select project from memories order by project limit 1)
            union all
            select (select project from memories where project > found.project order by project limit 1)
            from found where found.project is not null
        )
        select project from found where project is not null";
    sqlx::query_scalar(SQL).fetch_all(db).await
}
