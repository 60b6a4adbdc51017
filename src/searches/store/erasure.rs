//! How searches are erased, together with what else agents have left.

use sqlx::PgConnection;
use uuid::Uuid;

use crate::db::aged::Aged;
use crate::db::erased::{Cause, Piece};
use crate::error::Result;
use crate::exports::forget::forget;
use crate::searches::associations::evidence;
use crate::searches::exports::DATASETS;
use crate::searches::settings::Rules;
use crate::types::Timestamp;

/// Erases a part of what an agent session has left: at most `most` of its searches, with what was learned from them; and
/// if it has none, some of its threads with the files that they encountered, and the record that its transcripts and tool
/// calls were read.
pub async fn delete_session(
    connection: &mut PgConnection,
    project: &str,
    rules: &Rules,
    session: &str,
    most: i64,
) -> Result<Piece> {
    const FOUND: &str = "select id from searches where project = $1 and agent_session_id = $2 limit $3";
    // Whoever adds to a search holds the lock of its thread.
    const LOCK: &str = "
        select from agent_threads where project = $1 and id = any(array(
            select thread_id from searches where project = $1 and id = any($2)))
        order by id for update";
    const DELETE: &str = "delete from searches where project = $1 and id = any($2) returning id";
    let found = sqlx::query_scalar(FOUND).bind(project).bind(session).bind(most);
    let searches: Vec<Uuid> = found.fetch_all(&mut *connection).await?;
    if searches.is_empty() {
        let more = delete_threads(connection, project, rules, session, most).await?;
        return Ok(Piece { erased: Vec::new(), more });
    }
    sqlx::query(LOCK).bind(project).bind(&searches).execute(&mut *connection).await?;
    // Another erasure of the session may have deleted some of them before they were locked.
    let deleted = sqlx::query_scalar(DELETE).bind(project).bind(&searches);
    let searches: Vec<Uuid> = deleted.fetch_all(&mut *connection).await?;
    delete_children(connection, project, rules, &searches, Cause::Request).await?;
    Ok(Piece { erased: vec![("searches", searches.len() as u64)], more: true })
}

/// Erases some threads of a session without searches, and what is stored of its transcripts. Returns whether there were
/// threads.
async fn delete_threads(
    connection: &mut PgConnection,
    project: &str,
    rules: &Rules,
    session: &str,
    most: i64,
) -> Result<bool> {
    const THREADS: &str = "
        select id from agent_threads where project = $1 and session = $2 order by id limit $3 for update";
    const NEW_SEARCHES: &str = "delete from searches where project = $1 and thread_id = any($2) returning id";
    const SOURCES: &str = "
        select source from transcripts where project = $1 and session = $2 order by source for update";
    // What a source has said before it named the session.
    const NAMELESS: [&str; 2] = [
        "delete from transcript_lines where project = $1 and source = any($2) and session is null",
        "delete from tool_calls where project = $1 and source = any($2) and session is null",
    ];
    // What other sessions have left of a source is found by it when it has reached its age.
    const FINISHED: &str = "
        delete from transcripts t where t.project = $1 and t.source = any($2)
            and not exists (select from transcript_lines l where l.project = $1 and l.source = t.source)
            and not exists (select from tool_calls c where c.project = $1 and c.source = t.source)";
    const OTHERS: &str = "
        update transcripts set session = null, turn = null, root = null, last_at = null
        where project = $1 and source = any($2)";
    // Whoever stores lines locks their source first, too.
    let sources = sqlx::query_scalar(SOURCES).bind(project).bind(session);
    let sources: Vec<Uuid> = sources.fetch_all(&mut *connection).await?;
    let threads = sqlx::query_scalar(THREADS).bind(project).bind(session).bind(most);
    let threads: Vec<Uuid> = threads.fetch_all(&mut *connection).await?;
    let searches = sqlx::query_scalar(NEW_SEARCHES).bind(project).bind(&threads);
    let searches: Vec<Uuid> = searches.fetch_all(&mut *connection).await?;
    // Whoever changes files and associations takes the files first.
    delete_encounters(connection, project, &threads, Cause::Request).await?;
    delete_children(connection, project, rules, &searches, Cause::Request).await?;
    // Each statement uses one index. With both conditions in one, all lines of the project would be read.
    for sql in NAMELESS {
        sqlx::query(sql).bind(project).bind(&sources).execute(&mut *connection).await?;
    }
    for sql in [
        "delete from transcript_lines where project = $1 and session = $2",
        "delete from tool_calls where project = $1 and session = $2",
    ] {
        sqlx::query(sql).bind(project).bind(session).execute(&mut *connection).await?;
    }
    for sql in [FINISHED, OTHERS] {
        sqlx::query(sql).bind(project).bind(&sources).execute(&mut *connection).await?;
    }
    let sql = "delete from agent_threads where project = $1 and id = any($2)";
    sqlx::query(sql).bind(project).bind(&threads).execute(&mut *connection).await?;
    Ok(!threads.is_empty())
}

/// Deletes what threads have encountered that are being deleted. What was learned from it are the hints without an
/// association: the path of a file that nobody else has touched is forgotten with them.
async fn delete_encounters(
    connection: &mut PgConnection,
    project: &str,
    threads: &[Uuid],
    cause: Cause,
) -> Result<()> {
    const HINTS: &str = "
        delete from search_hints h where h.project = $1 and h.association_id is null and h.file_id = any($2)
            and not exists (select from touched_files f where f.project = $1 and f.file_id = h.file_id)";
    let sql = "delete from touched_files where project = $1 and thread_id = any($2) returning file_id";
    let files: Vec<Uuid> =
        sqlx::query_scalar(sql).bind(project).bind(threads).fetch_all(&mut *connection).await?;
    let sql = "delete from named_files where project = $1 and thread_id = any($2)";
    sqlx::query(sql).bind(project).bind(threads).execute(&mut *connection).await?;
    if cause == Cause::Request {
        // Whoever stores a hint locks a row of its file, so the deletion of these rows has waited for all of their hints.
        sqlx::query(HINTS).bind(project).bind(files).execute(connection).await?;
    }
    Ok(())
}

/// Erases a search and what was learned from it, with the corrections of it, which repeat it, and its thread with what it has
/// encountered, if nothing else names it: it has no session and no other search. Returns the number of searches.
pub async fn delete(connection: &mut PgConnection, project: &str, rules: &Rules, id: Uuid) -> Result<u64> {
    const THREAD: &str = "
        select t.id from agent_threads t
        where t.project = $1 and t.id = any(array(
            select s.thread_id from searches s where s.project = $1 and s.id = $2))
        for update";
    const OPEN: &str = "
        update agent_threads set has_open = false where project = $1 and id = any($2) and not exists (
            select from searches where project = $1 and thread_id = any($2) and state = 'tracking')";
    const NAMELESS: &str = "
        select id from agent_threads where project = $1 and id = any($2) and session is null and not exists (
            select from searches where project = $1 and thread_id = any($2))";
    const DELETE: &str = "
        with recursive gone as (
            select id from searches where project = $1 and id = $2
            union
            select correction.id from gone join searches correction on correction.corrects = gone.id and correction.project = $1
        )
        delete from searches where project = $1 and id = any(array(select id from gone)) returning id";
    // The corrections of a search are of the same thread.
    let threads: Vec<Uuid> =
        sqlx::query_scalar(THREAD).bind(project).bind(id).fetch_all(&mut *connection).await?;
    let searches: Vec<Uuid> =
        sqlx::query_scalar(DELETE).bind(project).bind(id).fetch_all(&mut *connection).await?;
    let nameless = sqlx::query_scalar(NAMELESS).bind(project).bind(&threads);
    let nameless: Vec<Uuid> = nameless.fetch_all(&mut *connection).await?;
    delete_encounters(connection, project, &nameless, Cause::Request).await?;
    delete_children(connection, project, rules, &searches, Cause::Request).await?;
    sqlx::query(OPEN).bind(project).bind(&threads).execute(&mut *connection).await?;
    let sql = "delete from agent_threads where project = $1 and id = any($2)";
    sqlx::query(sql).bind(project).bind(&nameless).execute(&mut *connection).await?;
    Ok(searches.len() as u64)
}

/// Erases at most `most` of the oldest searches that ended, or else began, before a time. If there are none left, it
/// deletes the threads and transcripts that have received nothing since then.
pub async fn delete_before(
    connection: &mut PgConnection,
    project: &str,
    rules: &Rules,
    time: Timestamp,
    most: i64,
    cause: Cause,
) -> Result<Piece> {
    const AGED: Aged =
        Aged { table: "searches", since: "coalesce(completed_at, timestamp)", may_go: "state <> 'tracking'" };
    const THREADS: &str = "
        select id from agent_threads where project = $1 and id = any(array(
            select s.thread_id from searches s where s.project = $1 and s.id = any($2)))
        order by id for update";
    let searches = loop {
        let oldest = AGED.oldest(connection, project, time, most).await?;
        // The writer of searches holds the lock of their thread.
        sqlx::query(THREADS).bind(project).bind(&oldest).execute(&mut *connection).await?;
        let locked = AGED.lock(connection, project, time, &oldest).await?;
        if oldest.is_empty() || !locked.is_empty() {
            break locked;
        }
    };
    let sql = "delete from searches where project = $1 and id = any($2)";
    sqlx::query(sql).bind(project).bind(&searches).execute(&mut *connection).await?;
    delete_children(connection, project, rules, &searches, cause).await?;
    let more = !searches.is_empty() || delete_traces(connection, project, time, most, cause).await?;
    Ok(Piece { erased: vec![("searches", searches.len() as u64)], more })
}

/// Deletes a part of what agents have left besides searches: threads without searches, and the records of
/// transcripts. Returns whether there was anything.
async fn delete_traces(
    connection: &mut PgConnection,
    project: &str,
    time: Timestamp,
    most: i64,
    cause: Cause,
) -> Result<bool> {
    const THREADS: &str = "
        delete from agent_threads where project = $1 and not has_open and received_at < $2 and id = any(array(
            select t.id from agent_threads t
            where t.project = $1 and not t.has_open and t.received_at < $2 and not exists (
                select from searches s where s.project = $1 and s.thread_id = t.id)
            order by t.id limit $3 for update of t))
        returning id";
    const SOURCE: &str = "
        select source from transcripts where project = $1 and received_at < $2 order by source limit 1 for update";
    const LINES: &str = "
        delete from transcript_lines where project = $1 and source = $2 and line = any(array(
            select line from transcript_lines where project = $1 and source = $2 limit $3))";
    let threads = sqlx::query_scalar(THREADS).bind(project).bind(time).bind(most);
    let threads: Vec<Uuid> = threads.fetch_all(&mut *connection).await?;
    if !threads.is_empty() {
        delete_encounters(connection, project, &threads, cause).await?;
        return Ok(true);
    }
    let source: Option<Uuid> =
        sqlx::query_scalar(SOURCE).bind(project).bind(time).fetch_optional(&mut *connection).await?;
    let Some(source) = source else { return Ok(false) };
    let lines = sqlx::query(LINES).bind(project).bind(source).bind(most);
    if lines.execute(&mut *connection).await?.rows_affected() == 0 {
        for sql in [
            "delete from tool_calls where project = $1 and source = $2",
            "delete from transcripts where project = $1 and source = $2",
        ] {
            sqlx::query(sql).bind(project).bind(source).execute(&mut *connection).await?;
        }
    }
    Ok(true)
}

/// Deletes what belongs to searches that are being erased.
async fn delete_children(
    connection: &mut PgConnection,
    project: &str,
    rules: &Rules,
    searches: &[Uuid],
    cause: Cause,
) -> Result<()> {
    if searches.is_empty() {
        return Ok(());
    }
    forget(connection, project, &DATASETS, searches).await?;
    for sql in [
        "delete from fallbacks where project = $1 and search_id = any($2)",
        "delete from search_hints where project = $1 and search_id = any($2)",
    ] {
        sqlx::query(sql).bind(project).bind(searches).execute(&mut *connection).await?;
    }
    match cause {
        Cause::Request => evidence::forget(connection, project, rules, searches).await?,
        Cause::Age => evidence::settle(connection, project, rules, searches).await?,
    }
    Ok(())
}
