//! The statements that write what users did with their slates, and read it back.

use std::collections::{HashMap, HashSet};
use std::sync::LazyLock;

use futures_util::TryStreamExt as _;
use sqlx::PgConnection;
use uuid::Uuid;

use crate::db::insert::{self, Columns as _, columns};
use crate::sharing::Pauses;
use crate::suggestions::activity::{Act, Activity, MOST_INPUTS, MOST_VIEWS};
use crate::suggestions::rules::views::{Direction, Look};
use crate::types::Timestamp;

/// A row of something that a user did.
pub(in crate::suggestions) struct ActivityRow<'a> {
    suggestion_id: Uuid,
    /// The index of the activity's event in the statement.
    event: i32,
    activity: &'a Activity,
    /// The highest index among the event's views.
    highest: Option<i32>,
    /// The number of activities of this kind that the record gains by this event and the ones before it.
    gained: i64,
    received_at: Timestamp,
}

columns! {
    /// The columns that decide whether an activity is added.
    struct ActivityKeys<'a>(ActivityRow<'a>);
    |row| {
        "event": "int" = row.event,
        "highest": "int" = row.highest,
        "gained": "bigint" = row.gained,
    }
}

columns! {
    /// The columns of an activity.
    struct Activities<'a>(ActivityRow<'a>);
    |row| {
        "suggestion_id": "uuid" = row.suggestion_id,
        "id": "uuid" = row.activity.id,
        "kind": "text" = row.activity.act.kind(),
        "index": "int" = row.activity.act.index(),
        "direction": "smallint" = row.activity.act.direction(),
        "text": "text" = row.activity.act.text(),
        "at": "timestamptz" = row.activity.at,
        "received_at": "timestamptz" = row.received_at,
    }
}

/// The activities of one event: the record's id, what was done, and when the server received it.
pub(in crate::suggestions) type Append<'a> = (Uuid, &'a [Activity], Timestamp);

/// Adds activities to pending records, which are locked in the order of their ids. Returns the ids of the
/// activities added. An event is left out as a whole if one of its activities exists already or views a
/// suggestion that does not, or if the record would have more than [`MOST_VIEWS`] or [`MOST_INPUTS`].
pub(in crate::suggestions) async fn append(
    connection: &mut PgConnection,
    project: &str,
    appends: &[Append<'_>],
) -> sqlx::Result<HashSet<(Uuid, Uuid)>> {
    static SQL: LazyLock<String> = LazyLock::new(|| {
        format!(
            "with slate as materialized (
                select s.id, s.suggestion_count, (
                    select array[count(*) filter (where a.kind = 'view'), count(*) filter (where a.kind = 'input')]
                    from suggestion_activity a
                    where a.project = $1 and a.suggestion_id = s.id) as had
                from suggestions s
                where s.project = $1 and s.id = any($5) and s.state = 'pending'
                order by s.id for no key update
            ),
            new as materialized (select {keys}, {unnested}, generate_subscripts($2, 1) as ordinal),
            known as (
                select new.event from new where (
                    select true from suggestion_activity a
                    where a.project = $1 and a.suggestion_id = new.suggestion_id and a.id = new.id limit 1)
            ),
            event as materialized (
                select distinct on (event) event, suggestion_id, kind, highest, gained from new order by event
            ),
            fitting as (
                select event.event from event
                join slate on slate.id = event.suggestion_id
                where (event.highest is null or event.highest < slate.suggestion_count) and case event.kind
                    when 'view' then slate.had[1] + event.gained <= {MOST_VIEWS}
                    else slate.had[2] + event.gained <= {MOST_INPUTS} end
            )
            insert into suggestion_activity (project, {names})
            select $1, {values} from new
            where (new.event in (select event from fitting)) is true
                and (new.event in (select event from known)) is not true
            order by new.ordinal
            on conflict do nothing
            returning suggestion_id, id",
            keys = insert::unnested::<ActivityKeys>(2),
            unnested = insert::unnested::<Activities>(5),
            names = insert::names::<Activities>(),
            values = insert::values::<Activities>("new"),
        )
    });
    let mut gained: HashMap<Uuid, Counts> = HashMap::new();
    let rows = (0_i32..).zip(appends).flat_map(|(event, append)| {
        let gained = gained.entry(append.0).or_default();
        gained.add(append.1);
        activity_rows(event, append, *gained)
    });
    let rows: Vec<_> = rows.collect();
    let parameters = insert::parameters(project, |parameters| {
        ActivityKeys::bind_all(&rows, parameters)?;
        Activities::bind_all(&rows, parameters)
    })?;
    let added: Vec<(Uuid, Uuid)> =
        sqlx::query_as_with(SQL.as_str(), parameters).fetch_all(connection).await?;
    Ok(added.into_iter().collect())
}

fn activity_rows<'a>(
    event: i32,
    &(suggestion_id, activities, received_at): &Append<'a>,
    gained: Counts,
) -> impl Iterator<Item = ActivityRow<'a>> {
    let highest = highest(activities);
    activities.iter().map(move |activity| ActivityRow {
        suggestion_id,
        event,
        activity,
        highest,
        gained: gained.of(&activity.act),
        received_at,
    })
}

/// Returns the highest index among the views of these activities.
pub(in crate::suggestions) fn highest(activities: &[Activity]) -> Option<i32> {
    activities.iter().filter_map(|activity| activity.act.index()).max()
}

/// The numbers of activities of a record.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::suggestions) struct Counts {
    views: i64,
    inputs: i64,
}

impl Counts {
    /// Counts activities that are added.
    pub(in crate::suggestions) fn add(&mut self, activities: &[Activity]) {
        for activity in activities {
            match activity.act {
                Act::Viewed(_) => self.views += 1,
                Act::Typed(_) => self.inputs += 1,
            }
        }
    }

    fn of(self, act: &Act) -> i64 {
        match act {
            Act::Viewed(_) => self.views,
            Act::Typed(_) => self.inputs,
        }
    }

    /// Returns what a record may not have, in words, if these are too many.
    pub(in crate::suggestions) fn excess(self) -> Option<String> {
        let exceeds = |count: i64, most: usize| usize::try_from(count).is_ok_and(|count| count > most);
        let views = exceeds(self.views, MOST_VIEWS).then(|| format!("more than {MOST_VIEWS} views"));
        views.or_else(|| exceeds(self.inputs, MOST_INPUTS).then(|| format!("more than {MOST_INPUTS} inputs")))
    }
}

/// Returns the numbers of the stored activities of those of these records that have any.
pub(in crate::suggestions) async fn stored_counts(
    connection: &mut PgConnection,
    project: &str,
    ids: &[Uuid],
) -> sqlx::Result<HashMap<Uuid, Counts>> {
    const SQL: &str = "
        select suggestion_id, count(*) filter (where kind = 'view'), count(*) filter (where kind = 'input')
        from suggestion_activity
        where project = $1 and suggestion_id = any($2) group by suggestion_id";
    let counts: Vec<(Uuid, i64, i64)> =
        sqlx::query_as(SQL).bind(project).bind(ids).fetch_all(connection).await?;
    Ok(counts.into_iter().map(|(id, views, inputs)| (id, Counts { views, inputs })).collect())
}

/// Finds those of these activities that are stored, by record and id, and whether each is the same as the stored one. If the
/// text was not kept, only the id decides. The database compares, because stored texts may be long, and a request can name
/// any number of them.
pub(in crate::suggestions) async fn stored_activities(
    connection: &mut PgConnection,
    project: &str,
    appends: &[Append<'_>],
) -> sqlx::Result<HashMap<(Uuid, Uuid), bool>> {
    static SQL: LazyLock<String> = LazyLock::new(|| {
        format!(
            "with sent as materialized (select {unnested})
            select a.suggestion_id, a.id,
                a.kind = sent.kind and a.index is not distinct from sent.index
                    and a.direction is not distinct from sent.direction
                    and (a.text is null or sent.text is null or a.text = sent.text)
            from sent
            join suggestion_activity a on a.project = $1 and a.suggestion_id = sent.suggestion_id and a.id = sent.id",
            unnested = insert::unnested::<Activities>(2),
        )
    });
    let rows: Vec<_> = (0..)
        .zip(appends)
        .flat_map(|(event, append)| activity_rows(event, append, Counts::default()))
        .collect();
    let parameters = insert::parameters(project, |parameters| Activities::bind_all(&rows, parameters))?;
    let stored: Vec<(Uuid, Uuid, bool)> =
        sqlx::query_as_with(SQL.as_str(), parameters).fetch_all(connection).await?;
    Ok(stored.into_iter().map(|(record, id, is_same)| ((record, id), is_same)).collect())
}

/// A move of a user, and when they made it if the client said so.
pub(in crate::suggestions) type Looked = (Look, Option<Timestamp>);

/// The views of a record: the index of each, or else its direction, and its time.
type LooksRow = (Uuid, Vec<Option<i32>>, Vec<Option<i16>>, Vec<Option<Timestamp>>);

/// Reads the views of these records, and calls `seen` with those of each record that has some, in the order of the times that
/// clients gave, and otherwise of arrival. Those of one record are in memory at a time, because all of them may be very many.
pub(in crate::suggestions) async fn each_looks(
    connection: &mut PgConnection,
    project: &str,
    ids: &[Uuid],
    mut seen: impl FnMut(Uuid, Vec<Looked>),
) -> sqlx::Result<()> {
    const SQL: &str = "
        select record.id, looks.indices, looks.directions, looks.times
        from unnest($2::uuid[]) as record (id)
        cross join lateral (
            select array_agg(index) as indices, array_agg(direction) as directions, array_agg(at) as times
            from (
                select index, direction, at from suggestion_activity
                where project = $1 and suggestion_id = record.id and kind = 'view'
                order by coalesce(at, received_at), arrival
            ) look
        ) looks
        where looks.indices is not null";
    let mut rows = sqlx::query_as::<_, LooksRow>(SQL).bind(project).bind(ids).fetch(connection);
    let mut pauses = Pauses::begin();
    while let Some((id, indices, directions, times)) = rows.try_next().await? {
        let looks = indices.into_iter().zip(directions).zip(times).map(|((index, direction), at)| {
            let index = index.and_then(|index| usize::try_from(index).ok());
            let way = if direction == Some(-1) { Direction::Prev } else { Direction::Next };
            (index.map_or(Look::Go(way), Look::At), at)
        });
        seen(id, looks.collect());
        pauses.pause().await;
    }
    Ok(())
}
