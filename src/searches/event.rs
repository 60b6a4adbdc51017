//! Events of searches, as the writer takes them: validated, with their ids, times and hashes.

use uuid::Uuid;

use super::rules::learner::GivenHint;
use super::{NewFallback, NewSearch, Resolve, Search};
use crate::db::made::Made;
use crate::error::Result;
use crate::http::line::{Line, Record};
use crate::privacy::hash_key::HashKey;
use crate::privacy::redact::{Redaction, Texts as _};
use crate::types::{Timestamp, derived_id, request_hash};

/// Something that happens to a search. It is validated, and has its id and times.
#[derive(Debug)]
pub struct Event {
    /// The id of the search.
    pub search_id: Uuid,
    /// What happens to the search.
    pub action: Action,
}

/// What happens to a search.
#[derive(Debug)]
pub enum Action {
    /// A search starts.
    Start(Box<Start>),
    /// The agent does something after the search.
    Append(Box<Append>),
    /// The agent's turn ends.
    Finalize {
        /// When the turn ends.
        at: Timestamp,
    },
}

/// A search that starts.
#[derive(Debug)]
pub struct Start {
    /// The request.
    pub new: NewSearch,
    /// When the search was made.
    pub at: Timestamp,
    /// The hash of the request.
    pub hash: Vec<u8>,
    /// The hints in the response to the search, best first.
    pub hints: Vec<GivenHint>,
}

/// What an agent did after a search.
#[derive(Debug)]
pub struct Append {
    /// The id of the fallback in its search.
    pub id: Uuid,
    /// Whether the client chose the id.
    pub id_given: bool,
    /// The request.
    pub new: NewFallback,
    /// When it happened.
    pub at: Timestamp,
    /// The hash of the request.
    pub hash: Vec<u8>,
}

/// The kinds of this domain's events, as metrics name them.
pub const KINDS: [&str; 3] = ["search", "fallback", "search_outcome"];

impl Event {
    /// Returns the event's kind, one of [`KINDS`].
    #[must_use]
    pub fn kind(&self) -> &'static str {
        KINDS[match &self.action {
            Action::Start(_) => 0,
            Action::Append(_) => 1,
            Action::Finalize { .. } => 2,
        }]
    }

    /// Returns the record that the event makes, if it makes one.
    #[must_use]
    pub fn made(&self) -> Option<Made> {
        let Action::Start(start) = &self.action else { return None };
        Some(Made::one("searches", self.search_id, start.new.id))
    }

    /// Makes the event that starts a search, with the hints of its response. The id is that of the request, or else
    /// `id`, or else a new one.
    #[must_use]
    pub fn start(new: NewSearch, id: Option<Uuid>, hints: Vec<GivenHint>) -> Self {
        let hash = request_hash(&new);
        let at = new.timestamp.unwrap_or_else(Timestamp::now);
        let search_id = new.id.or(id).unwrap_or_else(Uuid::now_v7);
        Self { search_id, action: Action::Start(Box::new(Start { new, at, hash, hints })) }
    }

    /// Makes the event that appends a fallback. The id is that of the request, or else `id`. If there is neither but
    /// the request has a time, the id is derived, so that the same request with the same time is the same fallback.
    #[must_use]
    pub fn append(search_id: Uuid, new: NewFallback, id: Option<Uuid>) -> Self {
        let hash = request_hash(&new);
        let by_content = || new.timestamp.map(|_| derived_id(&[b"fallback", search_id.as_bytes(), &hash]));
        let id_given = new.id.is_some();
        let id = new.id.or(id).or_else(by_content).unwrap_or_else(Uuid::now_v7);
        let at = new.timestamp.unwrap_or_else(Timestamp::now);
        Self { search_id, action: Action::Append(Box::new(Append { id, id_given, new, at, hash })) }
    }

    /// Makes the event of the end of the agent's turn.
    #[must_use]
    pub fn finalize(search_id: Uuid, resolve: &Resolve) -> Self {
        let at = resolve.timestamp.unwrap_or_else(Timestamp::now);
        Self { search_id, action: Action::Finalize { at } }
    }

    /// Applies the project's redaction rules to every text. The hashes and ids that recognize a repeated request are
    /// those of the original text, and are hidden.
    pub fn redact(&mut self, redaction: &mut Redaction<'_>) {
        match &mut self.action {
            Action::Start(start) => {
                start.new.texts(redaction);
                redaction.hide(&mut start.hash);
            }
            Action::Append(append) => {
                append.new.texts(redaction);
                redaction.hide(&mut append.hash);
                if !append.id_given {
                    redaction.hide_id(&mut append.id);
                }
            }
            Action::Finalize { .. } => {}
        }
    }

    /// Returns the id under which the fallback will be stored, if the event appends one. `key` is the project's.
    #[must_use]
    pub fn kept_fallback_id(&self, key: &HashKey) -> Option<Uuid> {
        match &self.action {
            Action::Append(append) if append.id_given => Some(append.id),
            Action::Append(append) => Some(key.id(append.id)),
            _ => None,
        }
    }

    /// Returns how many bytes the path or the pattern of the fallback has, if the event appends one.
    #[must_use]
    pub fn bytes_of_fallback(&self) -> usize {
        match &self.action {
            Action::Append(append) => append.new.target().len(),
            _ => 0,
        }
    }

    /// Returns the id of the fallback, if the event appends one.
    #[must_use]
    pub fn fallback_id(&self) -> Option<Uuid> {
        match &self.action {
            Action::Append(append) => Some(append.id),
            _ => None,
        }
    }
}

impl Record for Search {
    type Id = Uuid;

    const MEMBER: &'static str = "search_id";
    const NAME: &'static str = "search";
}

/// Reads a line of a batch if its kind is one of this domain's. Returns none for another domain's kind.
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
