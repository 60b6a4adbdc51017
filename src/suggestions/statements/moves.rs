//! The statements that write and read what users do before the submit.

use std::collections::HashSet;

use sqlx::PgConnection;
use uuid::Uuid;

use super::column;
use crate::suggestions::Move;
use crate::suggestions::viewing::{Direction, Look};
use crate::types::Timestamp;

/// The moves of one event: its record, what was done, and when we heard of it.
pub(in crate::suggestions) type Append<'a> = (Uuid, &'a [Move], Timestamp);

/// Adds moves to pending records, which are locked in id order; the names of those that were added. An event of which a
/// move is known already, or looks at a suggestion that is not there, is left as a whole. Subqueries stand where joins would
/// do, for the reasons given with attempts: a plan must not read or compare more than the rows at hand.
pub(in crate::suggestions) async fn append(
    connection: &mut PgConnection,
    project: &str,
    appends: &[Append<'_>],
) -> sqlx::Result<HashSet<(Uuid, Uuid)>> {
    const SQL: &str = "
        with slate as materialized (
            select s.id from suggestions s
            where s.project = $1 and s.id = any($2) and s.state = 'pending'
            order by s.id for no key update
        ),
        new as (
            select * from unnest($2::uuid[], $3::int[], $4::uuid[], $5::text[], $6::int[], $7::int[], $8::smallint[],
                $9::text[], $10::timestamptz[], $11::timestamptz[]) with ordinality
                as new (suggestion_id, event, id, kind, index, highest, direction, text, at, received_at, place)
        ),
        known as (
            select new.event from new where (
                select true from suggestion_moves m
                where m.project = $1 and m.suggestion_id = new.suggestion_id and m.id = new.id limit 1)
        )
        insert into suggestion_moves (project, suggestion_id, id, kind, index, direction, text, at, received_at)
        select $1, new.suggestion_id, new.id, new.kind, new.index, new.direction, new.text, new.at, new.received_at
        from new
        where (new.suggestion_id in (select id from slate)) is true
            and (new.event in (select event from known)) is not true
            and (new.highest is null or new.highest < (
                select s.suggestion_count from suggestions s where s.project = $1 and s.id = new.suggestion_id))
        order by new.place
        on conflict do nothing
        returning suggestion_id, id";
    let rows: Vec<Row<'_>> =
        (0_i32..).zip(appends).flat_map(|(event, append)| rows_of(event, append)).collect();
    let added: Vec<(Uuid, Uuid)> = sqlx::query_as(SQL)
        .bind(project)
        .bind(column(&rows, |row| row.suggestion_id))
        .bind(column(&rows, |row| row.event))
        .bind(column(&rows, |row| row.id))
        .bind(column(&rows, |row| row.kind))
        .bind(column(&rows, |row| row.index))
        .bind(column(&rows, |row| row.highest))
        .bind(column(&rows, |row| row.direction))
        .bind(column(&rows, |row| row.text))
        .bind(column(&rows, |row| row.at))
        .bind(column(&rows, |row| row.received_at))
        .fetch_all(connection)
        .await?;
    Ok(added.into_iter().collect())
}

struct Row<'a> {
    suggestion_id: Uuid,
    event: i32,
    id: Uuid,
    index: Option<i32>,
    kind: &'static str,
    /// The highest place that its event looks at.
    highest: Option<i32>,
    direction: Option<i16>,
    text: Option<&'a str>,
    at: Option<Timestamp>,
    received_at: Timestamp,
}

fn rows_of<'a>(
    event: i32,
    &(suggestion_id, moves, received_at): &Append<'a>,
) -> impl Iterator<Item = Row<'a>> {
    let highest = highest(moves);
    moves.iter().map(move |made| {
        let (index, direction, text) = made.what.columns();
        Row {
            suggestion_id,
            event,
            id: made.id,
            kind: made.what.kind(),
            index,
            highest,
            direction,
            text,
            at: made.at,
            received_at,
        }
    })
}

/// The highest place that these moves look at.
pub(in crate::suggestions) fn highest(moves: &[Move]) -> Option<i32> {
    moves.iter().filter_map(|made| made.what.columns().0).max()
}

/// A look as it is stored: its record, `index`, `direction` and time.
type LookRow = (Uuid, Option<i32>, Option<i16>, Option<Timestamp>);

/// What was looked at in these records, each record's in the order of the times that clients gave, then of arrival.
pub(in crate::suggestions) async fn looks(
    connection: &mut PgConnection,
    project: &str,
    ids: &[Uuid],
) -> sqlx::Result<Vec<(Uuid, Look, Option<Timestamp>)>> {
    let sql = "select suggestion_id, index, direction, at from suggestion_moves
               where project = $1 and suggestion_id = any($2) and kind = 'view'
               order by suggestion_id, coalesce(at, received_at), arrival";
    let rows: Vec<LookRow> = sqlx::query_as(sql).bind(project).bind(ids).fetch_all(connection).await?;
    let looks = rows.into_iter().map(|(id, index, direction, at)| {
        let index = index.and_then(|index| usize::try_from(index).ok());
        let way = if direction == Some(-1) { Direction::Prev } else { Direction::Next };
        (id, index.map_or(Look::Go(way), Look::At), at)
    });
    Ok(looks.collect())
}
