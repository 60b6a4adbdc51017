//! The records that events make.

use std::collections::HashMap;

use sqlx::{AssertSqlSafe, PgConnection};
use uuid::Uuid;

/// The records that an event makes, of those that a quota limits, and where they are if it was sent before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Made {
    /// How many records it makes.
    pub records: usize,
    /// Where they, or those that they replace, are found, unless all are new.
    pub found: Vec<(Column, Uuid)>,
}

/// A table and the column of it in which records have an id.
pub type Column = (&'static str, &'static str);

impl Made {
    /// Describes one record with this id in a table. `given` is the id that the client has sent, if it has sent one. An id of version
    /// 7 that was not sent has just been made, so that no record has it.
    #[must_use]
    pub fn one(table: &'static str, id: Uuid, given: Option<Uuid>) -> Self {
        let is_new = given.is_none() && id.get_version_num() == 7;
        Self { records: 1, found: if is_new { Vec::new() } else { vec![((table, "id"), id)] } }
    }
}

/// Returns by how many each event increases the number of a project's records.
pub async fn more(connection: &mut PgConnection, project: &str, made: &[Made]) -> sqlx::Result<Vec<usize>> {
    let mut wanted: HashMap<Column, Vec<Uuid>> = HashMap::new();
    for (column, id) in made.iter().flat_map(|made| &made.found) {
        wanted.entry(*column).or_default().push(*id);
    }
    let mut stored: HashMap<(Column, Uuid), usize> = HashMap::new();
    for ((table, column), ids) in wanted {
        let sql = format!(
            "select {column}, count(*) from {table} where project = $1 and {column} = any($2) group by {column}"
        );
        let query = sqlx::query_as(AssertSqlSafe(sql)).bind(project).bind(ids);
        let counts: Vec<(Uuid, i64)> = query.fetch_all(&mut *connection).await?;
        let count = |count| usize::try_from(count).unwrap_or(usize::MAX);
        stored.extend(counts.into_iter().map(|(id, number)| (((table, column), id), count(number))));
    }
    let more = |made: &Made| {
        let before = made.found.iter().filter_map(|found| stored.get(found)).sum();
        made.records.saturating_sub(before)
    };
    Ok(made.iter().map(more).collect())
}
