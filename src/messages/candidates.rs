//! The pairs that a send may contain: visible stored pairs, pairs in the request, or the turns of a conversation.

use std::collections::HashMap;

use sqlx::{PgConnection, Postgres, QueryBuilder};
use uuid::Uuid;

use super::refusals::Failed;
use super::requests::{GivenPair, MOST_PAIRS};
use super::rules::estimate::Length;
use super::visible::Visible;
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

/// Returns the visible pairs, without those that are being sent and without `except`. The oldest comes first, or they
/// come in the order in which they are named.
pub async fn visible(
    connection: &mut PgConnection,
    project: &str,
    visible: &Visible,
    except: Option<Uuid>,
) -> Result<Vec<Candidate>, Failed> {
    // An answer that is not complete is not sent, so neither does it count.
    let mut query = QueryBuilder::<Postgres>::new(
        "select p.id, p.revision, p.model, p.tokens, p.tokens_model,
            p.user_chars + case when p.lifecycle_state = 'complete' then p.assistant_chars else 0 end as chars,
            p.user_units + case when p.lifecycle_state = 'complete' then p.assistant_units else 0 end as units
        from pairs p where p.project = ",
    );
    query.push_bind(project.to_owned());
    let unsent = |query: &mut QueryBuilder<Postgres>| {
        query.push(" and p.lifecycle_state <> 'sending' and p.id is distinct from ").push_bind(except);
    };
    if let Some(ids) = &visible.ids {
        let mut known =
            QueryBuilder::<Postgres>::new("select id, user_text is not null from pairs where project = ");
        known.push_bind(project.to_owned()).push(" and id = any(").push_bind(ids.clone()).push(")");
        let known: Vec<(Uuid, bool)> = known.build_query_as().fetch_all(&mut *connection).await?;
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
        query.push(" and p.id = any(").push_bind(ids.clone()).push(")");
        unsent(&mut query);
        let rows: Vec<Row> = query.build_query_as().fetch_all(connection).await?;
        let mut rows: HashMap<_, _> = rows.into_iter().map(|row| (row.id, row)).collect();
        return Ok(ids.iter().filter_map(|id| rows.remove(id)).map(Candidate::from).collect());
    }
    query.push(" and p.user_text is not null");
    unsent(&mut query);
    if let Some(filter) = &visible.filter {
        filter.push(&mut query);
    }
    let most = i64::try_from(MOST_PAIRS).unwrap_or(i64::MAX);
    query.push(" order by p.created_at, p.id limit ").push_bind(most + 1);
    let rows: Vec<Row> = query.build_query_as().fetch_all(connection).await?;
    if rows.len() > MOST_PAIRS {
        return Err(Error::invalid("/visible/filter", "matches more than 10000 pairs").into());
    }
    Ok(rows.into_iter().map(Candidate::from).collect())
}
