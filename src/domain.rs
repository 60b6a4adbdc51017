//! The closed set of domains: what can be recorded, one match for each question that is asked of all of them.
//!
//! A new domain is a folder of its own, an arm in each match here, and a line in [`router`](crate::router).

use serde::{Deserialize, Serialize};
use sqlx::PgConnection;
use utoipa::ToSchema;
use uuid::Uuid;

use crate::db::receipt::Written;
use crate::error::{Error, Result};
use crate::http::line::Line;
use crate::privacy::hash_key::HashKey;
use crate::privacy::kept::Kept;
use crate::searches::settings::Rules;
use crate::{generations, searches, suggestions};

/// A kind of records. Those of different domains know nothing of each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Domain {
    /// Generation logs: an intent, the attempts at a program for it, and how that ended (seed 001).
    Generations,
    /// Suggestion records: a slate, what the user looked at, and what they submitted (seed 000).
    Suggestions,
    /// Searches of agents, what they did when the results were weak, and what that teaches (seed 004).
    Searches,
}

/// Something that happens to a record of some domain: validated, with its id and times made.
#[derive(Debug)]
pub enum Event {
    /// Something that happens to a generation log.
    Generation(generations::Event),
    /// Something that happens to a suggestion record.
    Suggestion(suggestions::Event),
    /// Something that happens to a search.
    Search(searches::Event),
}

/// Where a domain's table holds the names of agent sessions.
pub struct SessionColumns {
    /// The table.
    pub table: &'static str,
    /// Its column with the session's name.
    pub name: &'static str,
    /// Its column with the time when the record was created.
    pub created_at: &'static str,
}

impl Domain {
    /// All domains, in the order of their declaration.
    pub const ALL: [Self; 3] = [Self::Generations, Self::Suggestions, Self::Searches];

    /// The names of all domains, in the same order.
    pub const NAMES: [&str; Self::ALL.len()] = {
        let mut names = [""; Self::ALL.len()];
        let mut index = 0;
        while index < names.len() {
            names[index] = Self::ALL[index].name();
            index += 1;
        }
        names
    };

    /// The domain's name in paths, settings and answers.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Generations => "generations",
            Self::Suggestions => "suggestions",
            Self::Searches => "searches",
        }
    }

    /// Whether a record says something without its texts. A search does not, so `metadata` keeps nothing of it.
    #[must_use]
    pub const fn has_metadata(self) -> bool {
        match self {
            Self::Generations | Self::Suggestions => true,
            Self::Searches => false,
        }
    }

    /// Where the names of sessions are.
    #[must_use]
    pub const fn session_columns(self) -> SessionColumns {
        match self {
            Self::Generations => {
                SessionColumns { table: "generations", name: "session_id", created_at: "created_at" }
            }
            Self::Suggestions => {
                SessionColumns { table: "suggestions", name: "session_name", created_at: "created_at" }
            }
            Self::Searches => {
                SessionColumns { table: "searches", name: "agent_session_id", created_at: "timestamp" }
            }
        }
    }

    /// Erases all that an agent session has left; how many records of which kinds that were.
    pub async fn erase_session(
        self,
        connection: &mut PgConnection,
        project: &str,
        rules: &Rules,
        session: &str,
    ) -> Result<Vec<(&'static str, u64)>> {
        match self {
            Self::Generations => {
                let erased = generations::store::delete_session(connection, project, session).await?;
                Ok(vec![("generations", erased.generations), ("attempts", erased.attempts)])
            }
            Self::Suggestions => {
                let erased = suggestions::store::delete_session(connection, project, session).await?;
                Ok(vec![("suggestions", erased.suggestions)])
            }
            Self::Searches => {
                let erased = searches::store::delete_session(connection, project, rules, session).await?;
                Ok(vec![("searches", erased)])
            }
        }
    }
}

/// Reads one clean line of a batch as an event; its member `event` names the kind. `id` is for a line that has none of its
/// own.
pub fn read(project: &str, line: &str, id: Option<Uuid>) -> Result<Event> {
    let line = Line::new(project, line, id)?;
    let kind = line.kind.as_deref();
    let read = generations::event::read(kind, &line)
        .map(|event| event.map(Event::Generation))
        .or_else(|| suggestions::event::read(kind, &line).map(|event| event.map(Event::Suggestion)))
        .or_else(|| searches::event::read(kind, &line).map(|event| event.map(Event::Search)));
    read.unwrap_or_else(|| {
        Err(match kind {
            Some(other) => Error::invalid("/event", format!("{other:?} is not the name of an event")),
            None => Error::invalid("/event", "must name what happened"),
        })
    })
}

/// Writes events of one project and one domain in one transaction; their verdicts, in their order.
pub async fn write(
    connection: &mut PgConnection,
    project: &str,
    rules: &Rules,
    events: &[&Kept<Event>],
) -> sqlx::Result<Vec<Written>> {
    let Some(domain) = events.first().map(|event| event.domain()) else {
        return Ok(Vec::new());
    };
    // Boxed, because these futures are large and everything that waits for one would hold it.
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
            Box::pin(searches::write::write(connection, project, rules, &events)).await
        }
    }
}

/// The events of one domain, as that domain knows them.
fn parts<'a, T>(events: &[&'a Kept<Event>], part: impl Fn(&'a Event) -> Option<&'a T>) -> Vec<Kept<&'a T>> {
    events.iter().filter_map(|event| event.part(&part)).collect()
}

impl Event {
    /// The domain of the record that it happens to.
    #[must_use]
    pub fn domain(&self) -> Domain {
        match self {
            Self::Generation(_) => Domain::Generations,
            Self::Suggestion(_) => Domain::Suggestions,
            Self::Search(_) => Domain::Searches,
        }
    }

    /// What is left of it where no text is kept: figures, verdicts, names, times, and hashes with `key`; nothing of an event
    /// that says nothing without its text.
    #[must_use]
    pub fn reduce(mut self, key: &HashKey) -> Option<Self> {
        match &mut self {
            Self::Generation(event) => event.reduce(key),
            Self::Suggestion(event) => event.reduce(key),
            Self::Search(_) => return None,
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
