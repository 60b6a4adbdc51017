//! The closed set of domains, with one `match` for each question that is asked of all of them.
//!
//! A new domain needs a folder of its own, an arm in each `match` here, and a line in
//! [`router`](crate::router).

use serde::{Deserialize, Serialize};
use sqlx::PgConnection;
use utoipa::ToSchema;
use uuid::Uuid;

use crate::db::erased::{Cause, Counts, Piece};
use crate::db::made::Made;
use crate::db::receipt::Written;
use crate::error::{Error, Result, cut};
use crate::http::line::Line;
use crate::memories::code::Code;
use crate::privacy::hash_key::HashKey;
use crate::privacy::kept::Kept;
use crate::privacy::redact::Redaction;
use crate::searches::settings::Rules;
use crate::types::Timestamp;
use crate::{generations, memories, messages, searches, suggestions};

/// A domain: one kind of record with its events.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema, clap::ValueEnum,
)]
#[serde(rename_all = "lowercase")]
pub enum Domain {
    /// Generation logs: an intent, the attempts at a program for it, and the outcome (seed 001).
    Generations,
    /// Suggestion records: a list of suggestions, what the user viewed, and what they submitted (seed 000).
    Suggestions,
    /// Searches by agents, what the agents did when the results were weak, and what is learned from that (seed 004).
    Searches,
    /// Message pairs, and the sends that created them (seed 003).
    Messages,
    /// Memories, the queries of conversations, and the suggestions made there (seed 002).
    Memories,
}

/// Something that happens to a record. It is validated and has its id and times.
#[derive(Debug)]
pub enum Event {
    /// An event of a generation log.
    Generation(generations::Event),
    /// An event of a suggestion record.
    Suggestion(suggestions::Event),
    /// An event of a search.
    Search(searches::Event),
    /// An event of a message pair or a send.
    Message(messages::Event),
    /// An event of a memory or a conversation.
    Memory(memories::Event),
}

/// The events with which an event is written together: those of its domain, or of a lane of it.
pub type Together = (Domain, messages::write::Lane);

/// The settings of a project that are needed to write its events.
#[derive(Debug, Clone, Copy)]
pub struct InForce<'a> {
    /// The settings of searches.
    pub searches: &'a Rules,
    /// The settings of sends and predictions.
    pub messages: &'a messages::settings::Rules,
}

/// The place of the names of agent sessions in a domain's table.
pub struct SessionColumns {
    /// The table's name, or a subquery that takes its place.
    pub table: &'static str,
    /// The column with the session's name.
    pub name: &'static str,
    /// The column with the name of the server that the session runs on, if records of the domain name it.
    pub server: Option<&'static str>,
    /// The column with the time when the record was created.
    pub created_at: &'static str,
}

/// The name of an agent session, by which its records are erased.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionName<'a> {
    /// The name that clients gave the session.
    pub session: &'a str,
    /// The server that the session runs on. Without one, all sessions of this name are meant.
    pub server: Option<&'a str>,
}

impl Domain {
    /// All domains, in the order of their declaration.
    pub const ALL: [Self; 5] =
        [Self::Generations, Self::Suggestions, Self::Searches, Self::Messages, Self::Memories];

    /// The names of all domains, in the order of [`Domain::ALL`].
    pub const NAMES: [&str; Self::ALL.len()] = {
        let mut names = [""; Self::ALL.len()];
        let mut index = 0;
        while index < names.len() {
            names[index] = Self::ALL[index].name();
            index += 1;
        }
        names
    };

    /// Returns the domain's name in paths, settings and responses.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Generations => "generations",
            Self::Suggestions => "suggestions",
            Self::Searches => "searches",
            Self::Messages => "messages",
            Self::Memories => "memories",
        }
    }

    /// Returns whether a record is useful without its texts. A search is not, so nothing of it is stored under
    /// [`Capture::Metadata`](crate::privacy::capture::Capture::Metadata).
    #[must_use]
    pub const fn has_metadata(self) -> bool {
        match self {
            Self::Generations | Self::Suggestions | Self::Messages | Self::Memories => true,
            Self::Searches => false,
        }
    }

    /// Returns where the names of agent sessions are in the domain's table.
    #[must_use]
    pub const fn session_columns(self) -> SessionColumns {
        match self {
            Self::Generations => SessionColumns {
                table: "generations",
                name: "session_id",
                server: None,
                created_at: "created_at",
            },
            Self::Suggestions => SessionColumns {
                table: "suggestions",
                name: "session_name",
                server: Some("server_name"),
                created_at: "created_at",
            },
            Self::Searches => SessionColumns {
                table: "searches",
                name: "agent_session_id",
                server: None,
                created_at: "timestamp",
            },
            Self::Messages => {
                SessionColumns { table: "pairs", name: "session_id", server: None, created_at: "created_at" }
            }
            Self::Memories => SessionColumns {
                table: "(
                    select project, session_id, created_at from memories
                    union all select project, session_id, at from conversation_queries
                ) memories",
                name: "session_id",
                server: None,
                created_at: "created_at",
            },
        }
    }

    /// Erases some of the domain's records of this session, at most `most` of each kind. A record without a server belongs
    /// to no server's session.
    pub async fn erase_session(
        self,
        connection: &mut PgConnection,
        project: &str,
        rules: &Rules,
        SessionName { session, server }: SessionName<'_>,
        most: i64,
    ) -> Result<Piece> {
        let erased = match (self, server) {
            (Self::Suggestions, _) => {
                suggestions::store::delete_session(connection, project, session, server, most).await?.counts()
            }
            // Their records have no server.
            (_, Some(_)) => Counts::new(),
            (Self::Generations, None) => {
                generations::store::delete_session(connection, project, session, most).await?.counts()
            }
            (Self::Searches, None) => {
                return searches::store::delete_session(connection, project, rules, session, most).await;
            }
            (Self::Messages, None) => {
                messages::store::delete_session(connection, project, session, most).await?.counts()
            }
            (Self::Memories, None) => {
                memories::store::delete_session(connection, project, session, most).await?.counts()
            }
        };
        Ok(Piece::of(erased))
    }

    /// Erases the domain's record with this id. Returns the number of records erased, by kind.
    pub async fn erase_record(
        self,
        connection: &mut PgConnection,
        project: &str,
        rules: &Rules,
        id: Uuid,
    ) -> Result<Counts> {
        Ok(match self {
            Self::Generations => generations::store::delete(connection, project, id).await?.counts(),
            Self::Suggestions => suggestions::store::delete(connection, project, id).await?.counts(),
            Self::Searches => {
                vec![("searches", searches::store::delete(connection, project, rules, id).await?)]
            }
            Self::Messages => messages::store::delete(connection, project, id).await?.counts(),
            Self::Memories => memories::store::delete_record(connection, project, id).await?.counts(),
        })
    }

    /// Erases at most `most` of the domain's oldest records that were finalized, or else created, before a time.
    /// Records in progress stay.
    pub async fn erase_before(
        self,
        connection: &mut PgConnection,
        project: &str,
        rules: &Rules,
        time: Timestamp,
        most: i64,
        cause: Cause,
    ) -> Result<Piece> {
        let erased = match self {
            Self::Generations => {
                generations::store::delete_before(connection, project, time, most).await?.counts()
            }
            Self::Suggestions => {
                suggestions::store::delete_before(connection, project, time, most).await?.counts()
            }
            Self::Searches => {
                return searches::store::delete_before(connection, project, rules, time, most, cause).await;
            }
            Self::Messages => messages::store::delete_before(connection, project, time, most).await?.counts(),
            Self::Memories => {
                return memories::store::delete_before(connection, project, time, most, cause).await;
            }
        };
        Ok(Piece::of(erased))
    }
}

/// Reads one clean line of a batch as an event, whose kind is in the member `event`. `id` is used for a record whose
/// line has no id.
pub fn read(project: &str, line: &str, id: Option<Uuid>) -> Result<Event> {
    let line = Line::new(project, line, id)?;
    let kind = line.kind.as_deref();
    let read = generations::event::read(kind, &line)
        .map(|event| event.map(Event::Generation))
        .or_else(|| suggestions::event::read(kind, &line).map(|event| event.map(Event::Suggestion)))
        .or_else(|| searches::event::read(kind, &line).map(|event| event.map(Event::Search)))
        .or_else(|| messages::event::read(kind, &line).map(|event| event.map(Event::Message)))
        .or_else(|| memories::event::read(kind, &line).map(|event| event.map(Event::Memory)));
    read.unwrap_or_else(|| {
        Err(match kind {
            Some(other) => Error::invalid("/event", format!("{:?} is not the name of an event", cut(other))),
            None => Error::invalid("/event", "must name the kind of event"),
        })
    })
}

/// Writes events of one project that are written together, in one transaction. Returns their verdicts in the order of the
/// events.
pub async fn write(
    connection: &mut PgConnection,
    project: &str,
    rules: InForce<'_>,
    events: &[&Kept<Event>],
) -> sqlx::Result<Vec<Written>> {
    let Some(domain) = events.first().map(|event| event.domain()) else {
        return Ok(Vec::new());
    };
    // These futures are boxed because they are large, and every future that awaits one would contain it.
    match domain {
        Domain::Generations => {
            let events =
                parts(events, |event| if let Event::Generation(own) = event { Some(own) } else { None });
            Box::pin(generations::write::write(connection, project, &events)).await
        }
        Domain::Suggestions => {
            let events =
                parts(events, |event| if let Event::Suggestion(own) = event { Some(own) } else { None });
            Box::pin(suggestions::write::write(connection, project, &events)).await
        }
        Domain::Searches => {
            let events = parts(events, |event| if let Event::Search(own) = event { Some(own) } else { None });
            Box::pin(searches::write::write(connection, project, rules.searches, &events)).await
        }
        Domain::Messages => {
            let events =
                parts(events, |event| if let Event::Message(own) = event { Some(own) } else { None });
            Box::pin(messages::write::write(connection, project, rules.messages, &events)).await
        }
        Domain::Memories => {
            let events = parts(events, |event| if let Event::Memory(own) = event { Some(own) } else { None });
            Box::pin(memories::write::write(connection, project, &events)).await
        }
    }
}

/// Unwraps the events of one domain.
fn parts<'a, T>(events: &[&'a Kept<Event>], part: impl Fn(&'a Event) -> Option<&'a T>) -> Vec<Kept<&'a T>> {
    events.iter().filter_map(|event| event.part(&part)).collect()
}

/// Returns the kinds of all domains' events, as metrics name them.
pub fn kinds() -> impl Iterator<Item = &'static str> {
    let of = |domain: &Domain| match domain {
        Domain::Generations => generations::event::KINDS.iter(),
        Domain::Suggestions => suggestions::event::KINDS.iter(),
        Domain::Searches => searches::event::KINDS.iter(),
        Domain::Messages => messages::event::KINDS.iter(),
        Domain::Memories => memories::event::KINDS.iter(),
    };
    Domain::ALL.iter().flat_map(of).copied()
}

impl Event {
    /// Returns the number of records that the event makes besides its own: the attempts that a log begins with, and the pieces of
    /// a file.
    #[must_use]
    pub fn parts(&self) -> usize {
        match self {
            Self::Generation(event) => event.attempts(),
            Self::Memory(event) => event.pieces().map_or(0, |code| code.chunks.len()),
            _ => 0,
        }
    }

    /// Returns how many bytes of memory the event takes besides what its line says: the pieces of a file repeat its folder and path.
    #[must_use]
    pub fn repeated(&self) -> usize {
        match self {
            Self::Memory(event) => event.pieces().map_or(0, Code::size),
            _ => 0,
        }
    }

    /// Returns the records that the event makes, of those that a quota limits, if it makes any.
    #[must_use]
    pub fn made(&self) -> Option<Made> {
        match self {
            Self::Generation(event) => event.made(),
            Self::Suggestion(event) => event.made(),
            Self::Search(event) => event.made(),
            Self::Message(event) => event.made(),
            Self::Memory(event) => event.made(),
        }
    }

    /// Returns how much an event takes of a transaction, compared with the usual ones. A send with stored pairs is
    /// predicted in it, which takes up to 35 ms, and any send may be for a model with quotas, for which the calls of a
    /// day are read. At the end of a search, up to a thousand associations are learned, and from the end of a log or slate
    /// follow up to some thousand rows. Sixteen rows of its parts take as much as an event.
    #[must_use]
    pub fn weight(&self) -> usize {
        match self.kind() {
            "search_outcome" => return 32,
            "send" if !self.shows_others() => return 16,
            "generation_outcome" | "review" | "suggestion_outcome" => return 8,
            _ => {}
        }
        let parts = match self {
            Self::Suggestion(event) => event.activities(),
            _ => self.parts(),
        };
        let usual = 1 + parts / 16;
        if self.shows_others() { 64 + usual } else { usual }
    }

    /// Returns whether what the event refers to has to be [looked up](Event::look_up) before the writer takes it.
    #[must_use]
    pub fn looks_up(&self) -> bool {
        matches!(self, Self::Message(event) if event.looks_up())
    }

    /// Looks up what the event refers to, if that may take long, so that it does not keep a writer from others. Returns how many
    /// bytes that has.
    pub async fn look_up(&self, connection: &mut PgConnection, project: &str) -> Result<usize> {
        match self {
            Self::Message(event) => event.look_up(connection, project).await,
            _ => Ok(0),
        }
    }

    /// Returns whether the event makes a record that shows what others have posted.
    #[must_use]
    pub fn shows_others(&self) -> bool {
        matches!(self, Self::Message(event) if event.shows_pairs())
    }

    /// Returns with which events this one is written together.
    #[must_use]
    pub fn together(&self) -> Together {
        let lane = match self {
            Self::Message(event) => event.lane(),
            _ => messages::write::Lane::All,
        };
        (self.domain(), lane)
    }

    /// Returns the domain of the event's record.
    #[must_use]
    pub fn domain(&self) -> Domain {
        match self {
            Self::Generation(_) => Domain::Generations,
            Self::Suggestion(_) => Domain::Suggestions,
            Self::Search(_) => Domain::Searches,
            Self::Message(_) => Domain::Messages,
            Self::Memory(_) => Domain::Memories,
        }
    }

    /// Returns the event's kind, one of [`kinds`].
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Generation(event) => event.kind(),
            Self::Suggestion(event) => event.kind(),
            Self::Search(event) => event.kind(),
            Self::Message(event) => event.kind(),
            Self::Memory(event) => event.kind(),
        }
    }

    /// Applies a project's redaction rules to the event's texts, and hides the hashes of what was sent.
    pub fn redact(&mut self, redaction: &mut Redaction<'_>) {
        match self {
            Self::Generation(event) => event.redact(redaction),
            Self::Suggestion(event) => event.redact(redaction),
            Self::Search(event) => event.redact(redaction),
            Self::Message(event) => event.redact(redaction),
            Self::Memory(event) => event.redact(redaction),
        }
    }

    /// Returns what is left of the event if no text is stored: numbers, verdicts, names and times, and hashes with `key` of
    /// texts that are compared. It is none for an event that is useless without its text.
    #[must_use]
    pub fn reduce(mut self, key: &HashKey) -> Option<Self> {
        match &mut self {
            Self::Generation(event) => event.reduce(),
            Self::Suggestion(event) => event.reduce(key),
            Self::Search(_) => return None,
            Self::Message(event) => event.reduce(),
            Self::Memory(event) => event.reduce(),
        }
        Some(self)
    }
}

impl From<generations::Event> for Event {
    fn from(event: generations::Event) -> Self {
        Self::Generation(event)
    }
}

impl From<suggestions::Event> for Event {
    fn from(event: suggestions::Event) -> Self {
        Self::Suggestion(event)
    }
}

impl From<searches::Event> for Event {
    fn from(event: searches::Event) -> Self {
        Self::Search(event)
    }
}

impl From<messages::Event> for Event {
    fn from(event: messages::Event) -> Self {
        Self::Message(event)
    }
}

impl From<memories::Event> for Event {
    fn from(event: memories::Event) -> Self {
        Self::Memory(event)
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::suggestions::{Names, NewPartialInput, NewPartialInputs};

    #[test]
    fn an_event_of_many_rows_weighs_as_much_as_many_events() {
        let weight = |count: usize| {
            let input = NewPartialInput { id: None, text: "a".to_owned(), at: None };
            let inputs = NewPartialInputs { inputs: vec![input; count] };
            let typed = suggestions::Event::partial_inputs(Uuid::nil(), inputs, Names::default());
            Event::Suggestion(typed).weight()
        };
        assert_eq!([1, 15, 16, 1_600].map(weight), [1, 1, 2, 101]);
    }
}
