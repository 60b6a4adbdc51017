//! A hook that an agent has sent, and what is done with it.

use std::collections::BTreeSet;
use std::sync::Arc;

use tokio::sync::oneshot;
use uuid::Uuid;

use crate::agents::{Activity, Agent, Entry, ToolAction};
use crate::error::{Error, Result};
use crate::help::unasked::{self, At, Wanted};
use crate::http::memory::Memory;
use crate::http::{clean_json, utf8};
use crate::intake::prompts;
use crate::memories;
use crate::memories::help::{self, Traces};
use crate::memories::rules::signs;
use crate::projects::Tenant;
use crate::searches::hooks::Report;
use crate::searches::rules::paths;
use crate::searches::transcripts::complete_alone;
use crate::sharing::{Kind, Work, apart};
use crate::state::App;
use crate::types::Timestamp;

/// The maximum number of signs that are looked up for one hook.
const MOST_SIGNS: usize = 5_000;

/// The number of bytes of a payload from which reading it keeps other requests waiting.
const LARGE: usize = 16 << 10;

/// Where the help for an agent is sent, with the name of the event that it answers.
type Answer = oneshot::Sender<(&'static str, String)>;

/// A hook that was read.
#[derive(Debug)]
pub struct Heard {
    agent: &'static Agent,
    entry: Option<Entry>,
    bytes: usize,
    received: Timestamp,
}

impl Heard {
    /// Reads the payload of a hook that arrived at `received`, when and wherever that keeps no other request waiting.
    pub async fn read(
        work: &Work,
        tenant: &Arc<Tenant>,
        agent: &'static Agent,
        body: Vec<u8>,
        received: Timestamp,
    ) -> Self {
        let bytes = body.len();
        let entry = if bytes < LARGE {
            parse(tenant, agent, body)
        } else {
            let own = Arc::clone(tenant);
            let _turn = work.turn(&tenant.name, Kind::Parse).await;
            apart(&tenant.name, move || parse(&own, agent, body)).await
        };
        Self { agent, entry, bytes, received }
    }

    /// Returns the name of the hook's event, if the response may contain help.
    fn answerable(&self) -> Option<&'static str> {
        let event = self.entry.as_ref()?.event.as_deref()?;
        self.agent.hooks.answerable.iter().copied().find(|name| *name == event)
    }

    /// Processes the hook in this order: a prompt is recorded, the use of earlier help is recorded, help is found if
    /// it is wanted and the event is one that can be answered, and is sent with the event's name, and searches learn. Help is
    /// recorded as shown only if somebody receives it.
    pub async fn work(
        mut self,
        app: &App,
        tenant: &Arc<Tenant>,
        key: Option<Uuid>,
        help: Option<(Wanted, Answer)>,
        memory: &Memory,
    ) -> Result<()> {
        let talked = self.talk(app, tenant, key, help, memory).await;
        let learned = match Report::of(tenant, self.agent, self.entry, self.bytes, self.received).await {
            Some(report) => report.learn(&app.searches, &app.work, tenant).await,
            None => Ok(()),
        };
        talked.and(learned)
    }

    /// Processes the part of the hook that concerns conversations.
    async fn talk(
        &mut self,
        app: &App,
        tenant: &Arc<Tenant>,
        key: Option<Uuid>,
        help: Option<(Wanted, Answer)>,
        memory: &Memory,
    ) -> Result<()> {
        let help = self.answerable().zip(help);
        let Some(entry) = &mut self.entry else { return Ok(()) };
        let written = entry.written.take().unwrap_or_default();
        entry.at = entry.at.or(Some(self.received));
        // Names are cut afterwards, because a secret is recognized only if it is whole.
        *entry = tenant.redacted(std::mem::take(entry)).await.0;
        complete_alone(entry);
        if let Some(event) = prompts::query(entry, key) {
            match app.writer.write(tenant, event, memory).await {
                // The transcript has already reported this prompt.
                Ok(_) | Err(Error::Conflict(_)) => {}
                Err(error) => return Err(error),
            }
        }
        note_use(app, tenant, entry, &written, memory).await?;
        match help.zip(at(entry)) {
            Some(((event, (wanted, answer)), at)) => {
                tell(app, tenant, &wanted, &at, (event, answer), memory).await
            }
            None => Ok(()),
        }
    }
}

/// Reads a payload. Returns none if it is not understood.
fn parse(tenant: &Tenant, agent: &Agent, mut body: Vec<u8>) -> Option<Entry> {
    clean_json(&mut body).ok()?;
    (agent.parse_hook)(utf8(&body).ok()?, &tenant.rules.tools)
}

/// Finds help, sends it to the waiting response, and records it as shown, or as withheld in a session without help.
async fn tell(
    app: &App,
    tenant: &Arc<Tenant>,
    wanted: &Wanted,
    at: &At<'_>,
    (event, mut answer): (&'static str, Answer),
    memory: &Memory,
) -> Result<()> {
    let found = tokio::select! {
        found = unasked::find(app, tenant, wanted, at, memory) => found?,
        // Nobody waits for the help any longer. It would keep others of the project from reading.
        () = answer.closed() => return Ok(()),
    };
    let Some(found) = found else { return Ok(()) };
    let taken = match found.text.clone() {
        Some(text) => answer.send((event, text)).is_ok(),
        None => !answer.is_closed(),
    };
    if taken { unasked::note(app, tenant, found, memory).await } else { Ok(()) }
}

/// Records which help the agent has used: files that it has opened, and names from the help that it has written.
async fn note_use(
    app: &App,
    tenant: &Arc<Tenant>,
    entry: &Entry,
    written: &str,
    memory: &Memory,
) -> Result<()> {
    let Some(session) = &entry.session else { return Ok(()) };
    let key = tenant.policy.key();
    let words = signs::written(written).take(MOST_SIGNS).map(|word| help::word(key, word));
    let files =
        opened(entry).map(|path| help::file(key, &paths::normalise(path, entry.root.as_deref(), None)));
    let signs: BTreeSet<_> = words.chain(files).collect();
    if signs.is_empty() || !help::is_open(&app.db, &tenant.name, session).await? {
        return Ok(());
    }
    let traces = Traces { session: session.clone(), signs: signs.into_iter().collect() };
    app.writer.write(tenant, memories::Event::traces(traces), memory).await.map(|_| ())
}

/// Returns the situation of an agent, if it may get help: a person has written a prompt, or a search had no results.
fn at(entry: &Entry) -> Option<At<'_>> {
    let (session, root) = (entry.session.as_deref()?, entry.root.as_deref());
    if let Some(text) = entry.prompt.as_deref().filter(|_| entry.agent.is_none()) {
        return Some(At { session, root, text, is_search: false });
    }
    let in_vain = entry.activities.iter().any(
        |activity| matches!(activity, Activity::ToolResult { output: Some(output), .. } if output.is_empty()),
    );
    let text = actions(entry).find_map(|action| match action {
        ToolAction::Search { query, .. } if in_vain => Some(query.as_str()),
        _ => None,
    })?;
    Some(At { session, root, text, is_search: true })
}

/// Returns the files that an agent has read or changed, if its tool succeeded.
fn opened(entry: &Entry) -> impl Iterator<Item = &str> {
    let worked = |activity: &Activity| matches!(activity, Activity::ToolResult { ok: true, .. });
    let has_worked = entry.activities.iter().any(worked);
    actions(entry).filter_map(move |action| match action {
        ToolAction::Read { path } | ToolAction::Edit { path } if has_worked => Some(path.as_str()),
        _ => None,
    })
}

fn actions(entry: &Entry) -> impl Iterator<Item = &ToolAction> {
    entry.activities.iter().flat_map(|activity| match activity {
        Activity::ToolUse { actions, .. } => actions.as_slice(),
        _ => &[],
    })
}
