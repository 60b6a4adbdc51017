//! What happens to a search, as the writer takes it: validated, with its id, times and hashes made.

use uuid::Uuid;

use super::{NewFallback, NewSearch, Resolve, Search};
use crate::error::Result;
use crate::http::line::{Line, Record};
use crate::types::{Timestamp, derived_id, request_hash};

/// Something that happens to a search, as the writer takes it.
#[derive(Debug)]
pub struct Event {
    /// The search.
    pub search_id: Uuid,
    /// What happens to it.
    pub action: Action,
}

/// What happens to a search.
#[derive(Debug)]
pub enum Action {
    /// It is made.
    Start(Box<Start>),
    /// The agent does something afterwards.
    Append(Box<Append>),
    /// The agent's turn ends.
    Finalize {
        /// When.
        at: Timestamp,
    },
}

/// A search that is made.
#[derive(Debug)]
pub struct Start {
    /// The request.
    pub new: NewSearch,
    /// When.
    pub at: Timestamp,
    /// Of the request.
    pub hash: Vec<u8>,
    /// The associations that it is answered with, and how well each fits.
    pub hints: Vec<(Uuid, f64)>,
}

/// What an agent did after a search.
#[derive(Debug)]
pub struct Append {
    /// Names it in its search.
    pub id: Uuid,
    /// The request.
    pub new: NewFallback,
    /// When.
    pub at: Timestamp,
    /// Of the request.
    pub hash: Vec<u8>,
}

impl Event {
    /// A search is made, and answered with `hints`. `id` is the request's own or one derived for it; without either the
    /// server makes one.
    #[must_use]
    pub fn start(new: NewSearch, id: Option<Uuid>, hints: Vec<(Uuid, f64)>) -> Self {
        let hash = request_hash(&new);
        let at = new.timestamp.unwrap_or_else(Timestamp::now);
        let search_id = new.id.or(id).unwrap_or_else(Uuid::now_v7);
        Self { search_id, action: Action::Start(Box::new(Start { new, at, hash, hints })) }
    }

    /// The agent does something after a search. `id` as for [`Event::start`]; without either, but with a time, the same
    /// thing at the same time is the same.
    #[must_use]
    pub fn append(search_id: Uuid, new: NewFallback, id: Option<Uuid>) -> Self {
        let hash = request_hash(&new);
        let by_content = || new.timestamp.map(|_| derived_id(&[b"fallback", search_id.as_bytes(), &hash]));
        let id = new.id.or(id).or_else(by_content).unwrap_or_else(Uuid::now_v7);
        let at = new.timestamp.unwrap_or_else(Timestamp::now);
        Self { search_id, action: Action::Append(Box::new(Append { id, new, at, hash })) }
    }

    /// The agent's turn ends.
    #[must_use]
    pub fn finalize(search_id: Uuid, resolve: &Resolve) -> Self {
        let at = resolve.timestamp.unwrap_or_else(Timestamp::now);
        Self { search_id, action: Action::Finalize { at } }
    }

    /// The id of the fallback that is appended.
    #[must_use]
    pub fn fallback_id(&self) -> Option<Uuid> {
        match &self.action {
            Action::Append(append) => Some(append.id),
            _ => None,
        }
    }
}

impl Record for Search {
    const MEMBER: &'static str = "search_id";
    const NAME: &'static str = "search";
}

/// Reads a line of a batch whose kind is one of this domain's; none of another's.
pub fn read(kind: Option<&str>, line: &Line<'_>) -> Option<Result<Event>> {
    Some(match kind? {
        "search" => line.start::<_, Search>().map(|new| Event::start(new, line.id, Vec::new())),
        "fallback" => line.child::<_, Search>().map(|(search, new)| Event::append(search, new, line.id)),
        "search_outcome" => {
            line.child::<_, Search>().map(|(search, resolve): (_, Resolve)| Event::finalize(search, &resolve))
        }
        _ => return None,
    })
}
