//! The stored pairs that are visible, named by their ids or found by a filter.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};
use sqlx::{Postgres, QueryBuilder};
use utoipa::ToSchema;
use uuid::Uuid;

use super::PairState;
use super::requests::MOST_PAIRS;
use crate::http::page::check_range;
use crate::http::{Check, Checks};
use crate::privacy::redact::{GroupName, Redaction, Texts};
use crate::texts;
use crate::types::{Contained, Timestamp};

/// The stored pairs that are visible, given either as `ids` or as `filter`.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = VisiblePairs)]
pub struct Visible {
    /// The ids of the pairs in the order in which they are visible, at most 10,000.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ids: Option<Vec<Uuid>>,
    /// The pairs that match a filter, the oldest first. At most 10,000 pairs may match.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filter: Option<PairFilter>,
}

impl Check for Visible {
    fn check(&self, checks: &mut Checks) {
        let one = self.ids.is_some() != self.filter.is_some();
        checks.require(one, "ids", "either this or filter must be given");
        let ids = self.ids.as_deref().unwrap_or_default();
        checks.require(ids.len() <= MOST_PAIRS, "ids", "has more than 10000 ids");
        let mut known = HashSet::new();
        for (index, id) in ids.iter().take(MOST_PAIRS).enumerate() {
            checks.require(known.insert(id), &format!("ids/{index}"), "the same id occurs earlier");
        }
        if let Some(filter) = &self.filter {
            checks.nested("filter", filter);
        }
    }
}

/// A value, or several values of which any may match.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum AnyOf<T> {
    /// This value.
    One(T),
    /// Any of several values.
    Several(Vec<T>),
}

impl<T: Clone> AnyOf<T> {
    fn values(&self) -> Vec<T> {
        match self {
            Self::One(value) => vec![value.clone()],
            Self::Several(values) => values.clone(),
        }
    }
}

/// A filter of pairs. A pair matches if it meets all conditions. An empty filter matches every pair of the project.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PairFilter {
    /// Only pairs of this topic.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(inline)]
    pub topic_id: Option<AnyOf<String>>,
    /// Only pairs of this agent session.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(inline)]
    pub session_id: Option<AnyOf<String>>,
    /// Only pairs of this model.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(inline)]
    pub model: Option<AnyOf<String>>,
    /// Only pairs with this number of stars.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(inline)]
    pub star: Option<AnyOf<i16>>,
    /// Only pairs with at least this number of stars.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = -32768, maximum = 32767)]
    pub min_star: Option<i16>,
    /// Only pairs with this color flag.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(inline)]
    pub color_flag: Option<AnyOf<String>>,
    /// Only pairs in this state.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(inline)]
    pub state: Option<AnyOf<PairState>>,
    /// Only pairs whose message or answer contains this text. Case is ignored.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(inline)]
    pub q: Option<Contained>,
    /// Only pairs created at this time or later.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// Only pairs created before this time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// Only pairs that do not match this filter, which has the same members.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub not: Option<Box<Self>>,
}

texts! {
    Visible: filter;
    PairFilter: model, color_flag, not | topic_id, session_id;
}

impl<T> AnyOf<T> {
    fn each(&mut self, change: impl FnMut(&mut T)) {
        match self {
            Self::One(value) => std::slice::from_mut(value),
            Self::Several(values) => values,
        }
        .iter_mut()
        .for_each(change);
    }
}

impl<T: Texts> Texts for AnyOf<T> {
    fn texts(&mut self, redaction: &mut Redaction<'_>) {
        self.each(|value| value.texts(redaction));
    }
}

impl<T: GroupName> GroupName for AnyOf<T> {
    fn group_name(&mut self, redaction: &mut Redaction<'_>) {
        self.each(|value| value.group_name(redaction));
    }
}

/// How deep filters may be nested.
const DEPTH: usize = 8;

impl Check for PairFilter {
    fn check(&self, checks: &mut Checks) {
        check_range(checks, self.since, self.until);
        checks.contained("q", self.q.as_ref());
        let inner = std::iter::successors(self.not.as_deref(), |filter| filter.not.as_deref());
        match &self.not {
            Some(_) if inner.count() > DEPTH => checks.fail("not", "is nested more than 8 levels deep"),
            Some(filter) => checks.nested("not", &**filter),
            None => {}
        }
    }
}

impl PairFilter {
    /// Adds the filter's conditions on the pair `p`, each after an `and`.
    pub fn push(&self, query: &mut QueryBuilder<Postgres>) {
        for (column, values) in [
            ("p.topic_id", &self.topic_id),
            ("p.session_id", &self.session_id),
            ("p.model", &self.model),
            ("p.color_flag", &self.color_flag),
        ] {
            if let Some(values) = values {
                query.push(format_args!(" and {column} = any(")).push_bind(values.values()).push(")");
            }
        }
        if let Some(stars) = &self.star {
            query.push(" and p.star = any(").push_bind(stars.values()).push(")");
        }
        if let Some(least) = self.min_star {
            query.push(" and p.star >= ").push_bind(least);
        }
        if let Some(states) = &self.state {
            query.push(" and p.lifecycle_state = any(").push_bind(states.values()).push(")");
        }
        if let Some(text) = &self.q {
            query.push(" and (p.user_text ilike ").push_bind(text.pattern());
            query.push(" or p.assistant_text ilike ").push_bind(text.pattern()).push(")");
        }
        if let Some(since) = self.since {
            query.push(" and p.created_at >= ").push_bind(since);
        }
        if let Some(until) = self.until {
            query.push(" and p.created_at < ").push_bind(until);
        }
        if let Some(filter) = &self.not {
            query.push(" and (true");
            filter.push(query);
            query.push(") is not true");
        }
    }
}
