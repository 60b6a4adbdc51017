//! The situation of the session that asks: its folder, its turn, and the files that it has touched.

use std::cmp::Reverse;
use std::collections::HashSet;

use chrono::TimeDelta;
use sha2::{Digest as _, Sha256};
use sqlx::PgPool;
use uuid::Uuid;

use super::{Asked, Asker};
use crate::retrieval::keys::Key;
use crate::searches::rules::paths;
use crate::searches::rules::repository::repository;
use crate::types::Timestamp;

/// The time after its last event during which a session is assumed to ask, if the question names none.
const ACTIVE: TimeDelta = TimeDelta::hours(1);
/// The maximum number of current files, which the turn has touched last.
const AT_HAND: usize = 8;
/// The maximum number of files that are read, of those touched in threads and of those touched after searches.
const MOST_TOUCHED: i64 = 5_000;

/// What is known of the session that asks.
#[derive(Debug, Default)]
pub(super) struct Moment {
    /// The number of the turn, if prompts of the session are known.
    pub(super) turn: Option<i32>,
    /// The folder that is searched. It is empty if it is not known.
    pub(super) root: String,
    /// The repository of that folder. It is empty if it is not known.
    pub(super) repository: String,
    /// The current files, which the turn has touched last.
    pub(super) at_hand: Vec<Uuid>,
    /// The keys of the file names that the session was told.
    pub(super) names: HashSet<Key>,
    /// The paths of the files that the session has touched last, as hashes. Paths may be long.
    touched: HashSet<Vec<u8>>,
}

/// The thread that asks.
#[derive(sqlx::FromRow)]
struct Thread {
    id: Uuid,
    session: String,
    root: Option<String>,
    prompts: i32,
}

/// A file that the session has touched.
#[derive(sqlx::FromRow)]
struct Touched {
    thread_id: Uuid,
    file_id: Uuid,
    path: Vec<u8>,
    turns: Vec<i32>,
    touched_at: Timestamp,
}

impl Moment {
    /// Reads what is known of the session that asks.
    pub(super) async fn read(db: &PgPool, project: &str, asked: &Asked<'_>) -> sqlx::Result<Self> {
        let asked_root = asked.root.map(paths::folder);
        let thread = Thread::read(db, project, asked, asked_root.as_deref()).await?;
        let root = asked_root.or_else(|| thread.as_ref()?.root.clone()).unwrap_or_default();
        let mut moment = Self { repository: repository(&root), root, ..Self::default() };
        // A session without a thread of its own may be known by what it has posted, or by its subagents.
        let session = match asked.asker {
            Asker::Agent { session, .. } => Some(session),
            Asker::LastActive | Asker::Unknown => thread.as_ref().map(|thread| thread.session.as_str()),
        };
        let Some(session) = session else { return Ok(moment) };
        let touched = touched(db, project, session).await?;
        moment.touched = posted(db, project, session).await?;
        moment.touched.extend(touched.iter().map(|file| file.path.clone()));
        let Some(thread) = thread else { return Ok(moment) };
        moment.turn = Some(thread.prompts).filter(|prompts| *prompts > 0);
        moment.names = names(db, project, thread.id).await?;
        let is_of_turn =
            |file: &&Touched| file.thread_id == thread.id && file.turns.contains(&thread.prompts);
        let mut of_turn: Vec<_> = touched.iter().filter(is_of_turn).collect();
        of_turn.sort_by_key(|file| (Reverse(file.touched_at), file.file_id));
        moment.at_hand = of_turn.into_iter().take(AT_HAND).map(|file| file.file_id).collect();
        Ok(moment)
    }

    /// Returns whether the session has touched the file at this path.
    pub(super) fn has(&self, path: &str) -> bool {
        self.touched.contains(Sha256::digest(path).as_slice())
    }
}

impl Thread {
    async fn read(
        db: &PgPool,
        project: &str,
        asked: &Asked<'_>,
        root: Option<&str>,
    ) -> sqlx::Result<Option<Self>> {
        const NAMED: &str = "
            select id, session, root, prompts from agent_threads
            where project = $1 and session = $2 and agent is not distinct from $3";
        const LAST_ACTIVE: &str = "
            select id, session, root, prompts from agent_threads
            where project = $1 and md5(root) = md5($2) and root = $2 and agent is null and session is not null
                and received_at > $3
            order by last_at desc nulls last, id limit 1";
        match (asked.asker, root) {
            (Asker::Agent { session, agent }, _) => {
                sqlx::query_as(NAMED).bind(project).bind(session).bind(agent).fetch_optional(db).await
            }
            (Asker::LastActive, Some(root)) => {
                let since = Timestamp::now().plus(-ACTIVE);
                sqlx::query_as(LAST_ACTIVE).bind(project).bind(root).bind(since).fetch_optional(db).await
            }
            (Asker::LastActive, None) | (Asker::Unknown, _) => Ok(None),
        }
    }
}

/// Reads the keys of the file names that a thread was told.
async fn names(db: &PgPool, project: &str, thread: Uuid) -> sqlx::Result<HashSet<Key>> {
    const SQL: &str = "select names from named_files where project = $1 and thread_id = $2";
    let rows: Vec<Vec<Key>> = sqlx::query_scalar(SQL).bind(project).bind(thread).fetch_all(db).await?;
    Ok(rows.into_iter().flatten().collect())
}

/// Reads the files that the threads of a session have touched last.
async fn touched(db: &PgPool, project: &str, session: &str) -> sqlx::Result<Vec<Touched>> {
    const SQL: &str = "
        select f.thread_id, f.file_id, sha256(convert_to(f.path, 'UTF8')) as path, f.turns, f.touched_at
        from agent_threads t join touched_files f on f.project = $1 and f.thread_id = t.id
        where t.project = $1 and t.session = $2
        order by f.touched_at desc limit $3";
    sqlx::query_as(SQL).bind(project).bind(session).bind(MOST_TOUCHED).fetch_all(db).await
}

/// Reads the paths of the files that a session has touched after searches, as hashes.
async fn posted(db: &PgPool, project: &str, session: &str) -> sqlx::Result<HashSet<Vec<u8>>> {
    const SQL: &str = "
        select sha256(convert_to(f.target, 'UTF8')) from searches s join fallbacks f on f.project = $1 and f.search_id = s.id
        where s.project = $1 and s.agent_session_id = $2 and f.kind in ('read', 'edit', 'index') and f.ok
        order by s.timestamp desc limit $3";
    let rows: Vec<Vec<u8>> =
        sqlx::query_scalar(SQL).bind(project).bind(session).bind(MOST_TOUCHED).fetch_all(db).await?;
    Ok(rows.into_iter().collect())
}
