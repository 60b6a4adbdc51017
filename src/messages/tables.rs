//! The statements that write message pairs and sends. Those for many rows take a column as an array (see
//! [`insert`](mod@crate::db::insert)).

mod calls;
mod messages;
mod sends;

use std::collections::{HashMap, HashSet};
use std::sync::LazyLock;

use sqlx::PgConnection;
use uuid::Uuid;

use super::event::StartPair;
use super::rules::estimate::Length;
use super::{PairState, named};
use crate::db::insert::{self, Columns as _, columns};
use crate::exports::forget::forget;
use crate::messages::exports::DATASETS;
use crate::types::Timestamp;

pub(super) use calls::{
    AttemptRow, EndRow, StoredAttempt, begin_learning, end_sends, insert_attempts, note_attempts,
    stored_attempts,
};
pub(super) use messages::MessageRow;
pub(super) use sends::{SendRow, insert_sends, lock_sends, selections};

/// A row of a pair that begins.
pub(super) struct PairRow<'a> {
    pub(super) id: Uuid,
    pub(super) topic_id: Option<&'a str>,
    pub(super) session_id: Option<&'a str>,
    pub(super) model: Option<&'a str>,
    pub(super) user_text: Option<&'a str>,
    pub(super) assistant_text: Option<&'a str>,
    pub(super) user: Length,
    pub(super) assistant: Length,
    pub(super) star: i16,
    pub(super) color_flag: Option<&'a str>,
    pub(super) state: PairState,
    pub(super) tokens: Option<i64>,
    pub(super) has_media: bool,
    pub(super) turn: Option<Uuid>,
    pub(super) said: Option<Uuid>,
    pub(super) send_id: Option<Uuid>,
    pub(super) created_at: Timestamp,
    pub(super) hash: &'a [u8],
}

impl<'a> PairRow<'a> {
    /// Makes the row of a pair that a client posts.
    pub(super) fn posted(id: Uuid, start: &'a StartPair) -> Self {
        let new = &start.new;
        let kept = |text: &'a str| Some(text).filter(|_| start.keeps_text);
        Self {
            id,
            topic_id: named(new.topic_id.as_deref()),
            session_id: named(new.session_id.as_deref()),
            model: named(new.model.as_deref()),
            user_text: kept(&new.user_text),
            assistant_text: new.assistant_text.as_deref().and_then(kept),
            user: start.user,
            assistant: start.assistant,
            star: new.star.unwrap_or(0),
            color_flag: named(new.color_flag.as_deref()),
            state: if new.assistant_text.is_some() { PairState::Complete } else { PairState::Idle },
            tokens: new.tokens,
            has_media: false,
            turn: None,
            said: None,
            send_id: None,
            created_at: start.created_at,
            hash: &start.hash,
        }
    }
}

columns! {
    /// The columns of a pair that are known when it begins.
    struct Pairs<'a>(PairRow<'a>);
    |row| {
        "id": "uuid" = row.id,
        "topic_id": "text" = row.topic_id,
        "session_id": "text" = row.session_id,
        "model": "text" = row.model,
        "user_text": "text" = row.user_text,
        "assistant_text": "text" = row.assistant_text,
        "user_chars": "bigint" = row.user.chars,
        "user_units": "float8" = row.user.units,
        "assistant_chars": "bigint" = row.assistant.chars,
        "assistant_units": "float8" = row.assistant.units,
        "star": "smallint" = row.star,
        "color_flag": "text" = row.color_flag,
        "lifecycle_state": "text" = row.state,
        "tokens": "bigint" = row.tokens,
        "tokens_model": "text" = row.tokens.and(row.model),
        "has_media": "bool" = row.has_media,
        "turn": "uuid" = row.turn,
        "said": "uuid" = row.said,
        "send_id": "uuid" = row.send_id,
        "created_at": "timestamptz" = row.created_at,
        "request_hash": "bytea" = row.hash,
    }
}

/// Returns the statement that inserts the pairs which do not exist yet, with its columns' parameters from `first` on.
fn insert_pairs_from(first: usize) -> String {
    format!(
        "insert into pairs (project, {names}, completed_at)
        select $1, {values},
            case when new.lifecycle_state = 'complete' then
                (select clock_timestamp()) + new.ordinal * interval '1 microsecond' end
        from (select {unnested}, generate_subscripts(${first}, 1) as ordinal) new
        order by new.id
        on conflict do nothing",
        names = insert::names::<Pairs>(),
        values = insert::values::<Pairs>("new"),
        unnested = insert::unnested::<Pairs>(first),
    )
}

/// Inserts pairs. Returns the ids of those that did not exist yet. They are inserted in the order of their ids, and
/// completed in the order given, a microsecond apart.
pub(super) async fn insert_pairs(
    connection: &mut PgConnection,
    project: &str,
    pairs: &[PairRow<'_>],
) -> sqlx::Result<HashSet<Uuid>> {
    static SQL: LazyLock<String> = LazyLock::new(|| format!("{} returning id", insert_pairs_from(2)));
    if pairs.is_empty() {
        return Ok(HashSet::new());
    }
    let parameters = insert::parameters(project, |parameters| Pairs::bind_all(pairs, parameters))?;
    let created: Vec<Uuid> = sqlx::query_scalar_with(SQL.as_str(), parameters).fetch_all(connection).await?;
    Ok(created.into_iter().collect())
}

/// A record that exists already.
pub(super) enum Table {
    Pairs,
    Sends,
}

/// Returns the hashes of the requests that made these records.
pub(super) async fn request_hashes(
    connection: &mut PgConnection,
    project: &str,
    table: Table,
    ids: &[Uuid],
) -> sqlx::Result<HashMap<Uuid, Vec<u8>>> {
    let sql = match table {
        Table::Pairs => "select id, request_hash from pairs where project = $1 and id = any($2)",
        Table::Sends => "select id, request_hash from sends where project = $1 and id = any($2)",
    };
    let rows: Vec<(Uuid, Vec<u8>)> =
        sqlx::query_as(sql).bind(project).bind(ids).fetch_all(connection).await?;
    Ok(rows.into_iter().collect())
}

/// A pair that is sent again or changed.
#[derive(sqlx::FromRow)]
pub(super) struct Reasked {
    pub(super) id: Uuid,
    pub(super) state: PairState,
    pub(super) user_text: Option<String>,
    pub(super) user_chars: i64,
    pub(super) user_units: f64,
    pub(super) topic_id: Option<String>,
    pub(super) session_id: Option<String>,
    pub(super) model: Option<String>,
    pub(super) has_media: bool,
    pub(super) turn: Option<Uuid>,
    pub(super) said: Option<Uuid>,
    pub(super) send_id: Option<Uuid>,
}

impl Reasked {
    /// Returns the length of what the user said.
    pub(super) fn length(&self) -> Length {
        Length { chars: self.user_chars, units: self.user_units }
    }
}

/// Locks a pair.
pub(super) async fn lock_pair(
    connection: &mut PgConnection,
    project: &str,
    id: Uuid,
) -> sqlx::Result<Option<Reasked>> {
    const SQL: &str = "
        select id, lifecycle_state as state, user_text, user_chars, user_units, topic_id, session_id, model, has_media, turn, said,
            send_id
        from pairs
        where project = $1 and id = $2 for update";
    sqlx::query_as(SQL).bind(project).bind(id).fetch_optional(connection).await
}

/// Erases pairs with their earlier texts, with the texts of their errors and, of those that the gateway created, with their copies
/// in later requests.
pub(super) async fn erase_pairs(
    connection: &mut PgConnection,
    project: &str,
    ids: &[Uuid],
) -> sqlx::Result<u64> {
    // The copies are the human message wherever it was sent in the session, whatever followed it there, and each of these
    // messages elsewhere, because a request may begin with any. What is in the turn of a pair that stays is that one's, since
    // ordinary words are said again and again. The planner takes a new project to have a single pair: without `offset 0`, it
    // may read all of the project's for each message.
    const COPIES: &str = "
        with recursive gone as materialized (
            select turn, said from pairs where project = $1 and id = any($2) and said is not null
        ), copy as (
            select m.id, m.turn, m.content from (select distinct said as content from gone) said
            join sent_messages m on m.project = $1 and m.content = said.content and m.turn = m.id
            where m.turn in (select turn from gone) or not exists (
                select from (select project from pairs where turn = m.turn offset 0) other where project = $1)
            union
            select m.id, m.turn, m.content from copy join sent_messages m
            on m.project = $1 and m.parent = copy.id and m.turn = copy.turn
        ), content as materialized (select distinct content from copy)
        update sent_messages m set message = null from content
        where m.project = $1 and m.content = content.content and m.message is not null
            and (m.turn in (select turn from gone) or not exists (
                select from (select project from pairs where turn = m.turn offset 0) other where project = $1))";
    // A provider may quote what it was sent in the errors of the sends, and of those before that asked the same.
    const ERRORS: &str = "
        with recursive gone (send_id) as (
            select send_id from pairs where project = $1 and id = any($2) and send_id is not null
            union
            select s.sent_before from gone
            join sends s on s.project = $1 and s.id = gone.send_id and s.sent_before is not null
        ), calls as (
            update send_attempts a set error = without_text(a.error) from gone
            where a.project = $1 and a.send_id = gone.send_id and a.error is not null
        )
        update sends s set error = without_text(s.error) from gone
        where s.project = $1 and s.id = gone.send_id and s.error is not null";
    sqlx::query(COPIES).bind(project).bind(ids).execute(&mut *connection).await?;
    sqlx::query(ERRORS).bind(project).bind(ids).execute(&mut *connection).await?;
    delete_pairs(connection, project, ids).await
}

/// Deletes pairs with their earlier texts.
pub(super) async fn delete_pairs(
    connection: &mut PgConnection,
    project: &str,
    ids: &[Uuid],
) -> sqlx::Result<u64> {
    let sql = "delete from pairs where project = $1 and id = any($2) returning id";
    let erased: Vec<Uuid> =
        sqlx::query_scalar(sql).bind(project).bind(ids).fetch_all(&mut *connection).await?;
    let sql = "delete from pair_revisions where project = $1 and pair_id = any($2)";
    sqlx::query(sql).bind(project).bind(ids).execute(&mut *connection).await?;
    forget(connection, project, &DATASETS, &erased).await?;
    Ok(erased.len() as u64)
}

/// Changes a pair that is locked. Its texts are put aside first, if they change, for the sends that have sent them.
pub(super) async fn edit_pair(
    connection: &mut PgConnection,
    project: &str,
    id: Uuid,
    edit: &super::event::Edit,
) -> sqlx::Result<()> {
    const PUT_ASIDE: &str = "
        insert into pair_revisions (project, pair_id, revision, user_text, assistant_text)
        select project, id, revision, user_text, assistant_text from pairs where project = $1 and id = $2";
    const EDIT: &str = "
        update pairs set
            user_text = case when $3 then $4 else user_text end,
            user_chars = coalesce($5, user_chars), user_units = coalesce($6, user_units),
            assistant_text = case when $7 then $8 else assistant_text end,
            assistant_chars = coalesce($9, assistant_chars), assistant_units = coalesce($10, assistant_units),
            tool_calls = case when $7 then null else tool_calls end,
            is_partial = is_partial and not $7,
            has_media = has_media and not $3,
            lifecycle_state = case when $7 then 'complete' else lifecycle_state end,
            error = case when $7 then null else error end,
            completed_at = case when $7 then coalesce(completed_at, clock_timestamp()) else completed_at end,
            tokens = case
                when $3 and (user_text, user_chars, user_units) is distinct from ($4, $5, $6)
                    or $7 and (assistant_text, assistant_chars, assistant_units) is distinct from ($8, $9, $10) then null
                else tokens end,
            revision = case when $3 or $7 then revision + 1 else revision end,
            topic_id = case when $11::text is null then topic_id else nullif($11, '') end,
            model = case when $12::text is null then model else nullif($12, '') end,
            star = coalesce($13, star),
            color_flag = case when $14::text is null then color_flag else nullif($14, '') end
        where project = $1 and id = $2";
    let change = &edit.change;
    let (user, assistant) = (edit.user, edit.assistant);
    if user.is_some() || assistant.is_some() {
        sqlx::query(PUT_ASIDE).bind(project).bind(id).execute(&mut *connection).await?;
    }
    let kept = |text: &Option<String>| text.clone().filter(|_| edit.keeps_text);
    sqlx::query(EDIT)
        .bind(project)
        .bind(id)
        .bind(user.is_some())
        .bind(kept(&change.user_text))
        .bind(user.map(|length| length.chars))
        .bind(user.map(|length| length.units))
        .bind(assistant.is_some())
        .bind(kept(&change.assistant_text))
        .bind(assistant.map(|length| length.chars))
        .bind(assistant.map(|length| length.units))
        .bind(change.topic_id.as_deref())
        .bind(change.model.as_deref())
        .bind(change.star)
        .bind(change.color_flag.as_deref())
        .execute(connection)
        .await?;
    Ok(())
}
