//! The pairs that a send may contain: visible stored pairs, pairs in the request, or the turns of a conversation.

use std::collections::HashMap;

use sqlx::{PgConnection, PgExecutor, Postgres, QueryBuilder};
use uuid::Uuid;

use super::refusals::Failed;
use super::requests::{GivenPair, MOST_PAIRS};
use super::rules::estimate::Length;
use super::visible::{PairFilter, Visible};
use crate::error::{Error, FieldError};

/// A pair that a send may contain, without its texts.
#[derive(Debug, Clone)]
pub struct Candidate {
    /// The id of a stored pair, or the client's name for a pair in the request.
    pub id: String,
    /// The id of a stored pair, or nil for a pair in the request.
    pub key: Uuid,
    /// Which text of the pair this is.
    pub revision: i32,
    /// The pair's model.
    pub model: Option<String>,
    /// The length of the pair's texts.
    pub length: Length,
    /// The measured size of the pair, and the model for which it was measured.
    pub measured: Option<(i64, Option<String>)>,
    /// The texts of a pair in the request.
    pub given: Option<GivenPair>,
}

crate::texts! {
    Candidate: given;
}

impl Candidate {
    /// Takes a pair that was sent along.
    #[must_use]
    pub fn given(pair: GivenPair) -> Self {
        let answer = pair.assistant_text.as_deref().map_or_else(Length::default, Length::of);
        Self {
            id: pair.id.clone(),
            key: Uuid::nil(),
            revision: 0,
            model: None,
            length: Length::of(&pair.user_text).and(answer),
            measured: pair.tokens.map(|tokens| (tokens, None)),
            given: Some(pair),
        }
    }

    /// Takes a turn of a conversation that goes through the gateway.
    pub(super) fn turn(id: Uuid, length: Length) -> Self {
        Self { id: id.to_string(), key: id, revision: 0, model: None, length, measured: None, given: None }
    }

    /// Removes the texts.
    pub fn forget(&mut self) {
        if let Some(pair) = &mut self.given {
            pair.user_text.clear();
            pair.assistant_text = None;
        }
    }

    pub(super) fn measured_for(&self, model: Option<&str>) -> Option<i64> {
        let (tokens, of) = self.measured.as_ref()?;
        of.as_deref().is_none_or(|of| Some(of) == model).then_some(*tokens)
    }
}

#[derive(sqlx::FromRow)]
struct Row {
    id: Uuid,
    revision: i32,
    model: Option<String>,
    chars: i64,
    units: f64,
    tokens: Option<i64>,
    tokens_model: Option<String>,
}

impl From<Row> for Candidate {
    fn from(row: Row) -> Self {
        Self {
            id: row.id.to_string(),
            key: row.id,
            revision: row.revision,
            model: row.model,
            length: Length { chars: row.chars, units: row.units },
            measured: row.tokens.map(|tokens| (tokens, row.tokens_model)),
            given: None,
        }
    }
}

/// The columns of a candidate. An answer that is not complete is not sent, so neither does it count.
const CANDIDATE: &str = "p.id, p.revision, p.model, p.tokens, p.tokens_model,
    p.user_chars + case when p.lifecycle_state = 'complete' then p.assistant_chars else 0 end as chars,
    p.user_units + case when p.lifecycle_state = 'complete' then p.assistant_units else 0 end as units";

/// Selects pairs of a project without those that are being sent and without `except`.
fn select(columns: &str, project: &str, except: Option<Uuid>) -> QueryBuilder<Postgres> {
    let mut query = QueryBuilder::new(format!("select {columns} from pairs p where p.project = "));
    query.push_bind(project.to_owned());
    query.push(" and p.lifecycle_state <> 'sending' and p.id is distinct from ").push_bind(except);
    query
}

/// Returns the visible pairs, without those that are being sent and without `except`. The oldest comes first, or they
/// come in the order in which they are named.
pub async fn visible(
    connection: &mut PgConnection,
    project: &str,
    visible: &Visible,
    except: Option<Uuid>,
) -> Result<Vec<Candidate>, Failed> {
    match (&visible.ids, &visible.filter) {
        (Some(ids), _) => named(connection, project, ids, except).await,
        (None, Some(filter)) => {
            let ids = found(&mut *connection, project, filter, except).await?;
            still_there(connection, project, &ids, except).await
        }
        (None, None) => Ok(Vec::new()),
    }
}

/// Returns the pairs with these ids, in this order. Each must be a pair whose text is kept.
async fn named(
    connection: &mut PgConnection,
    project: &str,
    ids: &[Uuid],
    except: Option<Uuid>,
) -> Result<Vec<Candidate>, Failed> {
    const KNOWN: &str = "select id, user_text is not null from pairs where project = $1 and id = any($2)";
    let known: Vec<(Uuid, bool)> =
        sqlx::query_as(KNOWN).bind(project).bind(ids).fetch_all(&mut *connection).await?;
    let known: HashMap<_, _> = known.into_iter().collect();
    let wrong = ids.iter().enumerate().filter_map(|(index, id)| {
        let detail = match known.get(id) {
            Some(true) => return None,
            Some(false) => "names a pair whose text is not kept",
            None => "names no pair of this project",
        };
        Some(FieldError { pointer: format!("/visible/ids/{index}"), detail: detail.to_owned() })
    });
    let wrong: Vec<_> = wrong.collect();
    if !wrong.is_empty() {
        return Err(Error::Invalid(wrong).into());
    }
    let mut query = select(CANDIDATE, project, except);
    query.push(" and p.id = any(").push_bind(ids.to_vec()).push(")");
    let rows: Vec<Row> = query.build_query_as().fetch_all(connection).await?;
    let mut rows: HashMap<_, _> = rows.into_iter().map(|row| (row.id, row)).collect();
    Ok(ids.iter().filter_map(|id| rows.remove(id)).map(Candidate::from).collect())
}

/// Returns the pairs that match a filter and whose text is kept, and one more than there may be if there are too many. It may
/// read every pair of the project, so the writer has no time for it.
pub(super) async fn found(
    db: impl PgExecutor<'_>,
    project: &str,
    filter: &PairFilter,
    except: Option<Uuid>,
) -> sqlx::Result<Vec<Uuid>> {
    let mut query = select("p.id", project, except);
    query.push(" and p.user_text is not null");
    filter.push(&mut query);
    let most = i64::try_from(MOST_PAIRS).unwrap_or(i64::MAX);
    query.push(" order by p.created_at, p.id limit ").push_bind(most + 1);
    query.build_query_scalar().fetch_all(db).await
}

/// Returns the pairs that a filter has found, the oldest first, without those that are gone or being sent by now.
pub(super) async fn still_there(
    connection: &mut PgConnection,
    project: &str,
    ids: &[Uuid],
    except: Option<Uuid>,
) -> Result<Vec<Candidate>, Failed> {
    if ids.len() > MOST_PAIRS {
        return Err(Error::invalid("/visible/filter", "matches more than 10000 pairs").into());
    }
    let mut query = select(CANDIDATE, project, except);
    query.push(" and p.user_text is not null and p.id = any(").push_bind(ids.to_vec());
    query.push(") order by p.created_at, p.id");
    let rows: Vec<Row> = query.build_query_as().fetch_all(connection).await?;
    Ok(rows.into_iter().map(Candidate::from).collect())
}
