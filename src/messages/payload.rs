//! The messages of a call and their texts.

use std::collections::HashMap;

use sqlx::PgConnection;
use uuid::Uuid;

use crate::db::rows;
use crate::error::Result;
use crate::http::memory::Reading;

/// A message as models take it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct Message<'a> {
    /// `system`, `user` or `assistant`.
    pub role: &'static str,
    /// The text.
    pub content: &'a str,
}

/// Returns the messages of a call: the system message, the messages of the pairs in order, and the new message. Blank
/// texts are left out.
#[must_use]
pub fn messages<'a>(
    system: Option<&'a str>,
    pairs: impl IntoIterator<Item = (&'a str, Option<&'a str>)>,
    user: Option<&'a str>,
) -> Vec<Message<'a>> {
    let pairs = pairs.into_iter().flat_map(|(user, answer)| [("user", Some(user)), ("assistant", answer)]);
    [("system", system)]
        .into_iter()
        .chain(pairs)
        .chain([("user", user)])
        .filter_map(|(role, text)| {
            let content = text.filter(|text| !text.trim().is_empty())?;
            Some(Message { role, content })
        })
        .collect()
}

/// The texts of a stored pair as they were when it was sent.
pub type Texts = HashMap<(Uuid, i32), (String, Option<String>)>;

/// Returns the texts of stored pairs, each in its revision. Erased and unstored texts are missing. Holds memory for them, and refuses
/// more than 32 MiB, because sizes in tokens may be those that clients have given.
pub async fn texts(
    connection: &mut PgConnection,
    project: &str,
    keys: &[(Uuid, i32)],
    reading: &Reading<'_>,
) -> Result<Texts> {
    // An answer that arrived after the pair was sent has its own revision.
    const SQL: &str = "
        with sought as materialized (select unnest($2::uuid[]) as id, unnest($3::int[]) as revision)
        select s.id, s.revision, p.user_text, case when p.lifecycle_state = 'complete' then p.assistant_text end
        from sought s join pairs p on p.project = $1 and p.id = s.id and p.revision = s.revision
        where p.user_text is not null
        union all
        select s.id, s.revision, r.user_text, r.assistant_text
        from sought s join pair_revisions r on r.project = $1 and r.pair_id = s.id and r.revision = s.revision
        where r.user_text is not null";
    let (ids, revisions): (Vec<_>, Vec<_>) = keys.iter().copied().unzip();
    let query = sqlx::query(SQL).bind(project).bind(ids).bind(revisions);
    let rows: Vec<(Uuid, i32, String, Option<String>)> = rows::parts(query, connection, reading).await?;
    Ok(rows.into_iter().map(|(id, revision, user, answer)| ((id, revision), (user, answer))).collect())
}
