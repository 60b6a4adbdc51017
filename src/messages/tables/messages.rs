//! The messages that went through the gateway, as they are stored with the send that carries them.

use std::collections::HashSet;
use std::sync::LazyLock;

use sqlx::PgConnection;
use uuid::Uuid;

use crate::db::insert::{self, Columns as _, columns};
use crate::messages::passed::SentMessage;

/// A row of a message that went through the gateway, or of the end of a send, which keeps the messages before it.
pub(in crate::messages) struct MessageRow<'a> {
    id: Uuid,
    parent: Option<Uuid>,
    /// None at the end of a send.
    sent: Option<&'a SentMessage>,
}

impl<'a> MessageRow<'a> {
    /// Makes the rows of what a send carries: its messages, and after the last one its end.
    pub(in crate::messages) fn of(send: Uuid, messages: &'a [SentMessage]) -> impl Iterator<Item = Self> {
        let end = messages.last().map(|last| Self { id: send, parent: Some(last.id), sent: None });
        messages.iter().map(|sent| Self { id: sent.id, parent: sent.parent, sent: Some(sent) }).chain(end)
    }
}

columns! {
    /// The columns of a message that went through the gateway.
    pub(super) struct Messages<'a>(MessageRow<'a>);
    |row| {
        "id": "uuid" = row.id,
        "parent": "uuid" = row.parent,
        "turn": "uuid" = row.sent.and_then(|sent| sent.turn),
        "content": "uuid" = row.sent.map(|sent| sent.content),
        "message": "text" as "json" = row.sent.map(|sent| sent.message.get()),
    }
}

/// The size in bytes up to which messages are sent to the database without checking first which of them it has.
const FEW: usize = 16 << 10;

/// Returns the statement that inserts the messages which are not stored yet, with its columns' parameters from `first` on.
pub(super) fn insert_messages_from(first: usize) -> String {
    format!(
        "insert into sent_messages (project, {names}) select $1, {values} from (select {unnested}) new
        order by new.id
        on conflict do nothing",
        names = insert::names::<Messages>(),
        values = insert::values::<Messages>("new"),
        unnested = insert::unnested::<Messages>(first),
    )
}

/// Inserts the messages which are not stored yet.
pub(super) async fn insert_messages(
    connection: &mut PgConnection,
    project: &str,
    messages: &[MessageRow<'_>],
) -> sqlx::Result<()> {
    static SQL: LazyLock<String> = LazyLock::new(|| insert_messages_from(2));
    let parameters = insert::parameters(project, |parameters| Messages::bind_all(messages, parameters))?;
    sqlx::query_with(SQL.as_str(), parameters).execute(connection).await?;
    Ok(())
}

/// Returns how many bytes messages have.
pub(super) fn length(messages: &[MessageRow<'_>]) -> usize {
    messages.iter().filter_map(|row| row.sent).map(|sent| sent.message.get().len()).sum()
}

/// Returns the messages that the database may not have: it is not sent many bytes without having been asked.
pub(super) async fn unknown_messages<'a>(
    connection: &mut PgConnection,
    project: &str,
    mut messages: Vec<MessageRow<'a>>,
) -> sqlx::Result<Vec<MessageRow<'a>>> {
    // The plan may have been made when there were few messages, and is to ask the index for each all the same.
    const KNOWN: &str = "
        select m.id from unnest($2::uuid[]) as new (id) join sent_messages m on m.project = $1 and m.id = new.id";
    if length(&messages) > FEW {
        let ids: Vec<_> = messages.iter().map(|row| row.id).collect();
        let known: Vec<Uuid> =
            sqlx::query_scalar(KNOWN).bind(project).bind(ids).fetch_all(connection).await?;
        let known: HashSet<_> = known.into_iter().collect();
        messages.retain(|row| !known.contains(&row.id));
    }
    Ok(messages)
}
