//! Prompts that people write to agents, as queries of the conversation that the agent's session is.

use std::sync::Arc;

use sqlx::PgConnection;
use uuid::Uuid;

use crate::agents::Entry;
use crate::domain;
use crate::memories::{self, Event, NewQuery};
use crate::projects::Tenant;
use crate::searches::transcripts::Listener;
use crate::types::{Timestamp, derived_id};

/// The number of characters of a prompt that are stored.
const LONGEST: usize = 262_144;

/// Returns the query of a prompt. There is none if the entry is not a prompt, or belongs to a subagent, to which no
/// person writes. A prompt has the same id however it is reported, so that it counts once. `key` is the key of the
/// client that reports it.
#[must_use]
pub fn query(entry: &Entry, key: Option<Uuid>) -> Option<Event> {
    let session = entry.session.clone().filter(|_| entry.agent.is_none())?;
    let text = entry.prompt.as_deref().map(str::trim).filter(|text| !text.is_empty())?;
    let moment = entry.turn.clone().or_else(|| Some(entry.at?.micros().to_string()));
    let id =
        moment.map(|moment| derived_id(&[b"prompt", session.as_bytes(), moment.as_bytes(), text.as_bytes()]));
    let new = NewQuery {
        id: None,
        query: text.chars().take(LONGEST).collect(),
        shown: Vec::new(),
        root: entry.root.clone().into(),
        at: Some(entry.at.unwrap_or_else(Timestamp::now)),
        suggest: None,
    };
    Some(Event::ask(session, new, id).by(key))
}

/// Makes queries from the prompts of a transcript.
#[derive(Debug, Clone, Copy)]
pub struct Conversations {
    /// The key of the client that sends the transcript.
    pub key: Option<Uuid>,
}

impl Listener for Conversations {
    async fn hear(
        &self,
        connection: &mut PgConnection,
        tenant: &Arc<Tenant>,
        entries: &[Entry],
    ) -> sqlx::Result<usize> {
        let mut kept = Vec::new();
        for event in entries.iter().filter_map(|entry| query(entry, self.key)) {
            kept.extend(tenant.keep(domain::Event::from(event)).await);
        }
        let queries: Vec<_> = kept.iter().filter_map(|event| event.part(of_memory)).collect();
        if queries.is_empty() {
            return Ok(0);
        }
        // A query that was reported before, with another time, stays unchanged.
        let written = memories::write::write(connection, &tenant.name, &queries).await?;
        Ok(written.iter().flatten().filter(|receipt| !receipt.replayed).count())
    }
}

fn of_memory(event: &domain::Event) -> Option<&Event> {
    match event {
        domain::Event::Memory(event) => Some(event),
        _ => None,
    }
}
