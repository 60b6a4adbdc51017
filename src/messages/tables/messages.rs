//! The statement that stores messages that went through the gateway.

use std::collections::HashSet;
use std::sync::LazyLock;

use sqlx::PgConnection;
use uuid::Uuid;

use crate::db::insert::{self, Columns as _, columns};
use crate::messages::passed::SentMessage;

/// A row of a message that went through the gateway.
pub(in crate::messages) struct MessageRow<'a> {
    pub(in crate::messages) session: Option<&'a str>,
    pub(in crate::messages) sent: &'a SentMessage,
}

columns! {
    /// The columns of a message that went through the gateway.
    struct Messages<'a>(MessageRow<'a>);
    |row| {
        "id": "uuid" = row.sent.id,
        "parent": "uuid" = row.sent.parent,
        "turn": "uuid" = row.sent.turn,
        "session": "text" = row.session,
        "message": "text" as "json" = row.sent.message.get(),
    }
}

/// The size in bytes up to which messages are sent to the database without checking first which of them it has.
const FEW: usize = 16 << 10;

/// Stores those messages that went through the gateway and are not stored yet.
pub(in crate::messages) async fn insert_messages(
    connection: &mut PgConnection,
    project: &str,
    mut messages: Vec<MessageRow<'_>>,
) -> sqlx::Result<()> {
    static SQL: LazyLock<String> = LazyLock::new(|| {
        format!(
            "insert into sent_messages (project, {names}) select $1, {values} from (select {unnested}) new
            order by new.id
            on conflict do nothing",
            names = insert::names::<Messages>(),
            values = insert::values::<Messages>("new"),
            unnested = insert::unnested::<Messages>(2),
        )
    });
    const KNOWN: &str = "select id from sent_messages where project = $1 and id = any($2)";
    let bytes: usize = messages.iter().map(|row| row.sent.message.get().len()).sum();
    if bytes > FEW {
        let ids: Vec<_> = messages.iter().map(|row| row.sent.id).collect();
        let known: Vec<Uuid> =
            sqlx::query_scalar(KNOWN).bind(project).bind(ids).fetch_all(&mut *connection).await?;
        let known: HashSet<_> = known.into_iter().collect();
        messages.retain(|row| !known.contains(&row.sent.id));
    }
    if messages.is_empty() {
        return Ok(());
    }
    let parameters = insert::parameters(project, |parameters| Messages::bind_all(&messages, parameters))?;
    sqlx::query_with(SQL.as_str(), parameters).execute(connection).await?;
    Ok(())
}
