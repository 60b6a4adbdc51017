//! The searches to which a person may object: those of the previous turn, with the files that they led to.

use sqlx::PgConnection;
use uuid::Uuid;

use super::rows::AnsweredSearch;
use crate::types::{Timestamp, derived_id};

/// The maximum number of searches of a turn to which a correction may refer.
const MOST_ANSWERED: usize = 16;

/// Returns the id of the search that repeats another one because a person objected to its result.
pub(super) fn correction_id(search: Uuid) -> Uuid {
    derived_id(&[b"correction", search.as_bytes()])
}

/// Reads the resolved searches that these threads have made since the last prompt.
pub(super) async fn read_answered_searches(
    connection: &mut PgConnection,
    project: &str,
    threads: &[Uuid],
) -> sqlx::Result<Vec<AnsweredSearch>> {
    const SQL: &str = "
        select s.id, s.thread_id, s.query, s.root, s.timestamp, array(
            select a.path from association_evidence e
            join associations a on a.project = $1 and a.id = e.association_id
            where e.project = $1 and e.source = s.id and e.kind = 'found' order by e.rank)
        from searches s join agent_threads t on t.project = $1 and t.id = s.thread_id
        where s.project = $1 and s.thread_id = any($2) and s.state = 'resolved' and s.timestamp >= t.prompted_at
        order by s.timestamp, s.id limit $3";
    type Row = (Uuid, Uuid, String, Option<String>, Timestamp, Vec<String>);
    let most = i64::try_from(MOST_ANSWERED).unwrap_or(i64::MAX);
    let rows: Vec<Row> =
        sqlx::query_as(SQL).bind(project).bind(threads).bind(most).fetch_all(connection).await?;
    let search = |(id, thread, query, root, at, found)| AnsweredSearch { id, thread, query, root, at, found };
    Ok(rows.into_iter().map(search).collect())
}
