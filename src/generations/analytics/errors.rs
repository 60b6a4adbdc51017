//! Errors that attempts ended in, how often later attempts repaired them, and by what change.

use std::collections::HashMap;
use std::sync::Arc;

use futures_util::TryStreamExt as _;
use serde::Serialize;
use sqlx::{PgConnection, Row as _};
use utoipa::ToSchema;
use uuid::Uuid;

use super::scope::Scope;
use crate::error::Result;
use crate::generations::rules::changes::Change;
use crate::generations::rules::errors::{Count, Failure, Kind, Tally};
use crate::sharing::{Pauses, apart};

/// The maximum number of errors that are returned.
const ERRORS: usize = 20;
/// The maximum number of changes that are returned for an error.
const CHANGES: usize = 3;
/// The maximum number of bytes of a program whose repair is examined.
const LONGEST_PROGRAM: i32 = 20_000;

/// The errors of one stage.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = GenerationErrorsOfStage)]
pub(super) struct StageFigures {
    /// The stage that failed: `parse`, `lint` or `compile`.
    stage: String,
    /// The number of attempts that failed in the stage.
    count: i64,
    /// The number of these attempts that were followed by an attempt that passed.
    repaired: i64,
}

/// An error with which attempts failed.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = GenerationError)]
pub(super) struct ErrorFigures {
    /// The stage that failed: `parse`, `lint` or `compile`.
    stage: String,
    /// The first line of the stage's message, with placeholders for quoted names, numbers, ids, paths and addresses.
    /// Null if the stage gave no message, or if the project stores no text.
    message: Option<String>,
    /// The number of attempts that failed with the error.
    count: i64,
    /// The number of these attempts that were followed by an attempt that passed.
    repaired: i64,
    /// The most frequent changes that repaired the error, at most 3, found in at most 20 repairs.
    changes: Vec<Repair>,
    /// The id of a log with an attempt that failed with the error.
    example_generation_id: Uuid,
}

/// A change between the failed program and the repaired one, with placeholders for names and numbers.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = GenerationRepair)]
struct Repair {
    /// The text that was removed. Empty if the repair only added something.
    removed: String,
    /// The text that was added. Empty if the repair only removed something.
    added: String,
    /// The number of examined repairs with this change.
    count: i64,
}

/// Counts the errors of the logs of a scope. The messages are read one by one and counted here, in bounded memory, and with
/// pauses.
pub(super) async fn read(
    connection: &mut PgConnection,
    project: &Arc<str>,
    scope: &Scope,
) -> Result<(Vec<StageFigures>, Vec<ErrorFigures>)> {
    let mut query = scope.query(project)?;
    query.push(
        " select generation_id, attempt, error_stage, error_message, attempt < last_passed is true as repaired from (
            select a.generation_id, a.attempt, a.passed, a.error_stage, a.error_message,
                max(a.attempt) filter (where a.passed) over (partition by a.generation_id) as last_passed
            from log join attempts a on a.project = $1 and a.generation_id = log.id and a.passed is not null
        ) judged where not passed",
    );
    let query = query.build();
    let mut rows = query.fetch(&mut *connection);
    let (mut tally, mut pauses) = (Tally::default(), Pauses::begin());
    while let Some(row) = rows.try_next().await? {
        tally.add(Failure {
            log: row.try_get("generation_id")?,
            attempt: row.try_get("attempt")?,
            stage: row.try_get::<Option<&str>, _>("error_stage")?.unwrap_or_default(),
            message: row.try_get("error_message")?,
            repaired: row.try_get("repaired")?,
        });
        pauses.pause().await;
    }
    drop(rows);
    let (stages, kinds) = tally.most_frequent(ERRORS);
    let stage =
        |(stage, count): (String, Count)| StageFigures { stage, count: count.all, repaired: count.repaired };
    let stages = stages.into_iter().map(stage).collect();
    let changes = changes(connection, project, &kinds).await?;
    let error = |(kind, changes): (Kind, _)| ErrorFigures {
        stage: kind.stage,
        message: kind.message,
        count: kind.count.all,
        repaired: kind.count.repaired,
        changes,
        example_generation_id: kind.example,
    };
    Ok((stages, kinds.into_iter().zip(changes).map(error).collect()))
}

/// Returns the changes that repaired each kind of error.
async fn changes(
    connection: &mut PgConnection,
    project: &Arc<str>,
    kinds: &[Kind],
) -> Result<Vec<Vec<Repair>>> {
    const SQL: &str = "
        select sought.kind, bad.extracted_dsl as bad, good.extracted_dsl as good
        from unnest($2::int[], $3::uuid[], $4::int[]) as sought (kind, generation_id, attempt)
        join attempts bad on bad.project = $1 and bad.generation_id = sought.generation_id
            and bad.attempt = sought.attempt and octet_length(bad.extracted_dsl) <= $5
        cross join lateral (
            select a.extracted_dsl from attempts a
            where a.project = $1 and a.generation_id = sought.generation_id and a.attempt > sought.attempt and a.passed
            order by a.attempt limit 1
        ) good
        where octet_length(good.extracted_dsl) <= $5";
    let sought =
        || (0_i32..).zip(kinds).flat_map(|(place, kind)| kind.repaired.iter().map(move |key| (place, key)));
    let mut rows = sqlx::query(SQL)
        .bind(&**project)
        .bind(sought().map(|(place, _)| place).collect::<Vec<_>>())
        .bind(sought().map(|(_, (log, _))| *log).collect::<Vec<_>>())
        .bind(sought().map(|(_, (_, attempt))| *attempt).collect::<Vec<_>>())
        .bind(LONGEST_PROGRAM)
        .fetch(connection);
    let mut counts: Vec<HashMap<Change, i64>> = kinds.iter().map(|_| HashMap::new()).collect();
    while let Some(row) = rows.try_next().await? {
        let place: i32 = row.try_get("kind")?;
        let (bad, good): (String, String) = (row.try_get("bad")?, row.try_get("good")?);
        let change = apart(project, move || Change::between(&bad, &good)).await;
        let counts = usize::try_from(place).ok().and_then(|place| counts.get_mut(place));
        if let (Some(change), Some(counts)) = (change, counts) {
            *counts.entry(change).or_default() += 1;
        }
    }
    let most_frequent = |counts: HashMap<Change, i64>| {
        let mut counts: Vec<_> = counts.into_iter().collect();
        counts.sort_unstable_by(|(a, x), (b, y)| y.cmp(x).then_with(|| a.cmp(b)));
        counts.truncate(CHANGES);
        let repair = |(Change { removed, added }, count)| Repair { removed, added, count };
        counts.into_iter().map(repair).collect()
    };
    Ok(counts.into_iter().map(most_frequent).collect())
}
