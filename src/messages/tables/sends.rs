//! The statements that make sends and lock them.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::sync::LazyLock;

use futures_util::stream::BoxStream;
use sqlx::types::Json;
use sqlx::{Connection as _, PgConnection};
use uuid::Uuid;

use super::messages::{
    MessageRow, Messages, insert_messages, insert_messages_from, length, unknown_messages,
};
use super::{PairRow, Pairs, insert_pairs_from};
use crate::db::insert::{self, Columns as _, columns};
use crate::messages::GivenPair;
use crate::messages::begun::LockedSend;
use crate::messages::event::StartSend;
use crate::messages::passed::Passed;
use crate::messages::prediction::Predicted;
use crate::messages::rules::trimming::Stage;

/// A row of a send that begins.
pub(in crate::messages) struct SendRow<'a> {
    pub(in crate::messages) id: Uuid,
    pub(in crate::messages) start: &'a StartSend,
    pub(in crate::messages) model: &'a str,
    pub(in crate::messages) topic_id: Option<&'a str>,
    pub(in crate::messages) session_id: Option<&'a str>,
    /// The send of the pair that this one asks again.
    pub(in crate::messages) sent_before: Option<Uuid>,
    pub(in crate::messages) predicted: &'a Predicted,
}

impl SendRow<'_> {
    fn selected<T>(&self, of: impl Fn(usize) -> T) -> impl Iterator<Item = T> {
        (self.predicted.boundary()..self.predicted.pairs.len()).map(of)
    }

    fn passed(&self) -> Option<&Passed> {
        self.start.passed.as_ref()
    }

    /// The stored pairs among those that the user saw.
    fn visible(&self) -> impl Iterator<Item = Uuid> {
        let is_stored = self.passed().is_none();
        self.predicted.pairs.iter().map(|pair| pair.key).filter(move |key| is_stored && !key.is_nil())
    }

    fn given(&self) -> Option<Json<Vec<&GivenPair>>> {
        self.start.given.as_ref()?;
        Some(Json(self.predicted.included().iter().filter_map(|pair| pair.given.as_ref()).collect()))
    }

    fn stage(&self) -> Stage {
        if self.predicted.preflight > 0 { Stage::Preflight } else { Stage::Initial }
    }
}

/// Returns a Postgres array of plain values, as text.
fn array<T: std::fmt::Display>(values: impl Iterator<Item = T>) -> String {
    let mut text = String::from("{");
    for (index, value) in values.enumerate() {
        let _ = write!(text, "{}{value}", if index == 0 { "" } else { "," });
    }
    text.push('}');
    text
}

/// Returns a name as it stands in a Postgres array.
fn quoted(name: Option<&str>) -> String {
    name.map_or_else(
        || "null".to_owned(),
        |name| format!("\"{}\"", name.replace('\\', "\\\\").replace('"', "\\\"")),
    )
}

columns! {
    /// The columns of a send that are known when it begins.
    struct Sends<'a>(SendRow<'a>);
    |row| {
        "id": "uuid" = row.id,
        "pair_id": "uuid" = row.start.pair_id,
        "mode": "text" = row.start.mode,
        "stage": "text" = row.stage(),
        "model": "text" = row.model,
        "topic_id": "text" = row.topic_id,
        "session_id": "text" = row.session_id,
        "system": "text" = row.start.new.system.as_deref().filter(|_| row.start.keeps_text),
        "system_hash": "bytea" = row.start.system_hash.as_deref(),
        "system_tokens": "bigint" = row.predicted.budget.system,
        "max_context": "bigint" = row.passed().is_none().then_some(row.predicted.budget.max_context),
        "user_request_allowance": "bigint" = row.predicted.budget.allowance,
        "max_trim_attempts": "int" = row.predicted.max_trims,
        "chars_per_token": "float8" = row.predicted.chars_per_token,
        "ratio": "float8" = row.predicted.ratio(),
        "visible_count": "int" = i32::try_from(row.predicted.pairs.len()).unwrap_or(i32::MAX),
        "visible_ids": "text" as "uuid[]" = array(row.visible()),
        "selected_ids": "text" as "uuid[]" = array(row.selected(|index| row.predicted.pairs[index].key)),
        "selected_revisions": "text" as "int[]" = array(row.selected(|index| row.predicted.pairs[index].revision)),
        "selected_tokens": "text" as "bigint[]" = array(row.selected(|index| row.predicted.sizes[index])),
        "selected_models": "text" as "text[]" = array(row.selected(|index| quoted(row.predicted.pairs[index].model.as_deref()))),
        "measured": "text" as "bool[]" = array(row.selected(|index| row.predicted.measured[index])),
        "given_pairs": "jsonb" as "json" = row.given(),
        "predicted_history": "bigint" = row.predicted.prediction.history,
        "aut": "bigint" = row.predicted.aut,
        "preflight_count": "int" = i32::try_from(row.predicted.preflight).unwrap_or(i32::MAX),
        "quota": "jsonb" as "json" = (!row.predicted.quota.is_empty()).then_some(Json(&row.predicted.quota)),
        "reask_of": "uuid" = row.start.new.reask_of,
        "sent_before": "uuid" = row.sent_before,
        "generation_id": "uuid" = row.passed().and_then(|passed| passed.generation_id),
        "lease_until": "timestamptz" = row.start.created_at.plus(row.start.lease),
        "created_at": "timestamptz" = row.start.created_at,
        "request_hash": "bytea" = row.start.hash.as_slice(),
    }
}

/// What was inserted of sends and of their pairs.
#[derive(Default)]
pub(in crate::messages) struct Inserted {
    /// The ids of the pairs that did not exist yet.
    pub(in crate::messages) pairs: HashSet<Uuid>,
    /// The ids of the sends that did not exist yet, of those whose pair did not either.
    pub(in crate::messages) sends: HashSet<Uuid>,
}

/// The number of bytes of messages from which on a statement of their own inserts them.
const LONG: usize = 1 << 20;

/// Inserts sends, each with its pair, and the messages that they carry through the gateway. It is a single statement, since a
/// request to the gateway waits for it, unless the messages are long: a statement takes memory for each text twice, so that
/// they have one of their own in the same transaction. The foreign key of messages locks the stored ones that new rows follow. If one of them
/// is erased meanwhile, that is a lost race, and a repetition inserts it again.
pub(in crate::messages) async fn insert_sends(
    connection: &mut PgConnection,
    project: &str,
    pairs: &[PairRow<'_>],
    sends: &[SendRow<'_>],
    messages: Vec<MessageRow<'_>>,
) -> sqlx::Result<Inserted> {
    static SQL: LazyLock<String> = LazyLock::new(|| {
        let of_sends = 2 + Pairs::COLUMNS.len();
        format!(
            "with made as ({pairs} returning id),
            begun as (
                insert into sends (project, {names}, state, trimmed_count)
                select $1, {values}, 'sending', new.preflight_count
                from (select {unnested}) new
                where new.pair_id in (select id from made)
                order by new.id
                on conflict do nothing
                returning id
            ),
            carried as ({messages})
            select false as is_send, id from made union all select true, id from begun",
            pairs = insert_pairs_from(2),
            names = insert::names::<Sends>(),
            values = insert::values::<Sends>("new"),
            unnested = insert::unnested::<Sends>(of_sends),
            messages = insert_messages_from(of_sends + Sends::COLUMNS.len()),
        )
    });
    let mut inserted = Inserted::default();
    if sends.is_empty() {
        return Ok(inserted);
    }
    let messages = unknown_messages(connection, project, messages).await?;
    let (now, later) = if length(&messages) > LONG { (Vec::new(), messages) } else { (messages, Vec::new()) };
    let parameters = insert::parameters(project, |parameters| {
        Pairs::bind_all(pairs, parameters)?;
        Sends::bind_all(sends, parameters)?;
        Messages::bind_all(&now, parameters)
    })?;
    let begin = sqlx::query_as_with(SQL.as_str(), parameters);
    let rows: Vec<(bool, Uuid)> = if later.is_empty() {
        begin.fetch_all(connection).await?
    } else {
        let mut transaction = connection.begin().await?;
        let rows = begin.fetch_all(&mut *transaction).await?;
        transaction.shrink_buffers();
        insert_messages(&mut transaction, project, &later).await?;
        transaction.commit().await?;
        rows
    };
    for (is_send, id) in rows {
        let ids = if is_send { &mut inserted.sends } else { &mut inserted.pairs };
        ids.insert(id);
    }
    Ok(inserted)
}

/// Locks sends in the order of their ids, so that two transactions that lock the same ones wait for each other instead
/// of forming a deadlock.
pub(in crate::messages) async fn lock_sends(
    connection: &mut PgConnection,
    project: &str,
    ids: &[Uuid],
) -> sqlx::Result<HashMap<Uuid, LockedSend>> {
    const SQL: &str = "
        select id, state, stage, mode, model, pair_id, system_tokens, max_trim_attempts, ratio,
            cardinality(selected_ids) as selected,
            (select coalesce(sum(size), 0)::bigint
                from unnest(selected_tokens[trimmed_count + 1:], measured[trimmed_count + 1:]) as kept (size, is_measured)
                where is_measured) as measured_tokens,
            (select coalesce(sum(size), 0)::bigint
                from unnest(selected_tokens[trimmed_count + 1:], measured[trimmed_count + 1:]) as kept (size, is_measured)
                where not is_measured) as estimated_tokens,
            aut, input_tokens, preflight_count, trimmed_count, attempts_used, outcome_hash
        from sends where project = $1 and id = any($2) order by id for no key update";
    let rows: Vec<LockedSend> = sqlx::query_as(SQL).bind(project).bind(ids).fetch_all(connection).await?;
    Ok(rows.into_iter().map(|row| (row.id, row)).collect())
}

/// The selected pairs of a send: the send's id, the ids of its pairs as the client knows them, and their sizes in tokens.
pub(in crate::messages) type Selection = (Uuid, Vec<String>, Vec<i64>);

/// Returns the selected pairs of sends, one send after the other, because each may have many.
pub(in crate::messages) fn selections<'a>(
    connection: &'a mut PgConnection,
    project: &'a str,
    ids: &'a [Uuid],
) -> BoxStream<'a, sqlx::Result<Selection>> {
    const SQL: &str = "
        select id,
            case when given_pairs is null then selected_ids::text[]
                else array(select pair ->> 'id' from json_array_elements(given_pairs) with ordinality as given (pair, number)
                    order by number)
            end,
            selected_tokens
        from sends where project = $1 and id = any($2)";
    sqlx::query_as(SQL).bind(project).bind(ids).fetch(connection)
}
